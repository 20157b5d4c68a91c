//! `flatclip predict`: which class is in each picture, by any adapter.

use crate::inputs::classes::ClassArgs;
use crate::inputs::model::ModelArgs;
use crate::inputs::pictures;
use crate::inputs::prompt::PromptArgs;
use crate::output::{Exit, Output};
use crate::session::warn_of_strangers;
use anyhow::{Context as _, Result, ensure};
use flatclip::data;
use flatclip::eval::{ClipEncoder, Encoder as _, load_statistics};
use flatclip::image::views::{ViewKey, ViewOptions, ViewPolicy, make_views};
use flatclip::image::{self, DecodeOptions, Picture};
use flatclip::methods::{self, Answer, AnyAdapter, Task, ViewSet};
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
    /// An option of the method, e.g. radius=0.3 (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Views per picture [default: what the method wants]
    #[arg(long, value_name = "N")]
    views: Option<usize>,
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
    let classes = args.classes.read(out)?.context("which classes? give --classes a,b,c or --classes-file FILE")?;
    let spec = methods::adapter(&args.method)?;
    let mut adapter = spec.build(&super::settings::table(&args.settings)?)?;
    let prompt = Arc::new(args.prompt.read()?);
    let model = args.model.load(out)?;
    let statistics = args.statistics.as_deref().map(load_statistics).transpose()?.map(Arc::new);
    let mut task = Task::from_prompt(&prompt, &model.clip, &model.tokenizer, classes.as_slice(), args.seed)?;
    let needs = adapter.needs().unwrap_or(spec.needs);
    if let Some(statistics) = statistics.as_ref().filter(|_| needs.statistics) {
        warn_of_strangers(statistics, &model.clip, &prompt, out);
        task = task.with_statistics(Arc::clone(statistics));
    }
    adapter.prepare(&task)?;

    let count = args.views.unwrap_or(spec.needs.default_views).max(1);
    let views = ViewOptions { policy: args.view_policy, ..model.views(count) };
    let encoder = ClipEncoder {
        clip: &model.clip,
        views: views.clone(),
        decode: DecodeOptions { exif_rotation: args.exif, ..DecodeOptions::default() },
        seed: args.seed,
        visual_prompts: prompt.visual_prompts(),
        generated: args.generated.clone().filter(|_| needs.generated),
    };
    let one = One { encoder: &encoder, task: &task, pixels: needs.pixels };
    let bar = out.progress(files.len() as u64, "pictures");
    let mut results = Vec::new();
    let mut failures = 0;
    for file in &files {
        match one.answer(file, &mut adapter) {
            Ok((picture, answer)) => results.push((file, picture, answer)),
            Err(error) => {
                failures += 1;
                bar.suspend(|| out.error(&error));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    ensure!(!results.is_empty(), "none of the {} pictures could be answered", files.len());
    if let (Some(sheet), [(file, picture, answer)]) = (&args.explain, results.as_slice()) {
        let id = file.display().to_string();
        super::explain::write(sheet, picture, answer, &classes, &views, one.key(&id), out)?;
    }
    let results: Vec<(&PathBuf, Answer)> = results.into_iter().map(|(file, _, answer)| (file, answer)).collect();
    print(&args, spec.name, &classes, &results, out)?;
    Ok(if failures == 0 { Exit::Done } else { Exit::Counted })
}

/// What every picture of a call shares.
struct One<'a> {
    encoder: &'a ClipEncoder<'a>,
    task: &'a Task,
    pixels: bool,
}

impl One<'_> {
    fn key<'k>(&self, id: &'k str) -> ViewKey<'k> {
        ViewKey { seed: self.encoder.seed, dataset: "predict", sample: id }
    }

    fn answer(&self, file: &Path, adapter: &mut AnyAdapter) -> Result<(Picture, Answer)> {
        let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
        let picture = image::decode_from(file, &bytes, &self.encoder.decode)?;
        let id = file.display().to_string();
        let pixels = make_views(&picture, &self.encoder.views, self.key(&id))?;
        let features = self.encoder.encode(&pixels, self.encoder.views.count)?;
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let of_file = data::Sample { id: name, label: 0, source: data::Source::File(file.to_path_buf()) };
        let generated = self.encoder.generated(&of_file)?;
        let image = ViewSet {
            norms: &features.norms,
            pixels: self.pixels.then_some(pixels.as_slice()),
            generated: generated.as_ref(),
            ..ViewSet::new(&id, &features.unit)
        };
        Ok((picture, adapter.adapt(self.task, &image)?))
    }
}

/// Class indices, most probable first; ties go to the lower index.
fn ranked(answer: &Answer, top: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..answer.probabilities.len()).collect();
    order.sort_by(|&a, &b| answer.probabilities[b].total_cmp(&answer.probabilities[a]).then(a.cmp(&b)));
    order.truncate(top.max(1));
    order
}

fn print(args: &Args, method: &str, classes: &[String], results: &[(&PathBuf, Answer)], out: &Output) -> Result<()> {
    if out.is_json() {
        let rows: Vec<_> = results
            .iter()
            .map(|(file, answer)| {
                let top: Vec<_> = ranked(answer, args.top)
                    .into_iter()
                    .map(|k| json!({ "class": classes[k], "index": k, "probability": answer.probabilities[k] }))
                    .collect();
                json!({
                    "image": file, "prediction": classes[answer.prediction], "index": answer.prediction, "top": top,
                    "selected_views": answer.explanation.selected, "view_scores": answer.explanation.scores,
                })
            })
            .collect();
        return out.json(&json!({ "schema_version": 1, "method": method, "model": args.model.model, "results": rows }));
    }
    if let [(_, answer)] = results {
        let mut table = out.table(&["class", "probability"]);
        for k in ranked(answer, args.top) {
            table.add_row([classes[k].clone(), format!("{:.4}", answer.probabilities[k])]);
        }
        return out.line(table);
    }
    let mut table = out.table(&["picture", "class", "probability", "then"]);
    for (file, answer) in results {
        let order = ranked(answer, args.top);
        let rest: Vec<String> =
            order.iter().skip(1).map(|&k| format!("{} {:.3}", classes[k], answer.probabilities[k])).collect();
        let first = format!("{:.4}", answer.probabilities[order[0]]);
        table.add_row([file.display().to_string(), classes[order[0]].clone(), first, rest.join(", ")]);
    }
    out.line(table)
}
