//! Names that a line of text cannot hold as they are: with a newline, a control character, or bytes that are no UTF-8. They are shown in
//! quotes with escapes, one line each, and the same spelling is understood where a path is wanted.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// A name or path as one line of text.
pub fn shown(name: &OsStr) -> String {
    match name.to_str() {
        Some(text) if !text.chars().any(|c| c.is_control() || is_invisible(c)) && !is_quoted(text) => text.to_owned(),
        _ => quoted(name.as_bytes(), is_invisible),
    }
}

/// A name so that it is told from others that look the same: only letters, digits and ASCII stand in it as they are.
pub(super) fn told_apart(name: &OsStr) -> String {
    let looks_like_another = |c: char| !c.is_ascii() && !c.is_alphanumeric();
    match name.to_str() {
        Some(text) if !text.chars().any(looks_like_another) => shown(name),
        _ => quoted(name.as_bytes(), looks_like_another),
    }
}

/// The bytes that a quoted spelling stands for; none where it is not in quotes, or an escape of it is not one of ours.
pub fn unquoted(spelled: &str) -> Option<OsString> {
    let inner = spelled.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let (escape, behind) = rest.split_first()?;
        rest = behind;
        bytes.push(match escape {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'\\' | b'"' => *escape,
            b'x' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).ok()?
            }
            _ => return None,
        });
    }
    Some(OsString::from_vec(bytes))
}

fn is_quoted(text: &str) -> bool {
    text.len() > 1 && text.starts_with('"') && text.ends_with('"')
}

/// Characters that turn the line around or take no room: a name with one of them looks like another name.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

fn quoted(bytes: &[u8], is_escaped: impl Fn(char) -> bool) -> String {
    let mut text = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\r' => text.push_str("\\r"),
                '"' | '\\' => text.extend(['\\', c]),
                c if c.is_control() || is_escaped(c) => {
                    let mut buffer = [0; 4];
                    c.encode_utf8(&mut buffer).bytes().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_one_line_and_comes_back_byte_for_byte() {
        for name in [
            &b"plain.txt"[..],
            b"with space",
            b"two\nlines",
            b"\xff\xfe",
            b"caf\xc3\xa9",
            b"caf\xe9\n\"\\x",
            b"\"quoted\"",
            b"back\\slash",
            b"\x1b[31m",
            "a\u{202e}b".as_bytes(),
            "e\u{301} \u{202f}\u{2019}".as_bytes(),
        ] {
            let shown = shown(OsStr::from_bytes(name));
            assert!(!shown.contains('\n') && !shown.contains('\u{1b}'), "{shown}");
            let apart = told_apart(OsStr::from_bytes(name));
            assert_eq!(unquoted(&apart).unwrap_or_else(|| OsString::from(&apart)).as_bytes(), name, "{apart}");
            let back = unquoted(&shown).unwrap_or_else(|| OsString::from(&shown));
            assert_eq!(back.as_bytes(), name, "{shown}");
        }
        for text in ["a", "\"", "\"a", "\"\\q\"", "\"\\x4\"", "\"\\"] {
            assert_eq!(unquoted(text), None, "{text}");
        }
    }
}
