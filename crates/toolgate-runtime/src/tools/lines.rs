//! The lines of one file that match, with what stands around them, as a result shows them. Shared with nobody but the search for content;
//! no tool itself.
//!
//! A file is searched as it streams by. [`Feed`] sees to it that neither its size nor the length of its lines costs memory, and that a
//! search that is not wanted any more ends; [`Lines`] takes what matches.

use std::{
    borrow::Cow,
    cell::RefCell,
    io::{self, Read},
};

use grep_matcher::{LineTerminator, Matcher};
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};

use super::first::HELD;
use crate::files::{
    Source,
    text::{self, Encoding},
    window::MOST_UNSIZED,
};

/// Characters of a line that are shown (Pi's number).
pub(super) const SHOWN: usize = 500;

/// Characters that are shown in front of a match in a longer line: enough to see what it belongs to.
const BEFORE: usize = 120;

/// Bytes that a line costs beside its text, about: its path and its number.
const OVERHEAD: usize = 32;

/// Bytes of a file that are read at once; few files of source code are longer.
const PIECE: usize = 64 * 1024;

/// Bytes after which a line that does not end is searched as if it did, so that no line has to be held whole. What would match across
/// such a place is not found.
const LONGEST: usize = 2 * 1024 * 1024;

/// Bytes that the searcher may hold: a longest line, what stands around it, and room to grow.
const HEAP: usize = 16 * 1024 * 1024;

/// What is looked for in each file.
#[derive(Clone)]
pub(super) struct Aim {
    pub(super) matcher: RegexMatcher,
    pub(super) context: usize,
    pub(super) limit: usize,
    /// Whether it is worth knowing that a binary file matches; else such a file is left where it turns out to be one.
    pub(super) binary: bool,
}

/// What was found in a file.
#[derive(Debug, Default)]
pub(super) struct InFile {
    pub(super) lines: Vec<Line>,
    pub(super) matches: usize,
    pub(super) bytes: usize,
    /// Where the first byte is that no text has; what follows it was not searched.
    pub(super) binary_from: Option<u64>,
    /// Whether something matches behind it.
    pub(super) matches_in_binary: bool,
}

/// One line as it is shown.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) is_match: bool,
    pub(super) text: String,
    /// Whether it is only a part of it.
    pub(super) is_part: bool,
}

/// One searcher, with its buffers; each thread has its own.
pub(super) struct Search {
    searcher: Searcher,
    bytes: Box<[u8]>,
    aim: Aim,
}

impl Search {
    pub(super) fn new(aim: &Aim) -> Self {
        let searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .before_context(aim.context)
            .after_context(aim.context)
            .heap_limit(Some(HEAP))
            .binary_detection(if aim.binary { BinaryDetection::convert(0) } else { BinaryDetection::quit(0) })
            .build();
        Self { searcher, bytes: vec![0; PIECE].into(), aim: aim.clone() }
    }

    /// Searches a file. `wanted` is asked again and again; what is not wanted any more ends early, with what was found until then.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn in_file(&mut self, source: Box<dyn Source>, wanted: &dyn Fn() -> bool) -> io::Result<InFile> {
        let seams = RefCell::new(Vec::new());
        let left = source.length().unwrap_or(MOST_UNSIZED);
        let piece = Piece { bytes: &mut self.bytes, filled: 0, begun: 0, text: None, taken: 0, is_last: false };
        let feed =
            Feed { source, left, piece, wanted, seams: &seams, since: 0, offset: 0, ends_with_cr: false, whole: false };
        let mut lines = Lines { aim: &self.aim, seams: &seams, found: InFile::default() };
        self.searcher.search_reader(&self.aim.matcher, feed, &mut lines)?;
        Ok(lines.found)
    }
}

/// A file on its way into the searcher.
struct Feed<'a> {
    source: Box<dyn Source>,
    /// Bytes that it still had when it was opened. A file that grows faster than it is read comes to an end too.
    left: u64,
    piece: Piece<'a>,
    wanted: &'a dyn Fn() -> bool,
    /// Where a line was ended that does not end: offsets of the line feeds that the file does not have.
    seams: &'a RefCell<Vec<u64>>,
    /// Bytes since the last line feed, and since the beginning.
    since: usize,
    offset: u64,
    /// Its lines end with CR alone; they are searched as if they ended as others do.
    ends_with_cr: bool,
    /// It begins with a mark of an encoding in which a line feed is more than one byte: its lines are left alone.
    whole: bool,
}

/// Some bytes of a file, read at once and handed out as they are asked for: the searcher asks for a few of them first, and most files hold
/// no more. What is searched is what would be shown, so bytes that are no UTF-8 are made the characters that they are shown as.
struct Piece<'a> {
    bytes: &'a mut [u8],
    filled: usize,
    /// Bytes at the end that begin a character; they wait for the next piece.
    begun: usize,
    /// The piece as UTF-8, where it is not that already.
    text: Option<Vec<u8>>,
    taken: usize,
    is_last: bool,
}

impl Piece<'_> {
    fn rest(&self) -> &[u8] {
        &self.text.as_deref().unwrap_or(&self.bytes[..self.filled - self.begun])[self.taken..]
    }
}

impl Feed<'_> {
    /// The next bytes of the file, as they are searched.
    fn next(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.rest().is_empty() && !self.piece.is_last {
            self.fill()?;
        }
        let rest = self.piece.rest();
        let count = buffer.len().min(rest.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.piece.taken += count;
        Ok(count)
    }

    fn fill(&mut self) -> io::Result<()> {
        let piece = &mut self.piece;
        let is_first = piece.filled == 0;
        piece.bytes.copy_within(piece.filled - piece.begun..piece.filled, 0);
        let room = (piece.bytes.len() - piece.begun).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.source.read(&mut piece.bytes[piece.begun..piece.begun + room])?;
        piece.filled = piece.begun + count;
        self.left -= count as u64;
        // Where it was all there, the system need not be asked where it ends.
        piece.is_last = count == 0 || self.left == 0;
        let bytes = &mut piece.bytes[..piece.filled];
        if is_first {
            self.ends_with_cr = text::line_end(bytes, Encoding::Utf8, piece.is_last) == b'\r';
            self.whole = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
        }
        if self.ends_with_cr && !self.whole {
            bytes.iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
        }
        // Of what is binary nothing is shown.
        let is_raw = self.whole || memchr::memchr(0, bytes).is_some();
        let (text, begun) = if is_raw { (Cow::Borrowed(bytes), 0) } else { text::as_utf8(bytes, piece.is_last) };
        piece.text = if let Cow::Owned(text) = text { Some(text) } else { None };
        (piece.begun, piece.taken) = (begun, 0);
        Ok(())
    }
}

impl Read for Feed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || !(self.wanted)() {
            return Ok(0);
        }
        if self.since >= LONGEST && !self.whole {
            buffer[0] = b'\n';
            self.seams.borrow_mut().push(self.offset);
            (self.since, self.offset) = (0, self.offset + 1);
            return Ok(1);
        }
        let room = if self.whole { buffer.len() } else { buffer.len().min(LONGEST - self.since) };
        let count = self.next(&mut buffer[..room])?;
        let read = &buffer[..count];
        self.offset += count as u64;
        self.since = memchr::memrchr(b'\n', read).map_or(self.since + count, |end| count - end - 1);
        Ok(count)
    }
}

/// Takes the lines that match, and those around them.
struct Lines<'a> {
    aim: &'a Aim,
    seams: &'a RefCell<Vec<u64>>,
    found: InFile,
}

impl Lines<'_> {
    fn push(&mut self, number: Option<u64>, offset: u64, bytes: &[u8], is_match: bool) {
        // A mark of UTF-8 at the beginning was taken off before offsets were counted.
        const MARK: u64 = 3;
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let at = match is_match && bytes.len() > SHOWN {
            true => self.aim.matcher.find(bytes).ok().flatten().map_or(0, |found| found.start()),
            false => 0,
        };
        let seams = self.seams.borrow().iter().filter(|seam| **seam < offset + MARK).count() as u64;
        let (text, is_part) = shown(bytes, at);
        self.found.bytes += text.len() + OVERHEAD;
        self.found.matches += usize::from(is_match);
        self.found.lines.push(Line { number: number.unwrap_or_default() - seams, is_match, text, is_part });
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.found.binary_from.is_some() {
            self.found.matches_in_binary = true;
            return Ok(false);
        }
        self.push(found.line_number(), found.absolute_byte_offset(), found.bytes(), true);
        Ok(self.found.matches <= self.aim.limit && self.found.bytes < HELD)
    }

    fn context(&mut self, _: &Searcher, around: &SinkContext<'_>) -> io::Result<bool> {
        if self.found.binary_from.is_none() {
            self.push(around.line_number(), around.absolute_byte_offset(), around.bytes(), false);
        }
        Ok(self.found.bytes < HELD)
    }

    fn binary_data(&mut self, _: &Searcher, offset: u64) -> io::Result<bool> {
        self.found.binary_from = Some(offset);
        Ok(self.aim.binary)
    }
}

/// A line as it is shown: all of it, or what stands around a place in it. Says whether it is only a part.
fn shown(line: &[u8], at: usize) -> (String, bool) {
    // No character is longer than four bytes.
    if line.len() <= 4 * SHOWN {
        let text = visible(line);
        if text.chars().nth(SHOWN).is_none() {
            return (text, false);
        }
    }
    // As far in front as is worth seeing; further where the line ends soon.
    let start = border(line, at.saturating_sub(BEFORE).min(line.len().saturating_sub(SHOWN)));
    let end = border(line, line.len().min(start + 4 * SHOWN));
    let mut text = visible(&line[start..end]);
    let cut = text.char_indices().nth(SHOWN).map(|(cut, _)| cut);
    if let Some(cut) = cut {
        text.truncate(cut);
    }
    let front = if start > 0 { "…" } else { "" };
    let back = if end < line.len() || cut.is_some() { "…" } else { "" };
    (format!("{front}{text}{back}"), true)
}

/// Where a character begins, at a place or shortly before it.
fn border(line: &[u8], at: usize) -> usize {
    let is_inside = |at: usize| line.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (at.saturating_sub(3)..=at).rev().find(|at| !is_inside(*at)).unwrap_or(at)
}

fn visible(bytes: &[u8]) -> String {
    let (text, _) = text::shown(bytes);
    text::pictured(&text).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use grep_regex::RegexMatcherBuilder;
    use proptest::prelude::*;

    fn search(pattern: &str, context: usize, file: Vec<u8>) -> Vec<(u64, bool, String)> {
        let matcher = RegexMatcherBuilder::new().multi_line(true).crlf(true).build(pattern).unwrap();
        let aim = Aim { matcher, context, limit: 10, binary: false };
        let found = Search::new(&aim).in_file(Box::new(io::Cursor::new(file)), &|| true).unwrap();
        found.lines.into_iter().map(|line| (line.number, line.is_match, line.text)).collect()
    }

    #[test]
    fn lines_of_any_length_are_searched_and_counted_right() {
        for length in [LONGEST - 6, LONGEST, LONGEST + 1, 3 * LONGEST + 7] {
            for mark in [&b""[..], b"\xef\xbb\xbf"] {
                let long = [b"a\n", mark, b"needle", "x".repeat(length).as_bytes(), b"\nb\n"].concat();
                let file = [mark, &long, b"needle\n", &long].concat();
                let numbers: Vec<u64> = search("needle", 0, file).into_iter().map(|(number, ..)| number).collect();
                assert_eq!(numbers, [2, 4, 6], "{length}");
            }
        }
    }

    proptest! {
        /// Wherever pieces end, and however few bytes are asked for, what is searched is the file's text.
        #[test]
        fn a_file_is_searched_as_it_is_shown(
            content in proptest::collection::vec(any::<u8>().prop_filter("no binary, and no CR", |byte| !matches!(byte, 0 | b'\r')), 0..200),
            room in 4..40_usize,
            asked in 1..50_usize,
        ) {
            prop_assume!(!content.starts_with(b"\xff\xfe") && !content.starts_with(b"\xfe\xff"));
            let (seams, mut bytes) = (RefCell::default(), vec![0; room]);
            let piece = Piece { bytes: &mut bytes, filled: 0, begun: 0, text: None, taken: 0, is_last: false };
            let (source, left) = (Box::new(io::Cursor::new(content.clone())), content.len() as u64);
            let mut feed = Feed { source, left, piece, wanted: &|| true, seams: &seams, since: 0, offset: 0, ends_with_cr: false, whole: false };
            let (mut found, mut buffer) = (Vec::new(), vec![0; asked]);
            while let count @ 1.. = feed.read(&mut buffer).unwrap() {
                found.extend_from_slice(&buffer[..count]);
            }
            prop_assert_eq!(found, text::as_utf8(&content, true).0.into_owned());
        }
    }

    /// A file that is written faster than it is read, or made while it is read.
    struct Endless(Option<u64>);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'\n');
            Ok(buffer.len())
        }
    }

    impl io::Seek for Endless {
        fn seek(&mut self, _: io::SeekFrom) -> io::Result<u64> {
            Ok(0)
        }
    }

    impl Source for Endless {
        fn length(&self) -> Option<u64> {
            self.0
        }
    }

    #[test]
    fn a_file_that_never_ends_is_searched_as_far_as_it_went_when_it_was_opened() {
        let matcher = RegexMatcherBuilder::new().multi_line(true).crlf(true).build("^$").unwrap();
        for (length, lines) in
            [(Some(0), 0), (Some(10), 10), (Some(PIECE as u64 + 1), PIECE + 1), (None, MOST_UNSIZED as usize)]
        {
            let aim = Aim { matcher: matcher.clone(), context: 0, limit: 5, binary: false };
            let found = Search::new(&aim).in_file(Box::new(Endless(length)), &|| true).unwrap();
            assert_eq!(found.matches, lines.min(6), "{length:?}");
        }
        let aim = Aim { matcher: RegexMatcher::new("needle").unwrap(), context: 0, limit: 5, binary: false };
        for length in [Some(10), None] {
            assert_eq!(Search::new(&aim).in_file(Box::new(Endless(length)), &|| true).unwrap().matches, 0);
        }
    }

    #[test]
    fn a_long_line_is_shown_around_its_match() {
        let line = |front: usize, back: usize| format!("{}needle{}\n", "é".repeat(front), "ü".repeat(back));
        for (front, back) in [(0, 1000), (3000, 3000), (1000, 0), (495, 0), (0, 494), (100, 900_000)] {
            let found = search("needle", 0, line(front, back).into_bytes());
            let text = &found[0].2;
            assert!(text.contains("needle") && !text.contains('\u{fffd}'), "{front} {back}: {text}");
            assert!(text.chars().count() <= SHOWN + 2, "{front} {back}");
            assert_eq!(text.contains('…'), front + back + 6 > SHOWN, "{front} {back}");
        }
    }

    #[test]
    fn what_is_no_utf_8_is_shown_as_what_it_most_likely_is() {
        for (pattern, file) in [
            ("caf", &b"caf\xe9\r\n"[..]),
            ("café", b"caf\xe9\n"),
            ("^caf.$", b"caf\xe9\n"),
            ("\\w{4}", b"caf\xe9"),
            ("café", b"caf\xc3\xa9\n\xff"),
        ] {
            assert_eq!(search(pattern, 0, file.to_vec())[0].2, "café", "{pattern} {file:?}");
        }
        assert_eq!(search("é.*é", 0, b"\xe9 \xc3\xa9 \x93q\x94\n".to_vec())[0].2, "é é “q”");
        let utf_16: Vec<u8> = "\u{feff}a\nneedle\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(search("needle", 1, utf_16)[1], (2, true, "needle".into()));
        assert_eq!(search("^b$", 0, b"a\rb\rc".to_vec()), [(2, true, "b".into())]);
        assert_eq!(search("b", 0, b"\x1b[31mb\rc\n".to_vec())[0].2, "\u{241b}[31mb\u{240d}c");
    }
}
