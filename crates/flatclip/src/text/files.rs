//! Text files that people write: lists of names, templates, tables.

use crate::error::escaped;
use crate::{Error, Result};
use std::io::Read as _;
use std::path::Path;

/// Longer files are not lists: ImageNet's list of 1.3 million training pictures takes 60 MB.
const MAX_BYTES: u64 = 256 << 20;

/// How much of a file's text a message quotes.
const QUOTED: usize = 80;

/// A UTF-8 file as text, without its byte-order mark.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let file = std::fs::File::open(path).map_err(Error::io(path))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(Error::io(path))?;
    if bytes.len() as u64 > MAX_BYTES {
        let hint = "a list of names, templates or samples is expected here".to_owned();
        return Err(Error::Limit {
            what: format!("{}: bytes of text", path.display()),
            asked: bytes.len() as u64,
            allowed: MAX_BYTES,
            hint,
        });
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let reason = "is UTF-16 text, expected UTF-8; save it as UTF-8".to_owned();
        return Err(Error::Data { path: path.to_path_buf(), reason });
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let reason = format!("is not UTF-8 text (byte {}); save it as UTF-8", e.utf8_error().valid_up_to());
        Error::Data { path: path.to_path_buf(), reason }
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The class names of a file: one per line, in label order. Empty lines are left out; if every line starts with a WordNet
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

/// A file's text as a message may show it: [`escaped`], and cut if it is long.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}..", escaped(&text[..end])),
        None => escaped(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn a_byte_order_mark_and_windows_line_ends_are_not_part_of_names() {
        let names = names(b"\xef\xbb\xbfn01440764 tench\r\nn01443537 goldfish\r\n").unwrap();
        assert_eq!(names, ["tench", "goldfish"]);
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
        assert_eq!(quoted(&"x".repeat(200)).len(), QUOTED + 2);
    }
}
