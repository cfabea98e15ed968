//! The small pieces that a text is compared by: what each stands for, and where its bytes are.
//!
//! A piece never spans a line end and something else, and what it stands for depends only on the bytes around it in its own line. So a
//! text can be cut into pieces from any line start on.

use std::{iter::once, ops::Range};

use unicode_normalization::{
    IsNormalized, UnicodeNormalization,
    char::{canonical_combining_class, compose},
    is_nfkc_quick,
};

use super::How;
use crate::files::text::Encoding;

/// What stands at a place, as far as the comparison cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its bytes.
    pub range: Range<usize>,
    /// What it is compared as.
    pub stands_for: StandsFor,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StandsFor {
    /// Its own bytes, which are UTF-8.
    Itself,
    /// One character.
    Char(char),
    /// Several characters.
    Text(String),
    /// Nothing: blanks that do not count, invisible characters.
    Nothing,
}

impl Piece {
    /// Appends what it stands for.
    pub(super) fn write(&self, bytes: &[u8], to: &mut Vec<u8>) {
        match &self.stands_for {
            StandsFor::Itself => to.extend_from_slice(&bytes[self.range.clone()]),
            StandsFor::Char(c) if c.is_ascii() => to.push(*c as u8),
            StandsFor::Char(c) => to.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            StandsFor::Text(text) => to.extend_from_slice(text.as_bytes()),
            StandsFor::Nothing => {}
        }
    }

    /// Bytes of what it stands for.
    pub(super) fn length(&self) -> usize {
        match &self.stands_for {
            StandsFor::Itself => self.range.len(),
            StandsFor::Char(c) => c.len_utf8(),
            StandsFor::Text(text) => text.len(),
            StandsFor::Nothing => 0,
        }
    }

    pub(super) fn is_line_end(&self) -> bool {
        self.stands_for == StandsFor::Char('\n')
    }
}

/// Cuts a text into pieces, from a line start on.
pub(super) struct Pieces<'a> {
    bytes: &'a [u8],
    at: usize,
    encoding: Encoding,
    how: How,
    at_line_start: bool,
    /// Where a run of blanks ends that is known not to end its line, so that a long run is looked through once.
    inner_blanks: usize,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize, encoding: Encoding, how: How) -> Self {
        Self { bytes, at, encoding, how, at_line_start: true, inner_blanks: at }
    }

    fn piece(&mut self, end: usize, stands_for: StandsFor) -> Option<Piece> {
        let range = self.at..end;
        self.at = end;
        Some(Piece { range, stands_for })
    }

    fn is_utf8(&self) -> bool {
        matches!(self.encoding, Encoding::Utf8 | Encoding::Utf8Marked)
    }

    /// Where the bytes end that stand for themselves in this comparison; often most of a line, or of the text.
    fn plain_end(&self) -> usize {
        let rest = &self.bytes[self.at..];
        let length = match self.how {
            How::Exact => rest.len(),
            _ if !self.is_utf8() => 0,
            How::Shown => first(rest, |byte| !byte.is_ascii() || byte == b'\r' || byte == b'\n'),
            How::Alike | How::Indented => {
                // A blank within a line stands for itself where no other one follows.
                let mut length = first(rest, |byte| byte <= b' ' || !byte.is_ascii());
                while length > 0
                    && let [b' ' | b'\t', next, ..] = rest[length..]
                    && next > b' '
                    && next.is_ascii()
                {
                    length += 1 + first(&rest[length + 1..], |byte| byte <= b' ' || !byte.is_ascii());
                }
                // A character that is no ASCII may belong to the one before it.
                let joined = rest.get(length).is_some_and(|next| !next.is_ascii());
                length.saturating_sub(usize::from(joined))
            }
        };
        self.at + length
    }

    /// Where the blanks end that begin here.
    fn blanks_end(&self) -> usize {
        let mut end = self.at;
        while let Some((c, length)) = char_at(self.bytes, end, self.encoding)
            && (is_blank(c) || is_invisible(c))
        {
            end += length;
        }
        end
    }

    fn ends_line(&self, at: usize) -> bool {
        char_at(self.bytes, at, self.encoding).is_none_or(|(c, _)| c == '\n' || c == '\r')
    }

    /// A character with what combines with it.
    fn cluster(&mut self, first: char, length: usize) -> Option<Piece> {
        let mut end = self.at + length;
        let (mut text, mut base) = (String::new(), first);
        while let Some((next, length)) = char_at(self.bytes, end, self.encoding)
            && !stands_alone(next)
            && (canonical_combining_class(next) != 0 || compose(base, next).is_some())
        {
            if text.is_empty() {
                text.push(first);
            }
            text.push(next);
            base = compose(base, next).unwrap_or(base);
            end += length;
        }
        if text.is_empty() {
            if first.is_ascii() || plain(first) != first || is_nfkc_quick(once(first)) == IsNormalized::Yes {
                return self.piece(end, StandsFor::Char(plain(first)));
            }
            text.push(first);
        }
        let text: String = text.nfkc().map(plain).collect();
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (None, _) => self.piece(end, StandsFor::Nothing),
            (Some(only), None) => self.piece(end, StandsFor::Char(only)),
            _ => self.piece(end, StandsFor::Text(text)),
        }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let plain_end = self.plain_end();
        if plain_end > self.at {
            self.at_line_start = false;
            return self.piece(plain_end, StandsFor::Itself);
        }
        let (c, length) = char_at(self.bytes, self.at, self.encoding)?;
        let end = self.at + length;
        if c == '\n' || c == '\r' {
            self.at_line_start = true;
            let end = match char_at(self.bytes, end, self.encoding) {
                Some(('\n', length)) if c == '\r' => end + length,
                _ => end,
            };
            return self.piece(end, StandsFor::Char('\n'));
        }
        let at_line_start = std::mem::replace(&mut self.at_line_start, false);
        if self.how == How::Shown {
            return self.piece(end, StandsFor::Char(c));
        }
        if is_blank(c) && self.at >= self.inner_blanks {
            let blanks = self.blanks_end();
            if self.ends_line(blanks) || (at_line_start && self.how == How::Indented) {
                return self.piece(blanks, StandsFor::Nothing);
            }
            self.inner_blanks = blanks;
        }
        if is_invisible(c) {
            self.at_line_start = at_line_start;
            return self.piece(end, StandsFor::Nothing);
        }
        self.cluster(c, length)
    }
}

/// The place of the first byte of a kind, or of the end.
fn first(bytes: &[u8], kind: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| kind(*byte)).unwrap_or(bytes.len())
}

/// What a line is compared as where that is a part of itself, which is so for most lines of most files. None where it takes a closer
/// look.
pub(super) fn plain_line(line: &[u8], how: How) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_itself = line.is_ascii() || (how == How::Shown && std::str::from_utf8(line).is_ok());
    if !is_itself || memchr::memchr(b'\r', line).is_some() {
        return None;
    }
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let end = line.iter().rposition(|byte| !is_blank(byte)).map_or(0, |last| last + 1);
    match how {
        How::Exact | How::Shown => Some(line),
        How::Alike => Some(&line[..end]),
        How::Indented => Some(&line[line.iter().position(|byte| !is_blank(byte)).unwrap_or(0)..end]),
    }
}

/// The character at a place and its bytes. What is no UTF-8 is Windows-1252, as it is shown.
pub(super) fn char_at(bytes: &[u8], at: usize, encoding: Encoding) -> Option<(char, usize)> {
    let first = *bytes.get(at)?;
    match encoding {
        Encoding::Utf8 | Encoding::Utf8Marked => {
            let length = match first {
                0..0x80 => return Some((char::from(first), 1)),
                0xc2..0xe0 => 2,
                0xe0..0xf0 => 3,
                0xf0..0xf5 => 4,
                _ => 1,
            };
            let text = bytes.get(at..at + length).and_then(|bytes| std::str::from_utf8(bytes).ok());
            let c = text.and_then(|text| text.chars().next());
            Some(c.map_or((windows_1252(first), 1), |c| (c, length)))
        }
        Encoding::Utf16Le | Encoding::Utf16Be => {
            let unit = |at: usize| {
                let pair = [*bytes.get(at)?, *bytes.get(at + 1)?];
                Some(if encoding == Encoding::Utf16Le { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) })
            };
            let Some(first) = unit(at) else { return Some((char::REPLACEMENT_CHARACTER, 1)) };
            let units = once(first).chain(unit(at + 2));
            match char::decode_utf16(units).next() {
                Some(Ok(c)) => Some((c, 2 * c.len_utf16())),
                _ => Some((char::REPLACEMENT_CHARACTER, 2)),
            }
        }
    }
}

fn windows_1252(byte: u8) -> char {
    encoding_rs::WINDOWS_1252.decode_without_bom_handling(&[byte]).0.chars().next().unwrap_or(char::from(byte))
}

/// Whether a character is known, without a look into tables, to combine with none before it: ASCII, punctuation, arrows and symbols, CJK.
fn stands_alone(c: char) -> bool {
    matches!(c, '\0'..='\u{7f}' | '\u{2010}'..='\u{205e}' | '\u{2190}'..='\u{2bff}' | '\u{4e00}'..='\u{9fff}')
}

/// White space within a line.
pub(super) fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t' || (!c.is_ascii() && c.is_whitespace() && !matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}'))
}

/// Characters that take no room and that a model leaves out: zero width spaces, marks of byte order, selectors of a glyph's style.
pub(super) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{2060}' | '\u{feff}' | '\u{fe0e}' | '\u{fe0f}')
}

/// The ASCII character that people and models type for another one.
fn plain(c: char) -> char {
    match c {
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        c if c != '\t' && is_blank(c) => ' ',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The short ways say what the tables say.
    #[test]
    fn short_ways_are_right_for_every_character() {
        let bases = ['a', 'A', '=', '<', '\u{2203}', '\u{2190}', '\u{304b}', '\u{4e00}'];
        for c in '\0'..=char::MAX {
            if stands_alone(c) {
                let combines =
                    canonical_combining_class(c) != 0 || bases.iter().any(|base| compose(*base, c).is_some());
                assert!(!combines, "U+{:04X}", c as u32);
            }
            if plain(c) != c {
                let folded: String = once(c).nfkc().map(plain).collect();
                assert_eq!(folded, plain(c).to_string(), "U+{:04X}", c as u32);
            }
        }
    }

    #[test]
    fn a_plain_line_is_what_its_pieces_are() {
        for line in ["", "a", " a", "\ta b  c ", "  ", "\u{2018}a\u{2019} \u{e9}", "a\t", "\u{b}a \u{7f}"] {
            for how in [How::Shown, How::Alike, How::Indented] {
                let mut text = Vec::new();
                Pieces::new(line.as_bytes(), 0, Encoding::Utf8, how)
                    .for_each(|piece| piece.write(line.as_bytes(), &mut text));
                assert!(
                    plain_line(line.as_bytes(), how).is_none_or(|plain| plain == text),
                    "{line:?} {how:?} {text:?}"
                );
            }
        }
    }
}
