//! The story in five images, each with the sentence that its numbers make.

use super::answers::{Row, Rule};
use super::claims::{self, Claim};
use super::compare::Verdict;
use super::protocol::{self, Protocol};
use super::tuning::{Prompts, Tuner};
use super::{DOMAINS, Study};
use crate::report::figure::{Axis, Figure, Layer};
use crate::report::{Cell, Page, Section, Table, data_address};
use crate::train::RADII;
use flatclip::Result;
use flatclip::image::Image;
use flatclip::image::sheet::{Tile, encode_png, sheet};
use flatclip_pocket::{CLASS_NAMES, Domain, SIDE, World, draw_as, scene};

/// Rows of the table.
const TUNERS: [Tuner; 3] = [Tuner::Coop, Tuner::Sapt, Tuner::CoopChosen];

/// A section for each image.
pub(super) fn story(study: &Study) -> Result<Vec<Section>> {
    Ok(vec![shift(study)?, gain(study)?, sharpness(study)?, views(study), table(study)?])
}

pub(super) fn page(study: &Study, sections: Vec<Section>) -> Page {
    let Study { protocol, model, .. } = study;
    Page {
        title: "flatclip demo".into(),
        text: format!(
            "{} on the synthetic pocket dataset: {} classes, photos and six shifts. Prompts are tuned on photos alone, from the words \"a photo of a\", {} steps, learning \
             rate {:.3}; {} draws of the shots; {} images per style of the {} world, {} views. A toy model: it shows how the questions are asked, and \
             promises nothing about CLIP.",
            model.describe(),
            CLASS_NAMES.len(),
            protocol.steps,
            protocol::learning_rate(model),
            protocol.seeds,
            protocol.images,
            protocol.world,
            protocol.views,
        ),
        sections,
    }
}

fn percent(value: f64) -> String {
    format!("{:.1} %", 100.0 * value)
}

/// One scene in every style, and how well the untuned prompt knows each.
fn shift(study: &Study) -> Result<Section> {
    let answers = &study.answers;
    let row = answers.row(None, Rule::One)?;
    let by_style: Vec<f64> = (0..DOMAINS.len()).map(|domain| answers.accuracy(row, domain)).collect();
    let worst = (1..DOMAINS.len()).min_by(|&a, &b| by_style[a].total_cmp(&by_style[b])).unwrap_or(1);
    let text = format!(
        "\"a photo of a\" knows {} of the photos and {} of the shifted images in one view; {} is the hardest ({}).",
        percent(by_style[0]),
        percent(answers.shifts(row)),
        DOMAINS[worst],
        percent(by_style[worst]),
    );
    let figure = Figure::new(
        "Untuned, one view",
        Axis::categories("style", DOMAINS),
        Axis::new("accuracy, %").within(0.0, 100.0),
    );
    let values = by_style.iter().map(|a| 100.0 * a).collect();
    let figure = figure.with(Layer::Bars { name: "untuned".into(), values });
    let styles = "A scene of the validation world in every style; images of style hard also have a small figure.";
    let images = vec![(styles.to_owned(), data_address(&styles_sheet()?))];
    Ok(Section { title: "1. What the shift is".into(), text, figures: vec![figure], images, ..Section::default() })
}

fn styles_sheet() -> Result<Vec<u8>> {
    let scene = scene(World::Validation, Domain::Photo, 11);
    let draw = |style: Domain| Image { width: SIDE, height: SIDE, rgb: draw_as(&scene, style) };
    let images = Domain::ALL.map(draw);
    let tile = |(image, style): (_, Domain)| Tile { image, label: style.name().to_owned(), frame: None };
    let tiles: Vec<Tile<'_>> = images.iter().zip(Domain::ALL).map(tile).collect();
    encode_png(&sheet(&tiles, Domain::ALL.len(), SIDE)?)
}

/// Accuracy against shots, on photos and on shifts.
fn gain(study: &Study) -> Result<Section> {
    let mut figures = Vec::new();
    for (place, title) in [("photos", "On photos, one view"), ("shifts", "On shifts, one view")] {
        let accuracy = |row: &Row| {
            let answers = &study.answers;
            100.0 * if place == "photos" { answers.accuracy(row, 0) } else { answers.shifts(row) }
        };
        let untuned = accuracy(study.answers.row(None, Rule::One)?);
        let names = study.protocol.shots.iter().map(|shots| shots.to_string());
        let mut figure = Figure::new(title, Axis::categories("shots", names), Axis::new("accuracy, %"));
        let flat = (0..study.protocol.shots.len()).map(|at| (at as f64, untuned)).collect();
        figure = figure.with(Layer::Line { name: "untuned".into(), points: flat, band: None });
        for tuner in TUNERS {
            let mut points = Vec::new();
            for (at, &shots) in study.protocol.shots.iter().enumerate() {
                if let Ok(row) = study.answers.row(Some((tuner, shots)), Rule::One) {
                    points.push((at as f64, accuracy(row)));
                }
            }
            if !points.is_empty() {
                figure = figure.with(Layer::Line { name: tuner.name().into(), points, band: None });
            }
        }
        figures.push(figure);
    }
    let text = gain_sentence(&study.claims, &study.protocol);
    Ok(Section { title: "2. What tuning gains".into(), text, figures, ..Section::default() })
}

fn gain_sentence(claims: &[Claim], protocol: &Protocol) -> String {
    let told = |claim: &str, place: &str| {
        let of = |&shots: &usize| {
            let found = claims::find(claims, claim, Some(shots), place)?;
            let doubt = if found.verdict == Verdict::NoDifference { ", not significant" } else { "" };
            let plural = if shots == 1 { "" } else { "s" };
            Some(format!("{:+.1} ({shots} shot{plural}{doubt})", 100.0 * found.difference.mean))
        };
        protocol.shots.iter().filter_map(of).collect::<Vec<_>>().join(", ")
    };
    format!(
        "In points, one view: CoOp changes photos by {} and shifts by {}; SAPT against CoOp changes shifts by {}.",
        told("CoOp helps photos", "photos"),
        told("CoOp helps shifts", "shifts"),
        told("SAPT over CoOp", "shifts"),
    )
}

/// What was tried on held-out photos.
fn settings(prompts: &Prompts) -> Table {
    let title = "Settings tried on held-out photos";
    let mut table = Table::new(title, ["shots", "prompt", "setting", "accuracy", "loss", "chosen"]);
    for tried in prompts.tried.iter().filter(|tried| tried.tuner != Tuner::Coop) {
        let unit = if tried.tuner == Tuner::Sapt { "rho / norm" } else { "lr / rule" };
        table.push(vec![
            Cell::number(tried.shots as f64, 0),
            Cell::text(tried.tuner.name()),
            Cell::text(format!("{} {unit}", tried.setting)),
            Cell::percent(tried.accuracy),
            Cell::number(tried.loss, 4),
            Cell::text(if tried.chosen { "yes" } else { "" }),
        ]);
    }
    table.notes.push(format!(
        "SAPT's radius: the paper's grid {RADII:?} as shares of the context's norm; chosen by accuracy, then loss. CoOp has the rule's rate, nothing \
         to choose."
    ));
    table
}

fn sharpness(study: &Study) -> Result<Section> {
    Ok(Section {
        title: "3. How sharp the minima are".into(),
        text: study.sharpness.clone(),
        tables: vec![super::minima::table(&study.minima, study.protocol.shots)],
        figures: study.surfaces.clone(),
        ..Section::default()
    })
}

fn views(study: &Study) -> Section {
    Section {
        title: "4. Which views are selected, and what that changes".into(),
        text: study.examples.sentence.clone(),
        images: study.examples.images.clone(),
        ..Section::default()
    }
}

/// All rows, and every claim.
fn table(study: &Study) -> Result<Section> {
    let text = conclusion(&study.claims, &study.protocol);
    let tables = vec![accuracy_table(study)?, claims::table(&study.claims), settings(&study.prompts)];
    Ok(Section { title: "5. The table".into(), text, tables, ..Section::default() })
}

fn conclusion(claims: &[Claim], protocol: &Protocol) -> String {
    let shots = Some(protocol.most_shots());
    let tell = |claim: &str, shots: Option<usize>| {
        claims::find(claims, claim, shots, "shifts")
            .map_or_else(String::new, |c| format!("{} {}", c.verdict.name(), c.number()))
    };
    let count = |verdict: Verdict| claims.iter().filter(|c| c.verdict == verdict).count();
    format!(
        "On shifts, with {} shots: views over one view, {}; STSS over entropy on SAPT's prompt, {}; FGA over CoOp + ZERO, {}; over untuned + ZERO, {}. Of \
         {} comparisons below, {} are significant, {} are not, {} have the opposite sign.",
        protocol.most_shots(),
        tell("views help the untuned prompt (entropy)", None),
        tell("STSS over entropy, on SAPT", shots),
        tell("FGA over CoOp + ZERO", shots),
        tell("FGA over untuned + ZERO", shots),
        claims.len(),
        count(Verdict::Significant),
        count(Verdict::NoDifference),
        count(Verdict::OppositeSign),
    )
}

/// Accuracy of every row: style by style on the page.
pub(super) fn accuracy_table(study: &Study) -> Result<Table> {
    let mut header: Vec<String> = vec!["shots".into(), "prompt, rule".into()];
    header.extend(DOMAINS.iter().map(|&d| d.to_owned()));
    header.push("shifts".into());
    let title = format!("Accuracy in %, mean over {} draws", study.protocol.seeds);
    let mut table = Table::new(title, header);
    for row in &study.answers.rows {
        let shots = row.tuned.map_or_else(Cell::none, |(_, shots)| Cell::number(shots as f64, 0));
        let mut cells = vec![shots, Cell::text(row.name())];
        cells.extend((0..DOMAINS.len()).map(|domain| one_digit(study.answers.accuracy(row, domain))));
        cells.push(one_digit(study.answers.shifts(row)));
        table.push(cells);
    }
    table.mark_best(2..DOMAINS.len() + 3);
    Ok(table)
}

/// Photos and shifts by prompt and shots, a column for each rule: what fits a terminal.
pub(super) fn short_table(study: &Study) -> Result<Table> {
    let mut header: Vec<String> = vec!["shots".into(), "prompt".into()];
    header.extend(Rule::ALL.iter().map(|rule| format!("{}, photos", rule.name())).take(1));
    header.extend(Rule::ALL.iter().map(|rule| format!("{}, shifts", rule.name())));
    let mut table = Table::new(format!("Accuracy in %, mean over {} draws", study.protocol.seeds), header);
    let mut prompts: Vec<Option<(Tuner, usize)>> = vec![None];
    prompts.extend(study.answers.rows.iter().filter(|row| row.rule == Rule::One).filter_map(|row| row.tuned).map(Some));
    for tuned in prompts {
        let one = study.answers.row(tuned, Rule::One)?;
        let mut cells = vec![
            tuned.map_or_else(Cell::none, |(_, shots)| Cell::number(shots as f64, 0)),
            Cell::text(tuned.map_or("untuned", |(tuner, _)| tuner.name())),
            one_digit(study.answers.accuracy(one, 0)),
        ];
        for rule in Rule::ALL {
            cells.push(one_digit(study.answers.shifts(study.answers.row(tuned, rule)?)));
        }
        table.push(cells);
    }
    Ok(table)
}

fn one_digit(share: f64) -> Cell {
    Cell::number(100.0 * share, 1)
}
