//! Pictures: real files of every form, what is no picture, what is cut short, and what would unfold to more than there is memory for.

use std::{
    io::{self, Cursor, Read},
    path::PathBuf,
};

use image::{DynamicImage, ImageFormat, RgbImage, codecs::jpeg::JpegEncoder};
use toolgate_runtime::image::{ImageError, LONGEST_SIDE, MOST_BYTES, Picture, fits};

fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/images").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files that are pictures, and what is said of each.
const PICTURES: &[(&str, &str)] = &[
    ("progressive.jpg", "image/jpeg, 555 B, 24x16"),
    ("cmyk.jpg", "image/jpeg, 430 B, 24x16"),
    ("grey.jpg", "image/jpeg, 355 B, 24x16"),
    ("grey.png", "image/png, 115 B, 24x16"),
    ("grey_alpha.png", "image/png, 123 B, 24x16"),
    ("grey16.png", "image/png, 81 B, 24x16"),
    ("palette.png", "image/png, 1.0 kB, 24x16"),
    ("one_bit.png", "image/png, 132 B, 24x16"),
    ("moving.png", "image/png, 223 B, 24x16"),
    ("still.gif", "image/gif, 73 B, 24x16"),
    ("lossy.webp", "image/webp, 100 B, 24x16"),
    ("lossless.webp", "image/webp, 52 B, 24x16"),
];

fn picture(bytes: Vec<u8>) -> Result<Picture, ImageError> {
    Picture::of(bytes, LONGEST_SIDE)
}

fn pixels(picture: &Picture) -> RgbImage {
    image::load_from_memory(picture.bytes()).unwrap().to_rgb8()
}

#[test]
fn every_form_of_the_kinds_passes_as_it_is() {
    for (name, said) in PICTURES {
        let seen = picture(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((seen.to_string().as_str(), seen.bytes()), (*said, file(name).as_slice()), "{name}");
        let url = seen.data_url();
        let (mime, data) = url.strip_prefix("data:").unwrap().split_once(";base64,").unwrap();
        assert!(fits(mime, data) && !fits("image/bmp", data) && !fits(mime, &data[4..]), "{name}");
    }
}

#[test]
fn of_an_animation_the_first_picture_is_taken() {
    for name in ["moving.gif", "moving.webp"] {
        let seen = picture(file(name)).unwrap();
        let said = seen.to_string();
        assert!(said.starts_with("image/") && said.ends_with(", 24x16 (the first picture of an animation)"), "{said}");
        let [red, _, blue] = pixels(&seen).get_pixel(5, 5).0;
        assert!(red > 250 && blue < 5, "{name}: the first is red, the second blue");
        assert!(!picture(seen.bytes().to_vec()).unwrap().to_string().contains("animation"), "{name} stands still now");
    }
}

#[test]
fn a_picture_that_ends_anywhere_before_its_end_is_none() {
    let moving = ["moving.gif", "moving.webp"].into_iter();
    for name in PICTURES.iter().map(|(name, _)| *name).chain(moving) {
        let whole = file(name);
        for cut in 0..whole.len() {
            let seen = picture(whole[..cut].to_vec());
            assert!(seen.is_err(), "{name} cut to {cut} of {} bytes: {}", whole.len(), seen.unwrap());
        }
    }
}

#[test]
fn whatever_is_changed_in_a_picture_it_is_one_that_can_be_sent_or_none() {
    let moving = ["moving.gif", "moving.webp"].into_iter();
    let (mut passed, mut refused) = (0, 0);
    for name in PICTURES.iter().map(|(name, _)| *name).chain(moving) {
        let whole = file(name);
        for (at, change) in (0..whole.len()).flat_map(|at| [0x01, 0x80, 0xff].map(|change| (at, change))) {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            match picture(bytes) {
                Ok(seen) => {
                    let again = picture(seen.bytes().to_vec());
                    assert!(
                        again.is_ok_and(|again| again.size() == seen.size()),
                        "{name} at {at} by {change:#x}: {seen}"
                    );
                    assert!(seen.size().0.max(seen.size().1) <= LONGEST_SIDE, "{name} at {at} by {change:#x}: {seen}");
                    passed += 1;
                }
                Err(error) => {
                    assert!(!error.to_string().contains("broke down"), "{name} at {at} by {change:#x}: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(passed > 100 && refused > 1000, "{passed} passed, {refused} did not");
}

#[test]
fn what_else_there_is_is_named() {
    let heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic";
    for (what, bytes, kind) in [
        ("other.bmp", file("other.bmp"), "BMP"),
        ("other.tiff", file("other.tiff"), "TIFF"),
        ("other.ico", file("other.ico"), "ICO"),
        ("other.avif", file("other.avif"), "AVIF"),
        ("heic", heic.to_vec(), "HEIC"),
        ("svg", b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>".to_vec(), "SVG"),
        ("svg behind its head", b"\xef\xbb\xbf<?xml version=\"1.0\"?>\n<!-- a --><svg/>".to_vec(), "SVG"),
        ("a page", b"\n<!doctype html><html></html>".to_vec(), "HTML"),
        ("words", b"{\"success\":true,\"data\":\"iVBOR\"}".to_vec(), "no known image"),
        ("zeros", vec![0; 100], "no known image"),
        ("half a head", b"\x89PNG\r\n".to_vec(), "no known image"),
    ] {
        let error = picture(bytes).unwrap_err();
        assert_eq!(error, ImageError::Kind(kind), "{what}");
        let said = format!("Unsupported image type \"{kind}\": only png, jpeg, gif and webp are supported.");
        assert_eq!(error.to_string(), said, "{what}");
    }
    assert_eq!(picture(Vec::new()).unwrap_err(), ImageError::Empty);
}

/// Where a pixel of a stored picture is to be seen, as the EXIF standard has it; stored `width` by `height`.
fn seen_at(orientation: u8, (x, y): (u32, u32), (width, height): (u32, u32)) -> (u32, u32) {
    let (right, bottom) = (width - 1 - x, height - 1 - y);
    match orientation {
        1 => (x, y),
        2 => (right, y),
        3 => (right, bottom),
        4 => (x, bottom),
        5 => (y, x),
        6 => (bottom, x),
        7 => (bottom, right),
        _ => (y, right),
    }
}

#[test]
fn a_picture_stands_upright_however_the_camera_was_held() {
    // Four quarters, each of a colour of its own.
    let upright = |x: u32, y: u32| match (x < 16, y < 8) {
        (true, true) => [255, 0, 0],
        (false, true) => [0, 255, 0],
        (true, false) => [0, 0, 255],
        (false, false) => [255, 255, 255],
    };
    for orientation in 1..=8 {
        let stored = if orientation < 5 { (32, 16) } else { (16, 32) };
        let image = RgbImage::from_fn(stored.0, stored.1, |x, y| {
            let (x, y) = seen_at(orientation, (x, y), stored);
            image::Rgb(upright(x, y))
        });
        let mut plain = Vec::new();
        image.write_with_encoder(JpegEncoder::new_with_quality(&mut plain, 95)).unwrap();
        let note = [
            &b"\xff\xe1\0\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0"[..],
            &[orientation, 0, 0, 0, 0, 0, 0],
        ];
        let noted = [&plain[..2], &note.concat(), &plain[2..]].concat();
        let seen = picture(noted.clone()).unwrap();
        assert_eq!(seen.size(), (32, 16), "orientation {orientation}");
        assert_eq!(seen.bytes() == noted, orientation == 1, "only what lies otherwise is written anew");
        let pixels = pixels(&seen);
        for at in [(3, 3), (28, 3), (3, 12), (28, 12)] {
            let (got, want) = (pixels.get_pixel(at.0, at.1).0, upright(at.0, at.1));
            let near = got.iter().zip(want).all(|(got, want)| got.abs_diff(want) < 40);
            assert!(near, "orientation {orientation} at {at:?}: {got:?}, not {want:?}");
        }
    }
}

/// A PNG that says it is so large, of one grey byte a pixel, with hardly anything in it.
fn claims(width: u32, height: u32) -> Vec<u8> {
    let chunk = |kind: &[u8; 4], data: &[u8]| {
        let mut sum = u32::MAX;
        for byte in kind.iter().chain(data) {
            sum ^= u32::from(*byte);
            (0..8).for_each(|_| sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 });
        }
        [&(data.len() as u32).to_be_bytes(), &kind[..], data, &(!sum).to_be_bytes()].concat()
    };
    let head = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 0, 0, 0, 0]].concat();
    // An empty stream of zlib.
    let data = b"\x78\x9c\x03\0\0\0\0\x01";
    [&b"\x89PNG\r\n\x1a\n"[..], &chunk(b"IHDR", &head), &chunk(b"IDAT", data), &chunk(b"IEND", b"")].concat()
}

#[test]
fn what_would_unfold_without_measure_is_not_unfolded() {
    let mut gif = file("still.gif");
    gif[6..10].copy_from_slice(&[0xff; 4]);
    // 16,000 pixels a side, three bytes each.
    let webp = b"RIFF\x12\0\0\0WEBPVP8L\x05\0\0\0\x2f\x7f\xfe\x9f\x0f\0".to_vec();
    for (what, bytes, why) in [
        ("a hundred thousand a side", claims(100_000, 100_000), "limit"),
        ("thirty thousand a side: 900 MB", claims(30_000, 30_000), "limit"),
        ("2³² pixels of a GIF", gif, "limit"),
        ("768 MB of a WebP", webp, "limit"),
        ("nothing behind a modest head", claims(100, 100), ""),
        ("no pixel at all", claims(0, 10), ""),
    ] {
        let error = picture(bytes).unwrap_err().to_string();
        assert!(error.contains("is damaged") && error.contains(why), "{what}: {error}");
    }
}

/// Counts what is taken from it, and has no end.
struct Endless(usize);

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        into.fill(0);
        self.0 += into.len();
        Ok(into.len())
    }
}

#[test]
fn a_large_file_is_not_read_whole() {
    let mut known = Endless(0);
    let error = Picture::load(&mut known, Some(6_000_000), LONGEST_SIDE).unwrap_err();
    assert_eq!(error.to_string(), "Image too large: 6.0 MB exceeds the 5.0 MB limit.");
    assert_eq!(known.0, 0, "its length says all");
    let mut unknown = Endless(0);
    let error = Picture::load(&mut unknown, None, LONGEST_SIDE).unwrap_err();
    assert_eq!(error.to_string(), "Image too large: more than the 5.0 MB limit.");
    assert!(unknown.0 <= MOST_BYTES + 1, "{} bytes were read", unknown.0);
}

#[test]
fn no_picture_is_larger_than_every_provider_takes() {
    // Noise does not pack: few pixels, and more bytes than may be sent.
    let mut seed = 1_u32;
    let noise = RgbImage::from_fn(1250, 1050, |_, _| {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        image::Rgb([seed as u8, (seed >> 8) as u8, (seed >> 16) as u8])
    });
    let mut large = Vec::new();
    DynamicImage::ImageRgb8(noise).write_to(&mut Cursor::new(&mut large), ImageFormat::Png).unwrap();
    assert!(large.len() > 3_750_000 && large.len() < MOST_BYTES, "{}", large.len());
    let seen = picture(large).unwrap();
    assert!(seen.bytes().len() <= 3_750_000 && seen.size() == (1250, 1050), "{seen}");
    let clear = DynamicImage::new_rgba8(2400, 20);
    let mut bytes = Vec::new();
    clear.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).unwrap();
    let seen = picture(bytes).unwrap();
    assert!(seen.to_string().contains("2000x17 (made smaller from 2400x20"), "{seen}");
    assert_eq!(image::load_from_memory(seen.bytes()).unwrap().color().channel_count(), 4, "it is still transparent");
}
