//! What commands take from the user, checked once: models, class lists, prompts, images, data sets.

pub(crate) mod cache;
pub(crate) mod classes;
pub(crate) mod data;
pub(crate) mod decode;
pub(crate) mod images;
pub(crate) mod model;
pub(crate) mod prompt;
pub(crate) mod shard;
pub(crate) mod views;
