//! The safetensors container: a JSON header, then the values. Opening a file reads only the header.
//!
//! The rules are those of the reference implementation: tensors have no gaps and no overlap, the first starts right after
//! the header, the last ends at the end of the file, and there are no duplicate names.

use super::bytes::{Bytes, Dtype, Packing, Source, Stored, bad, count};
use crate::Result;
use crate::error::quoted;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

/// Real headers have about 100 kB; the reference implementation allows 100 MB.
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
    let Ok(len) = <[u8; 8]>::try_from(head.as_slice()).map(u64::from_le_bytes) else {
        let reason = format!("truncated: a safetensors file begins with 8 bytes, this one has {}", head.len());
        return Err(bad(path, reason));
    };
    if len > MAX_HEADER || len > source.len - 8 {
        let reason = format!(
            "not a safetensors file, or truncated: its header claims {len} bytes, the file has {} bytes",
            source.len
        );
        return Err(bad(path, reason));
    }
    let header: Object<Object<Value>> = serde_json::from_slice(&source.read(8, len)?)
        .map_err(|e| bad(path, format!("not a safetensors file, or damaged: its header is not as expected ({e})")))?;
    let mut container = Container { tensors: Vec::new(), metadata: BTreeMap::new() };
    let damaged = |name: &str, reason: String| {
        bad(path, format!("damaged safetensors header: tensor `{}`: {reason}", quoted(name)))
    };
    for (name, about) in header.0 {
        if name == "__metadata__" {
            container.metadata = texts(about).map_err(|reason| bad(path, reason))?;
            continue;
        }
        let tensor = entry(&source, 8 + len, &name, &about).map_err(|reason| damaged(&name, reason))?;
        container.tensors.push(tensor);
    }
    check_layout(&mut container.tensors, 8 + len, source.len).map_err(|(name, reason)| damaged(&name, reason))?;
    container.tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(container)
}

/// A JSON object without duplicate keys, in file order.
struct Object<T>(Vec<(String, T)>);

impl Object<Value> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Names<T> {
            type Value = Object<T>;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<T>, A::Error> {
                let (mut entries, mut names) = (Vec::new(), BTreeSet::new());
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!("`{}` is a duplicate", quoted(&name))));
                    }
                    entries.push((name, value));
                }
                Ok(Object(entries))
            }
        }
        deserializer.deserialize_map(Names(PhantomData))
    }
}

/// The metadata: names and texts.
fn texts(object: Object<Value>) -> Result<BTreeMap<String, String>, String> {
    let text = |(key, value): (String, Value)| match value {
        Value::String(text) => Ok((key, text)),
        _ => Err(format!("damaged safetensors header: `{}` of its metadata is not a text", quoted(&key))),
    };
    object.0.into_iter().map(text).collect()
}

/// Checks that the tensors fill the file from the end of the header without gaps or overlap.
fn check_layout(tensors: &mut [Stored], data: u64, len: u64) -> Result<(), (String, String)> {
    tensors.sort_by_key(|tensor| (tensor.bytes.offset, tensor.bytes.len));
    let mut end = data;
    for tensor in tensors.iter() {
        let begin = tensor.bytes.offset;
        if begin != end {
            let kind = if begin < end { "overlaps the one before" } else { "leaves a hole" };
            let reason = format!("its data {kind}: it begins at byte {begin} of the file, expected {end}");
            return Err((tensor.name.clone(), reason));
        }
        end += tensor.bytes.len;
    }
    if end != len {
        let last = tensors.last().map_or_else(String::new, |tensor| tensor.name.clone());
        return Err((last, format!("the last data ends at byte {end}, the file has {len} bytes: it has leftovers")));
    }
    Ok(())
}

fn entry(source: &Arc<Source>, data: u64, name: &str, about: &Object<Value>) -> Result<Stored, String> {
    let word = about.get("dtype").and_then(Value::as_str);
    let dtype = word.and_then(Dtype::of_safetensors);
    let dtype = dtype.ok_or_else(|| format!("dtype {word:?} is not one of F32, F16, BF16, F64, integers"))?;
    let list = |key: &str| -> Option<Vec<u64>> { about.get(key)?.as_array()?.iter().map(Value::as_u64).collect() };
    let shape = list("shape").ok_or("its shape is not a list of sizes")?.into_iter().map(usize::try_from);
    let shape = shape.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    let Some([begin, end]) = list("data_offsets").and_then(|o| <[u64; 2]>::try_from(o).ok()) else {
        return Err("its data_offsets are not two numbers".into());
    };
    let len = end.checked_sub(begin).ok_or("its data ends before it begins")?;
    let wanted = count(&shape).and_then(|n| n.checked_mul(dtype.size())).ok_or("its shape is too large")?;
    if len != wanted as u64 {
        return Err(format!("shape {shape:?} of {} needs {wanted} bytes, its data_offsets span {len}", dtype.name()));
    }
    if data.checked_add(end).is_none_or(|end| end > source.len) {
        let all = source.len;
        return Err(format!("truncated: its data ends at byte {end} after the header, the file has {all} bytes"));
    }
    let bytes = Bytes { source: source.clone(), offset: data + begin, stored: len, len, packing: Packing::Plain };
    Ok(Stored { name: name.to_owned(), dtype, shape, bytes, first: 0, strides: None })
}
