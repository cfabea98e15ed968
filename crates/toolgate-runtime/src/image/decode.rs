//! The decoders: whether an image really is one, and a smaller one where it is too large.

use std::io::Cursor;

use image::{
    DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits, codecs::jpeg::JpegEncoder, imageops::FilterType,
};

use super::{Kind, MOST_SENT, Picture};

/// Pixels of a side that are decoded at most, and memory in bytes for it: a small file may unfold to any size.
const LARGEST_SIDE: u32 = 32_768;
const MOST_MEMORY: u64 = 256 * 1024 * 1024;

/// Quality of a picture that had to be made smaller, out of 100; more shows no difference.
const QUALITY: u8 = 85;

/// Decodes an image once, and makes it smaller where a side is longer than this or its bytes are more than a provider takes.
pub(super) fn checked(kind: Kind, bytes: Vec<u8>, longest_side: u32) -> Result<Picture, String> {
    let decoded = decoded(kind, &bytes).map_err(|error| error.to_string())?;
    let size = (decoded.width(), decoded.height());
    if size.0.max(size.1) <= longest_side && bytes.len() <= MOST_SENT {
        return Ok(Picture { kind, bytes, size, was: None });
    }
    let small = decoded.resize(longest_side.min(size.0), longest_side.min(size.1), FilterType::Triangle);
    let (kind, bytes) = encoded(&small).map_err(|error| error.to_string())?;
    Ok(Picture { kind, bytes, size: (small.width(), small.height()), was: Some(size) })
}

pub(super) fn format(kind: Kind) -> ImageFormat {
    match kind {
        Kind::Png => ImageFormat::Png,
        Kind::Jpeg => ImageFormat::Jpeg,
        Kind::Gif => ImageFormat::Gif,
        Kind::Webp => ImageFormat::WebP,
    }
}

fn decoded(kind: Kind, bytes: &[u8]) -> image::ImageResult<DynamicImage> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format(kind));
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
