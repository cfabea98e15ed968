//! What kind of text a file holds: its encoding and its line ends, told from its beginning; and how bytes become characters.

use std::borrow::Cow;

use encoding_rs::{Decoder, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Bytes from the beginning in which a NUL says that a file is binary.
pub const SAMPLE: usize = 8 * 1024;

/// How characters are written in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8, or bytes of which most are: what is no UTF-8 is shown as Windows-1252.
    Utf8,
    /// UTF-8 behind its byte order mark.
    Utf8Marked,
    /// UTF-16, the low byte first, behind its byte order mark.
    Utf16Le,
    /// UTF-16, the high byte first, behind its byte order mark.
    Utf16Be,
}

impl Encoding {
    /// What the first bytes of a file say.
    pub fn of(beginning: &[u8]) -> Self {
        match beginning {
            [0xef, 0xbb, 0xbf, ..] => Self::Utf8Marked,
            // The mark of UTF-32 begins with that of UTF-16, whose texts begin with no NUL.
            [0xff, 0xfe, 0, 0, ..] => Self::Utf8,
            [0xff, 0xfe, ..] => Self::Utf16Le,
            [0xfe, 0xff, ..] => Self::Utf16Be,
            _ => Self::Utf8,
        }
    }

    /// Bytes of the byte order mark.
    pub fn mark(self) -> usize {
        match self {
            Self::Utf8 => 0,
            Self::Utf8Marked => 3,
            Self::Utf16Le | Self::Utf16Be => 2,
        }
    }

    /// What turns its bytes into UTF-8, where they are not that already.
    pub fn decoder(self) -> Option<Decoder> {
        match self {
            Self::Utf8 | Self::Utf8Marked => None,
            Self::Utf16Le => Some(UTF_16LE.new_decoder_without_bom_handling()),
            Self::Utf16Be => Some(UTF_16BE.new_decoder_without_bom_handling()),
        }
    }

    /// What people call it, where it is worth saying.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Utf8 | Self::Utf8Marked => None,
            Self::Utf16Le => Some("UTF-16LE"),
            Self::Utf16Be => Some("UTF-16BE"),
        }
    }
}

/// The byte that ends a line: LF, unless the beginning of the text has only CR. A CR at its very end may be half of an end, where the text
/// goes on.
pub fn line_end(beginning: &[u8], encoding: Encoding, ended: bool) -> u8 {
    let has = |wanted: u8, within: &[u8]| match encoding {
        Encoding::Utf8 | Encoding::Utf8Marked => memchr::memchr(wanted, within).is_some(),
        Encoding::Utf16Le => within.chunks_exact(2).any(|pair| pair == [wanted, 0]),
        Encoding::Utf16Be => within.chunks_exact(2).any(|pair| pair == [0, wanted]),
    };
    let sure = if ended { beginning } else { &beginning[..beginning.len().saturating_sub(2)] };
    if has(b'\r', sure) && !has(b'\n', beginning) { b'\r' } else { b'\n' }
}

/// Whether the beginning of a file is that of no text. Text in UTF-16 is full of NULs and says so at its beginning.
pub fn is_binary(beginning: &[u8]) -> bool {
    let sample = &beginning[..beginning.len().min(SAMPLE)];
    matches!(Encoding::of(sample), Encoding::Utf8 | Encoding::Utf8Marked) && memchr::memchr(0, sample).is_some()
}

/// What a binary file seems to be, from its first bytes. Text that is told from no mark is not decoded, but named.
pub fn binary_kind(beginning: &[u8]) -> &'static str {
    const KINDS: &[(&[u8], &str)] = &[
        (b"\x7fELF", "a program (ELF)"),
        (b"MZ", "a program for Windows"),
        (b"\xfe\xed\xfa", "a program for macOS"),
        (b"\xcf\xfa\xed\xfe", "a program for macOS"),
        (b"PK\x03\x04", "a ZIP archive, or a document that is one"),
        (b"\x1f\x8b", "data packed by gzip"),
        (b"BZh", "data packed by bzip2"),
        (b"\xfd7zXZ", "data packed by xz"),
        (b"\x28\xb5\x2f\xfd", "data packed by zstd"),
        (b"7z\xbc\xaf", "a 7z archive"),
        (b"%PDF", "a PDF document"),
        (b"SQLite format 3", "an SQLite database"),
        (b"\x89PNG", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"\0asm", "a WebAssembly module"),
        (b"OggS", "sound or video (Ogg)"),
        (b"ID3", "sound (MP3)"),
        (b"fLaC", "sound (FLAC)"),
        (b"\x1aE\xdf\xa3", "video (Matroska)"),
    ];
    let known = KINDS.iter().find(|(magic, _)| beginning.starts_with(magic)).map(|(_, name)| *name);
    known
        .or_else(|| beginning.get(4..8).filter(|kind| *kind == b"ftyp").map(|_| "a video or an image (ISO media)"))
        .or_else(|| wide_text(beginning))
        .unwrap_or("data")
}

/// Text that is taken for binary, since its characters are several bytes each and no mark of UTF-16 says so. What is mostly ASCII shows
/// that by a NUL beside every other byte.
fn wide_text(beginning: &[u8]) -> Option<&'static str> {
    if beginning.starts_with(b"\xff\xfe\0\0") || beginning.starts_with(b"\0\0\xfe\xff") {
        return Some("text in UTF-32; iconv can convert it to UTF-8");
    }
    let (units, _) = beginning[..beginning.len().min(SAMPLE)].as_chunks::<2>();
    let is_letter = |byte: u8| byte >= b' ' || matches!(byte, b'\t' | b'\n' | b'\r');
    let is_most = |ascii: usize| 2 * ascii > units.len();
    if is_most(units.iter().filter(|[low, high]| *high == 0 && is_letter(*low)).count()) {
        return Some("text in UTF-16LE without a byte order mark, it seems; iconv can convert it to UTF-8");
    }
    is_most(units.iter().filter(|[high, low]| *high == 0 && is_letter(*low)).count())
        .then_some("text in UTF-16BE without a byte order mark, it seems; iconv can convert it to UTF-8")
}

/// Bytes of one line, or of some, as characters: UTF-8 where they are that, else Windows-1252, which is Latin-1 with quotes and dashes
/// in it. Says whether they were not UTF-8.
pub fn shown(bytes: &[u8]) -> (String, bool) {
    match UTF_8.decode_without_bom_handling_and_without_replacement(bytes) {
        Some(text) => (text.into_owned(), false),
        None => (WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned(), true),
    }
}

/// Bytes of a text that comes in pieces, as UTF-8: what is that stays, and any other byte is the character that it is shown as. Also says
/// how many bytes at the end are left, since they begin a character that may go on.
pub fn as_utf8(bytes: &[u8], ended: bool) -> (Cow<'_, [u8]>, usize) {
    let Err(error) = std::str::from_utf8(bytes) else { return (Cow::Borrowed(bytes), 0) };
    if error.error_len().is_none() && !ended {
        return (Cow::Borrowed(&bytes[..error.valid_up_to()]), bytes.len() - error.valid_up_to());
    }
    let (mut text, mut at) = (Vec::with_capacity(bytes.len() + bytes.len() / 4), 0);
    for part in bytes.utf8_chunks() {
        let other = part.invalid();
        text.extend_from_slice(part.valid().as_bytes());
        at += part.valid().len() + other.len();
        let goes_on = || std::str::from_utf8(other).is_err_and(|error| error.error_len().is_none());
        if at == bytes.len() && !ended && goes_on() {
            return (Cow::Owned(text), other.len());
        }
        text.extend_from_slice(WINDOWS_1252.decode_without_bom_handling(other).0.as_bytes());
    }
    (Cow::Owned(text), 0)
}

/// Control characters made visible, since nothing that a model reads may hold them: each by its picture, so that none is lost silently.
pub fn pictured(text: &str) -> Option<String> {
    let is_hidden = |c: char| c.is_control() && c != '\t' && c != '\n';
    if !text.chars().any(is_hidden) {
        return None;
    }
    let picture = |c: char| match c {
        '\u{7f}' => '\u{2421}',
        c if is_hidden(c) && (c as u32) < 0x20 => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        c if is_hidden(c) => '\u{fffd}',
        c => c,
    };
    Some(text.chars().map(picture).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_other_things() {
        for (bytes, binary) in [
            (&b"plain\n"[..], false),
            (b"", false),
            (b"caf\xe9\n", false),
            (b"\xff\xfeh\0i\0", false),
            (b"\xfe\xff\0h\0i", false),
            (b"\xef\xbb\xbfhi", false),
            (b"a\0b", true),
            (b"h\0i\0", true),
            (b"\xff\xfe\0\0h\0\0\0", true),
            (b"\0\0\xfe\xff\0\0\0h", true),
            (b"\x7fELF\x02\x01\x01\0", true),
        ] {
            assert_eq!(is_binary(bytes), binary, "{bytes:?}");
        }
        assert_eq!(binary_kind(b"\x7fELF\x02"), "a program (ELF)");
        assert_eq!(binary_kind(b"\0\0\0\x18ftypheic"), "a video or an image (ISO media)");
        for (bytes, kind) in [
            (&b"\0"[..], "data"),
            (b"a\0\0\0\x01\0\0\0", "data"),
            (b"\x01\0\x02\0\x03\0\x04\0", "data"),
            (b"\0asm\x01\0\0\0", "a WebAssembly module"),
            (b"h\0i\0\n\0", "text in UTF-16LE without"),
            (b"\0h\0i\x20\xac\0\n", "text in UTF-16BE without"),
            (b"\xff\xfe\0\0h\0\0\0", "text in UTF-32"),
            (b"\0\0\xfe\xff\0\0\0h", "text in UTF-32"),
        ] {
            assert!(binary_kind(bytes).starts_with(kind), "{bytes:?}: {}", binary_kind(bytes));
        }
    }

    #[test]
    fn bytes_become_characters_and_controls_are_seen() {
        assert_eq!(shown(b"caf\xc3\xa9"), ("caf\u{e9}".into(), false));
        assert_eq!(shown(b"caf\xe9 \x93q\x94"), ("caf\u{e9} \u{201c}q\u{201d}".into(), true));
        for (bytes, ended, text, left) in [
            (&b"caf\xc3\xa9"[..], true, "caf\u{e9}", 0),
            (b"caf\xe9 x", true, "caf\u{e9} x", 0),
            (b"caf\xe9 \xc3\xa9 \x93q\x94", true, "caf\u{e9} \u{e9} \u{201c}q\u{201d}", 0),
            (b"caf\xc3", false, "caf", 1),
            (b"caf\xc3", true, "caf\u{c3}", 0),
            (b"\xe9 \xe4\xb8", false, "\u{e9} ", 2),
            (b"\xe4\xb8a", false, "\u{e4}\u{b8}a", 0),
            (b"\xf0\x9f\x98", false, "", 3),
        ] {
            let (found, rest) = as_utf8(bytes, ended);
            assert_eq!((std::str::from_utf8(&found).unwrap(), rest), (text, left), "{bytes:?}");
        }
        assert_eq!(pictured("a\tb\n"), None);
        assert_eq!(pictured("a\rb\u{1b}[0m\u{7f}").unwrap(), "a\u{240d}b\u{241b}[0m\u{2421}");
    }
}
