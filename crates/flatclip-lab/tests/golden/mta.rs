//! MTA, from pixels and from features.

use super::case::{Case, Report, Tolerance};
use super::inputs::{self, samples};
use flatclip::methods::adapters::mta::{Mode, Mta, find_mode};
use flatclip::methods::probability::logits;
use flatclip::methods::select::ViewLogits;
use flatclip_tensor::Matrix;

fn config(case: &Case) -> Result<Mta, String> {
    Ok(Mta {
        lambda_y: case.number("lambda_y")?,
        lambda_q: case.number("lambda_q")?,
        max_iter: case.count("max_iter")?,
        tolerance: case.number("th")?,
    })
}

/// What all samples of a case gave, one after the other.
#[derive(Default)]
struct Found {
    bandwidths: Vec<f32>,
    inlierness: Vec<f32>,
    modes: Vec<f32>,
    logits: Vec<f32>,
    steps: Vec<usize>,
}

impl Found {
    fn add(&mut self, case: &Case, text: &Matrix, scale: f32, features: &Matrix) -> Result<Mode, String> {
        let found = find_mode(&config(case)?, features, &ViewLogits::new(features, text, scale));
        self.bandwidths.extend(&found.bandwidths);
        self.inlierness.extend(&found.inlierness);
        self.modes.extend(found.mode.data());
        self.logits.extend(logits(&found.mode, text, scale).data());
        self.steps.extend(&found.steps);
        Ok(found)
    }

    fn report(&self, case: &Case) -> Result<Report, String> {
        let mut report = Report::default();
        let tolerance = |key: &str, fallback| case.tolerance(key, Tolerance::atol(fallback));
        report.close("bandwidth", &self.bandwidths, case.f32("out.bandwidth")?, tolerance("bandwidth", 1e-4));
        report.close("inlierness", &self.inlierness, case.f32("out.inlierness")?, tolerance("inlierness", 5e-4));
        report.close("mode", &self.modes, case.f32("out.mode")?, tolerance("mode", 5e-4));
        report.close("logits", &self.logits, case.f32("out.logits")?, tolerance("logits", 0.05));
        let expected = case.indices("out.inner_iterations")?;
        let near =
            self.steps.len() == expected.len() && self.steps.iter().zip(&expected).all(|(a, b)| a.abs_diff(*b) <= 1);
        report.check("inner_iterations", near, format!("{:?} expected {expected:?}", self.steps));
        Ok(report)
    }
}

pub fn features(case: &Case) -> Result<Report, String> {
    let text = inputs::matrix(case, "in.text_features")?;
    let scale = case.f32("in.logit_scale")?[0];
    let mut all = Found::default();
    for views in samples(case, "in.image_features")? {
        all.add(case, &text, scale, &views)?;
    }
    all.report(case)
}

pub fn pixels(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let task = inputs::context_task(case, &clip)?;
    let (views, _) = inputs::image_features(case, &clip, "in.views")?;
    let mut all = Found::default();
    let found = all.add(case, task.text_features(), clip.logit_scale(), &views)?;
    let mut report = all.report(case)?;
    report.close("affinity", found.affinity.data(), case.f32("out.affinity")?, Tolerance::atol(1e-4));
    Ok(report)
}
