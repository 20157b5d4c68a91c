//! `gda-clip`: the discriminant, the search of alpha, the answers.

use super::case::{Case, Report};
use super::inputs::{accuracy, close, fault, feature_task, matrix, rounded, unit};
use flatclip::methods::probability::argmax;
use flatclip_lab::tuners::gda_clip::{GdaClip, discriminant};

pub fn run(case: &Case) -> Result<Report, String> {
    let task = feature_task(case)?;
    let &[passes, classes, shots, _] = case.shape("in.train_features")? else {
        return Err("in.train_features is not [A, K, S, D]".into());
    };
    let train = unit(matrix(case, "in.train_features")?);
    let labels: Vec<usize> = (0..passes * classes * shots).map(|row| row / shots % classes).collect();
    let found = discriminant(&train, &labels, classes).map_err(fault)?;
    let mut report = Report::default();
    close(&mut report, case, "W", found.weights.data())?;
    close(&mut report, case, "b", &found.biases)?;

    let grid = case.hyper("alpha_grid").as_array().ok_or("alpha_grid is not a list")?;
    let alphas: Vec<f64> = grid.iter().filter_map(serde_json::Value::as_f64).collect();
    let mut tuner = GdaClip::new(found, task.text_features().clone(), task.logit_scale, 1.0);
    let (val, val_labels) = (unit(matrix(case, "in.val_features")?), case.indices("in.val_labels")?);
    let shares: Vec<f64> = tuner.accuracies(&val, &val_labels, &alphas).iter().map(|share| 100.0 * share).collect();
    close(&mut report, case, "val_acc", &rounded(&shares))?;
    tuner.search(&val, &val_labels, &alphas);
    close(&mut report, case, "best_alpha", &[tuner.alpha() as f32])?;

    let logits = tuner.logits(&unit(matrix(case, "in.test_features")?));
    close(&mut report, case, "test_logits", logits.data())?;
    let predictions: Vec<usize> = logits.iter_rows().map(argmax).collect();
    report.equal("test_pred", &predictions, &case.indices("out.test_pred")?);
    close(&mut report, case, "test_acc", &[accuracy(&predictions, &case.indices("in.test_labels")?)])?;
    Ok(report)
}
