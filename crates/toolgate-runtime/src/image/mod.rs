//! Images: told by their content, whole, small enough for every provider, or not at all.
//!
//! A history with an image that a provider refuses is refused with every later request, so whatever makes an image passes here:
//! [`Picture::load`] for what a tool reads, [`admitted`] for what anybody else brings.

pub mod source;
mod whole;

use std::{
    fmt,
    io::{self, Cursor, Read},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use image::{
    DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits, codecs::jpeg::JpegEncoder, imageops::FilterType,
};

use whole::is_whole;

/// The largest file that is read as an image; bytes (PenguinHarness's number). Reading stops there.
pub const MOST_BYTES: usize = 5 * 1024 * 1024;

/// Bytes that a provider takes as they are: 5 MB in base64 are the least of their limits.
const MOST_SENT: usize = 3_750_000;

/// Pixels of the longer side that every provider takes in any number of images.
pub const LONGEST_SIDE: u32 = 2000;

/// Pixels of a side that are decoded at most, and memory in bytes for it: a small file may unfold to any size.
const LARGEST_SIDE: u32 = 32_768;
const MOST_MEMORY: u64 = 256 * 1024 * 1024;

/// Quality of a picture that had to be made smaller, out of 100; more shows no difference.
const QUALITY: u8 = 85;

/// The kinds that all providers take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF; of an animation the providers see the first picture.
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

    fn format(self) -> ImageFormat {
        match self {
            Self::Png => ImageFormat::Png,
            Self::Jpeg => ImageFormat::Jpeg,
            Self::Gif => ImageFormat::Gif,
            Self::Webp => ImageFormat::WebP,
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
    let text = bytes.trim_ascii_start();
    let is_svg =
        text.starts_with(b"<svg") || (text.starts_with(b"<?xml") && memchr::memmem::find(text, b"<svg").is_some());
    Err(if is_svg { "SVG" } else { "no known image" })
}

/// An image that every provider takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// What it is.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its size in pixels.
    pub size: (u32, u32),
    /// Its size before it was made smaller.
    pub was: Option<(u32, u32)>,
}

/// Why something is no image for a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Nothing.
    #[error("The file is empty (0 bytes).")]
    Empty,
    /// More than is read.
    #[error("Image too large: {} exceeds the 5.0 MB limit.", Bytes(*.0))]
    TooLarge(u64),
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
            return Err(ImageError::TooLarge(length));
        }
        let mut bytes = Vec::new();
        let read = source.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error: io::Error| ImageError::Unreadable(crate::files::reason(&error)))?;
        Self::of(bytes, longest_side)
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
            return Err(ImageError::TooLarge(bytes.len() as u64));
        }
        let kind = sniff(&bytes).map_err(ImageError::Kind)?;
        let damaged = |why: String| ImageError::Damaged { kind: kind.mime(), why };
        if !is_whole(kind, &bytes) {
            return Err(damaged("it ends before its end".into()));
        }
        let decoded = decoded(kind, &bytes).map_err(|error| damaged(error.to_string()))?;
        let size = (decoded.width(), decoded.height());
        if size.0.max(size.1) <= longest_side && bytes.len() <= MOST_SENT {
            return Ok(Self { kind, bytes, size, was: None });
        }
        let small = decoded.resize(longest_side.min(size.0), longest_side.min(size.1), FilterType::Triangle);
        let (kind, bytes) = encoded(&small).map_err(|error| damaged(error.to_string()))?;
        Ok(Self { kind, bytes, size: (small.width(), small.height()), was: Some(size) })
    }

    /// As messages carry it.
    pub fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.kind.mime(), BASE64_STANDARD.encode(&self.bytes))
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
        Ok(())
    }
}

/// An image that somebody brings as a data URL, as it may enter a history.
///
/// # Errors
/// Why it may not, for the model to read.
pub fn admitted(url: &str) -> Result<String, String> {
    let encoded = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")).map(|(_, data)| data);
    let Some(encoded) = encoded else { return Err("it is no base64 data URL".into()) };
    if encoded.len() / 4 * 3 > MOST_BYTES {
        return Err(ImageError::TooLarge(encoded.len() as u64 / 4 * 3).to_string());
    }
    let bytes = BASE64_STANDARD.decode(encoded.trim()).map_err(|error| format!("its base64 is broken: {error}"))?;
    // What is whole and small by its head and its end needs no second decoding: most images were decoded where they were read.
    if let Ok(kind) = sniff(&bytes)
        && url.starts_with(&format!("data:{};", kind.mime()))
        && is_whole(kind, &bytes)
        && bytes.len() <= MOST_SENT
        && let Ok((width, height)) = ImageReader::with_format(Cursor::new(&bytes), kind.format()).into_dimensions()
        && width.max(height) <= LONGEST_SIDE
    {
        return Ok(url.to_owned());
    }
    Picture::of(bytes, LONGEST_SIDE).map(|picture| picture.data_url()).map_err(|error| error.to_string())
}

fn decoded(kind: Kind, bytes: &[u8]) -> image::ImageResult<DynamicImage> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), kind.format());
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(LARGEST_SIDE), Some(LARGEST_SIDE));
    limits.max_alloc = Some(MOST_MEMORY);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let turned = decoder.orientation()?;
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(turned);
    Ok(image)
}

/// A smaller picture's bytes: with its transparency where it has one.
fn encoded(image: &DynamicImage) -> image::ImageResult<(Kind, Vec<u8>)> {
    let mut bytes = Vec::new();
    if image.color().has_alpha() {
        image.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png)?;
        if bytes.len() <= MOST_SENT {
            return Ok((Kind::Png, bytes));
        }
        bytes.clear();
    }
    image.to_rgb8().write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, QUALITY))?;
    Ok((Kind::Jpeg, bytes))
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
mod tests {
    use super::*;

    fn drawn(kind: Kind, width: u32, height: u32) -> Vec<u8> {
        let image = DynamicImage::ImageRgb8(image::RgbImage::from_fn(width, height, |x, y| {
            image::Rgb([(x / 16) as u8, (y / 16) as u8, (x % 7) as u8])
        }));
        let mut bytes = Vec::new();
        image.write_to(&mut Cursor::new(&mut bytes), kind.format()).unwrap();
        bytes
    }

    #[test]
    fn whole_images_pass_as_they_are_and_cut_ones_do_not() {
        for kind in [Kind::Png, Kind::Jpeg, Kind::Gif, Kind::Webp] {
            let bytes = drawn(kind, 40, 30);
            let picture = Picture::of(bytes.clone(), LONGEST_SIDE).unwrap();
            assert_eq!((picture.kind, picture.size, &picture.bytes), (kind, (40, 30), &bytes));
            assert!(picture.data_url().starts_with(&format!("data:{};base64,", kind.mime())));
            assert_eq!(admitted(&picture.data_url()), Ok(picture.data_url()));
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
    fn what_is_no_image_for_a_model_is_named() {
        for (bytes, part) in [
            (&b""[..], "empty"),
            (b"BM\x3a\0\0\0", "\"BMP\""),
            (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "\"HEIC\""),
            (b"\0\0\0\x1cftypavif", "\"AVIF\""),
            (b"II*\0", "\"TIFF\""),
            (b"\0\0\x01\0\x01\0", "\"ICO\""),
            (b"<?xml version=\"1.0\"?><svg/>", "\"SVG\""),
            (b"{\"success\":true,\"data\":\"iVBOR\"}", "\"no known image\""),
        ] {
            let error = Picture::of(bytes.to_vec(), LONGEST_SIDE).unwrap_err().to_string();
            assert!(error.contains(part), "{bytes:?}: {error}");
        }
        let large = [b"\x89PNG\r\n\x1a\n", &[0; 6_000_000][..]].concat();
        let error = Picture::load(&mut Cursor::new(&large), Some(large.len() as u64), LONGEST_SIDE).unwrap_err();
        assert_eq!(error.to_string(), "Image too large: 6.0 MB exceeds the 5.0 MB limit.");
        assert!(
            Picture::load(&mut Cursor::new(&large), None, LONGEST_SIDE).is_err(),
            "also when nobody says how large it is"
        );
        for url in
            ["http://x/a.png", "data:image/png,abc", "data:image/png;base64,%%%", "data:image/png;base64,aGVsbG8="]
        {
            assert!(admitted(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_bomb_is_not_unfolded() {
        // A head that claims a hundred thousand pixels a side.
        let mut png = drawn(Kind::Png, 8, 8);
        png[16..24].copy_from_slice(&[0, 1, 0x86, 0xa0, 0, 1, 0x86, 0xa0]);
        assert!(matches!(Picture::of(png, LONGEST_SIDE), Err(ImageError::Damaged { .. })));
        let mut gif = drawn(Kind::Gif, 8, 8);
        gif[6..10].copy_from_slice(&[0xff; 4]);
        let made = Picture::of(gif, LONGEST_SIDE);
        assert!(made.is_err() || made.is_ok_and(|picture| picture.size.0 <= LONGEST_SIDE));
    }

    #[test]
    fn what_is_too_large_for_a_provider_is_made_smaller() {
        let picture = Picture::of(drawn(Kind::Png, 3000, 1500), LONGEST_SIDE).unwrap();
        assert_eq!((picture.size, picture.was), ((2000, 1000), Some((3000, 1500))));
        assert!(picture.to_string().contains("2000x1000 (made smaller from 3000x1500; multiply coordinates by 1.50)"));
        assert!(Picture::of(picture.bytes, LONGEST_SIDE).unwrap().was.is_none());
        assert_eq!(Picture::of(drawn(Kind::Jpeg, 100, 50), 20).unwrap().size, (20, 10));
    }
}
