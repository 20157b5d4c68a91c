//! `flatclip landscape`: loss surfaces around prompts, as numbers, figures and a page to turn around.

use crate::inputs::prompt::prompt_name;
use crate::prelude::*;
use flatclip::{Image, Prompt};
use flatclip_lab::data::{self, Split};
use flatclip_lab::flatness::Normalisation;
use flatclip_lab::report::flatness_table;
use flatclip_lab::{LandscapeOf, LandscapeRequest, NamedPrompt, landscape};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// A prompt file or the run directory of `flatclip tune`, with a name for the figures where its own says little (repeat to
    /// see several side by side)
    #[arg(long, value_name = "[NAME=]FILE|RUN")]
    prompt: Vec<String>,
    /// Training loss: cross-entropy over shots of this data set
    #[arg(long, value_name = "DATA", required_unless_present_any = ["image", "first_of"])]
    data: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Images per class of the training loss
    #[arg(long, default_value_t = 16)]
    shots: usize,
    /// Entropy of a selected and a rejected view of this image
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["data", "first_of"])]
    image: Option<PathBuf>,
    /// The same of the first test image of this data set, with its classes
    #[arg(long, value_name = "DATA", conflicts_with = "data")]
    first_of: Option<String>,
    #[command(flatten)]
    classes: ClassArgs,
    /// Grid points along each axis
    #[arg(long, default_value_t = 31)]
    points: usize,
    /// The axes reach from -span to span
    #[arg(long, default_value_t = 1.0)]
    span: f32,
    /// Length of a direction: per-token (each token moves by its own norm), or a radius such as 0.5 (STSS's sphere)
    #[arg(long, default_value = "per-token", value_name = "per-token|RADIUS")]
    scale: String,
    /// Random planes that the numbers are from, with their spread: those of the seed and of the ones that follow it. The
    /// surfaces show the first
    #[arg(long, default_value_t = 5, value_name = "N")]
    planes: usize,
    /// Seed of the directions, the shots and the views
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = "landscape")]
    out: PathBuf,
    /// Write over a finished landscape
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    decode: DecodeArgs,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<()> {
    let (finished, folder) = (args.out.join("landscape.json").is_file(), args.out.display());
    ensure!(args.force || !finished, "{folder}: holds a finished landscape; give another --out, or --force");
    let request = args.request(out)?;
    let model = args.model.load(out)?;
    let record = landscape(&request, &model, out.interruptible()?)?;
    out.say(&record, out.fitted(&flatness_table(&record.flatness())))?;
    out.note(format_args!(
        "{folder}: landscape.html to turn around, landscape.png and .svg to show, .csv and .json to compute with, directions.safetensors for the same planes again"
    ));
    Ok(())
}

impl Args {
    fn request(&self, out: &Output) -> Result<LandscapeRequest> {
        let exif = self.decode.exif();
        let open = |spec: &str, split| -> Result<_> { Ok(data::open(spec, &self.place.options(split)?)?) };
        let of = match (&self.data, &self.image, &self.first_of) {
            (Some(spec), ..) => LandscapeOf::Training { data: open(spec, Split::Train)?, shots: self.shots },
            (_, Some(file), _) => {
                let classes = self.classes.read(out)?;
                let classes = classes.context("which classes? give --classes a,b,c or --classes-file FILE")?;
                LandscapeOf::Views { image: Image::open_with(file, &self.decode.options())?, classes }
            }
            (_, _, Some(spec)) => LandscapeOf::first_of(&open(spec, Split::Test)?, exif)?,
            _ => bail!("what to look at? give --data, --image or --first-of"),
        };
        let scale = self.scale.parse::<Normalisation>()?;
        let (points, span, planes, seed) = (self.points, self.span, self.planes, self.seed);
        let mut request =
            LandscapeRequest { points, span, scale, planes, seed, exif, ..LandscapeRequest::new(of, &self.out)? };
        if !self.prompt.is_empty() {
            let named = |word: &String| {
                let (name, path) = named_path(word);
                Ok(NamedPrompt { name, ..Prompt::open(path)?.into() })
            };
            request.prompts = self.prompt.iter().map(named).collect::<Result<_>>()?;
        }
        Ok(request)
    }
}

/// `NAME=PATH`, or a path that names itself.
fn named_path(word: &str) -> (String, PathBuf) {
    let path = PathBuf::from(word);
    match word.split_once('=') {
        Some((name, rest)) if !path.exists() => (name.to_owned(), PathBuf::from(rest)),
        _ => (prompt_name(&path).unwrap_or_else(|| "prompt".to_owned()), path),
    }
}
