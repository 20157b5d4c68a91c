//! `flatclip predict`: which class is in each picture, by any adapter.

use crate::inputs::classes::ClassArgs;
use crate::inputs::model::ModelArgs;
use crate::inputs::pictures;
use crate::inputs::prompt::PromptArgs;
use crate::inputs::views::ViewArgs;
use crate::output::{Exit, Output};
use anyhow::{Context as _, Result, ensure};
use flatclip::image::views::ViewPolicy;
use flatclip::settings::parse_settings;
use flatclip::{Answer, Classifier};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of `flatclip predict`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Pictures, or folders of pictures
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    classes: ClassArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    /// How to answer: `flatclip methods` lists them
    #[arg(long, default_value = "zero-shot")]
    method: String,
    /// An option of the method: radius=0.3 or stss.radius=0.3 (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    views: ViewArgs,
    /// How views are made
    #[arg(long, default_value = "crop-flip", value_name = "crop-flip|augmix|identity")]
    view_policy: ViewPolicy,
    /// Token statistics of training images for PromptAlign, as `flatclip stats` writes them
    #[arg(long, value_name = "FILE")]
    statistics: Option<PathBuf>,
    /// Folder with generated pictures for DiffTPT: DIR/<picture's name without ending>/*.png
    #[arg(long, value_name = "DIR")]
    generated: Option<PathBuf>,
    /// Seed of the views and of the method
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many classes to print per picture
    #[arg(long, default_value_t = 5)]
    top: usize,
    /// Print what every selected view said, and write the views of the (one) picture as a contact sheet
    #[arg(long, value_name = "SHEET.png")]
    explain: Option<PathBuf>,
    /// Turn pictures as their EXIF tag says (the reference implementations do not)
    #[arg(long)]
    exif: bool,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let files = pictures::expand(&args.images)?;
    ensure!(args.explain.is_none() || files.len() == 1, "--explain: expected one picture, found {}", files.len());
    let classifier = args.classifier(out)?;
    let mut stream = classifier.stream()?;
    let bar = out.progress(files.len() as u64, "pictures");
    let mut results = Vec::new();
    for file in &files {
        match stream.answer_path(file) {
            Ok(answer) => results.push((file, answer)),
            Err(error) => bar.suspend(|| out.error(&error.into())),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    ensure!(!results.is_empty(), "none of the {} pictures could be answered", files.len());
    if args.views.certainty()?.is_some() {
        let used: usize = results.iter().filter_map(|(_, answer)| answer.views()).sum();
        let mean = used as f64 / results.len() as f64;
        out.note(format_args!("{mean:.1} of at most {} views per picture were encoded", classifier.views()));
    }
    if let (Some(sheet), [(file, answer)]) = (&args.explain, results.as_slice()) {
        explain(sheet, file, &classifier, answer, out)?;
    }
    print(&args, classifier.method(), &results, out)?;
    Ok(if results.len() == files.len() { Exit::Done } else { Exit::Counted })
}

impl Args {
    fn classifier(&self, out: &Output) -> Result<Classifier> {
        let classes = self.classes.read(out)?.context("which classes? give --classes a,b,c or --classes-file FILE")?;
        let options = parse_settings(&self.settings)?;
        let prompt = self.prompt.read()?;
        let model = self.model.load(out)?;
        let mut builder = Classifier::builder(&model)
            .classes(classes)
            .prompt(prompt)
            .method(&self.method)
            .options(options)
            .view_policy(self.view_policy)
            .seed(self.seed)
            .exif_rotation(self.exif)
            .any_model(self.prompt.any_model);
        if let Some(views) = self.views.count() {
            builder = builder.views(views);
        }
        if let Some(certainty) = self.views.certainty()? {
            builder = builder.any_time(certainty);
        }
        if let Some(file) = &self.statistics {
            builder = builder.statistics(Arc::new(flatclip::load_statistics(file)?));
        }
        if let Some(folder) = &self.generated {
            builder = builder.generated(folder);
        }
        Ok(builder.build()?)
    }
}

/// Prints the selected views, best first, and writes all of them as a sheet.
fn explain(sheet: &Path, file: &Path, classifier: &Classifier, answer: &Answer, out: &Output) -> Result<()> {
    if !out.is_json() {
        let seen = answer.views().unwrap_or(classifier.views());
        out.line(format_args!("{} of {seen} views decided", answer.kept().len()))?;
        let mut table = out.table(&["rank", "view", "score", "entropy", "says"]);
        for (rank, view) in answer.kept().into_iter().enumerate() {
            let number = |value: Option<f32>| value.map_or("-".to_owned(), |v| format!("{v:.4}"));
            let name = if view.index == 0 { "0 (the picture)".to_owned() } else { view.index.to_string() };
            let says = view.label.unwrap_or("-").to_owned();
            table.add_row([(rank + 1).to_string(), name, number(view.score), number(view.entropy), says]);
        }
        out.line(format_args!("{table}\n"))?;
    }
    let png = classifier.view_sheet(&classifier.open(file)?, answer, 8, 112)?;
    flatclip::files::write_atomic(sheet, &png)?;
    let views = answer.views().unwrap_or(classifier.views());
    out.note(format_args!("{}: {views} views with their scores, the selected ones framed", sheet.display()));
    Ok(())
}

fn print(args: &Args, method: &str, results: &[(&PathBuf, Answer)], out: &Output) -> Result<()> {
    let top = args.top.max(1);
    if out.is_json() {
        let rows: Vec<_> = results
            .iter()
            .map(|(file, answer)| {
                let row = |(index, class, p)| json!({ "class": class, "index": index, "probability": p });
                let top: Vec<_> = answer.ranked(top).into_iter().map(row).collect();
                let why = answer.explanation();
                json!({
                    "image": file.to_string_lossy(), "prediction": answer.label(), "index": answer.index(), "top": top,
                    "views": answer.views(), "selected_views": why.selected, "view_scores": why.scores,
                })
            })
            .collect();
        return out.json(&json!({ "schema_version": 1, "method": method, "model": args.model.model, "results": rows }));
    }
    if let [(_, answer)] = results {
        let mut table = out.table(&["class", "probability"]);
        for (_, class, p) in answer.ranked(top) {
            table.add_row([class.to_owned(), format!("{p:.4}")]);
        }
        return out.line(table);
    }
    let mut table = out.table(&["picture", "class", "probability", "then"]);
    for (file, answer) in results {
        let ranked = answer.ranked(top);
        let rest: Vec<String> = ranked.iter().skip(1).map(|(_, class, p)| format!("{class} {p:.3}")).collect();
        let (_, class, p) = ranked[0];
        table.add_row([file.display().to_string(), class.to_owned(), format!("{p:.4}"), rest.join(", ")]);
    }
    out.line(table)
}
