//! The output sink: the only writer of a call's deltas and of its complete text, which are therefore equal.
//!
//! Bytes go in as they were printed. [`fold`] takes terminal control off and joins what chunks tore apart; the first part goes out as
//! deltas, line by line, until the head's budget is full; the last part is held in a ring; what lies between is counted. Where
//! anything is left out, [`spill`] keeps all of it on disk. The sink is synchronous and bounded, and never waits for a reader.

pub mod fold;
mod ring;
pub mod spill;

use std::sync::{Mutex, MutexGuard, PoisonError};

use toolgate_core::tool::{Bound, Most, Truncate};

use fold::Fold;
use ring::Ring;
use spill::{Spill, SpillFolder, Spilled, TAIL};

/// Raw bytes that are held in memory before anything was left out, so that an output that fits makes no file; 256 KiB is far beyond
/// what a full result needs and still small for 64 calls at once.
const HELD_RAW: usize = 256 * 1024;

/// Raw bytes after which an output that is past its head is a flood: it is no longer looked at as it comes, only its end is, at the
/// close. Until then everything is folded and counted exactly.
const UNFOLDED_AFTER: u64 = 1024 * 1024;

/// The two numbers that serve all three ways of truncating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Split {
    head: usize,
    tail: usize,
    configured: usize,
}

impl Split {
    const NONE: Self = Self { head: usize::MAX, tail: 0, configured: 0 };

    fn new(bound: Bound) -> Self {
        let max = match bound.most {
            Most::Everything => return Self::NONE,
            Most::Characters(max) => max,
            Most::Lines { bytes, .. } => bytes,
        };
        let (head, tail) = match bound.keep {
            Truncate::Head => (max, 0),
            Truncate::Tail => (0, max),
            Truncate::Middle => (max - max / 2, max / 2),
        };
        Self { head, tail, configured: max }
    }
}

/// Receives each delta as it is made.
pub type Emit = Box<dyn Fn(&str) + Send + Sync>;

/// One call's output.
pub struct Sink {
    inner: Mutex<Inner>,
}

struct Inner {
    fold: Fold,
    bound: Split,
    /// Everything that went out, which is the complete text.
    complete: String,
    head_left: usize,
    /// Folded text behind the head, its oldest part dropped: between one and two times the bound, so that dropping is rare.
    tail: String,
    tail_chars: usize,
    dropped_chars: u64,
    /// Raw bytes so far.
    total: u64,
    /// What has come since the output became a flood.
    flood: Option<Flood>,
    raw: Raw,
    emit: Emit,
    closed: bool,
}

/// Output that is not looked at: its newest bytes, and how many characters came.
struct Flood {
    ring: Ring,
    chars: u64,
}

/// What was printed, byte for byte: in memory while everything fits, in a file afterwards.
enum Raw {
    Held {
        bytes: Vec<u8>,
        folder: Option<SpillFolder>,
        label: String,
    },
    Spilling(Spill),
    /// Unbounded, or without a folder.
    Off,
}

impl Sink {
    /// A sink for one call. `label` names the spill file.
    pub fn new(bound: Bound, folder: Option<SpillFolder>, label: &str, emit: Emit) -> Self {
        let bound = Split::new(bound);
        let raw = if bound == Split::NONE {
            Raw::Off
        } else {
            Raw::Held { bytes: Vec::new(), folder, label: label.to_owned() }
        };
        let inner = Inner {
            fold: Fold::default(),
            bound,
            complete: String::new(),
            head_left: bound.head,
            tail: String::new(),
            tail_chars: 0,
            dropped_chars: 0,
            total: 0,
            flood: None,
            raw,
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

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A tool that panicked while it wrote has written what it has written.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn write(&mut self, bytes: &[u8]) {
        self.keep_raw(bytes);
        self.total += bytes.len() as u64;
        if self.flood.is_none() && self.total > UNFOLDED_AFTER && self.head_left == 0 {
            self.flood = Some(Flood { ring: Ring::new(TAIL), chars: 0 });
        }
        if let Some(flood) = &mut self.flood {
            flood.chars += count_chars(bytes) as u64;
            flood.ring.write(bytes);
            return;
        }
        let start = self.complete.len();
        let mut fold = std::mem::take(&mut self.fold);
        fold.push(bytes, &mut |text| self.take(text));
        self.fold = fold;
        self.emit_from(start);
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
        let Raw::Held { bytes, folder, label } = std::mem::replace(&mut self.raw, Raw::Off) else { return };
        self.raw = match folder {
            None => Raw::Off,
            Some(folder) => {
                let mut spill = Spill::new(folder, &label);
                spill.write(&bytes);
                Raw::Spilling(spill)
            }
        };
    }

    /// Takes folded text: into the head while it has room, else into the ring.
    fn take(&mut self, text: &str) {
        let rest = if self.head_left == 0 { text } else { self.take_head(text) };
        if rest.is_empty() {
            return;
        }
        self.take_tail(rest);
        let overflows = self.dropped_chars > 0 || self.tail_chars > self.bound.tail;
        if overflows && matches!(self.raw, Raw::Held { .. }) {
            self.start_spill();
        }
    }

    fn take_head<'a>(&mut self, text: &'a str) -> &'a str {
        if self.head_left == usize::MAX || text.len() <= self.head_left {
            self.complete.push_str(text);
            if self.head_left != usize::MAX {
                self.head_left -= count_chars(text);
            }
            return "";
        }
        let end = text.char_indices().nth(self.head_left).map_or(text.len(), |(at, _)| at);
        let (now, rest) = text.split_at(end);
        self.head_left -= count_chars(now);
        self.complete.push_str(now);
        rest
    }

    fn take_tail(&mut self, text: &str) {
        let wanted = self.bound.tail;
        let chars = count_chars(text);
        if chars >= wanted {
            // All that is held and the beginning of this text are past the bound now.
            self.dropped_chars += (self.tail_chars + chars - wanted) as u64;
            self.tail.clear();
            self.tail.push_str(last_chars(text, wanted));
            self.tail_chars = wanted;
            return;
        }
        self.tail.push_str(text);
        self.tail_chars += chars;
        if self.tail_chars > 2 * wanted {
            self.trim_tail();
        }
    }

    fn trim_tail(&mut self) {
        let wanted = self.bound.tail;
        if self.tail_chars > wanted {
            let cut = self.tail.len() - last_chars(&self.tail, wanted).len();
            self.tail.drain(..cut);
            self.dropped_chars += (self.tail_chars - wanted) as u64;
            self.tail_chars = wanted;
        }
    }

    fn emit_from(&self, start: usize) {
        if start < self.complete.len() {
            (self.emit)(&self.complete[start..]);
        }
    }

    fn close(&mut self, notes: &[String]) -> String {
        if self.closed {
            return self.complete.clone();
        }
        let start = self.complete.len();
        let flood = self.flood.take();
        if let Some(flood) = &flood {
            self.end_flood(flood);
        }
        let mut fold = std::mem::take(&mut self.fold);
        fold.finish(&mut |text| self.take(text));
        let mut after = Vec::new();
        self.close_body(flood, &mut after);
        after.extend(notes.iter().map(|note| bounded(note)));
        for note in after {
            if !self.complete.is_empty() && !self.complete.ends_with('\n') {
                self.complete.push('\n');
            }
            self.complete.push_str(&note);
        }
        if self.complete.is_empty() {
            self.complete.push_str("[no output]");
        }
        self.closed = true;
        self.emit_from(start);
        self.complete.clone()
    }

    /// Looks at the end of a flood. Where bytes were dropped unseen, what is left begins at the first whole line.
    fn end_flood(&mut self, flood: &Flood) {
        let (older, newer) = flood.ring.parts();
        let mut parts = [older, newer];
        let mut seen = flood.chars;
        if flood.ring.is_cut() {
            let mut before = std::mem::take(&mut self.fold);
            before.finish(&mut |text| self.take(text));
            self.dropped_chars += std::mem::take(&mut self.tail_chars) as u64;
            self.tail.clear();
            let first = memchr::memchr(b'\n', older).map_or(0, |at| at + 1);
            parts[0] = &older[first..];
            seen = parts.iter().map(|part| count_chars(part) as u64).sum();
        }
        self.dropped_chars += flood.chars - seen;
        let mut fold = std::mem::take(&mut self.fold);
        for part in parts {
            fold.push(part, &mut |text| self.take(text));
        }
        self.fold = fold;
    }

    /// The marker between beginning and end and the end itself, or the notes that say that the end was cut off.
    fn close_body(&mut self, flood: Option<Flood>, after: &mut Vec<String>) {
        self.trim_tail();
        let raw = std::mem::replace(&mut self.raw, Raw::Off);
        let tail = std::mem::take(&mut self.tail);
        if self.dropped_chars == 0 {
            if let Raw::Spilling(spill) = raw {
                spill.discard();
            }
            self.complete.push_str(&tail);
            return;
        }
        let kept = match raw {
            Raw::Spilling(spill) => Some(spill.finish(flood.as_ref().map_or((&[], &[]), |flood| flood.ring.parts()))),
            _ => None,
        };
        if self.bound.tail == 0 {
            after.push(format!("[output truncated: exceeded {} chars]", self.bound.configured));
            after.extend(kept.map(|kept| match kept {
                Spilled::Whole(path) => format!("[output archived: {}]", path.display()),
                Spilled::HeadAndTail { path, left_out } => {
                    format!(
                        "[output archived (head and tail; {left_out} bytes between are left out): {}]",
                        path.display()
                    )
                }
                Spilled::Failed(why) => format!("[output archive failed: {why}]"),
            }));
            return;
        }
        let place = match kept {
            None => String::new(),
            Some(Spilled::Whole(path)) => format!("; complete output: {}", path.display()),
            Some(Spilled::HeadAndTail { path, left_out }) => {
                format!("; output without {left_out} bytes in its middle: {}", path.display())
            }
            Some(Spilled::Failed(why)) => format!("; the complete output could not be kept: {why}"),
        };
        if !self.complete.is_empty() && !self.complete.ends_with('\n') {
            self.complete.push('\n');
        }
        self.complete.push_str(&format!("[... {} characters left out here{place} ...]\n", self.dropped_chars));
        self.complete.push_str(&tail);
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

/// Characters of UTF-8. A flood is counted byte by byte here, so the sums are short enough for the compiler to keep many of them
/// in one vector register.
fn count_chars(text: impl AsRef<[u8]>) -> usize {
    /// A sum of this many ones still fits into a byte.
    const BLOCK: usize = 192;
    let ones = |block: &[u8]| usize::from(block.iter().map(|byte| u8::from(!is_continuation(*byte))).sum::<u8>());
    text.as_ref().chunks(BLOCK).map(ones).sum()
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// The last `wanted` characters.
fn last_chars(text: &str, wanted: usize) -> &str {
    if wanted == 0 {
        return "";
    }
    // Mostly it is plain ASCII, where characters need not be walked.
    match text.len().checked_sub(wanted) {
        Some(at) if text.as_bytes()[at..].is_ascii() => &text[at..],
        _ => text.char_indices().nth_back(wanted - 1).map_or(text, |(at, _)| &text[at..]),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests look at the files that were written.
mod tests {
    use super::*;
    use std::sync::Arc;

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
