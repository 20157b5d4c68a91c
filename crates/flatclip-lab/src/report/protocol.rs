//! Where a run is not what the published row was: images, views, settings, class names, arithmetic.

use super::Run;
use super::paper::ensemble;
use crate::data::{Family, Known, Split};
use crate::eval::test_family;
use flatclip::methods::policy::policy_for;

/// One sentence for each point in which a run on a known data set differs from the protocol of its published row.
pub fn protocol_points(run: &Run) -> Vec<String> {
    let Some(known) = Known::find(&run.provenance.dataset) else { return Vec::new() };
    let mut points = Vec::new();
    if let Some(count) = known.count(Split::Test).filter(|&count| run.summary.metrics.count < count) {
        points.push(format!("{} of {count} images", run.summary.metrics.count));
    }
    points.extend(views(run, known));
    points.extend(settings(run, known));
    if known.name == "food101" && !run.config.compat.iter().any(|switch| switch == "tpt-food101") {
        points.push("class names 16 and 17 in their right order; published code swaps them (tpt-food101)".into());
    }
    if run.config.precision != "f32" {
        points.push(format!("image tower's products in {}, published in f16 throughout", run.config.precision));
    }
    points
}

fn views(run: &Run, known: &Known) -> Option<String> {
    let published = policy_for(&run.config.method, test_family(known.name, known.family)).ok()?;
    let ours = &run.config.views;
    if ours.policy == published.policy.name() && ours.count == published.views {
        return None;
    }
    // A single view is the image itself, whatever made the others.
    if ours.count == 1 && published.views == 1 {
        return None;
    }
    Some(format!("views: {} x{}, published {} x{}", ours.policy, ours.count, published.policy.name(), published.views))
}

/// The text of the classes, where the published row had another.
fn class_text(run: &Run, known: &Known) -> Option<String> {
    let ours = run.provenance.prompt.as_str();
    if ours == "features" {
        return Some("class embeddings from a file".into());
    }
    match run.config.method.as_str() {
        "dpe" if ours != "descriptions" => Some("text of templates alone; published with CuPL's descriptions".into()),
        "c-tpt" if known.family == Family::Imagenet && ours == "template" => {
            Some("text: template, published with an ensemble of prompts (c-tpt4, wording not confirmed)".into())
        }
        "tda" if ours != ensemble(known.name) && !ours.starts_with("coop") => {
            Some(format!("text: {ours}, published with {}", ensemble(known.name)))
        }
        _ => None,
    }
}

fn settings(run: &Run, known: &Known) -> Vec<String> {
    let text = |key: &str| run.config.options.get(key).map(toml::Value::to_string).unwrap_or_default();
    let number = |key: &str| run.config.options.get(key).and_then(toml::Value::as_float);
    let mut points = Vec::new();
    match run.config.method.as_str() {
        "tda" | "dpe" if text("preset") == "\"neutral\"" => {
            points.push("neutral settings; the published ones were chosen for each data set".to_owned());
        }
        "c-tpt" => {
            let published = if known.family == Family::Imagenet { 20.0 } else { 50.0 };
            if number("weight") != Some(published) {
                points.push(format!("weight {}, published {published}", text("weight")));
            }
        }
        "zero" if number("fraction") != Some(0.3) => {
            points.push(format!("fraction {}, 0.3 in the authors' code", text("fraction")));
        }
        _ => {}
    }
    points.extend(class_text(run, known));
    points
}
