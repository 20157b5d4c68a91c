//! `flatclip predict`: which class is in each image, by any adapter; answers as they come.

mod continued;
mod explain;
mod rows;
mod work;

use crate::inputs::classes::did_you_mean;
use crate::inputs::images::{self, changes_line};
use crate::inputs::prompt::say_radius_units;
use crate::prelude::*;
use flatclip::classify::in_batches;
use flatclip::image::views::ViewPolicy;
use flatclip::image::{DecodeOptions, ImageChanges, open_noted};
use flatclip::{Classifier, Model, Progress as _, Prompt};
use rows::{Format, Rows};
use std::sync::Arc;
use std::time::Instant;
use work::{Done, Opening};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Images, folders of images, @FILE with one name per line, or - for names on standard input
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    classes: ClassArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    /// How to answer: `flatclip methods` lists them [default: stss with a sapt prompt, else zero-shot]
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
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
    /// Folder with generated images for DiffTPT: DIR/<image's name without ending>/*.png
    #[arg(long, value_name = "DIR")]
    generated: Option<PathBuf>,
    /// Seed of the views and of the method
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many classes to print per image
    #[arg(long, default_value_t = 5)]
    top: usize,
    /// Print what every selected view said, and write all views as a contact sheet: a PNG for one image, a folder for many
    #[arg(long, value_name = "SHEET.png|DIR")]
    explain: Option<PathBuf>,
    /// How to print: table, csv, or jsonl with one object per image
    #[arg(long, value_enum, value_name = "NAME")]
    format: Option<Format>,
    /// Write rows to this file (.csv or .jsonl), each as it comes; the same command again skips images that have a row and
    /// the same content, and answers replaced ones again
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    decode: DecodeArgs,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let files = images::expand(&args.images, out)?;
    if let Some(path) = &args.explain {
        explain::prepare(path, files.len())?;
    }
    let (classifier, model) = args.classifier(out)?;
    args.model.warn_outside(classifier.classes(), first_side(&files, &args.decode.options()), out);
    out.note(setup_line(&classifier));
    let mut rows = Rows::open(&args, &classifier, &model, &files, out)?;
    let is_new = |file: &&PathBuf| !rows.done.contains_key(&*file.to_string_lossy());
    let files: Vec<&PathBuf> = files.iter().filter(is_new).collect();
    let mut stream = classifier.stream()?;
    let opening = Opening {
        classifier: &classifier,
        decode: args.decode.options(),
        content: rows.file.is_some(),
        images: args.explain.is_some(),
    };
    let mut changes = ImageChanges::default();
    let (start, mut answered, mut failed, mut encoded) = (Instant::now(), rows.done.len(), 0, Vec::new());
    out.interruptible()?.start("images", Some(files.len() as u64));
    let each = |index: usize, done: Done| -> Result<bool> {
        if out.cancelled() {
            rows.finish()?;
            out.finish();
            let kept = rows.file.as_ref().map(|path| format!("; their rows are in {}", path.display()));
            let reason = format!("{index} of {} images were answered{}", files.len(), kept.unwrap_or_default());
            return Err(flatclip::Error::Interrupted(reason).into());
        }
        let file = files[index];
        rows.content = done.content;
        changes.count(done.notes);
        match done.answer {
            Ok((answer, image)) => {
                if let (Some(place), Some(image)) = (&args.explain, &image) {
                    explain::write(place, file, image, &classifier, &answer, out)?;
                }
                rows.answer(file, &answer)?;
                encoded.extend(answer.views());
                answered += 1;
            }
            Err(error) => {
                failed += 1;
                rows.failure(file, &error)?;
                if !rows.shows_failures() {
                    out.error(&error.into());
                }
            }
        }
        let rate = (index + 1) as f64 / start.elapsed().as_secs_f64().max(1e-9);
        out.advance(index as u64 + 1, &format!("{rate:.1}/s"));
        Ok(true)
    };
    let answer = |batch| opening.answer(batch, &mut stream);
    in_batches(&files, opening.batch(), |file| opening.open(file), answer, each)?;
    out.finish();
    rows.finish()?;
    if args.views.certainty()?.is_some() && !encoded.is_empty() {
        let mean = encoded.iter().sum::<usize>() as f64 / encoded.len() as f64;
        out.note(format_args!("{mean:.1} of at most {} views per image were encoded", classifier.views()));
    }
    if let Some(line) = changes_line(changes) {
        out.note(line);
    }
    Ok(match (answered, failed) {
        (_, 0) => Exit::Done,
        (0, _) => {
            out.fault("no image could be classified", "image.unreadable", None);
            Exit::Unread
        }
        _ => {
            out.note(format_args!("{failed} of {} images could not be answered", files.len()));
            Exit::Counted
        }
    })
}

/// The longer side of the first image that can be read.
fn first_side(files: &[PathBuf], decode: &DecodeOptions) -> Option<usize> {
    let image = open_noted(files.first()?, decode).ok()?.0;
    Some(image.width.max(image.height))
}

impl Args {
    fn classifier(&self, out: &Output) -> Result<(Classifier, Model)> {
        let classes = self.classes.read(out)?;
        let options = parse_settings(&self.settings)?;
        let prompt = self.prompt.read()?;
        ensure!(
            classes.is_some() || !prompt.provenance.classes.is_empty(),
            "which classes? give --classes a,b,c or --classes-file FILE"
        );
        let classes = self.own_classes(classes, &prompt, out);
        let method = self.method.clone().unwrap_or_else(|| prompt.default_method().to_owned());
        if let [class] = classes.as_slice() {
            out.warn(format_args!(
                "with {class:?} as the only class, every image gets it with probability 1: give more classes to compare with"
            ));
        }
        say_radius_units(&prompt, &method, &options, out);
        let model = self.model.load(out)?;
        let mut builder = Classifier::builder(&model)
            .classes(classes)
            .prompt(prompt)
            .method(&method)
            .options(options)
            .view_policy(self.view_policy)
            .seed(self.seed)
            .explain(self.explain.is_some())
            .exif(self.decode.options().exif)
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
        Ok((builder.build()?, model))
    }

    /// The classes that were given, else the prompt's own; a note names a list that differs from the prompt's.
    fn own_classes(&self, given: Option<Vec<String>>, prompt: &Prompt, out: &Output) -> Vec<String> {
        let own = &prompt.provenance.classes;
        let Some(given) = given else {
            out.note(format_args!("classes: the {} of the prompt ({})", own.len(), shortened(own)));
            return own.clone();
        };
        let new: Vec<&String> = given.iter().filter(|class| !own.contains(class)).collect();
        if !own.is_empty() && (!new.is_empty() || given.len() != own.len()) {
            let named = new.first().map(|class| format!(": {class:?}{}", did_you_mean(class, own))).unwrap_or_default();
            let more = if new.len() > 1 { " and others" } else { "" };
            out.note(format_args!(
                "the prompt was learned for {} classes; of the {} given, {} {} new to it{named}{more}",
                own.len(),
                given.len(),
                new.len(),
                if new.len() == 1 { "is" } else { "are" }
            ));
        }
        given
    }
}

fn setup_line(classifier: &Classifier) -> String {
    let (views, precision) = (classifier.views(), classifier.precision().unwrap_or_default());
    let views = format!("{views} view{}", if views == 1 { "" } else { "s" });
    let read = if classifier.read() == Some("exif") { "EXIF applied" } else { "as Pillow, EXIF ignored" };
    format!("method {}, {views}, precision {precision}, images read: {read}", classifier.method())
}

fn shortened(names: &[String]) -> String {
    let shown = names.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > 5 { format!("{shown}, ...") } else { shown }
}

/// What a file of rows was made with: it is continued with the same only.
fn settings(args: &Args, classifier: &Classifier, model: &Model) -> Result<toml::Table> {
    let mut table = parse_settings(&args.settings)?;
    let strings = [
        ("model", model.name().to_owned()),
        ("weights", model.hash().to_owned()),
        ("method", classifier.method().to_owned()),
        ("views", classifier.views().to_string()),
        ("certainty", format!("{:?}", args.views.certainty()?.map(|certainty| certainty.at(model.logit_scale())))),
        ("view_policy", args.view_policy.name().to_owned()),
        ("seed", args.seed.to_string()),
        ("top", args.top.to_string()),
        ("exif", args.decode.options().exif.to_string()),
        ("skips", "by content".to_owned()),
        ("classes", classifier.classes().join("\n")),
    ];
    table.extend(strings.into_iter().map(|(key, value)| (key.to_owned(), value.into())));
    Ok(table)
}
