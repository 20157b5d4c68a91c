//! OnZeta over a stream of features.

use super::case::{Case, Report};
use super::inputs::{accuracy, close, fault, feature_task, rounded, stream};
use flatclip::methods::OnlineAdapter as _;
use flatclip::methods::adapters::onzeta::{Config, OnZeta};

pub fn run(case: &Case) -> Result<Report, String> {
    let images = stream(case)?;
    let mut task = feature_task(case)?;
    task.stream_length = Some(images.len());
    let mut adapter = OnZeta::new(Config {
        alpha: case.number("alpha")?,
        beta: case.number("beta")?,
        tau_text: case.number("tau_t")?,
        tau_image: case.number("tau_i")?,
        c_w: case.number("cw")?,
        c_rho: case.number("cr")?,
        ..Config::default()
    });
    adapter.prepare(&task).map_err(fault)?;
    let (mut text, mut answers, mut predictions) = (vec![], vec![], vec![]);
    for image in &images {
        let (labels, answer) = adapter.step(&task, image.row(0));
        text.extend(labels);
        predictions.push((0..answer.len()).fold(0, |best, k| if answer[k] > answer[best] { k } else { best }));
        answers.extend(answer);
    }
    let mut report = Report::default();
    close(&mut report, case, "text_label", &rounded(&text))?;
    close(&mut report, case, "combo_label", &rounded(&answers))?;
    report.equal("pred", &predictions, &case.indices("out.pred")?);
    close(&mut report, case, "accuracy", &[accuracy(&predictions, &case.indices("in.labels")?)])?;
    close(&mut report, case, "rho", &rounded(&adapter.dual))?;
    close(&mut report, case, "vision_proxy", adapter.proxies.data())?;
    Ok(report)
}
