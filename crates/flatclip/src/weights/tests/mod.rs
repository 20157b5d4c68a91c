//! Every format gives the same tensors, and a bad file causes at most an error.

mod bad_input;
mod families;
mod forge;
mod formats;
#[cfg(feature = "hub")]
mod hub;
mod known;
mod torch_files;
