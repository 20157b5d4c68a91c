//! Which runs are one row of a table. Seeds are runs that differ in nothing but the seed; whatever else differs on one data set
//! (an option, the prompt's run, precision, views) makes another row, with the differing key in its name.

use super::runs::Run;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that tells two runs on one data set apart, seeds excepted.
fn traits_of(run: &Run) -> BTreeMap<String, String> {
    let (c, p) = (&run.config, &run.provenance);
    let mut traits: BTreeMap<String, String> = BTreeMap::new();
    let mut put = |key: &str, value: String| drop(traits.insert(key.to_owned(), value));
    put("prompt run", prompt_run(run));
    put("model", c.model.clone());
    put("weights", p.weights.chars().take(8).collect());
    put("precision", c.precision.clone());
    put("views", format!("{} x{}", c.views.policy, c.views.count));
    put("split", c.split.clone());
    put("limit", c.limit.map_or_else(|| "none".into(), |limit| limit.to_string()));
    put("shard", c.shard.map_or_else(|| "none".into(), String::from));
    put("compat", c.compat.join(" "));
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

/// The prompt's name without the seed it was tuned with, when that is the run's own seed.
fn prompt_run(run: &Run) -> String {
    let own = format!("seed-{}", run.config.seed);
    let parts = run.config.prompt.split('/').map(|part| if part == own { "seed" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// A name for each run's row: prompt and adapter, and what tells it from others of the same two on the same data set.
pub(crate) fn row_names(runs: &[Run]) -> Vec<String> {
    let traits: Vec<BTreeMap<String, String>> = runs.iter().map(traits_of).collect();
    let bases: Vec<String> = runs.iter().map(Run::row_name).collect();
    let differing = |i: usize| -> BTreeSet<&String> {
        let same = |j: &usize| bases[*j] == bases[i];
        let others: Vec<usize> = (0..runs.len()).filter(same).collect();
        let keys = others.iter().flat_map(|&j| traits[j].keys()).collect::<BTreeSet<_>>();
        let varies = |key: &&String| {
            let mut seen: BTreeMap<&str, Option<&String>> = BTreeMap::new();
            others.iter().any(|&j| {
                let value = traits[j].get(*key);
                let dataset = runs[j].provenance.dataset.as_str();
                *seen.entry(dataset).or_insert(value) != value
            })
        };
        keys.into_iter().filter(varies).collect()
    };
    let mut names: Vec<String> = (0..runs.len())
        .map(|i| {
            let said: Vec<String> = differing(i)
                .into_iter()
                .map(|key| format!("{key} {}", traits[i].get(key).map_or("absent", String::as_str)))
                .collect();
            if said.is_empty() { bases[i].clone() } else { format!("{}, {}", bases[i], said.join(", ")) }
        })
        .collect();
    apart(runs, &mut names);
    names
}

/// Two runs of one row with the same seed on the same data set are no seeds: their folders tell them apart.
fn apart(runs: &[Run], names: &mut [String]) {
    let mut seen: BTreeMap<(String, String, u64), usize> = BTreeMap::new();
    let mut twice = BTreeSet::new();
    for (i, run) in runs.iter().enumerate() {
        let key = (names[i].clone(), run.provenance.dataset.clone(), run.config.seed);
        if let Some(first) = seen.insert(key, i) {
            twice.extend([first, i]);
        }
    }
    for i in twice {
        names[i] = format!("{}, {}", names[i], runs[i].path.display());
    }
}

/// Names of rows in the order in which they first appear.
pub(crate) fn distinct(names: &[String]) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for name in names {
        if !rows.contains(name) {
            rows.push(name.clone());
        }
    }
    rows
}
