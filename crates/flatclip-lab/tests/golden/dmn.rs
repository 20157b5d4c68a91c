//! DMN over a stream of features, with the weights that the original's search returned.

use super::case::{Case, Report};
use super::inputs::{accuracy, close, fault, feature_task, rounded, samples, stream, unit};
use flatclip::methods::adapters::dmn::{Config, Dmn};
use flatclip::methods::{OnlineAdapter as _, ViewSet};

pub fn run(case: &Case) -> Result<Report, String> {
    let task = feature_task(case)?;
    let best = case.f32("out.best")?;
    let slots = case.count("memory_size")?;
    let mut dmn = Dmn::new(Config {
        fraction: case.number("selection_p")?,
        slots,
        beta: case.number("beta")?,
        dynamic_weight: f64::from(best[2]),
        static_weight: f64::from(best[3]),
        ..Config::default()
    });
    if case.has("in.shot_features") {
        dmn = dmn.with_shots(samples(case, "in.shot_features")?.into_iter().map(unit).collect());
    }
    dmn.prepare(&task).map_err(fault)?;
    let (mut text, mut dynamic, mut shots, mut selected) = (vec![], vec![], vec![], vec![]);
    let (mut answers, mut predictions) = (vec![], vec![]);
    for views in stream(case)? {
        let parts = dmn.read(&task, &ViewSet::new("case", &views));
        let answer = dmn.combine(&parts);
        predictions.push((0..answer.len()).fold(0, |best, k| if answer[k] > answer[best] { k } else { best }));
        selected.extend_from_slice(&parts.selection.selected);
        answers.extend(answer);
        text.extend(parts.text);
        dynamic.extend(parts.dynamic);
        shots.extend(parts.shots.unwrap_or_default());
    }
    let mut report = Report::default();
    close(&mut report, case, "text_prob", &rounded(&text))?;
    close(&mut report, case, "dynamic_prob", &rounded(&dynamic))?;
    if case.has("out.static_prob") {
        close(&mut report, case, "static_prob", &rounded(&shots))?;
    }
    report.equal("selected", &selected, &case.indices("out.selected")?);
    close(&mut report, case, "final_prob", &rounded(&answers))?;
    report.equal("final_pred", &predictions, &case.indices("out.final_pred")?);
    let percent = accuracy(&predictions, &case.indices("in.labels")?);
    close(&mut report, case, "best", &[percent, 1.0, best[2], best[3]])?;
    let width = task.text_features().cols();
    let (mut memory, mut entropies) = (vec![], vec![]);
    for class in &dmn.memory {
        for place in 0..slots {
            match class.get(place) {
                Some(slot) => memory.extend(&slot.feature),
                None => memory.extend(vec![0.0; width]),
            }
            entropies.push(class.get(place).map_or(0.0, |slot| slot.entropy as f32));
        }
    }
    close(&mut report, case, "memory", &memory)?;
    close(&mut report, case, "memory_entropy", &entropies)?;
    let counts: Vec<usize> = dmn.memory.iter().map(Vec::len).collect();
    report.equal("count", &counts, &case.indices("out.count")?);
    Ok(report)
}
