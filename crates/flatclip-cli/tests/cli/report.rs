//! `flatclip report` as a user runs it: order, reference, seeds, times, CSV, temperatures.

use super::common::Home;
use serde_json::Value;
use std::collections::BTreeMap;

/// The rows of a table in CSV, as columns by name.
fn csv(home: &Home, line: &str) -> Vec<BTreeMap<String, String>> {
    let text = home.works(&format!("{line} --format csv"));
    let (header, lines) = text.trim_end().split_once('\n').unwrap();
    let names: Vec<&str> = header.split(',').collect();
    let row = |line: &str| {
        let cells = fields(line);
        assert_eq!(cells.len(), names.len(), "{text}");
        names.iter().map(|name| (*name).to_owned()).zip(cells).collect()
    };
    lines.lines().map(row).collect()
}

/// The fields of a line; commas inside of quotes are no borders.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().unwrap().push(c),
        }
    }
    fields
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} of {row:?}"))
}

fn column<'r>(rows: &'r [BTreeMap<String, String>], name: &str) -> Vec<&'r str> {
    rows.iter().map(|row| row[name].as_str()).collect()
}

#[test]
fn a_label_of_probability_zero_is_no_top5_hit_and_leaves_the_nll_undefined() {
    let home = Home::new();
    let done = home.json("eval --data pocket:hard:test:64 --views 8 --method zero,mta --out runs");
    let log = home.text("runs/zero/predictions.jsonl");
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let listed = |record: &&Value| {
        let top5 = record["answer"]["top5"].as_array().unwrap();
        top5.iter().any(|entry| entry[0] == record["label"] && entry[1].as_f64().unwrap() > 0.0)
    };
    let (hits, zeros) = (
        records.iter().filter(listed).count(),
        records.iter().filter(|record| record["answer"]["label_probability"].as_f64() == Some(0.0)).count(),
    );
    assert!(zeros > 0 && hits < 64, "{zeros} {hits}");
    let metrics = &done["runs"][0]["summary"]["metrics"];
    assert_eq!(metrics["top5"].as_f64().unwrap(), hits as f64 / 64.0);
    assert!(metrics["nll"].is_null() && metrics["infinite_nll"] == zeros, "{metrics}");
    assert_eq!(done["runs"][0]["summary"]["confidence"], "vote-share");
    assert!(done["runs"][1]["summary"]["metrics"]["nll"].is_number());
    let text = home.works("report runs --table runs");
    assert!(text.contains(&format!("undefined ({zeros} infinite)")), "{text}");
    let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("(STSS and ZERO by default) is the share of the selected views"), "{text}");
    let rows = csv(&home, "report runs --table runs --order given");
    assert_eq!(column(&rows, "confidence"), ["probability", "vote share"], "mta before zero, by name");
    assert_eq!(column(&rows, "NLL (infinite)"), ["0", &zeros.to_string()]);
    assert_eq!(rows[1]["NLL"], "");
}

#[test]
fn encoding_is_charged_by_views_and_not_to_whoever_ran_first() {
    for methods in ["zero-shot,zero,stss", "stss,zero,zero-shot"] {
        let home = Home::new();
        let done = home.json(&format!("eval --data pocket:photo:test:24 --views 8 --method {methods} --out runs"));
        let timing = |method: &str| {
            let runs = done["runs"].as_array().unwrap();
            runs.iter().find(|run| run["summary"]["method"] == method).unwrap()["timing"].clone()
        };
        let encode = |method: &str| timing(method)["encode"].as_f64().unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 24.0 * 2e-6;
        assert!(encode("zero") > 0.0 && near(encode("zero"), encode("stss")), "{done}");
        assert!(
            near(8.0 * encode("zero-shot"), encode("zero")),
            "{methods}: {} {}",
            encode("zero-shot"),
            encode("zero")
        );
        assert_eq!((&timing("zero-shot")["views_used"], &timing("zero")["views_used"]), (&1.into(), &8.into()));
        assert_eq!(timing("zero")["encode_session"], 0.0, "it is never the first");
        let rows = csv(&home, "report runs --table runs");
        let of =
            |method: &str| rows.iter().find(|row| row["prompt + method"].ends_with(&format!("+ {method}"))).unwrap();
        let ratio = number(of("zero"), "encode ms") / number(of("zero-shot"), "encode ms");
        assert!((ratio - 8.0).abs() < 0.1, "{ratio}");
        assert!(rows.iter().all(|row| number(row, "adapt ms") > 0.0));
        assert_eq!((of("zero")["views"].as_str(), of("zero-shot")["views"].as_str()), ("8", "1"));
        let line = home.text("runs/zero/timing.jsonl");
        let first: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
        assert!(first["encode"].as_f64().unwrap() > 0.0 && first["adapt"].is_number(), "{first}");
    }
}

#[test]
fn rows_are_in_the_papers_order_or_as_given_and_the_reference_is_chosen() {
    let home = Home::new();
    home.json("eval --data pocket:photo:test:16 --views 4 --method mta,zero-shot,bca,stss --out runs");
    let rows = |line: &str| -> Vec<String> {
        let rows = csv(&home, line);
        column(&rows, "prompt + method").iter().map(|name| name.replace("template + ", "")).collect()
    };
    // The paper has stss with tuned prompts only: behind the others, by name.
    assert_eq!(rows("report runs --table methods"), ["zero-shot", "mta", "bca", "stss"]);
    assert_eq!(rows("report runs --table runs"), ["zero-shot", "mta", "bca", "stss"]);
    let given = "report runs/stss runs/bca runs/zero-shot --order given";
    assert_eq!(rows(&format!("{given} --table methods")), ["stss", "bca", "zero-shot"]);
    assert_eq!(rows(&format!("{given} --table runs")), ["stss", "bca", "zero-shot"]);
    assert!(home.works(&format!("{given} --table methods")).contains("rows as given"));
    assert!(home.works("report runs --table methods").contains("rows in the paper's order"));
    let firsts = |line: &str| -> Vec<String> {
        column(&csv(&home, line), "first").iter().map(|name| (*name).to_owned()).collect()
    };
    assert_eq!(firsts("report runs --paired --table paired"), ["template + zero-shot"; 3]);
    for word in ["bca", "template~+~bca", "runs/bca", "./runs/bca"] {
        assert_eq!(firsts(&format!("report runs --reference {word} --table paired")), ["template + bca"; 3], "{word}");
    }
    let said = home.refused("report runs --reference sapt");
    assert!(said.contains("found `sapt`") && said.contains("template + stss"), "{said}");
    home.refused_with("report runs --reference template", "names 4 rows");
}

#[test]
fn a_single_run_has_its_main_table_and_every_number_a_column() {
    let home = Home::new();
    home.json("eval --data pocket:photo:test:16 --views 4 --method stss --seeds 0,1,2 --out runs");
    let one = home.json("report runs/seed-0 --html one.html");
    assert_eq!(one["tables"][0]["title"], "Methods by data sets");
    assert!(home.text("one.html").contains("Methods by data sets"));
    let rows = csv(&home, "report runs --table methods");
    let deviation = number(&rows[0], "Avg. (standard deviation)");
    // Digits beyond the two that are printed.
    assert_eq!(deviation, number(&rows[0], "pocket:photo (standard deviation)"));
    assert_eq!(number(&rows[0], "Avg. (seeds)"), 3.0);
    let seeds: Vec<f64> = csv(&home, "report runs --table runs").iter().map(|row| number(row, "top-1")).collect();
    let mean = seeds.iter().sum::<f64>() / 3.0;
    let expected = (seeds.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    assert!((deviation - expected).abs() < 1e-12, "{deviation} {expected}");
    let text = home.works("report runs --table methods");
    assert!(text.contains(&format!("{mean:.2} ± {expected:.2}  {mean:.2} ± {expected:.2}")), "{text}");
    assert!(text.replace("\n  ", " ").contains("sample standard deviation (n-1)"), "{text}");
}

#[test]
fn prompts_tuned_alike_but_for_the_seed_are_one_row() {
    let home = Home::new();
    for (name, options) in [("one", "--seed 1"), ("two", "--seed 2"), ("other", "--seed 1 --set train.epochs=2")] {
        let epochs = if options.contains("epochs") { "" } else { " --epochs 1" };
        home.json(&format!("tune --method coop --data pocket:photo:train:64 --shots 1{epochs} {options} --out {name}"));
    }
    let prompts = "--prompt one --prompt two --prompt other";
    home.json(&format!("eval --data pocket:photo:test:32 --views 1 --method zero-shot {prompts} --out runs"));
    let rows = csv(&home, "report runs/one runs/two --table methods");
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((rows[0]["prompt + method"].as_str(), number(&rows[0], "Avg. (seeds)")), ("coop + zero-shot", 2.0));
    let rows = csv(&home, "report runs --table runs");
    assert_eq!(column(&rows, "prompt seed"), ["1", "1", "2"], "by the folders' names: one, other, two");
    assert_eq!(csv(&home, "report runs --table methods").len(), 2, "other settings are another row");
}

#[test]
fn a_temperature_is_fitted_on_other_samples_and_nothing_but_the_split_differs() {
    let home = Home::new();
    let eval = |data: &str, rest: &str, out: &str| {
        home.json(&format!(
            "eval --data pocket:photo:{data} --views 4 --method mta --keep-probabilities {rest} --out {out}"
        ))
    };
    eval("test:32", "", "test");
    eval("validation:32", "", "held");
    eval("test:32", "--limit 12", "part");
    eval("test:32", "--order-seed 3", "order");
    eval("validation:32", "--set mta.lambda_q=2", "options");
    let rows = csv(&home, "report test --fit-temperature held --table temperature");
    assert!(number(&rows[0], "T") > 0.0 && number(&rows[0], "NLL at T").is_finite());
    home.refused_with(
        "report test --fit-temperature part --table temperature",
        "12 of the 12 of part are samples of test",
    );
    home.refused_with("report test --fit-temperature order --table temperature", "order_seed was 3, now nothing");
    let said = home.refused("report test --fit-temperature options --table temperature");
    assert!(said.contains("nothing but the split") && said.contains("lambda_q"), "{said}");
}
