//! `--set key=value`: options of a method as TOML values.

use anyhow::{Result, bail};

/// The settings as a table; dotted keys make tables, and a value that is not TOML is taken as text.
pub(crate) fn table(settings: &[String]) -> Result<toml::Table> {
    let mut table = toml::Table::new();
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            bail!("--set: expected KEY=VALUE, found {setting:?}");
        };
        insert(&mut table, key.trim(), parse(value.trim()))?;
    }
    Ok(table)
}

/// A TOML value, or the text itself.
pub(crate) fn parse(text: &str) -> toml::Value {
    let document = format!("v = {text}");
    let parsed = document.parse::<toml::Table>().ok().and_then(|mut table| table.remove("v"));
    parsed.unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

fn insert(table: &mut toml::Table, key: &str, value: toml::Value) -> Result<()> {
    let Some((head, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return Ok(());
    };
    let entry = table.entry(head.to_owned()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let toml::Value::Table(inner) = entry else {
        bail!("--set {key}: `{head}` is already a value, it cannot have parts");
    };
    insert(inner, rest, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml_or_text() {
        let settings = ["radius=0.5", "vote=majority", "a.b=3"].map(str::to_owned);
        let table = table(&settings).unwrap();
        assert_eq!(table["radius"].as_float(), Some(0.5));
        assert_eq!(table["vote"].as_str(), Some("majority"));
        assert_eq!(table["a"]["b"].as_integer(), Some(3));
    }

    #[test]
    fn a_setting_without_a_value_is_refused() {
        assert!(table(&["radius".to_owned()]).is_err());
    }
}
