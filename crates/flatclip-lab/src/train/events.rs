//! TensorBoard event files, scalars only, written from the format's description: records framed by their length and
//! masked CRC-32C checksums, each a protocol-buffer `Event`.
//!
//! The time of an event is its step, in seconds: a resumed run then writes the same bytes as one that was never stopped.

const MASK: u32 = 0xa282_ead8;

/// The record that starts a file.
pub(crate) fn header() -> Vec<u8> {
    let mut event = Vec::new();
    double(&mut event, 1, 0.0);
    bytes(&mut event, 3, b"brain.Event:2");
    frame(&event)
}

/// The record of some scalars at a step.
pub(crate) fn scalars(step: u64, values: &[(&str, f32)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in values {
        let mut entry = Vec::new();
        bytes(&mut entry, 1, tag.as_bytes());
        key(&mut entry, 2, 5);
        entry.extend_from_slice(&value.to_le_bytes());
        bytes(&mut summary, 1, &entry);
    }
    let mut event = Vec::new();
    double(&mut event, 1, step as f64);
    key(&mut event, 2, 0);
    varint(&mut event, step);
    bytes(&mut event, 5, &summary);
    frame(&event)
}

fn key(out: &mut Vec<u8>, field: u64, wire: u64) {
    varint(out, field << 3 | wire);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn double(out: &mut Vec<u8>, field: u64, value: f64) {
    key(out, field, 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    key(out, field, 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// length, checksum of the length, data, checksum of the data.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(data.len() + 16);
    out.extend_from_slice(&length);
    out.extend_from_slice(&masked_crc(&length).to_le_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(&masked_crc(data).to_le_bytes());
    out
}

fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(MASK)
}

/// CRC-32C (Castagnoli, reflected), bit by bit: the records are small.
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn a_record_frames_its_event() {
        let record = scalars(300, &[("loss", 1.5)]);
        let length = u64::from_le_bytes(record[..8].try_into().unwrap()) as usize;
        assert_eq!(record.len(), length + 16);
        assert_eq!(record[8..12], masked_crc(&record[..8]).to_le_bytes());
        let data = &record[12..12 + length];
        assert_eq!(record[12 + length..], masked_crc(data).to_le_bytes());
        // wall_time, then step 300 as a varint, then summary { value { tag: "loss" simple_value: 1.5 } }.
        assert_eq!(data[0], 0x09);
        assert_eq!(data[9..12], [0x10, 0xac, 0x02]);
        assert_eq!(data[12..], [0x2a, 13, 0x0a, 11, 0x0a, 4, b'l', b'o', b's', b's', 0x15, 0, 0, 0xc0, 0x3f]);
    }
}
