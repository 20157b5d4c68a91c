//! OnZeta over a stream of features.

use super::case::{Case, Fallible, Report};
use super::inputs::{feature_task, stream};
use flatclip::methods::OnlineAdapter as _;
use flatclip::methods::adapters::onzeta::{Config, OnZeta};
use flatclip::methods::probability::argmax;

pub fn run(case: &Case) -> Fallible<Report<'_>> {
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
    adapter.prepare(&task)?;
    let mut report = Report::of(case);
    for image in &images {
        let (labels, answer) = adapter.step(&task, image.row(0));
        report.real("text_label", labels);
        report.whole("pred", [argmax(&answer)]);
        report.real("combo_label", answer);
    }
    report.accuracy("accuracy", "pred")?;
    report.close("rho", &adapter.dual);
    report.close("vision_proxy", adapter.proxies.data());
    Ok(report)
}
