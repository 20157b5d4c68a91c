//! OGA over a stream of features, batch by batch.

use super::case::{Case, Report};
use super::inputs::{close, fault, feature_task, rounded, stream};
use flatclip::methods::OnlineAdapter as _;
use flatclip::methods::adapters::oga::{Config, Oga};
use flatclip::methods::probability::softmax_f32;
use flatclip::methods::select::ViewLogits;

pub fn run(case: &Case) -> Result<Report, String> {
    let task = feature_task(case)?;
    let capacity = case.count("shot_capacity")?;
    let mut oga = Oga::new(Config {
        capacity,
        tau: case.number("tau")?,
        batch: case.count("batch")?,
        unit_means: case.hyper("normalize_mu").as_bool().unwrap_or(false),
        compat: true,
    });
    oga.prepare(&task).map_err(fault)?;
    let images = stream(case)?;
    let (mut exponents, mut answers, mut predictions) = (vec![], vec![], vec![]);
    for batch in images.chunks(oga.set_size()) {
        let rows: Vec<&[f32]> = batch.iter().map(|image| image.row(0)).collect();
        for said in oga.step(&task, &rows) {
            let best = (0..said.answer.len()).fold(0, |b, k| if said.answer[k] > said.answer[b] { k } else { b });
            predictions.push(best);
            exponents.extend(said.exponents);
            answers.extend(said.answer);
        }
    }
    let mut report = Report::default();
    let (mut zero_shot, mut entropies) = (vec![], vec![]);
    for image in &images {
        let views = ViewLogits::new(image, task.text_features(), task.logit_scale);
        zero_shot.extend(softmax_f32(views.logits.row(0)));
        entropies.push(views.entropies[0]);
    }
    close(&mut report, case, "zs_prob", &zero_shot)?;
    close(&mut report, case, "zs_entropy", &entropies)?;
    close(&mut report, case, "log_probs", &rounded(&exponents))?;
    close(&mut report, case, "z", &rounded(&answers))?;
    report.equal("pred", &predictions, &case.indices("out.pred")?);
    let (mut memory, mut entropies) = (vec![], vec![]);
    for class in &oga.memory {
        for place in 0..capacity {
            let stored = class.get(place);
            memory.extend(stored.map_or(vec![0.0; task.text_features().cols()], |s| s.feature.clone()));
            entropies.push(stored.map_or(-1.0, |s| s.entropy as f32));
        }
    }
    close(&mut report, case, "memory", &memory)?;
    close(&mut report, case, "memory_entropy", &entropies)?;
    let counts: Vec<usize> = oga.memory.iter().map(Vec::len).collect();
    report.equal("count", &counts, &case.indices("out.count")?);
    close(&mut report, case, "mu", oga.means.data())?;
    close(&mut report, case, "inv_sigma", &rounded(&oga.precision))?;
    Ok(report)
}
