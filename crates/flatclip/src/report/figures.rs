//! The figures of reports: reliability diagrams, accuracy by score, bars of methods, sweeps.

use super::figure::{Axis, Figure, Layer};
use super::rows::{distinct, row_names};
use super::runs::Run;
use crate::eval::metrics::QuantileBin;

/// Accuracy against confidence; on the diagonal a run is calibrated.
pub fn reliability(run: &Run) -> Figure {
    let calibration = &run.summary.metrics.calibration;
    let filled = calibration.bins.iter().filter(|bin| bin.count > 0);
    let points: Vec<(f64, f64)> = filled.map(|bin| (bin.confidence, bin.accuracy)).collect();
    let title = format!("{} on {}: ECE {:.2} %", run.row_name(), run.provenance.dataset, 100.0 * calibration.ece);
    let x = Axis::new("confidence").within(0.0, 1.0);
    let y = Axis::new("accuracy").within(0.0, 1.0);
    let mut figure = Figure::new(title, x, y)
        .with(Layer::Guide { from: (0.0, 0.0), to: (1.0, 1.0) })
        .with(Layer::Line { name: String::new(), points, band: None });
    figure.size = (430.0, 360.0);
    figure
}

/// Accuracy of samples grouped by the score of their kept views; `None` for methods without scores.
pub fn score_quantiles(run: &Run) -> Option<Figure> {
    let bins = &run.summary.by_score;
    if bins.len() < 2 {
        return None;
    }
    let name = |bin: &QuantileBin| format!("{:.2}–{:.2}", bin.low, bin.high);
    let x = Axis::categories("mean score of the kept views, from low to high", bins.iter().map(name));
    let y = Axis::new("top-1 in per cent").within(0.0, 100.0);
    let values = bins.iter().map(|bin| 100.0 * bin.accuracy).collect();
    let title = format!("{} on {}: accuracy by score", run.row_name(), run.provenance.dataset);
    let mut figure = Figure::new(title, x, y).with(Layer::Bars { name: String::new(), values });
    figure.size = (460.0, 340.0);
    Some(figure)
}

/// More bars than this beside each other would repeat colours.
const MOST_SERIES: usize = 7;

/// Top-1 of every method: one group per data set, or, with many methods, one group per method.
pub fn top1_bars(runs: &[Run]) -> Figure {
    let names = row_names(runs);
    let rows = distinct(&names);
    let datasets = distinct(&runs.iter().map(|run| run.provenance.dataset.clone()).collect::<Vec<_>>());
    let value = |row: &String, dataset: &String| {
        let is_it = |(run, name): &(&Run, &String)| *name == row && run.provenance.dataset == *dataset;
        let matching = runs.iter().zip(&names).filter(is_it);
        let values: Vec<f64> = matching.map(|(run, _)| 100.0 * run.summary.metrics.top1).collect();
        if values.is_empty() { f64::NAN } else { values.iter().sum::<f64>() / values.len() as f64 }
    };
    let by_method = rows.len() > MOST_SERIES && datasets.len() < rows.len();
    let (groups, series) = if by_method { (&rows, &datasets) } else { (&datasets, &rows) };
    let mut figure =
        Figure::new("Top-1 in per cent", Axis::categories("", groups.clone()), Axis::new("top-1 in per cent"));
    for name in series {
        let of = |group: &String| if by_method { value(group, name) } else { value(name, group) };
        figure.layers.push(Layer::Bars { name: name.clone(), values: groups.iter().map(of).collect() });
    }
    figure.size = ((160.0 + 90.0 * groups.len() as f64).clamp(560.0, 1120.0), 400.0);
    figure
}

/// One figure per axis of a grid (lines over that axis, the mean over the other axes with their range as band), and a heat
/// map when exactly two axes vary. `cells` are (value of each axis, top-1 as a fraction).
pub(crate) fn sweep_figures(axes: &[(String, Vec<String>)], cells: &[(Vec<usize>, f64)], dataset: &str) -> Vec<Figure> {
    let mut figures: Vec<Figure> =
        (0..axes.len()).filter(|&i| axes[i].1.len() > 1).map(|i| axis_figure(axes, cells, i, dataset)).collect();
    let varying: Vec<usize> = (0..axes.len()).filter(|&i| axes[i].1.len() > 1).collect();
    if let [first, second] = varying[..] {
        figures.push(heat_map(axes, cells, (first, second), dataset));
    }
    figures
}

fn heat_map(
    axes: &[(String, Vec<String>)],
    cells: &[(Vec<usize>, f64)],
    (first, second): (usize, usize),
    dataset: &str,
) -> Figure {
    let ((x_name, x), (y_name, y)) = (&axes[first], &axes[second]);
    let mut values = vec![f64::NAN; x.len() * y.len()];
    for (index, top1) in cells {
        values[index[second] * x.len() + index[first]] = 100.0 * top1;
    }
    let positions = |n: usize| (0..n).map(|i| i as f64).collect::<Vec<_>>();
    let heat =
        Layer::Heat { x: positions(x.len()), y: positions(y.len()), values, labels: true, range: None, unit: "%" };
    let (x, y) = (Axis::categories(x_name.clone(), x.clone()), Axis::categories(y_name.clone(), y.clone()));
    let mut figure = Figure::new(format!("{dataset}: top-1 in per cent"), x, y).with(heat);
    figure.size = (620.0, 380.0);
    figure
}

fn axis_figure(axes: &[(String, Vec<String>)], cells: &[(Vec<usize>, f64)], axis: usize, dataset: &str) -> Figure {
    let (name, values) = &axes[axis];
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    let x = match &numbers {
        Some(numbers) => Axis { ticks: numbers.clone(), ..Axis::new(name.clone()) },
        None => Axis::categories(name.clone(), values.clone()),
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
    let several = axes.iter().filter(|(_, values)| values.len() > 1).count() > 1;
    let title = if several { format!("{dataset}: mean and range over the other axes") } else { dataset.to_owned() };
    Figure::new(title, x, Axis::new("top-1 in per cent")).with(Layer::Line {
        name: String::new(),
        points,
        band: several.then_some(band),
    })
}
