//! The table, as a page of the documentation.

use super::groups::{Goal, Group};
use super::turns::Turn;
use super::{Options, Times};
use serde_json::Value;

const NO_TILES: &str = "needs AMX, not on this CPU";

/// The whole page.
pub(super) fn page(
    results: &[(&Group, Option<Times>)],
    options: &Options,
    arguments: &[String],
    versions: &Value,
) -> String {
    let mut page = format!(
        "# Benchmarks\n\nflatclip and its peers on the same machine in the same run: each side once, and again, {} times after \
         one that does not count, {} threads unless a row says one. {} views per image, random weights of the real shapes. \
         Seconds are medians (fastest in brackets). The ratio is that of the medians (of the fastest): of the peer's time \
         to ours, so above 1 flatclip is faster, unless a row says otherwise.\n\n",
        options.repeats, options.threads, options.views
    );
    page += &format!(
        "{}: `cargo xtask bench-peers {}`. {}. {}. Peers: {}{}.\n\n",
        output_of("date", &["-u", "+%Y-%m-%d"]),
        without_paths(arguments).join(" "),
        cpu(),
        load(),
        versions["versions"].as_str().unwrap_or("unknown versions"),
        if options.preload.is_some() { ", with a library preloaded that answers hidden CPUID leaves" } else { "" },
    );
    page += "| work | flatclip s | other s | ratio | goal |\n|---|---|---|---|---|\n";
    for (group, times) in results {
        page += &rows(group, times.as_ref());
    }
    page += "\n| memory | peak RSS, weights included | goal |\n|---|---|---|\n";
    for (group, times) in results {
        for memory in group.memory {
            let peak = times.as_ref().and_then(|times| peak(times.get(memory.side)?.as_ref().ok()?));
            let shown = peak.map_or_else(|| NO_TILES.to_owned(), |gb| format!("{gb:.2} GB"));
            let verdict = peak.map_or("", |gb| if gb <= memory.limit { "" } else { " (missed)" });
            page += &format!("| {} | {shown} | <= {} GB{verdict} |\n", memory.title, memory.limit);
        }
    }
    page += "\nOurs are cases of `flatclip bench`, the peers' the functions of `tools/peers.py`. torch runs with glibc's \
             allocator told to keep its memory and to use huge pages, which helps it, unless a row says \"as installed\".\n";
    page
}

/// What people wrote behind the tables of an earlier page: it stays.
pub(super) fn notes_of(page: &str) -> &str {
    page.find("\n## Notes").map_or("", |at| &page[at..])
}

fn rows(group: &Group, times: Option<&Times>) -> String {
    let mut lines = String::new();
    let mut ratios = Vec::new();
    for row in group.rows {
        let Some(times) = times else {
            lines += &format!("| {} | | {NO_TILES} | | {} |\n", row.title, goal(row.goal, None));
            continue;
        };
        let (under, over) = match (&times[row.under], &times[row.over]) {
            (Ok(under), Ok(over)) => (under, over),
            (Err(reason), _) | (_, Err(reason)) => {
                let reason = reason.replace(['|', '\n'], " ");
                lines += &format!("| {} | | could not run: {reason} | | {} |\n", row.title, goal(row.goal, None));
                continue;
            }
        };
        let measure = |turns: &[Turn]| -> Vec<f64> {
            let rate = |turn: &Turn| turn.gflop.map_or(f64::NAN, |gflop| gflop / turn.seconds);
            turns.iter().map(|turn| if row.rates { rate(turn) } else { turn.seconds }).collect()
        };
        let (under, over) = (measure(under), measure(over));
        let best = |values: &[f64]| if row.rates { largest(values) } else { smallest(values) };
        let unit = if row.rates { " GFLOP/s" } else { "" };
        let digits = if row.rates { 0 } else { 3 };
        let ratio = median(&over) / median(&under);
        ratios.push(ratio);
        lines += &format!(
            "| {} | {:.digits$}{unit} ({:.digits$}) | {:.digits$}{unit} ({:.digits$}) | {ratio:.2} ({:.2}) | {} |\n",
            row.title,
            median(&under),
            best(&under),
            median(&over),
            best(&over),
            best(&over) / best(&under),
            goal(row.goal, Some(ratio)),
        );
    }
    if let Some((title, wanted)) = group.median {
        let found = (!ratios.is_empty()).then(|| median(&ratios));
        let shown = found.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let note = if times.is_none() { NO_TILES } else { "" };
        lines += &format!("| {title} | | {note} | {shown} | {} |\n", goal(wanted, found));
    }
    lines
}

fn goal(goal: Goal, found: Option<f64>) -> String {
    let (text, met) = match goal {
        Goal::None => return String::new(),
        Goal::AtLeast(least) => (format!(">= {least}"), found.is_none_or(|found| found >= least)),
        Goal::AtMost(most) => (format!("<= {most}"), found.is_none_or(|found| found <= most)),
    };
    if met { text } else { format!("{text} (missed)") }
}

fn peak(turns: &[Turn]) -> Option<f64> {
    let peaks: Vec<f64> = turns.iter().filter_map(|turn| turn.peak_rss_mb).collect();
    (!peaks.is_empty()).then(|| largest(&peaks) / 1000.0)
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    if values.is_empty() { f64::NAN } else { (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0 }
}

fn smallest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// The options that change numbers; where a virtual environment lies does not.
fn without_paths(arguments: &[String]) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let names =
            |option: &str| word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
        if ["--venv", "--preload", "--tower", "--photos"].into_iter().any(names) {
            if !word.contains('=') {
                words.next();
            }
        } else {
            kept.push(word);
        }
    }
    kept
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |key: &str| {
        info.lines().find_map(|line| line.strip_prefix(key)?.split_once(": ").map(|(_, value)| value.to_owned()))
    };
    let name = field("model name").unwrap_or_else(|| "unknown CPU".to_owned());
    let family = field("cpu family").zip(field("model\t")).map(|(f, m)| format!(" (family {f}, model {m})"));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{name}{}, {cores} cores, kernels for {}", family.unwrap_or_default(), flatclip_tensor::isa::detect())
}

/// A busy machine distorts measurements: say how busy it was.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("Load average at the end {}", load.split_whitespace().nth(1).unwrap_or("unknown"))
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output();
    output.map_or_else(|_| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_goal_is_marked_and_paths_stay_out_of_the_page() {
        assert_eq!(goal(Goal::AtLeast(1.5), Some(1.4)), ">= 1.5 (missed)");
        assert_eq!(goal(Goal::AtMost(1.03), Some(1.01)), "<= 1.03");
        assert_eq!(median(&[3.0, 1.0, 2.0, 10.0]), 2.5);
        let words = ["--venv", "/somewhere", "--quick", "--preload=/x.so", "--write"].map(str::to_owned);
        assert_eq!(without_paths(&words), ["--quick", "--write"]);
        assert_eq!(notes_of("# A\n\nold table\n\n## Notes\n\nkept\n"), "\n## Notes\n\nkept\n");
    }
}
