//! `flatclip embed`: features of pictures or texts.

use crate::inputs::model::ModelArgs;
use crate::inputs::pictures;
use crate::output::{Exit, Output};
use anyhow::{Result, ensure};
use flatclip::model::Features;
use flatclip::{Matrix, Model, Picture};
use serde_json::json;
use std::path::PathBuf;

/// Options of `flatclip embed`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Pictures, or folders of pictures
    #[arg(value_name = "IMAGE")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// A text (repeatable)
    #[arg(long, value_name = "TEXT", conflicts_with = "images")]
    text: Vec<String>,
    /// Cut texts that are too long for the text tower instead of refusing them
    #[arg(long)]
    truncate: bool,
    /// Features as the tower gives them, not scaled to unit norm
    #[arg(long)]
    raw: bool,
    /// Write [n, width] features to a .npy file instead of printing them
    #[arg(long, value_name = "FILE.npy")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    ensure!(!args.images.is_empty() || !args.text.is_empty(), "nothing to embed: name pictures, or give --text");
    let model = args.model.load(out)?;
    let (names, raw) = if args.text.is_empty() {
        pictures_of(&args, &model, out)?
    } else {
        (args.text.clone(), model.raw_text_features(&args.text, args.truncate)?)
    };
    let features = if args.raw { raw } else { Features::unit(raw).0 };
    if let Some(path) = &args.out {
        flatclip::files::write_atomic(path, &flatclip::prompt::npy_bytes(&features))?;
        out.note(format_args!("{}: {} rows of width {}", path.display(), features.rows(), features.cols()));
    } else if out.is_json() {
        let rows: Vec<_> = names
            .iter()
            .zip(features.iter_rows())
            .map(|(name, row)| json!({ "input": name, "features": row }))
            .collect();
        out.json(&json!({ "schema_version": 1, "model": args.model.model, "unit_norm": !args.raw, "results": rows }))?;
    } else {
        for (name, row) in names.iter().zip(features.iter_rows()) {
            let numbers: Vec<String> = row.iter().map(|x| format!("{x:.6}")).collect();
            out.line(format_args!("{name}\t{}", numbers.join(" ")))?;
        }
    }
    Ok(Exit::Done)
}

fn pictures_of(args: &Args, model: &Model, out: &Output) -> Result<(Vec<String>, Matrix)> {
    let files = pictures::expand(&args.images)?;
    let bar = out.progress(files.len() as u64, "pictures");
    let features = model.plain_features(files.iter().map(|file| {
        bar.inc(1);
        Picture::open(file)
    }))?;
    bar.finish_and_clear();
    Ok((files.iter().map(|file| file.display().to_string()).collect(), features))
}
