//! From a path to a checkpoint: which format is it.

use super::architecture::Stated;
use super::checkpoint::Checkpoint;
use super::safetensors;
use crate::Result;
use crate::model::config::Activation;
use std::path::Path;

impl Checkpoint {
    /// Opens a weight file or a model folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let container = safetensors::open(path)?;
        let stated = Stated {
            activation: container.metadata.get("activation").and_then(|word| Activation::parse(word)),
            ..Stated::default()
        };
        Self::from_tensors(path, container.tensors, &stated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiny() {
        let base = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/golden/models"));
        for name in ["tiny-vit.openai.safetensors", "tiny-rn.openai.safetensors"] {
            let checkpoint = Checkpoint::open(base.join(name)).unwrap();
            println!("{} {}", checkpoint.config().describe(), checkpoint.hash().unwrap());
        }
        let random = super::super::random("random:RN50", 0).unwrap();
        println!("{} {} {}", random.config().describe(), random.parameters(), random.hash().unwrap());
    }
}
