//! `flatclip cache`: list, import, export and remove entries of the feature cache.

use crate::inputs::cache::CacheArgs;
use crate::inputs::data::RootArgs;
use crate::output::{Exit, Output};
use crate::progress::Terminal;
use anyhow::{Result, ensure};
use flatclip::TextCache;
use flatclip::prompt::{PromptContent, read_text_features};
use flatclip_lab::eval::cache::{self, FeatureParts};
use serde_json::json;
use std::path::{Path, PathBuf};

/// What the cache holds.
const WHAT: &str = "`eval` and `sweep` keep image features (one entry for each data set, split, model, precision and way \
    to make views) and text banks here, so that the next method or setting does not run the towers again. No answer \
    depends on what is here, but those for features that you import. The folder is flatclip in the user's cache folder, or --cache DIR, or FLATCLIP_CACHE.";

/// Options of `flatclip cache`.
#[derive(clap::Args)]
#[command(after_help = WHAT)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// List the entries: data set, views, seed, precision, weights, samples, size
    Ls {
        #[command(flatten)]
        cache: CacheArgs,
    },
    /// Import features made elsewhere: then `eval --features NAME` runs every method that needs no tower
    Import(Box<ImportArgs>),
    /// Write one entry as a safetensors file: features [samples, views, width], norms, ids
    Export {
        #[command(flatten)]
        cache: CacheArgs,
        /// The entry's id as `cache ls` prints it; its beginning is enough
        id: String,
        /// The file to write
        #[arg(long, short, value_name = "FILE.safetensors")]
        out: PathBuf,
    },
    /// Remove entries by id, or everything with --all; what is removed is computed again when it is needed
    Rm {
        #[command(flatten)]
        cache: CacheArgs,
        /// Ids as `cache ls` prints them; their beginnings are enough
        ids: Vec<String>,
        /// Remove every entry, and the text banks
        #[arg(long)]
        all: bool,
    },
}

/// What the file of an import holds.
const IMPORT: &str = "The file is npz or safetensors, and is read sample by sample: it may be larger than memory. Its arrays, of \
    float32, float16 or bfloat16: `features` [N, D] or [N, V, D] (view 0 is the image itself), `text_features` [K, D] or \
    `text_bank` [R + 1, K, D] (text features at the prompt, then around it), `labels` [N], `logit_scale` (the factor on \
    cosines, 100 for OpenAI's weights); texts `ids` [N], `classes` [K], `model`, which safetensors files have in a JSON \
    document under `flatclip` in their metadata. `cache export` writes such a file.";

/// Options of `flatclip cache import`.
#[derive(clap::Args)]
#[command(after_help = IMPORT)]
struct ImportArgs {
    /// The file: npz or safetensors
    file: PathBuf,
    /// How `eval --features` names them [default: the file's name without its ending]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The data set whose images they are (folder:DIR, csv:FILE, a known name, ...): gives labels, class names and the order;
    /// ids must be those of its samples. Without it the file has labels
    #[arg(long, value_name = "DATA")]
    data: Option<String>,
    #[command(flatten)]
    root: RootArgs,
    /// Text features of another file: `text_features` or `text_bank` in npz or safetensors, or .npy
    #[arg(long, value_name = "FILE")]
    text_features: Option<PathBuf>,
    /// Ids of the samples, one per line in the order of the features
    #[arg(long, value_name = "FILE")]
    ids: Option<PathBuf>,
    /// Class names, one per line in label order
    #[arg(long, value_name = "FILE")]
    class_names: Option<PathBuf>,
    /// The factor on cosines, exp(logit_scale) in most code
    #[arg(long, value_name = "X")]
    logit_scale: Option<f64>,
    /// The model that made the features, for records
    #[arg(long, value_name = "TEXT")]
    model_name: Option<String>,
    /// Replace earlier features of this name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    cache: CacheArgs,
}

impl ImportArgs {
    /// The file, and the values of the options.
    fn parts(&self) -> Result<FeatureParts<'static>> {
        let lines = |path: &PathBuf| -> Result<Vec<String>> {
            Ok(flatclip::files::read_text(path)?.lines().map(str::to_owned).collect())
        };
        let said = FeatureParts {
            ids: self.ids.as_ref().map(lines).transpose()?,
            classes: self.class_names.as_deref().map(flatclip::text::read_class_names).transpose()?,
            logit_scale: self.logit_scale,
            model: self.model_name.clone(),
            ..FeatureParts::default()
        };
        let text = self.text_features.as_deref().map(text_parts).transpose()?.unwrap_or_default();
        Ok(FeatureParts::open(&self.file)?.with(text)?.with(said)?)
    }
}

/// Text features of a file of their own.
fn text_parts(file: &Path) -> Result<FeatureParts<'static>> {
    if file.extension().is_none_or(|ending| ending != "npy") {
        return Ok(FeatureParts::open(file)?);
    }
    let PromptContent::Features(text) = read_text_features(file)?.content else { return Ok(FeatureParts::default()) };
    Ok(FeatureParts { text: Some(text), ..FeatureParts::default() })
}

fn import(args: &ImportArgs, out: &Output) -> Result<Exit> {
    let stem = || args.file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let name = args.name.clone().unwrap_or_else(stem);
    let open = |spec: &String| -> Result<_> { Ok(flatclip_lab::data::open(spec, &args.root.options()?)?) };
    let data = args.data.as_ref().map(open).transpose()?;
    let request = args.parts()?.request(name, data.as_ref(), args.replace)?;
    let found = cache::import(&args.cache.folder(), request, &Terminal::with_interrupts(out)?)?;
    let (samples, classes) = (found.dataset().samples.len(), found.dataset().classes.len());
    let (name, id, views, width) = (found.name(), found.id(), found.views(), found.width());
    if out.is_json() {
        out.json(&json!({
            "schema_version": 1, "name": name, "id": id, "model": found.model(), "samples": samples, "views": views,
            "width": width, "classes": classes, "digest": found.digest(),
        }))?;
    } else {
        let text = match (found.has_text(), found.bank()) {
            (_, Some(bank)) => format!("text bank of {} prompts", 1 + bank.perturbed().len()),
            (true, None) => "text features".to_owned(),
            (false, None) => "no text features".to_owned(),
        };
        let what = format!("{samples} samples, {views} views, width {width}, {classes} classes, {text}");
        out.line(format_args!("{name} ({id}): {what}"))?;
    }
    Ok(Exit::Done)
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    match args.verb {
        Verb::Import(args) => import(&args, out),
        Verb::Ls { cache } => ls(&cache, out),
        Verb::Export { cache, id, out: file } => export(&cache, &id, &file, out),
        Verb::Rm { cache, ids, all } => rm(&cache, &ids, all, out),
    }
}

fn ls(args: &CacheArgs, out: &Output) -> Result<Exit> {
    let folder = args.folder();
    let entries = cache::list(&folder)?;
    let text = TextCache::new(&folder).bytes();
    let total = text + entries.iter().map(|entry| entry.bytes).sum::<u64>();
    if out.is_json() {
        out.json(
            &json!({ "schema_version": 1, "folder": folder, "entries": entries, "text_bytes": text, "bytes": total }),
        )?;
        return Ok(Exit::Done);
    }
    let mut table = out.table(&["id", "data set", "views", "seed", "precision", "weights", "samples", "size"]);
    for entry in &entries {
        let key = &entry.key;
        table.add_row([
            entry.id.clone(),
            format!("{} ({})", key.dataset, key.split),
            key.views.clone(),
            key.seed.to_string(),
            key.precision.clone(),
            short(&key.weights),
            entry.samples.to_string(),
            size(entry.bytes),
        ]);
    }
    out.line(table)?;
    out.line(format_args!("{} in {} (of this {} text banks)", size(total), folder.display(), size(text)))?;
    Ok(Exit::Done)
}

fn export(args: &CacheArgs, id: &str, file: &Path, out: &Output) -> Result<Exit> {
    let right = file.extension().is_some_and(|ending| ending == "safetensors");
    ensure!(right, "--out {}: expected a file that ends with .safetensors", file.display());
    let (bytes, samples) = cache::export(&args.folder(), id)?;
    flatclip::files::write_atomic(file, &bytes)?;
    out.say(
        &json!({ "schema_version": 1, "out": file, "samples": samples }),
        format_args!("{}: {samples} samples", file.display()),
    )?;
    Ok(Exit::Done)
}

fn rm(args: &CacheArgs, ids: &[String], all: bool, out: &Output) -> Result<Exit> {
    ensure!(all || !ids.is_empty(), "what? give ids from `flatclip cache ls`, or --all");
    ensure!(!all || ids.is_empty(), "--all removes everything: give no ids with it");
    let folder = args.folder();
    let mut freed = 0;
    if all {
        freed = cache::remove_all(&folder)?;
    }
    for id in ids {
        freed += cache::remove(&folder, id)?;
    }
    out.say(&json!({ "schema_version": 1, "freed_bytes": freed }), format_args!("{} freed", size(freed)))?;
    Ok(Exit::Done)
}

/// The beginning of a hash of weights, and the activation where that is part of it.
fn short(weights: &str) -> String {
    let (hash, activation) = weights.split_once(' ').unwrap_or((weights, ""));
    let start: String = hash.chars().take(12).collect();
    if activation.is_empty() { start } else { format!("{start} {activation}") }
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}
