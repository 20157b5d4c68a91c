//! Text files that people write (lists of names, templates, tables), and how their words stand in messages.

use crate::{Error, Result};
use std::io::Read as _;
use std::path::Path;

/// Longer files are not lists: ImageNet's list of 1.3 million training pictures takes 60 MB.
const MAX_BYTES: u64 = 256 << 20;

/// How much of a file's text a message quotes.
const QUOTED: usize = 80;

/// A UTF-8 file as text, without its byte-order mark.
pub fn read_text(path: &Path) -> Result<String> {
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

/// A file's text as a message may show it: [`escaped`], and cut if it is long.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}..", escaped(&text[..end])),
        None => escaped(text),
    }
}

/// Control characters, and marks that reorder or hide text, as escapes: what a file holds must not steer a terminal.
pub fn escaped(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_has_no_control_characters() {
        assert_eq!(quoted("a\x1b[31mred\u{202e}\u{feff}é"), "a\\u{1b}[31mred\\u{202e}\\u{feff}é");
        assert_eq!(quoted(&"x".repeat(200)).len(), QUOTED + 2);
    }
}
