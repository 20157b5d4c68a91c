//! `analyze` and `landscape`: which images, which radius, and how every number says how it was found.

use super::common::{Home, read_json, said};
use serde_json::Value;

/// Folders are read class by class: the first images would be of a few classes, and a set of the same world would look far away.
#[test]
fn a_limit_is_spread_over_the_classes_and_a_set_of_the_same_world_is_near() {
    let home = Home::new();
    home.works("-q pocket export photos --count 640");
    let line = "-q analyze --near folder:photos --far pocket:sketch --train pocket:photo --shots 4";
    let found = home.json(&format!("{line} --limit 100 --out a"));
    assert_eq!((&found["near"]["classes_covered"], &found["near"]["classes"]), (&32.into(), &32.into()));
    let limit = found["theory"]["divergence"][0]["limit"].as_f64().unwrap();
    assert_eq!(limit, 0.0, "photos like those that training images are drawn from");
    let text = home.works(&format!("{line} --limit 4 --out a"));
    assert!(text.contains("4 of 32"), "{text}");
}

#[test]
fn scores_and_training_loss_have_one_radius() {
    let home = Home::new();
    let line = "-q analyze --limit 8 --shots 1 --out a";
    let at = |options: &str| home.json(&format!("{line} {options}"));
    let radius = |found: &Value| found["bound"]["worst_case"]["radius"].as_f64().unwrap();
    let score = |found: &Value| found["near"]["mean_score"].as_f64().unwrap();
    let (plain, alias, rho) = (at(""), at("--set rho=1"), at("--rho 1"));
    assert_eq!((radius(&plain), radius(&alias), radius(&rho)), (0.5, 1.0, 1.0));
    assert_eq!(score(&alias), score(&rho), "--rho is the radius of the scores too");
    assert!(score(&alias) != score(&plain));
    let relative = at("--set radius=0.2 --set radius_unit=relative");
    let share = relative["relative_radius"].as_f64().unwrap();
    assert!((share - 0.2).abs() < 1e-6 && radius(&relative) != 0.2, "{share} {}", radius(&relative));
    for (options, word) in [
        ("--rho 1 --set radius=0.5", "one radius for both sides"),
        ("--set lambda=0.5", "stss.lambda: expected 1, found 0.5"),
        ("--set norm=per-token", "stss.norm"),
        ("--eta 0.5", "eta: "),
        ("--ascent-images 0", "ascent images: "),
        ("--class-radius far", "class radius: expected rho, tuned"),
        ("--class-radius tuned", "start is not known"),
    ] {
        let output = home.run(&format!("{line} {options}"));
        let message = said(&output);
        assert!(!output.status.success() && message.contains(word), "{options}: {message}");
    }
}

#[test]
fn every_term_is_labelled_and_the_claim_stands_beside_its_controls() {
    let home = Home::new();
    let text = home.works("-q analyze --limit 96 --shots 2 --ascent-images 8 --out a");
    for word in [
        "bounds from",
        "lower estimates of H^rho",
        "near against near",
        "entropy alone, radius 0",
        "ascent with 6 steps",
        "2 mu R_n, as Theorem 4 is printed",
        "2 sqrt(2) mu R_n",
        "VACUOUS",
        "ln K",
        "standard error",
        "depends on the data",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let found = read_json(home.path("a/analysis.json"));
    let number = |path: &str| found.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}"));
    assert!((number("/bound/loss_bound") - 1e4f64.ln()).abs() < 1e-9);
    assert!(number("/bound/worst_case/per_image") <= number("/bound/loss_bound"));
    assert!(number("/near/worst_entropy/ascent") >= number("/near/worst_entropy/random"));
    let r = number("/theory/rademacher/estimate");
    assert!(r > 0.0 && number("/theory/rademacher/standard_error") <= 0.1 * r, "{}", found["theory"]);
    let gaps = |place: usize| number(&format!("/ordering/claims/{place}/gap"));
    assert!((gaps(0) - gaps(1) - number("/ordering/difference")).abs() < 1e-12);
    assert_eq!(found["holds"], found["ordering"]["claims"][0]["holds"]);
    // The nearer set against itself shows nothing.
    let same = home.json("-q analyze --far pocket:photo --limit 64 --shots 2 --ascent-images 8 --out b");
    assert_eq!((&same["holds"], &same["ordering"]["claims"][2]["holds"]), (&false.into(), &false.into()));
}

#[test]
fn the_class_of_functions_can_reach_as_far_as_tuning_moved() {
    let home = Home::new();
    home.works("-q tune --data pocket:photo --shots 1 --set train.epochs=2 --out run");
    let summary = read_json(home.path("run/summary.json"));
    let line = "-q analyze --prompt run --limit 8 --shots 1 --ascent-images 2 --class-radius tuned --out a";
    let found = home.json(line);
    assert_eq!(found["theory"]["rademacher"]["radius"], summary["distance"]["moved"]);
    assert_eq!(found["class_radius"], "the distance that tuning moved");
}

#[test]
fn a_landscape_saves_its_directions_and_tells_the_spread_between_planes() {
    let home = Home::new();
    let line = "-q landscape --data pocket:photo --shots 1 --points 3";
    let found = home.json(&format!("{line} --planes 3 --out l"));
    assert!(found["largest_cosine"].as_f64().unwrap() < 1e-5, "{}", found["largest_cosine"]);
    let flatness = &found["results"][0]["flatness"];
    assert_eq!(flatness["planes"], 3);
    assert!(flatness["found_by"].as_str().unwrap().contains("3 random planes"));
    assert!(flatness["rings"][2]["largest_spread"].as_f64().unwrap() > 0.0, "{flatness}");
    let bytes = std::fs::read(home.path("l").join(found["directions"].as_str().unwrap())).unwrap();
    let header = String::from_utf8_lossy(&bytes[8..8 + bytes[0] as usize + 256 * bytes[1] as usize]).into_owned();
    for name in ["a-photo-of-a.seed-1.x", "a-photo-of-a.seed-3.y"] {
        assert!(header.contains(name), "no {name} in {header}");
    }
    let one = home.json(&format!("{line} --planes 1 --out m"));
    assert_eq!(one["results"][0]["surface"], found["results"][0]["surface"], "the surface shows the first plane");
    assert!(one["results"][0]["flatness"]["rings"][0].get("mean_spread").is_none());
    assert!(!home.run(&format!("{line} --planes 0 --out n")).status.success());
    assert!(home.works(&format!("{line} --out o")).contains("found on 5 random planes"));
}
