//! Images: told by their content, whole, small enough for every provider, or not at all.
//!
//! A history with an image that a provider refuses is refused with every later request. So what a tool gives back is a [`Picture`],
//! and there is one way to make one: to decode it. Where the decoders are not built in (the feature `images`), there is none.

#[cfg(feature = "images")]
mod decode;
pub mod source;
mod whole;

use std::{
    fmt,
    io::{self, Read},
};

use base64::{Engine, prelude::BASE64_STANDARD};

use whole::is_whole;

/// The largest file that is read as an image; bytes (PenguinHarness's number). Reading stops there.
pub const MOST_BYTES: usize = 5 * 1024 * 1024;

/// Bytes that a provider takes as they are: 5 MB in base64 are the least of their limits.
const MOST_SENT: usize = 3_750_000;

/// Pixels of the longer side that every provider takes in any number of images.
pub const LONGEST_SIDE: u32 = 2000;

/// The kinds that providers take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
}

impl Kind {
    /// Its media type.
    pub fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }
}

/// What the first bytes of a file say that it is; never its name.
///
/// # Errors
/// What else it is.
pub fn sniff(bytes: &[u8]) -> Result<Kind, &'static str> {
    const OTHERS: &[(&[u8], &str)] = &[
        (b"BM", "BMP"),
        (b"II*\0", "TIFF"),
        (b"MM\0*", "TIFF"),
        (b"\0\0\x01\0", "ICO"),
        (b"8BPS", "PSD"),
        (b"\xff\x0a", "JPEG XL"),
        (b"\0\0\0\x0cJXL ", "JPEG XL"),
        (b"\0\0\0\x0cjP", "JPEG 2000"),
        (b"%PDF", "PDF"),
        (b"\x1f\x8b", "gzip"),
    ];
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => return Ok(Kind::Png),
        [0xff, 0xd8, 0xff, 0xf7, ..] => return Err("JPEG-LS"),
        [0xff, 0xd8, 0xff, ..] => return Ok(Kind::Jpeg),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => return Ok(Kind::Gif),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => return Ok(Kind::Webp),
        [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => {
            return Err(match brand.get(..4) {
                Some(b"avif" | b"avis") => "AVIF",
                Some(b"heic" | b"heix" | b"hevc" | b"mif1" | b"msf1" | b"heim" | b"heis") => "HEIC",
                _ => "ISO media",
            });
        }
        _ => {}
    }
    if let Some((_, name)) = OTHERS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(name);
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let begins = |word: &[u8]| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let is_svg = begins(b"<svg") || (begins(b"<?xml") && memchr::memmem::find(text, b"<svg").is_some());
    Err(match is_svg {
        true => "SVG",
        // What a server says instead of the image that was asked for.
        false if begins(b"<!doctype html") || begins(b"<html") => "HTML",
        false => "no known image",
    })
}

/// An image that every provider takes. Whoever has one has decoded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    kind: Kind,
    bytes: Vec<u8>,
    /// In pixels.
    size: (u32, u32),
    /// Before it was made smaller.
    was: Option<(u32, u32)>,
    /// It is the first picture of an animation.
    moved: bool,
}

/// Why something is no image for a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Nothing.
    #[error("The file is empty (0 bytes).")]
    Empty,
    /// More than is read; its size, where it is known.
    #[error("Image too large: {} the 5.0 MB limit.", .0.map_or("more than".into(), |bytes| format!("{} exceeds", Bytes(bytes))))]
    TooLarge(Option<u64>),
    /// Something else.
    #[error("Unsupported image type \"{0}\": only png, jpeg, gif and webp are supported.")]
    Kind(&'static str),
    /// Cut short, or spoilt.
    #[error("The {kind} image is damaged: {why}.")]
    Damaged {
        /// What it claims to be.
        kind: &'static str,
        /// What is wrong.
        why: String,
    },
    /// It cannot be read at all.
    #[error("{0}")]
    Unreadable(String),
}

impl Picture {
    /// Reads an image, up to the limit, and makes sure that it is whole. Larger sides than this are made smaller.
    ///
    /// # Errors
    /// Why it is none that a model can be shown.
    pub fn load(source: &mut dyn Read, length: Option<u64>, longest_side: u32) -> Result<Self, ImageError> {
        if let Some(length) = length.filter(|length| *length > MOST_BYTES as u64) {
            return Err(ImageError::TooLarge(Some(length)));
        }
        let mut bytes = Vec::new();
        let read = source.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error: io::Error| ImageError::Unreadable(crate::files::reason(&error)))?;
        if bytes.len() > MOST_BYTES {
            return Err(ImageError::TooLarge(None));
        }
        Self::of(bytes, longest_side)
    }

    /// The same of bytes that somebody brings in base64.
    ///
    /// # Errors
    /// As [`Picture::load`].
    pub fn of_base64(encoded: &str) -> Result<Self, ImageError> {
        if encoded.len() / 4 * 3 > MOST_BYTES + 3 {
            return Err(ImageError::TooLarge(Some(encoded.len() as u64 / 4 * 3)));
        }
        let bytes = BASE64_STANDARD.decode(encoded.trim());
        Self::of(bytes.map_err(|error| ImageError::Unreadable(format!("its base64 is broken: {error}")))?, LONGEST_SIDE)
    }

    /// The same of bytes that are there.
    ///
    /// # Errors
    /// As [`Picture::load`].
    pub fn of(bytes: Vec<u8>, longest_side: u32) -> Result<Self, ImageError> {
        if bytes.is_empty() {
            return Err(ImageError::Empty);
        }
        if bytes.len() > MOST_BYTES {
            return Err(ImageError::TooLarge(Some(bytes.len() as u64)));
        }
        let kind = sniff(&bytes).map_err(ImageError::Kind)?;
        let damaged = |why: String| ImageError::Damaged { kind: kind.mime(), why };
        if !is_whole(kind, &bytes) {
            return Err(damaged("it ends before its end".into()));
        }
        decode::checked(kind, bytes, longest_side).map_err(damaged)
    }

    /// The same as a PNG.
    ///
    /// # Errors
    /// When it cannot be written so.
    pub fn into_png(self) -> Result<Self, ImageError> {
        let kind = self.kind;
        if kind == Kind::Png {
            return Ok(self);
        }
        decode::as_png(self).map_err(|why| ImageError::Damaged { kind: kind.mime(), why })
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its size in pixels.
    pub fn size(&self) -> (u32, u32) {
        self.size
    }

    /// As messages carry it.
    pub fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.kind.mime(), self.base64())
    }

    /// Its bytes in base64.
    pub fn base64(&self) -> String {
        BASE64_STANDARD.encode(&self.bytes)
    }
}

impl fmt::Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height) = self.size;
        write!(f, "{}, {}, {width}x{height}", self.kind.mime(), Bytes(self.bytes.len() as u64))?;
        if let Some((was, high)) = self.was {
            let factor = f64::from(was) / f64::from(width);
            write!(f, " (made smaller from {was}x{high}; multiply coordinates by {factor:.2})")?;
        }
        if self.moved {
            f.write_str(" (the first picture of an animation)")?;
        }
        Ok(())
    }
}

/// Whether an image that somebody brings in base64 can go to every provider as it stands: it is what it is said to be, whole and small
/// enough. Only its head is read, so that a whole history can be looked at; what else may be wrong with it, decoding would tell.
pub fn fits(mime: &str, encoded: &str) -> bool {
    let Ok(bytes) = BASE64_STANDARD.decode(encoded) else { return false };
    let Ok(kind) = sniff(&bytes) else { return false };
    kind.mime() == mime
        && bytes.len() <= MOST_SENT
        && is_whole(kind, &bytes)
        && !whole::is_animated(kind, &bytes)
        && decode::size(kind, &bytes).is_some_and(|(width, height)| width.max(height) <= LONGEST_SIDE)
}

/// Without decoders no image can be looked at, and none is shown unseen.
#[cfg(not(feature = "images"))]
mod decode {
    use super::{Kind, Picture};

    pub(super) fn checked(_kind: Kind, _bytes: Vec<u8>, _longest_side: u32) -> Result<Picture, String> {
        Err("this build has no decoder to look at it".into())
    }

    pub(super) fn as_png(_picture: Picture) -> Result<Picture, String> {
        Err("this build has no encoder to write it anew".into())
    }

    pub(super) fn size(_kind: Kind, _bytes: &[u8]) -> Option<(u32, u32)> {
        None
    }
}

/// Bytes as people say them.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..1000 => write!(f, "{bytes} B"),
            bytes @ 1000..1_000_000 => write!(f, "{:.1} kB", bytes as f64 / 1e3),
            bytes => write!(f, "{:.1} MB", bytes as f64 / 1e6),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "images")]
mod tests {
    use std::io::Cursor;

    use image::DynamicImage;

    use super::*;

    fn drawn(kind: Kind, width: u32, height: u32) -> Vec<u8> {
        let image = DynamicImage::ImageRgb8(image::RgbImage::from_fn(width, height, |x, y| {
            image::Rgb([(x / 16) as u8, (y / 16) as u8, (x % 7) as u8])
        }));
        let mut bytes = Vec::new();
        image.write_to(&mut Cursor::new(&mut bytes), decode::format(kind)).expect("an image that can be written");
        bytes
    }

    #[test]
    fn whole_images_pass_as_they_are_and_cut_ones_do_not() {
        for kind in [Kind::Png, Kind::Jpeg, Kind::Gif, Kind::Webp] {
            let bytes = drawn(kind, 40, 30);
            let picture = Picture::of(bytes.clone(), LONGEST_SIDE).unwrap();
            assert_eq!((picture.kind, picture.size, &picture.bytes), (kind, (40, 30), &bytes));
            assert!(picture.data_url().starts_with(&format!("data:{};base64,", kind.mime())));
            assert_eq!(Picture::of_base64(&BASE64_STANDARD.encode(&bytes)), Ok(picture));
            for cut in [1, 10, bytes.len() / 2, bytes.len() - 12] {
                let error = Picture::of(bytes[..bytes.len() - cut].to_vec(), LONGEST_SIDE).unwrap_err();
                assert!(
                    matches!(error, ImageError::Damaged { .. } | ImageError::Kind(_)),
                    "{kind:?} less {cut}: {error}"
                );
            }
        }
    }

    #[test]
    fn base64_that_is_no_image_is_none() {
        for data in ["%%%", "aGVsbG8=", ""] {
            assert!(Picture::of_base64(data).is_err() && !fits("image/png", data), "{data}");
        }
    }

    #[test]
    fn what_is_too_large_for_a_provider_is_made_smaller() {
        let picture = Picture::of(drawn(Kind::Png, 3000, 30), LONGEST_SIDE).unwrap();
        assert_eq!((picture.size, picture.was), ((2000, 20), Some((3000, 30))));
        assert!(picture.to_string().contains("2000x20 (made smaller from 3000x30; multiply coordinates by 1.50)"));
        assert!(Picture::of(picture.bytes, LONGEST_SIDE).unwrap().was.is_none());
        assert_eq!(Picture::of(drawn(Kind::Jpeg, 100, 50), 20).unwrap().size, (20, 10));
    }
}
