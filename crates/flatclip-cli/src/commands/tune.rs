//! `flatclip tune`: learn a prompt from a few labelled images per class.

use crate::inputs::model::ModelArgs;
use crate::output::{Exit, Output};
use anyhow::{Context as _, Result};
use flatclip::data::few_shot::Sampler;
use flatclip::data::{self, Dataset, OpenOptions, Split};
use flatclip::train::{Event, Progress, TuneInput, TuneRequest, TuneSummary, parse_override, tune};
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Options of `flatclip tune`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A tuner (sapt, coop, cocoop, maple, tip-adapter, tip-adapter-f) or a preset (sapt-dg, sapt-xd, ...)
    #[arg(long, default_value = "sapt", value_name = "NAME")]
    method: String,
    /// folder:DIR, zhou:DIR, csv:FILE, wds:SHARDS, pocket:DOMAIN, or a known name
    #[arg(long, value_name = "DATA")]
    data: String,
    /// Folder with the known data sets
    #[arg(long, env = "FLATCLIP_DATA", value_name = "DIR")]
    data_root: Option<PathBuf>,
    /// Class names to use instead, one per line in label order
    #[arg(long, value_name = "FILE")]
    class_names: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Training images per class [default: the preset's, or 16]
    #[arg(long, value_name = "N")]
    shots: Option<usize>,
    /// Images per class kept out of training, to choose settings on [default: 4 where something is chosen]
    #[arg(long, value_name = "N")]
    held_out: Option<usize>,
    /// Seed of every draw
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// How shots are drawn: portable, or python (CoOp's published splits)
    #[arg(long, default_value = "portable", value_parser = ["portable", "python"])]
    sampler: String,
    /// Take what there is where a class has fewer images than asked for
    #[arg(long)]
    allow_fewer: bool,
    /// Train on exactly the images that this file names: one id per line, or a few-shot list of CoOp (.pkl)
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Unreadable images to go on without
    #[arg(long, default_value_t = 0, value_name = "N")]
    max_errors: usize,
    /// Choose a setting on held-out training images: radius (rho)
    #[arg(long, value_parser = ["radius", "rho"], value_name = "KEY")]
    search: Option<String>,
    /// Views of each image that are encoded once; 0 encodes new views in every step
    #[arg(long, value_name = "N")]
    feature_bank: Option<usize>,
    /// Passes over the shots
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,
    /// A TOML file with tables [train], [views] and of the tuner
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A single setting, e.g. sapt.radius=0.3 or train.batch=8 (repeatable)
    #[arg(long = "set", value_name = "TABLE.KEY=VALUE")]
    settings: Vec<String>,
    /// Steps between checkpoints
    #[arg(long, default_value_t = 100, value_name = "N")]
    checkpoint_every: usize,
    /// The run directory
    #[arg(long, short, value_name = "RUN")]
    out: PathBuf,
    /// Go on with the run that is there
    #[arg(long)]
    resume: bool,
}

impl Args {
    fn request(&self) -> Result<TuneRequest> {
        let mut overrides = Vec::new();
        if let Some(path) = &self.config {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let mut tables: toml::Table = text.parse().with_context(|| path.display().to_string())?;
            // A config.toml of another run works, too: what stands above its tables comes from the command line.
            tables.retain(|_, value| value.is_table());
            overrides.push(tables);
        }
        for text in &self.settings {
            overrides.push(parse_override(text)?);
        }
        let flags = [("views.bank", self.feature_bank), ("train.epochs", self.epochs)];
        for (key, value) in flags.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            overrides.push(parse_override(&format!("{key}={value}"))?);
        }
        Ok(TuneRequest {
            method: self.method.clone(),
            model: self.model.model.clone(),
            data: self.data.clone(),
            shots: self.shots,
            held_out: self.held_out,
            seed: self.seed,
            sampler: if self.sampler == "python" { Sampler::Python } else { Sampler::Portable },
            allow_fewer: self.allow_fewer,
            list: self.list.as_ref().map(|p| p.display().to_string()),
            max_errors: self.max_errors,
            search: self.search.is_some(),
            checkpoint_every: self.checkpoint_every,
            overrides,
        })
    }

    fn dataset(&self, split: Split, out: &Output) -> Result<Dataset> {
        let options = OpenOptions {
            root: self.data_root.clone(),
            split,
            classes: self.class_names.clone(),
            ..OpenOptions::default()
        };
        let dataset = data::open(&self.data, &options)?;
        for note in dataset.notes.iter().filter(|note| note.warning) {
            out.warn(format_args!("{}: {}", dataset.name, note.text));
        }
        Ok(dataset)
    }
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let request = args.request()?;
    // Wrong settings are told before anything is loaded.
    let settings = flatclip::train::Settings::resolve(&request)?;
    let dataset = args.dataset(Split::Train, out)?;
    let searched_on_test = settings.options.get("search").and_then(toml::Value::as_str) == Some("test");
    let test = searched_on_test.then(|| args.dataset(Split::Test, out)).transpose()?;
    let model = args.model.load(out)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second signal ends the process the usual way: a run that hangs can still be stopped.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let input = TuneInput {
        request: &request,
        clip: &model.clip,
        tokenizer: &model.tokenizer,
        dataset: &dataset,
        test: test.as_ref(),
        out: &args.out,
        resume: args.resume,
        stop: &stop,
    };
    let mut bars = Bars { out, bar: None, what: String::new() };
    let summary = tune(&input, &mut |event| bars.show(event));
    bars.clear();
    let summary = summary?;
    print(&args, &summary, out)?;
    Ok(if summary.unreadable.is_empty() { Exit::Done } else { Exit::Counted })
}

/// One bar at a time.
struct Bars<'a> {
    out: &'a Output,
    bar: Option<ProgressBar>,
    what: String,
}

impl Bars<'_> {
    fn show(&mut self, event: Event<'_>) {
        match event {
            Event::Note(text) => self.out.note(text),
            Event::Encoding { done, total } => self.bar("encoding", total).set_position(done as u64),
            Event::Search(radius, progress) => self.step(&format!("radius {radius}"), progress),
            Event::Step(progress) => self.step("tuning", progress),
        }
    }

    fn step(&mut self, what: &str, progress: &Progress) {
        let record = &progress.record;
        let sharpness = record.sharpness.map(|s| format!(", sharpness {s:.3}")).unwrap_or_default();
        let bar = self.bar(what, progress.total);
        bar.set_message(format!(
            "loss {:.3}, accuracy {:.0} %{sharpness}, {:.0} images/s, {} s left,",
            record.loss,
            100.0 * record.accuracy,
            progress.images_per_second,
            progress.left.as_secs()
        ));
        bar.set_position(record.step as u64);
    }

    fn bar(&mut self, what: &str, total: usize) -> &ProgressBar {
        if self.what != what {
            self.clear();
            self.what = what.to_owned();
        }
        self.bar.get_or_insert_with(|| self.out.progress(total as u64, what))
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn print(args: &Args, summary: &TuneSummary, out: &Output) -> Result<()> {
    if out.is_json() {
        return out.json(summary);
    }
    let mut table = out.table(&["", "loss", "accuracy"]);
    for (name, found) in [("train", summary.train), ("held out", summary.held_out)] {
        if let Some(found) = found {
            let accuracy = format!("{:.1} %", 100.0 * found.accuracy);
            table.add_row([name.to_owned(), format!("{:.4}", found.loss), accuracy]);
        }
    }
    let steps = match summary.steps {
        0 => "no training".to_owned(),
        steps => format!("{steps} steps"),
    };
    out.line(format_args!(
        "{} on {}: {} classes, {} images, {steps}",
        summary.method, summary.dataset, summary.classes, summary.images
    ))?;
    if summary.train.is_some() {
        out.line(table)?;
    }
    if let Some(f) = summary.flatness {
        out.line(format_args!(
            "sharpness {:.4} at radius {} (loss {:.4} to {:.4})",
            f.sharpness, f.radius, f.loss, f.perturbed_loss
        ))?;
    }
    if let Some(radius) = summary.chosen_radius {
        out.line(format_args!("radius {radius} was chosen on held-out images; the table is in search.json"))?;
    }
    out.line(format_args!("prompt: {}", args.out.join(&summary.prompt).display()))
}
