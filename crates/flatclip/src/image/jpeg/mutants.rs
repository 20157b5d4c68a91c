//! Damaged files against Pillow: `testdata/mutants.txt` has, for every mutant of every file, the CRC-32 of the RGB bytes that
//! Pillow 13 (libjpeg-turbo 3.2) decodes, or `-` where it refuses. We may refuse more, but never give other pixels.

use super::super::{DecodeOptions, decode};
use super::tests::FILES;
use crate::rng::Stream;

const PER_FILE: usize = 60;
const PILLOW: &str = include_str!("testdata/mutants.txt");

/// A damaged copy: bits flipped, cut off, bytes lost, added or replaced by a marker.
fn mutant(bytes: &[u8], stream: &mut Stream) -> Vec<u8> {
    const MARKERS: [u8; 10] = [0xd0, 0xd1, 0xd3, 0xd7, 0xd9, 0xc4, 0xda, 0xff, 0, 0xdb];
    let mut bytes = bytes.to_vec();
    let at = 2 + stream.below(bytes.len() - 4);
    match stream.below(8) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..at + 2)),
        2 => {
            let new = [stream.bits() as u8, stream.bits() as u8];
            bytes.splice(at..at, new);
        }
        3 => bytes[at..at + 2].copy_from_slice(&[0xff, MARKERS[stream.below(MARKERS.len())]]),
        kind => {
            for _ in 4..=kind {
                let at = stream.below(bytes.len());
                bytes[at] ^= 1 << stream.below(8);
            }
        }
    }
    bytes
}

fn all() -> impl Iterator<Item = (String, Vec<u8>)> {
    FILES.iter().flat_map(|(name, bytes, _)| {
        let mut stream = Stream::new(1, &["mutants", name]);
        (0..PER_FILE).map(move |i| (format!("{name}-{i:02}"), mutant(bytes, &mut stream)))
    })
}

#[test]
fn damaged_files_give_the_pixels_of_pillow_or_are_refused() {
    let (mut accepted, mut refused_alone) = (0, 0);
    let mut expected = PILLOW.lines();
    for (name, bytes) in all() {
        let pillow = expected.next().unwrap();
        match decode(&bytes, &DecodeOptions::pillow()) {
            Ok(image) => {
                assert_eq!(format!("{:08x}", crc32fast::hash(&image.rgb)), pillow, "{name}");
                accepted += 1;
            }
            Err(_) => refused_alone += usize::from(pillow != "-"),
        }
    }
    assert!(expected.next().is_none());
    // Most damage leaves an image; what we alone refuse is rare (tables or scans that are missing).
    assert!(
        accepted > 300 && refused_alone * 10 < accepted,
        "{accepted} accepted, {refused_alone} refused by us alone"
    );
}

#[test]
#[ignore = "writes the mutants into the folder that MUTANTS names, to be decoded with Pillow"]
fn write_mutants() {
    let folder = std::path::PathBuf::from(std::env::var_os("MUTANTS").unwrap());
    for (name, bytes) in all() {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

/// Every prefix of a file: what Pillow refuses (all but the last few bytes) is refused.
#[test]
fn a_cut_file_is_refused() {
    for (name, bytes, _) in FILES {
        for end in 0..bytes.len() - 2 {
            assert!(decode(&bytes[..end], &DecodeOptions::default()).is_err(), "{name} cut at {end}");
        }
    }
}
