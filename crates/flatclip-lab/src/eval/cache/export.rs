//! Kept features as one safetensors file that other programs open.

use super::imported::{Manifest, read_text};
use super::{entry, segment};
use flatclip::prompt::{Tensor, encode_arrays};
use flatclip::{Error, Result};
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Features of one cache entry: tensors `features` `[samples, views, width]` (f32) and, where these have unit norm, `norms`
/// `[samples, views]`; the metadata's `flatclip` is a JSON document with `ids` (in the order of the rows) and `key` (what they
/// were made from). Imported features are given as they were, with everything that belongs to them: an import of the file is
/// the same features. Damaged entries are skipped. Gives the bytes and the number of samples.
pub fn export(root: &Path, id: &str) -> Result<(Vec<u8>, usize)> {
    let entry = entry(root, id)?;
    let folder = root.join("features").join(&entry.id);
    // Later segments hold newer features of the same sample.
    let mut found = BTreeMap::new();
    for path in segment::files(&folder)? {
        let mut places = Vec::new();
        segment::scan(&path, |id, location| places.push((id, location)))?;
        let mut file = std::fs::File::open(&path).map_err(Error::io(&path))?;
        for (id, location) in places {
            let mut bytes = vec![0; location.size];
            file.seek(SeekFrom::Start(location.offset)).map_err(Error::io(&path))?;
            file.read_exact(&mut bytes).map_err(Error::io(&path))?;
            if let Some(features) = segment::decode(&bytes) {
                found.insert(id, features);
            }
        }
    }
    let Some((views, width)) = found.values().next().map(|first| (first.unit.rows(), first.unit.cols())) else {
        return Err(Error::config("cache", format!("`{}` holds no whole sample", entry.id)));
    };
    found.retain(|_, features| (features.unit.rows(), features.unit.cols()) == (views, width));
    let manifest = Manifest::read(&folder)?;
    // Imported samples in the order of their stream, which online methods depend on.
    let ids: Vec<&String> = match &manifest {
        Some(manifest) => manifest.ids.iter().filter(|id| found.contains_key(*id)).collect(),
        None => found.keys().collect(),
    };
    let (mut unit, mut norms, count) = (Vec::new(), Vec::new(), ids.len());
    for features in ids.iter().filter_map(|id| found.get(*id)) {
        unit.extend_from_slice(features.unit.data());
        norms.extend_from_slice(&features.norms);
    }
    let mut document = serde_json::json!({ "schema_version": 1, "ids": ids, "key": entry.key });
    let mut tensors = vec![Tensor { name: "features".into(), shape: vec![count, views, width], values: unit }];
    if manifest.as_ref().is_none_or(|manifest| manifest.unit) {
        tensors.push(Tensor { name: "norms".into(), shape: vec![count, views], values: norms });
    }
    if let Some(Manifest { model, logit_scale, classes, ids: all, labels, .. }) = &manifest {
        let labels = all.iter().zip(labels).filter(|(id, _)| found.contains_key(*id)).map(|(_, &label)| label);
        document["labels"] = labels.collect();
        document["classes"] = serde_json::json!(classes);
        document["logit_scale"] = serde_json::json!(f64::from(*logit_scale));
        document["model"] = serde_json::json!(model);
        tensors.extend(read_text(&folder)?);
    }
    let bytes = encode_arrays(&tensors, &document.to_string()).map_err(|e| Error::config("cache", e))?;
    Ok((bytes, count))
}
