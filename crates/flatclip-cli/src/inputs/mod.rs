//! What commands take from the user, checked once: models, class lists, prompts, pictures.

pub(crate) mod classes;
pub(crate) mod model;
pub(crate) mod pictures;
pub(crate) mod prompt;
