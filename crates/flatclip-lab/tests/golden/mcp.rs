//! MCP and MCP++ over a stream of features, with equal weights and with those that the original's search returned.

use super::case::{Case, Report};
use super::inputs::{accuracy, cached, close, fault, feature_task, nested, rounded, stream, tolerance};
use flatclip::methods::adapters::mcp::{Config, Mcp, Parts, Represented, SecondLook, Variant};
use flatclip::methods::probability::argmax;
use flatclip::methods::{OnlineAdapter as _, ViewSet};

fn config(case: &Case) -> Result<Config, String> {
    let variant = match case.hyper("variant").as_str() {
        Some("mcp") => Variant::Mcp,
        Some("mcp++") => Variant::McpPlusPlus,
        other => return Err(format!("variant {other:?}")),
    };
    let all_views = matches!(case.hyper("dataset").as_str(), Some("A" | "a" | "imagenet_a" | "imagenet-a"));
    Ok(Config {
        fraction: case.number("view_fraction")?,
        variant,
        query: if all_views { Represented::ConfidentMean } else { Represented::View0 },
        alpha: nested(case, "/positive/alpha")?,
        beta: nested(case, "/positive/beta")?,
        capacity: nested(case, "/positive/entropy_shot")? as usize,
        align_capacity: nested(case, "/positive/align_shot")? as usize,
        center: case.number("center")?,
        memory_beta: case.number("memory_beta")?,
        negative_alpha: nested(case, "/negative/alpha")?,
        negative_beta: nested(case, "/negative/beta")?,
        negative_capacity: nested(case, "/negative/shot_capacity")? as usize,
        entropy_low: nested(case, "/negative/entropy_threshold/lower")?,
        entropy_high: nested(case, "/negative/entropy_threshold/upper")?,
        mask_low: nested(case, "/negative/mask_threshold/lower")?,
        mask_high: nested(case, "/negative/mask_threshold/upper")?,
        steps: case.count("tta_steps")?,
        lr_text: nested(case, "/learning_rate/text")?,
        lr_image: nested(case, "/learning_rate/image")?,
        align: case.number("info_nce_weight")?,
        repel: case.number("negative_weight")?,
        ..Config::default()
    })
}

/// Class of the largest value, and the share of right ones in percent.
fn answers(parts: &[Parts], of: impl Fn(&Parts) -> Vec<f64>) -> Vec<usize> {
    let best = |p: Vec<f64>| (0..p.len()).fold(0, |best, k| if p[k] > p[best] { k } else { best });
    parts.iter().map(|part| best(of(part))).collect()
}

pub fn run(case: &Case) -> Result<Report, String> {
    let task = feature_task(case)?;
    let mut mcp = Mcp::new(config(case)?);
    mcp.prepare(&task).map_err(fault)?;
    let (mut parts, mut zero_shot) = (Vec::new(), Vec::new());
    for views in stream(case)? {
        zero_shot.push(argmax(task.logits(&views).row(0)));
        parts.push(mcp.read(&task, &ViewSet::new("case", &views)));
    }
    let mut report = Report::default();
    let real = |of: fn(&Parts) -> f32| parts.iter().map(of).collect::<Vec<f32>>();
    let whole = |of: fn(&Parts) -> usize| parts.iter().map(of).collect::<Vec<usize>>();
    let rows = |of: fn(&Parts) -> &[f64]| parts.iter().flat_map(|part| rounded(of(part))).collect::<Vec<f32>>();
    close(&mut report, case, "entropy", &real(|part| part.query.entropy))?;
    report.equal("entropy_pred", &whole(|part| part.query.prediction), &case.indices("out.entropy_pred")?);
    let offered = |part: &Parts| match part.second_look {
        SecondLook::None => 0,
        SecondLook::Negative => 1,
        SecondLook::Certain => 2,
    };
    report.equal("negative_offered", &whole(offered), &case.indices("out.negative_offered")?);
    report.equal("align_pred", &whole(|part| part.aligned.0), &case.indices("out.align_pred")?);
    close(&mut report, case, "align_entropy", &real(|part| part.aligned.1))?;
    close(&mut report, case, "text_prob", &rows(|part| &part.text))?;
    close(&mut report, case, "cache_prob", &rows(|part| &part.cache))?;
    close(&mut report, case, "proto_prob", &rows(|part| &part.proto))?;
    report.equal("zero_shot_pred", &zero_shot, &case.indices("out.zero_shot_pred")?);

    let labels = case.indices("in.labels")?;
    let sums = answers(&parts, |part| mcp.combine(part));
    report.equal("sum_pred", &sums, &case.indices("out.sum_pred")?);
    close(&mut report, case, "sum_acc", &[accuracy(&sums, &labels)])?;
    for (name, of) in [
        ("text_acc", (|part| part.text.clone()) as fn(&Parts) -> Vec<f64>),
        ("cache_acc", |part| part.cache.clone()),
        ("proto_acc", |part| part.proto.clone()),
    ] {
        close(&mut report, case, name, &[accuracy(&answers(&parts, of), &labels)])?;
    }
    let best = case.f32("out.searched")?;
    let weights = Config { cache_weight: best[2].into(), proto_weight: best[3].into(), ..config(case)? };
    let searched = answers(&parts, |part| Mcp::new(weights.clone()).combine(part));
    close(&mut report, case, "searched", &[accuracy(&searched, &labels), best[1], best[2], best[3]])?;
    state(&mut report, case, &mcp, task.text_features().cols())?;
    if let Some(tuning) = parts.last().and_then(|part| part.tuning.as_ref()) {
        let of = |part: &Parts| part.tuning.clone().ok_or("an image without steps");
        let tunings = parts.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        close(&mut report, case, "loss", &tunings.iter().map(|t| t.loss).collect::<Vec<_>>())?;
        close(&mut report, case, "info_nce", &tunings.iter().map(|t| t.info_nce).collect::<Vec<_>>())?;
        close(&mut report, case, "pos_neg", &tunings.iter().map(|t| t.repel).collect::<Vec<_>>())?;
        close(&mut report, case, "tuned_text", tuning.text.data())?;
    }
    Ok(report)
}

/// Prototypes and caches at the end.
fn state(report: &mut Report, case: &Case, mcp: &Mcp, width: usize) -> Result<(), String> {
    let (means, classes) = mcp.prototypes(width);
    let mut prototypes = vec![0.0; case.f32("out.prototypes")?.len()];
    for (row, class) in classes.into_iter().enumerate() {
        prototypes[class * width..][..width].copy_from_slice(means.row(row));
    }
    close(report, case, "prototypes", &prototypes)?;
    for (part, cache) in [("ent", &mcp.certain), ("align", &mcp.aligned), ("neg", &mcp.negative)] {
        cached(report, case, part, "keys", cache, tolerance(case, &format!("{part}.loss")))?;
    }
    Ok(())
}
