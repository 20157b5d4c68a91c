//! `flatclip embed`: features of images or texts.

use crate::inputs::images::{self, changes_line};
use crate::prelude::*;
use flatclip::classify::{batch_images, in_batches};
use flatclip::image::{ImageChanges, ImageNotes, open_noted};
use flatclip::model::Features;
use flatclip::prompt::{named_features_bytes, npy_bytes};
use flatclip::{Matrix, Model, Progress as _};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Images, folders of images, @FILE with one name per line, or - for names on standard input
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
    /// Views per image, the image itself first: N rows for each instead of one
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    views: u32,
    /// Seed of the views
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Write the features: .safetensors (names in its metadata), or .npy with the names in a .txt beside it
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    decode: DecodeArgs,
}

/// Rows with their names, and the images that have none.
#[derive(Default)]
struct Embedded {
    names: Vec<String>,
    rows: Vec<f32>,
    failures: Vec<(String, flatclip::Error)>,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    ensure!(!args.images.is_empty() || !args.text.is_empty(), "nothing to embed: name images, or give --text");
    args.out.as_deref().map(is_npy).transpose()?;
    let model = args.model.load(out)?;
    let mut found = if args.text.is_empty() {
        images_of(&args, &model, out)?
    } else {
        let rows = model.raw_text_features(&args.text, args.truncate)?.into_vec();
        Embedded { names: args.text.clone(), rows, ..Embedded::default() }
    };
    for (_, error) in &found.failures {
        out.fault(&error.to_string(), error.code(), None);
    }
    if found.names.is_empty() {
        out.fault(&format!("none of the {} images could be read", found.failures.len()), "image.unreadable", None);
        return Ok(Exit::Unread);
    }
    let raw = Matrix::from_vec(found.names.len(), model.width(), std::mem::take(&mut found.rows));
    let features = if args.raw { raw } else { Features::unit(raw).0 };
    match &args.out {
        Some(file) => write(file, &found.names, &features, out)?,
        None => print(&args, &found, &features, out)?,
    }
    if found.failures.is_empty() {
        return Ok(Exit::Done);
    }
    out.note(format_args!("{} images could not be read, {} rows", found.failures.len(), found.names.len()));
    Ok(Exit::Counted)
}

fn print(args: &Args, found: &Embedded, features: &Matrix, out: &Output) -> Result<()> {
    let rows = found.names.iter().zip(features.iter_rows());
    if out.is_json {
        let row = |(name, e): &(_, flatclip::Error)| json!({ "input": name, "error": e.to_string(), "code": e.code() });
        let failures: Vec<_> = found.failures.iter().map(row).collect();
        let rows: Vec<_> = rows.map(|(name, row)| json!({ "input": name, "features": row })).collect();
        return out.json(&json!({
            "schema_version": 1, "model": args.model.name(), "unit_norm": !args.raw, "results": rows, "failures": failures,
        }));
    }
    for (name, row) in rows {
        let numbers: Vec<String> = row.iter().map(|x| format!("{x:.6}")).collect();
        out.line(format_args!("{name}\t{}", numbers.join(" ")))?;
    }
    Ok(())
}

fn images_of(args: &Args, model: &Model, out: &Output) -> Result<Embedded> {
    let files = images::expand(&args.images, out)?;
    let (mut found, mut changes) = (Embedded::default(), ImageChanges::default());
    let (decode, views, seed) = (args.decode.options(), args.views as usize, args.seed);
    out.interruptible()?.start("images", Some(files.len() as u64));
    let open = |file: &PathBuf| -> Viewed {
        let (image, notes) = open_noted(file, &decode)?;
        Ok((model.view_pixels(&image, views, seed)?, image.width.max(image.height), notes))
    };
    let encode = |batch| encode_batch(model, views, batch);
    let each = |index: usize, rows: Viewed| -> Result<bool> {
        if out.cancelled() {
            let reason = format!("{index} of {} images were embedded, nothing was written", files.len());
            return Err(flatclip::Error::Interrupted(reason).into());
        }
        let name = files[index].display().to_string();
        match rows {
            Ok((rows, side, notes)) => {
                if index == 0 {
                    args.model.warn_outside(&[], Some(side), out);
                }
                changes.count(notes);
                let suffix = |view: usize| if views == 1 { name.clone() } else { format!("{name}#{view}") };
                found.names.extend((0..views).map(suffix));
                found.rows.extend(rows);
            }
            Err(error) => found.failures.push((name, error)),
        }
        out.advance(index as u64 + 1, "");
        Ok(true)
    };
    in_batches(&files, batch_images(views), open, encode, each)?;
    out.finish();
    if let Some(line) = changes_line(changes) {
        out.note(line);
    }
    Ok(found)
}

/// The pixels of an image's views, later their features; the longer side of the image, and what was done to it.
type Viewed = flatclip::Result<(Vec<f32>, usize, ImageNotes)>;

/// Features of the views of a batch of images, in one call of the tower.
fn encode_batch(model: &Model, views: usize, batch: Vec<Viewed>) -> Vec<Viewed> {
    let good: Vec<&[f32]> = batch.iter().flatten().map(|(pixels, ..)| pixels.as_slice()).collect();
    let encoded = match good.len() {
        0 => Ok(Matrix::default()),
        count => model.clip().encode_images(&good.concat(), count * views),
    };
    let width = views * model.width();
    let mut encoded = encoded.map(Matrix::into_vec).map_err(|error| error.to_string());
    let rows = |made: Viewed| {
        let (_, side, notes) = made?;
        match &mut encoded {
            Ok(rows) => Ok((rows.drain(..width).collect(), side, notes)),
            // The tower fails for all of them alike; each then says so.
            Err(text) => Err(flatclip::Error::config("views", text.clone())),
        }
    };
    batch.into_iter().map(rows).collect()
}

/// The format of a file of features, which its ending says.
fn is_npy(path: &Path) -> Result<bool> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("safetensors") => Ok(false),
        Some("npy") => Ok(true),
        _ => bail!("--out {}: expected a file that ends with .safetensors or .npy", path.display()),
    }
}

fn write(path: &Path, names: &[String], features: &Matrix, out: &Output) -> Result<()> {
    let beside = if is_npy(path)? {
        let text = path.with_extension("txt");
        let lines: String = names.iter().map(|name| format!("{}\n", name.replace('\n', " "))).collect();
        write_atomic(&text, lines.as_bytes())?;
        write_atomic(path, &npy_bytes(features))?;
        format!("names in {}", text.display())
    } else {
        write_atomic(path, &named_features_bytes(names, features)?)?;
        "names in its metadata".to_owned()
    };
    out.note(format_args!("{}: {} rows of width {}, {beside}", path.display(), features.rows(), features.cols()));
    Ok(())
}
