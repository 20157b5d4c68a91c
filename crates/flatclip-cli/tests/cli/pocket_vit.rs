//! `--model pocket-vit`, for what needs a vision transformer.

use super::common::{json, run};
use serde_json::Value;
use tempfile::TempDir;

const MODEL: [&str; 2] = ["--model", "pocket-vit"];
const EVAL: [&str; 5] = ["eval", "--data", "pocket:photo:test:24", "--views", "4"];

fn top1(run: &Value) -> f64 {
    run["runs"][0]["summary"]["metrics"]["top1"].as_f64().unwrap()
}

#[test]
fn maple_is_tuned_and_used() {
    let home = TempDir::new().unwrap();
    let few =
        ["tune", "--method", "maple", "--data", "pocket:photo", "--shots", "1", "--epochs", "1", "--out", "maple"];
    let deep = run(home.path(), &[&few[..], &MODEL].concat());
    assert!(String::from_utf8_lossy(&deep.stderr).contains("4 layers in common"), "its towers are small");
    let small = ["--set", "maple.depth=2", "--set", "maple.words=\"\""];
    json(home.path(), &[&few[..], &small, &MODEL].concat());
    let tuned = ["--prompt", "maple/prompt.safetensors", "--method", "zero-shot", "--out", "tuned"];
    let tuned = json(home.path(), &[&EVAL[..], &tuned, &MODEL].concat());
    assert!(top1(&tuned) > 0.45, "{tuned}");
    let other = run(home.path(), &few);
    assert_eq!(other.status.code(), Some(2), "the embedded ResNet cannot carry visual prompts");
}

#[test]
fn the_other_commands_know_it_too() {
    let home = TempDir::new().unwrap();
    let adapted = json(home.path(), &[&EVAL[..], &["--method", "stss", "--out", "adapted"], &MODEL].concat());
    assert!(top1(&adapted) > 0.5, "{adapted}");
    json(home.path(), &["pocket", "export", "photos", "--count", "2"]);
    let answers = json(home.path(), &[&["predict", "photos", "--classes", "cat,fish,lamp"][..], &MODEL].concat());
    assert_eq!((&answers["model"], answers["results"].as_array().unwrap().len()), (&"pocket-vit".into(), 2));
    let shown = json(home.path(), &["models", "show", "pocket-vit"]);
    assert_eq!(shown["config"]["embed_dim"], 128, "{shown}");
}
