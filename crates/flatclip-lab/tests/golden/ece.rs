//! Calibration error, accuracy, NLL, Brier score and top-5 from logits.

use super::case::{Case, Fallible, Report, Tolerance};
use flatclip_lab::eval::metrics::{MetricOptions, Outcome, Temperature, metrics};

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let [samples, classes] = case.shape("in.logits")? else { return Err("in.logits is not [N, K]".into()) };
    let (classes, bins) = (*classes, case.count("n_bins")?);
    let logits = case.f32("in.logits")?;
    let labels = case.indices("in.labels")?;
    if labels.len() != *samples {
        return Err(format!("{} labels for {samples} rows", labels.len()).into());
    }
    let temperature = Temperature::new(case.hyper("temperature").as_f64().unwrap_or(1.0))?;
    let outcome = |(row, &label): (&[f32], &usize)| temperature.outcome(row, label);
    let outcomes: Vec<Outcome> = logits.chunks_exact(classes).zip(&labels).map(outcome).collect::<Result<_, _>>()?;
    let options = MetricOptions { bins, resamples: 0, seed: 0 };
    let m = metrics(&outcomes, classes, options);
    let mut report = Report::of(case);
    let tolerance = case.tolerance("ece", Tolerance::atol(1e-5));
    for (name, value) in
        [("ece", m.calibration.ece), ("accuracy", m.top1), ("nll", m.nll.unwrap_or(f64::INFINITY)), ("brier", m.brier)]
    {
        report.close_to(name, [value], tolerance);
    }
    // torch.topk takes any of the equal values at rank five: with ties only a range can be told, without it is one number.
    let share = |counts: fn(&[f32], usize) -> bool| {
        let hits = logits.chunks_exact(classes).zip(&labels).filter(|(row, label)| counts(row, **label)).count();
        hits as f64 / *samples as f64
    };
    let (low, high) = (share(is_strictly_in_top5), share(is_tied_into_top5));
    let expected = f64::from(case.f32("out.top5")?[0]);
    for (whose, value) in [("theirs", expected), ("ours", m.top5)] {
        let inside = value >= low - tolerance.atol && value <= high + tolerance.atol;
        report.check("out.top5", inside, format!("{whose}: {value} is not from {low} to {high}"));
    }
    let bins = &m.calibration.bins;
    report.equal("bin_count", bins.iter().map(|bin| bin.count));
    report.close_to("bin_accuracy", bins.iter().map(|bin| bin.accuracy), tolerance);
    report.close_to("bin_confidence", bins.iter().map(|bin| bin.confidence), tolerance);
    Ok(report)
}

/// Whether the label is among the five best however ties are broken.
fn is_strictly_in_top5(logits: &[f32], label: usize) -> bool {
    logits.iter().enumerate().filter(|(class, x)| *class != label && **x >= logits[label]).count() < 5
}

/// Whether some way to break ties puts the label among the five best.
fn is_tied_into_top5(logits: &[f32], label: usize) -> bool {
    logits.iter().filter(|x| **x > logits[label]).count() < 5
}
