//! `flatclip embed`: features of pictures or texts.

use crate::inputs::model::{Model, ModelArgs};
use crate::inputs::pictures;
use crate::output::{Exit, Output};
use anyhow::{Context as _, Result, ensure};
use flatclip::image::{self, DecodeOptions};
use flatclip::model::Features;
use flatclip_tensor::Matrix;
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
    let (names, raw) = if args.text.is_empty() { pictures_of(&args, &model, out)? } else { texts_of(&args, &model)? };
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

fn texts_of(args: &Args, model: &Model) -> Result<(Vec<String>, Matrix)> {
    let tower = model.clip.text()?;
    let tokens: Vec<Vec<u32>> = args
        .text
        .iter()
        .map(|text| model.tokenizer.sequence(text, tower.context_length(), args.truncate))
        .collect::<flatclip::Result<_>>()?;
    Ok((args.text.clone(), tower.encode_tokens(&tokens)?))
}

fn pictures_of(args: &Args, model: &Model, out: &Output) -> Result<(Vec<String>, Matrix)> {
    let files = pictures::expand(&args.images)?;
    let bar = out.progress(files.len() as u64, "pictures");
    let features = model.plain_features(files.iter().map(|file| {
        let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
        bar.inc(1);
        Ok(image::decode_from(file, &bytes, &DecodeOptions::default())?)
    }))?;
    bar.finish_and_clear();
    Ok((files.iter().map(|file| file.display().to_string()).collect(), features))
}
