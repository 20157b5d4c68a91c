//! `flatclip demo`: the whole idea on the embedded model and the drawn world, from nothing to a report.

use crate::output::{Exit, Output};
use crate::progress::Terminal;
use anyhow::Result;
use flatclip::demo::{DemoRequest, demo};
use std::path::PathBuf;

/// Options of `flatclip demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds instead of about a minute: fewer pictures, views and epochs; good to see that it runs, not for numbers
    #[arg(long)]
    quick: bool,
    /// All methods and three seeds; takes many minutes, with --quick a few
    #[arg(long)]
    full: bool,
    /// Where everything goes; an earlier demo there is replaced
    #[arg(long, default_value = "flatclip-demo", value_name = "DIR")]
    out: PathBuf,
}

const NEXT: &str = "Next, with your own photos (one folder per class below DIR):
  flatclip predict PHOTO.jpg --model ViT-B-16/openai --classes cat,dog,car
  flatclip tune --method sapt --model ViT-B-16/openai --data folder:DIR --shots 16 --out my-prompt
  flatclip predict PHOTO.jpg --model ViT-B-16/openai --prompt my-prompt --method stss --classes cat,dog,car --explain views.png";

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let request = DemoRequest { quick: args.quick, full: args.full, out: args.out };
    let done = demo(&request, &Terminal::new(out))?;
    if out.is_json() {
        out.json(&done.json())?;
    } else {
        out.line(done.text())?;
        out.line(format_args!("\n{:.0} s. The report: {}\n\n{NEXT}", done.seconds, done.report.display()))?;
    }
    Ok(Exit::Done)
}
