//! `cargo xtask any-time`: what any-time views save and what they cost, certainty by certainty, against a run with all views; on
//! held-out images of an embedded model, or (`--photos FOLDER --model TOWER_DIR`) on real photos without a text tower.
//!
//! Views are random, so the row to compare agreement with is that of two full runs with different seeds. Features of all views
//! are kept in a cache folder: every certainty, and a second call, encodes nothing.

use crate::real::Lines;
use anyhow::{Context as _, Result, ensure};
use flatclip::Model;
use flatclip::model::Towers;
use flatclip::prompt::read_text_features;
use flatclip_lab::data::{self, Dataset, OpenOptions, Split};
use flatclip_lab::report::Run;
use flatclip_lab::{EvaluateRequest, PromptChoice, evaluate};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An embedded model, or with --photos the directory of an image tower
    #[arg(long, default_value = "pocket", value_name = "MODEL")]
    model: String,
    /// Real photos instead of drawn images: a folder with data/imagenet and imagenet_text_features.safetensors
    #[arg(long, value_name = "FOLDER")]
    photos: Option<PathBuf>,
    /// Methods [default: stss, or zero,vte,mta with --photos]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    methods: Vec<String>,
    /// Domains of the pocket dataset
    #[arg(long, value_delimiter = ',', default_value = "photo,sketch,hard", value_name = "NAME")]
    domains: Vec<String>,
    /// Images of each domain, or photos
    #[arg(long, default_value_t = 200, value_name = "N")]
    limit: usize,
    /// Views of a full run
    #[arg(long, default_value_t = 64, value_name = "N")]
    views: usize,
    /// Leave out the second full run, whose seed differs: it costs as much as the first
    #[arg(long)]
    one_seed: bool,
    /// Certainties to try
    #[arg(long, value_delimiter = ',', default_value = "0.7,0.75,0.8,0.85,0.88,0.9,0.92,0.95,0.98", value_name = "P")]
    certainties: Vec<f64>,
    /// Where features are kept [default: real in the cache folder of flatclip]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// Answers of one run over all data sets.
#[derive(Default)]
struct Answers {
    predictions: Vec<usize>,
    right: usize,
    /// Views that were encoded, over all images.
    views: usize,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut builder = Model::builder(&arguments.model).offline(true);
    if arguments.photos.is_some() {
        builder = builder.towers(Towers::Image);
    }
    let model = builder.load(&Lines)?;
    println!("{}, {}", model.describe(), model.clip().precision());
    let datasets = arguments.datasets()?;
    let cache = arguments.cache.clone().unwrap_or_else(|| flatclip::cache_folder().join("real"));
    for method in arguments.methods() {
        arguments.table(&method, &model, &datasets, &cache)?;
    }
    Ok(())
}

impl Arguments {
    fn methods(&self) -> Vec<String> {
        let usual: &[&str] = if self.photos.is_some() { &["zero", "vte", "mta"] } else { &["stss"] };
        if self.methods.is_empty() { usual.iter().map(|&name| name.to_owned()).collect() } else { self.methods.clone() }
    }

    fn datasets(&self) -> Result<Vec<Dataset>> {
        if let Some(folder) = &self.photos {
            let root = Some(folder.join("data"));
            let mut photos =
                data::open("imagenet", &OpenOptions { root, split: Split::Test, ..OpenOptions::default() })?;
            photos.samples.truncate(self.limit);
            return Ok(vec![photos]);
        }
        let options = OpenOptions { split: Split::Val, ..OpenOptions::default() };
        let spec = |domain: &String| format!("pocket:{domain}:validation:{}", self.limit);
        Ok(self.domains.iter().map(|domain| data::open(&spec(domain), &options)).collect::<flatclip::Result<_>>()?)
    }

    /// The curve of one method.
    fn table(&self, method: &str, model: &Model, datasets: &[Dataset], cache: &Path) -> Result<()> {
        let full = self.answers(method, None, 0, model, datasets, cache)?;
        let count = full.predictions.len();
        ensure!(count > 0, "no image was answered");
        let share = |part: usize| 100.0 * part as f64 / count as f64;
        println!("\n{method}, {count} images, {} views: {:.1} % right", self.views, share(full.right));
        println!("\n| certainty | right, points | agreement, % | views encoded, share |\n|---|---|---|---|");
        let row = |name: &str, found: &Answers| {
            let same = full.predictions.iter().zip(&found.predictions).filter(|(a, b)| a == b).count();
            let (points, cost) = (share(found.right) - share(full.right), found.views as f64 / full.views as f64);
            println!("| {name} | {points:+.1} | {:.1} | {cost:.2} |", share(same));
        };
        if !self.one_seed {
            row("all views, another seed", &self.answers(method, None, 1, model, datasets, cache)?);
        }
        for &certainty in &self.certainties {
            let found = self.answers(method, Some(certainty), 0, model, datasets, cache)?;
            row(&certainty.to_string(), &found);
        }
        Ok(())
    }

    fn answers(
        &self,
        method: &str,
        certainty: Option<f64>,
        seed: u64,
        model: &Model,
        datasets: &[Dataset],
        cache: &Path,
    ) -> Result<Answers> {
        let out = tempfile::tempdir()?;
        let mut request = EvaluateRequest {
            methods: vec![method.to_owned()],
            views: Some(self.views),
            certainty: certainty.map(Into::into),
            seeds: vec![seed],
            max_errors: 0,
            cache: Some(cache.to_path_buf()),
            ..EvaluateRequest::new(out.path().join("run"))?
        };
        if let Some(folder) = &self.photos {
            let text = read_text_features(&folder.join("imagenet_text_features.safetensors"))?;
            request.prompt = PromptChoice::One(text.into());
        }
        let mut found = Answers::default();
        for run in evaluate(&request, model, datasets, &Lines)? {
            for record in Run::read(&run.dir)?.records()? {
                let answer = record.answer.context("an image has no answer")?;
                found.right += usize::from(answer.prediction == record.label);
                found.views += answer.views.unwrap_or(self.views);
                found.predictions.push(answer.prediction);
            }
        }
        Ok(found)
    }
}
