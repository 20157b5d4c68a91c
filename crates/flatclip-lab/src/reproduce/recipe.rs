//! Recipes: the description of an item of a paper: prompts to tune, rows to evaluate, data sets, sweeps and landscapes. A recipe
//! is a data file without code, so that a table of another paper needs only another file.

use super::plan::slug;
use crate::eval::GridAxis;
use flatclip::error::{escaped, quoted};
use flatclip::files::read_text;
use flatclip::settings::toml_error;
use flatclip::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// One item: a table, an ablation or a figure.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Its name on the command line.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Its name in the paper; empty for items that are not in it.
    #[serde(default)]
    pub paper: String,
    /// Notes for users: selection rules, and where the protocol is not published.
    #[serde(default)]
    pub about: String,
    /// The default model.
    pub model: String,
    /// The source data set for tuning; empty if nothing is tuned.
    #[serde(default)]
    pub source: String,
    /// Data sets, in the order of the columns.
    pub datasets: Vec<String>,
    /// In-distribution data sets: excluded from the OOD average, which is printed only if there are any.
    #[serde(default)]
    pub in_domain: Vec<String>,
    /// Seeds of tuning, views and methods.
    pub seeds: Vec<u64>,
    /// How views are made: crop-flip, augmix, identity, or `published` for the augmentation of each method's published code.
    #[serde(default = "published")]
    pub policy: String,
    /// Views per image; the default of each method if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<usize>,
    /// Maximum images per data set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The row with which the others are compared, image by image.
    #[serde(default)]
    pub reference: String,
    /// Prompts by name.
    #[serde(default, rename = "prompt")]
    pub prompts: Vec<RecipePrompt>,
    /// Rows of the table.
    #[serde(default, rename = "row")]
    pub rows: Vec<RecipeRow>,
    /// Grids of settings.
    #[serde(default, rename = "sweep")]
    pub sweeps: Vec<RecipeSweep>,
    /// Loss surfaces.
    #[serde(default, rename = "landscape")]
    pub landscapes: Vec<RecipeLandscape>,
    /// Methods whose time and memory per image are measured.
    #[serde(default)]
    pub bench: Vec<String>,
}

/// A prompt: templates, or the result of tuning on the source.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RecipePrompt {
    /// The name by which rows refer to it.
    pub name: String,
    /// A text with `{}`, `template`, `imagenet7`, `imagenet80`, or `own` for each data set's own templates.
    #[serde(default)]
    pub text: String,
    /// Whether class descriptions are added, if the user has them.
    #[serde(default)]
    pub described: bool,
    /// Different templates for some data sets.
    #[serde(default)]
    pub on: BTreeMap<String, String>,
    /// A tuner, or a preset of one.
    #[serde(default)]
    pub tuner: String,
    /// Images per class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shots: Option<usize>,
    /// Held-out images per class for selecting settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<usize>,
    /// Whether the radius is searched on held-out images: highest accuracy, then lowest loss, then smallest radius.
    #[serde(default)]
    pub search: bool,
    /// Use all images of a class that has fewer than `shots`.
    #[serde(default)]
    pub allow_fewer: bool,
    /// Options: the tables `[train]`, `[views]` and the tuner's.
    #[serde(default)]
    pub settings: toml::Table,
}

/// A row: a prompt and an adapter.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeRow {
    /// Its label in the table.
    pub label: String,
    /// Name of a prompt.
    pub prompt: String,
    /// The adapter.
    pub method: String,
    /// Its options that differ from its defaults.
    #[serde(default)]
    pub options: toml::Table,
    /// Overrides the recipe's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Overrides the recipe's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<usize>,
    /// Only on these of the recipe's data sets; all when empty.
    #[serde(default)]
    pub datasets: Vec<String>,
}

/// A grid of settings of one adapter.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeSweep {
    /// Name of its folder.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Name of a prompt.
    pub prompt: String,
    /// The adapter.
    pub method: String,
    /// `key=a,b,c` or `key=low..high:step`.
    pub axes: Vec<String>,
    /// On these of the recipe's data sets; all when empty.
    #[serde(default)]
    pub datasets: Vec<String>,
}

/// Loss surfaces around prompts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeLandscape {
    /// Name of its folder.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Names of prompts, side by side.
    pub prompts: Vec<String>,
    /// `training`: the loss of some source images; or a data set: a selected and a rejected view of its first image.
    pub of: String,
    /// Images per class for `training`.
    #[serde(default = "four")]
    pub shots: usize,
    /// Grid points along each axis.
    #[serde(default = "thirty_one")]
    pub points: usize,
}

fn published() -> String {
    "published".into()
}

fn four() -> usize {
    4
}

fn thirty_one() -> usize {
    31
}

/// The recipes of the paper, and those on the pocket dataset, in the order in which they are listed.
const EMBEDDED: &[&str] = &[
    include_str!("recipes/table1.toml"),
    include_str!("recipes/table2.toml"),
    include_str!("recipes/table3.toml"),
    include_str!("recipes/table4.toml"),
    include_str!("recipes/components.toml"),
    include_str!("recipes/rho.toml"),
    include_str!("recipes/rho-test.toml"),
    include_str!("recipes/directions.toml"),
    include_str!("recipes/fraction.toml"),
    include_str!("recipes/lambda.toml"),
    include_str!("recipes/landscapes.toml"),
    include_str!("recipes/efficiency.toml"),
    include_str!("recipes/beyond.toml"),
    include_str!("recipes/pocket.toml"),
    include_str!("recipes/demo.toml"),
];

impl Recipe {
    /// All recipes that come with the library.
    pub fn embedded() -> Result<Vec<Self>> {
        EMBEDDED.iter().map(|text| Self::parse(text)).collect()
    }

    /// An embedded recipe by its name, or by its name in the paper (`Table 1`, `figure3`).
    pub fn find(name: &str) -> Result<Self> {
        let plain = |text: &str| text.to_ascii_lowercase().replace([' ', '-', '_'], "");
        let all = Self::embedded()?;
        let found = all.iter().find(|recipe| [&recipe.name, &recipe.paper].iter().any(|n| plain(n) == plain(name)));
        found.cloned().ok_or_else(|| Error::unknown("item", name, all.iter().map(|recipe| recipe.name.as_str())))
    }

    /// Reads the user's own recipe.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&read_text(path)?).map_err(|e| Error::config(path.display().to_string(), e.to_string()))
    }

    /// Reads and checks the text of a recipe.
    pub fn parse(text: &str) -> Result<Self> {
        let fault = |error: toml::de::Error| toml_error("recipe", text, &error);
        let table: toml::Table = toml::from_str(text).map_err(fault)?;
        if let Some(bad) = table.iter().find_map(|(key, value)| steering(key, value)) {
            return Err(Error::config("recipe", format!("control characters in \"{}\"", quoted(bad))));
        }
        let recipe: Self = toml::from_str(text).map_err(fault)?;
        recipe.check()?;
        Ok(recipe)
    }

    /// Refuses unknown and duplicate names before anything runs.
    fn check(&self) -> Result<()> {
        let prompts: Vec<&str> = self.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
        let labels: Vec<&str> = self.rows.iter().map(|row| row.label.as_str()).collect();
        // Compared by their folder names.
        unique("prompt", &prompts)?;
        unique("row", &labels)?;
        if self.seeds.is_empty() {
            return Err(self.fault("seeds", "expected at least one, found none".into()));
        }
        for prompt in &self.prompts {
            if prompt.text.is_empty() == prompt.tuner.is_empty() {
                return Err(self.fault(&prompt.name, "a prompt has either `text` or `tuner`".into()));
            }
            if !prompt.tuner.is_empty() && self.source.is_empty() {
                return Err(self.fault(&prompt.name, "is tuned, but the recipe names no `source`".into()));
            }
        }
        let used = self.rows.iter().map(|row| row.prompt.as_str());
        let used = used.chain(self.sweeps.iter().map(|sweep| sweep.prompt.as_str()));
        let used = used.chain(self.landscapes.iter().flat_map(|l| l.prompts.iter().map(String::as_str)));
        if let Some(unknown) = used.into_iter().find(|name| !prompts.contains(name)) {
            return Err(Error::unknown("prompt of the recipe", unknown, prompts));
        }
        let some = self.rows.iter().flat_map(|row| &row.datasets).chain(self.sweeps.iter().flat_map(|s| &s.datasets));
        if let Some(unknown) = some.chain(&self.in_domain).find(|name| !self.datasets.contains(name)) {
            let known = self.datasets.iter().map(String::as_str);
            return Err(Error::unknown("data set of the recipe", unknown, known));
        }
        if !self.reference.is_empty() && !labels.contains(&self.reference.as_str()) {
            return Err(Error::unknown("row of the recipe", &self.reference, labels));
        }
        self.sweeps.iter().flat_map(|sweep| &sweep.axes).try_for_each(|axis| axis.parse::<GridAxis>().map(drop))
    }

    fn fault(&self, key: &str, reason: String) -> Error {
        Error::config(format!("recipe {}: {key}", self.name), reason)
    }

    /// A prompt by name; [`Recipe::parse`] has checked that it exists.
    pub fn prompt(&self, name: &str) -> Result<&RecipePrompt> {
        let found = self.prompts.iter().find(|prompt| prompt.name == name);
        found.ok_or_else(|| Error::unknown("prompt of the recipe", name, self.prompts.iter().map(|p| p.name.as_str())))
    }
}

/// The first text with terminal control characters: texts of a recipe are shown in tables and messages.
fn steering<'v>(key: &'v str, value: &'v toml::Value) -> Option<&'v str> {
    let bad = |text: &&str| text.lines().any(|line| escaped(line) != line);
    Some(key).filter(bad).or_else(|| match value {
        toml::Value::String(text) => Some(text.as_str()).filter(bad),
        toml::Value::Array(all) => all.iter().find_map(|value| steering("", value)),
        toml::Value::Table(table) => table.iter().find_map(|(key, value)| steering(key, value)),
        _ => None,
    })
}

fn unique(what: &str, names: &[&str]) -> Result<()> {
    let same = |(place, name): &(usize, &&str)| names[..*place].iter().any(|other| slug(other) == slug(name));
    match names.iter().enumerate().find(same) {
        Some((_, name)) => Err(Error::config("recipe", format!("{what} {name:?} is a duplicate"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Known;
    use crate::tuners::{preset, tuner};
    use flatclip::methods::adapter;

    #[test]
    fn embedded_recipes_name_methods_tuners_options_and_data_that_exist() {
        let all = Recipe::embedded().unwrap();
        for recipe in &all {
            for row in &recipe.rows {
                adapter(&row.method).unwrap().build(&row.options).unwrap_or_else(|e| panic!("{}: {e}", row.label));
            }
            for prompt in recipe.prompts.iter().filter(|prompt| !prompt.tuner.is_empty()) {
                assert!(preset(&prompt.tuner).is_some() || tuner(&prompt.tuner).is_ok(), "{}", prompt.tuner);
            }
            for data in &recipe.datasets {
                assert!(data.starts_with("pocket:") || Known::find(data).is_some(), "{data}");
            }
        }
        assert_eq!(Recipe::find("Table 1").unwrap().name, "table1");
        assert!(Recipe::find("tabel1").unwrap_err().to_string().contains("table1"));
    }

    #[test]
    fn what_leads_nowhere_is_named() {
        let base = "name = 'x'\ntitle = 'x'\nmodel = 'pocket'\ndatasets = ['pocket:photo']\nseeds = [1]\n";
        let fault = |more: &str| Recipe::parse(&format!("{base}{more}")).unwrap_err().to_string();
        assert!(fault("[[row]]\nlabel = 'a'\nprompt = 'nobody'\nmethod = 'zero'").contains("nobody"));
        assert!(fault("[[prompt]]\nname = 'p'\ntuner = 'coop'").contains("source"));
        assert!(fault("[[prompt]]\nname = 'p'").contains("either"));
        assert!(fault("colour = 'red'").contains("colour"));
        assert!(fault("reference = 'FGA'").contains("FGA"));
        let twice = "[[prompt]]\nname = 'p'\ntext = 'template'\n[[prompt]]\nname = 'p'\ntext = 'template'";
        assert!(fault(twice).contains("duplicate"));
        for steering in ["\u{1b}[2J = 1", "about = \"\\u001b[2J\"", "[[row]]\nlabel = \"a\\u202e\""] {
            let said = fault(steering);
            assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
        }
    }
}
