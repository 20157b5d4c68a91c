//! `gda-clip`: the discriminant, the search of alpha, the answers.

use super::case::{Case, Fallible, Report};
use super::inputs::{accuracy, feature_task, matrix, unit};
use flatclip::methods::probability::argmax;
use flatclip_lab::tuners::gda_clip::{GdaClip, discriminant};

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let &[passes, classes, shots, _] = case.shape("in.train_features")? else {
        return Err("in.train_features is not [A, K, S, D]".into());
    };
    let train = unit(matrix(case, "in.train_features")?);
    let labels: Vec<usize> = (0..passes * classes * shots).map(|row| row / shots % classes).collect();
    let found = discriminant(&train, &labels, classes)?;
    let mut report = Report::of(case);
    report.close("W", found.weights.data());
    report.close("b", &found.biases);

    let grid = case.hyper("alpha_grid").as_array().ok_or("alpha_grid is not a list")?;
    let alphas: Vec<f64> = grid.iter().filter_map(serde_json::Value::as_f64).collect();
    let mut tuner = GdaClip::new(found, task.text_features().clone(), task.logit_scale, 1.0);
    let (val, val_labels) = (unit(matrix(case, "in.val_features")?), case.indices("in.val_labels")?);
    let shares: Vec<f64> = tuner.accuracies(&val, &val_labels, &alphas).iter().map(|share| 100.0 * share).collect();
    report.close("val_acc", &shares);
    tuner.search(&val, &val_labels, &alphas);
    report.close("best_alpha", [tuner.alpha() as f32]);

    let logits = tuner.logits(&unit(matrix(case, "in.test_features")?));
    report.close("test_logits", logits.data());
    let predictions: Vec<usize> = logits.iter_rows().map(argmax).collect();
    report.equal("test_pred", &predictions);
    report.close("test_acc", [accuracy(&predictions, &case.indices("in.test_labels")?)]);
    Ok(report)
}
