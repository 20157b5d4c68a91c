//! SentencePiece tokenizers of SigLIP (Unigram) and SigLIP 2 (Gemma's byte pairs): rows of one length, no start token, an end
//! token, padding. The `tokenizers` crate cuts words into pieces; cleaning and the row are ours.

use super::clean::Cleaning;
use crate::{Error, Result};
use regex::Regex;
use std::collections::HashMap;
use std::path::Path;
use tokenizers::Model as _;
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::Precompiled;

/// The character that represents a space in pieces.
const SPACE: char = '\u{2581}';

/// What cuts text into pieces.
pub(super) enum Cutter {
    /// Words one after the other, each with a space before it; characters are normalised by the table, if there is one.
    Unigram(Box<Unigram>, Option<Precompiled>),
    /// The whole text, byte by byte where there is no piece.
    Bpe(Box<BPE>),
}

impl Cutter {
    /// The id of a token.
    pub(super) fn id(&self, name: &str) -> Option<u32> {
        match self {
            Self::Unigram(model, _) => model.token_to_id(name),
            Self::Bpe(model) => model.token_to_id(name),
        }
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
        let wrong = |reason: String| Error::Weights { path: path.to_path_buf(), reason };
        let id = |name: &str| {
            let found = markers.get(name).copied().or_else(|| cutter.id(name));
            found.ok_or_else(|| wrong(format!("the vocabulary has no token {name:?}")))
        };
        let (eos, pad) = (id(eos)?, id(pad)?);
        // The longest first: of two markers that begin alike the longer is meant.
        let mut names: Vec<&String> = markers.keys().collect();
        names.sort_by_key(|name| (std::cmp::Reverse(name.len()), *name));
        let names: Vec<String> = names.into_iter().map(|name| regex::escape(name)).collect();
        let pattern = (!names.is_empty()).then(|| Regex::new(&names.join("|"))).transpose();
        let pattern = pattern.map_err(|e| wrong(format!("too many added tokens: {e}")))?;
        Ok(Self { cutter, markers, pattern, cleaning, eos, pad })
    }

    /// Kind, size and cleaning.
    pub(super) fn describe(&self) -> String {
        let (kind, size) = match &self.cutter {
            Cutter::Unigram(model, _) => ("Unigram", model.get_vocab_size()),
            Cutter::Bpe(model) => ("BPE", model.get_vocab_size()),
        };
        let Self { eos, pad, cleaning, .. } = self;
        format!("SentencePiece {kind}, {size} tokens, end {eos}, padding {pad}; cleaning: {}", cleaning.name())
    }

    /// The tokens of a text, without the end.
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        self.encode_cleaned(&self.cleaning.whole(text))
    }

    /// The same behind other words: Unigram has a space before every word, the first included, byte pairs do not.
    pub(super) fn encode_following(&self, text: &str) -> Vec<u32> {
        let text = self.cleaning.whole(text);
        let space = if matches!(self.cutter, Cutter::Bpe(_)) && !text.is_empty() { " " } else { "" };
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
        let mut add = |pieces: tokenizers::Result<Vec<tokenizers::Token>>| {
            // Only a vocabulary without the unknown token fails, which is refused when it is read.
            ids.extend(pieces.expect("the unknown token exists").into_iter().map(|token| token.id));
        };
        match &self.cutter {
            Cutter::Unigram(model, table) => {
                let text = table.as_ref().map_or(text.clone(), |table| table.normalize_string(&text));
                for (at, word) in text.split_whitespace().enumerate() {
                    // Behind a marker the first word has no space before it, as in transformers.
                    let bare = (at == 0 && !first) || word.starts_with(SPACE);
                    add(if bare { model.tokenize(word) } else { model.tokenize(&format!("{SPACE}{word}")) });
                }
            }
            Cutter::Bpe(model) if !text.is_empty() => add(model.tokenize(&text.replace(' ', "\u{2581}"))),
            Cutter::Bpe(_) => {}
        }
    }

    /// The text of tokens; the end and padding are skipped.
    pub(super) fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &id in ids.iter().filter(|&&id| id != self.eos && id != self.pad) {
            let piece = match &self.cutter {
                Cutter::Unigram(model, _) => model.id_to_token(id),
                Cutter::Bpe(model) => model.id_to_token(id),
            };
            let piece = piece.unwrap_or_default();
            let byte = piece.strip_prefix("<0x").and_then(|hex| hex.strip_suffix('>'));
            match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                Some(byte) => bytes.push(byte),
                None => bytes.extend(piece.replace(SPACE, " ").bytes()),
            }
        }
        String::from_utf8_lossy(&bytes).trim_start().to_owned()
    }
}
