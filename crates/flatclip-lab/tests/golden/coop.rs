//! `coop` and `sapt`: text features, loss and gradient of one batch, and the whole trajectory of the trainer.

use super::case::{Case, Fallible, Report, Tolerance};
use flatclip::methods::sam::{NormScope, SamVariant, moved};
use flatclip::model::Clip;
use flatclip::prompt::logits;
use flatclip_lab::train::Trainer;
use flatclip_lab::tuners::{Batch, Coop, Recipe, Sapt, SaptConfig, Tuner};
use flatclip_tensor::Matrix;

fn tolerance(case: &Case, key: &str) -> Tolerance {
    case.tolerance(key, Tolerance { atol: 1e-4, rtol: 1e-4, ..Tolerance::default() })
}

/// The recipe of a case.
fn recipe(case: &Case) -> Fallible<Recipe> {
    Ok(Recipe {
        lr: case.number("lr")?,
        momentum: case.number("momentum")?,
        weight_decay: case.number("weight_decay")?,
        epochs: case.number("max_epoch")? as usize,
        ..Recipe::default()
    })
}

/// Compares contexts, losses and rates of all steps.
fn trajectory(report: &mut Report<'_>, clip: &Clip, tuner: &mut dyn Tuner) -> Fallible<()> {
    let case = report.case;
    let (features, labels) = (case.image_features(clip, "in.images")?, case.indices("in.labels")?);
    let steps_per_epoch = case.hyper("batches_per_epoch").as_u64().unwrap_or(1) as usize;
    let mut trainer = Trainer::new(&recipe(case)?, steps_per_epoch);
    for batch in case.indices("in.batch_idx")?.chunks(case.shape("in.batch_idx")?[1]) {
        let own: Vec<usize> = batch.iter().map(|&i| labels[i]).collect();
        let batch = Batch { labels: &own, features: &features.select_rows(batch), pixels: &[] };
        let record = trainer.step(clip, tuner, &batch)?;
        report.real("traj_ctx", &tuner.parameters()[0].values);
        report.real("traj_loss", [record.loss]);
        if let Some(loss) = record.perturbed_loss {
            report.real("traj_loss_perturbed", [loss]);
        }
        report.real("traj_lr", [record.lr]);
    }
    report.settle("traj_ctx", tolerance(case, "traj_ctx"));
    report.settle("traj_loss", tolerance(case, "traj_loss"));
    report.settle("traj_lr", tolerance(case, "traj_lr"));
    Ok(())
}

/// The first batch of a case.
fn first_batch(case: &Case, features: &Matrix) -> Fallible<(Vec<usize>, Matrix)> {
    let labels = case.indices("in.labels")?;
    let batch = case.indices("in.batch_idx")?[..case.shape("in.batch_idx")?[1]].to_vec();
    Ok((batch.iter().map(|&i| labels[i]).collect(), features.select_rows(&batch)))
}

/// Checks a `coop` case.
pub(crate) fn coop(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let context = case.context("in.ctx")?;
    let tokens = case.class_tokens(context.tokens)?;
    let mut report = Report::of(case);

    let text_features = clip.text()?.encode(&tokens, std::slice::from_ref(&context))?;
    report.close_to("text_features", text_features[0].data(), tolerance(case, "text_features"));
    let (labels, features) = first_batch(case, &case.image_features(&clip, "in.images")?)?;
    let found = logits(&features, &text_features[0], clip.logit_scale());
    report.close_to("logits", found.data(), tolerance(case, "logits"));

    let mut tuner = Coop::new(context, tokens, "");
    let batch = Batch { labels: &labels, features: &features, pixels: &[] };
    let loss = tuner.loss(&clip, tuner.parameters(), &batch)?;
    report.close_to("loss", [loss.value], tolerance(case, "loss"));
    report.close_to("grad_ctx", &loss.gradient[0], tolerance(case, "grad_ctx"));

    trajectory(&mut report, &clip, &mut tuner)?;
    Ok(report)
}

/// The options of a `sapt` case.
fn sapt_config(case: &Case) -> Fallible<SaptConfig> {
    let (perturbation, eta) = match case.hyper("variant").as_str().unwrap_or("sam") {
        "sam" => (SamVariant::Sam, 0.0),
        // davda54's adaptive form is ASAM without eta.
        "adaptive" => (SamVariant::Asam, 0.0),
        "asam" => (SamVariant::Asam, case.number("eta")?),
        "fisher-sam" => (SamVariant::FisherSam, case.number("eta")?),
        other => return Err(format!("variant {other}").into()),
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
pub(crate) fn sapt(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let context = case.context("in.ctx")?;
    let tokens = case.class_tokens(context.tokens)?;
    let config = sapt_config(case)?;
    let mut tuner = Sapt::new(Coop::new(context, tokens, ""), &config);
    let (labels, features) = first_batch(case, &case.image_features(&clip, "in.images")?)?;
    let batch = Batch { labels: &labels, features: &features, pixels: &[] };
    let mut report = Report::of(case);

    let plain = tuner.loss(&clip, tuner.parameters(), &batch)?;
    report.close_to("loss", [plain.value], tolerance(case, "loss"));
    report.close_to("grad_plain", &plain.gradient[0], tolerance(case, "grad"));
    let epsilon = config.ascent().epsilon(tuner.parameters(), &plain.gradient);
    report.close_to("eps", &epsilon[0], tolerance(case, "eps"));
    let perturbed = tuner.loss(&clip, &moved(tuner.parameters(), &epsilon), &batch)?;
    report.close_to("loss_perturbed", [perturbed.value], tolerance(case, "loss"));
    let step = tuner.step(&clip, &batch, 0)?;
    report.close_to("grad", &step.gradient[0], tolerance(case, "grad"));

    trajectory(&mut report, &clip, &mut tuner)?;
    report.settle("traj_loss_perturbed", tolerance(case, "traj_loss"));
    Ok(report)
}
