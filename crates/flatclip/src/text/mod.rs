//! Words to token ids: cleaning, the tokenizer, templates, class names.

mod clean;
mod html;
pub mod imagenet;
mod mojibake;
pub mod templates;
mod tokenizer;

pub use clean::clean;
pub use tokenizer::Tokenizer;
