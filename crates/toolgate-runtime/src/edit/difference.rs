//! What splices change, as lines that people and models read, whatever the file's encoding and line ends.

use crate::{
    diff::Diff,
    files::{Splice, text::Encoding},
};

/// The difference that some splices make.
pub fn difference(file: &[u8], splices: &[Splice]) -> Diff {
    let encoding = Encoding::of(file);
    let cr_alone = memchr::memchr(b'\n', file).is_none() && memchr::memchr(b'\r', file).is_some();
    if encoding.name().is_none() && !cr_alone {
        return Diff::of(file, splices);
    }
    // The same pieces in UTF-8 and with LF, one behind the other.
    let (mut text, mut moved, mut at) =
        (Vec::with_capacity(file.len()), Vec::with_capacity(splices.len()), encoding.mark());
    for splice in splices {
        text.extend_from_slice(&readable(&file[at..splice.range.start], encoding));
        let start = text.len();
        text.extend_from_slice(&readable(&file[splice.range.clone()], encoding));
        moved.push(Splice { range: start..text.len(), with: readable(&splice.with, encoding) });
        at = splice.range.end;
    }
    text.extend_from_slice(&readable(&file[at..], encoding));
    Diff::of(&text, &moved)
}

fn readable(bytes: &[u8], encoding: Encoding) -> Vec<u8> {
    let Some(mut decoder) = encoding.decoder() else {
        return bytes.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect();
    };
    let mut text = String::with_capacity(decoder.max_utf8_buffer_length(bytes.len()).unwrap_or_default());
    let _ = decoder.decode_to_string(bytes, &mut text, true);
    text.into_bytes()
}
