//! Every format gives the same tensors, and no bad file does worse than an error.

mod bad_input;
mod families;
mod forge;
mod formats;
#[cfg(feature = "hub")]
mod hub;
mod known;
mod torch_files;
