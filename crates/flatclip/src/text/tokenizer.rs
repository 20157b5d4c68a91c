//! CLIP's byte-level byte-pair encoding: the original vocabulary, embedded, or one read from a model folder.

use super::clean;
use crate::{Error, Result};
use regex::Regex;
use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

const SOT: &str = "<|startoftext|>";
const EOT: &str = "<|endoftext|>";
const END_OF_WORD: &str = "</w>";
/// More than any vocabulary file holds; larger ones are refused unread.
const FILE_LIMIT: u64 = 256 << 20;

/// Cuts a text into words: the two markers, English contractions, letters, one number, anything else but space.
static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i:<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d)|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+")
        .expect("the pattern is a constant and every test uses it")
});

/// Turns texts into token ids. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Tokenizer(Arc<Vocabulary>);

struct Vocabulary {
    /// Token of each byte inside a word, and at its end.
    inside: [u32; 256],
    last: [u32; 256],
    /// A pair of tokens that merges: its rank and the token it becomes.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Bytes of each token, with a space for the end of a word; empty for the markers.
    bytes: Vec<Vec<u8>>,
    sot: u32,
    eot: u32,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vocabulary({} tokens, {} merges)", self.bytes.len(), self.merges.len())
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
            Vocabulary::new(ids, merges).map(|v| Tokenizer(Arc::new(v))).expect("the embedded vocabulary is complete")
        });
        CLIP.clone()
    }

    /// The vocabulary of a model folder: `vocab.json` with `merges.txt`, or `tokenizer.json`.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        let (vocab, merges) = (dir.join("vocab.json"), dir.join("merges.txt"));
        let whole = dir.join("tokenizer.json");
        if vocab.is_file() && merges.is_file() {
            let ids = vocabulary_of(&vocab, &parse_json(&vocab)?)?;
            let text = read_text(&merges)?;
            return Self::build(&vocab, ids, merge_pairs(&text));
        }
        if whole.is_file() {
            return Self::from_tokenizer_json(&whole);
        }
        Err(Error::Weights {
            path: dir.to_path_buf(),
            reason: "no tokenizer here: expected vocab.json with merges.txt, or tokenizer.json".into(),
        })
    }

    /// From the contents of `vocab.json` and `merges.txt`; `path` stands for the first in messages.
    pub fn from_bytes(path: &Path, vocab: &[u8], merges: &[u8]) -> Result<Self> {
        let wrong = |reason: String| Error::Weights { path: path.to_path_buf(), reason };
        let json = serde_json::from_slice(vocab).map_err(|e| wrong(format!("not JSON: {e}")))?;
        let text = std::str::from_utf8(merges).map_err(|e| wrong(format!("merges.txt beside it is not text: {e}")))?;
        Self::build(path, vocabulary_of(path, &json)?, merge_pairs(text))
    }

    fn from_tokenizer_json(path: &Path) -> Result<Self> {
        let root = parse_json(path)?;
        let wrong = |reason: &str| Error::Weights { path: path.to_path_buf(), reason: reason.into() };
        let model = root.get("model").ok_or_else(|| wrong("no `model` in this tokenizer file"))?;
        let mut ids = vocabulary_of(path, model.get("vocab").ok_or_else(|| wrong("no `model.vocab`"))?)?;
        for token in root.get("added_tokens").and_then(|t| t.as_array()).into_iter().flatten() {
            if let (Some(name), Some(id)) = (token["content"].as_str(), token["id"].as_u64()) {
                ids.insert(name.to_owned(), u32::try_from(id).map_err(|_| wrong("a token id is above 2^32"))?);
            }
        }
        let merges = model.get("merges").and_then(|m| m.as_array()).ok_or_else(|| wrong("no `model.merges`"))?;
        // Older files write "a b", newer ones ["a", "b"].
        let pair = |m: &'_ serde_json::Value| match m {
            serde_json::Value::String(s) => s.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())),
            other => Some((other.get(0)?.as_str()?.to_owned(), other.get(1)?.as_str()?.to_owned())),
        };
        let pairs: Option<Vec<_>> = merges.iter().map(pair).collect();
        let pairs = pairs.ok_or_else(|| wrong("`model.merges` holds something else than pairs"))?;
        Self::build(path, ids, pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())))
    }

    fn build<'a>(
        path: &Path,
        ids: HashMap<String, u32>,
        merges: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let vocabulary = Vocabulary::new(ids, merges);
        let vocabulary = vocabulary.map_err(|reason| Error::Weights { path: path.to_path_buf(), reason })?;
        Ok(Self(Arc::new(vocabulary)))
    }

    /// The token that starts a text.
    pub fn sot(&self) -> u32 {
        self.0.sot
    }

    /// The token that ends a text, where its feature is read.
    pub fn eot(&self) -> u32 {
        self.0.eot
    }

    /// One more than the largest id.
    pub fn vocabulary_size(&self) -> usize {
        self.0.bytes.len()
    }

    /// The tokens of a text, cleaned as CLIP does, without start and end.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let text = clean(text);
        let mut ids = Vec::new();
        for word in WORDS.find_iter(&text) {
            match word.as_str() {
                SOT => ids.push(self.0.sot),
                EOT => ids.push(self.0.eot),
                word => self.0.merge(word.as_bytes(), &mut ids),
            }
        }
        ids
    }

    /// Start, the tokens of the text, end; not padded. A text that does not fit into `context_length` is an error,
    /// unless `truncate` asks to cut it; its last token is then the end.
    pub fn sequence(&self, text: &str, context_length: usize, truncate: bool) -> Result<Vec<u32>> {
        let mut ids = vec![self.sot()];
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
        Ok(ids)
    }

    /// The text of tokens, words divided by spaces; the markers are left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes = ids.iter().filter_map(|&id| self.0.bytes.get(id as usize)).flatten();
        String::from_utf8_lossy(&bytes.copied().collect::<Vec<u8>>()).into_owned()
    }
}

/// The pairs of a `merges.txt`.
fn merge_pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter(|l| !l.starts_with("#version")).filter_map(|l| l.trim_end().split_once(' '))
}

impl Vocabulary {
    fn new<'a>(ids: HashMap<String, u32>, merges: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let id = |name: &str| ids.get(name).copied().ok_or_else(|| format!("the vocabulary has no token {name:?}"));
        let mut made = Self {
            inside: [0; 256],
            last: [0; 256],
            merges: HashMap::new(),
            bytes: vec![Vec::new(); ids.len()],
            sot: id(SOT)?,
            eot: id(EOT)?,
        };
        let symbols = byte_symbols();
        for &(byte, symbol) in &symbols {
            made.inside[usize::from(byte)] = id(&symbol.to_string())?;
            made.last[usize::from(byte)] = id(&format!("{symbol}{END_OF_WORD}"))?;
        }
        for (rank, (left, right)) in merges.enumerate() {
            made.merges.entry((id(left)?, id(right)?)).or_insert((rank as u32, id(&format!("{left}{right}"))?));
        }
        let bytes: HashMap<char, u8> = symbols.iter().map(|&(byte, symbol)| (symbol, byte)).collect();
        let mut names: Vec<(&String, &u32)> = ids.iter().collect();
        names.sort();
        for (name, &id) in names {
            let count = ids.len();
            let place = made.bytes.get_mut(id as usize);
            let place =
                place.ok_or_else(|| format!("token {name:?} has id {id}, but there are only {count} tokens"))?;
            if name != SOT && name != EOT {
                let (word, end) = name.strip_suffix(END_OF_WORD).map_or((name.as_str(), false), |w| (w, true));
                *place = word.chars().filter_map(|c| bytes.get(&c).copied()).chain(end.then_some(b' ')).collect();
            }
        }
        Ok(made)
    }

    /// Joins the pair of lowest rank, everywhere in the word, until no pair is known.
    fn merge(&self, word: &[u8], out: &mut Vec<u32>) {
        let Some((&last, inside)) = word.split_last() else { return };
        let mut ids: Vec<u32> = inside.iter().map(|&b| self.inside[usize::from(b)]).collect();
        ids.push(self.last[usize::from(last)]);
        loop {
            let ranked = ids
                .windows(2)
                .filter_map(|p| self.merges.get(&(p[0], p[1])).map(|&(rank, new)| (rank, new, (p[0], p[1]))));
            let Some((_, new, pair)) = ranked.min() else { break };
            let mut kept = 0;
            let mut at = 0;
            while at < ids.len() {
                let joins = at + 1 < ids.len() && (ids[at], ids[at + 1]) == pair;
                ids[kept] = if joins { new } else { ids[at] };
                at += if joins { 2 } else { 1 };
                kept += 1;
            }
            ids.truncate(kept);
        }
        out.extend(ids);
    }
}

/// Every byte with the printable character that stands for it, in the order of the vocabulary.
fn byte_symbols() -> Vec<(u8, char)> {
    let printable = |b: &u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let shown = (0..=255u8).filter(printable).map(|b| (b, char::from(b)));
    let rest = (0..=255u8).filter(|b| !printable(b));
    shown.chain(rest.zip('\u{100}'..)).collect()
}

fn read_text(path: &Path) -> Result<String> {
    let size = std::fs::metadata(path).map_err(Error::io(path))?.len();
    if size > FILE_LIMIT {
        return Err(Error::Limit {
            what: path.display().to_string(),
            asked: size,
            allowed: FILE_LIMIT,
            hint: "this is no tokenizer file".into(),
        });
    }
    std::fs::read_to_string(path).map_err(Error::io(path))
}

fn parse_json(path: &Path) -> Result<serde_json::Value> {
    let wrong = |e: serde_json::Error| Error::Weights { path: PathBuf::from(path), reason: format!("not JSON: {e}") };
    serde_json::from_str(&read_text(path)?).map_err(wrong)
}

fn vocabulary_of(path: &Path, value: &serde_json::Value) -> Result<HashMap<String, u32>> {
    let wrong = || Error::Weights { path: path.to_path_buf(), reason: "expected an object of token to id".into() };
    let id = |v: &serde_json::Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
    let entries = value.as_object().ok_or_else(wrong)?.iter();
    entries.map(|(name, v)| Ok((name.clone(), id(v).ok_or_else(wrong)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ids() {
        let tokenizer = Tokenizer::clip();
        assert_eq!(tokenizer.vocabulary_size(), 49408);
        let ids = tokenizer.sequence("a photo of a cat.", 77, false).unwrap();
        assert_eq!(ids, [49406, 320, 1125, 539, 320, 2368, 269, 49407]);
        assert_eq!(tokenizer.encode("X"), [343]);
    }

    #[test]
    fn golden_strings() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden/tokenizer-visible-1.json");
        let golden: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let tokenizer = Tokenizer::clip();
        for case in golden["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let list = |key: &str| {
                case[key]
                    .as_array()
                    .map(|ids| ids.iter().filter_map(|v| v.as_u64()).map(|id| id as u32).collect::<Vec<u32>>())
            };
            let ids = |key: &str| list(key).unwrap();
            if let Some(plain) = list("bpe_ids") {
                assert_eq!(tokenizer.encode(text), plain, "{text:?}");
            }
            assert_eq!(tokenizer.sequence(text, 77, true).unwrap(), ids("ids"), "{text:?}");
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

    #[test]
    fn a_folder_brings_its_own_vocabulary_in_either_layout() {
        let dir = tempfile::tempdir().unwrap();
        let (vocab, merges) = small_vocabulary();
        std::fs::write(dir.path().join("vocab.json"), &vocab).unwrap();
        std::fs::write(dir.path().join("merges.txt"), &merges).unwrap();
        let two_files = Tokenizer::from_dir(dir.path()).unwrap();
        assert_eq!(two_files.sequence("cat ca", 77, false).unwrap(), [514, 513, 66, 320, 515]);
        assert_eq!(two_files.decode(&[514, 513, 66, 320, 515]), "cat ca ");

        let one = tempfile::tempdir().unwrap();
        let file = format!(r#"{{"added_tokens":[],"model":{{"vocab":{vocab},"merges":["c a",["ca","t</w>"]]}}}}"#);
        std::fs::write(one.path().join("tokenizer.json"), file).unwrap();
        assert_eq!(Tokenizer::from_dir(one.path()).unwrap().encode("cat ca"), two_files.encode("cat ca"));
    }

    #[test]
    fn a_broken_vocabulary_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Tokenizer::from_dir(dir.path()).unwrap_err().to_string().contains("merges.txt"));
        std::fs::write(dir.path().join("merges.txt"), "a b\n").unwrap();
        for (content, word) in
            [("{", "not JSON"), ("[]", "object"), (r#"{"a":-1}"#, "object"), (r#"{"a":0}"#, "startoftext")]
        {
            std::fs::write(dir.path().join("vocab.json"), content).unwrap();
            let error = Tokenizer::from_dir(dir.path()).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("vocab.json"), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_tokens_that_exist(text in "\\PC*|[&#;xA-Fa-f0-9<]*|[ÃÂâ€œ©à \u{80}-\u{bf}]*") {
            let tokenizer = Tokenizer::clip();
            let ids = tokenizer.encode(&text);
            proptest::prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocabulary_size()));
            proptest::prop_assert_eq!(tokenizer.encode(&text), ids);
        }
    }
}
