//! The safetensors container: a JSON header, then the numbers. Only the header is read at once.

use super::bytes::{Bytes, Dtype, Packing, Source, Stored, bad, count};
use crate::Result;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Real headers have some 100 kB; the format's own reader stops at 100 MB.
const MAX_HEADER: u64 = 32 << 20;

/// The tensors of a file, in name order, and its metadata.
pub(crate) struct Container {
    pub(crate) tensors: Vec<Stored>,
    pub(crate) metadata: BTreeMap<String, String>,
}

pub(crate) fn open(path: &Path) -> Result<Container> {
    read(path, Source::open(path)?)
}

/// Reads the header of a source that is open already.
pub(crate) fn read(path: &Path, source: Arc<Source>) -> Result<Container> {
    let head = source.read(0, 8.min(source.len))?;
    let len = match <[u8; 8]>::try_from(head.as_slice()) {
        Ok(bytes) => u64::from_le_bytes(bytes),
        Err(_) => {
            return Err(bad(
                path,
                format!("truncated: a safetensors file begins with 8 bytes, this one has {}", head.len()),
            ));
        }
    };
    if len > MAX_HEADER || len > source.len - 8 {
        let reason = format!(
            "not a safetensors file, or truncated: its header claims {len} bytes, the file has {} bytes",
            source.len
        );
        return Err(bad(path, reason));
    }
    let header: Value = serde_json::from_slice(&source.read(8, len)?)
        .map_err(|e| bad(path, format!("not a safetensors file, or damaged: its header is not JSON ({e})")))?;
    let Value::Object(header) = header else {
        return Err(bad(path, "damaged safetensors header: expected a JSON object"));
    };
    let mut container = Container { tensors: Vec::new(), metadata: BTreeMap::new() };
    for (name, about) in &header {
        if name == "__metadata__" {
            for (key, value) in about.as_object().into_iter().flatten() {
                container.metadata.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
            }
            continue;
        }
        let tensor = entry(&source, 8 + len, name, about)
            .map_err(|reason| bad(path, format!("damaged safetensors header: tensor `{name}`: {reason}")))?;
        container.tensors.push(tensor);
    }
    container.tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(container)
}

fn entry(source: &Arc<Source>, data: u64, name: &str, about: &Value) -> Result<Stored, String> {
    let dtype = match about["dtype"].as_str() {
        Some("F64") => Dtype::F64,
        Some("F32") => Dtype::F32,
        Some("F16") => Dtype::F16,
        Some("BF16") => Dtype::Bf16,
        Some("I64" | "U64") => Dtype::I64,
        Some("I32" | "U32") => Dtype::I32,
        Some("I16" | "U16") => Dtype::I16,
        Some("I8") => Dtype::I8,
        Some("U8") => Dtype::U8,
        Some("BOOL") => Dtype::Bool,
        other => return Err(format!("dtype {other:?} is not one of F32, F16, BF16, F64, integers")),
    };
    let list = |key: &str| -> Option<Vec<u64>> { about[key].as_array()?.iter().map(Value::as_u64).collect() };
    let shape = list("shape").ok_or("its shape is not a list of sizes")?;
    let shape: Vec<usize> =
        shape.iter().map(|&d| usize::try_from(d)).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let Some([begin, end]) = list("data_offsets").and_then(|o| <[u64; 2]>::try_from(o).ok()) else {
        return Err("its data_offsets are not two numbers".into());
    };
    let len = end.checked_sub(begin).ok_or("its data ends before it begins")?;
    let wanted = count(&shape).and_then(|n| n.checked_mul(dtype.size())).ok_or("its shape is too large")?;
    if len != wanted as u64 {
        return Err(format!("shape {shape:?} of {} needs {wanted} bytes, its data_offsets span {len}", dtype.name()));
    }
    if data.checked_add(end).is_none_or(|end| end > source.len) {
        return Err(format!(
            "truncated: its data ends at byte {end} after the header, the file has {} bytes",
            source.len
        ));
    }
    let bytes = Bytes { source: source.clone(), offset: data + begin, stored: len, len, packing: Packing::Plain };
    Ok(Stored { name: name.to_owned(), dtype, shape, bytes, first: 0, strides: None })
}
