//! Finds adapters by name: the built-in ones, and those that a program adds.

use super::adapters::ADAPTERS;
use super::{AdapterSpec, AnyAdapter};
use crate::error::{Hint, nearest};
use crate::options::Table;
use crate::{Error, Result};

/// Methods that learn a prompt: `flatclip-lab` has them. Known here so that a tuner's name in place of an adapter's gets a helpful error.
pub const TUNER_NAMES: [&str; 11] =
    ["sapt", "fga", "coop", "cocoop", "maple", "tip-adapter", "tip", "tip-adapter-f", "tip-f", "gda-clip", "gda"];

/// The adapters that can be found by name.
#[derive(Clone, Debug)]
pub struct Registry {
    adapters: Vec<&'static AdapterSpec>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Registry {
    /// Every method of this library.
    pub fn builtin() -> Self {
        Self { adapters: ADAPTERS.to_vec() }
    }

    /// The same with one more adapter. A name or alias that is taken is an error.
    pub fn with(mut self, spec: &'static AdapterSpec) -> Result<Self> {
        let taken = names(spec).find_map(|name| Some((name, find(&self.adapters, name)?)));
        if let Some((name, other)) = taken {
            let (spec, other) = (spec.name, other.name);
            let reason =
                format!("expected new names for the adapter `{spec}`, found `{name}`, which is taken by `{other}`");
            return Err(Error::config("method", reason));
        }
        self.adapters.push(spec);
        Ok(self)
    }

    /// The adapter of a name or alias, in any case.
    pub fn adapter(&self, name: &str) -> Result<&'static AdapterSpec> {
        find(&self.adapters, name).ok_or_else(|| {
            if let Some(tuner) = TUNER_NAMES.iter().find(|tuner| tuner.eq_ignore_ascii_case(name)) {
                let reason = format!("`{name}` is a tuner: it learns a prompt, and an adapter answers with it");
                return Error::config("method", reason).with_hint(Hint::Tune(tuner));
            }
            let known: Vec<&str> = self.adapters.iter().map(|spec| spec.name).collect();
            let aliases: Vec<&str> = self.adapters.iter().flat_map(|spec| spec.aliases).copied().collect();
            unknown_method("adapter", name, &known, &aliases, "")
        })
    }

    /// All adapters, the built-in ones first.
    pub fn adapters(&self) -> &[&'static AdapterSpec] {
        &self.adapters
    }
}

/// The built-in adapter of a name or alias.
pub fn adapter(name: &str) -> Result<&'static AdapterSpec> {
    Registry::builtin().adapter(name)
}

/// Builds the built-in adapter of a name or alias with these options.
pub fn build_adapter(name: &str, options: &Table) -> Result<AnyAdapter> {
    adapter(name)?.build(options)
}

fn names(spec: &AdapterSpec) -> impl Iterator<Item = &'static str> {
    std::iter::once(spec.name).chain(spec.aliases.iter().copied())
}

fn find(known: &[&'static AdapterSpec], name: &str) -> Option<&'static AdapterSpec> {
    known.iter().copied().find(|spec| names(spec).any(|known| known.eq_ignore_ascii_case(name)))
}

/// The error of a name that no method has; `kind` is what was looked for.
pub fn unknown_method(kind: &str, name: &str, names: &[&str], aliases: &[&str], more: &str) -> Error {
    let near = nearest(name, &[names, aliases].concat()).map(|near| format!("did you mean `{near}`? "));
    let reason =
        format!("no {kind} is called `{name}`; {}known are {}{more}", near.unwrap_or_default(), names.join(", "));
    Error::config("method", reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::{Adapter, Build, Decision, Kind, Task, ViewSet};

    struct Never;

    impl Adapter for Never {
        fn adapt(&self, _: &Task, image: &ViewSet<'_>) -> Result<Decision> {
            Err(Error::method("never", image.id))
        }
    }

    const fn never(name: &'static str) -> AdapterSpec {
        AdapterSpec::new(name, Build::Episodic(|_| Ok(Box::new(Never))))
    }
    static FREE: AdapterSpec = AdapterSpec { aliases: &["not-ever"], ..never("never") };
    static TAKEN_NAME: AdapterSpec = never("Zero");
    static TAKEN_ALIAS: AdapterSpec = AdapterSpec { aliases: &["fga"], ..never("other") };

    #[test]
    fn methods_from_outside_are_found_beside_the_built_in_ones() {
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
        let tuner = adapter("CoOp").unwrap_err();
        assert!(tuner.to_string().contains("is a tuner") && tuner.hint() == Some(&Hint::Tune("coop")), "{tuner}");
        for (typed, meant) in [("zeroshot", "zero-shot"), ("Promtalign", "promptalign"), ("c_tpt", "c-tpt")] {
            let error = adapter(typed).unwrap_err().to_string();
            assert!(error.contains(&format!("did you mean `{meant}`?")), "{error}");
        }
        assert!(!adapter("something-else").unwrap_err().to_string().contains("did you mean"));
    }
}
