//! `flatclip stats` and what needs it: a maple prompt, its source statistics, PromptAlign, on a small random ViT.

use super::common::{Home, in_repository, read_json, said};
use flatclip::model::{ClipConfig, ImageConfig, TextConfig, TextForm, VitForm};
use flatclip::weights::{random_of, save_canonical};
use serde_json::Value;
use std::process::Output;

/// A folder with a model in it, which commands load where they name none.
fn home() -> Home {
    let home = Home::new();
    let image = ImageConfig::Vit { width: 64, layers: 4, heads: 1, patch: 16, mlp: 256, form: VitForm::CLIP };
    let (context_length, vocab, form) = (77, 49_408, TextForm::CLIP);
    let text = TextConfig { width: 64, layers: 4, heads: 1, context_length, vocab, mlp: 256, form };
    let released = ClipConfig::named("ViT-B-16").unwrap();
    let config = ClipConfig { embed_dim: 32, image_size: 32, image, text: Some(text), ..released };
    save_canonical(&random_of(&config, 1), &home.path("vit.safetensors")).unwrap();
    home
}

fn run(home: &Home, line: &str) -> Output {
    home.command(line).arg("--json").env("FLATCLIP_MODEL", "vit.safetensors").output().unwrap()
}

fn json(home: &Home, line: &str) -> Value {
    let output = run(home, line);
    assert!(output.status.success(), "{line}: {}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

const EVAL: &str = "eval --data pocket:sketch:test:3 --views 10 --prompt maple --max-errors";

#[test]
fn promptalign_runs_from_the_command_line() {
    let home = home();
    let train = "pocket:photo:train:96";
    json(
        &home,
        &format!(
            "tune --method maple --data {train} --shots 1 --allow-fewer --epochs 1 --set maple.depth=3 --out maple"
        ),
    );

    // What is missing is said, with the command that makes it.
    let without = run(&home, &format!("{EVAL} 0 --method promptalign --out without"));
    assert_eq!(without.status.code(), Some(2));
    assert!(said(&without).contains("flatclip stats") && said(&without).contains("--statistics"), "{}", said(&without));
    assert!(said(&without).contains("\"method.needs\""), "{}", said(&without));

    let made = json(&home, &format!("stats --data {train} --shots 1 --prompt maple --out source.safetensors"));
    assert_eq!((&made["blocks"], &made["tokens"], &made["width"]), (&4.into(), &7.into(), &64.into()));
    assert!(made["origin"]["images"].as_u64().unwrap() > 10);
    let with = "--statistics source.safetensors";
    let answered = json(&home, &format!("{EVAL} 0 {with} --method promptalign --out run"));
    assert_eq!(answered["runs"][0]["summary"]["samples"], 3);
    let record = read_json(home.path("run/run.json"));
    assert_eq!(record["statistics"].as_str().unwrap().len(), 16);

    // `all` leaves out what a maple prompt cannot serve, and says why.
    // With random weights dlae and adte refuse the images (negative cosines, one class), which are counted.
    let all = run(&home, &format!("{EVAL} 3 {with} --method all --out all"));
    assert_eq!(all.status.code(), Some(1), "{}", said(&all));
    for (method, reason) in [("tpt", "templates, learned or cocoop prompts"), ("difftpt", "prompts")] {
        let line =
            said(&all).lines().find(|line| line.starts_with(&format!("{method} is skipped"))).unwrap().to_owned();
        assert!(line.contains(reason), "{line}");
    }
    let runs: Value = serde_json::from_slice(&all.stdout).unwrap();
    let methods: Vec<&str> =
        runs["runs"].as_array().unwrap().iter().map(|run| run["summary"]["method"].as_str().unwrap()).collect();
    assert!(methods.contains(&"promptalign") && methods.contains(&"zero") && !methods.contains(&"tpt"), "{methods:?}");

    // One image; statistics of the plain tower do not fit the prompt's tokens.
    json(&home, "pocket export images --count 1");
    let predict = "predict images --classes cat,dog --method promptalign --prompt maple --views 8";
    assert_eq!(json(&home, &format!("{predict} {with}"))["results"][0]["top"].as_array().unwrap().len(), 2);
    json(&home, &format!("stats --data {train} --shots 1 --out plain.safetensors"));
    let other = run(&home, &format!("{predict} --statistics plain.safetensors"));
    assert!(
        said(&other).contains("other visual prompts") && said(&other).contains("compute them again"),
        "{}",
        said(&other)
    );
}

#[test]
fn published_statistics_are_imported_and_wrong_use_is_told() {
    let home = home();
    let fixture = |name: &str| in_repository("fixtures/torch").join(name).display().to_string();
    let (means, variances) = (fixture("statistics-means.pt"), fixture("statistics-variances.pt"));
    let import = format!("stats --import-means {means} --import-variances {variances} --out in.safetensors");
    let made = json(&home, &import);
    assert_eq!((&made["blocks"], &made["tokens"], &made["width"]), (&2.into(), &3.into(), &4.into()));
    for (line, word) in [
        ("stats --out x", "--data"),
        (&*format!("stats --import-means {means} --out x"), "--import-variances"),
        ("stats --data folder:nowhere --out x", "nowhere"),
        ("stats --data pocket:photo:train:4 --model pocket --out x", "vision transformer"),
    ] {
        let output = run(&home, line);
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(word), "{line}: {}", said(&output));
    }
    assert!(!home.path("x").exists());
}

#[test]
fn every_method_is_measured_in_a_process_of_its_own() {
    let home = home();
    let small = "bench --model vit.safetensors --views 6 --classes 5 --repeats 1 --methods";
    let report = json(&home, &format!("{small} all"));
    let rows = report["methods"].as_array().unwrap();
    let known = json(&home, "methods");
    let adapters = known["methods"].as_array().unwrap().iter().filter(|entry| entry["role"] == "adapter").count();
    // Beside the adapters: encoding alone, and sar on LayerNorms; without adte, which answers a whole set at once.
    assert_eq!(rows.len(), adapters + 1);
    assert_eq!(rows[0]["method"], "encode");
    assert!(rows.iter().all(|row| row["median"].as_f64().unwrap() > 0.0 && row["ratio"].as_f64().unwrap() > 0.0));
    let promptalign = rows.iter().find(|row| row["method"] == "promptalign").unwrap();
    assert_eq!(promptalign["stand_ins"].as_array().unwrap().len(), 2);
    // The embedded model is a ResNet: said, not failed.
    let pocket = "--methods zero,promptalign --model pocket --views 2 --classes 3 --repeats 1";
    let report = json(&home, &format!("bench {pocket}"));
    assert_eq!(report["methods"].as_array().unwrap().len(), 2);
    assert_eq!(report["refused"][0]["method"], "promptalign");
    assert_eq!(run(&home, "bench --methods soap").status.code(), Some(2));
}
