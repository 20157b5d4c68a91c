//! `flatclip stats`: token statistics of training images for PromptAlign, computed or taken over.

use crate::prelude::*;
use flatclip::{Prompt, import_statistics, save_statistics};
use flatclip_lab::data::Split;
use flatclip_lab::{StatisticsRequest, statistics};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Training images: folder:DIR, zhou:DIR, csv:FILE, wds:SHARDS, pocket:DOMAIN, or a known name
    #[arg(long, value_name = "DATA", required_unless_present = "import_means")]
    data: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
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
    /// Unreadable images to skip
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
    #[command(flatten)]
    decode: DecodeArgs,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let (statistics, unreadable) = match (&args.import_means, &args.import_variances) {
        (Some(means), Some(variances)) => (import_statistics(means, variances)?, 0),
        _ => {
            let request = StatisticsRequest {
                prompt: args.prompt.as_deref().map(Prompt::open).transpose()?,
                shots: args.shots,
                seed: args.seed,
                max_errors: args.max_errors,
                exif: args.decode.exif(),
            };
            let spec = args.data.as_deref().context("--data: which training images?")?;
            let dataset = args.place.open(spec, args.split, None, out)?;
            let (statistics, unreadable) = statistics(&request, &args.model.load(out)?, &dataset, out)?;
            (statistics, unreadable.len())
        }
    };
    save_statistics(&args.out, &statistics)?;
    let (blocks, tokens, width) = (statistics.means.len(), statistics.means[0].rows(), statistics.means[0].cols());
    let origin = &statistics.origin;
    let document = json!({
        "file": args.out, "blocks": blocks, "tokens": tokens, "width": width, "unreadable": unreadable, "origin": origin,
    });
    let of = match origin.images {
        0 => format!("imported from {}", origin.source),
        images => format!("{images} images of {}", origin.source),
    };
    let file = args.out.display();
    out.say(&document, format_args!("{file}: {blocks} blocks, {tokens} tokens of width {width}, {of}"))?;
    Ok(Exit::unless(unreadable > 0))
}
