//! The tokenizer that belongs to a checkpoint. It stands here because it needs both: `text` knows no checkpoints.

use crate::Result;
use crate::text::Tokenizer;
use crate::weights::Checkpoint;

impl Tokenizer {
    /// The tokenizer of a checkpoint: its own where it brings one, else the original.
    pub fn of(checkpoint: &Checkpoint) -> Result<Self> {
        if let Some(dir) = checkpoint.tokenizer_dir() {
            return Self::from_dir(&dir);
        }
        let files = (checkpoint.embedded_file("vocab.json"), checkpoint.embedded_file("merges.txt"));
        let (Some(vocab), Some(merges)) = files else { return Ok(Self::clip()) };
        Self::from_bytes(&checkpoint.path().join("vocab.json"), vocab, merges)
    }
}
