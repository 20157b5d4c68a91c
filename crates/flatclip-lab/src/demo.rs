//! The demonstration: what flatclip does, on an embedded model, in about a minute. The work is the recipe `demo`, which
//! [`reproduce`] runs; here its results are told.

use crate::data::{self, Dataset, OpenOptions, Sample};
use crate::eval::metrics::paired;
use crate::report::{Page, Section, Table, data_address, wrapped};
use crate::reproduce::{Recipe, ReproduceRequest, Results, plan, reproduce};
use flatclip::{Classifier, Error, Model, Progress, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How much of the demonstration, and where.
#[derive(Clone, Debug)]
pub struct DemoRequest {
    /// Seconds instead of about a minute: fewer images, views and steps; good to see that it runs, not for numbers.
    pub quick: bool,
    /// The model: `pocket`, `pocket-vit`, or a folder with another model of the pocket dataset.
    pub model: String,
    /// Where everything goes; an earlier demonstration there is replaced.
    pub out: PathBuf,
}

impl Default for DemoRequest {
    fn default() -> Self {
        Self { quick: false, model: "pocket".to_owned(), out: PathBuf::from("flatclip-demo") }
    }
}

/// What the demonstration found.
pub struct Demonstration {
    /// How long it took.
    pub seconds: f64,
    /// The page.
    pub report: PathBuf,
    results: Results,
    sections: Vec<Section>,
}

/// A file that marks a folder as ours to replace.
const MARK: &str = "flatclip-demo.json";

/// Runs the recipe and writes the page.
pub fn demo(request: &DemoRequest, progress: &dyn Progress) -> Result<Demonstration> {
    let start = Instant::now();
    make_room(&request.out)?;
    let model = Model::builder(&request.model).offline(true).load(progress)?;
    let work = work(request)?;
    let steps = Steps { all: progress, done: AtomicU64::new(0) };
    progress.start("demo", Some(plan(&work, &model)?.0.steps.len() as u64));
    let results = reproduce(&work, &model, &steps)?.results;
    progress.finish();
    let told = Told { work: &work, model: &model, results: &results };
    let sections = vec![
        told.views_of_one_image()?,
        told.what_views_gain()?,
        told.what_tuning_gains()?,
        told.landscape(),
        told.table()?,
    ];
    let page = Page {
        title: "flatclip demo".to_owned(),
        text: format!(
            "{} on the synthetic pocket dataset: photo-style drawings and six shifted styles, {} images of each. Results of a \
             toy model; they say nothing about CLIP.",
            model.describe(),
            results.recipe.limit.unwrap_or_default(),
        ),
        sections: sections.clone(),
    };
    let report = request.out.join("report.html");
    flatclip::files::write_atomic(&report, page.to_html().as_bytes())?;
    Ok(Demonstration { seconds: start.elapsed().as_secs_f64(), report, results, sections })
}

/// One bar over all steps: each announces itself by a note.
struct Steps<'a> {
    all: &'a dyn Progress,
    done: AtomicU64,
}

impl Progress for Steps<'_> {
    fn note(&self, step: &str) {
        self.all.advance(self.done.fetch_add(1, Ordering::Relaxed), step);
    }

    fn warn(&self, text: &str) {
        self.all.warn(text);
    }

    fn cancelled(&self) -> bool {
        self.all.cancelled()
    }
}

fn work(request: &DemoRequest) -> Result<ReproduceRequest> {
    let mut recipe = Recipe::find("demo")?;
    if request.quick {
        recipe.landscapes.iter_mut().for_each(|landscape| landscape.points = 5);
    }
    let cache = Some(request.out.join("cache"));
    let all = ReproduceRequest { cache, ..ReproduceRequest::new(recipe, &request.out) };
    let quick = |all| ReproduceRequest { limit: Some(8), views: Some(16), shots: Some(4), epochs: Some(2), ..all };
    Ok(if request.quick { quick(all) } else { all })
}

/// The results, and what they were made from.
struct Told<'a> {
    work: &'a ReproduceRequest,
    model: &'a Model,
    results: &'a Results,
}

/// Views of a sheet in a row, and their pixels.
const COLUMNS: usize = 8;
const SIDE: usize = 64;

impl Told<'_> {
    /// The views of the first shifted image that one view gets wrong and STSS right; the first of its kind, not the nicest.
    fn views_of_one_image(&self) -> Result<Section> {
        let (dataset, sample) = self.example()?;
        let image = sample.image(&dataset.decode_options(None))?;
        let classifier = |method: &str, views: usize| {
            let builder = Classifier::builder(self.model).classes(dataset.classes.clone()).method(method);
            builder.views(views).seed(self.work.recipe.seeds[0]).build()
        };
        let stss = classifier("stss", self.work.views.unwrap_or(64))?;
        let (answer, alone) = (stss.answer(&image)?, classifier("zero-shot", 1)?.answer(&image)?);
        let text = format!(
            "An image of the class {}, style {}. Alone, it is classified as {} ({:.2}). STSS makes {} views of it, selects the {} \
             whose prediction stays certain when the prompt is perturbed, and lets them vote: {}.",
            dataset.classes[sample.label],
            style(&dataset.name),
            alone.label(),
            alone.confidence(),
            answer.views().unwrap_or_default(),
            answer.selected().len(),
            answer.label(),
        );
        let sheet = data_address(&stss.view_sheet(&image, &answer, COLUMNS, SIDE)?);
        let caption = "Every view with its score and its own prediction; the selected ones are framed.";
        Ok(Section { images: vec![(caption.to_owned(), sheet)], ..Section::new("1. One image and its views", text) })
    }

    fn example(&self) -> Result<(Dataset, Sample)> {
        let (one, stss) = (self.results.right("zero-shot")?, self.results.right("STSS")?);
        let shifted = |place: usize| self.results.shifted().contains(&place);
        let helped = |key: &&(usize, usize, String)| shifted(key.0) && !one[*key] && stss.get(*key) == Some(&true);
        let first = one.keys().find(helped).or_else(|| one.keys().find(|key| shifted(key.0)));
        let missing = || Error::config("demo", "the recipe has no shifted image");
        let (place, _, id) = first.ok_or_else(missing)?;
        let mut dataset = data::open(&self.results.recipe.datasets[*place], &OpenOptions::default())?;
        let at = dataset.samples.iter().position(|sample| sample.id == *id).ok_or_else(missing)?;
        let sample = dataset.samples.swap_remove(at);
        Ok((dataset, sample))
    }

    fn what_views_gain(&self) -> Result<Section> {
        let shifted = self.results.shifted();
        let text = format!(
            "On the shifted styles one view is right for {}. {}; {}.",
            self.share("zero-shot", &shifted),
            self.gain("ZERO", "zero-shot", &shifted)?,
            self.gain("STSS", "zero-shot", &shifted)?,
        );
        let figure = self.results.bars("Untuned prompt, by style", &["zero-shot", "ZERO", "STSS"], &shifted);
        Ok(Section { figures: vec![figure], ..Section::new("2. What views gain on shifted styles", text) })
    }

    fn what_tuning_gains(&self) -> Result<Section> {
        let photos = self.results.in_domain();
        let shots = self.work.shots.or(self.work.recipe.prompt("coop")?.shots).unwrap_or_default();
        let text = format!(
            "With {shots} training images per class, on held-out photos: {}; {}. The untuned prompt is right for {}.",
            self.gain("CoOp", "zero-shot", &photos)?,
            self.gain("SAPT", "zero-shot", &photos)?,
            self.share("zero-shot", &photos),
        );
        let figure = self.results.bars("One view, photos", &["zero-shot", "CoOp", "SAPT"], &photos);
        Ok(Section { figures: vec![figure], ..Section::new("3. What tuning gains on photos", text) })
    }

    /// CoOp's and SAPT's surfaces side by side.
    fn landscape(&self) -> Section {
        let text = "The training loss around the two tuned prompts, along the same two random directions. SAPT looks for a \
                    flat place, CoOp does not.";
        let found = self.results.sections.iter().find(|section| !section.figures.is_empty()).cloned();
        Section { title: "4. Where the prompts ended".into(), text: text.into(), ..found.unwrap_or_default() }
    }

    fn table(&self) -> Result<Section> {
        let shifted = self.results.shifted();
        let text = format!(
            "On the shifted styles: {}; {}; {}.\n\nWhat holds beyond this one draw, over eight draws and three pretrained toy \
             models: tuning helps photos, views help shifted styles, SAPT ends in flatter places. No significant difference \
             between STSS and entropy selection was found on them, and FGA did not exceed CoOp with ZERO. Every figure: \
             docs/research/pocket.md.",
            self.gain("STSS", "ZERO", &shifted)?,
            self.gain("FGA", "ZERO", &shifted)?,
            self.gain("FGA", "CoOp + ZERO", &shifted)?,
        );
        Ok(Section {
            tables: self.results.tables.iter().take(2).cloned().collect(),
            ..Section::new("5. The table", text)
        })
    }

    fn share(&self, row: &str, columns: &[usize]) -> String {
        self.results.mean(row, columns).map_or("-".to_owned(), |mean| format!("{mean:.1} %"))
    }

    /// The difference between two rows on the same images, with its interval.
    fn gain(&self, row: &str, base: &str, columns: &[usize]) -> Result<String> {
        let (theirs, ours) = (self.results.right(base)?, self.results.right(row)?);
        let common = theirs.iter().filter(|(key, _)| columns.contains(&key.0));
        let (first, second): (Vec<bool>, Vec<bool>) = common.filter_map(|(key, &a)| Some((a, *ours.get(key)?))).unzip();
        let found = paired(&first, &second, 1000, 0);
        let interval =
            found.interval.map_or_else(String::new, |i| format!(" ({:+.1} to {:+.1})", 100.0 * i.low, 100.0 * i.high));
        Ok(format!("{row} against {base}: {:+.1} points{interval}", 100.0 * found.difference))
    }
}

/// `sketch` of `pocket:sketch`.
fn style(name: &str) -> &str {
    name.split(':').nth(1).unwrap_or(name)
}

impl Demonstration {
    /// The story in short, for a terminal.
    pub fn text(&self) -> String {
        let told = |section: &Section| format!("{}\n{}", section.title, paragraphs(&section.text, 110));
        let mut parts: Vec<String> = self.sections.iter().map(told).collect();
        parts.extend(self.results.tables.first().map(Table::to_text));
        parts.join("\n\n")
    }

    /// The numbers, for machines.
    pub fn json(&self) -> serde_json::Value {
        let mut json = self.results.json();
        json["seconds"] = self.seconds.into();
        json["report"] = self.report.display().to_string().into();
        json
    }
}

/// Lines of at most `width` characters, broken between words; empty lines stay.
fn paragraphs(text: &str, width: usize) -> String {
    let words = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = |paragraph: &str| wrapped(&words(paragraph), width).join("\n");
    text.split("\n\n").map(lines).collect::<Vec<_>>().join("\n\n")
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
    use super::paragraphs;

    #[test]
    fn long_text_is_broken_between_words_and_paragraphs_stay() {
        assert_eq!(paragraphs("one two  three\n\nfour", 8), "one two\nthree\n\nfour");
        assert_eq!(paragraphs("unbreakable it", 4), "unbreakable\nit");
    }
}
