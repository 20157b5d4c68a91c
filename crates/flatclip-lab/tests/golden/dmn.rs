//! DMN over a stream of features, with the weights that the original's search returned.

use super::case::{Case, Fallible, Report};
use super::inputs::{accuracy, feature_task, places, samples, stream, unit};
use flatclip::methods::adapters::dmn::{Config, Dmn};
use flatclip::methods::probability::argmax;
use flatclip::methods::{OnlineAdapter as _, ViewSet};

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let searched = case.f32("out.best")?;
    let slots = case.count("memory_size")?;
    let mut dmn = Dmn::new(Config {
        fraction: case.number("selection_p")?,
        slots,
        beta: case.number("beta")?,
        dynamic_weight: f64::from(searched[2]),
        static_weight: f64::from(searched[3]),
        ..Config::default()
    });
    if case.has("in.shot_features") {
        dmn = dmn.with_shots(samples(case, "in.shot_features")?.into_iter().map(unit).collect());
    }
    dmn.prepare(&task)?;
    let mut report = Report::of(case);
    let mut predictions = Vec::new();
    for views in stream(case)? {
        let parts = dmn.read(&task, &ViewSet::new("case", &views));
        let answer = dmn.combine(&parts);
        predictions.push(argmax(&answer));
        report.whole("selected", &parts.selection.selected);
        report.real("final_prob", answer);
        report.real("text_prob", parts.text);
        report.real("dynamic_prob", parts.dynamic);
        if case.has("out.static_prob") {
            report.real("static_prob", parts.shots.unwrap_or_default());
        }
    }
    report.equal("final_pred", &predictions);
    let percent = accuracy(&predictions, &case.indices("in.labels")?);
    report.close("best", [percent, 1.0, searched[2], searched[3]]);
    let (width, slots) = (task.text_features().cols(), || places(&dmn.memory, slots));
    report.close("memory", slots().flat_map(|slot| slot.map_or(vec![0.0; width], |slot| slot.feature.clone())));
    report.close("memory_entropy", slots().map(|slot| slot.map_or(0.0, |slot| slot.entropy)));
    report.equal("count", dmn.memory.iter().map(Vec::len));
    Ok(report)
}
