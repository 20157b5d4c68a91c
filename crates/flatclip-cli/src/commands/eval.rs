//! `flatclip eval`: prompt x adapter x data set, to run directories.

use super::cache::size;
use crate::inputs::prompt::say_radius_units;
use crate::inputs::shard;
use crate::prelude::*;
use flatclip::Prompt;
use flatclip::methods::Confidence;
use flatclip::prompt::read_text_bank;
use flatclip::text::templates::Ensemble;
use flatclip_lab::data::Dataset;
use flatclip_lab::eval::{Subject, cache::Imported};
use flatclip_lab::report::{Run, paired_table};
use flatclip_lab::{EvaluateRequest, EvaluatedRun, NamedPrompt, PromptChoice, ViewChoice, evaluate};
use std::sync::Arc;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) setup: SetupArgs,
    /// Adapters, separated by commas, or `all` that this model and prompt can serve, or `all-features`: those that need no
    /// text tower [default: stss with a sapt prompt, else zero-shot]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
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
    /// Resume unfinished runs; skip finished ones
    #[arg(long)]
    pub(crate) resume: bool,
    /// Only part i of n: i/n, auto (torchrun, Slurm, MPI variables), auto/n (Kubernetes index)
    #[arg(long, value_name = "i/n")]
    shard: Option<String>,
    /// Also compare the methods with zero-shot (or the first of them) on the same images: differences, intervals, McNemar
    #[arg(long, conflicts_with = "shard")]
    report: bool,
}

/// What `eval` and `sweep` share: model, prompt, data, views, stream, cache.
#[derive(clap::Args)]
#[command(mut_arg("data", |arg| arg.required(false).required_unless_present("features")))]
pub(crate) struct SetupArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Features that `flatclip cache import` took in, in place of data and model; several separated by commas. Their text
    /// features stand for the classes, or --text-features
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    #[arg(conflicts_with_all = ["data", "template", "ensemble", "prompt", "own_templates", "descriptions", "no_cache"])]
    pub(crate) features: Vec<String>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Use each data set's own template (CoOp's list) instead of one template for all
    #[arg(long)]
    pub(crate) own_templates: bool,
    /// Sentences that describe the classes, added to the templates: a JSON object of class names, each with a list of
    /// sentences (CuPL's format)
    #[arg(long, value_name = "FILE")]
    pub(crate) descriptions: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) views: ViewArgs,
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
    /// Keep the probability of every class in the records: `report --temperature` needs them
    #[arg(long)]
    pub(crate) keep_probabilities: bool,
    /// Folder with generated images for DiffTPT: DIR/<sample id without ending>/*.png
    #[arg(long, value_name = "DIR")]
    pub(crate) generated: Option<PathBuf>,
    /// Token statistics of training images for PromptAlign, as `flatclip stats` writes them
    #[arg(long, value_name = "FILE")]
    pub(crate) statistics: Option<PathBuf>,
    /// Other prompts around the prompt, for stss and awt: a text with {}, a known set of templates (each by itself), or a file
    /// of class embeddings, of which every matrix is a prompt (repeatable)
    #[arg(long, value_name = "TEXT|NAME|FILE")]
    pub(crate) text_bank: Vec<String>,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    /// Keep no features between runs
    #[arg(long)]
    pub(crate) no_cache: bool,
    #[command(flatten)]
    pub(crate) decode: DecodeArgs,
}

impl SetupArgs {
    /// The request that these options make; methods, options and seeds are the caller's.
    pub(crate) fn request(&self, out: &Path, resume: bool) -> Result<EvaluateRequest> {
        let usual = self.prompt.is_default();
        ensure!(!self.own_templates || usual, "--own-templates: give no other prompt with it");
        let prompt = match &self.descriptions {
            _ if usual && !self.features.is_empty() => PromptChoice::Imported,
            Some(file) => {
                let templates = if self.own_templates { Vec::new() } else { self.prompt.read_templates()? };
                PromptChoice::Described { templates, file: file.clone() }
            }
            None if self.own_templates => PromptChoice::OwnTemplates,
            None => PromptChoice::One(self.prompt.read()?.into()),
        };
        self.request_with(prompt, out, resume)
    }

    /// What `run` gives for the model on the data sets, or for each of the imported features: these on their own data set and
    /// into a folder of their own.
    pub(crate) fn on_each<T>(
        &self,
        folder: &Path,
        out: &Output,
        mut run: impl FnMut(Subject<'_>, &[Dataset], Option<&Path>) -> Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        if self.features.is_empty() {
            let (model, datasets) = (self.model.load(out)?, self.data.open_all(out)?);
            out.interruptible()?;
            return run((&model).into(), &datasets, None);
        }
        if self.model.is_named() {
            out.warn("--model is not used: imported features need no model");
        }
        out.interruptible()?;
        let open = |name: &String| Imported::open(&self.cache.folder(), name);
        let mut all = Vec::new();
        for found in self.features.iter().map(open).collect::<flatclip::Result<Vec<_>>>()? {
            let place = if self.features.len() > 1 { folder.join(found.name()) } else { folder.to_path_buf() };
            let data = std::slice::from_ref(found.dataset());
            all.extend(run((&found).into(), data, Some(&place))?);
        }
        Ok(all)
    }

    /// The same with a prompt that was read.
    fn request_with(&self, prompt: PromptChoice, out: &Path, resume: bool) -> Result<EvaluateRequest> {
        let view_policy = match self.view_policy.as_str() {
            "published" => ViewChoice::Published,
            name => ViewChoice::Policy(name.parse()?),
        };
        Ok(EvaluateRequest {
            prompt,
            views: self.views.count(),
            certainty: self.views.certainty()?,
            view_policy,
            order_seed: self.order_seed,
            limit: self.limit,
            max_errors: self.max_errors,
            keep_probabilities: self.keep_probabilities,
            generated: self.generated.clone(),
            statistics: self.statistics.as_deref().map(flatclip::load_statistics).transpose()?.map(Arc::new),
            bank: self.text_bank.iter().map(|word| bank_prompts(word)).collect::<Result<Vec<_>>>()?.concat(),
            cache: (!self.no_cache).then(|| self.cache.folder()),
            any_model: self.prompt.any_model,
            exif: self.decode.exif(),
            compat: self.data.root.place.compat.clone(),
            resume,
            ..EvaluateRequest::new(out)?
        })
    }
}

fn bank_prompts(word: &str) -> Result<Vec<NamedPrompt>> {
    if let Ok(ensemble) = word.parse::<Ensemble>() {
        let prompts = ensemble.templates().iter().map(|text| Ok(Prompt::templates(&[*text])?.into()));
        return prompts.collect();
    }
    if !word.contains("{}") && Path::new(word).is_file() {
        let named = |prompt: Prompt| NamedPrompt { name: word.to_owned(), ..prompt.into() };
        return Ok(read_text_bank(Path::new(word))?.into_iter().map(named).collect());
    }
    Ok(vec![NamedPrompt { name: word.to_owned(), ..Prompt::parse(word)?.into() }])
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let requests = args.requests(out)?;
    let done = args.setup.on_each(&args.out, out, |subject, datasets, place| {
        if let Subject::Model(_) = subject {
            datasets.iter().for_each(|data| args.setup.model.warn_outside(&data.classes, None, out));
        }
        let mut done = Vec::new();
        for request in &requests {
            let folder = place.unwrap_or(&request.out).to_path_buf();
            done.extend(evaluate(&EvaluateRequest { out: folder, ..request.clone() }, subject, datasets, out)?);
        }
        Ok(done)
    })?;
    done.iter().for_each(|run| say(run, out));
    print(&done, out)?;
    if args.report && !out.is_json {
        let runs = done.iter().map(|run| Run::read(&run.dir)).collect::<Result<Vec<_>, _>>()?;
        let reference = runs.iter().any(|run| run.config.method == "zero-shot").then_some("zero-shot");
        out.line(out.fitted(&paired_table(&runs, reference)?))?;
    }
    Ok(Exit::unless(done.iter().any(|run| run.summary.failed > 0)))
}

impl Args {
    /// One request for each prompt: below the run directory where there are several.
    fn requests(&self, out: &Output) -> Result<Vec<EvaluateRequest>> {
        let (shard, options) = (shard::read(self.shard.as_ref())?, parse_settings(&self.settings)?);
        let whole = |setup| EvaluateRequest {
            methods: self.method.clone(),
            options: options.clone(),
            seeds: self.seeds.clone(),
            shard,
            ..setup
        };
        let setup = &self.setup;
        if setup.own_templates || setup.descriptions.is_some() || !setup.features.is_empty() {
            return Ok(vec![whole(setup.request(&self.out, self.resume)?)]);
        }
        let one = |(name, prompt): (Option<String>, Prompt)| {
            let usual = [prompt.default_method().to_owned()];
            for method in if self.method.is_empty() { &usual[..] } else { &self.method } {
                say_radius_units(&prompt, method, &options, out);
            }
            let folder = name.map_or_else(|| self.out.clone(), |name| self.out.join(name));
            Ok(whole(setup.request_with(PromptChoice::One(prompt.into()), &folder, self.resume)?))
        };
        setup.prompt.read_all()?.into_iter().map(one).collect()
    }
}

fn say(run: &EvaluatedRun, out: &Output) {
    let EvaluatedRun { dir, summary, timing, .. } = run;
    out.note(format_args!(
        "{} on {}: {} samples in {:.1} s ({:.2}/s; load {:.1} s (overlapped), encode {:.1} s, adapt {:.1} s; {} from cache), peak {}, {}",
        summary.method,
        summary.dataset,
        timing.samples,
        timing.wall,
        timing.rate(),
        timing.load,
        timing.encode_session,
        timing.adapt,
        timing.cached,
        size(timing.peak_memory),
        dir.display()
    ));
    if let Some(radius) = run.radius {
        out.note(format_args!("radius {:.4} ({:.1} % of the context norm)", radius.length, 100.0 * radius.share));
    }
    if timing.memory.len() > 1 {
        let marks = timing.memory.iter().map(|mark| format!("{} after {}", size(mark.bytes), mark.samples));
        out.note(format_args!("memory: {}", marks.collect::<Vec<_>>().join(", ")));
    }
    for (id, reason) in summary.failures.iter().take(5) {
        out.warn(format_args!("{id}: {reason}"));
    }
    if summary.failed > 5 {
        let (more, file) = (summary.failed - 5, dir.join("summary.json"));
        out.warn(format_args!("and {more} more bad samples, all in {}", file.display()));
    }
}

fn print(done: &[EvaluatedRun], out: &Output) -> Result<()> {
    if out.is_json {
        let row =
            |d: &EvaluatedRun| json!({ "dir": d.dir, "views": d.views, "summary": d.summary, "timing": d.timing });
        return out.json(&json!({ "schema_version": 1, "runs": done.iter().map(row).collect::<Vec<_>>() }));
    }
    let milliseconds = |seconds: Option<f64>| seconds.map_or("-".into(), |seconds| format!("{:.2}", 1000.0 * seconds));
    let row = |run: &EvaluatedRun| {
        let m = &run.summary.metrics;
        let interval = m.top1_interval.map_or("-".into(), |i| format!("{:.1}–{:.1}", 100.0 * i.low, 100.0 * i.high));
        let bad = if run.summary.failed > 0 { format!(" ({} bad)", run.summary.failed) } else { String::new() };
        [
            run.summary.dataset.clone(),
            run.summary.method.clone(),
            views(run),
            format!("{}{bad}", run.summary.samples),
            format!("{:.2}", 100.0 * m.top1),
            interval,
            format!("{:.2}", 100.0 * m.top5),
            format!("{:.2}{}", 100.0 * m.calibration.ece, if is_vote_share(run) { " (votes)" } else { "" }),
            milliseconds(run.timing.encode_per_sample()),
            milliseconds(run.timing.adapt_per_sample()),
            run.dir.display().to_string(),
        ]
    };
    let header = "data|method|views|samples|top-1|95 %|top-5|ECE|encode ms|adapt ms|run";
    out.rows(&header.split('|').collect::<Vec<_>>(), done.iter().map(row))?;
    if done.iter().any(is_vote_share) {
        out.note(Confidence::NOTE);
    }
    Ok(())
}

fn is_vote_share(run: &EvaluatedRun) -> bool {
    run.summary.confidence == Confidence::VoteShare
}

/// Views of an image that the method uses, of those that were made.
fn views(run: &EvaluatedRun) -> String {
    let (made, used) = (run.views, run.timing.views_used);
    match run.summary.mean_views {
        Some(mean) => format!("{mean:.1} of {made}"),
        None if (1..made).contains(&used) => format!("{used} of {made}"),
        None => made.to_string(),
    }
}
