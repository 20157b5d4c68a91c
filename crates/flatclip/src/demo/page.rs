//! The demo's report: the table, examples with their views, landscapes, and what the two knobs of STSS do.

use super::rows::{self, Table, accuracy_table, difference_table};
use super::{DOMAINS, Model, Results, Size, Tuned, World, named, template};
use crate::Result;
use crate::data::{self, OpenOptions, Split};
use crate::facade::{Classifier, NamedPrompt};
use crate::files::write_atomic;
use crate::image::DecodeOptions;
use crate::landscape::{Directions, Flatness, Grid, Normalisation, Probe, Surface};
use crate::methods::Task;
use crate::model::Features;
use crate::progress::Progress;
use crate::report::figure::{Axis, Figure, Layer};
use crate::report::landscape::{flatness_table, shared_range, surface_figure};
use crate::report::{Page, Section, data_address};
use flatclip_tensor::Matrix;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Values of the two knobs that the figures show.
const RADII: [f64; 5] = [0.0, 0.5, 1.0, 2.0, 4.0];
const FRACTIONS: [f64; 5] = [0.05, 0.1, 0.3, 0.5, 1.0];
/// Domains whose pictures the examples come from.
const EXAMPLES: [&str; 3] = ["hard", "sketch", "rendition"];

pub(super) fn write(
    dir: &Path,
    model: &Model,
    tuned: &Tuned,
    results: &Results,
    size: &Size,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let table = &results.tables[0];
    let classes: Vec<String> = flatclip_pocket::CLASS_NAMES.iter().map(|&c| c.to_owned()).collect();
    let mut sections = vec![
        Section {
            title: "The comparison".into(),
            text: rows::reading(table, tuned, size),
            tables: vec![accuracy_table("pocket", &results.tables), difference_table(table)],
            figures: vec![bars(table)],
            ..Section::default()
        },
        Section {
            title: "Tuning".into(),
            text: "Sharpness is the rise of the training loss within radius 0.1 of the context, along its gradient."
                .into(),
            tables: vec![tuned.table()],
            ..Section::default()
        },
        examples(model, tuned, &classes, size)?,
        landscapes(model, tuned, &classes, size)?,
        knobs(model, tuned, size, dir, progress)?,
    ];
    if !results.transformer.is_empty() {
        sections.insert(
            1,
            Section {
                title: "Methods that need a vision transformer".into(),
                text: "On pocket-vit, another embedded model: compare within this table, not with the one above. MaPLe starts from noise; \
                       PromptAlign's source statistics come from the training photos. DiffTPT is not shown, since it reads pictures made by a \
                       diffusion model."
                    .into(),
                tables: vec![accuracy_table("pocket-vit", &results.transformer)],
                ..Section::default()
            },
        );
    }
    let page = Page {
        title: "flatclip demo".into(),
        text: format!(
            "A pocket CLIP on a drawn world. {} ms per picture to draw, crop and encode {} views; the column ms is what an adapter adds.",
            table.encode_ms.round(),
            table.views
        ),
        sections,
    };
    let file = dir.join("report.html");
    write_atomic(&file, page.to_html().as_bytes())?;
    Ok(file)
}

fn bars(table: &Table) -> Figure {
    let chosen = ["zero-shot", "zero-shot + ZERO", "CoOp + ZERO", "FGA (SAPT + STSS)"];
    let mut figure = Figure::new(
        "Accuracy by style",
        Axis::categories("style", DOMAINS),
        Axis::new("accuracy, %").within(0.0, 100.0),
    );
    for row in table.rows.iter().filter(|row| chosen.contains(&row.name.as_str())) {
        let values = row.accuracy.iter().map(|a| 100.0 * a).collect();
        figure = figure.with(Layer::Bars { name: row.name.clone(), values });
    }
    figure.size = (900.0, 380.0);
    figure
}

/// For one picture of each chosen domain: all views with their scores, the kept ones framed.
fn examples(model: &Model, tuned: &Tuned, classes: &[String], size: &Size) -> Result<Section> {
    let fga = Classifier::builder(model)
        .classes(classes.iter().cloned())
        .prompt(tuned.sapt.clone())
        .method("stss")
        .views(size.views)
        .seed(1)
        .build()?;
    let mut pictures = Vec::new();
    for domain in EXAMPLES {
        let options = OpenOptions { split: Split::Test, ..OpenOptions::default() };
        let dataset = data::open(&format!("pocket:{domain}:test:1"), &options)?;
        let sample = &dataset.samples[0];
        let picture = sample.picture(&DecodeOptions::default())?;
        let answer = fga.answer(&picture)?;
        let caption = format!(
            "{domain}: a {}; FGA answers {}. Below each view its score (lower is kept) and what it says alone.",
            classes[sample.label],
            answer.label()
        );
        pictures.push((caption, data_address(&fga.view_sheet(&picture, &answer, 16, 64)?)));
    }
    Ok(Section { title: "Views and their scores".into(), pictures, ..Section::default() })
}

/// The training loss around CoOp's and SAPT's prompt.
fn landscapes(model: &Model, tuned: &Tuned, classes: &[String], size: &Size) -> Result<Section> {
    let (features, labels) = train_features(model, size)?;
    let grid = Grid::new(size.points, 1.0)?;
    let (mut surfaces, mut flatness) = (Vec::new(), Vec::new());
    for (name, prompt) in [("CoOp", &tuned.coop), ("SAPT", &tuned.sapt)] {
        for (what, scale) in [
            ("relative, one step is a token's norm", Normalisation::PerToken),
            ("absolute, radius 0.5", Normalisation::Radius(0.5)),
        ] {
            let prompt = Arc::new(prompt.clone());
            let task = Task::from_prompt(&prompt, model.clip(), model.tokenizer(), classes.to_vec(), 1)?;
            let (side, context) = (task.text_side("demo")?, task.start_context("demo")?);
            let axes = Directions::random(context, scale, 1)?;
            let probe =
                Probe { name: format!("{name} ({what})"), features: features.clone(), labels: Some(labels.clone()) };
            let probes = [probe];
            flatness.extend(Flatness::measure(
                side.tower,
                side.tokens,
                context,
                &axes,
                &[0.25, 0.5, 1.0],
                task.logit_scale,
                &probes,
            )?);
            if scale == Normalisation::PerToken {
                surfaces.extend(Surface::compute(
                    side.tower,
                    side.tokens,
                    context,
                    &axes,
                    &grid,
                    task.logit_scale,
                    &probes,
                    vec![],
                    |_| Ok(()),
                )?);
            }
        }
    }
    let range = shared_range(surfaces.iter());
    Ok(Section {
        title: "Landscapes of the training loss".into(),
        text: "Along random directions; worst-case directions are the sharpness column of the tuning table. Both surfaces share one \
               colour scale, in nats."
            .into(),
        tables: vec![flatness_table(&flatness)],
        figures: surfaces.iter().map(|surface| surface_figure(surface, &grid, "token norms", range)).collect(),
        ..Section::default()
    })
}

fn train_features(model: &Model, size: &Size) -> Result<(Matrix, Vec<usize>)> {
    let spec = format!("pocket:photo:train:{}", 32 * size.shots);
    let dataset = data::open(&spec, &OpenOptions { split: Split::Train, ..OpenOptions::default() })?;
    let pictures = dataset.samples.iter().map(|sample| sample.picture(&DecodeOptions::default()));
    let features = Features::unit(model.plain_features(pictures)?).0;
    Ok((features, dataset.samples.iter().map(|s| s.label).collect()))
}

/// Accuracy on the shifted domains against rho' and the kept fraction, for the untuned and the SAPT prompt, from cached features.
fn knobs(model: &Model, tuned: &Tuned, size: &Size, dir: &Path, progress: &dyn Progress) -> Result<Section> {
    let seed = size.seeds[0];
    let cache = dir.join(format!("seed-{seed}")).join("cache");
    let world = World { model, cache, statistics: None, progress };
    let untuned = NamedPrompt { name: "untuned".to_owned(), ..template()? };
    let prompts = [untuned, named("SAPT", &tuned.sapt)];
    let mut figures = Vec::new();
    for (key, label, values) in
        [("radius", "rho', absolute", &RADII[..]), ("fraction", "fraction of views kept", &FRACTIONS[..])]
    {
        let axis = Axis::new("accuracy on the shifted styles, %");
        let mut figure = Figure::new(format!("STSS: accuracy against {label}"), Axis::new(label), axis);
        for prompt in &prompts {
            let name = &prompt.name;
            let mut points = Vec::new();
            for &value in values {
                let mut options = toml::Table::new();
                options.insert(key.into(), toml::Value::Float(value));
                let mut sum = 0.0;
                for domain in &DOMAINS[1..] {
                    let place = dir.join("knobs").join(format!("{name}-{key}-{value}-{domain}"));
                    let (right, _) = world.answer(prompt, "stss", domain, size, seed, options.clone(), &place)?;
                    sum += rows::share(&right);
                }
                points.push((value, 100.0 * sum / (DOMAINS.len() - 1) as f64));
            }
            figure = figure.with(Layer::Line { name: name.clone(), points, band: None });
        }
        figures.push(figure);
    }
    Ok(Section {
        title: "The two knobs of STSS".into(),
        text: "Read off the test pictures to show the shape; nothing was chosen by them.".into(),
        figures,
        ..Section::default()
    })
}
