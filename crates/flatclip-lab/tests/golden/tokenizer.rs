//! Token ids of strings, equal to the last one.

use crate::case::{Case, Report};
use flatclip::text::Tokenizer;
use serde_json::Value;

const CONTEXT_LENGTH: usize = 77;

pub(crate) fn run(case: &Case) -> Result<Report, String> {
    let tokenizer = Tokenizer::clip();
    let mut report = Report::default();
    for string in case.spec["cases"].as_array().ok_or("no `cases`")? {
        let text = string["text"].as_str().ok_or("a case has no `text`")?;
        let list = |key: &str| -> Option<Vec<u32>> {
            string[key].as_array()?.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
        };
        let found = tokenizer.sequence(text, CONTEXT_LENGTH, true).map_err(|e| e.to_string())?;
        report.equal(text, &found, &list("ids").ok_or("a case has no `ids`")?);
        if let Some(ids) = list("bpe_ids") {
            report.equal(text, &tokenizer.encode(text), &ids);
        }
        if let Some(overflow) = string.get("overflow").and_then(Value::as_bool) {
            let fails = tokenizer.sequence(text, CONTEXT_LENGTH, false).is_err();
            report.check(text, fails == overflow, format!("overflow is {fails}, expected {overflow}"));
        }
    }
    Ok(report)
}
