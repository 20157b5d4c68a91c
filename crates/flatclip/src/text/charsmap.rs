//! The check of SentencePiece's table of normalisations before the `tokenizers` crate reads it: the crate trusts the sizes
//! and offsets in it, and a damaged table would ask for gigabytes or stop the program.

/// Whether every walk through the table stays inside it.
///
/// The table is the length of a double array in bytes, the array of `u32`, then texts that end with a zero byte. A walk
/// starts at unit 0; from a unit it goes to `position ^ offset ^ byte`, where the unit's label must be that byte. A unit with
/// the flag of a leaf has its value, the place of a text, at `position ^ offset`.
pub(super) fn check(table: &[u8]) -> Result<(), String> {
    let short = || "the table of normalisations is cut off".to_owned();
    let (size, rest) = table.split_first_chunk::<4>().ok_or_else(short)?;
    let size = u32::from_le_bytes(*size) as usize;
    let (array, texts) = rest.split_at_checked(size / 4 * 4).ok_or_else(short)?;
    let units: Vec<u32> = array.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let texts = std::str::from_utf8(texts).map_err(|_| "the texts of the normalisations are not UTF-8".to_owned())?;
    if units.is_empty() {
        return Err("the table of normalisations is empty".into());
    }
    for (position, &unit) in units.iter().enumerate() {
        if unit >> 31 == 1 {
            continue; // a value
        }
        let next = position ^ ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let value = units.get(next).map(|value| (value & !(1 << 31)) as usize);
        let is_leaf = unit >> 8 & 1 == 1;
        if next | 0xff >= units.len() || (is_leaf && !value.is_some_and(|at| texts.is_char_boundary(at))) {
            return Err(format!("the table of normalisations is damaged at unit {position}"));
        }
    }
    Ok(())
}
