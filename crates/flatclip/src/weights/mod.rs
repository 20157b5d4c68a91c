//! Checkpoints: what is on disk, in whatever format, becomes named tensors of a known architecture.
//!
//! [`Checkpoint::open`] takes a file or a folder. Nothing in a file is trusted: lengths are checked against the bytes that
//! exist before anything is allocated, pickles are interpreted by a reader that cannot call anything, and every failure is
//! a typed error that names the file.

mod architecture;
mod bytes;
mod checkpoint;
mod naming;
mod open;
mod random;
mod safetensors;

pub use bytes::Dtype;
pub use checkpoint::Checkpoint;
pub use naming::Naming;
pub use random::{random, random_of};
