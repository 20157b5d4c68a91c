//! AWT on features, with the authors' joint end of Sinkhorn's rounds.

use super::case::{Case, Report};
use super::inputs::{close, fault, names, rounded, samples, stream, unit};
use flatclip::methods::adapters::awt::Awt;
use flatclip::methods::bank::TextBank;
use flatclip::methods::probability::{argmax, logits};
use flatclip::methods::{Adapter as _, Task, ViewSet};
use flatclip_tensor::Matrix;
use std::sync::Arc;

/// The descriptions `[K, M, D]` as one `[K, D]` for each m.
fn texts(case: &Case) -> Result<Vec<Matrix>, String> {
    let classes: Vec<Matrix> = samples(case, "in.description_features")?.into_iter().map(unit).collect();
    let of = |m: usize| classes.iter().flat_map(|rows| rows.row(m).to_vec()).collect();
    Ok((0..classes[0].rows()).map(|m| Matrix::from_vec(classes.len(), classes[0].cols(), of(m))).collect())
}

pub fn run(case: &Case) -> Result<Report, String> {
    let config = Awt {
        image_temperature: case.number("image_temperature")?,
        text_temperature: case.number("text_temperature")?,
        epsilon: case.number("sinkhorn_eps")?,
        compat: true,
        ..Awt::default()
    };
    let (awt, texts, scale) = (config, texts(case)?, case.number("logit_scale")? as f32);
    let bank = TextBank::from_prompts(texts[0].clone(), texts[1..].to_vec()).map_err(fault)?;
    let mut task = Task::new(names(texts[0].rows()), texts[0].clone(), scale, 0).map_err(fault)?;
    task.bank = Some(Arc::new(bank));
    let mut report = Report::default();
    let (mut of_views, mut of_texts, mut rounds, mut found) = (vec![], vec![], vec![], vec![]);
    let (mut zero_shot, mut mean, mut answers, mut plans) = (vec![], vec![], vec![], vec![]);
    for image in &stream(case)? {
        let weighted = awt.weighted(image, &texts.iter().collect::<Vec<_>>(), scale);
        let all: Vec<Matrix> = texts.iter().map(|text| logits(image, text, scale)).collect();
        zero_shot.push(argmax(all[0].row(0)));
        let sum = |k: usize| all.iter().flat_map(Matrix::iter_rows).map(|row| f64::from(row[k])).sum::<f64>() as f32;
        mean.push(argmax(&(0..task.class_count()).map(sum).collect::<Vec<f32>>()));
        answers.push(awt.adapt(&task, &ViewSet::new("case", image)).map_err(fault)?.prediction);
        if plans.is_empty() {
            plans = rounded(&weighted.plans.concat());
        }
        of_views.extend(weighted.views);
        of_texts.extend(weighted.texts.concat());
        rounds.push(weighted.rounds);
        found.extend(weighted.logits);
    }
    close(&mut report, case, "image_weights", &rounded(&of_views))?;
    close(&mut report, case, "text_weights", &rounded(&of_texts))?;
    report.equal("iterations", &rounds, &case.indices("out.iterations")?);
    close(&mut report, case, "plan0", &plans)?;
    close(&mut report, case, "logits", &found)?;
    report.equal("zero_shot_pred", &zero_shot, &case.indices("out.zero_shot_pred")?);
    report.equal("mean_pred", &mean, &case.indices("out.mean_pred")?);
    report.equal("pred", &answers, &case.indices("out.pred")?);
    Ok(report)
}
