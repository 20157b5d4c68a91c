//! Words to token ids: cleaning, the tokenizer, templates, class names.

mod clean;
mod files;
mod html;
pub mod imagenet;
mod mojibake;
pub mod templates;
mod tokenizer;
mod vocabulary;

pub use clean::clean;
pub use files::{escaped, quoted, read_class_names, read_text};
pub use tokenizer::Tokenizer;
