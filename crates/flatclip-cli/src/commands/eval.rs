//! `flatclip eval`: prompt x adapter x data set, to run directories.

use crate::inputs::cache::CacheArgs;
use crate::inputs::data::DataArgs;
use crate::inputs::model::{Model, ModelArgs};
use crate::inputs::prompt::{PromptArgs, prompt_of};
use crate::inputs::shard;
use crate::output::{Exit, Output};
use crate::session::{RunAsk, Session, file_name, methods_of};
use anyhow::{Result, bail, ensure};
use flatclip::data::{Dataset, Family};
use flatclip::eval::{Shard, Summary, Timing, load_statistics};
use flatclip::image::views::ViewPolicy;
use flatclip::methods::AdapterSpec;
use flatclip::methods::policy::{self, Augmentation};
use flatclip::prompt::Prompt;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Options of `flatclip eval`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) setup: SetupArgs,
    /// Adapters, separated by commas, or `all` that this model and prompt can serve
    #[arg(long, value_delimiter = ',', default_value = "stss", value_name = "NAME")]
    method: Vec<String>,
    /// An option of the method: radius=0.3, or stss.radius=0.3 when there are several methods (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Seeds of views and methods, separated by commas; one run for each
    #[arg(long, alias = "seed", value_delimiter = ',', default_value = "0", value_name = "N")]
    seeds: Vec<u64>,
    /// The run directory; with several data sets, methods, seeds or shards, the folder of theirs
    #[arg(long, short, value_name = "RUN")]
    pub(crate) out: PathBuf,
    /// Go on with unfinished runs and leave finished ones
    #[arg(long)]
    pub(crate) resume: bool,
    /// Only part i of n: i/n, auto (torchrun, Slurm, MPI variables), auto/n (Kubernetes index)
    #[arg(long, value_name = "i/n")]
    shard: Option<String>,
}

/// What `eval` and `sweep` share: model, prompt, data, views, stream, cache.
#[derive(clap::Args)]
pub(crate) struct SetupArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Use each data set's own template (CoOp's list) instead of one template for all
    #[arg(long)]
    pub(crate) own_templates: bool,
    /// Views per picture, the original included [default: the most that a chosen method wants]
    #[arg(long, value_name = "N")]
    pub(crate) views: Option<usize>,
    /// crop-flip, augmix, identity, or `published`: what the method's own code does for the data set
    #[arg(long, default_value = "crop-flip", value_name = "POLICY")]
    pub(crate) view_policy: String,
    /// Only so many samples, spread evenly over the data set
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Shuffle the stream with this seed [default: the data set's order]
    #[arg(long, value_name = "N")]
    pub(crate) order_seed: Option<u64>,
    /// Stop when more samples than this cannot be read
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub(crate) max_errors: usize,
    /// Folder with generated pictures for DiffTPT: DIR/<sample id without ending>/*.png
    #[arg(long, value_name = "DIR")]
    pub(crate) generated: Option<PathBuf>,
    /// Token statistics of training images for PromptAlign, as `flatclip stats` writes them
    #[arg(long, value_name = "FILE")]
    pub(crate) statistics: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    /// Keep no features between runs
    #[arg(long)]
    pub(crate) no_cache: bool,
}

impl SetupArgs {
    /// The prompt for a data set, and how the record calls it; `word` says which when an axis of a sweep does.
    pub(crate) fn prompt_for(&self, dataset: &Dataset, word: Option<&str>) -> Result<(Prompt, String)> {
        if let Some(word) = word {
            ensure!(
                self.prompt.is_default() && !self.own_templates,
                "prompt is an axis: give no other prompt beside it, add it to the axis instead"
            );
            return Ok((prompt_of(word)?, word.to_owned()));
        }
        if self.own_templates {
            ensure!(self.prompt.is_default(), "--own-templates: give no other prompt with it");
            return Ok((Prompt::templates(&dataset.templates)?, dataset.templates.join(" | ")));
        }
        let prompt = self.prompt.read()?;
        let name = match &prompt.kind {
            flatclip::prompt::PromptKind::Templates(templates) if templates.len() <= 3 => templates.join(" | "),
            flatclip::prompt::PromptKind::Templates(templates) => format!("{} templates", templates.len()),
            _ => prompt.path.display().to_string(),
        };
        Ok((prompt, name))
    }

    /// Augmentation and number of views of one method on one data set.
    pub(crate) fn views_for(
        &self,
        spec: &AdapterSpec,
        family: Family,
        name: &str,
        most: usize,
    ) -> Result<(ViewPolicy, usize)> {
        if self.view_policy != "published" {
            let policy: ViewPolicy = self.view_policy.parse()?;
            let default = if policy == ViewPolicy::Identity { 1 } else { most };
            return Ok((policy, self.views.unwrap_or(default).max(1)));
        }
        let family = match family {
            Family::Imagenet if name == "imagenet" => policy::Family::ImageNet,
            Family::Imagenet => policy::Family::NaturalShift,
            _ => policy::Family::CrossDataset,
        };
        let published = policy::policy_for(spec.name, family)?;
        let policy = match published.augmentation {
            Augmentation::Identity => ViewPolicy::Identity,
            Augmentation::CropFlip => ViewPolicy::CropFlip,
            Augmentation::AugMix => ViewPolicy::AugMix,
        };
        Ok((policy, self.views.unwrap_or(published.views).max(1)))
    }

    /// Opens one data set and everything around it, and gives the session to `work`.
    pub(crate) fn with_session<T>(
        &self,
        model: &Model,
        dataset: &Dataset,
        prompt: Option<&str>,
        out: &Output,
        work: impl FnOnce(&Session<'_>) -> Result<T>,
    ) -> Result<T> {
        let (prompt, prompt_name) = self.prompt_for(dataset, prompt)?;
        let cache = (!self.no_cache).then(|| self.cache.folder());
        let statistics = self.statistics.as_deref().map(load_statistics).transpose()?;
        work(&Session {
            model,
            model_name: &self.model.model,
            prompt: &prompt,
            prompt_name,
            cache: cache.as_deref(),
            compat: &self.data.root.compat,
            generated: self.generated.clone(),
            statistics: statistics.as_ref(),
            texts: Default::default(),
            out,
        })
    }
}

/// A finished run, for the table.
struct Done {
    dir: PathBuf,
    summary: Summary,
    timing: Timing,
    views: usize,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let shard = args.shard.as_deref().map(|text| shard::read(text, |name| std::env::var(name).ok())).transpose()?;
    let settings = super::settings::table(&args.settings)?;
    let model = args.setup.model.load(out)?;
    let mut done = Vec::new();
    for spec in &args.setup.data.data {
        let dataset = args.setup.data.open(spec, out)?;
        args.setup.with_session(&model, &dataset, None, out, |session| {
            let methods = methods_of(&args.method, session)?;
            let most = methods.iter().map(|method| method.needs.default_views).max().unwrap_or(1);
            for method in &methods {
                for &seed in &args.seeds {
                    let several = [args.setup.data.data.len(), methods.len(), args.seeds.len()];
                    let dir = run_dir(&args.out, &dataset.name, method.name, seed, several, shard);
                    let (policy, views) = args.setup.views_for(method, dataset.family, &dataset.name, most)?;
                    let ask = RunAsk {
                        data: spec.clone(),
                        method,
                        options: options_of(&settings, method.name, methods.len())?,
                        views,
                        policy,
                        seed,
                        order_seed: args.setup.order_seed,
                        limit: args.setup.limit,
                        shard,
                        max_errors: args.setup.max_errors,
                        resume: args.resume,
                        dir: dir.clone(),
                    };
                    let (summary, timing) = session.run(&dataset, &ask)?;
                    say(&summary, &timing, &dir, out);
                    done.push(Done { dir, summary, timing, views });
                }
            }
            Ok(())
        })?;
    }
    print(&done, out)?;
    Ok(if done.iter().all(|run| run.summary.failed == 0) { Exit::Done } else { Exit::Counted })
}

/// The run's own directory below `--out`.
fn run_dir(out: &Path, dataset: &str, method: &str, seed: u64, several: [usize; 3], shard: Option<Shard>) -> PathBuf {
    let mut dir = out.to_path_buf();
    if several[0] > 1 {
        dir.push(file_name(dataset));
    }
    if several[1] > 1 {
        dir.push(method);
    }
    if several[2] > 1 {
        dir.push(format!("seed-{seed}"));
    }
    if let Some(Shard { index, count }) = shard {
        dir.push(format!("shard-{index:04}-of-{count:04}"));
    }
    dir
}

/// Options for one method: plain keys if it is the only one, and the table of its name.
pub(crate) fn options_of(settings: &toml::Table, method: &str, methods: usize) -> Result<toml::Table> {
    let mut options = toml::Table::new();
    for (key, value) in settings {
        match value {
            toml::Value::Table(table) if flatclip::methods::adapter(key).is_ok() => {
                if flatclip::methods::adapter(key)?.name == method {
                    options.extend(table.clone());
                }
            }
            _ if methods == 1 => {
                options.insert(key.clone(), value.clone());
            }
            _ => bail!("--set {key}=..: with several methods, say whose option it is, e.g. {method}.{key}=.."),
        }
    }
    Ok(options)
}

fn say(summary: &Summary, timing: &Timing, dir: &Path, out: &Output) {
    out.note(format_args!(
        "{} on {}: {} samples in {:.1} s ({:.2}/s; load {:.1} s beside, encode {:.1} s, adapt {:.1} s; {} from cache), peak {}, {}",
        summary.method,
        summary.dataset,
        timing.samples,
        timing.wall,
        timing.rate(),
        timing.load,
        timing.encode,
        timing.adapt,
        timing.cached,
        super::cache::size(timing.peak_memory),
        dir.display()
    ));
    if timing.memory.len() > 1 {
        let marks =
            timing.memory.iter().map(|mark| format!("{} after {}", super::cache::size(mark.bytes), mark.samples));
        out.note(format_args!("memory: {}", marks.collect::<Vec<_>>().join(", ")));
    }
    for (id, reason) in summary.failures.iter().take(5) {
        out.warn(format_args!("{id}: {reason}"));
    }
    if summary.failed > 5 {
        out.warn(format_args!(
            "and {} more bad samples, all in {}",
            summary.failed - 5,
            dir.join("summary.json").display()
        ));
    }
}

fn print(done: &[Done], out: &Output) -> Result<()> {
    if out.is_json() {
        let runs: Vec<_> = done
            .iter()
            .map(|d| json!({ "dir": d.dir, "views": d.views, "summary": d.summary, "timing": d.timing }))
            .collect();
        return out.json(&json!({ "schema_version": 1, "runs": runs }));
    }
    let mut table = out
        .table(&["data", "method", "views", "samples", "top-1", "95 %", "top-5", "ECE", "encode s", "adapt s", "run"]);
    for run in done {
        let m = &run.summary.metrics;
        let interval = m.top1_interval.map_or("-".into(), |i| format!("{:.1}–{:.1}", 100.0 * i.low, 100.0 * i.high));
        let bad = if run.summary.failed > 0 { format!(" ({} bad)", run.summary.failed) } else { String::new() };
        table.add_row([
            run.summary.dataset.clone(),
            run.summary.method.clone(),
            run.views.to_string(),
            format!("{}{bad}", run.summary.samples),
            format!("{:.2}", 100.0 * m.top1),
            interval,
            format!("{:.2}", 100.0 * m.top5),
            format!("{:.2}", 100.0 * m.calibration.ece),
            format!("{:.2}", run.timing.encode),
            format!("{:.2}", run.timing.adapt),
            run.dir.display().to_string(),
        ]);
    }
    out.line(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_their_method_and_stray_ones_are_refused() {
        let settings: toml::Table = toml::from_str("[stss]\nradius = 0.3\n[zero]\nfraction = 0.2").unwrap();
        assert_eq!(options_of(&settings, "stss", 2).unwrap()["radius"].as_float(), Some(0.3));
        assert!(!options_of(&settings, "zero", 2).unwrap().contains_key("radius"));
        let plain: toml::Table = toml::from_str("radius = 0.3").unwrap();
        assert!(options_of(&plain, "stss", 1).is_ok());
        assert!(options_of(&plain, "stss", 2).unwrap_err().to_string().contains("stss.radius"));
    }

    #[test]
    fn every_run_has_a_directory_of_its_own() {
        let shard = "1/4".parse().ok();
        assert_eq!(run_dir(Path::new("o"), "pocket:hard", "mta", 0, [1, 1, 1], None), Path::new("o"));
        let all = run_dir(Path::new("o"), "pocket:hard", "mta", 2, [2, 2, 2], shard);
        assert_eq!(all, Path::new("o/pocket-hard/mta/seed-2/shard-0001-of-0004"));
    }
}
