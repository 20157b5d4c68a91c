//! Models embedded in the binary.

use super::bytes::{Source, bad};
use super::checkpoint::Checkpoint;
use super::{folder, safetensors};
use crate::Result;
use crate::architecture::Stated;
use serde_json::Value;
use std::path::Path;

impl Checkpoint {
    /// From the files of a model folder that are in memory, named as they are in the folder. `name` stands for the folder
    /// in messages and as the checkpoint's path.
    pub fn from_files(name: &str, files: &'static [(&'static str, &'static [u8])]) -> Result<Self> {
        let folder = Path::new(name);
        let find = |wanted: &str| files.iter().find(|(found, _)| *found == wanted).map(|(_, bytes)| *bytes);
        let json = |file: &str| -> Result<Value> {
            let path = folder.join(file);
            let bytes = find(file).ok_or_else(|| bad(&path, "this file of the embedded model is missing"))?;
            serde_json::from_slice(bytes).map_err(|e| bad(&path, format!("not JSON: {e}")))
        };
        let (weights, stated): (&str, Stated) = if find("open_clip_model.safetensors").is_some() {
            let config = "open_clip_config.json";
            ("open_clip_model.safetensors", folder::open_clip(&folder.join(config), &json(config)?)?)
        } else {
            let config = "config.json";
            ("model.safetensors", folder::hugging_face_config(&folder.join(config), &json(config)?)?)
        };
        let path = folder.join(weights);
        let bytes = find(weights).ok_or_else(|| bad(&path, "this file of the embedded model is missing"))?;
        let container = safetensors::read(&path, Source::embedded(&path, bytes))?;
        Ok(Self::from_tensors(folder, container.tensors, &stated)?.with_embedded(files))
    }

    /// The embedded model of that name (`pocket`, `pocket-vit`), `None` when there is no such model.
    #[cfg(feature = "pocket")]
    pub fn embedded(name: &str) -> Option<Result<Self>> {
        flatclip_pocket::model_files(name).map(|files| Self::from_files(name, files))
    }

    /// Always `None`: built without the feature `pocket`.
    #[cfg(not(feature = "pocket"))]
    pub fn embedded(_name: &str) -> Option<Result<Self>> {
        None
    }
}
