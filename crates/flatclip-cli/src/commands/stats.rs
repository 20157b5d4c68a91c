//! `flatclip stats`: token statistics of training images for PromptAlign, computed or taken over.

use crate::inputs::model::ModelArgs;
use crate::inputs::prompt::prompt_file;
use crate::output::{Exit, Output};
use anyhow::{Context as _, Result, ensure};
use flatclip::data::few_shot::{FewShot, Pool, Sampler};
use flatclip::data::{self, Dataset, OpenOptions, Sample, Split};
use flatclip::eval::{import_statistics, save_statistics, source_statistics};
use flatclip::methods::statistics::SourceStatistics;
use flatclip::prompt::Prompt;
use std::path::PathBuf;

/// Options of `flatclip stats`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Training images: folder:DIR, zhou:DIR, csv:FILE, wds:SHARDS, pocket:DOMAIN, or a known name
    #[arg(long, value_name = "DATA", required_unless_present = "import_means")]
    data: Option<String>,
    /// Folder with the known data sets
    #[arg(long, env = "FLATCLIP_DATA", value_name = "DIR")]
    data_root: Option<PathBuf>,
    /// Which part: train, val or test
    #[arg(long, default_value = "train")]
    split: Split,
    #[command(flatten)]
    model: ModelArgs,
    /// The maple prompt (file or run of `flatclip tune`) whose visual prompts are in the tower [default: the plain tower]
    #[arg(long, value_name = "FILE|RUN")]
    prompt: Option<PathBuf>,
    /// Only so many images of each class [default: all]
    #[arg(long, value_name = "N")]
    shots: Option<usize>,
    /// Seed of the draw of shots
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Unreadable images to go on without
    #[arg(long, default_value_t = 0, value_name = "N")]
    max_errors: usize,
    /// Instead of computing: the authors' tensor of means, [blocks, tokens, width], as torch saved it
    #[arg(long, value_name = "FILE", requires = "import_variances", conflicts_with_all = ["data", "prompt", "shots"])]
    import_means: Option<PathBuf>,
    /// The authors' tensor of variances
    #[arg(long, value_name = "FILE", requires = "import_means")]
    import_variances: Option<PathBuf>,
    /// The file to write
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let (statistics, unreadable) = match (&args.import_means, &args.import_variances) {
        (Some(means), Some(variances)) => (import_statistics(means, variances)?, 0),
        _ => compute(&args, out)?,
    };
    save_statistics(&args.out, &statistics)?;
    print(&args, &statistics, unreadable, out)?;
    Ok(if unreadable == 0 { Exit::Done } else { Exit::Counted })
}

/// The statistics, and how many images could not be read.
fn compute(args: &Args, out: &Output) -> Result<(SourceStatistics, usize)> {
    let spec = args.data.as_deref().context("--data: which training images?")?;
    let prompt =
        args.prompt.as_deref().map(|path| Ok::<_, anyhow::Error>(Prompt::load(&prompt_file(path)?)?)).transpose()?;
    let visual = prompt.as_ref().map(Prompt::visual_prompts).unwrap_or_default();
    if let Some(prompt) = prompt.as_ref().filter(|_| visual.is_empty()) {
        out.warn(format_args!("--prompt: a {} prompt does not change the image tower", prompt.kind_name()));
    }
    let options = OpenOptions { root: args.data_root.clone(), split: args.split, ..OpenOptions::default() };
    let dataset = data::open(spec, &options)?;
    for note in dataset.notes.iter().filter(|note| note.warning) {
        out.warn(format_args!("{}: {}", dataset.name, note.text));
    }
    let samples = chosen(args, &dataset)?;
    ensure!(!samples.is_empty(), "{}: no images", dataset.name);
    let model = args.model.load(out)?;
    let bar = out.progress(samples.len() as u64, "images");
    let computed =
        source_statistics(&model.clip, &visual, &dataset.name, &samples, &mut |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let computed = computed?;
    for (id, error) in computed.unreadable.iter().take(5) {
        out.warn(format_args!("{id}: {error}"));
    }
    let bad = computed.unreadable.len();
    ensure!(
        bad <= args.max_errors,
        "{bad} of {} images cannot be read; --max-errors {bad} goes on without them",
        samples.len()
    );
    Ok((computed.statistics, bad))
}

/// All samples, or a few of each class.
fn chosen<'d>(args: &Args, dataset: &'d Dataset) -> Result<Vec<&'d Sample>> {
    let Some(shots) = args.shots else { return Ok(dataset.samples.iter().collect()) };
    let ids: Vec<String> = dataset.samples.iter().map(|s| s.id.clone()).collect();
    let labels: Vec<usize> = dataset.samples.iter().map(|s| s.label).collect();
    let pool = Pool { source: &dataset.name, ids: &ids, labels: &labels, classes: &dataset.classes };
    let few = FewShot { shots, held_out: 0, seed: args.seed, sampler: Sampler::Portable, allow_fewer: true };
    Ok(few.draw(&pool)?.train.into_iter().map(|i| &dataset.samples[i]).collect())
}

fn print(args: &Args, statistics: &SourceStatistics, unreadable: usize, out: &Output) -> Result<()> {
    let shape = [statistics.means.len(), statistics.means[0].rows(), statistics.means[0].cols()];
    if out.is_json() {
        return out.json(&serde_json::json!({
            "file": args.out, "blocks": shape[0], "tokens": shape[1], "width": shape[2], "unreadable": unreadable,
            "origin": statistics.origin,
        }));
    }
    let of = match statistics.origin.images {
        0 => format!("imported from {}", statistics.origin.source),
        images => format!("{images} images of {}", statistics.origin.source),
    };
    out.line(format_args!(
        "{}: {} blocks, {} tokens of width {}, {of}",
        args.out.display(),
        shape[0],
        shape[1],
        shape[2]
    ))
}
