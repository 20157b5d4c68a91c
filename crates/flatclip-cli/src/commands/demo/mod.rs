//! `flatclip demo`: the whole idea on the embedded model and the drawn world, from nothing to a report.

mod full;
mod page;
mod rows;
mod tuning;

use crate::inputs::model::{Model, ModelArgs};
use crate::output::{Exit, Output};
use anyhow::{Context as _, Result};
use flatclip::methods::statistics::SourceStatistics;
use rows::Table;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tuning::Tuned;

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
        let mut size =
            Size { shots: 16, epochs: 30, pictures: 128, views: 64, points: 21, seeds: &[1], all_methods: false };
        if self.full {
            size = Size { pictures: 500, points: 31, seeds: &[1, 2, 3], all_methods: true, ..size };
        }
        if self.quick {
            size = Size { shots: 4, epochs: 3, pictures: 16, views: 16, points: 7, ..size };
        }
        size
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
    let model = ModelArgs::embedded("pocket").load(out)?;
    let vit = size.all_methods.then(|| ModelArgs::embedded("pocket-vit").load(out)).transpose()?;
    let mut results = Results::default();
    let mut first: Option<Tuned> = None;
    for &seed in size.seeds {
        let dir = args.out.join(format!("seed-{seed}"));
        out.note(format_args!("seed {seed}: tuning CoOp and SAPT with {} photos per class", size.shots));
        let tuned = tuning::tune_both(&model, &size, seed, &dir, out)?;
        out.note(format_args!("seed {seed}: {} test pictures in {} styles", size.pictures * 7, DOMAINS.len()));
        results.tables.push(compare(&model, &tuned, &size, seed, &dir, out)?);
        if let Some(vit) = &vit {
            out.note(format_args!("seed {seed}: methods that need a vision transformer"));
            results.transformer.push(full::transformer(vit, &size, seed, &dir.join("pocket-vit"), out)?);
        }
        first.get_or_insert(tuned);
    }
    let tuned = first.context("no seed was run")?;
    let table = results.tables.first().context("no seed was run")?;
    let report = page::write(&args.out, &model, &tuned, &results, &size, out)?;
    let seconds = start.elapsed().as_secs_f64();
    if out.is_json() {
        out.json(&serde_json::json!({
            "schema_version": 1, "seconds": seconds, "report": report, "seeds": results.tables, "transformer": results.transformer,
            "tuning": tuned.summary(),
        }))?;
    } else {
        out.line(rows::accuracy_table("pocket", &results.tables).to_text())?;
        out.line(rows::difference_table(table).to_text())?;
        if !results.transformer.is_empty() {
            out.line(rows::accuracy_table("pocket-vit", &results.transformer).to_text())?;
        }
        out.line(tuned.table().to_text())?;
        out.line(wrapped(&rows::reading(table, &tuned, &size), 110))?;
        out.line(format_args!("\n{seconds:.0} s. The report: {}\n\n{NEXT}", report.display()))?;
    }
    Ok(Exit::Done)
}

/// The tables of all seeds.
#[derive(Default)]
struct Results {
    tables: Vec<Table>,
    /// Of the vision transformer; empty without `--full`.
    transformer: Vec<Table>,
}

/// All rows of one seed on the pocket CLIP.
fn compare(model: &Model, tuned: &Tuned, size: &Size, seed: u64, dir: &Path, out: &Output) -> Result<Table> {
    let untuned = template()?;
    let others = if size.all_methods { full::prompts(model, size, seed, dir)? } else { Vec::new() };
    let mut prompts = vec![("template", &untuned), ("coop", &tuned.coop), ("sapt", &tuned.sapt)];
    prompts.extend(others.iter().map(|(name, prompt)| (*name, prompt)));
    let asks = if size.all_methods { full::asks() } else { rows::usual() };
    let world = World { model, name: "pocket", cache: dir.join("cache"), statistics: None, out };
    rows::evaluate(&world, &prompts, &asks, size, seed, dir)
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
fn make_room(dir: &Path) -> Result<()> {
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
    /// The model's name, for the record.
    name: &'a str,
    cache: PathBuf,
    /// For PromptAlign.
    statistics: Option<&'a SourceStatistics>,
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
