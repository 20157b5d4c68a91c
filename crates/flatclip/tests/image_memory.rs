//! Memory and time of images that are small as files and large as pixels. A process of its own, so that its peak is theirs.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test: a panic is its failure

use flatclip::image::{DecodeOptions, decode};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Instant;

const SIDE: u32 = 5_000;
/// Writing 5 to it sets a process's peak back to what is there now, so that each image has its own.
const PEAK: &str = "/proc/self/clear_refs";

fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let body = [kind, data].concat();
    [&(data.len() as u32).to_be_bytes()[..], &body, &crc32fast::hash(&body).to_be_bytes()].concat()
}

fn deflated_zeros(count: usize) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    for start in (0..count).step_by(zeros.len()) {
        encoder.write_all(&zeros[..zeros.len().min(count - start)]).unwrap();
    }
    encoder.finish().unwrap()
}

fn png(side: u32, depth: u8, colour: u8, interlaced: u8, more: &[u8]) -> Vec<u8> {
    let samples = if colour == 6 { 4 } else { 3 };
    let row = side as usize * samples * usize::from(depth) / 8;
    let header = [&side.to_be_bytes()[..], &side.to_be_bytes(), &[depth, colour, 0, 0, interlaced]].concat();
    // Interlaced rows have a filter byte each, too: some two for each row of the image.
    let data = if side > SIDE { vec![0; 100] } else { deflated_zeros((row + 4) * side as usize) };
    [b"\x89PNG\r\n\x1a\n", &chunk(b"IHDR", &header)[..], more, &chunk(b"IDAT", &data), &chunk(b"IEND", b"")].concat()
}

fn gif(side: u16) -> Vec<u8> {
    let side = side.to_le_bytes();
    [b"GIF89a", &side[..], &side, b"\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0;"].concat()
}

/// Headers of the largest images that the formats can tell, without their pixels.
fn headers() -> [(&'static str, Vec<u8>); 5] {
    let side = 65_500u16.to_be_bytes();
    let frame = [&[0xff, 0xc0, 0, 17, 8], &side[..], &side, &[3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]].concat();
    let scan = [0xff, 0xda, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 63, 0, 0];
    let jpeg = [&[0xff, 0xd8], &frame[..], &scan, &[0; 20], &[0xff, 0xd9]].concat();
    // Lossless, 16 383 x 16 383: 14 bits each, less one.
    let webp = [&[0x2f], &(16_382u32 | (16_382 << 14)).to_le_bytes()[..], &[0; 64]].concat();
    let size = |more: usize| (webp.len() as u32 + more as u32).to_le_bytes();
    let webp = [b"RIFF", &size(12)[..], b"WEBPVP8L", &size(0), &webp].concat();
    let side = i32::MAX.to_le_bytes();
    let bmp = [&40u32.to_le_bytes()[..], &side, &side, &[1, 0, 24, 0], &[0; 24]].concat();
    let bmp = [b"BM", &[0; 8][..], &54u32.to_le_bytes(), &bmp, &[0; 64]].concat();
    [("png", png(30_000, 8, 2, 0, b"")), ("gif", gif(65_535)), ("jpeg", jpeg), ("webp", webp), ("bmp", bmp)]
}

/// Decodes, and measures the bytes that it takes at its peak beside what was there before.
fn taken_by(bytes: &[u8]) -> (bool, u64) {
    let _ = std::fs::write(PEAK, "5");
    let before = flatclip::resident_memory().0;
    let read = decode(bytes, &DecodeOptions::default()).is_ok();
    (read, flatclip::resident_memory().1.saturating_sub(before))
}

fn corpus(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let (bytes, mut unpacked) = (std::fs::read(path).unwrap(), Vec::new());
    if !name.ends_with(".gz") {
        return bytes;
    }
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).unwrap();
    unpacked
}

/// A JPEG with the scans after `first` so many times.
fn repeated_scans(jpeg: &[u8], first: usize, times: usize) -> Vec<u8> {
    let (body, scans) = (&jpeg[..jpeg.len() - 2], &jpeg[first..jpeg.len() - 2]);
    [body, &scans.repeat(times), &[0xff, 0xd9]].concat()
}

/// One test: the peak is that of the process.
#[test]
fn small_files_of_many_pixels_stay_below_the_limit() {
    let start = Instant::now();
    for (name, bytes) in headers() {
        let (read, taken) = taken_by(&bytes);
        assert!(!read && taken < 4 << 20, "{name}: {taken} bytes before it was refused");
    }
    assert!(start.elapsed().as_secs() < 3, "refused after {:?}", start.elapsed());

    let profile = chunk(b"iCCP", &[b"x\0\0", &deflated_zeros(256 << 20)[..]].concat());
    let mut files: Vec<(String, Vec<u8>)> = vec![
        ("profile".into(), png(10, 8, 2, 0, &profile)),
        ("gif".into(), gif(SIDE as u16)),
        ("16-bit opacity".into(), png(SIDE, 16, 6, 0, b"")),
        ("16-bit interlaced".into(), png(SIDE, 16, 6, 1, b"")),
    ];
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/bombs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        files.push((name.clone(), corpus(&format!("bombs/{name}"))));
    }
    let large = corpus("bombs/progressive-88mp.jpg.gz");
    let last = large.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
    files.push(("88mp, 95 scans".into(), repeated_scans(&large, last, 85)));
    let most = DecodeOptions::default().max_pixels;
    let own_peaks = std::fs::write(PEAK, "5").is_ok();
    for (number, (name, bytes)) in files.into_iter().enumerate() {
        // A decoder that keeps four bytes of each pixel beside the result is bound by the largest image that is allowed.
        let largest = name.starts_with("lossless") || name.contains("88mp") || !own_peaks;
        let pixels = if largest { most } else { u64::from(SIDE) * u64::from(SIDE) };
        let (start, (read, taken)) = (Instant::now(), taken_by(&bytes));
        assert!(read || number >= 4, "{name} was refused");
        assert!(taken < 3 * pixels + (64 << 20), "{name}: {taken} bytes");
        assert!(start.elapsed().as_secs() < 20, "{name} took {:?}", start.elapsed());
    }

    let (start, small) = (Instant::now(), corpus("jpeg/progressive.jpg"));
    let first = small.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
    let _ = decode(&repeated_scans(&small, first, 1000), &DecodeOptions::default());
    assert!(start.elapsed().as_secs() < 5, "a thousand scans took {:?}", start.elapsed());
}
