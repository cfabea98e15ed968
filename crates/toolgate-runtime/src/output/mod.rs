//! The output sink: the only writer of a call's deltas and of its complete text, which are therefore equal.
//!
//! Bytes go in as they were printed. [`fold`] takes terminal control off and joins what chunks tore apart; the first part goes out as
//! deltas, line by line, until the head's budget is full; the last part is held; what lies between is counted (`budget`). Where
//! anything is left out, [`spill`] keeps all of it on disk. The sink is synchronous and bounded, and never waits for a reader. What
//! comes out does not depend on the chunks that came in.

mod budget;
pub mod fold;
pub(crate) mod live;
pub(crate) mod ring;
pub mod spill;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use toolgate_core::tool::{Bound, Most, Truncate};

use budget::{Budget, Size, Tail, from_character, split};
use fold::Fold;
use live::Live;
use ring::Ring;
use spill::{Spill, SpillFolder, Spilled, TAIL};

/// Raw bytes that are held in memory before anything was left out, so that an output that fits makes no file; 256 KiB is far beyond
/// what a full result needs and still small for 64 calls at once.
const HELD_RAW: usize = 256 * 1024;

/// Raw bytes after which an output that is past its head is a flood: it is no longer looked at as it comes, only its end is, at the
/// close. Until then everything is folded and counted exactly. It is looked for at every multiple, so that chunks make no difference.
const UNFOLDED_AFTER: u64 = 1024 * 1024;

/// A tail of more bytes than this is folded as it comes: the end of a flood, taken alone, might not fill it.
const LARGEST_FLOOD_TAIL: usize = TAIL / 4;

/// Receives each delta as it is made.
pub type Emit = Box<dyn Fn(&str) + Send + Sync>;

/// One call's output.
pub struct Sink {
    inner: Mutex<Inner>,
}

struct Inner {
    fold: Fold,
    bound: Bound,
    /// Everything that went out, which is the complete text.
    complete: String,
    head: Budget,
    tail: Tail,
    /// Raw bytes so far.
    total: u64,
    /// The newest raw bytes of a long output.
    newest: Option<Ring>,
    /// What has come since the output became a flood: raw bytes, and their size as text.
    flood: Option<(u64, Size)>,
    raw: Raw,
    /// Kept only while somebody watches.
    live: Option<Live>,
    emit: Emit,
    closed: bool,
}

/// What was printed, byte for byte: in memory while everything fits, in a file afterwards.
enum Raw {
    Held {
        bytes: Vec<u8>,
        folder: SpillFolder,
        label: String,
    },
    Spilling(Spill),
    /// Unbounded, or without a folder.
    Off,
}

impl Sink {
    /// A sink for one call. `label` names the spill file.
    pub fn new(bound: Bound, folder: Option<SpillFolder>, label: &str, emit: Emit) -> Self {
        let (head, tail) = split(bound);
        let raw = match folder {
            Some(folder) if bound.most != Most::Everything => {
                Raw::Held { bytes: Vec::new(), folder, label: label.to_owned() }
            }
            _ => Raw::Off,
        };
        let inner = Inner {
            fold: Fold::default(),
            bound,
            complete: String::new(),
            head,
            tail: Tail::new(tail),
            total: 0,
            newest: None,
            flood: None,
            raw,
            live: None,
            emit,
            closed: false,
        };
        Self { inner: Mutex::new(inner) }
    }

    /// Takes bytes as they were printed. After the close it takes nothing: a straggler cannot change what was said.
    pub fn write(&self, bytes: &[u8]) {
        let mut inner = self.lock();
        if !inner.closed {
            inner.write(bytes);
        }
    }

    /// Ends the output: what is left of it, the marker where something was left out, then the notes, each on a line of its own.
    /// Never empty. Returns the complete text, which equals the joined deltas.
    pub(crate) fn close(&self, notes: &[String]) -> String {
        self.lock().close(notes)
    }

    /// Ends the output before its notes are known. Returns the text so far.
    pub(crate) fn end(&self) -> String {
        let mut inner = self.lock();
        inner.end();
        inner.complete.clone()
    }

    /// From now on, what comes is also kept for people, and each piece wakes who shows it.
    fn watch_live(&self, more: Arc<Notify>) {
        self.lock().live = Some(Live::new(more));
    }

    /// Shows people what came last. Under the lock, so that nothing is shown behind the close.
    fn show_live(&self, show: &dyn Fn(&str)) {
        let inner = self.lock();
        if let Some(live) = inner.live.as_ref().filter(|_| !inner.closed) {
            show(&live.text());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A tool that panicked while it wrote has written what it has written.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn write(&mut self, mut bytes: &[u8]) {
        let start = self.complete.len();
        while !bytes.is_empty() {
            let to_multiple = UNFOLDED_AFTER - self.total % UNFOLDED_AFTER;
            let (now, rest) = bytes.split_at(usize::try_from(to_multiple).unwrap_or(usize::MAX).min(bytes.len()));
            self.take_raw(now);
            if self.total.is_multiple_of(UNFOLDED_AFTER) {
                self.look_for_flood();
            }
            bytes = rest;
        }
        self.emit_from(start);
    }

    fn take_raw(&mut self, bytes: &[u8]) {
        self.keep_raw(bytes);
        self.total += bytes.len() as u64;
        if let Some(newest) = &mut self.newest {
            newest.write(bytes);
        }
        if let Some(live) = &mut self.live {
            live.write(bytes);
        }
        match &mut self.flood {
            Some((count, size)) => {
                *count += bytes.len() as u64;
                *size += Size::of(bytes);
            }
            None => self.fold(|fold, out| fold.push(bytes, out)),
        }
    }

    fn look_for_flood(&mut self) {
        self.newest.get_or_insert_with(|| Ring::new(TAIL));
        if self.flood.is_none() && self.head.is_spent() && self.tail.budget().most_bytes() <= LARGEST_FLOOD_TAIL {
            self.flood = Some((0, Size::default()));
        }
    }

    fn keep_raw(&mut self, bytes: &[u8]) {
        match &mut self.raw {
            Raw::Held { bytes: held, .. } if held.len() + bytes.len() <= HELD_RAW => held.extend_from_slice(bytes),
            Raw::Held { .. } => {
                self.start_spill();
                self.keep_raw(bytes);
            }
            Raw::Spilling(spill) => spill.write(bytes),
            Raw::Off => {}
        }
    }

    fn start_spill(&mut self) {
        self.raw = match std::mem::replace(&mut self.raw, Raw::Off) {
            Raw::Held { bytes, folder, label } => {
                let mut spill = Spill::new(folder, &label);
                spill.write(&bytes);
                Raw::Spilling(spill)
            }
            started => started,
        };
    }

    /// Folds, and takes the text that comes of it: into the head while it has room, else into the tail.
    fn fold(&mut self, feed: impl FnOnce(&mut Fold, &mut dyn FnMut(&str))) {
        let Self { fold, bound, complete, head, tail, .. } = self;
        feed(fold, &mut |text| {
            let mut rest = text;
            if !head.is_closed() {
                let heir = (bound.keep == Truncate::Middle).then_some(tail.budget());
                let (now, behind) = head.take(text, heir);
                complete.push_str(now);
                rest = behind;
            }
            if !rest.is_empty() {
                tail.push(rest);
            }
        });
    }

    fn emit_from(&self, start: usize) {
        if start < self.complete.len() {
            (self.emit)(&self.complete[start..]);
        }
    }

    fn close(&mut self, notes: &[String]) -> String {
        self.end();
        let start = self.complete.len();
        for note in notes {
            self.new_line();
            self.complete.push_str(&bounded(note));
        }
        if self.complete.is_empty() {
            self.complete.push_str("[no output]");
        }
        self.emit_from(start);
        self.complete.clone()
    }

    /// What is left of the output, and the marker where something was left out. Nothing is taken after it.
    fn end(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let start = self.complete.len();
        if let Some((bytes, size)) = self.flood.take() {
            self.end_flood(bytes, size);
        }
        self.fold(Fold::finish);
        for note in self.close_body() {
            self.new_line();
            self.complete.push_str(&note);
        }
        self.emit_from(start);
    }

    fn new_line(&mut self) {
        if !self.complete.is_empty() && !self.complete.ends_with('\n') {
            self.complete.push('\n');
        }
    }

    /// Looks at the end of a flood. Where bytes were dropped unseen, what is left begins at the first whole line, if it can.
    fn end_flood(&mut self, bytes: u64, size: Size) {
        if self.tail.budget().is_spent() {
            return self.tail.count_unseen(size);
        }
        let Some(ring) = self.newest.take() else { return };
        let (older, newer) = ring.newest(bytes);
        let mut parts = [older, newer];
        if !ring.holds(bytes) {
            self.fold(Fold::finish);
            let lines = whole_lines(parts);
            self.tail.restart(lines.is_none());
            parts = lines.unwrap_or([from_character(older), newer]);
            let mut seen = Size::default();
            parts.iter().for_each(|part| seen += Size::of(part));
            self.tail.count_unseen(size - seen);
        }
        self.fold(|fold, out| parts.iter().for_each(|part| fold.push(part, out)));
        self.newest = Some(ring);
    }

    /// The marker between beginning and end and the end itself, or the notes that say that the end was cut off.
    fn close_body(&mut self) -> Vec<String> {
        let (tail, left_out) = self.tail.finish();
        if left_out == Size::default() {
            self.complete.push_str(&tail);
            // A file that was begun holds nothing that is not here.
            self.raw = Raw::Off;
            return Vec::new();
        }
        self.start_spill();
        let newest = self.newest.as_ref().map_or((&[][..], &[][..]), |ring| ring.newest(TAIL as u64));
        let kept = match std::mem::replace(&mut self.raw, Raw::Off) {
            Raw::Spilling(spill) => Some(spill.finish(newest)),
            _ => None,
        };
        if self.bound.keep == Truncate::Head {
            return head_notes(self.bound.most, kept);
        }
        self.new_line();
        let what = if self.head.by_lines() { in_lines(left_out) } else { format!("{} characters", left_out.chars) };
        self.complete.push_str(&format!("[... {what} left out here{} ...]\n", place(kept)));
        self.complete.push_str(&tail);
        Vec::new()
    }
}

/// What stands behind the first line end of two parts of one text, unless that is too little to fill a tail.
fn whole_lines([older, newer]: [&[u8]; 2]) -> Option<[&[u8]; 2]> {
    let behind = |part: &[u8]| memchr::memchr(b'\n', part).map(|at| at + 1);
    let lines = behind(older).map(|at| [&older[at..], newer]);
    let lines = lines.or_else(|| behind(newer).map(|at| [&[][..], &newer[at..]]));
    lines.filter(|[older, newer]| older.len() + newer.len() >= LARGEST_FLOOD_TAIL)
}

/// What PenguinHarness says of an output whose end was cut off.
fn head_notes(most: Most, kept: Option<Spilled>) -> Vec<String> {
    let most = match most {
        Most::Characters(chars) => format!("{chars} chars"),
        Most::Lines { lines, bytes } => format!("{lines} lines or {bytes} bytes"),
        Most::Everything => "everything".into(),
    };
    let archived = kept.map(|kept| match kept {
        Spilled::Whole(path) => format!("[output archived: {}]", path.display()),
        Spilled::HeadAndTail { path, left_out } => {
            format!("[output archived (head and tail; {left_out} bytes between are left out): {}]", path.display())
        }
        Spilled::Failed(why) => format!("[output archive failed: {why}]"),
    });
    std::iter::once(format!("[output truncated: exceeded {most}]")).chain(archived).collect()
}

/// What was left out of an output that is bounded in lines; inside one line there are only bytes to count.
fn in_lines(left_out: Size) -> String {
    match left_out.lines {
        0 => format!("{} bytes", left_out.bytes),
        lines => format!("{lines} lines ({} bytes)", left_out.bytes),
    }
}

/// Where all of it is.
fn place(kept: Option<Spilled>) -> String {
    match kept {
        None => String::new(),
        Some(Spilled::Whole(path)) => format!("; complete output: {}", path.display()),
        Some(Spilled::HeadAndTail { path, left_out }) => {
            format!("; output without {left_out} bytes in its middle: {}", path.display())
        }
        Some(Spilled::Failed(why)) => format!("; the complete output could not be kept: {why}"),
    }
}

/// Characters of one note. A note is a line of toolgate's own, such as an exit code or an error's reason; whatever of the outside world
/// it quotes must not make it long.
const NOTE: usize = 2000;

/// A note within its bound, cut on a character's border.
pub(crate) fn bounded(note: &str) -> String {
    match note.char_indices().nth(NOTE) {
        Some((end, _)) => format!("{} ... (cut at {NOTE} characters)", &note[..end]),
        None => note.to_owned(),
    }
}

/// Bytes that a program printed as the text that a terminal would have shown, without blank lines around it.
pub(crate) fn plain(bytes: &[u8]) -> String {
    let (mut fold, mut text) = (Fold::default(), String::new());
    fold.push(bytes, &mut |piece| text.push_str(piece));
    fold.finish(&mut |piece| text.push_str(piece));
    text.trim().to_owned()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests look at the files that were written.
mod tests {
    use super::*;

    /// Writes chunks into a sink and returns the complete text, having checked that the joined deltas equal it.
    fn shown(bound: Bound, folder: Option<SpillFolder>, chunks: &[&[u8]], notes: &[&str]) -> String {
        let deltas = Arc::new(Mutex::new(String::new()));
        let seen = deltas.clone();
        let sink = Sink::new(bound, folder, "test", Box::new(move |delta| seen.lock().unwrap().push_str(delta)));
        for chunk in chunks {
            sink.write(chunk);
        }
        let complete = sink.close(&notes.iter().map(|note| (*note).to_owned()).collect::<Vec<_>>());
        sink.write(b"a straggler");
        assert_eq!(*deltas.lock().unwrap(), complete, "joined deltas equal the complete output");
        complete
    }

    #[test]
    fn never_empty_and_notes_stand_behind_the_output() {
        assert_eq!(shown(Bound::characters(10, Truncate::Middle), None, &[], &[]), "[no output]");
        assert_eq!(shown(Bound::characters(10, Truncate::Middle), None, &[], &["[exit code: 1]"]), "[exit code: 1]");
        assert_eq!(shown(Bound::characters(10, Truncate::Middle), None, &[b"a\n"], &["[x]", "[y]"]), "a\n[x]\n[y]");
        assert_eq!(shown(Bound::characters(10, Truncate::Middle), None, &[b"a"], &["[x]"]), "a\n[x]");
    }

    #[test]
    fn a_note_is_bounded_too() {
        let shown = shown(Bound::characters(10, Truncate::Middle), None, &[], &[&"é".repeat(60_000)]);
        assert!(shown.chars().count() < NOTE + 50);
    }

    #[test]
    fn the_three_ways_of_truncating() {
        let text = b"0123456789abcdefghij";
        assert_eq!(
            shown(Bound::characters(20, Truncate::Middle), None, &[text], &[]),
            "0123456789abcdefghij",
            "what fits is not marked"
        );
        assert_eq!(
            shown(Bound::characters(9, Truncate::Middle), None, &[text], &["[n]"]),
            "01234\n[... 11 characters left out here ...]\nghij\n[n]"
        );
        assert_eq!(
            shown(Bound::characters(4, Truncate::Tail), None, &[text], &[]),
            "[... 16 characters left out here ...]\nghij"
        );
        assert_eq!(
            shown(Bound::characters(4, Truncate::Head), None, &[text], &["[n]"]),
            "0123\n[output truncated: exceeded 4 chars]\n[n]"
        );
        assert_eq!(shown(Bound::NONE, None, &[text, text], &[]).len(), 40);
    }

    #[test]
    fn every_cut_at_every_bound_and_chunking_is_on_a_character() {
        let text = "aé€😀\nß\u{1F469}\u{200D}\u{1F467}x".repeat(3);
        for truncate in [Truncate::Head, Truncate::Middle, Truncate::Tail] {
            for max in 1..text.chars().count() + 2 {
                for size in [1, 2, 3, 7, 1000] {
                    let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
                    let shown = shown(Bound::characters(max as i64, truncate), None, &chunks, &[]);
                    let kept: usize =
                        shown.split('\n').filter(|line| !line.starts_with('[')).map(|line| line.chars().count()).sum();
                    assert!(kept <= max, "{truncate:?} {max} {size}: {shown}");
                    assert!(!shown.contains('\u{FFFD}'), "{truncate:?} {max} {size}: {shown}");
                }
            }
        }
    }

    #[test]
    fn what_was_left_out_is_in_the_spill_file_byte_for_byte() {
        let folder = tempfile::tempdir().unwrap();
        let spills = SpillFolder::new(folder.path().join("spill"));
        let mut raw = Vec::new();
        for i in 0..5000 {
            raw.extend_from_slice(format!("\x1b[31mline {i}\x1b[0m\r\n").as_bytes());
            raw.push(0xff);
        }
        let chunks: Vec<&[u8]> = raw.chunks(777).collect();
        let shown = shown(Bound::characters(1000, Truncate::Middle), Some(spills), &chunks, &[]);
        let path = shown.split("complete output: ").nth(1).and_then(|rest| rest.split(" ...]").next()).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), raw);
        assert!(!shown.contains('\x1b') && shown.starts_with("line 0") && shown.contains("line 4999"));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(folder.path().join("spill")).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn an_output_that_fits_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("spill");
        // Half a megabyte of progress folds to one line: more than is held in memory, and still nothing was left out.
        let frames: Vec<u8> = (0..60_000).flat_map(|i| format!("\r{i:8}%").into_bytes()).collect();
        let shown =
            shown(Bound::characters(1000, Truncate::Middle), Some(SpillFolder::new(place.clone())), &[&frames], &[]);
        assert_eq!(shown, "   59999%");
        assert!(std::fs::read_dir(&place).map_or(0, Iterator::count) == 0);
    }

    #[test]
    fn a_flood_is_counted_and_its_end_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let lines: String = (0..400_000).map(|i| format!("line {i:07}\n")).collect();
        for size in [1000, 65_536, 3_000_000] {
            let spills = SpillFolder::new(folder.path().join(size.to_string()));
            let chunks: Vec<&[u8]> = lines.as_bytes().chunks(size).collect();
            let shown = shown(Bound::characters(2000, Truncate::Middle), Some(spills), &chunks, &[]);
            let left_out: usize = shown.split("[... ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
            assert_eq!(left_out, lines.len() - 2000, "chunks of {size}");
            assert!(shown.starts_with("line 0000000\n") && shown.ends_with("line 0399999\n"));
            let path = shown.split("complete output: ").nth(1).unwrap().split(" ...]").next().unwrap();
            assert!(std::fs::read(path).unwrap() == lines.as_bytes());
        }
        // Almost as long, but not cut: a flood that fits into what is held is folded as if it had not been one.
        let frames: Vec<u8> = (0..200_000).flat_map(|i| format!("\r{i:8}%").into_bytes()).collect();
        let all = [b"0123456789\n", frames.as_slice()].concat();
        let shown = shown(Bound::characters(20, Truncate::Middle), None, &all.chunks(4096).collect::<Vec<_>>(), &[]);
        assert_eq!(shown, "0123456789\n  199999%");
    }

    #[test]
    fn a_spill_that_cannot_be_written_costs_a_note_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("file");
        std::fs::write(&blocked, "").unwrap();
        let shown = shown(
            Bound::characters(4, Truncate::Middle),
            Some(SpillFolder::new(blocked.join("x"))),
            &[b"0123456789"],
            &["[n]"],
        );
        assert!(
            shown.starts_with("01\n[... 6 characters left out here; the complete output could not be kept: ")
                && shown.ends_with("89\n[n]")
        );
    }
}
