//! What a newcomer types first, run as the README prints it: pocket, predict, embed, landscape, analyze, demo.

use super::common::{Home, entries, read_json, said};

fn fails(home: &Home, line: &str) -> String {
    let output = home.run(line);
    // 3: the images cannot be read.
    assert!(matches!(output.status.code(), Some(2 | 3)), "{line}");
    said(&output)
}

const CLASSES: &str = "fish,lamp,snail,boat,clock,bicycle,butterfly,airplane";

#[test]
fn a_folder_of_images_is_classified() {
    let home = Home::with_photos(8);
    let json = home.json(&format!("predict photos --classes {CLASSES}"));
    let rows = json["results"].as_array().unwrap();
    let right = |row: &&serde_json::Value| row["image"].as_str().unwrap().contains(row["prediction"].as_str().unwrap());
    assert_eq!(rows.len(), 8);
    let known = rows.iter().filter(right).count();
    assert!(known >= 5, "only {known} of 8 right: {json}");
    let sum: f64 = rows[0]["top"].as_array().unwrap().iter().map(|t| t["probability"].as_f64().unwrap()).sum();
    assert!(sum > 0.5 && sum < 1.0 + 1e-5);
    let table = home.works(&format!("predict photos --classes {CLASSES}"));
    assert!(table.contains("probability") && table.contains("photos/fish"), "{table}");
}

#[test]
fn an_answer_is_explained_and_repeats() {
    let home = Home::with_photos(8);
    let image = entries(&home.path("photos/fish"))[0].display().to_string();
    let arguments = format!("predict {image} --classes {CLASSES} --method stss --explain views.png");
    let first = home.works(&arguments);
    assert!(first.contains("6 of 64 views selected"), "{first}");
    assert_eq!(first, home.works(&format!("{arguments} --threads 1")));
    assert!(std::fs::read(home.path("views.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn features_of_texts_and_images_are_unit() {
    let home = Home::with_photos(8);
    for input in ["embed --text a~photo~of~a~cat.", "embed photos"] {
        let json = home.json(input);
        let row = json["results"][0]["features"].as_array().unwrap();
        let norm: f64 = row.iter().map(|x| x.as_f64().unwrap().powi(2)).sum();
        assert!((norm - 1.0).abs() < 1e-4, "{norm}");
    }
}

#[test]
fn wrong_use_is_explained() {
    let home = Home::with_photos(8);
    for (line, word) in [
        ("predict photos", "--classes"),
        ("predict absent.jpg --classes a,b", "absent.jpg"),
        ("predict photos --classes a,,b", "class 2"),
        ("predict photos --classes a,b --method stsss", "stss"),
        ("predict photos --classes a,b --model nowhere", "nowhere"),
        ("predict photos --classes a,b --template no~place", "{}"),
        ("embed", "--text"),
        ("landscape --data pocket:photo --points 1", "points"),
        ("analyze --near pocket:moon", "moon"),
        ("eval --data folder:nowhere --out run", "nowhere"),
        ("data check --data-root nowhere", "nowhere"),
    ] {
        let message = fails(&home, line);
        assert!(message.contains(word), "{line}: {message}");
        assert!(message.matches("os error").count() < 2, "said twice: {message}");
    }
}

#[test]
fn a_landscape_and_an_analysis_leave_their_files() {
    let home = Home::new();
    let text = home.works("landscape --data pocket:photo --shots 1 --points 5 --out l");
    assert!(text.contains("mean rise at 0.25"), "{text}");
    let page = home.text("l/landscape.html");
    assert!(page.contains("\"values\":") && !page.contains("/*DATA*/") && !page.contains("http://"), "self-contained");
    let text = home.works("analyze --limit 64 --shots 2 --out a");
    assert!(text.contains("P(score < xi)"), "{text}");
    let json = read_json(home.path("a/analysis.json"));
    let gap = &json["near"]["entropy_gap"];
    assert_eq!((&gap["count"], &gap["holding"]), (&64.into(), &64.into()), "the bound is a theorem");
    let worst = &json["bound"]["worst_case"];
    let term = |name: &str| worst[name].as_f64().unwrap();
    assert!(term("centre") <= term("shared") && term("shared") <= term("per_image"), "{worst}");
    home.works("report l a --html r.html");
    let page = home.text("r.html");
    assert!(page.contains("Landscape (l)") && page.contains("Terms of the bound") && page.matches("<svg").count() >= 3);
}

#[test]
fn the_demo_runs_from_nothing_to_a_report() {
    let home = Home::new();
    let text = home.works("demo --quick");
    let titles = ["1. One image", "2. What views gain", "3. What tuning gains", "4. Where the prompts", "5. The table"];
    for word in titles.iter().chain(&["zero-shot", "CoOp", "FGA", "STSS", "report.html", "flatclip tune"]) {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let report = home.text("flatclip-demo/report.html");
    assert!(report.contains("<svg") && report.contains("data:image/png"), "figures and views");
    let json = read_json(home.path("flatclip-demo/results.json"));
    assert_eq!(json["rows"].as_array().unwrap().len(), 7);
    std::fs::create_dir(home.path("mine")).unwrap();
    std::fs::write(home.path("mine/precious"), "x").unwrap();
    assert!(fails(&home, "demo --quick --out mine").contains("not an earlier demo"));
}
