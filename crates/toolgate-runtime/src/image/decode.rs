//! The decoders: whether an image really is one, and a smaller one where it is too large.

use std::{
    io::Cursor,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};

use image::{
    DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits, codecs::jpeg::JpegEncoder, imageops::FilterType,
    metadata::Orientation,
};

use super::{Kind, MOST_SENT, Picture, whole::is_animated};

/// Pixels of a side that are decoded at most, and memory in bytes for it: a small file may unfold to any size.
const LARGEST_SIDE: u32 = 32_768;
const MOST_MEMORY: u64 = 256 * 1024 * 1024;

/// Quality of a picture that had to be made smaller, out of 100; more shows no difference.
const QUALITY: u8 = 85;

/// Decodes an image once. It stays as it is where every provider takes it so; else it is written anew: smaller, upright, standing still.
pub(super) fn checked(kind: Kind, bytes: Vec<u8>, longest_side: u32) -> Result<Picture, String> {
    guarded(|| looked_at(kind, bytes, longest_side)).unwrap_or_else(|| Err("the decoder broke down over it".into()))
}

/// What a decoder makes of bytes of others; nothing where it panics, for a history is read where nothing may be thrown.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

fn looked_at(kind: Kind, bytes: Vec<u8>, longest_side: u32) -> Result<Picture, String> {
    let moves = is_animated(kind, &bytes);
    let (decoded, turned) = decoded(kind, &bytes).map_err(|error| error.to_string())?;
    let size = (decoded.width(), decoded.height());
    let fits = size.0.max(size.1) <= longest_side && bytes.len() <= MOST_SENT;
    if fits && !turned && !moves {
        return Ok(Picture { kind, bytes, size, was: None, moved: false });
    }
    let mut small = if fits { decoded } else { within(decoded, longest_side) };
    loop {
        let (kind, bytes) = encoded(&small).map_err(|error| error.to_string())?;
        let now = (small.width(), small.height());
        if bytes.len() <= MOST_SENT || now.0.max(now.1) == 1 {
            return Ok(Picture { kind, bytes, size: now, was: (now != size).then_some(size), moved: moves });
        }
        // Noise does not shrink by itself.
        small = within(small, now.0.max(now.1) / 2);
    }
}

/// The picture with no side longer than this. The good filter holds a row of the old width for each row of the new height, at four times
/// the bytes; what is far too large is first made roughly smaller, which takes no memory beside its result.
fn within(mut image: DynamicImage, longest_side: u32) -> DynamicImage {
    let (width, height) = (image.width(), image.height());
    let bounds = |side: u32| (side.min(width), side.min(height));
    let rough = longest_side.saturating_mul(2);
    if width.max(height) > rough {
        image = image.thumbnail(bounds(rough).0, bounds(rough).1);
    }
    image.resize(bounds(longest_side).0, bounds(longest_side).1, FilterType::Triangle)
}

/// The picture written anew as a PNG.
pub(super) fn as_png(picture: Picture) -> Result<Picture, String> {
    let (decoded, _) = decoded(picture.kind, &picture.bytes).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    decoded.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).map_err(|error| error.to_string())?;
    Ok(Picture { kind: Kind::Png, bytes, ..picture })
}

/// The size that an image's head says, in pixels.
pub(super) fn size(kind: Kind, bytes: &[u8]) -> Option<(u32, u32)> {
    guarded(|| ImageReader::with_format(Cursor::new(bytes), format(kind)).into_dimensions().ok())?
}

pub(super) fn format(kind: Kind) -> ImageFormat {
    match kind {
        Kind::Png => ImageFormat::Png,
        Kind::Jpeg => ImageFormat::Jpeg,
        Kind::Gif => ImageFormat::Gif,
        Kind::Webp => ImageFormat::WebP,
    }
}

/// The picture as it is to be seen, and whether that is another way up than its pixels lie.
fn decoded(kind: Kind, bytes: &[u8]) -> image::ImageResult<(DynamicImage, bool)> {
    static ONE: Mutex<()> = Mutex::new(());

    let mut reader = ImageReader::with_format(Cursor::new(bytes), format(kind));
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(LARGEST_SIDE), Some(LARGEST_SIDE));
    limits.max_alloc = Some(MOST_MEMORY);
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder()?;
    // The reader holds back what the decoder takes on its way; the picture itself is ours to count.
    limits.reserve(decoder.total_bytes())?;
    let orientation = decoder.orientation()?;
    // One at a time: calls beside each other must not take the memory of all of them at once.
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok((image, orientation != Orientation::NoTransforms))
}

/// The bytes of a picture that is written anew: with its transparency where it has one.
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
