//! The tokenizer that belongs to a checkpoint. It is here because it needs both: `text` does not use checkpoints.

use crate::text::Tokenizer;
use crate::weights::Checkpoint;
use crate::{Error, Result};

/// The size of CLIP's vocabulary.
const CLIP_TOKENS: usize = 49_408;

impl Tokenizer {
    /// The tokenizer of a checkpoint: its own where it brings one, else the original.
    pub fn of(checkpoint: &Checkpoint) -> Result<Self> {
        if let Some(dir) = checkpoint.tokenizer_dir() {
            return Self::from_dir(&dir);
        }
        let files = (checkpoint.embedded_file("vocab.json"), checkpoint.embedded_file("merges.txt"));
        let (Some(vocab), Some(merges)) = files else {
            // Another vocabulary would be read with CLIP's tokens, without an error.
            return match checkpoint.config().text.as_ref().filter(|text| text.vocab > CLIP_TOKENS) {
                None => Ok(Self::clip()),
                Some(text) => {
                    let (found, path) = (text.vocab, checkpoint.path().to_path_buf());
                    let reason = format!(
                        "the text tower has {found} tokens, CLIP's tokenizer {CLIP_TOKENS}, and there is no other beside the \
                         weights; put the model's tokenizer.json there"
                    );
                    Err(Error::Weights { path, reason })
                }
            };
        };
        Self::from_bytes(&checkpoint.path().join("vocab.json"), vocab, merges)
    }
}
