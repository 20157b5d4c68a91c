//! The figures of reports: reliability diagrams, accuracy by score, bars of methods, sweeps.

use super::Run;
use super::figure::{Axis, Cells, Figure, Layer, positions};
use super::groups::{Group, groups};
use super::rows::distinct;
use crate::eval::GridAxis;
use flatclip::methods::Confidence;

/// Accuracy against confidence, the seeds of each prompt and adapter taken together; on the diagonal a run is calibrated. One
/// figure for each data set and row, with the number of samples of every bin below.
pub fn reliability(runs: &[Run]) -> Vec<Figure> {
    groups(runs).iter().map(reliability_of).collect()
}

fn reliability_of(group: &Group<'_>) -> Figure {
    let bins = group.runs.first().map_or(0, |run| run.summary.metrics.calibration.bins.len());
    let (mut points, mut counts) = (Vec::new(), vec![0.0; bins]);
    for (i, total) in counts.iter_mut().enumerate() {
        let (mut confidence, mut accuracy) = (0.0, 0.0);
        for bin in group.runs.iter().filter_map(|run| run.summary.metrics.calibration.bins.get(i)) {
            let count = bin.count as f64;
            *total += count;
            confidence += count * bin.confidence;
            accuracy += count * bin.accuracy;
        }
        if *total > 0.0 {
            points.push((confidence / *total, accuracy / *total));
        }
    }
    let (ece, spread) = group.mean(|run| 100.0 * run.summary.metrics.calibration.ece);
    let spread = if spread.is_finite() { format!(" ± {spread:.2}") } else { String::new() };
    let title = format!("{} on {}: ECE {ece:.2}{spread} %", group.row, group.dataset);
    let edge = |i: usize| i as f64 / bins.max(1) as f64;
    let is_votes = group.runs.iter().any(|run| run.confidence() == Confidence::VoteShare);
    let x = Axis::new(if is_votes { "confidence (vote share)" } else { "confidence" }).within(0.0, 1.0);
    Figure::new(title, x, Axis::new("accuracy").within(0.0, 1.0))
        .with(Layer::Counts { bins: (0..bins).map(|i| (edge(i), edge(i + 1))).collect(), counts })
        .with(Layer::Guide { from: (0.0, 0.0), to: (1.0, 1.0) })
        .with(Layer::line("", points))
        .sized(430.0, 360.0)
}

/// Accuracy of samples grouped by the score of their selected views, one figure for each data set, one line for each prompt and
/// adapter; methods without scores have none.
pub fn score_quantiles(runs: &[Run]) -> Vec<Figure> {
    let groups = groups(runs);
    let scored = |group: &&Group<'_>| group.runs.iter().all(|run| run.summary.by_score.len() >= 2);
    let (mut figures, rows) = (Vec::new(), distinct(groups.iter().map(|group| &group.row)));
    for dataset in distinct(groups.iter().map(|group| &group.dataset)) {
        let lines: Vec<&Group<'_>> = groups.iter().filter(|group| group.dataset == dataset).filter(scored).collect();
        let Some(parts) = lines.iter().flat_map(|group| group.runs.iter().map(|run| run.summary.by_score.len())).min()
        else {
            continue;
        };
        let labels = (1..=parts).map(|part| match part {
            1 => "lowest".to_owned(),
            part if part == parts => "highest".to_owned(),
            part => part.to_string(),
        });
        let x = Axis::categories("samples in groups of equal size, by the mean score of their selected views", labels);
        let y = Axis::new("top-1 in per cent").within(0.0, 100.0);
        let mut figure = Figure::new(format!("{dataset}: accuracy by score"), x, y).sized(560.0, 340.0);
        for group in lines {
            let at = |part: usize| (part as f64, group.mean(|run| 100.0 * run.summary.by_score[part].accuracy).0);
            figure.layers.push(Layer::line(short(&group.row, &rows), (0..parts).map(at).collect()));
        }
        figures.push(figure);
    }
    figures
}

/// More bars than this next to each other are hard to distinguish.
const MOST_SERIES: usize = 7;

/// Top-1 of every prompt and adapter, its mean over seeds with the standard deviation as whisker.
pub fn top1_bars(runs: &[Run]) -> Figure {
    let y = Axis::new("top-1 in per cent").within(0.0, 100.0);
    bars(runs, "Top-1", y, |_| "", |run| 100.0 * run.summary.metrics.top1)
}

/// The calibration error of every prompt and adapter, in the same way.
pub fn ece_bars(runs: &[Run]) -> Figure {
    // A share of votes and a probability are not the same thing.
    let kind = |run: &Run| if run.confidence() == Confidence::VoteShare { " (vote share)" } else { "" };
    bars(runs, "Calibration error, lower is better", Axis::new("ECE in per cent"), kind, |run| {
        100.0 * run.summary.metrics.calibration.ece
    })
}

/// A row without the prompt that all rows share.
fn short(name: &str, rows: &[String]) -> String {
    let prompt = |row: &String| row.split_once(" + ").map(|(prompt, _)| prompt.to_owned());
    let first = rows.first().and_then(prompt);
    let shared = first.filter(|first| rows.len() > 1 && rows.iter().all(|row| prompt(row).as_ref() == Some(first)));
    shared.and_then(|shared| name.strip_prefix(&format!("{shared} + "))).unwrap_or(name).to_owned()
}

/// One group of bars per data set, or, with many methods, one group per method.
/// A word of `kind` follows the name of a row.
fn bars(runs: &[Run], title: &str, y: Axis, kind: impl Fn(&Run) -> &'static str, of: impl Fn(&Run) -> f64) -> Figure {
    let all = groups(runs);
    let names = |of: fn(&Group<'_>) -> String| distinct(&all.iter().map(of).collect::<Vec<_>>());
    let (datasets, rows) = (names(|group| group.dataset.clone()), names(|group| group.row.clone()));
    let value = |row: &String, dataset: &String| {
        let group = all.iter().find(|group| group.row == *row && group.dataset == *dataset);
        group.map_or((f64::NAN, f64::NAN), |group| group.mean(&of))
    };
    let by_method = rows.len() > MOST_SERIES && datasets.len() < rows.len();
    let (categories, series) = if by_method { (&rows, &datasets) } else { (&datasets, &rows) };
    let several = all.iter().any(|group| group.runs.len() > 1);
    let title =
        if several { format!("{title} (mean over seeds ± sample standard deviation)") } else { title.to_owned() };
    let named = |name: &String| {
        let of_row = all.iter().find(|group| group.row == *name).and_then(|group| group.runs.first());
        format!("{}{}", short(name, &rows), of_row.map_or("", |run| kind(run)))
    };
    let bars = series.iter().map(|name| {
        let at = |category: &String| if by_method { value(category, name) } else { value(name, category) };
        // A single series needs no legend.
        let legend = if series.len() > 1 { named(name) } else { String::new() };
        (legend, categories.iter().map(at).collect())
    });
    grouped_bars(title, categories.iter().map(named).collect(), y, bars)
}

/// Bars with whiskers side by side: every series has a name, and by category a value with its deviation.
pub(crate) fn grouped_bars(
    title: impl Into<String>,
    categories: Vec<String>,
    y: Axis,
    series: impl Iterator<Item = (String, Vec<(f64, f64)>)>,
) -> Figure {
    let width = (160.0 + 90.0 * categories.len() as f64).clamp(560.0, 1120.0);
    let mut figure = Figure::new(title, Axis::categories("", categories), y).sized(width, 400.0);
    for (name, bars) in series {
        let (values, spread): (Vec<f64>, Vec<f64>) = bars.into_iter().unzip();
        figure.layers.push(Layer::Bars { name, values: values.clone() });
        figure.layers.push(Layer::Deviations { values, spread });
    }
    figure
}

/// One figure per axis of a grid (lines over that axis, the mean over the other axes with their range as band), and a heat
/// map when exactly two axes vary. `cells` are (value of each axis, top-1 as a fraction).
pub(crate) fn sweep_figures(axes: &[GridAxis], cells: &[(Vec<usize>, f64)], dataset: &str) -> Vec<Figure> {
    let varying: Vec<usize> = (0..axes.len()).filter(|&i| axes[i].values.len() > 1).collect();
    let several = varying.len() > 1;
    let mut figures: Vec<Figure> = varying.iter().map(|&i| axis_figure(&axes[i], i, cells, several, dataset)).collect();
    if let [first, second] = varying[..] {
        figures.push(heat_map(axes, cells, (first, second), dataset));
    }
    figures
}

fn heat_map(axes: &[GridAxis], cells: &[(Vec<usize>, f64)], (first, second): (usize, usize), dataset: &str) -> Figure {
    let (columns, rows) = (axes[first].values.len(), axes[second].values.len());
    let mut values = vec![f64::NAN; columns * rows];
    for (index, top1) in cells {
        values[index[second] * columns + index[first]] = 100.0 * top1;
    }
    let cells = Cells { x: positions(columns), y: positions(rows), values };
    let heat = Layer::Heat { cells, labels: true, range: None, unit: "%" };
    let [x, y] = [first, second].map(|axis| Axis::categories(&axes[axis].key, &axes[axis].values));
    Figure::new(format!("{dataset}: top-1 in per cent"), x, y).with(heat).sized(620.0, 380.0)
}

fn axis_figure(
    GridAxis { key, values }: &GridAxis,
    axis: usize,
    cells: &[(Vec<usize>, f64)],
    several: bool,
    dataset: &str,
) -> Figure {
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    let x = match &numbers {
        Some(numbers) => Axis::new(key).with_ticks(numbers.clone()),
        None => Axis::categories(key, values),
    };
    let of = |i: usize| -> Vec<f64> {
        cells.iter().filter(|(index, _)| index[axis] == i).map(|(_, top1)| 100.0 * top1).collect()
    };
    let (mut points, mut band) = (Vec::new(), Vec::new());
    for i in 0..values.len() {
        let found = of(i);
        let position = numbers.as_ref().map_or(i as f64, |numbers| numbers[i]);
        points.push((position, found.iter().sum::<f64>() / found.len().max(1) as f64));
        band.push((
            found.iter().copied().fold(f64::INFINITY, f64::min),
            found.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ));
    }
    let title = if several { format!("{dataset}: mean and range over the other axes") } else { dataset.to_owned() };
    Figure::new(title, x, Axis::new("top-1 in per cent")).with(Layer::Line {
        name: String::new(),
        points,
        band: several.then_some(band),
    })
}
