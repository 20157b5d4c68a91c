//! `tip-adapter`: classifier, keys, logits, the search, and the training steps of Tip-Adapter-F.

use super::case::{Case, Report, Tolerance};
use flatclip::model::{Clip, Features};
use flatclip::prompt::logits;
use flatclip_lab::data::feature_bank::FeatureBank;
use flatclip_lab::train::Trainer;
use flatclip_lab::tuners::{Batch, Grid, OptimiserKind, Recipe, Schedule, TipAdapter, Tuner};
use flatclip_tensor::Matrix;

fn text(error: flatclip::Error) -> String {
    error.to_string()
}

fn matrix(case: &Case, name: &str) -> Result<Matrix, String> {
    match *case.shape(name)? {
        [rows, cols] => Ok(Matrix::from_vec(rows, cols, case.f32(name)?.to_vec())),
        ref other => Err(format!("`{name}` has shape {other:?}")),
    }
}

/// Percent of the rows whose label has the highest logit.
fn accuracy(logits: &Matrix, labels: &[usize]) -> f32 {
    let best = |row: &[f32]| (0..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best });
    let right = logits.iter_rows().zip(labels).filter(|(row, label)| best(row) == **label).count();
    100.0 * right as f32 / labels.len() as f32
}

/// `[views, N, D]` as a bank, which keeps the views of an image together.
fn keys(case: &Case) -> Result<Matrix, String> {
    let [views, images, width] = *case.shape("in.cache_features")? else { return Err("cache_features".into()) };
    let all = case.f32("in.cache_features")?;
    let row = |image: usize, view: usize| &all[(view * images + image) * width..][..width];
    let data = (0..images).flat_map(|i| (0..views).flat_map(move |v| row(i, v).to_vec())).collect();
    let bank = FeatureBank::new(views, Matrix::from_vec(images * views, width, data)).map_err(text)?;
    bank.mean_keys().map_err(text)
}

/// Checks a case.
pub(crate) fn run(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let close = case.tolerance("logits", Tolerance { atol: 5e-3, rtol: 1e-3, ..Tolerance::default() });
    let mut report = Report::default();
    let raw = clip.text().map_err(text)?.encode_tokens(&case.token_rows("in.tokens")?).map_err(text)?;
    let classifier = Features::unit(raw).0;
    report.close("clip_weights", classifier.data(), case.f32("out.clip_weights")?, Tolerance::atol(1e-5));
    let keys = keys(case)?;
    report.close("cache_keys", keys.data(), case.f32("out.cache_keys")?, Tolerance::atol(1e-5));

    let (alpha, beta) = (case.number("init_alpha")?, case.number("init_beta")?);
    let labels = case.indices("in.cache_labels")?;
    let scale = case.number("logit_scale")? as f32;
    let mut adapter = TipAdapter::new(keys, labels, classifier.clone(), scale, alpha, beta);
    let trained = adapter.clone();
    let (val, val_labels) = (matrix(case, "in.val_features")?, case.indices("in.val_labels")?);
    let zero_shot = logits(&val, &classifier, scale);
    let found = adapter.logits(&val);
    report.close("tip_logits_val", found.data(), case.f32("out.tip_logits_val")?, close);
    let percent = Tolerance::atol(1e-3);
    report.close("zs_acc_val", &[accuracy(&zero_shot, &val_labels)], case.f32("out.zs_acc_val")?, percent);
    report.close("tip_acc_val", &[accuracy(&found, &val_labels)], case.f32("out.tip_acc_val")?, percent);

    let pair = |key: &str| -> Result<[f64; 2], String> {
        let list = case.hyper(key).as_array().ok_or(format!("no `{key}`"))?;
        let number = |i: usize| list.get(i).and_then(serde_json::Value::as_f64).ok_or(format!("`{key}` is short"));
        Ok([number(0)?, number(1)?])
    };
    let grid = Grid { scale: pair("search_scale")?, step: pair("search_step")?.map(|s| s as usize) };
    adapter.search(&val, &val_labels, &grid);
    let (beta, alpha) = adapter.beta_alpha();
    report.close(
        "best_beta_alpha",
        &[beta as f32, alpha as f32],
        case.f32("out.best_beta_alpha")?,
        Tolerance::atol(1e-5),
    );
    let (test, test_labels) = (matrix(case, "in.test_features")?, case.indices("in.test_labels")?);
    let found = adapter.logits(&test);
    report.close("tip_logits_test_best", found.data(), case.f32("out.tip_logits_test_best")?, close);
    report.close("tip_acc_test_best", &[accuracy(&found, &test_labels)], case.f32("out.tip_acc_test_best")?, percent);
    fine_tune(case, &clip, trained, &test, &mut report)?;
    Ok(report)
}

/// The steps of Tip-Adapter-F.
fn fine_tune(
    case: &Case,
    clip: &Clip,
    mut adapter: TipAdapter,
    test: &Matrix,
    report: &mut Report,
) -> Result<(), String> {
    let train = Features::unit(matrix(case, "in.train_features")?).0;
    let train_labels = case.indices("in.cache_labels")?;
    let width = case.shape("in.batches")?[1];
    let settings = case.hyper("F");
    let number = |key: &str| settings[key].as_f64().ok_or(format!("no `F.{key}`"));
    let epochs = number("epochs")? as usize;
    let batches: Vec<Vec<usize>> = case
        .i64("in.batches")?
        .chunks(width)
        .map(|batch| batch.iter().filter_map(|&i| usize::try_from(i).ok()).collect())
        .collect();
    let recipe = Recipe {
        epochs,
        lr: number("lr")?,
        eps: 1e-4,
        weight_decay: 0.01,
        optimiser: OptimiserKind::AdamW,
        schedule: Schedule::Step,
        ..Recipe::default()
    };
    let mut trainer = Trainer::new(&recipe, batches.len() / epochs.max(1));
    let (mut losses, mut rates, mut weights, mut gradients) = (vec![], vec![], vec![], vec![]);
    for batch in &batches {
        let labels: Vec<usize> = batch.iter().map(|&i| train_labels[i]).collect();
        let batch = Batch { labels: &labels, features: &train.select_rows(batch), pixels: &[] };
        gradients.extend(adapter.key_loss(adapter.parameters(), &batch).gradient.concat());
        let record = trainer.step(clip, &mut adapter, &batch).map_err(text)?;
        losses.push(record.loss);
        rates.push(record.lr as f32);
        weights.extend_from_slice(&adapter.parameters()[0].values);
    }
    let tolerance = |key: &str, fallback| case.tolerance(key, fallback);
    report.close("F_loss", &losses, case.f32("out.F_loss")?, Tolerance::atol(1e-4));
    report.close("F_lr", &rates, case.f32("out.F_lr")?, Tolerance::atol(1e-8));
    let gradient = Tolerance { to_max: 2e-3, rtol: 1e-3, ..Tolerance::default() };
    report.close("F_grad", &gradients, case.f32("out.F_grad")?, tolerance("F_grad", gradient));
    report.close("F_weight", &weights, case.f32("out.F_weight")?, tolerance("F_weight", Tolerance::atol(1e-5)));
    let logits = tolerance("logits", Tolerance::atol(5e-3));
    report.close("F_logits_test", adapter.logits(test).data(), case.f32("out.F_logits_test")?, logits);
    Ok(())
}
