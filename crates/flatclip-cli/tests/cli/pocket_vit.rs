//! `--model pocket-vit`, for what needs a vision transformer.

use super::common::{Home, said};
use serde_json::Value;

const MODEL: &str = "--model pocket-vit";
const EVAL: &str = "eval --data pocket:photo:test:24 --views 4";

fn top1(run: &Value) -> f64 {
    run["runs"][0]["summary"]["metrics"]["top1"].as_f64().unwrap()
}

#[test]
fn maple_is_tuned_and_used() {
    let home = Home::new();
    let few = "tune --method maple --data pocket:photo --shots 1 --epochs 1 --out maple";
    let deep = home.run(&format!("{few} {MODEL}"));
    assert!(said(&deep).contains("4 layers in common"), "its towers are small");
    let small = "--set maple.depth=2 --set maple.words=\"\"";
    home.json(&format!("{few} {small} {MODEL}"));
    let tuned = "--prompt maple/prompt.safetensors --method zero-shot --out tuned";
    let tuned = home.json(&format!("{EVAL} {tuned} {MODEL}"));
    assert!(top1(&tuned) > 0.45, "{tuned}");
    // The embedded ResNet cannot carry visual prompts.
    home.refused(few);
}

#[test]
fn the_other_commands_know_it_too() {
    let home = Home::new();
    let adapted = home.json(&format!("{EVAL} --method stss --out adapted {MODEL}"));
    assert!(top1(&adapted) > 0.5, "{adapted}");
    home.json("pocket export photos --count 2");
    let answers = home.json(&format!("predict photos --classes cat,fish,lamp {MODEL}"));
    assert_eq!((&answers["model"], answers["results"].as_array().unwrap().len()), (&"pocket-vit".into(), 2));
    let shown = home.json("models show pocket-vit");
    assert_eq!(shown["config"]["embed_dim"], 128, "{shown}");
}
