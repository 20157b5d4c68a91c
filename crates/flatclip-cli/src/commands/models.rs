//! `flatclip models`: what is known, what is on disk; `flatclip models show MODEL`: what a checkpoint is.

use crate::output::{Exit, Output};
use anyhow::Result;
use flatclip::weights::{self, Checkpoint, KNOWN, Places};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Options of `flatclip models`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Where known names are looked for first
    #[arg(long, env = "FLATCLIP_MODEL_DIR", value_name = "DIR", global = true)]
    model_dir: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Which models are known by name, and which of them are on disk (the default)
    List,
    /// What a model is: architecture, activation, preprocessing, tokenizer, precision, hash
    Show {
        /// A checkpoint file, a model folder, a known name, pocket, pocket-vit, or random:ARCH
        model: String,
    },
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    match args.action {
        None | Some(Action::List) => list(args.model_dir.as_deref(), out)?,
        Some(Action::Show { model }) => show(&model, args.model_dir.as_deref(), out)?,
    }
    Ok(Exit::Done)
}

/// How the state of a model begins whose files cannot be read.
const UNUSABLE: &str = "unusable";

fn list(model_dir: Option<&Path>, out: &Output) -> Result<()> {
    let places = places(model_dir);
    let mut rows = embedded()?;
    for model in KNOWN {
        let path = model.find(&places);
        let opened = path.as_ref().map(|path| model.open(path));
        let state = match &opened {
            None => "not on disk".to_owned(),
            Some(Ok(checkpoint)) => checkpoint.config().describe(),
            Some(Err(error)) => format!("{UNUSABLE}: {error}"),
        };
        rows.push(json!({
            "name": model.name, "repository": model.repositories[0], "activation": model.activation,
            "preprocess": model.preprocess, "tokenizer": model.tokenizer(),
            "path": path, "bytes": path.as_deref().map(size), "state": state,
        }));
    }
    if out.is_json() {
        return out.json(&json!({ "models": rows }));
    }
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let cells = rows.iter().map(|row| {
        let size = row["bytes"].as_u64().map_or("-".into(), |bytes| format!("{} MB", bytes.div_ceil(1_000_000)));
        let place = text(row, if row["path"].is_null() { "state" } else { "path" });
        let activation = row["activation"].as_str().unwrap_or("by its files").to_owned();
        let how = &row["preprocess"];
        [text(row, "name"), activation, text(how, "resize"), text(how, "filter"), size, place]
    });
    out.rows(&["model", "activation", "resize", "filter", "size", "where"], cells)?;
    for row in rows.iter().filter(|row| text(row, "state").starts_with(UNUSABLE)) {
        out.warn(format_args!("{} is {}", text(row, "name"), text(row, "state")));
    }
    out.note("`flatclip models show NAME` prints architecture, preprocessing, tokenizer and repository");
    let dir = |path: &Option<PathBuf>| path.as_ref().map_or("none".into(), |path| path.display().to_string());
    out.note(format_args!("model folder: {}; hub cache: {}", dir(&places.model_dir), dir(&places.hub_cache)));
    Ok(())
}

/// Where known names are looked for.
fn places(model_dir: Option<&Path>) -> Places {
    let mut places = flatclip::model_places();
    if let Some(folder) = model_dir {
        places.model_dir = Some(folder.to_path_buf());
    }
    places
}

/// The models that need no file.
fn embedded() -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for name in flatclip_pocket::MODEL_NAMES {
        let files = flatclip_pocket::model_files(name).unwrap_or_default();
        let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        let checkpoint = Checkpoint::embedded(name).transpose()?;
        let config = checkpoint.as_ref().map(Checkpoint::config);
        rows.push(json!({
            "name": name, "repository": null, "activation": config.map(|config| config.activation),
            "preprocess": config.map(|config| config.preprocess), "tokenizer": "its own",
            "path": "embedded", "bytes": bytes, "state": config.map(|config| config.describe()),
        }));
    }
    Ok(rows)
}

/// Bytes of a file, or of the files directly in a folder.
fn size(path: &Path) -> u64 {
    let len = |path: &Path| std::fs::metadata(path).map_or(0, |about| about.len());
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| len(&entry.path())).sum(),
        Err(_) => len(path),
    }
}

fn show(model: &str, model_dir: Option<&Path>, out: &Output) -> Result<()> {
    let places = places(model_dir);
    if let Some(known) = weights::known(model)
        && !Path::new(model).exists()
        && known.find(&places).is_none()
    {
        return show_published(known, out);
    }
    let checkpoint = weights::resolve(model, &places)?;
    let tokenizer = flatclip::text::Tokenizer::of(&checkpoint);
    if let Some(doubt) = checkpoint.activation_doubt() {
        out.warn(doubt);
    }
    let dtypes = dtypes(&checkpoint);
    let file = Some(checkpoint.path()).filter(|path| path.is_file());
    let published = match file {
        Some(path) => weights::published_as(&weights::file_sha256(path)?).map(|known| known.name),
        None => None,
    };
    let hash = checkpoint.hash()?;
    if out.is_json() {
        return out.json(&json!({
            "path": checkpoint.path(), "naming": checkpoint.naming(), "config": checkpoint.config(),
            "released_as": checkpoint.config().released_name(), "published_file": published,
            "parameters": checkpoint.parameters(), "tensors": checkpoint.names().count(), "dtypes": dtypes, "hash": hash,
            "tokenizer": checkpoint.tokenizer_dir(), "tokenizer_kind": tokenizer.as_ref().ok().map(|found| found.describe()),
            "repository": weights::known(model).map(|known| known.repositories[0]),
        }));
    }
    let dtypes: Vec<String> = dtypes.iter().map(|(dtype, tensors)| format!("{dtype} ({tensors} tensors)")).collect();
    out.line(format_args!("{}", checkpoint.path().display()))?;
    out.line(checkpoint.config().describe())?;
    out.line(format_args!("preprocessing: {}", checkpoint.config().preprocess.describe()))?;
    match &tokenizer {
        Ok(tokenizer) => out.line(format_args!("tokenizer: {}", tokenizer.describe()))?,
        Err(error) => out.warn(format_args!("tokenizer: {error}")),
    }
    out.line(format_args!("{} parameters, {}", checkpoint.parameters(), dtypes.join(", ")))?;
    out.line(format_args!("logit scale {}", checkpoint.config().logit_scale))?;
    out.line(format_args!("weights {hash}"))?;
    if let Some(name) = published {
        out.line(format_args!("the file is the published {name}"))?;
    }
    Ok(())
}

/// What is known of a published model that is not on disk.
fn show_published(known: &weights::KnownModel, out: &Output) -> Result<()> {
    let random = weights::random(known.architecture(), 0)?;
    let (mut config, parameters) = (random.config().clone(), random.parameters());
    (config.activation, config.preprocess) = (known.activation.unwrap_or(config.activation), known.preprocess);
    config.activation_source = flatclip::model::ActivationSource::Published;
    if out.is_json() {
        return out.json(&serde_json::json!({
            "path": null, "naming": null, "config": config, "released_as": known.architecture(), "published_file": null,
            "parameters": parameters, "tensors": random.names().count(), "dtypes": dtypes(&random), "hash": null,
            "tokenizer": null, "tokenizer_kind": known.tokenizer(), "repository": known.repositories[0],
        }));
    }
    out.line(format_args!("{} (not on disk; hub repository {})", known.name, known.repositories[0]))?;
    out.line(config.describe())?;
    out.line(format_args!("preprocessing: {}", known.preprocess.describe()))?;
    out.line(format_args!("tokenizer: {}", known.tokenizer()))?;
    out.line(format_args!("{parameters} parameters, {} MB in f32", (4 * parameters).div_ceil(1_000_000)))?;
    Ok(())
}

/// How many tensors are stored in which type.
fn dtypes(checkpoint: &Checkpoint) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for dtype in checkpoint.names().filter_map(|name| checkpoint.dtype(name)) {
        *counts.entry(dtype.name()).or_insert(0) += 1;
    }
    counts
}
