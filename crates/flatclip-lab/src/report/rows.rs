//! Which runs are one row of a table. Seeds are runs that differ in nothing but the seed, their own or that of their prompt's
//! tuning; whatever else differs on one data set (an option, the prompt's run, precision, views) makes another row, with the
//! differing key in its name.

use super::Run;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that distinguishes two runs on one data set, seeds excepted.
fn traits_of(run: &Run, prompt_run: String) -> BTreeMap<String, String> {
    let (c, p) = (&run.config, &run.provenance);
    let mut traits: BTreeMap<String, String> = BTreeMap::new();
    let mut put = |key: &str, value: String| drop(traits.insert(key.to_owned(), value));
    put("prompt run", prompt_run);
    put("implementation", c.implementation.clone().unwrap_or_default());
    put("model", c.model.clone());
    put("weights", p.weights.chars().take(8).collect());
    put("precision", c.precision.clone());
    put("views", c.views.to_string());
    put("split", c.split.clone());
    put("limit", c.limit.map_or_else(|| "none".into(), |limit| limit.to_string()));
    put("shard", c.shard.map_or_else(|| "none".into(), String::from));
    put("compat", c.compat.join(" "));
    put("text bank", c.bank.join(" | "));
    put("EXIF", if c.exif { "applied" } else { "ignored" }.to_owned());
    // An order that follows the seed is one of the things that a seed draws.
    let order = c.order_seed.filter(|&order| order != c.seed);
    put("order", order.map_or_else(|| "data set's or by seed".into(), |order| format!("seed {order}")));
    put("ISA", p.isa.clone());
    put("decoder", format!("{} {}", p.decoder, p.pixels));
    put("version", p.flatclip.clone());
    for (key, value) in &c.options {
        put(key, value.to_string().trim_matches('"').to_owned());
    }
    traits
}

/// The prompt name of each run. Prompts that were tuned alike but for the seed are the same: the first of them
/// names all. Runs of earlier versions do not say how their prompt was tuned: theirs is its name without the seed, when
/// that is the run's own.
fn prompt_runs(runs: &[Run]) -> Vec<String> {
    let mut tuned: BTreeMap<&str, &str> = BTreeMap::new();
    for run in runs {
        if let Some(tuning) = &run.provenance.prompt_tuning {
            tuned.entry(&tuning.settings).or_insert(&run.config.prompt);
        }
    }
    let of = |run: &Run| match &run.provenance.prompt_tuning {
        Some(tuning) => tuned[tuning.settings.as_str()].to_owned(),
        None => {
            let own = format!("seed-{}", run.config.seed);
            let parts = run.config.prompt.split('/').map(|part| if part == own { "seed" } else { part });
            parts.collect::<Vec<_>>().join("/")
        }
    };
    runs.iter().map(of).collect()
}

/// A name for each run's row: prompt and adapter, and what distinguishes it from others of the same two on the same data set.
pub(crate) fn row_names(runs: &[Run]) -> Vec<String> {
    let prompts = prompt_runs(runs);
    let traits: Vec<BTreeMap<String, String>> = runs.iter().zip(prompts).map(|(run, of)| traits_of(run, of)).collect();
    let bases: Vec<String> = runs.iter().map(Run::row_name).collect();
    let name = |i: usize| {
        let others: Vec<usize> = (0..runs.len()).filter(|&j| bases[j] == bases[i]).collect();
        let mut parts = vec![bases[i].clone()];
        for key in others.iter().flat_map(|&j| traits[j].keys()).collect::<BTreeSet<_>>() {
            let mut seen: BTreeMap<&str, Option<&String>> = BTreeMap::new();
            let varies = others.iter().any(|&j| {
                let value = traits[j].get(key);
                *seen.entry(&runs[j].provenance.dataset).or_insert(value) != value
            });
            if varies {
                parts.push(format!("{key} {}", traits[i].get(key).map_or("absent", String::as_str)));
            }
        }
        parts.join(", ")
    };
    let mut names: Vec<String> = (0..runs.len()).map(name).collect();
    apart(runs, &mut names);
    names
}

/// Two runs of one row with the same seeds on the same data set are no seeds: their folders tell them apart.
fn apart(runs: &[Run], names: &mut [String]) {
    let mut seen = BTreeMap::new();
    let mut twice = BTreeSet::new();
    for (i, run) in runs.iter().enumerate() {
        let key = (names[i].clone(), run.provenance.dataset.clone(), run.seeds());
        if let Some(first) = seen.insert(key, i) {
            twice.extend([first, i]);
        }
    }
    for i in twice {
        names[i] = format!("{}, {}", names[i], runs[i].path.display());
    }
}

/// Every name once, in the order of first appearance: the caller has sorted the runs.
pub(super) fn distinct<'n>(names: impl IntoIterator<Item = &'n String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        if !found.contains(name) {
            found.push(name.clone());
        }
    }
    found
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::order::RowOrder;
    use super::*;
    use crate::eval::Summary;
    use serde_json::{from_value, json};

    pub(in crate::report) fn run(seed: u64, prompt: &str, radius: f64, precision: &str) -> Run {
        let config = json!({
            "method": "stss", "model": "m", "precision": precision, "data": "pocket:hard", "split": "test", "prompt": prompt,
            "seed": seed, "views": { "policy": "crop-flip", "count": 64 }, "options": { "radius": radius },
        });
        let provenance = json!({
            "flatclip": "1", "backbone": "ViT-B-16", "weights": "w", "prompt": "coop", "text_features": format!("t{seed}"),
            "class_names": "c", "classes": 2, "dataset": "pocket:hard", "samples": 0, "stream": "s", "isa": "plain",
            "pixels": "1", "decoder": "d", "notes": [],
        });
        let (config, provenance) = (from_value(config).unwrap(), from_value(provenance).unwrap());
        let summary = Summary::new("pocket:hard", "stss", 2, &[]);
        Run { path: format!("runs/{seed}-{radius}-{precision}").into(), config, provenance, summary, timing: None }
    }

    /// Two radii, two precisions, three seeds, an imported context.
    #[test]
    fn only_seeds_share_a_row_and_what_differs_is_named() {
        let seeds = |radius, precision: &'static str| {
            (1..=3).map(move |seed| run(seed, &format!("prompts/coop/seed-{seed}"), radius, precision))
        };
        let mut runs: Vec<Run> = seeds(0.5, "f32").chain(seeds(1.0, "f32")).chain(seeds(0.5, "bf16")).collect();
        let mut imported = run(1, "coop.pth", 0.5, "f32");
        imported.provenance.prompt_origin = "imported from coop.pth".into();
        runs.push(imported);
        let names = row_names(&runs);
        assert_eq!(names[0], "coop + stss, precision f32, radius 0.5");
        assert_eq!((&names[0], &names[0]), (&names[1], &names[2]));
        assert_eq!(names[3], "coop + stss, precision f32, radius 1.0");
        assert_eq!(names[6], "coop + stss, precision bf16, radius 0.5");
        assert_eq!(names[9], "coop (imported) + stss");
        assert_eq!(distinct(&names).len(), 4);
        let mut plain = run(1, "p", 0.5, "f32");
        (plain.provenance.prompt, plain.config.method) = ("template".into(), "zero-shot".into());
        let [mut foreign, mut other] = [plain.clone(), plain.clone()];
        (foreign.config.method, other.config.method) = ("bca".into(), "adapt".into());
        let mut runs = [foreign, run(1, "p", 0.5, "f32"), other, plain];
        let rows = |runs: &[Run]| distinct(&row_names(runs));
        RowOrder::Given.sort(&mut runs);
        assert_eq!(rows(&runs), ["template + bca", "coop + stss", "template + adapt", "template + zero-shot"]);
        RowOrder::Paper.sort(&mut runs);
        assert_eq!(rows(&runs), ["template + zero-shot", "coop + stss", "template + bca", "template + adapt"]);
    }

    #[test]
    fn prompts_tuned_alike_but_for_the_seed_are_seeds_of_one_row() {
        let tuned = |name: &str, seed: u64, settings: &str| {
            let mut run = run(0, name, 0.5, "f32");
            run.path = format!("runs/{name}").into();
            run.provenance.prompt_tuning = from_value(json!({ "seed": seed, "settings": settings })).unwrap();
            run
        };
        let runs = [tuned("a", 1, "x"), tuned("b", 2, "x"), tuned("c", 3, "x"), tuned("d", 1, "y")];
        let names = row_names(&runs);
        assert_eq!(names[..3], ["coop + stss, prompt run a", "coop + stss, prompt run a", "coop + stss, prompt run a"]);
        assert_eq!(names[3], "coop + stss, prompt run d");
        assert_eq!(row_names(&runs[..3]), ["coop + stss"; 3]);
        // The same seed twice is no seed.
        let twice = [tuned("a", 1, "x"), tuned("b", 1, "x")];
        assert!(row_names(&twice)[1].ends_with("runs/b"), "{:?}", row_names(&twice));
        // One prompt under two seeds of views is one row as well.
        let mut other = tuned("a", 1, "x");
        other.config.seed = 5;
        assert_eq!(row_names(&[tuned("a", 1, "x"), other]), ["coop + stss"; 2]);
    }

    #[test]
    fn a_prompt_of_another_seed_and_a_run_made_twice_are_rows_of_their_own() {
        let names = row_names(&[run(1, "prompts/coop/seed-1", 0.5, "f32"), run(2, "prompts/coop/seed-1", 0.5, "f32")]);
        assert!(names[0] != names[1] && names[1].contains("prompt run prompts/coop/seed-1"), "{names:?}");
        let twice = [run(1, "p", 0.5, "f32"), Run { path: "copy".into(), ..run(1, "p", 0.5, "f32") }];
        let names = row_names(&twice);
        assert!(names[0].ends_with("runs/1-0.5-f32") && names[1].ends_with("copy"), "{names:?}");
        let mut turned = run(1, "p", 0.5, "f32");
        turned.config.exif = true;
        let names = row_names(&[run(1, "p", 0.5, "f32"), turned]);
        assert_eq!(names, ["coop + stss, EXIF ignored", "coop + stss, EXIF applied"]);
        // Another view policy on another data set is no difference: published policies follow the data set.
        let mut other = run(1, "p", 0.5, "f32");
        (other.provenance.dataset, other.config.views.policy) = ("pocket:photo".into(), "augmix".into());
        let names = row_names(&[run(1, "p", 0.5, "f32"), other]);
        assert_eq!(names, ["coop + stss", "coop + stss"]);
    }
}
