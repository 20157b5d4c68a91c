//! `flatclip tune`: learn a prompt from a few labelled images per class.

use crate::inputs::model::PRECISIONS;
use crate::prelude::*;
use flatclip::model::Precision;
use flatclip_lab::data::Split;
use flatclip_lab::data::few_shot::Sampler;
use flatclip_lab::train::LossAndAccuracy;
use flatclip_lab::tuners::{PRESETS, TUNERS};
use flatclip_lab::{TuneRequest, TuneSummary, tune};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value = "sapt", value_name = "NAME", help = methods_help())]
    method: String,
    /// folder:DIR, zhou:DIR, csv:FILE, wds:SHARDS, pocket:DOMAIN, or a known name
    #[arg(long, value_name = "DATA")]
    data: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// Class names to use instead, one per line in label order
    #[arg(long, value_name = "FILE")]
    class_names: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Arithmetic of the text tower in which a prompt is learned; auto is i16 for coop and sapt on CPUs where its products are
    /// fast (a step takes about half the time) unless --precision is f32, else f32
    #[arg(long, value_parser = PRECISIONS, default_value = "auto", value_name = "NAME")]
    text_precision: String,
    /// Training images per class [default: the preset's, or 16]
    #[arg(long, value_name = "N")]
    shots: Option<usize>,
    /// Held-out images per class, to choose settings on [default: 4 where something is chosen]
    #[arg(long, value_name = "N")]
    held_out: Option<usize>,
    /// Seed of every draw
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// How shots are drawn: portable (sorted ids), or python (CPython's random.sample as CoOp calls it). With CoOp's seed,
    /// python gives CoOp's training shots on its ten datasets with fixed lists, but not on ImageNet, where CoOp's depend on
    /// an unsorted directory listing: pass CoOp's own list with --list
    #[arg(long, default_value = "portable", value_parser = ["portable", "python"])]
    sampler: String,
    /// Take what there is where a class has fewer images than asked for
    #[arg(long)]
    allow_fewer: bool,
    /// Train on exactly the images that this file names: one id per line, or a few-shot list of CoOp (.pkl)
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Unreadable images that may be skipped
    #[arg(long, default_value_t = 0, value_name = "N")]
    max_errors: usize,
    /// Choose a setting on held-out training images: radius (rho)
    #[arg(long, value_parser = ["radius", "rho"], value_name = "KEY")]
    search: Option<String>,
    /// Views of each image that are encoded once; 0 encodes new views in every step (sets views.bank) [default: the
    /// method's or preset's]
    #[arg(long, value_name = "N")]
    feature_bank: Option<usize>,
    /// Passes over the training images (sets train.epochs) [default: the method's or preset's]
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,
    /// A TOML file with the tables [train], [views] and that of the method, e.g. [sapt]; `flatclip methods show NAME`
    /// lists the options
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A single setting, e.g. sapt.radius=0.3 or train.batch=8 (repeatable)
    #[arg(long = "set", value_name = "TABLE.KEY=VALUE")]
    settings: Vec<String>,
    /// Steps between checkpoints
    #[arg(long, default_value_t = 100, value_name = "N")]
    checkpoint_every: usize,
    /// The run directory: prompt.safetensors, settings, log, checkpoints
    #[arg(long, short, value_name = "RUN")]
    out: PathBuf,
    /// Resume the run in --out
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    decode: DecodeArgs,
}

/// The methods and presets by name, so that none is missing.
fn methods_help() -> String {
    let tuners: Vec<&str> = TUNERS.iter().map(|spec| spec.name).collect();
    let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    format!("A method ({}) or a preset of published settings ({})", tuners.join(", "), presets.join(", "))
}

impl Args {
    fn request(&self) -> Result<TuneRequest> {
        let mut overrides = Vec::new();
        if let Some(path) = &self.config {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let mut tables: toml::Table = text.parse().with_context(|| path.display().to_string())?;
            // A config.toml of another run works, too: the keys above its tables come from the command line.
            tables.retain(|_, value| value.is_table());
            overrides.push(tables);
        }
        let flags = [("views.bank", self.feature_bank), ("train.epochs", self.epochs)];
        let flags = flags.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        overrides.push(parse_settings(&self.settings)?);
        overrides.push(parse_settings(&flags.collect::<Vec<_>>())?);
        Ok(TuneRequest {
            method: self.method.clone(),
            model: self.model.name().to_owned(),
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
            out: self.out.clone(),
            resume: self.resume,
            ..TuneRequest::default()
        })
    }
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let mut request = args.request()?;
    // Wrong settings are told before anything is loaded.
    let chooses_on_test = request.check()?;
    let open = |split| args.place.open(&args.data, split, args.class_names.as_ref(), out);
    let train = open(Split::Train)?;
    if chooses_on_test {
        request.test = Some(open(Split::Test)?);
    }
    request.exif = args.decode.exif();
    args.model.warn_outside(&train.classes, None, out);
    request.text_precision = Precision::from_name(&args.text_precision);
    let model = args.model.load(out)?;
    let summary = tune(&request, &model, &train, out.interruptible()?)?;
    print(&args, &summary, out)?;
    Ok(Exit::unless(!summary.unreadable.is_empty()))
}

fn print(args: &Args, summary: &TuneSummary, out: &Output) -> Result<()> {
    if out.is_json {
        return out.json(summary);
    }
    let mut rows = Vec::new();
    let mut row = |name: &str, found: LossAndAccuracy| {
        rows.push([name.to_owned(), format!("{:.4}", found.loss), format!("{:.1} %", 100.0 * found.accuracy)]);
    };
    if let Some(plain) = summary.comparison {
        let which = if plain.held_out { "held-out images" } else { "training images" };
        row(&format!("{} {which}, untuned", plain.images), plain.before);
        row("after tuning", plain.after);
    }
    if let Some(found) = summary.train {
        row("training views, tuned", found);
    }
    let steps = match summary.steps {
        0 => "no training".to_owned(),
        steps => format!("{steps} steps"),
    };
    let TuneSummary { method, dataset, classes, images, .. } = summary;
    out.line(format_args!("{method} on {dataset}: {classes} classes, {images} images, {steps}"))?;
    if !rows.is_empty() {
        out.rows(&["", "loss", "accuracy"], rows)?;
    }
    if let Some(gone) = summary.distance {
        out.line(format_args!("parameter change: {:.1} % of the initial norm", 100.0 * gone.relative))?;
    }
    if let Some(f) = summary.flatness {
        out.line(format_args!(
            "sharpness {:.4} at radius {} by one SAM step ({:.1} % of the context norm; loss {:.4} to {:.4})",
            f.sharpness,
            f.radius,
            100.0 * f.relative_radius,
            f.loss,
            f.perturbed_loss
        ))?;
    }
    if let Some(radius) = summary.radius.filter(|radius| radius.length > 0.0) {
        let (length, percent) = (radius.length, 100.0 * radius.share);
        let chosen = if summary.chosen_radius.is_some() { ", chosen on held-out images (search.json)" } else { "" };
        out.line(format_args!("tuned within radius {length:.4} ({percent:.1} % of the context norm){chosen}"))?;
    }
    out.line(format_args!("prompt: {}", args.out.join(&summary.prompt).display()))
}
