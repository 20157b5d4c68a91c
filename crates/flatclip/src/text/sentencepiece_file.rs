//! SentencePiece tokenizers from files: `tokenizer.json` of the `tokenizers` library, or SentencePiece's own `spiece.model`.
//! Everything that the `tokenizers` crate takes for granted is checked here.

use super::clean::Cleaning;
use super::sentencepiece::{Cutter, Pieces};
use super::vocabulary::{merge_of, parse_json, vocabulary_of};
use crate::error::unusable_weights as bad;
use crate::{Error, Result};
use base64::Engine as _;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::Precompiled;

/// mT5 has 250 100 tokens, Gemma 256 000, the largest published vocabulary of a CLIP-like model 901 629.
const MAX_TOKENS: usize = 1 << 20;
/// The longest piece of Gemma has 48 bytes.
const MAX_PIECE: usize = 1024;
/// The largest `.model` has 4 MB.
const MAX_MODEL: u64 = 64 << 20;
/// Names of SentencePiece's own files.
pub(super) const MODEL_FILES: [&str; 2] = ["spiece.model", "tokenizer.model"];

fn unigram(path: &Path, pieces: Vec<(String, f64)>, unknown: Option<u64>, table: Option<Vec<u8>>) -> Result<Cutter> {
    check_pieces(path, pieces.iter().map(|(piece, _)| piece.as_str()))?;
    if let Some((piece, score)) = pieces.iter().find(|(_, score)| !score.is_finite()) {
        return Err(bad(path, format!("piece {piece:?} has the score {score}")));
    }
    let unknown = unknown.filter(|&id| id < pieces.len() as u64);
    let unknown = unknown.ok_or_else(|| bad(path, "there is no unknown token; expected its id in `unk_id`"))?;
    let table = table.filter(|table| !table.is_empty()).map(|table| {
        check_charsmap(&table).map_err(|reason| bad(path, reason))?;
        Precompiled::from(&table).map_err(|e| bad(path, e.to_string()))
    });
    let model = Unigram::from(pieces, Some(unknown as usize), false).map_err(|e| bad(path, e.to_string()))?;
    Ok(Cutter { model: model.into(), table: table.transpose()? })
}

fn bpe(path: &Path, ids: HashMap<String, u32>, merges: Vec<(String, String)>, unknown: &str) -> Result<Cutter> {
    check_pieces(path, ids.keys().map(String::as_str))?;
    if !ids.contains_key(unknown) {
        return Err(bad(path, format!("the vocabulary has no token {unknown:?}, the unknown one")));
    }
    // With every byte a token, no text is unknown.
    if let Some(byte) = (0..=255).map(|byte| format!("<0x{byte:02X}>")).find(|byte| !ids.contains_key(byte)) {
        return Err(bad(path, format!("the vocabulary has no token {byte:?}; expected one for every byte")));
    }
    let has = |piece: &str| ids.contains_key(piece);
    if let Some((a, b)) = merges.iter().find(|(a, b)| !has(a) || !has(b) || !has(&format!("{a}{b}"))) {
        return Err(bad(path, format!("the pair {a:?} {b:?} makes no token of the vocabulary")));
    }
    let builder =
        BPE::builder().vocab_and_merges(ids.into_iter().collect::<Vocab>(), merges).unk_token(unknown.to_owned());
    let model = builder.fuse_unk(true).byte_fallback(true).cache_capacity(0).build();
    Ok(Cutter { model: model.map_err(|e| bad(path, e.to_string()))?.into(), table: None })
}

fn check_pieces<'p>(path: &Path, pieces: impl Iterator<Item = &'p str>) -> Result<()> {
    let mut count = 0;
    for piece in pieces {
        count += 1;
        if piece.is_empty() || piece.len() > MAX_PIECE {
            return Err(bad(path, format!("a token has {} bytes; expected 1 to {MAX_PIECE}", piece.len())));
        }
    }
    if count == 0 || count > MAX_TOKENS {
        return Err(bad(path, format!("the vocabulary has {count} tokens; expected 1 to {MAX_TOKENS}")));
    }
    Ok(())
}

/// The cutter of a `tokenizer.json`, and its markers.
fn cutter_of(path: &Path, root: &Value) -> Result<(Cutter, HashMap<String, u32>)> {
    let model = &root["model"];
    let no = |key: &str| bad(path, format!("no `{key}`, or not of the expected form"));
    let cutter = if model["type"] == "Unigram" {
        let piece = |pair: &Value| Some((pair.get(0)?.as_str()?.to_owned(), pair.get(1)?.as_f64()?));
        let pieces: Option<Vec<_>> = model["vocab"].as_array().and_then(|list| list.iter().map(piece).collect());
        let table = normaliser(path, &root["normalizer"])?;
        unigram(path, pieces.ok_or_else(|| no("model.vocab"))?, model["unk_id"].as_u64(), table)?
    } else {
        let replaces = |value: &Value| value["pattern"]["String"] == " " && value["content"] == "\u{2581}";
        if !normalizers(&root["normalizer"]).into_iter().any(replaces) {
            return Err(bad(path, "expected a normalizer that writes spaces as U+2581"));
        }
        let ids = vocabulary_of(path, &model["vocab"])?;
        let merges: Option<Vec<_>> = model["merges"].as_array().and_then(|list| list.iter().map(merge_of).collect());
        let unknown = model["unk_token"].as_str().ok_or_else(|| no("model.unk_token"))?;
        bpe(path, ids, merges.ok_or_else(|| no("model.merges"))?, unknown)?
    };
    let mut markers = HashMap::new();
    for token in root["added_tokens"].as_array().into_iter().flatten() {
        let id = token["id"].as_u64().filter(|&id| id < MAX_TOKENS as u64);
        let name = token["content"].as_str().filter(|name| !name.is_empty() && name.len() <= MAX_PIECE);
        let (Some(id), Some(name)) = (id, name) else { return Err(no("added_tokens")) };
        markers.insert(name.to_owned(), id as u32);
    }
    Ok((cutter, markers))
}

/// The table of normalisations. Beside it published files only join and strip spaces, which splitting at spaces does.
fn normaliser(path: &Path, value: &Value) -> Result<Option<Vec<u8>>> {
    let mut table = None;
    for part in normalizers(value) {
        match part["type"].as_str() {
            Some("Precompiled") => {
                let text = part["precompiled_charsmap"].as_str().unwrap_or_default();
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                table = Some(bytes.map_err(|e| bad(path, format!("precompiled_charsmap: {e}")))?);
            }
            Some("Strip") => {}
            Some("Replace") if part["pattern"]["Regex"] == " {2,}" => {}
            kind => {
                let reason = format!("normalizer {}: flatclip does not compute it", kind.unwrap_or("(no type)"));
                return Err(bad(path, reason));
            }
        }
    }
    Ok(table)
}
/// The normalizer, or those of a sequence.
fn normalizers(value: &Value) -> Vec<&Value> {
    match value {
        Value::Null => Vec::new(),
        value if value["type"] == "Sequence" => value["normalizers"].as_array().into_iter().flatten().collect(),
        value => vec![value],
    }
}

/// From a parsed `tokenizer.json`; the files next to it define how texts are cleaned and rows are padded.
pub(super) fn from_json(path: &Path, root: &Value) -> Result<Pieces> {
    let (cutter, markers) = cutter_of(path, root)?;
    finish(path, cutter, markers)
}

/// From SentencePiece's own file. Byte pairs need merges, which only `tokenizer.json` has.
pub(super) fn from_model(path: &Path) -> Result<Pieces> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(Error::io(path))?;
    file.take(MAX_MODEL + 1).read_to_end(&mut bytes).map_err(Error::io(path))?;
    if bytes.len() as u64 > MAX_MODEL {
        return Err(bad(path, format!("more than {MAX_MODEL} bytes; the largest published file has 4 MB")));
    }
    let (mut pieces, mut kind, mut table, mut unknown) = (Vec::new(), 1, None, None);
    let cut = || bad(path, "not a SentencePiece model, or cut off");
    for field in fields(&bytes) {
        match field.ok_or_else(cut)? {
            (1, Wire::Bytes(piece)) => {
                let (mut text, mut score, mut sort) = ("", 0.0, 1);
                for field in fields(piece) {
                    match field.ok_or_else(cut)? {
                        (1, Wire::Bytes(bytes)) => text = std::str::from_utf8(bytes).map_err(|_| cut())?,
                        (2, Wire::Four(bits)) => score = f64::from(f32::from_bits(bits)),
                        (3, Wire::Number(number)) => sort = number,
                        _ => {}
                    }
                }
                if sort == 2 {
                    unknown = Some(pieces.len() as u64);
                }
                pieces.push((text.to_owned(), score));
            }
            // The trainer's settings, and the normaliser's.
            (part @ (2 | 3), Wire::Bytes(message)) => {
                for field in fields(message) {
                    match (part, field.ok_or_else(cut)?) {
                        (2, (3, Wire::Number(number))) => kind = number,
                        (3, (2, Wire::Bytes(bytes))) => table = Some(bytes.to_vec()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if kind != 1 {
        return Err(bad(path, "a SentencePiece model that is not Unigram; expected tokenizer.json beside it"));
    }
    finish(path, unigram(path, pieces, unknown, table)?, HashMap::new())
}

/// Whether every walk through SentencePiece's table of normalisations stays inside it. The `tokenizers` crate trusts its sizes
/// and offsets: a damaged table would allocate gigabytes or stop the program.
///
/// The table is the length of a double array in bytes, the array of `u32`, then texts that end with a zero byte. A walk
/// starts at unit 0; from a unit it goes to `position ^ offset ^ byte`, where the unit's label must be that byte. A unit with
/// the flag of a leaf has its value, the place of a text, at `position ^ offset`.
fn check_charsmap(table: &[u8]) -> Result<(), String> {
    let short = || "the table of normalisations is cut off".to_owned();
    let (size, rest) = table.split_first_chunk::<4>().ok_or_else(short)?;
    let size = u32::from_le_bytes(*size) as usize;
    let (array, texts) = rest.split_at_checked(size / 4 * 4).ok_or_else(short)?;
    let units: Vec<u32> = array.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let texts = std::str::from_utf8(texts).map_err(|_| "the texts of the normalisations are not UTF-8".to_owned())?;
    if units.is_empty() {
        return Err("the table of normalisations is empty".into());
    }
    for (position, &unit) in units.iter().enumerate() {
        if unit >> 31 == 1 {
            continue; // a value
        }
        let next = position ^ ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let value = units.get(next).map(|value| (value & !(1 << 31)) as usize);
        let is_leaf = unit >> 8 & 1 == 1;
        if next | 0xff >= units.len() || (is_leaf && !value.is_some_and(|at| texts.is_char_boundary(at))) {
            return Err(format!("the table of normalisations is damaged at unit {position}"));
        }
    }
    Ok(())
}

/// A value of the protocol buffer format.
enum Wire<'a> {
    Number(u64),
    Four(u32),
    Bytes(&'a [u8]),
    Other,
}

/// The fields of a message, with their numbers; `None` once where the bytes end too early.
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = Option<(u64, Wire<'_>)>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let field = field(&mut bytes);
        if field.is_none() {
            bytes = &[];
        }
        Some(field)
    })
}

fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Wire<'a>)> {
    let key = number(bytes)?;
    let value = match key & 7 {
        0 => Wire::Number(number(bytes)?),
        1 => bytes.split_off(..8).map(|_| Wire::Other)?,
        2 => {
            let count = usize::try_from(number(bytes)?).ok()?;
            Wire::Bytes(bytes.split_off(..count)?)
        }
        5 => Wire::Four(u32::from_le_bytes(bytes.split_off(..4)?.try_into().ok()?)),
        _ => return None,
    };
    Some((key >> 3, value))
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Cleaning and padding: open_clip's configuration next to the tokenizer, else what transformers does for this kind; the
/// names of end and padding are in `tokenizer_config.json`.
fn finish(path: &Path, cutter: Cutter, mut markers: HashMap<String, u32>) -> Result<Pieces> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let is_unigram = cutter.is_unigram();
    let [config, open_clip] = ["tokenizer_config.json", "open_clip_config.json"].map(|name| folder.join(name));
    let config = if config.is_file() { parse_json(&config)? } else { Value::Null };
    let name = |key: &str, usual: &'static str| {
        let value = &config[key];
        value.as_str().or_else(|| value["content"].as_str()).unwrap_or(usual).to_owned()
    };
    let eos = name("eos_token", if is_unigram { "</s>" } else { "<eos>" });
    let pad = name("pad_token", if is_unigram { "</s>" } else { "<pad>" });
    // As transformers does, also where the file lists no added tokens.
    for marker in [eos.clone(), pad.clone(), name("unk_token", "<unk>")] {
        if let Some(id) = cutter.model.token_to_id(&marker) {
            markers.entry(marker).or_insert(id);
        }
    }
    let cleaning = if open_clip.is_file() {
        let json = parse_json(&open_clip)?;
        let word = &json["model_cfg"]["text_cfg"]["tokenizer_kwargs"]["clean"];
        let word = if word.is_null() { "whitespace" } else { word.as_str().unwrap_or("(not a word)") };
        let expected = "tokenizer_kwargs.clean: expected canonicalize, lower or whitespace";
        Cleaning::named("open_clip", word).ok_or_else(|| bad(&open_clip, format!("{expected}, found {word}")))?
    } else if is_unigram {
        Cleaning::Siglip
    } else {
        Cleaning::Siglip2
    };
    Pieces::new(path, cutter, markers, cleaning, [&eos, &pad])
}

#[cfg(test)]
mod tests {
    use super::super::Tokenizer;
    use super::*;
    use crate::rng::Stream;

    fn fixture(name: &str) -> Vec<u8> {
        std::fs::read(crate::files::fixture("golden/models").join(name)).unwrap()
    }

    fn read(name: &str, bytes: &[u8]) -> Result<Tokenizer> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), bytes).unwrap();
        Tokenizer::from_dir(folder.path())
    }

    #[test]
    fn a_row_is_filled_and_cut_and_read_back() {
        let unigram = read("spiece.model", &fixture("tiny-siglip/spiece.model")).unwrap();
        assert_eq!(unigram.sequence("A photo of a cat.", 9, false).unwrap(), [4, 7, 3, 5, 4, 129, 1, 1, 1]);
        assert_eq!(unigram.sequence("a photo of a cat", 4, true).unwrap(), [4, 7, 3, 1]);
        assert!(unigram.sequence("a photo of a cat", 4, false).unwrap_err().to_string().contains("7 tokens"));
        assert_eq!(unigram.decode(&[4, 7, 3, 5, 4, 129, 1, 1]), "a photo of a cat");
        assert_eq!((unigram.start(), unigram.padding()), (None, Some(1)));
        let pairs = read("tokenizer.json", &fixture("tiny-siglip2-hf/tokenizer.json")).unwrap();
        assert_eq!(pairs.sequence("a Photo of a cat", 8, false).unwrap(), [516, 271, 262, 268, 393, 1, 0, 0]);
        assert_eq!(pairs.decode(&pairs.encode("one 😀 face")), "one 😀 face");
        assert!(pairs.describe().contains("BPE, 600 tokens"), "{}", pairs.describe());
    }

    /// Truncated and flipped: an error, or a tokenizer that cuts texts; never a panic, never much memory.
    #[test]
    fn damaged_files_never_panic() {
        let files =
            [("spiece.model", "tiny-siglip/spiece.model"), ("tokenizer.json", "tiny-siglip2-hf/tokenizer.json")];
        for (name, file) in files {
            let whole = fixture(file);
            let mut stream = Stream::new(3, &["damage", name]);
            let mut refused = 0;
            for round in 0..200 {
                let mut bytes = whole.clone();
                if round % 4 == 0 {
                    bytes.truncate(stream.below(whole.len()));
                }
                // Most of the file is the table of normalisations or the vocabulary; its head is hit as often.
                for _ in 0..=round % 3 {
                    let reach = if round % 2 == 0 { bytes.len() } else { bytes.len().min(4000) };
                    let (at, bit) = (stream.below(reach.max(1)), stream.below(8));
                    bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << bit);
                }
                match read(name, &bytes) {
                    Ok(tokenizer) => {
                        for text in ["a photo of a cat", "½ ﬁne 東京 😀 </s> x² ①", "naïve İstanbul ΣΑΣ \u{fb01}"]
                        {
                            assert_eq!(tokenizer.sequence(text, 16, true).unwrap().len(), 16);
                        }
                    }
                    Err(error) => {
                        refused += 1;
                        assert!(error.to_string().contains(name), "{error}");
                    }
                }
            }
            assert!(refused > 50, "{name}: {refused} refused");
        }
    }

    #[test]
    fn a_table_that_lies_about_its_size_is_refused_before_memory_is_taken() {
        for (table, word) in [
            (vec![0xfc, 0xff, 0xff, 0xff, 1, 2, 3], "cut off"),
            (vec![1, 2], "cut off"),
            (vec![0, 0, 0, 0], "empty"),
            ([vec![0, 4, 0, 0], vec![0xff; 3], vec![0x7f], vec![0; 1020]].concat(), "damaged"),
        ] {
            assert!(check_charsmap(&table).unwrap_err().contains(word), "{table:?}");
        }
    }

    #[test]
    fn wrong_parts_are_named() {
        let root: Value = serde_json::from_slice(&fixture("tiny-siglip2-hf/tokenizer.json")).unwrap();
        let refused = |change: &dyn Fn(&mut Value)| {
            let mut changed = root.clone();
            change(&mut changed);
            read("tokenizer.json", changed.to_string().as_bytes()).unwrap_err().to_string()
        };
        assert!(refused(&|r| r["normalizer"] = Value::Null).contains("U+2581"));
        assert!(refused(&|r| r["model"]["unk_token"] = Value::Null).contains("unk_token"));
        assert!(refused(&|r| r["model"]["merges"][0] = "zz qq".into()).contains("zz"));
        assert!(refused(&|r| r["model"]["vocab"]["x".repeat(2000).as_str()] = 1.into()).contains("2000 bytes"));
        assert!(refused(&|r| r["added_tokens"][0]["id"] = (-1).into()).contains("added_tokens"));
        let without_byte = refused(&|r| drop(r["model"]["vocab"].as_object_mut().unwrap().shift_remove("<0x41>")));
        assert!(without_byte.contains("<0x41>"));
        let unigram = |normaliser: &str| {
            let file = format!(
                r#"{{"model":{{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["</s>",0],["▁a",-1.5]]}},"normalizer":{normaliser}}}"#
            );
            read("tokenizer.json", file.as_bytes())
        };
        assert_eq!(unigram("null").unwrap().encode("A b"), [2, 0]);
        assert!(unigram(r#"{"type":"NFKD"}"#).unwrap_err().to_string().contains("NFKD"));
    }
}
