//! SentencePiece tokenizers of SigLIP (Unigram) and SigLIP 2 (Gemma's byte pairs): rows of one length, no start token, an end
//! token, padding. The `tokenizers` crate cuts words into pieces; cleaning and the row are ours.

use super::clean::Cleaning;
use crate::Result;
use crate::error::unusable_weights as bad;
use regex::Regex;
use std::collections::HashMap;
use std::path::Path;
use tokenizers::normalizers::Precompiled;
use tokenizers::{Model as _, ModelWrapper};

/// The character that represents a space in pieces.
const SPACE: char = '\u{2581}';

/// What cuts text into pieces: Unigram words one after the other, each with a space before it; BPE the whole text, byte by
/// byte where there is no piece.
pub(super) struct Cutter {
    pub(super) model: ModelWrapper,
    /// Normalises the characters of words.
    pub(super) table: Option<Precompiled>,
}

impl Cutter {
    pub(super) fn is_unigram(&self) -> bool {
        matches!(self.model, ModelWrapper::Unigram(_))
    }
}

/// A SentencePiece tokenizer.
pub(super) struct Pieces {
    cutter: Cutter,
    /// Tokens that are found in texts as they are written, such as `</s>`.
    markers: HashMap<String, u32>,
    pattern: Option<Regex>,
    pub(super) cleaning: Cleaning,
    pub(super) eos: u32,
    pub(super) pad: u32,
}

impl Pieces {
    /// From parts that were checked: `eos` and `pad` are names of tokens.
    pub(super) fn new(
        path: &Path,
        cutter: Cutter,
        markers: HashMap<String, u32>,
        cleaning: Cleaning,
        [eos, pad]: [&str; 2],
    ) -> Result<Self> {
        let id = |name: &str| {
            let found = markers.get(name).copied().or_else(|| cutter.model.token_to_id(name));
            found.ok_or_else(|| bad(path, format!("the vocabulary has no token {name:?}")))
        };
        let (eos, pad) = (id(eos)?, id(pad)?);
        // The longest first: of two markers that begin alike the longer is meant.
        let mut names: Vec<&String> = markers.keys().collect();
        names.sort_by_key(|name| (std::cmp::Reverse(name.len()), *name));
        let names: Vec<String> = names.into_iter().map(|name| regex::escape(name)).collect();
        let pattern = (!names.is_empty()).then(|| Regex::new(&names.join("|"))).transpose();
        let pattern = pattern.map_err(|e| bad(path, format!("too many added tokens: {e}")))?;
        Ok(Self { cutter, markers, pattern, cleaning, eos, pad })
    }

    /// Kind, size and cleaning.
    pub(super) fn describe(&self) -> String {
        let Self { cutter, eos, pad, cleaning, .. } = self;
        let kind = if cutter.is_unigram() { "Unigram" } else { "BPE" };
        let size = cutter.model.get_vocab_size();
        format!("SentencePiece {kind}, {size} tokens, end {eos}, padding {pad}; cleaning: {}", cleaning.name())
    }

    /// The tokens of a text, without the end.
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        self.encode_cleaned(&self.cleaning.whole(text))
    }

    /// The same behind other words: Unigram has a space before every word, the first included, byte pairs do not.
    pub(super) fn encode_following(&self, text: &str) -> Vec<u32> {
        let text = self.cleaning.whole(text);
        let space = if !self.cutter.is_unigram() && !text.is_empty() { " " } else { "" };
        self.encode_cleaned(&format!("{space}{text}"))
    }

    fn encode_cleaned(&self, text: &str) -> Vec<u32> {
        let (mut ids, mut from) = (Vec::new(), 0);
        for marker in self.pattern.iter().flat_map(|pattern| pattern.find_iter(text)) {
            self.cut(&text[from..marker.start()], from == 0, &mut ids);
            ids.extend(self.markers.get(marker.as_str()));
            from = marker.end();
        }
        self.cut(&text[from..], from == 0, &mut ids);
        ids
    }

    /// The pieces of a text without markers; `first` if none came before it.
    fn cut(&self, text: &str, first: bool, ids: &mut Vec<u32>) {
        let text = self.cleaning.part(text);
        let Cutter { model, table } = &self.cutter;
        let mut add = |text: &str| {
            // Only a vocabulary without the unknown token fails, which is refused when it is read.
            let pieces = model.tokenize(text).expect("the unknown token exists");
            ids.extend(pieces.into_iter().map(|token| token.id));
        };
        if self.cutter.is_unigram() {
            let text = table.as_ref().map_or(text.clone(), |table| table.normalize_string(&text));
            for (at, word) in text.split_whitespace().enumerate() {
                // Behind a marker the first word has no space before it, as in transformers.
                let bare = (at == 0 && !first) || word.starts_with(SPACE);
                if bare { add(word) } else { add(&format!("{SPACE}{word}")) }
            }
        } else if !text.is_empty() {
            add(&text.replace(' ', "\u{2581}"));
        }
    }

    /// The text of tokens; the end and padding are skipped.
    pub(super) fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &id in ids.iter().filter(|&&id| id != self.eos && id != self.pad) {
            let piece = self.cutter.model.id_to_token(id).unwrap_or_default();
            let byte = piece.strip_prefix("<0x").and_then(|hex| hex.strip_suffix('>'));
            match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                Some(byte) => bytes.push(byte),
                None => bytes.extend(piece.replace(SPACE, " ").bytes()),
            }
        }
        String::from_utf8_lossy(&bytes).trim_start().to_owned()
    }
}
