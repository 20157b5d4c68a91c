//! `--prompt`, `--template`, `--ensemble`, `--text-features`: four ways to give a prompt.

use crate::output::Output;
use anyhow::{Result, bail, ensure};
use flatclip::Prompt;
use flatclip::prompt::{PromptContent, read_text_features};
use flatclip::text::templates::Ensemble;
use std::path::PathBuf;

/// The prompt.
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
    /// The prompt that was asked for.
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

    /// The templates that were asked for.
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
            let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
            let name = name.map(|name| name.to_string_lossy().into_owned());
            let taken = all.iter().any(|(other, _)| *other == name);
            ensure!(
                !taken,
                "--prompt {}: another prompt has this name; their runs need names of their own",
                path.display()
            );
            all.push((name, Prompt::open(path)?));
        }
        Ok(all)
    }

    /// Whether no option was given.
    pub(crate) fn is_default(&self) -> bool {
        self.template.is_empty() && self.ensemble.is_none() && self.prompt.is_empty() && self.text_features.is_none()
    }
}

/// Says that a sapt prompt was tuned with a radius in another unit than stss takes its own in.
pub(crate) fn say_radius_units(prompt: &Prompt, method: &str, options: &toml::Table, out: &Output) {
    let is_stss = flatclip::methods::adapter(method).is_ok_and(|spec| spec.name == "stss");
    if prompt.label() != "sapt" || !is_stss {
        return;
    }
    let (tuned, asked) = (tuned_unit(prompt), unit(options).or_else(|| unit(options.get("stss")?.as_table()?)));
    let asked = asked.unwrap_or_else(|| ABSOLUTE.to_owned());
    if tuned != asked {
        let said = |unit: &str| {
            if unit == ABSOLUTE { "in the units of the context" } else { "relative to the context's norm" }
        };
        out.warn(format_args!(
            "the sapt prompt was tuned with a radius {}, and stss takes its radius {}: the two are not the same distance; \
             --set stss.radius_unit={tuned} takes them alike",
            said(&tuned),
            said(&asked)
        ));
    }
}

/// The default unit.
const ABSOLUTE: &str = "absolute";

fn unit(table: &toml::Table) -> Option<String> {
    Some(table.get("radius_unit")?.as_str()?.to_owned())
}

/// What the prompt's own settings say.
fn tuned_unit(prompt: &Prompt) -> String {
    let settings = prompt.provenance.config.parse::<toml::Table>().unwrap_or_default();
    settings.get("sapt").and_then(|sapt| unit(sapt.as_table()?)).unwrap_or_else(|| ABSOLUTE.to_owned())
}
