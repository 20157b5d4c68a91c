//! What a method claims to be verified with must be in the clone: a claim whose case lies elsewhere cannot fail here.

use crate::cases::FAMILIES;
use crate::cases::case::Case;
use flatclip::methods::{ADAPTERS, Verified};
use flatclip_lab::tuners::TUNERS;
use std::path::{Path, PathBuf};

/// Methods whose cases go by another name, and what tells them from other cases of that name.
const OTHER_NAMES: &[(&str, &str, &str)] = &[
    ("adapt", "adapt", "online"),
    ("adapt-transductive", "adapt", "transductive"),
    ("adte-stream", "adte", ""),
    ("stss", "fga-stss", ""),
    ("tip-adapter-f", "tip-adapter", ""),
    ("use", "se", ""),
    ("zero-shot", "clip-logits", ""),
];

/// The cases of a clone, whatever folder the other tests walk.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden")
}

/// Fails for each method that claims golden cases and has none of the claimed kind among `files`.
pub fn check(files: &[PathBuf]) -> Result<(), String> {
    let cases = files.iter().map(|file| Case::load(file)).collect::<Result<Vec<_>, _>>()?;
    let claims = ADAPTERS.iter().map(|spec| (spec.name, spec.verified));
    let claims = claims.chain(TUNERS.iter().map(|spec| (spec.name, spec.verified)));
    let empty: Vec<String> = claims
        .filter(|(_, claimed)| *claimed != Verified::Nothing)
        .filter(|(name, claimed)| !cases.iter().any(|case| shows(case, name, *claimed)))
        .map(|(name, claimed)| format!("{name} ({})", claimed.name()))
        .collect();
    if empty.is_empty() {
        return Ok(());
    }
    Err(format!("these methods claim golden cases, and fixtures/golden has none: {}", empty.join(", ")))
}

/// Whether a case is about the method, is checked, and was computed by what the method claims.
fn shows(case: &Case, name: &str, claimed: Verified) -> bool {
    let spec = case.spec.get("spec").unwrap_or(&case.spec);
    let other = OTHER_NAMES.iter().find(|(method, ..)| *method == name);
    let (wanted, mode) = other.map_or((name, ""), |(_, wanted, mode)| (*wanted, *mode));
    let checked = FAMILIES.iter().any(|(family, _)| *family == wanted);
    let genuine = spec["source"].as_str().is_some_and(|source| source.starts_with("genuine"));
    checked
        && spec["method"] == wanted
        && (mode.is_empty() || spec["hyperparameters"]["mode"] == mode)
        && (genuine || claimed != Verified::AuthorsCode)
}
