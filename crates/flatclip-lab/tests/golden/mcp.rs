//! MCP and MCP++ over a stream of features, with equal weights and with those that the original's search returned.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::{accuracy, cached, feature_task, stream};
use flatclip::methods::adapters::mcp::{Config, Mcp, Parts, Represented, SecondLook, Variant};
use flatclip::methods::probability::argmax;
use flatclip::methods::{OnlineAdapter as _, ViewSet};

fn config(case: &Case) -> Fallible<Config> {
    let variant = match case.hyper("variant").as_str() {
        Some("mcp") => Variant::Mcp,
        Some("mcp++") => Variant::McpPlusPlus,
        other => return Err(format!("variant {other:?}").into()),
    };
    let all_views = matches!(case.hyper("dataset").as_str(), Some("A" | "a" | "imagenet_a" | "imagenet-a"));
    Ok(Config {
        fraction: case.number("view_fraction")?,
        variant,
        query: if all_views { Represented::ConfidentMean } else { Represented::View0 },
        alpha: case.number("positive/alpha")?,
        beta: case.number("positive/beta")?,
        capacity: case.number("positive/entropy_shot")? as usize,
        align_capacity: case.number("positive/align_shot")? as usize,
        center: case.number("center")?,
        memory_beta: case.number("memory_beta")?,
        negative_alpha: case.number("negative/alpha")?,
        negative_beta: case.number("negative/beta")?,
        negative_capacity: case.number("negative/shot_capacity")? as usize,
        entropy_low: case.number("negative/entropy_threshold/lower")?,
        entropy_high: case.number("negative/entropy_threshold/upper")?,
        mask_low: case.number("negative/mask_threshold/lower")?,
        mask_high: case.number("negative/mask_threshold/upper")?,
        steps: case.count("tta_steps")?,
        lr_text: case.number("learning_rate/text")?,
        lr_image: case.number("learning_rate/image")?,
        align: case.number("info_nce_weight")?,
        repel: case.number("negative_weight")?,
        ..Config::default()
    })
}

fn answers(parts: &[Parts], of: impl Fn(&Parts) -> Vec<f64>) -> Vec<usize> {
    parts.iter().map(|part| argmax(&of(part))).collect()
}

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let mut mcp = Mcp::new(config(case)?);
    mcp.prepare(&task)?;
    let mut report = Report::of(case);
    let mut parts = Vec::new();
    for views in stream(case)? {
        report.whole("zero_shot_pred", [argmax(task.logits(&views).row(0))]);
        let part = mcp.read(&task, &ViewSet::new("case", &views));
        report.real("entropy", [part.query.entropy]);
        report.whole("entropy_pred", [part.query.prediction]);
        let offered = match part.second_look {
            SecondLook::None => 0,
            SecondLook::Negative => 1,
            SecondLook::Certain => 2usize,
        };
        report.whole("negative_offered", [offered]);
        report.whole("align_pred", [part.aligned.0]);
        report.real("align_entropy", [part.aligned.1]);
        report.real("text_prob", &part.text);
        report.real("cache_prob", &part.cache);
        report.real("proto_prob", &part.proto);
        parts.push(part);
    }

    let labels = case.indices("in.labels")?;
    let sums = answers(&parts, |part| mcp.combine(part));
    report.equal("sum_pred", &sums);
    report.close("sum_acc", [accuracy(&sums, &labels)]);
    for (name, of) in [
        ("text_acc", (|part| part.text.clone()) as fn(&Parts) -> Vec<f64>),
        ("cache_acc", |part| part.cache.clone()),
        ("proto_acc", |part| part.proto.clone()),
    ] {
        report.close(name, [accuracy(&answers(&parts, of), &labels)]);
    }
    let weight = case.f32("out.searched")?;
    let weights = Config { cache_weight: weight[2].into(), proto_weight: weight[3].into(), ..config(case)? };
    let searched = answers(&parts, |part| Mcp::new(weights.clone()).combine(part));
    report.close("searched", [accuracy(&searched, &labels), weight[1], weight[2], weight[3]]);
    let width = task.text_features().cols();
    let (means, classes) = mcp.prototypes(width);
    let mut prototypes = vec![0.0; case.f32("out.prototypes")?.len()];
    for (row, class) in classes.into_iter().enumerate() {
        prototypes[class * width..][..width].copy_from_slice(means.row(row));
    }
    report.close("prototypes", prototypes);
    for (part, cache) in [("ent", &mcp.certain), ("align", &mcp.aligned), ("neg", &mcp.negative)] {
        cached(&mut report, part, "keys", cache, case.tolerance(&format!("{part}.loss"), Tolerance::atol(1e-3)))?;
    }
    if let Some(tuning) = parts.last().and_then(|part| part.tuning.as_ref()) {
        for part in &parts {
            let tuning = part.tuning.as_ref().ok_or("an image without steps")?;
            report.real("loss", [tuning.loss]);
            report.real("info_nce", [tuning.info_nce]);
            report.real("pos_neg", [tuning.repel]);
        }
        report.close("tuned_text", tuning.text.data());
    }
    Ok(report)
}
