//! `--prompt`, `--template`, `--ensemble`, `--text-features`: four ways to give a prompt.

use crate::output::Output;
use anyhow::{Result, bail, ensure};
use flatclip::Prompt;
use flatclip::prompt::{PromptContent, read_text_features};
use flatclip::text::templates::Ensemble;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Debug, Default)]
pub(crate) struct PromptArgs {
    /// A text with `{}` for the class name (repeat for several; their features are averaged) [default: "a photo of a {}."]
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["ensemble", "prompt", "text_features"])]
    template: Vec<String>,
    /// A known set of templates: imagenet7, imagenet80, c-tpt4
    #[arg(long, value_name = "NAME", conflicts_with_all = ["prompt", "text_features"])]
    ensemble: Option<Ensemble>,
    /// A prompt file, or the run directory of `flatclip tune` (`eval` takes several)
    #[arg(long, value_name = "FILE|RUN", conflicts_with = "text_features")]
    prompt: Vec<PathBuf>,
    /// Class embeddings made elsewhere: safetensors or .npy, [classes, width]; no text tower is needed then
    #[arg(long, value_name = "FILE")]
    text_features: Option<PathBuf>,
    /// Accept a prompt that was learned with another model
    #[arg(long)]
    pub(crate) any_model: bool,
}

impl PromptArgs {
    pub(crate) fn read(&self) -> Result<Prompt> {
        ensure!(self.prompt.len() < 2, "--prompt: expected one, found {}", self.prompt.len());
        Ok(match (&self.text_features, self.prompt.first(), self.ensemble) {
            (Some(file), _, _) => read_text_features(file)?,
            (_, Some(path), _) => Prompt::open(path)?,
            (_, _, Some(ensemble)) => Prompt::templates(ensemble.templates())?,
            _ if self.template.is_empty() => Prompt::templates(&[Prompt::TEMPLATE])?,
            _ => Prompt::templates(&self.template)?,
        })
    }

    pub(crate) fn read_templates(&self) -> Result<Vec<String>> {
        match self.read()?.content {
            PromptContent::Templates(templates) => Ok(templates),
            _ => bail!("--descriptions: adds sentences to templates; give --template or --ensemble with it"),
        }
    }

    /// Every prompt that was asked for, with the folder name of its runs where there are several.
    pub(crate) fn read_all(&self) -> Result<Vec<(Option<String>, Prompt)>> {
        let [_, _, ..] = self.prompt.as_slice() else { return Ok(vec![(None, self.read()?)]) };
        let mut all: Vec<(Option<String>, Prompt)> = Vec::new();
        for path in &self.prompt {
            let name = prompt_name(path);
            if all.iter().any(|(other, _)| *other == name) {
                bail!("--prompt {}: another prompt has this name; their runs need names of their own", path.display());
            }
            all.push((name, Prompt::open(path)?));
        }
        Ok(all)
    }

    pub(crate) fn is_default(&self) -> bool {
        self.template.is_empty() && self.ensemble.is_none() && self.prompt.is_empty() && self.text_features.is_none()
    }
}

/// The run directory's whole name (it may contain a point), or the file's name without its ending.
pub(crate) fn prompt_name(path: &Path) -> Option<String> {
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    name.map(|name| name.to_string_lossy().into_owned())
}

/// Says that a sapt prompt was tuned with a radius in another unit than stss takes its own in.
pub(crate) fn say_radius_units(prompt: &Prompt, method: &str, options: &toml::Table, out: &Output) {
    const ABSOLUTE: &str = "absolute";
    let is_stss = flatclip::methods::adapter(method).is_ok_and(|spec| spec.name == "stss");
    if prompt.label() != "sapt" || !is_stss {
        return;
    }
    let settings: toml::Table = prompt.provenance.config.parse().unwrap_or_default();
    let tuned = unit(settings.get("sapt")).unwrap_or(ABSOLUTE);
    let asked = options.get("radius_unit").and_then(toml::Value::as_str).or_else(|| unit(options.get("stss")));
    let asked = asked.unwrap_or(ABSOLUTE);
    if tuned != asked {
        let say =
            |unit| if unit == ABSOLUTE { "in the units of the context" } else { "relative to the context's norm" };
        out.warn(format_args!(
            "the sapt prompt was tuned with a radius {}, and stss takes its radius {}: the two are not the same distance; \
             --set stss.radius_unit={tuned} takes them alike",
            say(tuned),
            say(asked)
        ));
    }
}

fn unit(table: Option<&toml::Value>) -> Option<&str> {
    table?.as_table()?.get("radius_unit")?.as_str()
}
