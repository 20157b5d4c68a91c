//! The demonstration: the paper's questions on an embedded model and the synthetic pocket dataset.
//!
//! What is done and by which rules stands in `protocol.rs`; it is written down in `docs/research/pocket.md`.

mod answers;
mod claims;
mod compare;
mod minima;
mod page;
mod protocol;
mod tuning;
mod views;

use crate::report::Section;
use crate::report::figure::Figure;
use answers::{Answers, Rule};
use claims::Claim;
use flatclip::Model;
use flatclip::progress::Progress;
use flatclip::{Error, Result};
use minima::{Minimum, Photos};
use protocol::Protocol;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tuning::{Prompts, Tuner};
use views::Examples;

/// How much of the demonstration, and where.
#[derive(Clone, Debug)]
pub struct DemoRequest {
    /// Seconds instead of about a minute: fewer images, views and steps; good to see that it runs, not for numbers.
    pub quick: bool,
    /// The whole protocol: eight draws of the shots, 512 images per style, settings chosen over all draws.
    pub full: bool,
    /// The model: `pocket`, `pocket-vit`, or a folder with another model of this world.
    pub model: String,
    /// The world whose images are answered: `test`, or `validation` to try something without reading the test.
    pub world: String,
    /// Where everything goes; an earlier demonstration there is replaced.
    pub out: PathBuf,
}

impl Default for DemoRequest {
    fn default() -> Self {
        let [model, world] = ["pocket", "test"].map(str::to_owned);
        Self { quick: false, full: false, model, world, out: PathBuf::from("flatclip-demo") }
    }
}

/// What the demonstration found.
pub struct Demonstration {
    /// How long it took.
    pub seconds: f64,
    /// The page.
    pub report: PathBuf,
    study: Study,
    story: Vec<Section>,
}

/// Everything that was computed.
struct Study {
    model: Model,
    protocol: Protocol,
    prompts: Prompts,
    answers: Answers,
    minima: Vec<Minimum>,
    surfaces: Vec<Figure>,
    sharpness: String,
    examples: Examples,
    claims: Vec<Claim>,
}

/// The domains of the pocket dataset: the first is the source, the others are shifts.
const DOMAINS: [&str; 7] = ["photo", "sketch", "cartoon", "painting", "noise", "rendition", "hard"];

/// A file that marks a folder as ours to replace.
const MARK: &str = "flatclip-demo.json";

/// Tunes, answers, judges, and writes the page.
pub fn demo(request: &DemoRequest, progress: &dyn Progress) -> Result<Demonstration> {
    let start = Instant::now();
    make_room(&request.out)?;
    let model = Model::builder(&request.model).offline(true).load(progress)?;
    let study = Study::make(model, Protocol::of(request)?, &request.out.join("prompts"), progress)?;
    let story = page::story(&study)?;
    let report = request.out.join("report.html");
    flatclip::files::write_atomic(&report, page::page(&study, story.clone()).to_html().as_bytes())?;
    let done = Demonstration { seconds: start.elapsed().as_secs_f64(), report, study, story };
    let numbers = serde_json::to_vec_pretty(&done.json()).map_err(|e| Error::config("results", e.to_string()))?;
    flatclip::files::write_atomic(&request.out.join("results.json"), &numbers)?;
    Ok(done)
}

impl Study {
    fn make(model: Model, protocol: Protocol, dir: &Path, progress: &dyn Progress) -> Result<Self> {
        let photos = Photos::of(&model)?;
        let prompts = tuning::tune_all(&model, &protocol, dir, progress)?;
        let minima = minima::measure(&model, &photos, &prompts, progress)?;
        let shown = answers::look(&model, &protocol, progress)?;
        let answers = Answers::collect(&model, &prompts, shown, &protocol, progress)?;
        let claims = claims::judge(&answers, &minima, &protocol)?;
        let shots = protocol.most_shots();
        let first = |tuner: Tuner| {
            let missing = || Error::config(tuner.name(), "no prompt was tuned");
            prompts.of(tuner, shots).into_iter().next().ok_or_else(missing)
        };
        let (coop, sapt) = (first(Tuner::Coop)?, first(Tuner::Sapt)?);
        let pair = [("CoOp", &coop.prompt), ("SAPT", &sapt.prompt)];
        let surfaces = photos.surfaces(&model, pair, protocol.points)?;
        let tuned = Some((Tuner::Sapt, shots));
        let rows = (answers.row(tuned, Rule::One)?, answers.row(tuned, Rule::Stss)?);
        let examples = views::examples(&model, sapt, &answers, rows, &protocol)?;
        let sharpness = minima::sentence(&minima, &protocol)?;
        Ok(Self { model, protocol, prompts, answers, minima, surfaces, sharpness, examples, claims })
    }
}

impl Demonstration {
    /// The story in short, for a terminal.
    pub fn text(&self) -> Result<String> {
        let mut parts = Vec::new();
        for section in &self.story {
            parts.push(format!("{}\n{}", section.title, wrapped(&section.text, 110)));
        }
        parts.push(page::short_table(&self.study)?.to_text());
        Ok(parts.join("\n\n"))
    }

    /// The numbers, for machines.
    pub fn json(&self) -> serde_json::Value {
        let Study { model, protocol, prompts, answers, minima, claims, .. } = &self.study;
        let rows: Vec<serde_json::Value> = answers
            .rows
            .iter()
            .map(|row| {
                let accuracy: Vec<f64> = (0..DOMAINS.len()).map(|domain| answers.accuracy(row, domain)).collect();
                let (tuner, shots) = row.tuned.map_or(("untuned", None), |(tuner, shots)| (tuner.name(), Some(shots)));
                serde_json::json!({
                    "prompt": tuner, "shots": shots, "rule": row.rule, "accuracy": accuracy, "shifts": answers.shifts(row),
                })
            })
            .collect();
        serde_json::json!({
            "schema_version": 2, "seconds": self.seconds, "report": self.report, "model": model.name(), "weights": model.hash(),
            "world": protocol.world, "images_per_style": protocol.images, "views": protocol.views, "draws": protocol.seeds,
            "styles": DOMAINS, "rows": rows, "claims": claims, "settings": prompts.tried, "prompts": prompts.tuned, "minima": minima,
        })
    }
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

fn stopped() -> Error {
    Error::Interrupted("the demonstration was stopped; nothing was written but its tuned prompts".to_owned())
}

/// Replaces an earlier demonstration, but nothing else.
fn make_room(dir: &Path) -> Result<()> {
    let occupied = dir.is_dir() && std::fs::read_dir(dir).map_err(Error::io(dir))?.next().is_some();
    if occupied {
        if !dir.join(MARK).is_file() {
            let reason = "this folder is not empty and not an earlier demonstration".to_owned();
            return Err(Error::Run { path: dir.to_path_buf(), reason }.with_hint(flatclip::Hint::Elsewhere));
        }
        std::fs::remove_dir_all(dir).map_err(Error::io(dir))?;
    }
    std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    flatclip::files::write_atomic(&dir.join(MARK), b"{}\n")
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
