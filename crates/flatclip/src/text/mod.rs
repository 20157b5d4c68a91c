//! Words to token ids: the tokenizer, templates, class names.
