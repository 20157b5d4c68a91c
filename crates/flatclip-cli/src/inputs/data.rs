//! `--data`, `--data-root`, `--cache` and what belongs to them.

use crate::output::Output;
use anyhow::{Context as _, Result, bail};
use flatclip_lab::data::{self, Compat, Dataset, Known, Note, OpenOptions, Split};
use std::path::PathBuf;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PlaceArgs {
    /// Folder with the known data sets, in CoOp's or in TPT's layout
    #[arg(long, env = "FLATCLIP_DATA", value_name = "DIR")]
    pub(crate) data_root: Option<PathBuf>,
    /// Your own folder for a known data set (repeatable)
    #[arg(long = "path", value_name = "NAME=DIR")]
    paths: Vec<String>,
    /// Folder with split_zhou_*.json files, looked at first
    #[arg(long, value_name = "DIR")]
    split_files: Option<PathBuf>,
    /// Reproduce an oddity of published code: tpt-food101
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) compat: Vec<String>,
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RootArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Which part: train, val or test
    #[arg(long, default_value = "test")]
    pub(crate) split: Split,
}

impl RootArgs {
    pub(crate) fn options(&self) -> Result<OpenOptions> {
        self.place.options(self.split)
    }
}

impl PlaceArgs {
    pub(crate) fn open(&self, spec: &str, split: Split, classes: Option<&PathBuf>, out: &Output) -> Result<Dataset> {
        let dataset = data::open(spec, &OpenOptions { classes: classes.cloned(), ..self.options(split)? })?;
        dataset.notes.iter().filter(|note| note.warning).for_each(|note| say(&dataset, note, out));
        Ok(dataset)
    }

    pub(crate) fn options(&self, split: Split) -> Result<OpenOptions> {
        let mut options = OpenOptions {
            root: self.data_root.clone(),
            split_files: self.split_files.clone(),
            split,
            compat: Compat::parse(&self.compat)?,
            ..OpenOptions::default()
        };
        for text in &self.paths {
            let (name, dir) =
                text.split_once('=').with_context(|| format!("--path: expected NAME=DIR, found {text:?}"))?;
            if Known::find(name).is_none() {
                bail!("--path: {name:?} is not a known data set; `flatclip data ls` lists them");
            }
            options.paths.insert(name.to_owned(), PathBuf::from(dir));
        }
        Ok(options)
    }
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DataArgs {
    /// folder:DIR, zhou:DIR, csv:FILE, wds:SHARDS, pocket:DOMAIN, or known names; several separated by commas
    #[arg(long, required = true, value_delimiter = ',', value_name = "DATA")]
    pub(crate) data: Vec<String>,
    #[command(flatten)]
    pub(crate) root: RootArgs,
    /// Class names to use instead, one per line in label order
    #[arg(long, value_name = "FILE")]
    class_names: Option<PathBuf>,
}

impl DataArgs {
    pub(crate) fn open_all(&self, out: &Output) -> Result<Vec<Dataset>> {
        let options = OpenOptions { classes: self.class_names.clone(), ..self.root.options()? };
        let open = |spec: &String| {
            let dataset = data::open(spec, &options)?;
            dataset.notes.iter().for_each(|note| say(&dataset, note, out));
            Ok(dataset)
        };
        self.data.iter().map(open).collect()
    }
}

fn say(dataset: &Dataset, note: &Note, out: &Output) {
    let text = format_args!("{}: {}", dataset.name, note.text);
    if note.warning { out.warn(text) } else { out.note(text) }
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CacheArgs {
    /// Folder of the feature cache [default: flatclip in the user's cache folder]
    #[arg(long, env = "FLATCLIP_CACHE", value_name = "DIR")]
    cache: Option<PathBuf>,
}

impl CacheArgs {
    pub(crate) fn folder(&self) -> PathBuf {
        self.cache.clone().unwrap_or_else(flatclip::cache_folder)
    }
}
