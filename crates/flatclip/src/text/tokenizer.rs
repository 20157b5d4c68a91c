//! Texts to token ids: CLIP's byte-level byte-pair encoding (the original vocabulary, embedded, or one read from a model
//! folder), or the SentencePiece tokenizer of a model folder.

use super::clean;
use super::clean::Cleaning;
use super::sentencepiece::Pieces;
use super::sentencepiece_file::{self, MODEL_FILES};
use super::vocabulary::{
    END_OF_WORD, EOT, SOT, Vocabulary, byte_symbols, merge_of, merge_pairs, parse_json, vocabulary_of,
};
use crate::error::unusable_weights as bad;
use crate::files::read_text;
use crate::{Error, Result};
use regex::Regex;
use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Cuts a text into words: the two markers, English contractions, letters, one number, anything else but space.
static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i:<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d)|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+")
        .expect("the pattern is a constant and every test uses it")
});

/// Turns texts into token ids. Cloning is cheap.
#[derive(Clone)]
pub struct Tokenizer(Kind);

#[derive(Clone)]
enum Kind {
    Clip(Arc<Vocabulary>),
    Pieces(Arc<Pieces>),
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokenizer({})", self.describe())
    }
}

impl Tokenizer {
    /// The original vocabulary of 49 408 tokens.
    pub fn clip() -> Self {
        static CLIP: LazyLock<Tokenizer> = LazyLock::new(|| {
            let mut text = String::new();
            flate2::read::GzDecoder::new(&include_bytes!("data/clip_merges.txt.gz")[..])
                .read_to_string(&mut text)
                .expect("the embedded merges are valid, as every test shows");
            let symbols = byte_symbols();
            let mut names: Vec<String> = symbols.iter().map(|&(_, c)| c.to_string()).collect();
            names.extend(symbols.iter().map(|&(_, c)| format!("{c}{END_OF_WORD}")));
            names.extend(text.lines().map(|line| line.replace(' ', "")));
            names.extend([SOT.to_owned(), EOT.to_owned()]);
            let ids = names.into_iter().enumerate().map(|(id, name)| (name, id as u32)).collect();
            let merges = text.lines().filter_map(|line| line.split_once(' '));
            Vocabulary::new(ids, merges)
                .map(|v| Tokenizer(Kind::Clip(Arc::new(v))))
                .expect("the embedded vocabulary is complete")
        });
        CLIP.clone()
    }

    /// The tokenizer of a model folder: `vocab.json` with `merges.txt`, `tokenizer.json`, or SentencePiece's own file.
    pub(crate) fn from_dir(dir: &Path) -> Result<Self> {
        let [vocab, merges, whole] = ["vocab.json", "merges.txt", "tokenizer.json"].map(|name| dir.join(name));
        if vocab.is_file() && merges.is_file() {
            let ids = vocabulary_of(&vocab, &parse_json(&vocab)?)?;
            let text = read_text(&merges)?;
            return Self::build(&vocab, ids, merge_pairs(&text).map_err(|reason| bad(&merges, reason))?.into_iter());
        }
        if whole.is_file() {
            return Self::from_tokenizer_json(&whole);
        }
        if let Some(model) = MODEL_FILES.iter().map(|name| dir.join(name)).find(|path| path.is_file()) {
            return sentencepiece_file::from_model(&model).map(Self::of_pieces);
        }
        let found = [&vocab, &merges].into_iter().find(|file| file.is_file());
        let found = found.and_then(|file| file.file_name()).map_or("neither".into(), |name| name.to_string_lossy());
        let expected = "expected vocab.json with merges.txt, tokenizer.json, or spiece.model";
        Err(bad(dir, format!("{expected}; found {found}")))
    }

    /// From the contents of `vocab.json` and `merges.txt`; `path` is that of the first, for messages.
    pub(crate) fn from_bytes(path: &Path, vocab: &[u8], merges: &[u8]) -> Result<Self> {
        let json = serde_json::from_slice(vocab).map_err(|e| bad(path, format!("not JSON: {e}")))?;
        let text = std::str::from_utf8(merges);
        let text = text.map_err(|e| bad(path, format!("merges.txt beside it is not text: {e}")))?;
        let merges = merge_pairs(text).map_err(|reason| bad(path, reason))?;
        Self::build(path, vocabulary_of(path, &json)?, merges.into_iter())
    }

    fn from_tokenizer_json(path: &Path) -> Result<Self> {
        let root = parse_json(path)?;
        let model = root.get("model").ok_or_else(|| bad(path, "no `model` in this tokenizer file"))?;
        if model["type"] == "Unigram" || model["byte_fallback"] == true {
            return sentencepiece_file::from_json(path, &root).map(Self::of_pieces);
        }
        // Other kinds (WordPiece, byte pairs without word ends of GPT-2) cut texts in other ways.
        let kind = model["type"].as_str().unwrap_or("BPE");
        let suffix = model["end_of_word_suffix"].as_str().unwrap_or(END_OF_WORD);
        if kind != "BPE" || suffix != END_OF_WORD {
            let reason = format!(
                "a tokenizer of kind {kind:?} with word ends {suffix:?}; expected CLIP's BPE with word ends \
                 {END_OF_WORD:?}, Unigram, or BPE with byte_fallback"
            );
            return Err(bad(path, reason));
        }
        let mut ids = vocabulary_of(path, model.get("vocab").ok_or_else(|| bad(path, "no `model.vocab`"))?)?;
        for token in root["added_tokens"].as_array().into_iter().flatten() {
            if let (Some(name), Some(id)) = (token["content"].as_str(), token["id"].as_u64()) {
                let id = u32::try_from(id).map_err(|_| bad(path, "a token id is above 2^32"))?;
                ids.insert(name.to_owned(), id);
            }
        }
        let merges = model["merges"].as_array().ok_or_else(|| bad(path, "no `model.merges`"))?;
        let pairs: Option<Vec<_>> = merges.iter().map(merge_of).collect();
        let pairs = pairs.ok_or_else(|| bad(path, "`model.merges` holds something else than pairs"))?;
        Self::build(path, ids, pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())))
    }

    fn build<'a>(
        path: &Path,
        ids: HashMap<String, u32>,
        merges: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let vocabulary = Vocabulary::new(ids, merges).map_err(|reason| bad(path, reason))?;
        Ok(Self(Kind::Clip(Arc::new(vocabulary))))
    }

    fn of_pieces(pieces: Pieces) -> Self {
        Self(Kind::Pieces(Arc::new(pieces)))
    }

    /// A SentencePiece tokenizer of a folder, whose texts are cleaned as that class of transformers (`SiglipTokenizer`,
    /// `Siglip2Tokenizer`, `GemmaTokenizer`) or that word of open_clip (`canonicalize`) requires.
    pub fn from_dir_cleaned(dir: &Path, cleaning: &str) -> Result<Self> {
        let cleaning = match cleaning {
            "GemmaTokenizer" => Some(Cleaning::Nothing),
            word => Cleaning::named("transformers", word).or_else(|| Cleaning::named("open_clip", word)),
        };
        match (Self::from_dir(dir)?.0, cleaning) {
            (Kind::Pieces(mut pieces), Some(cleaning)) => {
                if let Some(pieces) = Arc::get_mut(&mut pieces) {
                    pieces.cleaning = cleaning;
                }
                Ok(Self(Kind::Pieces(pieces)))
            }
            _ => Err(Error::config("cleaning", "expected a SentencePiece tokenizer and a cleaning that is known")),
        }
    }

    /// Kind, size and cleaning, in words.
    pub fn describe(&self) -> String {
        match &self.0 {
            Kind::Clip(vocabulary) => format!("CLIP BPE, {} tokens", vocabulary.bytes.len()),
            Kind::Pieces(pieces) => pieces.describe(),
        }
    }

    /// The token that starts a text, where there is one.
    pub fn start(&self) -> Option<u32> {
        match &self.0 {
            Kind::Clip(vocabulary) => Some(vocabulary.sot),
            Kind::Pieces(_) => None,
        }
    }

    /// The token that starts a text, or ends it where none starts it.
    pub(crate) fn sot(&self) -> u32 {
        self.start().unwrap_or(self.eot())
    }

    /// The token that ends a text; a CLIP text tower reads its feature there.
    pub fn eot(&self) -> u32 {
        match &self.0 {
            Kind::Clip(vocabulary) => vocabulary.eot,
            Kind::Pieces(pieces) => pieces.eos,
        }
    }

    /// The token that fills a row up to the length that the text tower reads; `None` where rows end at their last token.
    pub fn padding(&self) -> Option<u32> {
        match &self.0 {
            Kind::Clip(_) => None,
            Kind::Pieces(pieces) => Some(pieces.pad),
        }
    }

    /// The tokens of a text, cleaned as the model's own tokenizer does, without start and end.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let vocabulary = match &self.0 {
            Kind::Clip(vocabulary) => vocabulary,
            Kind::Pieces(pieces) => return pieces.encode(text),
        };
        let text = clean(text);
        let mut ids = Vec::new();
        for word in WORDS.find_iter(&text) {
            match word.as_str() {
                SOT => ids.push(vocabulary.sot),
                EOT => ids.push(vocabulary.eot),
                word => vocabulary.merge(word.as_bytes(), &mut ids),
            }
        }
        ids
    }

    /// The same for a text that follows other words: some tokenizers write the space between them at its beginning.
    pub fn encode_following(&self, text: &str) -> Vec<u32> {
        match &self.0 {
            Kind::Clip(_) => self.encode(text),
            Kind::Pieces(pieces) => pieces.encode_following(text),
        }
    }

    /// Start, the tokens of the text, end; padded where the tokenizer pads. A text that does not fit into `context_length` is an error,
    /// unless `truncate` is set; its last token is then the end.
    pub fn sequence(&self, text: &str, context_length: usize, truncate: bool) -> Result<Vec<u32>> {
        let mut ids = Vec::from_iter(self.start());
        ids.extend(self.encode(text));
        ids.push(self.eot());
        if ids.len() > context_length {
            if !truncate || context_length == 0 {
                let reason = format!(
                    "{} tokens with start and end, but the model reads {context_length}; shorten it or allow truncation",
                    ids.len()
                );
                return Err(Error::Text { text: text.chars().take(60).collect(), reason });
            }
            ids.truncate(context_length);
            ids[context_length - 1] = self.eot();
        }
        if let Some(padding) = self.padding() {
            ids.resize(context_length, padding);
        }
        Ok(ids)
    }

    /// The text of tokens, words divided by spaces; the markers are skipped.
    pub fn decode(&self, ids: &[u32]) -> String {
        let vocabulary = match &self.0 {
            Kind::Clip(vocabulary) => vocabulary,
            Kind::Pieces(pieces) => return pieces.decode(ids),
        };
        let bytes = ids.iter().filter_map(|&id| vocabulary.bytes.get(id as usize)).flatten();
        String::from_utf8_lossy(&bytes.copied().collect::<Vec<u8>>()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ids_and_golden_strings() {
        let tokenizer = Tokenizer::clip();
        let ids = tokenizer.sequence("a photo of a cat.", 77, false).unwrap();
        assert_eq!(ids, [49406, 320, 1125, 539, 320, 2368, 269, 49407]);
        assert_eq!(tokenizer.encode("X"), [343]);
        let path = crate::files::fixture("golden/tokenizer-visible-1.json");
        let golden: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let ids = |key: &str| serde_json::from_value::<Option<Vec<u32>>>(case[key].clone()).unwrap();
            if let Some(plain) = ids("bpe_ids") {
                assert_eq!(tokenizer.encode(text), plain, "{text:?}");
            }
            assert_eq!(tokenizer.sequence(text, 77, true).unwrap(), ids("ids").unwrap(), "{text:?}");
            assert_eq!(tokenizer.sequence(text, 77, false).is_err(), case["overflow"].as_bool().unwrap(), "{text:?}");
        }
    }

    #[test]
    fn an_over_long_text_is_an_error_that_says_how_long() {
        let error = Tokenizer::clip().sequence(&"cat ".repeat(76), 77, false).unwrap_err();
        assert_eq!(error.code(), "text.unusable");
        assert!(error.to_string().contains("78 tokens"), "{error}");
        let cut = Tokenizer::clip().sequence(&"cat ".repeat(76), 77, true).unwrap();
        assert_eq!((cut.len(), cut[75], cut[76]), (77, 2368, 49407));
    }

    fn small_vocabulary() -> (String, String) {
        let mut names: Vec<String> = byte_symbols().iter().map(|&(_, c)| c.to_string()).collect();
        names.extend(byte_symbols().iter().map(|&(_, c)| format!("{c}{END_OF_WORD}")));
        names.extend(["ca", "cat</w>", SOT, EOT].map(String::from));
        let map: serde_json::Map<_, _> = names.into_iter().enumerate().map(|(i, n)| (n, i.into())).collect();
        (serde_json::Value::Object(map).to_string(), "#version: 0.2\nc a\nca t</w>\n".into())
    }

    fn written(dir: &tempfile::TempDir, files: &[(&str, &str)]) -> Result<Tokenizer> {
        files.iter().for_each(|(name, text)| std::fs::write(dir.path().join(name), text).unwrap());
        Tokenizer::from_dir(dir.path())
    }

    #[test]
    fn a_folder_brings_its_own_vocabulary_in_either_layout() {
        let (vocab, merges) = small_vocabulary();
        let files = [("vocab.json", vocab.as_str()), ("merges.txt", &merges)];
        let two_files = written(&tempfile::tempdir().unwrap(), &files).unwrap();
        assert_eq!(two_files.sequence("cat ca", 77, false).unwrap(), [514, 513, 66, 320, 515]);
        assert_eq!(two_files.decode(&[514, 513, 66, 320, 515]), "cat ca ");
        let file = format!(r#"{{"added_tokens":[],"model":{{"vocab":{vocab},"merges":["c a",["ca","t</w>"]]}}}}"#);
        let one = written(&tempfile::tempdir().unwrap(), &[("tokenizer.json", &file)]).unwrap();
        assert_eq!(one.encode("cat ca"), two_files.encode("cat ca"));
    }

    #[test]
    fn a_broken_vocabulary_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(written(&dir, &[]).unwrap_err().to_string().contains("merges.txt"));
        for (content, word) in
            [("{", "not JSON"), ("[]", "object"), (r#"{"a":-1}"#, "object"), (r#"{"a":0}"#, "startoftext")]
        {
            let error = written(&dir, &[("merges.txt", "a b\n"), ("vocab.json", content)]).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("vocab.json"), "{error}");
        }
    }

    #[test]
    fn cut_merges_and_other_tokenizers_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (vocab, _) = small_vocabulary();
        let refused =
            |merges| written(&dir, &[("vocab.json", &vocab), ("merges.txt", merges)]).unwrap_err().to_string();
        assert!(refused("#version: 0.2\nc a\n").contains("no merge makes the token \"cat</w>\""));
        assert!(refused("#version: 0.2\nc a\nca t</").contains("no token"));
        assert!(refused("#version: 0.2\nc a\nca").contains("line 3"));
        std::fs::remove_file(dir.path().join("merges.txt")).unwrap();
        assert!(written(&dir, &[]).unwrap_err().to_string().contains("found vocab.json"));
        let one = |kind: &str| {
            let merges = r#"["c a","ca t</w>"]"#;
            let file = format!(r#"{{"model":{{"type":"{kind}","vocab":{vocab},"merges":{merges}}}}}"#);
            written(&dir, &[("tokenizer.json", &file)]).map(|t| t.encode("cat"))
        };
        assert_eq!(one("BPE").unwrap(), [513]);
        assert!(one("WordPiece").unwrap_err().to_string().contains("WordPiece"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_tokens_that_exist(text in "\\PC*|[&#;xA-Fa-f0-9<]*|[ÃÂâ€œ©à \u{80}-\u{bf}]*") {
            let tokenizer = Tokenizer::clip();
            let ids = tokenizer.encode(&text);
            proptest::prop_assert!(ids.iter().all(|&id| id < 49408));
            proptest::prop_assert_eq!(tokenizer.encode(&text), ids);
        }
    }
}
