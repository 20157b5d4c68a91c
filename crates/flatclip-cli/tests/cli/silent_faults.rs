//! Faults that were silent once: two prompts of one name, two processes in one run, needs that are not met, names that promise.

use super::common::{Home, entries, said};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Two tuning runs whose directories have the same last name.
fn two_prompts() -> Home {
    let home = Home::new();
    for (place, seed) in [("a/tuned", "1"), ("b/tuned", "2")] {
        let tune = "tune --method coop --data pocket:photo:train:64 --shots 1 --epochs 2";
        let rest = format!("--set coop.words= --set coop.n_ctx=2 --seed {seed} --out {place}");
        home.works(&format!("{tune} {rest}"));
    }
    home
}

const LANDSCAPE: &str = "landscape --data pocket:photo:train:64 --shots 1 --points 3";

#[test]
fn prompts_of_one_name_keep_their_own_landscapes() {
    let home = two_prompts();
    let both = "--prompt a/tuned --prompt b/tuned --out both --json";
    home.works(&format!("{LANDSCAPE} {both}"));
    let files = entries(&home.path("both")).into_iter();
    let tables = files.filter(|path| path.extension().is_some_and(|ending| ending == "csv"));
    let tables: Vec<Vec<u8>> = tables.map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(tables.len(), 2, "one file for each prompt");
    assert_ne!(tables[0], tables[1]);
}

#[test]
fn rows_of_a_stopped_landscape_are_taken_only_for_the_same_prompt() {
    let home = two_prompts();
    let alone = |prompt: &str, out: &str| {
        let found = home.json(&format!("{LANDSCAPE} --prompt {prompt} --out {out} --force"));
        found["results"][0]["surface"]["values"].clone()
    };
    let expected = alone("b/tuned", "whole");
    // What a kill leaves behind: rows of the prompt in a/, under the name that b/ has, too.
    let rows = alone("a/tuned", "stopped");
    let rows: Vec<Value> = rows.as_array().unwrap().iter().map(|row| json!([row])).collect();
    let kept = json!({ "key": "of a/tuned", "settings": "of a/tuned", "rows": &rows[..2] });
    std::fs::write(home.path("stopped/tuned.partial.json"), kept.to_string()).unwrap();
    assert_eq!(alone("b/tuned", "stopped"), expected);
}

/// Waits until a file is there.
fn wait_for(path: &Path, child: &mut Child) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "{} did not appear", path.display());
        assert!(child.try_wait().unwrap().is_none(), "the run ended early");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_second_process_is_kept_out_of_an_evaluation() {
    let home = Home::new();
    let eval = "eval --data pocket:photo:test:4000 --method zero --views 16 --out run";
    let mut first = home.command(eval).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(&home.path("run/predictions.jsonl"), &mut first);
    let second = home.run(&format!("{eval} --resume"));
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(said(&second).contains("another process"), "{}", said(&second));
}

#[test]
fn unmet_needs_are_told_once_and_before_any_image() {
    let said = Home::with_photos(4).refused("predict photos --classes cat,dog --method promptalign");
    assert_eq!(said.matches("promptalign").count(), 1, "{said}");
}

#[test]
fn predict_takes_options_in_the_forms_of_eval() {
    let home = Home::with_photos(1);
    let kept = |setting: &str| {
        let stss = "predict photos --classes cat,dog --method stss --views 10";
        let json = home.json(&format!("{stss} --set {setting}"));
        json["results"][0]["selected_views"].as_array().unwrap().len()
    };
    assert_eq!((kept("fraction=0.5"), kept("stss.fraction=0.5")), (5, 5));
}

#[test]
fn fga_without_a_sapt_prompt_is_said_and_recorded_as_what_ran() {
    let home = Home::new();
    let eval = "eval --data pocket:photo:test:4 --method fga --views 4 --out run --json";
    let output = home.run(eval);
    assert!(said(&output).contains("template + stss"), "{}", said(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["runs"][0]["summary"]["method"], "stss");
}

#[test]
fn a_prompt_of_another_model_is_refused_unless_meant() {
    let home = two_prompts();
    home.works("pocket export photos --count 1");
    let predict = "predict photos --classes cat,dog --prompt a/tuned --model pocket-vit";
    home.refused_with(predict, "--any-model");
    let meant = home.run(&format!("{predict} --any-model"));
    assert!(!said(&meant).contains("was learned with the weights"), "{}", said(&meant));
}
