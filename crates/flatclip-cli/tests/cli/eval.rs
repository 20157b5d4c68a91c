//! `flatclip eval`, `report`, `sweep`, `data` and `cache`, run as a user runs them, on the embedded model and data.

use super::common::Home;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const SMALL: &str = "eval --data pocket:photo:test:24 --views 4";

fn bytes(run: &Path) -> Vec<Vec<u8>> {
    ["config.toml", "run.json", "classes.txt", "predictions.jsonl", "summary.json"]
        .map(|name| std::fs::read(run.join(name)).unwrap())
        .to_vec()
}

#[test]
fn a_second_method_encodes_nothing_and_reports_show_both() {
    let home = Home::new();
    let both = home.json(&format!("{SMALL} --method zero,stss --out runs"));
    assert_eq!(both["runs"][0]["timing"]["cached"], 0);
    assert_eq!(both["runs"][1]["timing"]["cached"], 24);
    assert_eq!(both["runs"][1]["timing"]["encode_session"], 0.0);
    let report = home.json("report runs --paired --against paper --html report.html");
    assert_eq!(report["runs"].as_array().unwrap().len(), 2);
    assert!(home.text("report.html").contains("<svg"));
    let kept = home.json("cache ls");
    assert_eq!(kept["entries"][0]["samples"], 24);
    assert!(home.json("cache rm --all")["freed_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn a_report_names_the_classes_that_a_run_confuses() {
    let home = Home::new();
    home.json("eval --data pocket:hard:test:64 --method zero-shot --views 1 --out run");
    let report = home.json("report run --confusion 3 --html report.html");
    let table = &report["tables"][2];
    let times = |row: usize| table["rows"][row][2]["value"].as_f64().unwrap();
    assert_eq!(table["rows"].as_array().unwrap().len(), 3);
    assert!(times(0) >= times(1) && times(1) >= times(2) && times(2) >= 1.0, "{table}");
    let name = table["rows"][0][0]["text"].as_str().unwrap();
    assert!(flatclip_pocket::CLASS_NAMES.contains(&name), "{name}");
    let page = home.text("report.html");
    assert!(page.contains("<summary>Confusions") && page.contains(">butterfly</text>"));
}

#[test]
fn shards_merge_to_the_bytes_of_one_run() {
    let home = Home::new();
    home.json(&format!("{SMALL} --method mta --out whole"));
    for shard in ["0/3", "1/3", "2/3"] {
        home.json(&format!("{SMALL} --method mta --out parts --shard {shard}"));
    }
    let part = |i: usize| format!("parts/shard-{i:04}-of-0003");
    home.refused(&format!("report merge {} {} --out gap", part(0), part(2)));
    home.json(&format!("report merge {} {} {} --out merged", part(0), part(1), part(2)));
    assert_eq!(bytes(&home.path("merged")), bytes(&home.path("whole")));
}

#[test]
fn a_killed_run_resumes_without_loss_or_repetition() {
    let home = Home::new();
    let args = |out: &str| format!("eval --data pocket:hard:test:200 --views 8 --method zero --no-cache --out {out}");
    let mut child = home.command(&args("killed")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (log, start) = (home.path("killed/predictions.jsonl"), Instant::now());
    while std::fs::metadata(&log).map_or(0, |meta| meta.len()) == 0 && start.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    home.refused_with(&args("killed"), "--resume");
    home.json(&format!("{} --resume", args("killed")));
    home.json(&args("whole"));
    assert_eq!(bytes(&home.path("killed")), bytes(&home.path("whole")));
}

#[test]
fn a_sweep_has_a_cell_for_every_combination() {
    let home = Home::new();
    let sweep = "sweep --data pocket:photo:test:16 --views 4 --out grid";
    let axes = "--set stss.radius=0..0.4:0.2 --set stss.fraction=0.25,1.0 --set stss.perturbations=2";
    let result = home.json(&format!("{sweep} {axes}"));
    assert_eq!(result["sweeps"][0]["table"]["rows"].as_array().unwrap().len(), 6);
    assert!(home.path("grid/figure-1.svg").is_file() && home.path("grid/report.html").is_file());
}

#[test]
fn wrong_use_is_exit_code_two_and_says_what_to_do() {
    let home = Home::new();
    for (line, word) in [
        ("eval --data nowhere --out x", "folder:DIR"),
        ("eval --data pocket:moon --out x", "sketch"),
        ("eval --data pocket:photo --method magic --out x", "stss"),
        ("eval --data pocket:photo:test:4 --method tda --shard 0/2 --out x", "online"),
        ("eval --data pocket:photo:test:4 --method stss --set radios=1 --out x", "radios"),
        ("data check", "--data-root"),
        ("report .", "not a run directory"),
    ] {
        home.refused_with(line, word);
    }
}

#[test]
fn data_check_tells_what_is_there_and_counts_what_is_not() {
    let home = Home::new();
    let folder = home.path("root/imagenet-a/n01498041");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("x.jpg"), b"x").unwrap();
    let output = home.run("data check --data-root root");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("1 of 7500") && text.contains("TPT layout") && text.contains("Kaggle"), "{text}");
}
