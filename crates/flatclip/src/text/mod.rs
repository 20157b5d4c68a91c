//! Words to token ids: cleaning, the tokenizer, templates, class names.

mod clean;
mod files;
mod html;
pub mod imagenet;
mod mojibake;
mod sentencepiece;
mod sentencepiece_file;
pub mod templates;
mod tokenizer;
mod vocabulary;

pub(crate) use clean::clean;
pub use files::read_class_names;
pub use tokenizer::Tokenizer;
