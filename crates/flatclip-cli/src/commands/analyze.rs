//! `flatclip analyze`: what the paper's theory says of sharpness scores, measured on two data sets and on the training images.

use crate::prelude::*;
use flatclip_lab::data::{self, Split};
use flatclip_lab::{AnalyzeRequest, analyze};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    /// The data set that is nearer to the training data
    #[arg(long, value_name = "DATA", default_value = "pocket:photo")]
    near: String,
    /// The data set that is farther
    #[arg(long, value_name = "DATA", default_value = "pocket:sketch")]
    far: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// The data set that training images come from [default: that of --near]
    #[arg(long, value_name = "DATA")]
    train: Option<String>,
    /// Training images per class: for the worst-case loss, and to measure distances to; `tune` draws the same for the same seed
    #[arg(long, default_value_t = 16)]
    shots: usize,
    /// Radius of the scores and of the worst-case training loss, one for both [default: the radius of stss]
    #[arg(long, value_name = "RADIUS")]
    rho: Option<f64>,
    /// Radius of the prompts whose complexity is measured: rho, tuned (the distance that tuning moved), or a length
    #[arg(long, default_value = "rho", value_name = "rho|tuned|LENGTH")]
    class_radius: String,
    /// The floor of all probabilities that the theorem assumes; M is ln(1/eta)
    #[arg(long, default_value_t = AnalyzeRequest::ETA)]
    eta: f64,
    /// At most so many images of each set, spread over it
    #[arg(long, default_value_t = 500)]
    limit: usize,
    /// Images of each set and of the training images whose worst case is searched by gradient ascent
    #[arg(long, default_value_t = AnalyzeRequest::ASCENT_IMAGES, value_name = "N")]
    ascent_images: usize,
    /// An option of stss, e.g. radius=1 (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Seed of the shots and of the perturbations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the page, the figures and the numbers go
    #[arg(long, value_name = "DIR", default_value = "analysis")]
    out: PathBuf,
    #[command(flatten)]
    decode: DecodeArgs,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<()> {
    let open = |spec: &str, split| -> Result<_> { Ok(data::open(spec, &args.place.options(split)?)?) };
    let request = AnalyzeRequest {
        prompt: args.prompt.read()?,
        near: open(&args.near, Split::Test)?,
        far: open(&args.far, Split::Test)?,
        train: open(args.train.as_deref().unwrap_or(&args.near), Split::Train)?,
        shots: args.shots,
        rho: args.rho,
        class_radius: args.class_radius.parse()?,
        eta: args.eta,
        limit: args.limit,
        ascent_images: args.ascent_images,
        options: parse_settings(&args.settings)?,
        seed: args.seed,
        exif: args.decode.exif(),
        out: args.out.clone(),
    };
    let model = args.model.load(out)?;
    let record = analyze(&request, &model, out.interruptible()?)?;
    let tables = [record.sets_table(), record.ordering_table(), record.worst_entropy_table(), record.bound_table()];
    let [sets, ordering, worst_entropy, bound] = tables.map(|table| out.fitted(&table));
    let (reading, bound_reading) = (record.reading(), record.bound_reading());
    let text = format!("{sets}\n{ordering}\n{worst_entropy}\n{reading}\n\n{bound}\n{bound_reading}");
    out.say(&record, text)?;
    out.note(format_args!("{}: open analysis.html", args.out.display()));
    Ok(())
}
