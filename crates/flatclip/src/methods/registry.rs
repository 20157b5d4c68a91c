//! Finds adapters and tuners by name: the built-in ones, and those that a program adds.

use super::adapters::ADAPTERS;
use super::tuners::{PRESETS, TUNERS, TunerSpec};
use super::{AdapterSpec, AnyAdapter};
use crate::error::nearest;
use crate::{Error, Result};

/// The adapters and tuners that can be found by name.
#[derive(Clone, Debug)]
pub struct Registry {
    adapters: Vec<&'static AdapterSpec>,
    tuners: Vec<&'static TunerSpec>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Registry {
    /// Every method of this library.
    pub fn builtin() -> Self {
        Self { adapters: ADAPTERS.to_vec(), tuners: TUNERS.to_vec() }
    }

    /// The same with one more adapter. A name or alias that is taken is an error.
    pub fn with(mut self, spec: &'static AdapterSpec) -> Result<Self> {
        free(&self.adapters, spec)?;
        self.adapters.push(spec);
        Ok(self)
    }

    /// The same with one more tuner. A name or alias that is taken is an error.
    pub fn with_tuner(mut self, spec: &'static TunerSpec) -> Result<Self> {
        free(&self.tuners, spec)?;
        self.tuners.push(spec);
        Ok(self)
    }

    /// The adapter of a name or alias, in any case.
    pub fn adapter(&self, name: &str) -> Result<&'static AdapterSpec> {
        find(&self.adapters, name).ok_or_else(|| unknown(&self.adapters, name, ""))
    }

    /// The tuner of a name or alias, in any case.
    pub fn tuner(&self, name: &str) -> Result<&'static TunerSpec> {
        find(&self.tuners, name).ok_or_else(|| {
            let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            unknown(&self.tuners, name, &format!("; presets are {}", presets.join(", ")))
        })
    }

    /// All adapters, the built-in ones first.
    pub fn adapters(&self) -> &[&'static AdapterSpec] {
        &self.adapters
    }

    /// All tuners, the built-in ones first.
    pub fn tuners(&self) -> &[&'static TunerSpec] {
        &self.tuners
    }
}

/// The built-in adapter of a name or alias.
pub fn adapter(name: &str) -> Result<&'static AdapterSpec> {
    Registry::builtin().adapter(name)
}

/// The built-in tuner of a name or alias.
pub fn tuner(name: &str) -> Result<&'static TunerSpec> {
    Registry::builtin().tuner(name)
}

/// Builds the built-in adapter of a name or alias with these options.
pub fn build_adapter(name: &str, options: &toml::Table) -> Result<AnyAdapter> {
    adapter(name)?.build(options)
}

/// What has a name and aliases.
trait Named: 'static {
    const ROLE: &'static str;
    fn name(&self) -> &'static str;
    fn aliases(&self) -> &'static [&'static str];

    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name()).chain(self.aliases().iter().copied())
    }
}

impl Named for AdapterSpec {
    const ROLE: &'static str = "adapter";
    fn name(&self) -> &'static str {
        self.name
    }
    fn aliases(&self) -> &'static [&'static str] {
        self.aliases
    }
}

impl Named for TunerSpec {
    const ROLE: &'static str = "tuner";
    fn name(&self) -> &'static str {
        self.name
    }
    fn aliases(&self) -> &'static [&'static str] {
        self.aliases
    }
}

fn find<T: Named>(known: &[&'static T], name: &str) -> Option<&'static T> {
    known.iter().copied().find(|spec| spec.names().any(|known| known.eq_ignore_ascii_case(name)))
}

/// An error if a name of `spec` is taken.
fn free<T: Named>(known: &[&'static T], spec: &'static T) -> Result<()> {
    let taken = spec.names().find_map(|name| Some((name, find(known, name)?)));
    let Some((name, other)) = taken else { return Ok(()) };
    let (role, spec, other) = (T::ROLE, spec.name(), other.name());
    let reason = format!("expected new names for the {role} `{spec}`, found `{name}`, which is taken by `{other}`");
    Err(Error::config("method", reason))
}

fn unknown<T: Named>(known: &[&'static T], name: &str, presets: &str) -> Error {
    let all: Vec<&str> = known.iter().flat_map(|spec| spec.names()).collect();
    let near = nearest(name, &all).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    let names: Vec<&str> = known.iter().map(|spec| spec.name()).collect();
    let reason = format!("no {} is called `{name}`; {near}known are {}{presets}", T::ROLE, names.join(", "));
    Error::config("method", reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::{Adapter, Build, Decision, Kind, Needs, Task, Verified, ViewSet, no_presets};

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
        verified: Verified::Nothing,
        presets: no_presets,
        build: Build::Episodic(|_| Ok(Box::new(Never))),
        options: &[],
    };
    static FREE: AdapterSpec = NEVER;
    static TAKEN_NAME: AdapterSpec = AdapterSpec { name: "Zero", ..NEVER };
    static TAKEN_ALIAS: AdapterSpec = AdapterSpec { name: "other", aliases: &["fga"], ..NEVER };
    static TUNER: TunerSpec = TunerSpec { name: "mine", aliases: &[], ..crate::methods::tuners::coop::SPEC };

    #[test]
    fn methods_from_outside_are_found_beside_the_built_in_ones() {
        let registry = Registry::builtin().with(&FREE).unwrap().with_tuner(&TUNER).unwrap();
        assert_eq!(registry.adapter("never").unwrap().kind(), Kind::Episodic);
        assert_eq!(registry.adapter("not-ever").unwrap().name, "never");
        assert_eq!(registry.tuner("Mine").unwrap().name, "mine");
        assert_eq!(registry.adapters().len(), ADAPTERS.len() + 1);
        assert_eq!(registry.tuners().len(), TUNERS.len() + 1);
        assert!(adapter("never").is_err() && tuner("mine").is_err());
    }

    #[test]
    fn a_taken_name_or_alias_is_refused_whatever_its_case() {
        for (spec, taken) in [(&TAKEN_NAME, "zero"), (&TAKEN_ALIAS, "stss")] {
            let error = Registry::builtin().with(spec).unwrap_err().to_string();
            assert!(error.contains(&format!("taken by `{taken}`")), "{error}");
        }
        assert!(Registry::builtin().with(&FREE).unwrap().with(&FREE).is_err());
        assert!(Registry::builtin().with_tuner(&TUNER).unwrap().with_tuner(&TUNER).is_err());
    }

    #[test]
    fn names_are_found_in_any_case_and_unknown_ones_get_the_nearest() {
        assert_eq!(adapter("TPT").unwrap().name, "tpt");
        // An adapter and a tuner may share an alias: FGA is both together.
        assert_eq!((adapter("FGA").unwrap().name, tuner("fga").unwrap().name), ("stss", "sapt"));
        for (typed, meant) in [("zeroshot", "zero-shot"), ("Promtalign", "promptalign"), ("c_tpt", "c-tpt")] {
            let error = adapter(typed).unwrap_err().to_string();
            assert!(error.contains(&format!("did you mean `{meant}`?")), "{error}");
        }
        assert!(!adapter("something-else").unwrap_err().to_string().contains("did you mean"));
        assert!(tuner("sappt").unwrap_err().to_string().contains("did you mean `sapt`?"));
    }
}
