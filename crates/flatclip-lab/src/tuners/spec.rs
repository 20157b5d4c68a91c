//! Registry entries of tuners, the list of all, and the presets.

use super::{Recipe, TuneTask, Tuner, cocoop, coop, gda_clip, maple, sapt, tip_adapter};
use crate::data::train_images::TrainViews;
use flatclip::methods::{Verified, unknown_method};
use flatclip::options::{self, OptionSpec};
use flatclip::prompt::PromptKind;
use flatclip::{Error, Result};
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
    /// The kind of prompt that it learns.
    pub prompt: PromptKind,
    /// A vision transformer is needed: ResNet towers are refused.
    pub vit: bool,
    /// The table of its options.
    pub table: &'static str,
    /// One line.
    pub summary: &'static str,
    /// What it does, formula, cost, reference.
    pub docs: &'static str,
    /// What its numbers were held against.
    pub verified: Verified,
    /// Every option: name, kind, default, range, source, sentence.
    pub options: &'static [OptionSpec],
    /// Refuses wrong options before anything is loaded.
    pub check: fn(&toml::Table) -> Result<()>,
    /// Builds it from its options; an absent option has its default.
    pub build: fn(&toml::Table, &TuneTask<'_>) -> Result<Box<dyn Tuner>>,
    /// How it is trained.
    pub recipe: fn() -> Recipe,
    /// The views it is trained on.
    pub views: fn() -> TrainViews,
}

impl TunerSpec {
    /// All options with their defaults.
    pub fn defaults(&self) -> toml::Table {
        options::defaults(self.options)
    }

    /// All options: the given ones under their own names, the others with their defaults.
    pub fn complete(&self, given: &toml::Table) -> Result<toml::Table> {
        options::complete(self.table, self.options, given)
    }
}

impl std::fmt::Debug for TunerSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunerSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All tuners.
pub static TUNERS: &[&TunerSpec] =
    &[&sapt::SPEC, &coop::SPEC, &cocoop::SPEC, &maple::SPEC, &tip_adapter::SPEC, &tip_adapter::SPEC_F, &gda_clip::SPEC];

/// The built-in tuner of a name or alias, in any case.
pub fn tuner(name: &str) -> Result<&'static TunerSpec> {
    tuner_among(TUNERS, name)
}

/// The same among these tuners.
pub(crate) fn tuner_among(tuners: &[&'static TunerSpec], name: &str) -> Result<&'static TunerSpec> {
    let names = |spec: &TunerSpec| std::iter::once(spec.name).chain(spec.aliases.iter().copied());
    let found = tuners.iter().find(|spec| names(spec).any(|known| known.eq_ignore_ascii_case(name)));
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = tuners.iter().map(|spec| spec.name).collect();
        let aliases: Vec<&str> = tuners.iter().flat_map(|spec| spec.aliases.iter().copied()).collect();
        let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        unknown_method("tuner", name, &known, &aliases, &format!("; presets are {}", presets.join(", ")))
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
    /// The tables `[train]`, `[views]` and of the tuner, as TOML.
    pub toml: &'static str,
    /// Epochs where they depend on the shots: up to so many shots, so many epochs. Empty: those of the tables.
    pub epochs: &'static [(usize, usize)],
}

impl Preset {
    /// Its tables for a run with so many shots.
    pub fn tables(&self, shots: usize) -> Result<toml::Table> {
        let fault = |e: toml::de::Error| Error::config(self.name, e.message());
        let mut tables: toml::Table = self.toml.parse().map_err(fault)?;
        let epochs = self.epochs.iter().find(|(most, _)| shots <= *most).map(|(_, epochs)| *epochs as i64);
        if let (Some(epochs), Some(toml::Value::Table(train))) = (epochs, tables.get_mut("train")) {
            train.insert("epochs".into(), epochs.into());
        }
        Ok(tables)
    }
}

/// The seven templates of `text::imagenet`, with which Tip-Adapter's code classifies ImageNet.
macro_rules! seven_templates {
    () => {
        "templates = ['itap of a {}.', 'a bad photo of the {}.', 'a origami {}.', 'a photo of the large {}.', \
         'a {} in a video game.', 'art of the {}.', 'a photo of the small {}.']"
    };
}

const SIXTEEN_SHOTS: Preset = Preset { name: "", method: "", summary: "", shots: 16, toml: "", epochs: &[] };

/// All presets.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "sapt-dg",
        method: "sapt",
        summary: "SAPT for domain generalisation: 16-shot ImageNet, 50 epochs, batch 32",
        toml: "[train]\nepochs = 50\nbatch = 32\n[sapt]\nwords = 'a photo of a'",
        ..SIXTEEN_SHOTS
    },
    Preset {
        name: "sapt-xd",
        method: "sapt",
        summary: "SAPT for cross-dataset transfer: 16-shot ImageNet, 5 epochs, batch 4",
        toml: "[train]\nepochs = 5\nbatch = 4\n[sapt]\nwords = 'a photo of a'",
        ..SIXTEEN_SHOTS
    },
    Preset {
        name: "coop-in16-l4-words",
        method: "coop",
        summary: "the CoOp row of the CoCoOp paper: 16-shot ImageNet, 4 tokens from words",
        toml: "[train]\nepochs = 50\nbatch = 32\n[coop]\nwords = 'a photo of a'",
        ..SIXTEEN_SHOTS
    },
    Preset {
        name: "coop-in16-l16",
        method: "coop",
        summary: "the CoOp paper: 16-shot ImageNet, 16 random tokens",
        toml: "[train]\nepochs = 50\nbatch = 32\n[coop]\nwords = ''\nn_ctx = 16",
        ..SIXTEEN_SHOTS
    },
    Preset {
        name: "coop-few-shot",
        method: "coop",
        summary: "the CoOp paper on the ten other sets: 16 random tokens; 50 epochs for 1 shot, 100 for 2 to 4, else 200",
        toml: "[train]\nepochs = 200\nbatch = 32\n[coop]\nwords = ''\nn_ctx = 16",
        epochs: &[(1, 50), (4, 100), (usize::MAX, 200)],
        ..SIXTEEN_SHOTS
    },
    Preset {
        name: "cocoop-in16",
        method: "cocoop",
        summary: "the CoCoOp paper: 16 shots, 10 epochs, batch 1",
        toml: "[train]\nepochs = 10\nbatch = 1",
        ..SIXTEEN_SHOTS
    },
    Preset {
        name: "maple-b2n",
        method: "maple",
        summary: "MaPLe base-to-new: depth 9, 5 epochs",
        toml: "[train]\nepochs = 5\nbatch = 4\nlr = 0.0035\n[maple]\ndepth = 9",
        ..SIXTEEN_SHOTS
    },
    Preset {
        name: "maple-xd",
        method: "maple",
        summary: "MaPLe cross-dataset and domain generalisation: depth 3, 2 epochs",
        toml: "[train]\nepochs = 2\nbatch = 4\nlr = 0.0026\n[maple]\ndepth = 3",
        ..SIXTEEN_SHOTS
    },
    Preset {
        name: "tip-in16",
        method: "tip-adapter",
        summary: "Tip-Adapter, ImageNet settings: seven templates",
        toml: concat!("[tip-adapter]\nalpha = 1.17\nbeta = 1.0\nsearch_scale = [7.0, 3.0]\n", seven_templates!()),
        ..SIXTEEN_SHOTS
    },
    Preset {
        name: "tipf-in16",
        method: "tip-adapter-f",
        summary: "Tip-Adapter-F, ImageNet settings: seven templates, new crops in every step, 20 epochs, batch 256",
        toml: concat!(
            "[train]\nepochs = 20\nbatch = 256\n[views]\nfresh = true\n",
            "[tip-adapter]\nalpha = 1.17\nbeta = 1.0\nsearch_scale = [7.0, 3.0]\n",
            seven_templates!()
        ),
        ..SIXTEEN_SHOTS
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
    fn presets_are_settings_of_their_tuner() {
        for preset in PRESETS {
            assert!(tuner(preset.name).is_err(), "{} is a tuner", preset.name);
            let spec = tuner(preset.method).unwrap();
            let tables = preset.tables(preset.shots).unwrap();
            for (name, value) in &tables {
                let table = value.as_table().unwrap();
                match name.as_str() {
                    "train" => drop(Recipe::read(table).unwrap()),
                    "views" => drop(TrainViews::read(table).unwrap()),
                    name if name == spec.table => (spec.check)(table).unwrap(),
                    other => panic!("preset {} has a table {other}", preset.name),
                }
            }
        }
    }
}
