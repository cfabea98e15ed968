//! What an image's own order of bytes says: whether it has come to its end, and whether it moves. Decoders forgive a file that was cut short and fill it up with grey, which nobody wants to ask
//! a model about.

use super::Kind;

pub(super) fn is_whole(kind: Kind, bytes: &[u8]) -> bool {
    match kind {
        Kind::Png => png(bytes),
        Kind::Jpeg => jpeg(bytes),
        Kind::Gif => gif(bytes).is_some(),
        Kind::Webp => webp(bytes),
    }
}

/// Whether more than one picture is in it that all would have to be looked at; not every provider takes such. A PNG's further pictures
/// are seen by those only who know of them.
pub(super) fn is_animated(kind: Kind, bytes: &[u8]) -> bool {
    match kind {
        Kind::Png | Kind::Jpeg => false,
        Kind::Gif => gif(bytes).is_some_and(|pictures| pictures > 1),
        Kind::Webp => bytes.get(12..16) == Some(b"VP8X") && bytes.get(20).is_some_and(|flags| flags & 2 != 0),
    }
}

/// Chunks, the last of which is `IEND`.
fn png(bytes: &[u8]) -> bool {
    let mut rest = &bytes[8..];
    while let Some((head, behind)) = rest.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some(next) = length.checked_add(4).and_then(|end| behind.get(end..)) else { return false };
        if &head[4..] == b"IEND" {
            return true;
        }
        rest = next;
    }
    false
}

/// The end marker behind the last scan. Inside a scan it cannot stand by chance.
fn jpeg(bytes: &[u8]) -> bool {
    let mut at = 2;
    let mut scan = None;
    // Segments say how long they are; the first scan is where that ends.
    while let Some([0xff, marker, high, low]) = bytes.get(at..at + 4).and_then(|head| <[u8; 4]>::try_from(head).ok()) {
        if marker == 0xff {
            at += 1;
            continue;
        }
        at += 2 + usize::from(u16::from_be_bytes([high, low]));
        if marker == 0xda {
            scan = Some(at);
            break;
        }
    }
    scan.and_then(|scan| bytes.get(scan..)).is_some_and(|scan| memchr::memmem::rfind(scan, &[0xff, 0xd9]).is_some())
}

/// How many pictures are in the blocks up to the trailer; nothing where one is missing.
fn gif(bytes: &[u8]) -> Option<usize> {
    let colours = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let mut at = 13 + colours(*bytes.get(10)?);
    let mut pictures = 0;
    loop {
        match *bytes.get(at)? {
            b';' => return Some(pictures),
            b'!' => at += 2,
            b',' => {
                at += 11 + colours(*bytes.get(at + 9)?);
                pictures += 1;
            }
            _ => return None,
        }
        // Sub-blocks, each with its length in front, up to an empty one.
        loop {
            let length = usize::from(*bytes.get(at)?);
            at += 1 + length;
            if length == 0 {
                break;
            }
        }
    }
}

/// As long as its head says.
fn webp(bytes: &[u8]) -> bool {
    let length = bytes.get(4..8).and_then(|length| <[u8; 4]>::try_from(length).ok()).map(u32::from_le_bytes);
    length.is_some_and(|length| bytes.len() as u64 >= 8 + u64::from(length))
}
