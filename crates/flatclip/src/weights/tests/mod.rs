//! Every format gives the same tensors, and no bad file does worse than an error.

mod bad_input;
mod forge;
mod formats;
mod torch_files;
