//! MTA, from pixels and from features.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::{context_task, matrix, samples};
use flatclip::methods::adapters::mta::{Mode, Mta, find_mode};
use flatclip::methods::probability::logits;
use flatclip::methods::select::ViewLogits;
use flatclip_tensor::Matrix;

fn config(case: &Case) -> Fallible<Mta> {
    Ok(Mta {
        lambda_y: case.number("lambda_y")?,
        lambda_q: case.number("lambda_q")?,
        max_iter: case.count("max_iter")?,
        tolerance: case.number("th")?,
    })
}

/// Collects what a sample gives.
fn add(report: &mut Report<'_>, text: &Matrix, scale: f32, features: &Matrix) -> Fallible<Mode> {
    let found = find_mode(&config(report.case)?, features, &ViewLogits::new(features, text, scale));
    report.real("bandwidth", &found.bandwidths);
    report.real("inlierness", &found.inlierness);
    report.real("mode", found.mode.data());
    report.real("logits", logits(&found.mode, text, scale).data());
    Ok(found)
}

/// Compares what was collected; the steps may differ by one.
fn settle(report: &mut Report<'_>, steps: &[usize]) -> Fallible<()> {
    let case = report.case;
    for (name, fallback) in [("bandwidth", 1e-4), ("inlierness", 5e-4), ("mode", 5e-4), ("logits", 0.05)] {
        report.settle(name, case.tolerance(name, Tolerance::atol(fallback)));
    }
    let expected = case.indices("out.inner_iterations")?;
    let near = steps.len() == expected.len() && steps.iter().zip(&expected).all(|(a, b)| a.abs_diff(*b) <= 1);
    report.check("inner_iterations", near, format!("{steps:?} expected {expected:?}"));
    Ok(())
}

pub fn features(case: &Case) -> Fallible<Report<'_>> {
    let (text, scale) = (matrix(case, "in.text_features")?, case.f32("in.logit_scale")?[0]);
    let (mut report, mut steps) = (Report::of(case), Vec::new());
    for views in samples(case, "in.image_features")? {
        steps.extend(add(&mut report, &text, scale, &views)?.steps);
    }
    settle(&mut report, &steps)?;
    Ok(report)
}

pub fn pixels(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let task = context_task(case, &clip)?;
    let views = case.image_features(&clip, "in.views")?;
    let mut report = Report::of(case);
    let found = add(&mut report, task.text_features(), clip.logit_scale(), &views)?;
    settle(&mut report, &found.steps)?;
    report.close_to("affinity", found.affinity.data(), Tolerance::atol(1e-4));
    Ok(report)
}
