//! `flatclip cache`: list, export and remove entries of the feature cache.

use crate::inputs::cache::CacheArgs;
use crate::output::{Exit, Output};
use anyhow::{Result, ensure};
use flatclip::TextCache;
use flatclip_lab::eval::cache;
use serde_json::json;
use std::path::{Path, PathBuf};

/// What the cache holds.
const WHAT: &str = "`eval` and `sweep` keep image features (one entry for each data set, split, model, precision and way \
    to make views) and text banks here, so that the next method or setting does not run the towers again. No answer \
    depends on what is here. The folder is flatclip in the user's cache folder, or --cache DIR, or FLATCLIP_CACHE.";

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

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    match args.verb {
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
    if out.is_json() {
        out.json(&json!({ "schema_version": 1, "out": file, "samples": samples }))?;
    } else {
        out.line(format_args!("{}: {samples} samples", file.display()))?;
    }
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
    if out.is_json() {
        out.json(&json!({ "schema_version": 1, "freed_bytes": freed }))?;
    } else {
        out.line(format_args!("{} freed", size(freed)))?;
    }
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
