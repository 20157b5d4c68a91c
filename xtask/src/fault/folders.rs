//! What a run left behind, as bytes to compare.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Files that say how long something took, or that nobody else may work here.
const APART: [&str; 3] = ["timing.json", "timing.jsonl", ".lock"];

/// Every file below a folder by its relative path, apart from times and locks.
pub(crate) fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).with_context(|| path.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else if !APART.contains(&name.as_str()) {
                let relative = entry.path().strip_prefix(folder)?.display().to_string();
                found.insert(relative, std::fs::read(entry.path())?);
            }
        }
    }
    Ok(found)
}

/// The files in which two folders differ.
pub(crate) fn differences(expected: &BTreeMap<String, Vec<u8>>, found: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let missing =
        expected.iter().filter(|(name, _)| !found.contains_key(*name)).map(|(name, _)| format!("{name} is missing"));
    let extra =
        found.iter().filter(|(name, _)| !expected.contains_key(*name)).map(|(name, _)| format!("{name} is left over"));
    let other = expected.iter().filter(|(name, bytes)| found.get(*name).is_some_and(|found| found != *bytes));
    missing.chain(extra).chain(other.map(|(name, _)| format!("{name} differs"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_an_extra_and_a_changed_file_are_named_and_times_are_not() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("a/x", "1"), ("a/y", "1"), ("a/timing.json", "1"), ("b/x", "2"), ("b/z", "1")] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let of = |name: &str| contents(&folder.path().join(name)).unwrap();
        assert_eq!(differences(&of("a"), &of("b")), ["y is missing", "z is left over", "x differs"]);
        assert!(differences(&of("a"), &of("a")).is_empty());
    }
}
