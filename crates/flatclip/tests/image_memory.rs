//! Peak memory of images that are small as files and large as pixels. A process of its own, so that its peak is theirs.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test: a panic is its failure

use flatclip::image::{DecodeOptions, decode};
use std::io::Write as _;

const SIDE: u32 = 5_000;
/// What an image of `SIDE x SIDE` may take: its pixels and 64 MiB.
const ALLOWED: u64 = 3 * (SIDE as u64) * (SIDE as u64) + (64 << 20);

fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

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
    let data = deflated_zeros((row + 4) * side as usize);
    [b"\x89PNG\r\n\x1a\n", &chunk(b"IHDR", &header)[..], more, &chunk(b"IDAT", &data), &chunk(b"IEND", b"")].concat()
}

fn gif() -> Vec<u8> {
    let side = (SIDE as u16).to_le_bytes();
    [b"GIF89a", &side[..], &side, b"\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0;"].concat()
}

#[test]
fn small_files_of_many_pixels_stay_below_the_limit() {
    let profile = chunk(b"iCCP", &[b"x\0\0", &deflated_zeros(256 << 20)[..]].concat());
    let files = [
        ("profile", png(10, 8, 2, 0, &profile)),
        ("gif", gif()),
        ("16-bit opacity", png(SIDE, 16, 6, 0, b"")),
        ("16-bit interlaced", png(SIDE, 16, 6, 1, b"")),
    ];
    for (name, bytes) in files {
        decode(&bytes, &DecodeOptions::default()).unwrap();
        assert!(peak() < ALLOWED, "{name}: {} bytes, allowed {ALLOWED}", peak());
    }
}
