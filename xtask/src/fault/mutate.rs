//! Damaged copies of a file: what disks, networks and people with bad intentions do to it. The same number gives the same
//! damage.

use flatclip::rng::Stream;

/// Values at which readers of integers go wrong.
const EDGES: [u64; 10] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// The damaged copy with this number; never the bytes themselves, unless they are empty.
pub(crate) fn mutant(bytes: &[u8], name: &str, number: u64) -> Vec<u8> {
    let mut draw = Stream::new(number, &["mutant", name]);
    let mut copy = bytes.to_vec();
    for _ in 0..=draw.below(3) {
        damage(&mut copy, &mut draw);
    }
    if copy == bytes
        && let Some(last) = copy.last_mut()
    {
        *last ^= 1;
    }
    copy
}

fn damage(bytes: &mut Vec<u8>, draw: &mut Stream) {
    if bytes.is_empty() {
        bytes.push(draw.bits() as u8);
        return;
    }
    // Half of the damage hits the first 256 bytes, where headers are.
    let reach = if draw.below(2) == 0 { bytes.len().min(256) } else { bytes.len() };
    let place = draw.below(reach);
    let length = (1 + draw.below(64)).min(bytes.len() - place);
    match draw.below(8) {
        0 => bytes[place] ^= 1 << draw.below(8),
        1 => bytes[place] = draw.bits() as u8,
        2 => bytes.truncate(place),
        3 => bytes[place..place + length].fill(0),
        4 => drop(bytes.drain(place..place + length)),
        5 => {
            let from = draw.below(bytes.len());
            let piece: Vec<u8> = bytes[from..].iter().copied().take(length).collect();
            bytes.splice(place..place, piece);
        }
        6 => {
            let edge = EDGES[draw.below(EDGES.len())].to_le_bytes();
            let width = [1, 2, 4, 8][draw.below(4)].min(bytes.len() - place);
            bytes[place..place + width].copy_from_slice(&edge[..width]);
            if draw.below(2) == 0 {
                bytes[place..place + width].reverse();
            }
        }
        _ => {
            // Another number where text has one.
            let digit = bytes[place..].iter().position(u8::is_ascii_digit).map(|at| place + at);
            match digit {
                Some(at) => bytes[at] = b'0' + draw.below(10) as u8,
                None => bytes[place] = bytes[place].wrapping_add(1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_damage_and_the_file_always_changes() {
        let bytes: Vec<u8> = (0..200).collect();
        let mut different = std::collections::BTreeSet::new();
        for number in 0..500 {
            let copy = mutant(&bytes, "x", number);
            assert_ne!(copy, bytes);
            assert_eq!(copy, mutant(&bytes, "x", number));
            different.insert(copy);
        }
        assert!(different.len() > 400, "{}", different.len());
        assert_eq!(mutant(&[], "x", 1).len(), mutant(&[], "x", 1).len());
    }
}
