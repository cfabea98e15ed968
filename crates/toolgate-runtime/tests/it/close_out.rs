//! What holds for every output, every way in which it comes and every bound: properties over arbitrary outputs.

use std::sync::{Arc, Mutex};

use proptest::{collection::vec, prelude::*, test_runner::Config};
use toolgate_core::{
    message::{Body, Message, ModelMessage},
    outcome::{Ending, StopReason},
    tool::{Bound, Most, Truncate},
};
use toolgate_runtime::{
    close_out::CloseOut,
    output::spill::SpillFolder,
    tool::Done,
    trace::{Journal, Observer},
};

/// Joins the deltas.
#[derive(Default)]
struct Deltas(Mutex<String>);

impl Observer for Deltas {
    fn see(&self, message: &Message, _seq: Option<u64>) {
        if let Body::Model(ModelMessage::PartialToolCallOutput(partial)) = &message.body {
            self.0.lock().unwrap().push_str(partial.output.as_deref().unwrap_or_default());
        }
    }
}

/// Writes an output in chunks of these sizes, over and over, and closes it with an ending and a note.
fn closed(bytes: &[u8], sizes: &[usize], bound: Bound, spills: Option<SpillFolder>, ending: &Ending) -> String {
    let deltas = Arc::new(Deltas::default());
    let journal = Arc::new(Journal::new(None, deltas.clone()));
    let frame = CloseOut::open(&journal, "call_1", bound, spills);
    let sink = frame.sink();
    let (mut rest, mut sizes) = (bytes, sizes.iter().cycle());
    while !rest.is_empty() {
        let (now, behind) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
        sink.write(now);
        rest = behind;
    }
    let output = frame.finish(ending, Vec::new(), Done::default()).unwrap().output;
    sink.write(b"a straggler");
    assert_eq!(*deltas.0.lock().unwrap(), output, "joined deltas equal the complete output");
    assert!(!output.is_empty());
    output
}

fn whole(bytes: &[u8]) -> String {
    let text = closed(bytes, &[usize::MAX], Bound::NONE, None, &COMPLETED);
    if text == "[no output]" { String::new() } else { text }
}

const COMPLETED: Ending = Ending::Returned(StopReason::Completed);

/// Words, lines, colours, progress, broken and foreign bytes, long lines, pieces of control sequences.
fn output() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => "[a-z0-9 ]{0,12}\n".prop_map(String::into_bytes),
        2 => "\\PC{0,8}".prop_map(String::into_bytes),
        2 => vec(any::<u8>(), 0..8),
        1 => (0..100u32).prop_map(|percent| format!("\r{percent}%").into_bytes()),
        1 => prop_oneof![
            Just("\x1b[31m"), Just("\x1b[2K"), Just("\x1b[K"), Just("\x1b[3D"), Just("\x1b[2G"), Just("\x1b]0;x\x07"), Just("\x1b"),
            Just("\x08"), Just("\r\n"), Just("\0"), Just("e\u{301}"), Just("\u{1F469}\u{200D}\u{1F467}"), Just("\u{1F1E9}\u{1F1EA}"),
        ].prop_map(|text| text.as_bytes().to_vec()),
        1 => (0..300usize).prop_map(|length| vec![b'x'; length]),
    ];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn bound() -> impl Strategy<Value = Bound> {
    let most = prop_oneof![
        1 => Just(Most::Everything),
        4 => (1..80usize).prop_map(Most::Characters),
        1 => Just(Most::Characters(16_000)),
        4 => (0..8usize, 0..200usize).prop_map(|(lines, bytes)| Most::Lines { lines, bytes }),
    ];
    let keep = prop_oneof![Just(Truncate::Head), Just(Truncate::Tail), Just(Truncate::Middle)];
    (most, keep).prop_map(|(most, keep)| Bound { most, keep })
}

/// Whether a text is within a bound, judged in the plainest way.
fn fits(text: &str, most: Most) -> bool {
    match most {
        Most::Everything => true,
        Most::Characters(chars) => text.chars().count() <= chars,
        Most::Lines { lines, bytes } => text.split_inclusive('\n').count() <= lines && text.len() <= bytes,
    }
}

/// The beginning and the end that a cut output shows, and what it says of the rest.
fn parts(shown: &str, keep: Truncate) -> (String, String, String) {
    let (begin, rest, end) = if keep == Truncate::Head {
        let (begin, rest) = shown.split_once("[output truncated: exceeded ").expect("it says that it was cut");
        (begin, rest, "")
    } else {
        let (begin, rest) = shown.split_once("[... ").expect("it says that something was left out");
        let (rest, end) = rest.split_once(" ...]\n").expect("the marker is a line");
        (begin, rest, end)
    };
    (begin.to_owned(), rest.to_owned(), end.to_owned())
}

fn check(bytes: &[u8], bound: Bound, shown: &str) {
    let whole = whole(bytes);
    if fits(&whole, bound.most) {
        let wanted = if whole.is_empty() { "[no output]" } else { &whole };
        assert_eq!(shown, wanted, "what fits is shown whole");
        return;
    }
    let (begin, rest, end) = parts(shown, bound.keep);
    // The marker stands on a line of its own, so a line end may have been added before it.
    let begins = [Some(begin.as_str()), begin.strip_suffix('\n')];
    let right = |begin: &str| {
        let left_out = whole.len().saturating_sub(begin.len() + end.len());
        let said = match bound.most {
            Most::Characters(_) => {
                let kept = begin.chars().count() + end.chars().count();
                rest.starts_with(&format!("{} characters left out here", whole.chars().count().saturating_sub(kept)))
            }
            _ => rest.contains(&format!("{left_out} bytes")),
        };
        whole.starts_with(begin)
            && whole.ends_with(&end)
            && left_out > 0
            && fits(&(begin.to_owned() + &end), bound.most)
            && (said || bound.keep == Truncate::Head)
    };
    assert!(begins.into_iter().flatten().any(right), "{bound:?}\n{whole:?}\n{shown:?}");
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: 400, ..Config::default() })]

    #[test]
    fn every_output_is_bounded_and_the_same_in_whatever_chunks_it_comes(
        bytes in output(), sizes in vec(1..64usize, 1..6), bound in bound(), until in 0..=100usize,
    ) {
        // Whatever ends it, and wherever.
        let bytes = &bytes[..bytes.len() * until / 100];
        let shown = closed(bytes, &sizes, bound, None, &COMPLETED);
        prop_assert_eq!(&shown, &closed(bytes, &[usize::MAX], bound, None, &COMPLETED));
        check(bytes, bound, &shown);
    }

    #[test]
    fn whatever_ends_a_call_the_spill_file_holds_what_was_printed(
        bytes in output(), sizes in vec(1..64usize, 1..6), bound in bound(),
        ending in prop_oneof![Just(COMPLETED), Just(Ending::TimedOut(5)), Just(Ending::Interrupted), Just(Ending::Errored("x".into()))],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let spills = SpillFolder::new(folder.path().join("spill"));
        let shown = closed(&bytes, &sizes, bound, Some(spills), &ending);
        let marker = ending.marker().unwrap_or_default();
        prop_assert!(shown.ends_with(&marker));
        let files: Vec<_> =
            std::fs::read_dir(folder.path().join("spill")).into_iter().flatten().map(|file| file.unwrap().path()).collect();
        if fits(&whole(&bytes), bound.most) {
            prop_assert_eq!(files.len(), 0, "what fits leaves no file");
        } else {
            prop_assert_eq!(files.len(), 1);
            prop_assert!(shown.contains(files[0].to_str().unwrap()), "{} says where it is", shown);
            prop_assert_eq!(std::fs::read(&files[0]).unwrap(), bytes);
        }
    }
}

/// A flood is not looked at as it comes; it is still the same in whatever chunks it comes.
#[test]
fn floods_and_lines_without_an_end_are_the_same_in_whatever_chunks_they_come() {
    let coloured: Vec<u8> =
        (0..30_000).flat_map(|i| format!("\x1b[3{}mline {i}\x1b[0m\r\n", i % 8).into_bytes()).collect();
    let long: Vec<u8> = (0..100_000).flat_map(|i| format!("{i:09} é").into_bytes()).collect();
    let drawn_over = [vec![b'x'; 70_000], b"\rXY\x1b[K\nend\n".to_vec()].concat();
    let mixed = [long.as_slice(), &coloured].concat();
    let middle = |most| Bound { most: Most::Characters(most), keep: Truncate::Middle };
    let bounds = [middle(16_000), middle(1_000_000), Bound::lines(Truncate::Tail), Bound::lines(Truncate::Head)];
    for bytes in [drawn_over, mixed] {
        for bound in bounds {
            let shown = closed(&bytes, &[usize::MAX], bound, None, &COMPLETED);
            let again = closed(&bytes, &[1_000_000, 333], bound, None, &COMPLETED);
            assert!(shown == again, "{bound:?}");
        }
    }
}

/// Of an output beyond the limit of a spill file, beginning and end are kept, also where most of it folds to nothing.
#[test]
fn the_end_of_an_output_is_kept_however_late_it_became_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let spills = SpillFolder::new(folder.path().join("spill"));
    let frame = [vec![b'x'; 60_000], b"\r\x1b[K".to_vec()].concat();
    let end: String = (0..5000).map(|i| format!("line {i}\n")).collect();
    let mut bytes = frame.repeat(1200);
    bytes.extend_from_slice(end.as_bytes());
    let bound = Bound { keep: Truncate::Middle, ..Bound::default() };
    let shown = closed(&bytes, &[128 * 1024], bound, Some(spills), &COMPLETED);
    let path = shown.split("in its middle: ").nth(1).unwrap().split(" ...]").next().unwrap();
    let kept = std::fs::read(path).unwrap();
    assert!(kept.ends_with(end.as_bytes()) && kept.len() <= 64 * 1024 * 1024 && shown.ends_with("line 4999\n"));
}

/// Watches what a call prints while it runs, and its deltas.
#[derive(Default)]
struct Watcher {
    live: Mutex<Vec<String>>,
    closed: Mutex<bool>,
}

impl Observer for Watcher {
    fn see(&self, message: &Message, _seq: Option<u64>) {
        *self.closed.lock().unwrap() |= matches!(&message.body, Body::Model(ModelMessage::ToolCallOutput(_)));
    }

    fn watches_live(&self) -> bool {
        true
    }

    fn live(&self, call_id: &str, text: &str) {
        assert!(!*self.closed.lock().unwrap() && call_id == "call_1", "nothing is shown behind the close");
        self.live.lock().unwrap().push(text.to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn people_see_the_newest_output_ten_times_a_second_and_never_behind_the_close() {
    let watcher = Arc::new(Watcher::default());
    let journal = Arc::new(Journal::new(None, watcher.clone()));
    let frame = CloseOut::open(&journal, "call_1", Bound::default(), None);
    let sink = frame.sink();
    for i in 0..1000 {
        sink.write(format!("\r{i} of 1000").as_bytes());
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let shown = watcher.live.lock().unwrap().clone();
    assert!((2..=12).contains(&shown.len()), "{} looks in a second", shown.len());
    assert_eq!(shown.last().unwrap(), "999 of 1000", "also what came last, though nothing followed");
    sink.write(b"\r\x1b[Kdone\n");
    let output = frame.finish(&COMPLETED, Vec::new(), Done::default()).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(output.output, "done\n", "the result knows nothing of it");
    assert_eq!(watcher.live.lock().unwrap().len(), shown.len());
}
