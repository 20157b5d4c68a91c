//! Checkpoints: reads weight files of all supported formats as named tensors of a known architecture.
//!
//! [`Checkpoint::open`] takes a file or a folder. Nothing in a file is trusted: lengths are checked against the file size
//! before anything is allocated, pickles are interpreted by a reader that cannot call anything, and every failure is a typed
//! error that names the file.

mod activation;
mod arrays;
mod bytes;
mod canonical_file;
mod checkpoint;
mod folder;
mod hash_cache;
#[cfg(feature = "hub")]
pub mod hub;
mod known;
mod known_table;
mod naming;
pub(crate) mod npy;
mod open;
#[doc(hidden)]
pub mod pickle;
mod pixels;
mod random;
mod safetensors;
pub(crate) mod torch_file;
mod torch_tree;
mod towers;
mod zip;

pub use crate::digest::file_sha256;
pub use arrays::{ArrayFile, Floats};
pub use bytes::Dtype;
pub(crate) use bytes::Stored;
pub use canonical_file::save_canonical;
pub use checkpoint::Checkpoint;
pub use known::{KnownModel, Places, known, published_as, refusal, resolve};
pub use known_table::KNOWN;
pub use naming::Naming;
pub use random::{random, random_of};

#[cfg(test)]
mod tests;
