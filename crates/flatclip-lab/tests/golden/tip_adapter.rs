//! `tip-adapter`: classifier, keys, logits, the search, and the training steps of Tip-Adapter-F.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::{accuracy, matrix};
use flatclip::methods::probability::argmax;
use flatclip::model::{Clip, Features};
use flatclip::prompt::logits;
use flatclip_lab::data::feature_bank::FeatureBank;
use flatclip_lab::train::Trainer;
use flatclip_lab::tuners::{Batch, Grid, OptimiserKind, Recipe, Schedule, TipAdapter, Tuner};
use flatclip_tensor::Matrix;

/// Percent of the rows whose label has the highest logit.
fn percent_right(logits: &Matrix, labels: &[usize]) -> [f32; 1] {
    [accuracy(&logits.iter_rows().map(argmax).collect::<Vec<_>>(), labels)]
}

/// `[views, N, D]` as a bank, which keeps the views of an image together.
fn keys(case: &Case) -> Fallible<Matrix> {
    let [views, images, width] = *case.shape("in.cache_features")? else { return Err("cache_features".into()) };
    let all = case.f32("in.cache_features")?;
    let row = |image: usize, view: usize| &all[(view * images + image) * width..][..width];
    let data = (0..images).flat_map(|i| (0..views).flat_map(move |v| row(i, v).to_vec())).collect();
    let bank = FeatureBank::new(views, Matrix::from_vec(images * views, width, data))?;
    Ok(bank.mean_keys()?)
}

/// Checks a case.
pub(crate) fn run(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let close = case.tolerance("logits", Tolerance { atol: 5e-3, rtol: 1e-3, ..Tolerance::default() });
    let mut report = Report::of(case);
    let raw = clip.text()?.encode_tokens(&case.token_rows("in.tokens")?)?;
    let classifier = Features::unit(raw).0;
    report.close_to("clip_weights", classifier.data(), Tolerance::atol(1e-5));
    let keys = keys(case)?;
    report.close_to("cache_keys", keys.data(), Tolerance::atol(1e-5));

    let (alpha, beta) = (case.number("init_alpha")?, case.number("init_beta")?);
    let labels = case.indices("in.cache_labels")?;
    let scale = case.number("logit_scale")? as f32;
    let mut adapter = TipAdapter::new(keys, labels, classifier.clone(), scale, alpha, beta);
    let trained = adapter.clone();
    let (val, val_labels) = (matrix(case, "in.val_features")?, case.indices("in.val_labels")?);
    let zero_shot = logits(&val, &classifier, scale);
    let found = adapter.logits(&val);
    report.close_to("tip_logits_val", found.data(), close);
    let percent = Tolerance::atol(1e-3);
    report.close_to("zs_acc_val", percent_right(&zero_shot, &val_labels), percent);
    report.close_to("tip_acc_val", percent_right(&found, &val_labels), percent);

    let pair = |key: &str| -> Fallible<[f64; 2]> {
        let list = case.hyper(key).as_array().ok_or(format!("no `{key}`"))?;
        let number = |i: usize| list.get(i).and_then(serde_json::Value::as_f64).ok_or(format!("`{key}` is short"));
        Ok([number(0)?, number(1)?])
    };
    let grid = Grid { scale: pair("search_scale")?, step: pair("search_step")?.map(|s| s as usize) };
    adapter.search(&val, &val_labels, &grid);
    let (beta, alpha) = adapter.beta_alpha();
    report.close_to("best_beta_alpha", [beta as f32, alpha as f32], Tolerance::atol(1e-5));
    let (test, test_labels) = (matrix(case, "in.test_features")?, case.indices("in.test_labels")?);
    let found = adapter.logits(&test);
    report.close_to("tip_logits_test_best", found.data(), close);
    report.close_to("tip_acc_test_best", percent_right(&found, &test_labels), percent);
    fine_tune(case, &clip, trained, &test, &mut report)?;
    Ok(report)
}

/// The steps of Tip-Adapter-F.
fn fine_tune(
    case: &Case,
    clip: &Clip,
    mut adapter: TipAdapter,
    test: &Matrix,
    report: &mut Report<'_>,
) -> Fallible<()> {
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
    for batch in &batches {
        let labels: Vec<usize> = batch.iter().map(|&i| train_labels[i]).collect();
        let batch = Batch { labels: &labels, features: &train.select_rows(batch), pixels: &[] };
        report.real("F_grad", adapter.key_loss(adapter.parameters(), &batch).gradient.concat());
        let record = trainer.step(clip, &mut adapter, &batch)?;
        report.real("F_loss", [record.loss]);
        report.real("F_lr", [record.lr]);
        report.real("F_weight", &adapter.parameters()[0].values);
    }
    let gradient = Tolerance { to_max: 2e-3, rtol: 1e-3, ..Tolerance::default() };
    report.settle("F_loss", Tolerance::atol(1e-4));
    report.settle("F_lr", Tolerance::atol(1e-8));
    report.settle("F_grad", case.tolerance("F_grad", gradient));
    report.settle("F_weight", case.tolerance("F_weight", Tolerance::atol(1e-5)));
    let logits = case.tolerance("logits", Tolerance::atol(5e-3));
    report.close_to("F_logits_test", adapter.logits(test).data(), logits);
    Ok(())
}
