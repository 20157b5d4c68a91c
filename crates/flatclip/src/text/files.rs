//! Text files that people write: lists of names, templates, tables.

use crate::files::read_text;
use crate::{Error, Result};
use std::path::Path;

/// The class names of a file: one per line, in label order. Empty lines are skipped; if every line starts with a WordNet
/// id (`n01440764 tench`, as in CoOp's `classnames.txt`), the ids are dropped.
pub fn read_class_names(path: &Path) -> Result<Vec<String>> {
    let text = read_text(path)?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        let reason = "no class names; expected one per line".to_owned();
        return Err(Error::Data { path: path.to_path_buf(), reason });
    }
    let without: Option<Vec<&str>> = lines.iter().map(|line| without_wnid(line)).collect();
    Ok(without.unwrap_or(lines).into_iter().map(str::to_owned).collect())
}

/// `n01440764 tench` without its WordNet id.
fn without_wnid(line: &str) -> Option<&str> {
    let (wnid, name) = line.split_once(char::is_whitespace)?;
    let digits = wnid.strip_prefix('n')?;
    (digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_digit())).then_some(name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::quoted;

    fn names(bytes: &[u8]) -> Result<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("classes.txt");
        std::fs::write(&path, bytes).unwrap();
        read_class_names(&path)
    }

    #[test]
    fn wnids_are_dropped_only_when_every_line_has_one() {
        assert_eq!(without_wnid("n01440764 great white shark"), Some("great white shark"));
        assert_eq!(without_wnid("nightingale bird"), None);
        assert_eq!(names(b"n01440764 tench\n\nplain name\n").unwrap(), ["n01440764 tench", "plain name"]);
        assert_eq!(names(b"n01440764\ttench\nn01443537 goldfish\n").unwrap(), ["tench", "goldfish"]);
        // A byte order mark and Windows line ends are not part of names.
        let windows = names(b"\xef\xbb\xbfn01440764 tench\r\nn01443537 goldfish\r\n").unwrap();
        assert_eq!(windows, ["tench", "goldfish"]);
    }

    #[test]
    fn files_without_names_and_in_other_encodings_are_refused() {
        for (bytes, word) in [
            (b"" as &[u8], "no class names"),
            (b"\xef\xbb\xbf\r\n \n", "no class names"),
            (b"\xff\xfea\0b\0", "UTF-16"),
            (b"abc\xe4", "byte 3"),
        ] {
            let message = names(bytes).unwrap_err().to_string();
            assert!(message.contains(word) && message.contains("classes.txt"), "{message}");
        }
    }

    #[test]
    fn quoted_text_has_no_control_characters() {
        assert_eq!(quoted("a\x1b[31mred\u{202e}\u{feff}é"), "a\\u{1b}[31mred\\u{202e}\\u{feff}é");
        assert_eq!(quoted(&"x".repeat(200)).len(), 82);
    }
}
