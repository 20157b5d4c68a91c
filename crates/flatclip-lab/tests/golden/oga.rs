//! OGA over a stream of features, batch by batch.

use super::case::{Case, Fallible, Report};
use super::inputs::{feature_task, places, stream};
use flatclip::methods::OnlineAdapter as _;
use flatclip::methods::adapters::oga::{Config, Oga};
use flatclip::methods::probability::{argmax, softmax_f32};
use flatclip::methods::select::ViewLogits;

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let capacity = case.count("shot_capacity")?;
    let mut oga = Oga::new(Config {
        capacity,
        tau: case.number("tau")?,
        batch: case.count("batch")?,
        unit_means: case.hyper("normalize_mu").as_bool().unwrap_or(false),
        compat: true,
    });
    oga.prepare(&task)?;
    let images = stream(case)?;
    let mut report = Report::of(case);
    for batch in images.chunks(oga.set_size()) {
        let rows: Vec<&[f32]> = batch.iter().map(|image| image.row(0)).collect();
        for said in oga.step(&task, &rows) {
            report.whole("pred", [argmax(&said.answer)]);
            report.real("log_probs", said.exponents);
            report.real("z", said.answer);
        }
    }
    for image in &images {
        let views = ViewLogits::new(image, task.text_features(), task.logit_scale);
        report.real("zs_prob", softmax_f32(views.logits.row(0)));
        report.real("zs_entropy", [views.entropies[0]]);
    }
    let (width, slots) = (task.text_features().cols(), || places(&oga.memory, capacity));
    report.close("memory", slots().flat_map(|slot| slot.map_or(vec![0.0; width], |slot| slot.feature.clone())));
    report.close("memory_entropy", slots().map(|slot| slot.map_or(-1.0, |slot| slot.entropy)));
    report.equal("count", oga.memory.iter().map(Vec::len));
    report.close("mu", oga.means.data());
    report.close("inv_sigma", &oga.precision);
    Ok(report)
}
