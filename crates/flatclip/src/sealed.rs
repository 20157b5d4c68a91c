//! Safetensors files of our own: tensors, one metadata document, and a digest over both, so that a flipped bit is found
//! although the format itself has no checksum. The digest is a tensor of 32 bytes: other readers of the format see it as one.

use crate::digest::Digest;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::HashMap;

const DOCUMENT: &str = "flatclip";
const SEAL: &str = "sha256";

/// A named tensor as in the file.
pub struct Entry<'a> {
    /// Its name.
    pub name: String,
    /// Kind of number.
    pub dtype: Dtype,
    /// Extents.
    pub shape: Vec<usize>,
    /// Little-endian values.
    pub bytes: &'a [u8],
}

/// The bytes of a file with these tensors and this document.
pub fn seal(mut entries: Vec<Entry<'_>>, document: &str) -> Result<Vec<u8>, String> {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let parts = entries.iter().map(|e| (e.name.as_str(), e.dtype, e.shape.as_slice(), e.bytes));
    let digest = digest(parts, document);
    let own = Entry { name: SEAL.to_owned(), dtype: Dtype::U8, shape: vec![digest.len()], bytes: &digest };
    write(entries.iter().chain([&own]), document)
}

/// The same without a digest, for other programs.
pub(crate) fn write<'a>(entries: impl IntoIterator<Item = &'a Entry<'a>>, document: &str) -> Result<Vec<u8>, String> {
    let mut views = Vec::new();
    for Entry { name, dtype, shape, bytes } in entries {
        views.push((name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).map_err(|e| e.to_string())?));
    }
    // One entry only: the order of several would change from run to run.
    let metadata = HashMap::from([(DOCUMENT.to_owned(), document.to_owned())]);
    safetensors::serialize(views, Some(metadata)).map_err(|e| e.to_string())
}

/// Tensors by name, and the document.
type Opened<'a> = (Vec<(String, TensorView<'a>)>, Option<String>);

/// Opens a file: its tensors without the digest, and the document, which files of others do not have. A digest that does not
/// fit is an error; files of earlier versions have none.
pub fn open(bytes: &[u8]) -> Result<Opened<'_>, String> {
    let not_ours = |e: safetensors::SafeTensorError| format!("not a safetensors file: {e}");
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(not_ours)?;
    let document = metadata.metadata().as_ref().and_then(|m| m.get(DOCUMENT).cloned());
    let mut tensors = SafeTensors::deserialize(bytes).map_err(not_ours)?.tensors();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let kept = tensors.iter().position(|(name, _)| name == SEAL).map(|place| tensors.remove(place).1);
    if let Some(kept) = kept {
        let parts = tensors.iter().map(|(name, view)| (name.as_str(), view.dtype(), view.shape(), view.data()));
        if digest(parts, document.as_deref().unwrap_or_default()) != kept.data() {
            return Err("its content does not fit its checksum: the file is damaged".into());
        }
    }
    Ok((tensors, document))
}

fn digest<'a>(parts: impl Iterator<Item = (&'a str, Dtype, &'a [usize], &'a [u8])>, document: &str) -> [u8; 32] {
    let start = Digest::default().part(document);
    let all = parts.fold(start, |digest, (name, dtype, shape, bytes)| {
        let named = digest.part(name).part(format!("{dtype:?}")).number(shape.len());
        shape.iter().fold(named, |digest, &side| digest.number(side)).part(bytes)
    });
    all.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_refused_or_changes_nothing() {
        let entry = |name: &str, bytes| Entry { name: name.into(), dtype: Dtype::F32, shape: vec![2], bytes };
        let bytes = seal(vec![entry("b", &[1; 8]), entry("a", &[2; 8])], r#"{"step":12}"#).unwrap();
        let content = |bytes: &[u8]| {
            open(bytes).map(|(tensors, document)| {
                let all: Vec<_> =
                    tensors.iter().map(|(n, v)| (n.clone(), v.shape().to_vec(), v.data().to_vec())).collect();
                (all, document)
            })
        };
        let whole = content(&bytes).unwrap();
        assert_eq!(whole.0.len(), 2, "the seal is not one of the tensors");
        for place in 0..bytes.len() {
            for mask in [0x01, 0x10, 0x80, 0xff] {
                let mut copy = bytes.clone();
                copy[place] ^= mask;
                match content(&copy) {
                    // A damaged name of the seal leaves a tensor of a type that no reader of ours expects.
                    Ok(found) if found != whole => {
                        let strange = open(&copy).unwrap().0.iter().any(|(_, view)| view.dtype() != Dtype::F32);
                        assert!(strange, "byte {place} mask {mask:#x}: other content without a word");
                    }
                    _ => {}
                }
            }
        }
    }
}
