//! Finds adapters by name: the built-in ones, and those that a program adds.

use super::adapters::ADAPTERS;
use super::{AdapterSpec, AnyAdapter};
use crate::{Error, Result};

/// The adapters that can be found by name.
#[derive(Clone, Debug)]
pub struct Registry {
    adapters: Vec<&'static AdapterSpec>,
}

impl Registry {
    /// Every adapter of this library.
    pub fn builtin() -> Self {
        Self { adapters: ADAPTERS.to_vec() }
    }

    /// The same with one more adapter. A name or alias that is taken is an error.
    pub fn with(mut self, spec: &'static AdapterSpec) -> Result<Self> {
        for name in names(spec) {
            if let Some(other) = self.find(name) {
                let reason = format!(
                    "expected new names for the adapter `{}`, found `{name}`, which is taken by `{}`; choose another",
                    spec.name, other.name
                );
                return Err(Error::config("method", reason));
            }
        }
        self.adapters.push(spec);
        Ok(self)
    }

    /// The adapter of a name or alias, in any case.
    pub fn adapter(&self, name: &str) -> Result<&'static AdapterSpec> {
        self.find(name).ok_or_else(|| {
            let known: Vec<&str> = self.adapters.iter().map(|spec| spec.name).collect();
            let nearest = self.nearest(name).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            Error::config("method", format!("no adapter is called `{name}`; {nearest}known are {}", known.join(", ")))
        })
    }

    /// All of them, the built-in ones first.
    pub fn adapters(&self) -> &[&'static AdapterSpec] {
        &self.adapters
    }

    fn find(&self, name: &str) -> Option<&'static AdapterSpec> {
        self.adapters.iter().copied().find(|spec| names(spec).any(|known| known.eq_ignore_ascii_case(name)))
    }

    /// The name or alias that takes the fewest edits, if that is less than half of the word.
    fn nearest(&self, name: &str) -> Option<&'static str> {
        let name = name.to_ascii_lowercase();
        let known = self.adapters.iter().flat_map(|spec| names(spec));
        let (edits, nearest) =
            known.map(|known| (edits(&name, &known.to_ascii_lowercase()), known)).min_by_key(|(edits, _)| *edits)?;
        (2 * edits < name.chars().count().max(nearest.len())).then_some(nearest)
    }
}

/// The built-in adapter of a name or alias.
pub fn adapter(name: &str) -> Result<&'static AdapterSpec> {
    Registry::builtin().adapter(name)
}

/// Builds the built-in adapter of a name or alias with these options.
pub fn build_adapter(name: &str, options: &toml::Table) -> Result<AnyAdapter> {
    adapter(name)?.build(options)
}

fn names(spec: &'static AdapterSpec) -> impl Iterator<Item = &'static str> {
    std::iter::once(spec.name).chain(spec.aliases.iter().copied())
}

/// The least number of letters to insert, delete or replace (Levenshtein).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::{Adapter, Build, Decision, Kind, Needs, Task, ViewSet};

    struct Never;

    impl Adapter for Never {
        fn adapt(&self, _: &Task, image: &ViewSet<'_>) -> Result<Decision> {
            Err(Error::method("never", image.id))
        }
    }

    const NEVER: AdapterSpec = AdapterSpec {
        name: "never",
        aliases: &["not-ever"],
        needs: Needs::FEATURES,
        summary: "refuses",
        docs: "",
        build: Build::Episodic(|_| Ok(Box::new(Never))),
        defaults: toml::Table::new,
    };
    static FREE: AdapterSpec = NEVER;
    static TAKEN_NAME: AdapterSpec = AdapterSpec { name: "Zero", ..NEVER };
    static TAKEN_ALIAS: AdapterSpec = AdapterSpec { name: "other", aliases: &["fga"], ..NEVER };

    #[test]
    fn an_adapter_from_outside_is_found_beside_the_built_in_ones() {
        let registry = Registry::builtin().with(&FREE).unwrap();
        assert_eq!(registry.adapter("never").unwrap().kind(), Kind::Episodic);
        assert_eq!(registry.adapter("not-ever").unwrap().name, "never");
        assert_eq!(registry.adapters().len(), ADAPTERS.len() + 1);
        assert!(adapter("never").is_err());
    }

    #[test]
    fn a_taken_name_or_alias_is_refused_whatever_its_case() {
        for (spec, taken) in [(&TAKEN_NAME, "zero"), (&TAKEN_ALIAS, "stss")] {
            let error = Registry::builtin().with(spec).unwrap_err().to_string();
            assert!(error.contains(&format!("taken by `{taken}`")), "{error}");
        }
        assert!(Registry::builtin().with(&FREE).unwrap().with(&FREE).is_err());
    }

    #[test]
    fn names_are_found_in_any_case_and_unknown_ones_get_the_nearest() {
        assert_eq!(adapter("TPT").unwrap().name, "tpt");
        assert_eq!(adapter("FGA").unwrap().name, "stss");
        for (typed, meant) in [("zeroshot", "zero-shot"), ("Promtalign", "promptalign"), ("c_tpt", "c-tpt")] {
            let error = adapter(typed).unwrap_err().to_string();
            assert!(error.contains(&format!("did you mean `{meant}`?")), "{error}");
        }
        assert!(!adapter("something-else").unwrap_err().to_string().contains("did you mean"));
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!([edits("", "abc"), edits("kitten", "sitting"), edits("tda", "tda")], [3, 3, 0]);
    }
}
