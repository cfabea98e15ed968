//! What a terminal would have shown: bytes in, clean text out, whole lines at a time.
//!
//! Terminal control sequences are removed, and a line that was drawn over (carriage return, backspace, erase) keeps its last state, as
//! a person would have seen it. Invalid UTF-8 becomes U+FFFD, once for each broken sequence, whatever the chunks it came in.

/// A line without an end is let go in pieces of this many bytes: what was drawn so far is final then, and memory stays bounded.
const LONGEST_LINE: usize = 64 * 1024;

/// A string sequence (a title, a link) that does not end within this many bytes was none.
const LONGEST_STRING_SEQUENCE: usize = 4 * 1024;

/// The state between chunks.
#[derive(Default)]
pub struct Fold {
    /// Bytes of a character that the last chunk tore.
    torn: Vec<u8>,
    /// The line that has no end yet.
    line: Line,
    escape: Escape,
}

/// The line being drawn and where the cursor stands in it.
#[derive(Default)]
struct Line {
    text: String,
    /// Byte position; at the end of the text unless something moved it.
    cursor: usize,
}

/// Where in a control sequence the last byte left off.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    /// ESC came.
    Started,
    /// ESC and intermediate bytes.
    Intermediate,
    /// ESC `[` and parameters; the first parameter's value so far.
    Control(Option<usize>, bool),
    /// A string sequence of this many bytes; whether ESC came last.
    Text(usize, bool),
}

impl Fold {
    /// Takes a chunk and gives away every line that it completed.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut dyn FnMut(&str)) {
        if !self.torn.is_empty() {
            bytes = self.mend(bytes, out);
        }
        while !bytes.is_empty() {
            match std::str::from_utf8(bytes) {
                Ok(text) => {
                    self.text(text, out);
                    return;
                }
                Err(error) => {
                    let (valid, rest) = bytes.split_at(error.valid_up_to());
                    self.text(std::str::from_utf8(valid).unwrap_or_default(), out);
                    match error.error_len() {
                        Some(length) => {
                            self.text("\u{FFFD}", out);
                            bytes = &rest[length..];
                        }
                        None => {
                            self.torn = rest.to_vec();
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Gives away what has no line end.
    pub fn finish(&mut self, out: &mut dyn FnMut(&str)) {
        if !std::mem::take(&mut self.torn).is_empty() {
            self.text("\u{FFFD}", out);
        }
        let line = std::mem::take(&mut self.line);
        if !line.text.is_empty() {
            out(&line.text);
        }
    }

    /// Completes the torn character with the next bytes; returns what is left of them.
    fn mend<'a>(&mut self, bytes: &'a [u8], out: &mut dyn FnMut(&str)) -> &'a [u8] {
        for (used, byte) in bytes.iter().enumerate() {
            self.torn.push(*byte);
            match std::str::from_utf8(&self.torn) {
                Ok(_) => {
                    let whole = String::from_utf8(std::mem::take(&mut self.torn)).unwrap_or_default();
                    self.text(&whole, out);
                    return &bytes[used + 1..];
                }
                Err(error) if error.error_len().is_some() => {
                    // The byte that broke it belongs to what follows.
                    self.torn.clear();
                    self.text("\u{FFFD}", out);
                    return &bytes[used..];
                }
                Err(_) => {}
            }
        }
        &[]
    }

    fn text(&mut self, text: &str, out: &mut dyn FnMut(&str)) {
        let mut rest = text;
        while !rest.is_empty() {
            if self.escape == Escape::None && !self.line.is_drawn_over() {
                let plain = plain_prefix(rest);
                self.plain(&rest[..plain], out);
                rest = &rest[plain..];
            }
            let Some(c) = rest.chars().next() else { return };
            rest = &rest[c.len_utf8()..];
            self.character(c, out);
        }
    }

    /// Text without any control but tab and newline, while nothing is drawn over: the usual case, and it is not copied twice.
    fn plain(&mut self, mut text: &str, out: &mut dyn FnMut(&str)) {
        /// No line inside a block of this size, its last character included, is too long to be given away whole.
        const BLOCK: usize = LONGEST_LINE - 4;
        while !text.is_empty() {
            let (block, rest) = text.split_at(border(text, BLOCK));
            self.plain_block(block, out);
            text = rest;
        }
    }

    fn plain_block(&mut self, text: &str, out: &mut dyn FnMut(&str)) {
        let Some(last) = memchr::memrchr(b'\n', text.as_bytes()) else {
            return self.append(text, out);
        };
        let mut lines = &text[..=last];
        if !self.line.text.is_empty() {
            let first = memchr::memchr(b'\n', lines.as_bytes()).unwrap_or(last);
            self.append(&lines[..first], out);
            self.end_line(out);
            lines = &lines[first + 1..];
        }
        if !lines.is_empty() {
            out(lines);
        }
        self.append(&text[last + 1..], out);
    }

    /// Adds to the line. It is let go exactly where it gets too long, whatever the chunks.
    fn append(&mut self, mut text: &str, out: &mut dyn FnMut(&str)) {
        while self.line.text.len() + text.len() >= LONGEST_LINE {
            let (now, rest) = text.split_at(border(text, LONGEST_LINE - self.line.text.len()));
            self.line.append(now);
            self.bound_line(out);
            text = rest;
        }
        self.line.append(text);
    }

    fn end_line(&mut self, out: &mut dyn FnMut(&str)) {
        let mut line = std::mem::take(&mut self.line);
        line.text.push('\n');
        out(&line.text);
    }

    fn bound_line(&mut self, out: &mut dyn FnMut(&str)) {
        if self.line.text.len() >= LONGEST_LINE {
            out(&std::mem::take(&mut self.line).text);
        }
    }

    fn character(&mut self, c: char, out: &mut dyn FnMut(&str)) {
        match self.escape {
            Escape::None => self.shown(c, out),
            Escape::Started => {
                self.escape = match c {
                    '[' => Escape::Control(None, true),
                    ']' | 'P' | 'X' | '^' | '_' => Escape::Text(0, false),
                    ' '..='/' => Escape::Intermediate,
                    '0'..='~' => Escape::None,
                    _ => return self.broken(c, out),
                };
            }
            Escape::Intermediate => match c {
                ' '..='/' => {}
                '0'..='~' => self.escape = Escape::None,
                _ => self.broken(c, out),
            },
            Escape::Control(value, first) => match c {
                '0'..='9' if first => {
                    let digit = c as usize - '0' as usize;
                    self.escape =
                        Escape::Control(Some(value.unwrap_or(0).saturating_mul(10).saturating_add(digit)), true);
                }
                ' '..='?' => self.escape = Escape::Control(value, false),
                '@'..='~' => {
                    self.escape = Escape::None;
                    self.line.control(c, value);
                }
                _ => self.broken(c, out),
            },
            Escape::Text(length, escaped) => {
                self.escape = match c {
                    '\u{7}' => Escape::None,
                    '\\' if escaped => Escape::None,
                    // A sequence never crosses a line: what looks like one there is binary data, and the rest is text again.
                    '\n' => return self.broken(c, out),
                    _ if length >= LONGEST_STRING_SEQUENCE => Escape::None,
                    c => Escape::Text(length + 1, c == '\u{1b}'),
                };
            }
        }
    }

    /// No sequence after all: what interrupted it counts by itself.
    fn broken(&mut self, c: char, out: &mut dyn FnMut(&str)) {
        self.escape = Escape::None;
        self.shown(c, out);
    }

    fn shown(&mut self, c: char, out: &mut dyn FnMut(&str)) {
        match c {
            '\n' => self.end_line(out),
            '\r' => self.line.cursor = 0,
            '\u{8}' => self.line.back(1),
            '\u{1b}' => self.escape = Escape::Started,
            // A bell says nothing.
            '\u{7}' => {}
            '\t' => self.line.draw('\t'),
            // Other controls are shown by their pictures, so that none is lost and none reaches a terminal or a request.
            '\0'..='\u{1f}' => self.line.draw(char::from_u32(0x2400 + c as u32).unwrap_or('\u{FFFD}')),
            '\u{7f}' => self.line.draw('\u{2421}'),
            '\u{80}'..='\u{9f}' => self.line.draw('\u{FFFD}'),
            c => self.line.draw(c),
        }
        self.bound_line(out);
    }
}

impl Line {
    /// Whether the next character would go anywhere but to the end.
    fn is_drawn_over(&self) -> bool {
        self.cursor != self.text.len()
    }

    fn append(&mut self, text: &str) {
        self.text.push_str(text);
        self.cursor = self.text.len();
    }

    fn draw(&mut self, c: char) {
        match self.text[self.cursor..].chars().next() {
            None => self.text.push(c),
            Some(old) => self.text.replace_range(self.cursor..self.cursor + old.len_utf8(), c.encode_utf8(&mut [0; 4])),
        }
        self.cursor += c.len_utf8();
    }

    fn back(&mut self, count: usize) {
        for _ in 0..count.min(self.cursor) {
            match self.text[..self.cursor].chars().next_back() {
                Some(c) => self.cursor -= c.len_utf8(),
                None => return,
            }
        }
    }

    fn forward(&mut self, count: usize) {
        for _ in 0..count.min(self.text.len()) {
            match self.text[self.cursor..].chars().next() {
                Some(c) => self.cursor += c.len_utf8(),
                None => return,
            }
        }
    }

    /// The control sequences that change a line; all others only change how it looks.
    fn control(&mut self, last: char, value: Option<usize>) {
        match (last, value.unwrap_or(0)) {
            ('K', 0) => self.text.truncate(self.cursor),
            ('K', 1) => {
                self.text.replace_range(..self.cursor, "");
                self.cursor = 0;
            }
            ('K', 2) => {
                self.text.clear();
                self.cursor = 0;
            }
            ('G', column) => {
                self.cursor = 0;
                self.forward(column.saturating_sub(1));
            }
            ('D', count) => self.back(count.max(1)),
            ('C', count) => self.forward(count.max(1)),
            _ => {}
        }
    }
}

/// The first border of a character that is not before a place.
fn border(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// How many bytes at the beginning need no attention: no control but tab and newline, nothing from the C1 block.
fn plain_prefix(text: &str) -> usize {
    /// Looked at in blocks without an early exit, which the compiler turns into vector code.
    const BLOCK: usize = 1024;
    let bytes = text.as_bytes();
    let special = |byte: u8| (byte < 0x20 && byte != b'\n' && byte != b'\t') || byte == 0x7f || byte == 0xc2;
    let mut at = 0;
    for block in bytes.chunks(BLOCK) {
        if block.iter().fold(false, |any, byte| any | special(*byte)) {
            break;
        }
        at += block.len();
    }
    while at < bytes.len() {
        let byte = bytes[at];
        // 0xC2 begins U+0080 to U+00BF, of which the first half are controls.
        let c1 = byte == 0xc2 && bytes.get(at + 1).is_some_and(|next| *next < 0xa0);
        if c1 || (byte != 0xc2 && special(byte)) {
            break;
        }
        at += 1;
    }
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(bytes: &[u8]) -> String {
        let whole = in_chunks(bytes, bytes.len().max(1));
        for size in [1, 2, 3, 5] {
            assert_eq!(in_chunks(bytes, size), whole, "in chunks of {size}");
        }
        whole
    }

    fn in_chunks(bytes: &[u8], size: usize) -> String {
        let (mut fold, mut out) = (Fold::default(), String::new());
        for chunk in bytes.chunks(size) {
            fold.push(chunk, &mut |text| out.push_str(text));
        }
        fold.finish(&mut |text| out.push_str(text));
        out
    }

    #[test]
    fn what_a_terminal_would_have_shown() {
        for (raw, shown) in [
            (&b"\x1b[2m1\x1b[0m \x1b[34mDEBUG\x1b[0m x\n"[..], "1 DEBUG x\n"),
            (b"\r1%\r2%\r100%\na\r\nb\r\n", "100%\na\nb\n"),
            (b"abc\x08\x08X\x1b[2K\rdone\n", "done\n"),
            (b"abcdef\rXY\n", "XYcdef\n"),
            (b"abcdef\rXY\x1b[K\n", "XY\n"),
            (b"a\0b\0\0c\n", "a\u{2400}b\u{2400}\u{2400}c\n"),
            (b"\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\n", "textlink\n"),
            (b"\x1b]never ends\nnext\n", "\nnext\n"),
            (b"\x1b(Bx\x1b7y\x1b[?25lz\x1b[1;2Hw", "xyzw"),
            ("é€😀\n".as_bytes(), "é€😀\n"),
            (b"\xc3\x28 \xff\xfe a\xe2\x82", "\u{FFFD}( \u{FFFD}\u{FFFD} a\u{FFFD}"),
            (b"\xa4\xa4\n", "\u{FFFD}\u{FFFD}\n"),
            ("a\u{9b}b\u{a0}c\u{85}\n".as_bytes(), "a\u{FFFD}b\u{a0}c\u{FFFD}\n"),
            ("é\rab\n".as_bytes(), "ab\n"),
            (b"ring\x07 \x7f\n", "ring \u{2421}\n"),
            (b"Password: ", "Password: "),
        ] {
            assert_eq!(folded(raw), shown, "{:?}", String::from_utf8_lossy(raw));
        }
    }

    #[test]
    fn a_line_without_an_end_costs_no_more_than_its_bound() {
        let mut fold = Fold::default();
        let mut length = 0;
        for _ in 0..1000 {
            fold.push(&[b'x'; 1000], &mut |text| length += text.len());
            assert!(fold.line.text.len() <= LONGEST_LINE);
        }
        fold.finish(&mut |text| length += text.len());
        assert_eq!(length, 1_000_000);
    }
}
