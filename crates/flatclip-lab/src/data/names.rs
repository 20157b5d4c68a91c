//! Class names and templates as they stand in a sentence.

use super::dataset::Note;
use flatclip::error::quoted;
use flatclip::files::read_text;
use flatclip::text::templates;
use flatclip::{Error, Result};
use std::path::Path;

/// `Apply_Eye_Makeup` as words; surrounding and doubled spaces are dropped.
pub(crate) fn readable(name: &str) -> String {
    name.replace('_', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Templates from a file, one per line; every one must have a place for the class name.
pub(crate) fn read_templates(path: &Path) -> Result<Vec<String>> {
    let text = read_text(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let templates: Vec<String> = lines.map(|line| line.replace("{c}", "{}")).collect();
    let bad = templates.iter().find(|line| !line.contains("{}"));
    if templates.is_empty() || bad.is_some() {
        let found = bad.map_or("an empty file".to_owned(), |line| format!("`{}`", quoted(line)));
        let reason = format!("expected one template per line with `{{}}` for the class name, found {found}");
        return Err(Error::Data { path: path.to_path_buf(), reason });
    }
    Ok(templates)
}

/// A warning for each class name that occurs more than once: such classes cannot be distinguished by their text.
pub(super) fn note_duplicates(classes: &[String], notes: &mut Vec<Note>) {
    for (name, labels) in templates::duplicates(classes) {
        let text = format!("labels {labels:?} share the name `{}`: {}", quoted(&name), templates::TIED);
        notes.push(Note::warning(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underscores_become_spaces_and_slashes_stay() {
        assert_eq!(readable("Apply_Eye_Makeup"), "Apply Eye Makeup");
        assert_eq!(readable("F/A-18"), "F/A-18");
    }
}
