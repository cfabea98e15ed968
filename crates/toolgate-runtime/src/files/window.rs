//! A window of lines out of a file of any size, in memory that the window bounds.

use std::io::{self, Read};

use encoding_rs::{CoderResult, Decoder};
use toolgate_core::tool::Most;

use super::{
    Source,
    seen::{Knowing, Known},
    text::{Encoding, binary_kind, is_binary, line_end, pictured, shown},
};

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Bytes behind the window in which lines are still counted, so that the answer can say how many there are (PenguinHarness's number).
/// Beyond it says `more than`.
const COUNTED_BEHIND: u64 = 8 * 1024 * 1024;

/// Bytes that are read of a file that is made while it is read: some never end.
pub(crate) const MOST_UNSIZED: u64 = 8 * 1024 * 1024;

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// The first line, counted from 1.
    pub first: u64,
    /// Lines at most.
    pub lines: Option<u64>,
    /// How much the whole may be.
    pub most: Most,
    /// What stands before each line counts as so many bytes.
    pub prefix: usize,
    /// Characters of one line; none cuts only what alone is too much.
    pub clip: Option<usize>,
}

/// What was found.
#[derive(Debug)]
pub enum Page {
    /// No text.
    Binary {
        /// What it seems to be.
        kind: &'static str,
        /// Its bytes, where that is known.
        length: Option<u64>,
    },
    /// Lines.
    Lines(Box<Lines>),
}

/// Lines of a text.
#[derive(Debug)]
pub struct Lines {
    /// As characters, without their ends.
    pub lines: Vec<String>,
    /// The number of the first of them.
    pub first: u64,
    /// Lines in the file, or at least so many.
    pub total: u64,
    /// Whether the file has no more than `total`.
    pub counted: bool,
    /// Why it ends before the wanted lines do.
    pub full: bool,
    /// The bytes of the one line that is shown in part because it alone is too much.
    pub cut_line: Option<u64>,
    /// The text's encoding.
    pub encoding: Encoding,
    /// Whether bytes were no UTF-8 and are shown as Windows-1252.
    pub eight_bit: bool,
    /// Whether control characters are shown by their pictures.
    pub pictured: bool,
    /// Whether lines end with CR LF, or with CR alone.
    pub ends: Ends,
    /// What the session knows of the file now.
    pub known: Known,
}

/// How lines end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ends {
    /// Some with CR LF.
    pub crlf: bool,
    /// Some with LF alone.
    pub lf: bool,
    /// All of them with CR alone.
    pub cr: bool,
}

/// Reads a window. `stop` is asked now and then whether to give up.
///
/// # Errors
/// When the file cannot be read, or reading was given up.
pub fn read(source: &mut dyn Source, window: &Window, stop: &dyn Fn() -> bool) -> io::Result<Page> {
    let length = source.length();
    let mut input = source.take(length.unwrap_or(MOST_UNSIZED));
    let mut chunk = Vec::with_capacity(CHUNK);
    fill(&mut input, &mut chunk)?;
    if is_binary(&chunk) {
        return Ok(Page::Binary { kind: binary_kind(&chunk), length });
    }
    let encoding = Encoding::of(&chunk);
    let mut scan = Scan::new(window, line_end(&chunk, encoding, chunk.len() < CHUNK));
    let mut decoder = encoding.decoder();
    let mut knowing = Knowing::default();
    let mut behind = 0;
    let mut skip = encoding.mark();
    let mut ended = false;
    loop {
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let last = chunk.is_empty();
        if !scan.is_over() {
            knowing.take(&chunk);
        }
        match &mut decoder {
            None => scan.take(&chunk[skip.min(chunk.len())..]),
            Some(decoder) => decode(decoder, &chunk[skip.min(chunk.len())..], last, &mut |text| scan.take(text)),
        }
        skip = 0;
        if last {
            ended = true;
            break;
        }
        if scan.is_over() {
            behind += chunk.len() as u64;
            if behind > COUNTED_BEHIND {
                break;
            }
        }
        chunk.clear();
        fill(&mut input, &mut chunk)?;
    }
    let unfinished = length.is_none() && input.limit() == 0;
    // Known as a whole only where all of it went by before the window was over.
    let whole = ended && behind == 0 && !unfinished;
    Ok(Page::Lines(Box::new(scan.finish(encoding, ended && !unfinished, knowing.known(whole)))))
}

/// Reads until the chunk is full or the file ends.
fn fill(input: &mut io::Take<&mut dyn Source>, chunk: &mut Vec<u8>) -> io::Result<()> {
    let room = (CHUNK - chunk.len()) as u64;
    let read = input.by_ref().take(room).read_to_end(chunk);
    match read {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::new(error.kind(), "nothing can be read from it now, and waiting might never end"))
        }
        read => read.map(drop),
    }
}

/// Bytes of another encoding as UTF-8.
fn decode(decoder: &mut Decoder, mut bytes: &[u8], last: bool, take: &mut dyn FnMut(&[u8])) {
    let mut text = [0; 4096];
    loop {
        let (result, read, written, _) = decoder.decode_to_utf8(bytes, &mut text, last);
        take(&text[..written]);
        bytes = &bytes[read..];
        if result == CoderResult::InputEmpty {
            return;
        }
    }
}

/// Goes over a text line by line and keeps those of the window.
struct Scan<'a> {
    window: &'a Window,
    end: u8,
    /// Number of the line that comes now.
    line: u64,
    /// What is kept of it, and how long it is.
    kept: Vec<u8>,
    length: u64,
    lines: Vec<String>,
    /// Bytes and characters of them.
    bytes: usize,
    chars: usize,
    full: bool,
    cut_line: Option<u64>,
    eight_bit: bool,
    pictured: bool,
    ends: Ends,
}

impl<'a> Scan<'a> {
    fn new(window: &'a Window, end: u8) -> Self {
        Self {
            window,
            end,
            line: 1,
            kept: Vec::new(),
            length: 0,
            lines: Vec::new(),
            bytes: 0,
            chars: 0,
            full: false,
            cut_line: None,
            eight_bit: false,
            pictured: false,
            ends: Ends { cr: end == b'\r', ..Ends::default() },
        }
    }

    /// Whether the window is complete.
    fn is_over(&self) -> bool {
        let lines = self.lines.len() as u64;
        let all_lines = match self.window.most {
            Most::Lines { lines: most, .. } => lines >= most as u64,
            _ => false,
        };
        self.full || all_lines || self.window.lines.is_some_and(|wanted| lines >= wanted)
    }

    fn is_wanted(&self) -> bool {
        self.line >= self.window.first && !self.is_over()
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if !self.is_wanted() {
                bytes = self.pass(bytes);
                continue;
            }
            let end = memchr::memchr(self.end, bytes);
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = self.room().saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&part[..part.len().min(room)]);
            self.length += part.len() as u64;
            let Some(end) = end else { return };
            bytes = &bytes[end + 1..];
            self.end_line(true);
        }
    }

    /// Goes past lines that nobody wants: up to the window, or to the end of what there is.
    fn pass<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        if self.is_over() || self.window.first.saturating_sub(self.line) > bytes.len() as u64 {
            let ends = memchr::memchr_iter(self.end, bytes).count() as u64;
            self.line += ends;
            self.length = match memchr::memrchr(self.end, bytes) {
                Some(last) => (bytes.len() - last - 1) as u64,
                None => self.length + bytes.len() as u64,
            };
            return &[];
        }
        match memchr::memchr(self.end, bytes) {
            Some(end) => {
                self.line += 1;
                self.length = 0;
                &bytes[end + 1..]
            }
            None => {
                self.length += bytes.len() as u64;
                &[]
            }
        }
    }

    /// Bytes that one line may take to be looked at: no more than all that can be shown.
    fn room(&self) -> usize {
        let most = match self.window.most {
            Most::Everything => usize::MAX,
            Most::Characters(chars) => chars.saturating_mul(4),
            Most::Lines { bytes, .. } => bytes,
        };
        let clip = self.window.clip.map_or(usize::MAX, |clip| clip.saturating_mul(4));
        // And a little more, so that what is too long shows itself.
        most.min(clip).saturating_add(8)
    }

    fn end_line(&mut self, ended: bool) {
        let whole = self.length == self.kept.len() as u64;
        if whole && self.end == b'\n' && self.kept.last() == Some(&b'\r') && ended {
            self.kept.pop();
            self.ends.crlf = true;
        } else if ended && self.end == b'\n' {
            self.ends.lf = true;
        }
        let (mut text, eight_bit) = shown(complete(&self.kept, whole));
        self.eight_bit |= eight_bit;
        if let Some(seen) = pictured(&text) {
            (text, self.pictured) = (seen, true);
        }
        if let Some(clip) = self.window.clip
            && let Some((at, _)) = text.char_indices().nth(clip)
        {
            text.truncate(at);
            text.push_str("… [line truncated]");
        }
        self.keep(text);
        self.line += 1;
        self.kept.clear();
        self.length = 0;
    }

    /// Keeps a line while there is room. One that alone is too much is cut; any other is left for the next window.
    fn keep(&mut self, mut text: String) {
        // Every line but the first costs the end of the one before.
        let joint = usize::from(!self.lines.is_empty());
        let used = match self.window.most {
            Most::Everything => 0,
            Most::Characters(_) => self.chars + joint + self.window.prefix,
            Most::Lines { .. } => self.bytes + joint + self.window.prefix,
        };
        let (most, size) = match self.window.most {
            Most::Everything => (usize::MAX, 0),
            Most::Characters(most) => (most, text.chars().count()),
            Most::Lines { bytes, .. } => (bytes, text.len()),
        };
        if used + size > most {
            self.full = true;
            if !self.lines.is_empty() {
                return;
            }
            self.cut_line = Some(self.length);
            let room = most.saturating_sub(self.window.prefix);
            let at = match self.window.most {
                Most::Characters(_) => text.char_indices().nth(room).map_or(text.len(), |(at, _)| at),
                _ => text.floor_char_boundary(room),
            };
            text.truncate(at);
        }
        self.bytes += joint + self.window.prefix + text.len();
        self.chars += joint + self.window.prefix + text.chars().count();
        self.lines.push(text);
    }

    fn finish(mut self, encoding: Encoding, counted: bool, known: Known) -> Lines {
        if self.length > 0 && self.is_wanted() {
            self.end_line(false);
        } else if self.length > 0 {
            self.line += 1;
        }
        Lines {
            first: self.window.first,
            total: self.line - 1,
            counted,
            full: self.full,
            cut_line: self.cut_line,
            lines: self.lines,
            encoding,
            eight_bit: self.eight_bit,
            pictured: self.pictured,
            ends: self.ends,
            known,
        }
    }
}

/// Where a line was kept in part, its last character may be too; that one is left out.
fn complete(kept: &[u8], whole: bool) -> &[u8] {
    match std::str::from_utf8(kept) {
        Err(error) if !whole && error.error_len().is_none() => &kept[..error.valid_up_to()],
        _ => kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn wanted(first: u64, lines: Option<u64>) -> Window {
        Window { first, lines, most: Most::Lines { lines: 2000, bytes: 51_200 }, prefix: 0, clip: None }
    }

    fn page(content: &[u8], window: &Window) -> Lines {
        match read(&mut Cursor::new(content.to_vec()), window, &|| false).unwrap() {
            Page::Lines(lines) => *lines,
            Page::Binary { kind, .. } => panic!("binary: {kind}"),
        }
    }

    fn utf16(text: &str, mark: [u8; 2]) -> Vec<u8> {
        let unit = |unit: u16| if mark == [0xff, 0xfe] { unit.to_le_bytes() } else { unit.to_be_bytes() };
        mark.into_iter().chain(text.encode_utf16().flat_map(unit)).collect()
    }

    #[test]
    fn every_encoding_and_line_end_gives_the_same_lines() {
        let text = "één\nzwei\n三\n";
        for (content, crlf, cr) in [
            (text.as_bytes().to_vec(), false, false),
            (text.replace('\n', "\r\n").into_bytes(), true, false),
            (text.replace('\n', "\r").into_bytes(), false, true),
            ([b"\xef\xbb\xbf", text.as_bytes()].concat(), false, false),
            (utf16(text, [0xff, 0xfe]), false, false),
            (utf16(text, [0xfe, 0xff]), false, false),
            (utf16(&text.replace('\n', "\r\n"), [0xff, 0xfe]), true, false),
        ] {
            let page = page(&content, &wanted(1, None));
            assert_eq!(page.lines, ["één", "zwei", "三"], "{content:?}");
            assert_eq!((page.total, page.counted), (3, true));
            assert_eq!((page.ends.crlf, page.ends.cr), (crlf, cr), "{content:?}");
        }
        // Where the beginning is all of one line, its CR is not taken for the end of that.
        for length in [CHUNK - 2, CHUNK - 1, CHUNK] {
            let wide: Vec<u8> = utf16(&format!("{}\r\nb\r\n", "x".repeat(length / 2)), [0xff, 0xfe]);
            for content in [format!("{}\r\nb\r\n", "x".repeat(length)).into_bytes(), wide] {
                let page = page(&content, &wanted(2, None));
                assert_eq!((page.lines, page.ends.cr), (vec!["b".to_owned()], false), "{length}");
            }
        }
        let latin = page(b"caf\xe9\nna\xefve \x93q\x94\n", &wanted(1, None));
        assert_eq!((latin.lines, latin.eight_bit), (vec!["café".into(), "naïve “q”".into()], true));
        let mixed = page(b"a\r\nb\nc\rd\n", &wanted(1, None));
        assert_eq!(mixed.lines, ["a", "b", "c\u{240d}d"]);
        assert!(mixed.ends.crlf && mixed.ends.lf && mixed.pictured);
    }

    #[test]
    fn a_line_that_alone_is_too_much_is_cut_and_any_other_waits_for_the_next_window() {
        let content = [&vec![b'x'; 100_000][..], b"\n", &[b'y'; 60_000], b"\nend\n"].concat();
        let first = page(&content, &wanted(1, None));
        assert_eq!((first.lines.len(), first.lines[0].len(), first.cut_line), (1, 51_200, Some(100_000)));
        let second = page(&content, &wanted(2, None));
        assert_eq!((second.lines.len(), second.cut_line), (1, Some(60_000)));
        let third = page(&content, &wanted(3, None));
        assert_eq!((third.lines, third.cut_line, third.full), (vec!["end".to_owned()], None, false));
    }

    proptest! {
        #[test]
        fn windows_put_together_are_the_file(
            lines in proptest::collection::vec("[a-zé\u{1F600}]{0,40}", 0..60),
            step in 1u64..9,
            most in 1usize..300,
            open_end in any::<bool>(),
        ) {
            let mut content = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            if open_end { content.pop(); }
            let expected: Vec<&str> = content.lines().collect();
            let (mut first, mut seen) = (1, Vec::new());
            loop {
                let window = Window { most: Most::Lines { lines: 2000, bytes: most }, ..wanted(first, Some(step)) };
                let page = page(content.as_bytes(), &window);
                prop_assert!(page.lines.join("\n").len() <= most);
                prop_assert_eq!(page.total as usize, expected.len());
                if page.lines.is_empty() { break; }
                for line in &page.lines {
                    let whole = expected[seen.len()];
                    let right = if page.cut_line.is_some() { whole.starts_with(line.as_str()) } else { whole == line };
                    prop_assert!(right);
                    seen.push(line.clone());
                }
                first += page.lines.len() as u64;
            }
            prop_assert_eq!(seen.len(), expected.len());
        }

        #[test]
        fn any_bytes_are_read_to_an_end(content in proptest::collection::vec(any::<u8>(), 0..3000), first in 1u64..50, lines in proptest::option::of(1u64..9)) {
            if let Page::Lines(page) = read(&mut Cursor::new(content), &wanted(first, lines), &|| false).unwrap() {
                let text = page.lines.join("\n");
                prop_assert!(text.len() <= 51_200);
                prop_assert!(!text.chars().any(|c| c.is_control() && c != '\t' && c != '\n'));
            }
        }
    }
}
