//! Options that are written once: name, type, default, range, source of the default and a sentence.
//!
//! [`options!`](crate::options!) makes a struct of such a declaration, and with it everything that is printed
//! about an option elsewhere: `Default`, reading from a TOML table, the check, the table of defaults, and the
//! list of [`OptionSpec`]s that help pages, JSON and sweeps are made of. Methods outside this crate use it as
//! the built-in ones do:
//!
//! ```
//! use flatclip::options::defaults;
//!
//! flatclip::choices! {
//!     /// How views are weighted.
//!     pub enum Weights {
//!         /// All the same.
//!         Equal = "equal",
//!         /// By confidence.
//!         Confidence = "confidence",
//!     }
//! }
//!
//! flatclip::options! {
//!     /// Options of `mine`.
//!     pub struct Config for "mine" {
//!         /// Fraction of the views to select.
//!         fraction: f64 = 0.1, alias "gamma", range fraction, from "paper";
//!         /// How the selected views are weighted.
//!         weights: Weights = Weights::Equal, from "choice";
//!     }
//! }
//!
//! let config = Config::read(&"gamma = 1\nweights = 'confidence'".parse().unwrap()).unwrap();
//! assert_eq!((config.fraction, config.weights), (1.0, Weights::Confidence));
//! assert_eq!(defaults(Config::OPTIONS)["fraction"].as_float(), Some(0.1));
//! let error = Config::read(&"fractoin = 0.5".parse().unwrap()).unwrap_err().to_string();
//! assert!(error.starts_with("mine.fractoin") && error.contains("did you mean `fraction`?"));
//! assert!(Config::read(&"fraction = 1.5".parse().unwrap()).is_err());
//! ```

mod macros;
mod value;

pub use value::{Choice, OptionKind, OptionValue, Range};

use crate::error::nearest;
use crate::{Error, Result};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// A table of settings.
pub type Table = toml::Table;
/// A value of a setting.
pub type Value = toml::Value;

/// All that is known of one option.
#[derive(Clone, Copy)]
pub struct OptionSpec {
    /// Its key.
    pub name: &'static str,
    /// Other keys that are accepted; never written.
    pub aliases: &'static [&'static str],
    /// What values it takes.
    pub kind: OptionKind,
    /// The value when none is given.
    pub default: &'static (dyn Fn() -> Value + Send + Sync),
    /// Which numbers make sense; for lists, of each entry.
    pub range: Range,
    /// Where the default comes from: the paper, the authors' code, our choice.
    pub source: &'static str,
    /// What it means.
    pub sentence: &'static str,
}

impl OptionSpec {
    pub(crate) fn answers_to(&self, key: &str) -> bool {
        self.name == key || self.aliases.contains(&key)
    }

    /// The value as this option keeps it (integers become numbers where a number is expected), or why it is
    /// refused.
    pub fn accept(&self, value: &Value) -> Result<Value, String> {
        let accepted = self.kind.accept(value).ok_or_else(|| {
            let near = match (self.kind, value) {
                (OptionKind::Choice(choices), Value::String(text)) => {
                    let names: Vec<&str> = choices.iter().map(|choice| choice.name).collect();
                    nearest(text, &names).map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default()
                }
                _ => String::new(),
            };
            format!("expected {}, found {value}{near}", self.kind)
        })?;
        if self.range.holds(&accepted) {
            return Ok(accepted);
        }
        Err(format!("expected {}, {}, found {value}", self.kind, self.range))
    }
}

impl std::fmt::Debug for OptionSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OptionSpec").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Serialize for OptionSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", self.name)?;
        map.serialize_entry("aliases", self.aliases)?;
        map.serialize_entry("kind", self.kind.name())?;
        if let OptionKind::Choice(choices) = self.kind {
            map.serialize_entry("choices", choices)?;
        }
        map.serialize_entry("default", &(self.default)())?;
        map.serialize_entry("range", &self.range.to_string())?;
        map.serialize_entry("source", self.source)?;
        map.serialize_entry("sentence", self.sentence)?;
        map.end()
    }
}

/// All options with their defaults.
pub fn defaults(options: &[OptionSpec]) -> Table {
    options.iter().map(|option| (option.name.to_owned(), (option.default)())).collect()
}

/// All options: those of `given` as [`named`] gives them, the others with their defaults.
pub fn complete(table: &str, options: &[OptionSpec], given: &Table) -> Result<Table> {
    let mut all = defaults(options);
    all.extend(named(table, options, given)?);
    Ok(all)
}

/// The given settings under the options' own names, each checked. `table` is the first part of the key that
/// an error names.
pub fn named(table: &str, options: &[OptionSpec], given: &Table) -> Result<Table> {
    let mut named = Table::new();
    for (key, value) in given {
        let place = || format!("{table}.{key}");
        let option =
            options.iter().find(|option| option.answers_to(key)).ok_or_else(|| unknown(table, options, key))?;
        let value = option.accept(value).map_err(|reason| Error::config(place(), reason))?;
        if named.insert(option.name.to_owned(), value).is_some() {
            let reason = format!("expected one value, found two: `{key}` is another name of `{}`", option.name);
            return Err(Error::config(place(), reason));
        }
    }
    Ok(named)
}

/// Settings that are no options of a method, but are often given as such.
const BESIDE: [&str; 4] = ["views", "seed", "classes", "prompt"];

fn unknown(table: &str, options: &[OptionSpec], key: &str) -> Error {
    let names: Vec<&str> = options.iter().map(|option| option.name).collect();
    let near = nearest(key, &names);
    let reason = match (near, names.is_empty()) {
        (None, _) if let Some(beside) = nearest(key, &BESIDE) => {
            format!("no such option; did you mean `{beside}`? That is a separate setting, not an option of {table}")
        }
        (_, true) => format!("no such option: {table} has none"),
        (Some(near), _) => format!("no such option; did you mean `{near}`? known are {}", names.join(", ")),
        (None, _) => format!("no such option; known are {}", names.join(", ")),
    };
    Error::config(format!("{table}.{key}"), reason)
}

/// An option whose value does not go with another one.
pub fn mismatch(table: &str, key: &str, expected: &str, found: impl std::fmt::Display) -> Error {
    Error::config(format!("{table}.{key}"), format!("expected {expected}, found {found}"))
}

/// One option of a complete table.
#[doc(hidden)]
pub fn take<T: OptionValue>(table: &str, key: &str, complete: &Table) -> Result<T> {
    let value = complete.get(key).and_then(T::from_value);
    value.ok_or_else(|| mismatch(table, key, &T::KIND.to_string(), "none"))
}

/// The source of a default: the one of a changed default, or the option's own.
#[doc(hidden)]
pub const fn source_of(name: &str, own: &'static str, changed: &[(&'static str, &'static str)]) -> &'static str {
    let mut index = 0;
    while index < changed.len() {
        if same(changed[index].0.as_bytes(), name.as_bytes()) {
            return changed[index].1;
        }
        index += 1;
    }
    own
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    a.len() == b.len() && index == a.len()
}

#[cfg(test)]
mod tests;
