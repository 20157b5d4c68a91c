//! What the registry knows of a tuner, and the presets.

use super::cocoop::{Cocoop, CocoopConfig};
use super::coop::{Coop, CoopConfig};
use super::maple::{Maple, MapleConfig};
use super::recipe::{OptimiserKind, Recipe, Schedule};
use super::sapt::{Sapt, SaptConfig};
use super::tip_adapter::{TipAdapter, TipAdapterConfig};
use super::{TuneTask, Tuner};
use crate::data::train_images::TrainViews;
use crate::methods::options::Options;
use crate::{Error, Result};
use serde::Serialize;

/// What a tuner's steps are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// Image features: they are computed once and kept in a bank.
    Features,
    /// Pixels: the tuner changes the image tower, so every step encodes its batch.
    Pixels,
}

/// One registry entry.
pub struct TunerSpec {
    /// The name used in the CLI, TOML, JSON and Python.
    pub name: &'static str,
    /// Other names it answers to.
    pub aliases: &'static [&'static str],
    /// What its steps are given.
    pub input: Input,
    /// A vision transformer is needed: ResNet towers are refused.
    pub vit: bool,
    /// The table of its options.
    pub table: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Its file; [`TunerSpec::docs`] is the text at its top.
    pub source: &'static str,
    /// Builds it from its options; an absent option has its default.
    pub build: fn(&toml::Table, &TuneTask<'_>) -> Result<Box<dyn Tuner>>,
    /// Refuses wrong options before anything is loaded.
    pub check: fn(&toml::Table) -> Result<()>,
    /// All options with their defaults.
    pub defaults: fn() -> toml::Table,
    /// How it is trained.
    pub recipe: fn() -> Recipe,
    /// The views it is trained on.
    pub views: fn() -> TrainViews,
}

impl TunerSpec {
    /// What it does, formula, cost, parameters with the source of each default, reference: the text that opens its file.
    pub fn docs(&self) -> String {
        let lines = self.source.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }
}

impl std::fmt::Debug for TunerSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunerSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All tuners.
pub static TUNERS: &[&TunerSpec] = &[&SAPT, &COOP, &COCOOP, &MAPLE, &TIP_ADAPTER, &TIP_ADAPTER_F];

static SAPT: TunerSpec = TunerSpec {
    name: "sapt",
    aliases: &["fga"],
    input: Input::Features,
    vit: false,
    table: SaptConfig::NAME,
    summary: "context tokens in a flat minimum: CoOp's loss and its sharpness",
    source: include_str!("sapt.rs"),
    build: |options, task| Ok(Box::new(Sapt::build(&SaptConfig::read(options)?, task)?)),
    check: |options| SaptConfig::read(options).map(drop),
    defaults: SaptConfig::table,
    recipe: Recipe::default,
    views: TrainViews::default,
};

static COOP: TunerSpec = TunerSpec {
    name: "coop",
    aliases: &[],
    input: Input::Features,
    vit: false,
    table: CoopConfig::NAME,
    summary: "context tokens that lower the cross-entropy of the shots",
    source: include_str!("coop.rs"),
    build: |options, task| Ok(Box::new(Coop::build(&CoopConfig::read(options)?, task)?)),
    check: |options| CoopConfig::read(options).map(drop),
    defaults: CoopConfig::table,
    recipe: Recipe::default,
    views: TrainViews::default,
};

static COCOOP: TunerSpec = TunerSpec {
    name: "cocoop",
    aliases: &[],
    input: Input::Features,
    vit: false,
    table: CocoopConfig::NAME,
    summary: "context tokens that a small network shifts for every image",
    source: include_str!("cocoop.rs"),
    build: |options, task| Ok(Box::new(Cocoop::build(&CocoopConfig::read(options)?, task)?)),
    check: |options| CocoopConfig::read(options).map(drop),
    defaults: CocoopConfig::table,
    recipe: || Recipe { epochs: 10, batch: 1, ..Recipe::default() },
    views: TrainViews::default,
};

static MAPLE: TunerSpec = TunerSpec {
    name: "maple",
    aliases: &[],
    input: Input::Pixels,
    vit: true,
    table: MapleConfig::NAME,
    summary: "coupled prompts in the first blocks of both towers (ViT only)",
    source: include_str!("maple.rs"),
    build: |options, task| Ok(Box::new(Maple::build(&MapleConfig::read(options)?, task)?)),
    check: |options| MapleConfig::read(options).map(drop),
    defaults: MapleConfig::table,
    recipe: || Recipe { epochs: 5, batch: 4, lr: 0.0035, ..Recipe::default() },
    views: || TrainViews { bank: 0, ..TrainViews::default() },
};

static TIP_ADAPTER: TunerSpec = TunerSpec {
    name: "tip-adapter",
    aliases: &["tip"],
    input: Input::Features,
    vit: false,
    table: TipAdapterConfig::NAME,
    summary: "a cache of the shots' features beside the zero-shot classifier, without training",
    source: include_str!("tip_adapter.rs"),
    build: |options, task| Ok(Box::new(TipAdapter::build(&TipAdapterConfig::read(options)?, task)?)),
    check: |options| TipAdapterConfig::read(options).map(drop),
    defaults: TipAdapterConfig::table,
    recipe: || Recipe { epochs: 0, ..tip_adapter_f_recipe() },
    views: tip_adapter_views,
};

static TIP_ADAPTER_F: TunerSpec = TunerSpec {
    name: "tip-adapter-f",
    aliases: &["tip-f"],
    input: Input::Features,
    vit: false,
    table: TipAdapterConfig::NAME,
    summary: "Tip-Adapter with trained keys",
    source: include_str!("tip_adapter.rs"),
    build: |options, task| Ok(Box::new(TipAdapter::build(&TipAdapterConfig::read(options)?, task)?)),
    check: |options| TipAdapterConfig::read(options).map(drop),
    defaults: TipAdapterConfig::table,
    recipe: tip_adapter_f_recipe,
    views: tip_adapter_views,
};

/// Ten views of at least half the picture, as published.
fn tip_adapter_views() -> TrainViews {
    TrainViews { bank: 10, scale: [0.5, 1.0], ..TrainViews::default() }
}

fn tip_adapter_f_recipe() -> Recipe {
    Recipe {
        epochs: 20,
        batch: 256,
        keep_last: true,
        optimiser: OptimiserKind::AdamW,
        lr: 1e-3,
        eps: 1e-4,
        weight_decay: 0.01,
        schedule: Schedule::Step,
        warmup_epochs: 0,
        ..Recipe::default()
    }
}

/// The tuner of a name or alias.
pub fn tuner(name: &str) -> Result<&'static TunerSpec> {
    TUNERS.iter().copied().find(|s| s.name == name || s.aliases.contains(&name)).ok_or_else(|| {
        let known: Vec<&str> = TUNERS.iter().map(|s| s.name).collect();
        let presets: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
        let (known, presets) = (known.join(", "), presets.join(", "));
        Error::config("method", format!("no tuner is called `{name}`; known are {known}; presets are {presets}"))
    })
}

/// A published setting under a name.
#[derive(Debug)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// The tuner.
    pub method: &'static str,
    /// What it reproduces.
    pub summary: &'static str,
    /// Images per class.
    pub shots: usize,
    /// The tables `[train]` and of the tuner, as TOML.
    pub toml: &'static str,
}

/// All presets.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "sapt-dg",
        method: "sapt",
        summary: "SAPT for domain generalisation: 16-shot ImageNet, 50 epochs, batch 32",
        shots: 16,
        toml: "[train]\nepochs = 50\nbatch = 32\n[sapt]\nwords = 'a photo of a'",
    },
    Preset {
        name: "sapt-xd",
        method: "sapt",
        summary: "SAPT for cross-dataset transfer: 16-shot ImageNet, 5 epochs, batch 4",
        shots: 16,
        toml: "[train]\nepochs = 5\nbatch = 4\n[sapt]\nwords = 'a photo of a'",
    },
    Preset {
        name: "coop-in16-l4-words",
        method: "coop",
        summary: "the CoOp row of the CoCoOp paper: 16-shot ImageNet, 4 tokens from words",
        shots: 16,
        toml: "[train]\nepochs = 50\nbatch = 32\n[coop]\nwords = 'a photo of a'",
    },
    Preset {
        name: "coop-in16-l16",
        method: "coop",
        summary: "the CoOp paper: 16-shot ImageNet, 16 random tokens",
        shots: 16,
        toml: "[train]\nepochs = 50\nbatch = 32\n[coop]\nwords = ''\nn_ctx = 16",
    },
    Preset {
        name: "coop-few-shot",
        method: "coop",
        summary: "the CoOp paper on the ten other sets: 16 shots, 200 epochs, 16 random tokens",
        shots: 16,
        toml: "[train]\nepochs = 200\nbatch = 32\n[coop]\nwords = ''\nn_ctx = 16",
    },
    Preset {
        name: "cocoop-in16",
        method: "cocoop",
        summary: "the CoCoOp paper: 16 shots, 10 epochs, batch 1",
        shots: 16,
        toml: "[train]\nepochs = 10\nbatch = 1",
    },
    Preset {
        name: "maple-b2n",
        method: "maple",
        summary: "MaPLe base-to-new: depth 9, 5 epochs",
        shots: 16,
        toml: "[train]\nepochs = 5\nbatch = 4\nlr = 0.0035\n[maple]\ndepth = 9",
    },
    Preset {
        name: "maple-xd",
        method: "maple",
        summary: "MaPLe cross-dataset and domain generalisation: depth 3, 2 epochs",
        shots: 16,
        toml: "[train]\nepochs = 2\nbatch = 4\nlr = 0.0026\n[maple]\ndepth = 3",
    },
    Preset {
        name: "tip-in16",
        method: "tip-adapter",
        summary: "Tip-Adapter, ImageNet settings",
        shots: 16,
        toml: "[tip-adapter]\nalpha = 1.17\nbeta = 1.0\nsearch_scale = [7.0, 3.0]",
    },
    Preset {
        name: "tipf-in16",
        method: "tip-adapter-f",
        summary: "Tip-Adapter-F, ImageNet settings: 20 epochs, batch 256",
        shots: 16,
        toml: "[train]\nepochs = 20\nbatch = 256\n[tip-adapter]\nalpha = 1.17\nbeta = 1.0\nsearch_scale = [7.0, 3.0]",
    },
];

/// The preset of a name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|p| p.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_and_presets_are_valid() {
        let mut names: Vec<&str> = TUNERS.iter().flat_map(|s| s.aliases.iter().chain([&s.name])).copied().collect();
        names.extend(PRESETS.iter().map(|p| p.name));
        names.sort_unstable();
        names.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1]));
        for spec in TUNERS {
            (spec.check)(&(spec.defaults)()).unwrap();
            let docs = spec.docs();
            for part in ["loss", "Cost", "Reference", "golden"] {
                assert!(docs.contains(part), "{} docs have no `{part}`", spec.name);
            }
            assert!(!docs.contains("use "), "{} docs run into the code", spec.name);
        }
        for preset in PRESETS {
            let spec = tuner(preset.method).unwrap();
            let tables: toml::Table = preset.toml.parse().unwrap();
            for (name, value) in &tables {
                let table = value.as_table().unwrap();
                match name.as_str() {
                    "train" => drop(Recipe::read(table).unwrap()),
                    name if name == spec.table => (spec.check)(table).unwrap(),
                    other => panic!("preset {} has a table {other}", preset.name),
                }
            }
        }
    }
}
