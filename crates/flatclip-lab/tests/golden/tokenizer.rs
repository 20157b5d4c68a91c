//! Token ids of strings, equal to the last one.

use super::case::{Case, Fallible, Report};
use flatclip::text::Tokenizer;
use serde_json::Value;

const CONTEXT_LENGTH: usize = 77;

pub(crate) fn run(case: &Case) -> Fallible<Report<'_>> {
    let tokenizer = Tokenizer::clip();
    let mut report = Report::of(case);
    for string in case.spec["cases"].as_array().ok_or("no `cases`")? {
        let text = string["text"].as_str().ok_or("a case has no `text`")?;
        let list = |key: &str| ids(&string[key]);
        let found = tokenizer.sequence(text, CONTEXT_LENGTH, true)?;
        report.same(text, &found, &list("ids").ok_or("a case has no `ids`")?);
        if let Some(ids) = list("bpe_ids") {
            report.same(text, &tokenizer.encode(text), &ids);
        }
        if let Some(overflow) = string.get("overflow").and_then(Value::as_bool) {
            let fails = tokenizer.sequence(text, CONTEXT_LENGTH, false).is_err();
            report.check(text, fails == overflow, format!("overflow is {fails}, expected {overflow}"));
        }
    }
    Ok(report)
}

/// SentencePiece: full rows with open_clip's cleaning, and with that of the classes of transformers, which is written down
/// only where it gives other ids.
pub(crate) fn sentencepiece(case: &Case) -> Fallible<Report<'_>> {
    let spec = &case.spec["spec"];
    let folder = case.beside(spec["tokenizer"].as_str().ok_or("no `tokenizer`")?)?;
    let length = spec["context_length"].as_u64().ok_or("no `context_length`")? as usize;
    let classes: &[_] = match spec["method"].as_str() {
        Some("tokenizer-siglip") => &[("ids_hf_siglip", "SiglipTokenizer")],
        _ => &[("ids_hf_gemma", "GemmaTokenizer"), ("ids_hf_siglip2", "Siglip2Tokenizer")],
    };
    let mut report = Report::of(case);
    for &(key, cleaning) in [("ids", "canonicalize")].iter().chain(classes) {
        let tokenizer = Tokenizer::from_dir_cleaned(&folder, cleaning)?;
        for string in case.spec["cases"].as_array().ok_or("no `cases`")? {
            let text = string["text"].as_str().ok_or("a case has no `text`")?;
            let expected = ids(&string[key]).or(ids(&string["ids"])).ok_or("a case has no `ids`")?;
            let found = tokenizer.sequence(text, length, true)?;
            report.same(&format!("{cleaning} {text:?}"), &found, &expected);
            let pieces = tokenizer.encode(text).len();
            if let Some(count) = string["n_pieces"].as_u64().filter(|_| key == "ids") {
                report.check(text, pieces as u64 == count, format!("{pieces} pieces, expected {count}"));
            }
        }
    }
    Ok(report)
}

fn ids(list: &Value) -> Option<Vec<u32>> {
    list.as_array()?.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
}
