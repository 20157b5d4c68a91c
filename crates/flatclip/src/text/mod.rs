//! Words to token ids: cleaning, the tokenizer, templates, class names.

mod class_names;
mod clean;
mod html;
pub mod imagenet;
mod mojibake;
pub mod templates;
mod tokenizer;
mod vocabulary;

pub use class_names::read_class_names;
pub use clean::clean;
pub use tokenizer::Tokenizer;
