//! `coop` and `sapt`: text features, loss and gradient of one batch, and the whole trajectory of the trainer.

use super::case::{Case, Report, Tolerance};
use flatclip::methods::sam::{NormScope, SamVariant, moved};
use flatclip::model::{ClassTokens, Clip, Context, Features, Position};
use flatclip::prompt::logits;
use flatclip_lab::train::Trainer;
use flatclip_lab::tuners::{Batch, Coop, Recipe, Sapt, SaptConfig, Tuner};
use flatclip_tensor::Matrix;

fn text(error: flatclip::Error) -> String {
    error.to_string()
}

/// The context of a case: `[n_ctx, width]` or `[K, n_ctx, width]`.
pub(crate) fn context(case: &Case, name: &str) -> Result<Context, String> {
    let data = case.f32(name)?.to_vec();
    match *case.shape(name)? {
        [tokens, width] => Ok(Context::shared(tokens, width, data)),
        [classes, tokens, width] => Ok(Context::per_class(classes, tokens, width, data)),
        ref other => Err(format!("`{name}` has shape {other:?}")),
    }
}

/// The class tokens of a case.
pub(crate) fn class_tokens(case: &Case, n_ctx: usize) -> Result<ClassTokens, String> {
    let position = match case.hyper("class_token_position").as_str() {
        None | Some("end") => Position::End,
        Some("middle") => Position::Middle,
        Some("front") => Position::Front,
        Some(other) => return Err(format!("class position {other}")),
    };
    let rows = case.token_rows("in.tokens")?;
    // Where the file has no lengths, the name may as well be all that stands before the full stop and EOT.
    let lens = if case.has("in.name_lens") {
        case.indices("in.name_lens")?
    } else {
        let eot = |row: &Vec<u32>| (0..row.len()).max_by_key(|&i| (row[i], usize::MAX - i)).unwrap_or(0);
        rows.iter().map(|row| eot(row) - 2 - n_ctx).collect()
    };
    ClassTokens::from_ids(&rows, &lens, n_ctx, position).map_err(text)
}

/// Unit-norm features of `in.images`.
pub(crate) fn image_features(case: &Case, clip: &Clip) -> Result<Matrix, String> {
    let raw = clip.encode_images(case.f32("in.images")?, case.shape("in.images")?[0]).map_err(text)?;
    Ok(Features::unit(raw).0)
}

fn tolerance(case: &Case, key: &str) -> Tolerance {
    case.tolerance(key, Tolerance { atol: 1e-4, rtol: 1e-4, ..Tolerance::default() })
}

/// The recipe of a case.
fn recipe(case: &Case) -> Result<Recipe, String> {
    Ok(Recipe {
        lr: case.number("lr")?,
        momentum: case.number("momentum")?,
        weight_decay: case.number("weight_decay")?,
        epochs: case.number("max_epoch")? as usize,
        ..Recipe::default()
    })
}

/// Losses, rates and contexts of all steps.
struct Trajectory {
    contexts: Vec<f32>,
    losses: Vec<f32>,
    perturbed: Vec<f32>,
    rates: Vec<f32>,
}

fn trajectory(case: &Case, clip: &Clip, tuner: &mut dyn Tuner) -> Result<Trajectory, String> {
    let (features, labels) = (image_features(case, clip)?, case.indices("in.labels")?);
    let steps_per_epoch = case.hyper("batches_per_epoch").as_u64().unwrap_or(1) as usize;
    let mut trainer = Trainer::new(&recipe(case)?, steps_per_epoch);
    let mut out = Trajectory { contexts: vec![], losses: vec![], perturbed: vec![], rates: vec![] };
    for batch in case.indices("in.batch_idx")?.chunks(case.shape("in.batch_idx")?[1]) {
        let own: Vec<usize> = batch.iter().map(|&i| labels[i]).collect();
        let batch = Batch { labels: &own, features: &features.select_rows(batch), pixels: &[] };
        let record = trainer.step(clip, tuner, &batch).map_err(text)?;
        out.contexts.extend_from_slice(&tuner.parameters()[0].values);
        out.losses.push(record.loss);
        out.perturbed.extend(record.perturbed_loss);
        out.rates.push(record.lr as f32);
    }
    Ok(out)
}

/// The first batch of a case.
fn first_batch(case: &Case, features: &Matrix) -> Result<(Vec<usize>, Matrix), String> {
    let labels = case.indices("in.labels")?;
    let batch = case.indices("in.batch_idx")?[..case.shape("in.batch_idx")?[1]].to_vec();
    Ok((batch.iter().map(|&i| labels[i]).collect(), features.select_rows(&batch)))
}

/// Checks a `coop` case.
pub(crate) fn coop(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let context = context(case, "in.ctx")?;
    let tokens = class_tokens(case, context.tokens)?;
    let mut report = Report::default();

    let text_features = clip.text().map_err(text)?.encode(&tokens, std::slice::from_ref(&context)).map_err(text)?;
    report.close(
        "text_features",
        text_features[0].data(),
        case.f32("out.text_features")?,
        tolerance(case, "text_features"),
    );
    let (labels, features) = first_batch(case, &image_features(case, &clip)?)?;
    let found = logits(&features, &text_features[0], clip.logit_scale());
    report.close("logits", found.data(), case.f32("out.logits")?, tolerance(case, "logits"));

    let mut tuner = Coop::new(context, tokens, "");
    let batch = Batch { labels: &labels, features: &features, pixels: &[] };
    let loss = tuner.loss(&clip, tuner.parameters(), &batch).map_err(text)?;
    report.close("loss", &[loss.value], case.f32("out.loss")?, tolerance(case, "loss"));
    report.close("grad_ctx", &loss.gradient[0], case.f32("out.grad_ctx")?, tolerance(case, "grad_ctx"));

    let steps = trajectory(case, &clip, &mut tuner)?;
    report.close("traj_ctx", &steps.contexts, case.f32("out.traj_ctx")?, tolerance(case, "traj_ctx"));
    report.close("traj_loss", &steps.losses, case.f32("out.traj_loss")?, tolerance(case, "traj_loss"));
    report.close("traj_lr", &steps.rates, case.f32("out.traj_lr")?, tolerance(case, "traj_lr"));
    Ok(report)
}

/// The options of a `sapt` case.
fn sapt_config(case: &Case) -> Result<SaptConfig, String> {
    let (perturbation, eta) = match case.hyper("variant").as_str().unwrap_or("sam") {
        "sam" => (SamVariant::Sam, 0.0),
        // davda54's adaptive form is ASAM without eta.
        "adaptive" => (SamVariant::Asam, 0.0),
        "asam" => (SamVariant::Asam, case.number("eta")?),
        "fisher-sam" => (SamVariant::FisherSam, case.number("eta")?),
        other => return Err(format!("variant {other}")),
    };
    let (radius, weight) = (case.number("rho")?, case.number("lambda")?);
    Ok(SaptConfig {
        radius,
        weight,
        perturbation,
        asam_eta: eta,
        fisher_eta: eta,
        norm: NormScope::Whole,
        ..SaptConfig::default()
    })
}

/// Checks a `sapt` case.
pub(crate) fn sapt(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let context = context(case, "in.ctx")?;
    let tokens = class_tokens(case, context.tokens)?;
    let config = sapt_config(case)?;
    let mut tuner = Sapt::new(Coop::new(context, tokens, ""), &config);
    let (labels, features) = first_batch(case, &image_features(case, &clip)?)?;
    let batch = Batch { labels: &labels, features: &features, pixels: &[] };
    let mut report = Report::default();

    let plain = tuner.loss(&clip, tuner.parameters(), &batch).map_err(text)?;
    report.close("loss", &[plain.value], case.f32("out.loss")?, tolerance(case, "loss"));
    report.close("grad_plain", &plain.gradient[0], case.f32("out.grad_plain")?, tolerance(case, "grad"));
    let epsilon = config.ascent().epsilon(tuner.parameters(), &plain.gradient);
    report.close("eps", &epsilon[0], case.f32("out.eps")?, tolerance(case, "eps"));
    let perturbed = tuner.loss(&clip, &moved(tuner.parameters(), &epsilon), &batch).map_err(text)?;
    report.close("loss_perturbed", &[perturbed.value], case.f32("out.loss_perturbed")?, tolerance(case, "loss"));
    let step = tuner.step(&clip, &batch, 0).map_err(text)?;
    report.close("grad", &step.gradient[0], case.f32("out.grad")?, tolerance(case, "grad"));

    let steps = trajectory(case, &clip, &mut tuner)?;
    report.close("traj_ctx", &steps.contexts, case.f32("out.traj_ctx")?, tolerance(case, "traj_ctx"));
    report.close("traj_loss", &steps.losses, case.f32("out.traj_loss")?, tolerance(case, "traj_loss"));
    report.close(
        "traj_loss_perturbed",
        &steps.perturbed,
        case.f32("out.traj_loss_perturbed")?,
        tolerance(case, "traj_loss"),
    );
    report.close("traj_lr", &steps.rates, case.f32("out.traj_lr")?, tolerance(case, "traj_lr"));
    Ok(report)
}
