//! The header of NumPy's `.npy` format, versions 1 to 3: magic, version, header length, a Python dictionary as text.

use crate::error::quoted;
use std::io::Read;

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Real headers have some 100 bytes.
const MAX_HEADER: usize = 1 << 16;

/// Type and shape of the values after a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// NumPy's code of the type, such as `<f4`.
    pub(crate) descr: String,
    pub(crate) shape: Vec<usize>,
    /// Bytes before the first value.
    pub(crate) len: u64,
}

/// Reads a header; the reader is then at the first value. Fortran order is refused.
pub(crate) fn header(reader: &mut impl Read) -> Result<Header, String> {
    let broken = |_| "the .npy header is damaged".to_owned();
    let mut start = [0u8; 8];
    reader.read_exact(&mut start).map_err(broken)?;
    if !start.starts_with(MAGIC) {
        return Err("this is not a .npy array".to_owned());
    }
    let mut length = [0u8; 4];
    let field = if start[6] > 1 { 4 } else { 2 };
    reader.read_exact(&mut length[..field]).map_err(broken)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_HEADER {
        return Err(format!("the .npy header is damaged: it claims {length} bytes"));
    }
    let mut text = vec![0u8; length];
    reader.read_exact(&mut text).map_err(broken)?;
    let text = String::from_utf8(text).map_err(|_| "the .npy header is damaged".to_owned())?;
    if value_of(&text, "fortran_order") != "False" {
        return Err("the array is in Fortran order; save it with numpy.ascontiguousarray".to_owned());
    }
    let shape = value_of(&text, "shape");
    let sizes = shape.trim_matches(['(', ')']).split(',').map(str::trim).filter(|size| !size.is_empty());
    let sizes: Option<Vec<usize>> = sizes.map(|size| size.parse().ok()).collect();
    let shape = sizes.ok_or_else(|| format!("the .npy header is damaged: its shape is {}", quoted(shape)))?;
    let descr = value_of(&text, "descr").trim_matches(['\'', '"']).to_owned();
    Ok(Header { descr, shape, len: (start.len() + field + length) as u64 })
}

/// The text after `'key':` up to the next comma that is not inside parentheses.
fn value_of<'a>(header: &'a str, key: &str) -> &'a str {
    let Some((_, rest)) = header.split_once(&format!("'{key}':")) else { return "" };
    let mut depth = 0;
    let end = rest.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0 && (c == ',' || c == '}')
    });
    rest[..end.unwrap_or(rest.len())].trim()
}
