//! Settings as people type them: `key=value`, `table.key=value`, values as TOML, numbers like `.5`, or plain text.

use crate::error::escaped;
use crate::{Error, Result};

/// The settings as a table; dotted keys make tables, and a value that is not TOML is taken as text, so that
/// `sapt.words=a photo of a` needs no quotes.
pub fn parse_settings<S: AsRef<str>>(settings: &[S]) -> Result<toml::Table> {
    let mut table = toml::Table::new();
    for setting in settings.iter().map(AsRef::as_ref) {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(Error::config("setting", format!("expected KEY=VALUE, found {setting:?}")));
        };
        insert(&mut table, key.trim(), key.trim(), parse_value(value))?;
    }
    Ok(table)
}

/// A file's text that is not the TOML that was expected, with its line; what it quotes of the file is escaped.
pub fn toml_error(key: impl Into<String>, text: &str, error: &toml::de::Error) -> Error {
    let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
    Error::config(key, format!("line {line}: {}", escaped(error.message())))
}

/// A TOML value, a number that TOML does not take, or the text itself.
pub(crate) fn parse_value(text: &str) -> toml::Value {
    let text = text.trim();
    let parsed = format!("v = {text}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("v"));
    let number = || loose_number(text).map(toml::Value::Float);
    parsed.or_else(number).unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

/// A number without a digit before or after its point: `.5`, `-.5`, `1.`; TOML requires both.
fn loose_number(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = text.contains('.') && unsigned.starts_with(|c: char| c == '.' || c.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

fn insert(table: &mut toml::Table, whole: &str, key: &str, value: toml::Value) -> Result<()> {
    let Some((head, rest)) = key.split_once('.') else {
        if key.is_empty() {
            return Err(Error::config("setting", format!("expected KEY=VALUE, found an empty key in {whole:?}")));
        }
        table.insert(key.to_owned(), value);
        return Ok(());
    };
    let entry = table.entry(head.to_owned()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let toml::Value::Table(inner) = entry else {
        return Err(Error::config(whole, format!("`{head}` is a value already, it cannot have parts")));
    };
    insert(inner, whole, rest, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml_or_text() {
        let table = parse_settings(&["radius=0.5", "vote=majority", "a.b=3", "a.words=a photo of a"]).unwrap();
        assert_eq!(table["radius"].as_float(), Some(0.5));
        assert_eq!(table["vote"].as_str(), Some("majority"));
        assert_eq!(table["a"]["b"].as_integer(), Some(3));
        assert_eq!(table["a"]["words"].as_str(), Some("a photo of a"));
    }

    #[test]
    fn numbers_without_a_digit_beside_the_point_are_numbers_and_versions_are_not() {
        for (text, number) in [(".5", 0.5), ("-.5", -0.5), ("+.25", 0.25), ("1.", 1.0), (".5e-2", 0.005)] {
            assert_eq!(parse_value(text).as_float(), Some(number), "{text}");
        }
        for text in [".", "-.", "1.2.3", ".5 m", "..5", ".hidden"] {
            assert_eq!(parse_value(text).as_str(), Some(text));
        }
    }

    #[test]
    fn a_toml_error_has_its_line_and_no_control_characters() {
        let text = "a = 1\n\"\\u001b[31m\" = 1\n\"\\u001b[31m\" = 2\n";
        let error = toml::from_str::<toml::Table>(text).unwrap_err();
        let message = toml_error("file", text, &error).to_string();
        assert!(message.contains("line 3") && !message.contains('\u{1b}'), "{message}");
    }

    #[test]
    fn settings_without_key_or_value_and_parts_of_values_are_refused() {
        for bad in [&["radius"][..], &["=1"], &["a=1", "a.b=2"], &["a.=1"]] {
            assert!(parse_settings(bad).is_err(), "{bad:?}");
        }
    }
}
