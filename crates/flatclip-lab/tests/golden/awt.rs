//! AWT on features, with the authors' joint end of Sinkhorn's rounds.

use super::case::{Case, Fallible, Report};
use super::inputs::{names, samples, stream, unit};
use flatclip::methods::adapters::awt::Awt;
use flatclip::methods::bank::TextBank;
use flatclip::methods::probability::{argmax, logits};
use flatclip::methods::{Adapter as _, Task, ViewSet};
use flatclip_tensor::Matrix;
use std::sync::Arc;

/// The descriptions `[K, M, D]` as one `[K, D]` for each m.
fn texts(case: &Case) -> Fallible<Vec<Matrix>> {
    let classes: Vec<Matrix> = samples(case, "in.description_features")?.into_iter().map(unit).collect();
    let of = |m: usize| classes.iter().flat_map(|rows| rows.row(m).to_vec()).collect();
    Ok((0..classes[0].rows()).map(|m| Matrix::from_vec(classes.len(), classes[0].cols(), of(m))).collect())
}

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let config = Awt {
        image_temperature: case.number("image_temperature")?,
        text_temperature: case.number("text_temperature")?,
        epsilon: case.number("sinkhorn_eps")?,
        compat: true,
        ..Awt::default()
    };
    let (awt, texts, scale) = (config, texts(case)?, case.number("logit_scale")? as f32);
    let bank = TextBank::from_prompts(texts[0].clone(), texts[1..].to_vec())?;
    let mut task = Task::new(names(texts[0].rows()), texts[0].clone(), scale, 0)?;
    task.bank = Some(Arc::new(bank));
    let mut report = Report::of(case);
    for (place, image) in stream(case)?.iter().enumerate() {
        let weighted = awt.weighted(image, &texts.iter().collect::<Vec<_>>(), scale);
        let all: Vec<Matrix> = texts.iter().map(|text| logits(image, text, scale)).collect();
        let sum = |k: usize| all.iter().flat_map(Matrix::iter_rows).map(|row| f64::from(row[k])).sum::<f64>() as f32;
        report.whole("zero_shot_pred", [argmax(all[0].row(0))]);
        report.whole("mean_pred", [argmax(&(0..task.class_count()).map(sum).collect::<Vec<f32>>())]);
        report.whole("pred", [awt.adapt(&task, &ViewSet::new("case", image))?.prediction]);
        if place == 0 {
            report.close("plan0", weighted.plans.concat());
        }
        report.real("image_weights", weighted.views);
        report.real("text_weights", weighted.texts.concat());
        report.whole("iterations", [weighted.rounds]);
        report.real("logits", weighted.logits);
    }
    Ok(report)
}
