//! `flatclip cache`: list, import, export and remove entries of the feature cache.

use crate::prelude::*;
use flatclip::TextCache;
use flatclip::prompt::{PromptContent, read_text_features};
use flatclip_lab::eval::cache::{self, CacheEntry, FeatureKey, FeatureParts};

const WHAT: &str = "`eval` and `sweep` keep image features (one entry for each data set, split, model, precision and way \
    to make views) and text banks here, so that the next method or setting does not run the towers again. No answer \
    depends on what is here, but those for features that you import. The folder is flatclip in the user's cache folder, or --cache DIR, or FLATCLIP_CACHE.";

#[derive(clap::Subcommand)]
#[command(after_help = WHAT)]
pub(crate) enum Verb {
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

const IMPORT: &str = "The file is npz or safetensors, and is read sample by sample: it may be larger than memory. Its arrays, of \
    float32, float16 or bfloat16: `features` [N, D] or [N, V, D] (view 0 is the image itself), `text_features` [K, D] or \
    `text_bank` [R + 1, K, D] (text features at the prompt, then around it), `labels` [N], `logit_scale` (the factor on \
    cosines, 100 for OpenAI's weights); texts `ids` [N], `classes` [K], `model`, which safetensors files have in a JSON \
    document under `flatclip` in their metadata. `cache export` writes such a file.";

#[derive(clap::Args)]
#[command(after_help = IMPORT)]
pub(crate) struct ImportArgs {
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

fn text_parts(file: &Path) -> Result<FeatureParts<'static>> {
    if file.extension().is_none_or(|ending| ending != "npy") {
        return Ok(FeatureParts::open(file)?);
    }
    let PromptContent::Features(text) = read_text_features(file)?.content else { return Ok(FeatureParts::default()) };
    Ok(FeatureParts { text: Some(text), ..FeatureParts::default() })
}

pub(crate) fn run(verb: Verb, out: &Output) -> Result<()> {
    match verb {
        Verb::Import(args) => import(&args, out),
        Verb::Ls { cache } => ls(&cache.folder(), out),
        Verb::Export { cache, id, out: file } => export(&cache.folder(), &id, &file, out),
        Verb::Rm { cache, ids, all } => rm(&cache.folder(), &ids, all, out),
    }
}

fn import(args: &ImportArgs, out: &Output) -> Result<()> {
    let stem = || args.file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let name = args.name.clone().unwrap_or_else(stem);
    let open = |spec: &String| -> Result<_> { Ok(flatclip_lab::data::open(spec, &args.root.options()?)?) };
    let data = args.data.as_ref().map(open).transpose()?;
    let request = args.parts()?.request(name, data.as_ref(), args.replace)?;
    let found = cache::import(&args.cache.folder(), request, out.interruptible()?)?;
    let (samples, classes) = (found.dataset().samples.len(), found.dataset().classes.len());
    let (name, id, views, width) = (found.name(), found.id(), found.views(), found.width());
    let text = match (found.has_text(), found.bank()) {
        (_, Some(bank)) => format!("text bank of {} prompts", 1 + bank.perturbed().len()),
        (true, None) => "text features".to_owned(),
        (false, None) => "no text features".to_owned(),
    };
    let document = json!({
        "schema_version": 1, "name": name, "id": id, "model": found.model(), "samples": samples, "views": views,
        "width": width, "classes": classes, "digest": found.digest(),
    });
    let what = format!("{samples} samples, {views} views, width {width}, {classes} classes, {text}");
    out.say(&document, format_args!("{name} ({id}): {what}"))
}

fn ls(folder: &Path, out: &Output) -> Result<()> {
    let (entries, text) = (cache::list(folder)?, TextCache::new(folder).bytes());
    let total = text + entries.iter().map(|entry| entry.bytes).sum::<u64>();
    if out.is_json {
        return out.json(
            &json!({ "schema_version": 1, "folder": folder, "entries": entries, "text_bytes": text, "bytes": total }),
        );
    }
    let row = |entry: &CacheEntry| {
        let FeatureKey { dataset, split, views, seed, precision, weights, .. } = &entry.key;
        let (data, seed, samples) = (format!("{dataset} ({split})"), seed.to_string(), entry.samples.to_string());
        let (id, views, precision) = (entry.id.clone(), views.clone(), precision.clone());
        [id, data, views, seed, precision, short(weights), samples, size(entry.bytes)]
    };
    let header = ["id", "data set", "views", "seed", "precision", "weights", "samples", "size"];
    out.rows(&header, entries.iter().map(row))?;
    out.line(format_args!("{} in {} (of this {} text banks)", size(total), folder.display(), size(text)))
}

fn export(folder: &Path, id: &str, file: &Path, out: &Output) -> Result<()> {
    let right = file.extension().is_some_and(|ending| ending == "safetensors");
    ensure!(right, "--out {}: expected a file that ends with .safetensors", file.display());
    let (bytes, samples) = cache::export(folder, id)?;
    write_atomic(file, &bytes)?;
    let document = json!({ "schema_version": 1, "out": file, "samples": samples });
    out.say(&document, format_args!("{}: {samples} samples", file.display()))
}

fn rm(folder: &Path, ids: &[String], all: bool, out: &Output) -> Result<()> {
    ensure!(all || !ids.is_empty(), "what? give ids from `flatclip cache ls`, or --all");
    ensure!(!all || ids.is_empty(), "--all removes everything: give no ids with it");
    let mut freed = if all { cache::remove_all(folder)? } else { 0 };
    for id in ids {
        freed += cache::remove(folder, id)?;
    }
    out.say(&json!({ "schema_version": 1, "freed_bytes": freed }), format_args!("{} freed", size(freed)))
}

/// The beginning of a hash of weights, and the activation where that is part of it.
fn short(weights: &str) -> String {
    let (hash, activation) = weights.split_once(' ').unwrap_or((weights, ""));
    let start: String = hash.chars().take(12).collect();
    if activation.is_empty() { start } else { format!("{start} {activation}") }
}

pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}
