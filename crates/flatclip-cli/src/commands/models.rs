//! `flatclip models`: what is known, what is on disk; `flatclip models show MODEL`: what a checkpoint is.

use crate::prelude::*;
use flatclip::weights::{self, Checkpoint, KNOWN, Places};
use std::collections::BTreeMap;

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

pub(crate) fn run(args: Args, out: &Output) -> Result<()> {
    let mut places = flatclip::model_places();
    places.model_dir = args.model_dir.or(places.model_dir);
    match args.action {
        None | Some(Action::List) => list(&places, out),
        Some(Action::Show { model }) => show(&model, &places, out),
    }
}

/// How the state of a model begins whose files cannot be read.
const UNUSABLE: &str = "unusable";

fn list(places: &Places, out: &Output) -> Result<()> {
    let mut rows = embedded()?;
    for model in KNOWN {
        let path = model.find(places);
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
    if out.is_json {
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

fn show(model: &str, places: &Places, out: &Output) -> Result<()> {
    let known = weights::known(model);
    if let Some(known) = known.filter(|known| !Path::new(model).exists() && known.find(places).is_none()) {
        return show_published(known, out);
    }
    let checkpoint = weights::resolve(model, places)?;
    let tokenizer = flatclip::text::Tokenizer::of(&checkpoint);
    if let Some(doubt) = checkpoint.activation_doubt() {
        out.warn(doubt);
    }
    let (dtypes, hash) = (dtypes(&checkpoint), checkpoint.hash()?);
    let digest = Some(checkpoint.path()).filter(|path| path.is_file()).map(weights::file_sha256).transpose()?;
    let published = digest.and_then(|digest| weights::published_as(&digest)).map(|known| known.name);
    if out.is_json {
        return out.json(&json!({
            "path": checkpoint.path(), "naming": checkpoint.naming(), "config": checkpoint.config(),
            "released_as": checkpoint.config().released_name(), "published_file": published,
            "parameters": checkpoint.parameters(), "tensors": checkpoint.names().count(), "dtypes": dtypes, "hash": hash,
            "tokenizer": checkpoint.tokenizer_dir(), "tokenizer_kind": tokenizer.as_ref().ok().map(|found| found.describe()),
            "repository": known.map(|known| known.repositories[0]),
        }));
    }
    let dtypes: Vec<String> = dtypes.iter().map(|(dtype, tensors)| format!("{dtype} ({tensors} tensors)")).collect();
    let config = checkpoint.config();
    let preprocessing = config.preprocess.describe();
    out.line(format_args!("{}\n{}\npreprocessing: {preprocessing}", checkpoint.path().display(), config.describe()))?;
    match &tokenizer {
        Ok(tokenizer) => out.line(format_args!("tokenizer: {}", tokenizer.describe()))?,
        Err(error) => out.warn(format_args!("tokenizer: {error}")),
    }
    out.line(format_args!("{} parameters, {}", checkpoint.parameters(), dtypes.join(", ")))?;
    out.line(format_args!("logit scale {}\nweights {hash}", config.logit_scale))?;
    published.map_or(Ok(()), |name| out.line(format_args!("the file is the published {name}")))
}

/// What is known of a published model that is not on disk.
fn show_published(known: &weights::KnownModel, out: &Output) -> Result<()> {
    let random = weights::random(known.architecture(), 0)?;
    let (mut config, parameters) = (random.config().clone(), random.parameters());
    (config.activation, config.preprocess) = (known.activation.unwrap_or(config.activation), known.preprocess);
    config.activation_source = flatclip::model::ActivationSource::Published;
    let document = json!({
        "path": null, "naming": null, "config": config, "released_as": known.architecture(), "published_file": null,
        "parameters": parameters, "tensors": random.names().count(), "dtypes": dtypes(&random), "hash": null,
        "tokenizer": null, "tokenizer_kind": known.tokenizer(), "repository": known.repositories[0],
    });
    let text = format!(
        "{} (not on disk; hub repository {})\n{}\npreprocessing: {}\ntokenizer: {}\n{parameters} parameters, {} MB in f32",
        known.name,
        known.repositories[0],
        config.describe(),
        known.preprocess.describe(),
        known.tokenizer(),
        (4 * parameters).div_ceil(1_000_000)
    );
    out.say(&document, text)
}

/// How many tensors are stored in which type.
fn dtypes(checkpoint: &Checkpoint) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for dtype in checkpoint.names().filter_map(|name| checkpoint.dtype(name)) {
        *counts.entry(dtype.name()).or_insert(0) += 1;
    }
    counts
}
