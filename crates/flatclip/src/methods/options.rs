//! How adapters read their options.

use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The options of an adapter: serde reads them, [`Options::check`] refuses values that make no sense.
pub(crate) trait Options: DeserializeOwned + Serialize + Default {
    /// The adapter's name, the first part of every key.
    const NAME: &'static str;

    /// The first wrong value as an error that names its key.
    fn check(&self) -> Result<()>;

    /// Reads options, naming the key that is unknown or of the wrong type.
    fn read(table: &toml::Table) -> Result<Self> {
        for (key, value) in table {
            // One key at a time: serde's message alone does not say which key had the wrong type.
            let alone = toml::Table::from_iter([(key.clone(), value.clone())]);
            if let Err(error) = alone.try_into::<Self>() {
                let reason = error.message().trim().to_string();
                return Err(Error::config(format!("{}.{key}", Self::NAME), reason));
            }
        }
        let options: Self =
            table.clone().try_into().map_err(|e: toml::de::Error| Error::config(Self::NAME, e.message().trim()))?;
        options.check()?;
        Ok(options)
    }

    /// All options with their defaults.
    fn table() -> toml::Table {
        toml::Table::try_from(Self::default()).expect("option structs hold only values that TOML has")
    }

    /// An error for `key` unless `holds`.
    fn require(holds: bool, key: &str, expected: &str, found: impl std::fmt::Display) -> Result<()> {
        if holds {
            return Ok(());
        }
        Err(Error::config(format!("{}.{key}", Self::NAME), format!("expected {expected}, found {found}")))
    }

    /// An error unless `value` is a fraction of views that can keep some.
    fn require_fraction(key: &str, value: f64) -> Result<()> {
        Self::require(value > 0.0 && value <= 1.0, key, "a fraction above 0 and up to 1", value)
    }

    /// An error unless `value` is finite and not negative.
    fn require_not_negative(key: &str, value: f64) -> Result<()> {
        Self::require(value.is_finite() && value >= 0.0, key, "a number that is not negative", value)
    }
}
