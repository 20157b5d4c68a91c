//! The demonstration: the whole idea on the embedded models and the drawn world, from nothing to a report.

mod full;
mod page;
mod rows;
mod tuning;

use crate::facade::{Model, NamedPrompt};
use crate::methods::statistics::SourceStatistics;
use crate::progress::Progress;
use crate::prompt::Prompt;
use crate::{Error, Result};
use rows::Table;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tuning::Tuned;

/// How much of the demonstration, and where.
#[derive(Clone, Debug)]
pub struct DemoRequest {
    /// Seconds instead of about a minute: fewer pictures, views and epochs; good to see that it runs, not for numbers.
    pub quick: bool,
    /// All methods and three seeds.
    pub full: bool,
    /// Where everything goes; an earlier demonstration there is replaced.
    pub out: PathBuf,
}

/// What the demonstration found.
#[derive(Debug)]
pub struct Demonstration {
    /// How long it took.
    pub seconds: f64,
    /// The page.
    pub report: PathBuf,
    results: Results,
    tuned: Tuned,
    size: Size,
}

/// How much is done.
#[derive(Debug)]
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

impl DemoRequest {
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

/// Tunes, evaluates, and writes the report.
pub fn demo(request: &DemoRequest, progress: &dyn Progress) -> Result<Demonstration> {
    let start = Instant::now();
    let size = request.size();
    make_room(&request.out)?;
    let load = |name: &str| Model::builder(name).offline(true).load(progress);
    let model = load("pocket")?;
    let vit = size.all_methods.then(|| load("pocket-vit")).transpose()?;
    let mut results = Results::default();
    let mut first: Option<Tuned> = None;
    for &seed in size.seeds {
        let dir = request.out.join(format!("seed-{seed}"));
        progress.note(&format!("seed {seed}: tuning CoOp and SAPT with {} photos per class", size.shots));
        let tuned = tuning::tune_both(&model, &size, seed, &dir, progress)?;
        progress.note(&format!("seed {seed}: {} test pictures in {} styles", size.pictures * 7, DOMAINS.len()));
        results.tables.push(compare(&model, &tuned, &size, seed, &dir, progress)?);
        if let Some(vit) = &vit {
            progress.note(&format!("seed {seed}: methods that need a vision transformer"));
            results.transformer.push(full::transformer(vit, &size, seed, &dir.join("pocket-vit"), progress)?);
        }
        first.get_or_insert(tuned);
    }
    let tuned = first.ok_or_else(|| Error::config("seeds", "no seed was run"))?;
    let report = page::write(&request.out, &model, &tuned, &results, &size, progress)?;
    Ok(Demonstration { seconds: start.elapsed().as_secs_f64(), report, results, tuned, size })
}

impl Demonstration {
    /// The tables and what they say, for a terminal.
    pub fn text(&self) -> String {
        let Results { tables, transformer } = &self.results;
        let mut parts =
            vec![rows::accuracy_table("pocket", tables).to_text(), rows::difference_table(&tables[0]).to_text()];
        if !transformer.is_empty() {
            parts.push(rows::accuracy_table("pocket-vit", transformer).to_text());
        }
        parts.push(self.tuned.table().to_text());
        parts.push(wrapped(&rows::reading(&tables[0], &self.tuned, &self.size), 110));
        parts.join("\n")
    }

    /// The numbers, for machines.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "schema_version": 1, "seconds": self.seconds, "report": self.report, "seeds": self.results.tables,
            "transformer": self.results.transformer, "tuning": self.tuned.summary(),
        })
    }
}

/// The tables of all seeds.
#[derive(Debug, Default)]
struct Results {
    tables: Vec<Table>,
    /// Of the vision transformer; empty without `--full`.
    transformer: Vec<Table>,
}

/// All rows of one seed on the pocket CLIP.
fn compare(model: &Model, tuned: &Tuned, size: &Size, seed: u64, dir: &Path, progress: &dyn Progress) -> Result<Table> {
    let untuned = template()?;
    let others = if size.all_methods { full::prompts(model, size, seed, dir)? } else { Vec::new() };
    let mut prompts = vec![untuned, named("coop", &tuned.coop), named("sapt", &tuned.sapt)];
    prompts.extend(others);
    let requests = if size.all_methods { full::row_requests() } else { rows::usual() };
    let world = World { model, cache: dir.join("cache"), statistics: None, progress };
    rows::evaluate(&world, &prompts, &requests, size, seed, dir)
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

/// Replaces an earlier demonstration, but nothing else.
fn make_room(dir: &Path) -> Result<()> {
    let occupied = dir.is_dir() && std::fs::read_dir(dir).map_err(Error::io(dir))?.next().is_some();
    if occupied {
        if !dir.join(MARK).is_file() {
            let reason = "this folder is not empty and not an earlier demonstration".to_owned();
            return Err(Error::Run { path: dir.to_path_buf(), reason }.with_hint(crate::Hint::Elsewhere));
        }
        std::fs::remove_dir_all(dir).map_err(Error::io(dir))?;
    }
    std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    crate::files::write_atomic(&dir.join(MARK), b"{}\n")
}

/// The prompt that needs no training.
fn template() -> Result<NamedPrompt> {
    Ok(named("template", &Prompt::templates(&[Prompt::TEMPLATE])?))
}

fn named(name: &str, prompt: &Prompt) -> NamedPrompt {
    NamedPrompt { name: name.to_owned(), prompt: Arc::new(prompt.clone()) }
}

/// What the demo's parts share.
struct World<'a> {
    model: &'a Model,
    cache: PathBuf,
    /// For PromptAlign.
    statistics: Option<Arc<SourceStatistics>>,
    progress: &'a dyn Progress,
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
