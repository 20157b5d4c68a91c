//! `flatclip demo`: what flatclip does, on the embedded model and the synthetic pocket dataset.

use crate::prelude::*;
use flatclip_lab::demo::{DemoRequest, demo};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds instead of about a minute: fewer images, views and steps; good to see that it runs, not for numbers
    #[arg(long)]
    quick: bool,
    /// pocket, pocket-vit, or a folder with another model of the pocket dataset
    #[arg(long, default_value = "pocket", value_name = "MODEL")]
    model: String,
    /// Where everything goes; an earlier demo there is replaced
    #[arg(long, default_value = "flatclip-demo", value_name = "DIR")]
    out: PathBuf,
}

const NEXT: &str = "Next, with your own photos (one folder per class below DIR):
  flatclip predict PHOTO.jpg --model ViT-B-16/openai --classes cat,dog,car
  flatclip tune --method sapt --model ViT-B-16/openai --data folder:DIR --shots 16 --out my-prompt
  flatclip predict PHOTO.jpg --model ViT-B-16/openai --prompt my-prompt --method stss --classes cat,dog,car --explain views.png";

pub(crate) fn run(args: Args, out: &Output) -> Result<()> {
    let Args { quick, model, out: folder } = args;
    let done = demo(&DemoRequest { quick, model, out: folder }, out)?;
    let (text, seconds, report) = (done.text(), done.seconds, done.report.display());
    out.say(&done.json(), format_args!("{text}\n\n{seconds:.0} s. The report: {report}\n\n{NEXT}"))
}
