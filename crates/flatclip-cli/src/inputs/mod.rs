//! What commands take from the user, checked once: models, class lists, prompts, images, data sets.

pub(crate) mod classes;
mod data;
pub(crate) mod images;
pub(crate) mod model;
pub(crate) mod prompt;
pub(crate) mod shard;
mod views;

pub(crate) use classes::ClassArgs;
pub(crate) use data::{CacheArgs, DataArgs, PlaceArgs, RootArgs};
pub(crate) use images::DecodeArgs;
pub(crate) use model::{FindArgs, ModelArgs};
pub(crate) use prompt::PromptArgs;
pub(crate) use views::ViewArgs;
