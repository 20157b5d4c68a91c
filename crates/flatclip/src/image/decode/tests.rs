//! Kinds of files, limits, damage.

use super::*;
use ::image::{ExtendedColorType, ImageEncoder as _};

fn png(samples: &[u8], width: u32, height: u32, colour: ExtendedColorType) -> Vec<u8> {
    let mut bytes = Vec::new();
    ::image::codecs::png::PngEncoder::new(&mut bytes).write_image(samples, width, height, colour).unwrap();
    bytes
}

fn rgb(bytes: &[u8]) -> Vec<u8> {
    decode(bytes, &DecodeOptions::pillow()).unwrap().rgb
}

#[test]
fn alpha_is_dropped_and_grey_is_repeated() {
    assert_eq!(rgb(&png(&[9, 8, 7, 0], 1, 1, ExtendedColorType::Rgba8)), [9, 8, 7]);
    assert_eq!(rgb(&png(&[5, 0], 1, 1, ExtendedColorType::La8)), [5, 5, 5]);
    assert_eq!(rgb(&png(&[5], 1, 1, ExtendedColorType::L8)), [5, 5, 5]);
}

#[test]
fn sixteen_bit_colour_keeps_the_high_byte_and_grey_is_scaled_or_cut_off_by_the_rule() {
    let words = |v: &[u16]| v.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
    assert_eq!(rgb(&png(&words(&[0x12ff, 0x3400, 0xff80]), 1, 1, ExtendedColorType::Rgb16)), [0x12, 0x34, 0xff]);
    let grey = png(&words(&[200, 256, 0x8012]), 3, 1, ExtendedColorType::L16);
    assert_eq!(decode(&grey, &DecodeOptions::default()).unwrap().rgb, [0, 0, 0, 1, 1, 1, 0x80, 0x80, 0x80]);
    assert_eq!(rgb(&grey), [200, 200, 200, 255, 255, 255, 255, 255, 255]);
}

#[test]
fn ink_becomes_light() {
    let source = Source::new(2, 1, Mode::Cmyk, vec![0, 128, 255, 0, 10, 20, 30, 255]);
    assert_eq!(source.to_image().rgb, [255, 127, 0, 0, 0, 0]);
}

#[test]
fn a_huge_image_is_refused_by_its_header() {
    let mut bytes = png(&[0; 3], 1, 1, ExtendedColorType::Rgb8);
    // A new size with a right checksum: only the limit can refuse it.
    bytes[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let sum = crc32fast::hash(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    let error = decode_from(Path::new("huge.png"), &bytes, &DecodeOptions::default()).unwrap_err();
    assert_eq!(error.code(), "limit.exceeded");
    assert!(error.to_string().contains("huge.png") && error.to_string().contains("4294967296"), "{error}");
    let small = DecodeOptions { max_bytes: 10, ..Default::default() };
    assert_eq!(decode(&bytes, &small).unwrap_err().code(), "limit.exceeded");
}

#[test]
fn a_file_is_measured_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.jpg");
    std::fs::File::create(&path).unwrap().set_len(3 << 30).unwrap();
    assert_eq!(Image::open(&path).unwrap_err().code(), "limit.exceeded");
    std::fs::write(&path, png(&[1, 2, 3], 1, 1, ExtendedColorType::Rgb8)).unwrap();
    assert_eq!(Image::open(&path).unwrap().rgb, [1, 2, 3]);
}

#[test]
fn foreign_and_damaged_files_are_named() {
    let image = png(&[7; 300], 10, 10, ExtendedColorType::Rgb8);
    let cut = &image[..image.len() / 2];
    for bytes in [b"" as &[u8], b"hello, world", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"BM", cut] {
        let error = decode_from(Path::new("x/y.jpg"), bytes, &DecodeOptions::default()).unwrap_err();
        assert!(error.code() == "image.unreadable" && error.to_string().contains("x/y.jpg"), "{error}");
    }
}

#[test]
fn a_bmp_with_a_grey_ramp_is_grey_and_with_another_palette_is_not() {
    let mut bytes = Vec::new();
    let samples = [10, 200, 30, 40];
    ::image::codecs::bmp::BmpEncoder::new(&mut bytes).encode(&samples, 2, 2, ExtendedColorType::L8).unwrap();
    let decode = |bytes: &[u8]| Source::decode(Path::new("x.bmp"), bytes, &DecodeOptions::default()).unwrap();
    let grey = decode(&bytes);
    assert_eq!((grey.mode, grey.samples.as_slice()), (Mode::Luma, samples.as_slice()));
    let header = bytes[14] as usize;
    bytes[14 + header + 4 * 10] = 99;
    assert_eq!(decode(&bytes).mode, Mode::Palette);
    assert_eq!(decode(&bytes).to_image().rgb[..3], [10, 10, 99]);
}

/// A JPEG file with an EXIF entry after its first marker.
fn with_exif(entry: &[u8]) -> Vec<u8> {
    let plain = include_bytes!("../jpeg/testdata/narrow.jpg");
    let length = u16::try_from(entry.len() + 8).unwrap().to_be_bytes();
    [&plain[..2], &[0xff, 0xe1], &length, b"Exif\0\0", entry, &plain[2..]].concat()
}

#[test]
fn exif_rotates_by_the_rule_and_a_broken_entry_never_does() {
    let entry =
        |turn: u8| [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0" as &[u8], &[turn, 0, 0, 0, 0, 0, 0, 0]].concat();
    let size = |bytes: &[u8], exif: bool| {
        let image = decode(bytes, &DecodeOptions { exif, ..Default::default() }).unwrap();
        (image.width, image.height)
    };
    assert_eq!((size(&with_exif(&entry(6)), false), size(&with_exif(&entry(6)), true)), ((3, 20), (20, 3)));
    for broken in [&entry(77)[..], b"II*\0\xff\xff\xff\xff", b"", b"nonsense"] {
        assert_eq!(size(&with_exif(broken), true), (3, 20));
    }
}

#[test]
fn a_panic_of_a_decoder_is_an_error_with_the_files_name() {
    let error = guarded(Path::new("x/odd.gif"), || panic!("index {} out of range", 7)).unwrap_err();
    assert_eq!(error.code(), "image.unreadable");
    let text = error.to_string();
    assert!(text.contains("x/odd.gif") && text.contains("failed unexpectedly (index 7"), "{text}");
}

#[test]
fn the_memory_of_decoding_is_known_from_the_header() {
    let image = Image { width: 300, height: 200, rgb: vec![7; 300 * 200 * 3] };
    let png = crate::image::sheet::encode_png(&image).unwrap();
    assert_eq!(decoding_bytes(&png), Some(300 * 200 * 3 + ROWS));
    // The header is enough, whatever follows it.
    assert_eq!(decoding_bytes(&png[..60]), decoding_bytes(&png));
    assert_eq!(decoding_bytes(b"no image"), None);
}
