//! `flatclip demo`: the whole idea on the embedded model and the drawn world, from nothing to a report.

mod page;
mod rows;
mod tuning;

use crate::inputs::model::{Model, ModelArgs};
use crate::output::{Exit, Output};
use anyhow::{Context as _, Result};
use rows::Table;
use std::path::PathBuf;
use std::time::Instant;
use tuning::Tuned;

/// Options of `flatclip demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds instead of about a minute: fewer pictures, views and epochs; good to see that it runs, not for numbers
    #[arg(long)]
    quick: bool,
    /// All methods and three seeds; takes many minutes
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Where everything goes; an earlier demo there is replaced
    #[arg(long, default_value = "flatclip-demo", value_name = "DIR")]
    out: PathBuf,
}

/// How much is done.
struct Size {
    shots: usize,
    epochs: usize,
    /// Test pictures per domain.
    pictures: usize,
    views: usize,
    /// Grid points of a landscape axis.
    points: usize,
    seeds: &'static [u64],
    all_methods: bool,
}

impl Args {
    fn size(&self) -> Size {
        let usual =
            Size { shots: 16, epochs: 30, pictures: 128, views: 64, points: 21, seeds: &[1], all_methods: false };
        if self.quick {
            Size { shots: 4, epochs: 3, pictures: 16, views: 16, points: 7, ..usual }
        } else if self.full {
            Size { pictures: 500, points: 31, seeds: &[1, 2, 3], all_methods: true, ..usual }
        } else {
            usual
        }
    }
}

/// The domains of the pocket world: the first is the source, the others are shifts.
const DOMAINS: [&str; 7] = ["photo", "sketch", "cartoon", "painting", "noise", "rendition", "hard"];

/// A file that marks a folder as ours to replace.
const MARK: &str = "flatclip-demo.json";

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let start = Instant::now();
    let size = args.size();
    make_room(&args.out)?;
    let model = ModelArgs::pocket().load(out)?;
    let mut tables = Vec::new();
    let mut first: Option<(Tuned, Table)> = None;
    for &seed in size.seeds {
        let dir = args.out.join(format!("seed-{seed}"));
        out.note(format_args!("seed {seed}: tuning CoOp and SAPT with {} photos per class", size.shots));
        let tuned = tuning::tune_both(&model, &size, seed, &dir, out)?;
        out.note(format_args!("seed {seed}: {} test pictures in {} styles", size.pictures * 7, DOMAINS.len()));
        let table = rows::evaluate(&model, &tuned, &size, seed, &dir, out)?;
        tables.push(table.clone());
        first.get_or_insert((tuned, table));
    }
    let (tuned, table) = first.context("no seed was run")?;
    let report = page::write(&args.out, &model, &tuned, &table, &tables, &size, out)?;
    let seconds = start.elapsed().as_secs_f64();
    if out.is_json() {
        out.json(&serde_json::json!({
            "schema_version": 1, "seconds": seconds, "report": report, "seeds": tables, "tuning": tuned.summary(),
        }))?;
    } else {
        out.line(rows::accuracy_table(&tables).to_text())?;
        out.line(rows::difference_table(&table).to_text())?;
        out.line(tuned.table().to_text())?;
        out.line(wrapped(&rows::reading(&table, &tuned, &size), 110))?;
        out.line(format_args!("\n{seconds:.0} s. The report: {}\n\n{NEXT}", report.display()))?;
    }
    Ok(Exit::Done)
}

/// Lines of at most `width` characters, broken between words; empty lines stay.
fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for (number, paragraph) in text.split("\n\n").enumerate() {
        if number > 0 {
            out.push_str("\n\n");
            used = 0;
        }
        for word in paragraph.split_whitespace() {
            let length = word.chars().count();
            if used > 0 {
                let fits = used + 1 + length <= width;
                out.push(if fits { ' ' } else { '\n' });
                used = if fits { used + 1 } else { 0 };
            }
            out.push_str(word);
            used += length;
        }
    }
    out
}

const NEXT: &str = "Next, with your own photos (one folder per class below DIR):
  flatclip predict PHOTO.jpg --model ViT-B-16/openai --classes cat,dog,car
  flatclip tune --method sapt --model ViT-B-16/openai --data folder:DIR --shots 16 --out my-prompt
  flatclip predict PHOTO.jpg --model ViT-B-16/openai --prompt my-prompt --method stss --classes cat,dog,car --explain views.png";

/// Replaces an earlier demo, but nothing else.
fn make_room(dir: &std::path::Path) -> Result<()> {
    let name = || dir.display().to_string();
    let occupied = dir.is_dir() && std::fs::read_dir(dir).with_context(name)?.next().is_some();
    if occupied {
        anyhow::ensure!(
            dir.join(MARK).is_file(),
            "{}: this folder is not empty and not an earlier demo; choose another with --out",
            name()
        );
        std::fs::remove_dir_all(dir).with_context(name)?;
    }
    std::fs::create_dir_all(dir).with_context(name)?;
    flatclip::files::write_atomic(&dir.join(MARK), b"{}\n")?;
    Ok(())
}

/// The prompt that needs no training.
fn template() -> Result<flatclip::prompt::Prompt> {
    Ok(flatclip::prompt::Prompt::templates(&[flatclip::text::templates::DEFAULT_TEMPLATE])?)
}

/// What the demo's parts share.
struct World<'a> {
    model: &'a Model,
    cache: PathBuf,
    out: &'a Output,
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn long_text_is_broken_between_words_and_paragraphs_stay() {
        assert_eq!(wrapped("one two  three\n\nfour", 8), "one two\nthree\n\nfour");
        assert_eq!(wrapped("unbreakable it", 4), "unbreakable\nit");
    }
}
