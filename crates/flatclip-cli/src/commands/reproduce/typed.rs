//! A plan as the commands that a user would type for it, in the item's folder: so that what they record is what the item
//! records, wherever it lies.

use crate::output::quoted;
use flatclip::prompt::PromptKind;
use flatclip::text::templates::Ensemble;
use flatclip_lab::ViewChoice;
use flatclip_lab::reproduce::{EvaluateWork, LandscapeWork, PromptSource, ReproduceRequest, Step, Work};
use std::path::{Path, PathBuf};

/// The commands of an item.
pub(super) struct Commands<'a> {
    pub(super) request: &'a ReproduceRequest,
    pub(super) model: &'a str,
    /// Options of every command: arithmetic, cache.
    pub(super) shared: Vec<(&'static str, String)>,
}

impl Commands<'_> {
    /// The first of them: into the item's folder.
    pub(super) fn enter(&self) -> String {
        let out = quoted(&self.request.out.display().to_string());
        format!("mkdir -p {out} && cd {out}")
    }

    /// The command of a step, with everything quoted that a shell would break.
    pub(super) fn of(&self, step: &Step) -> String {
        let request = self.request;
        let mut words = Words { out: request.out.clone(), ..Words::default() };
        match &step.work {
            Work::Tune(tune) => {
                words.command("tune").pair("--method", &tune.method).data(&[&tune.data]);
                words.number("--shots", tune.shots).number("--held-out", tune.held_out).pair("--seed", tune.seed);
                words.flag("--allow-fewer", tune.allow_fewer).pair("--max-errors", tune.max_errors);
                if tune.search {
                    words.pair("--search", "radius");
                }
                for (key, value) in tune.overrides.iter().flat_map(|table| settings(table, "")) {
                    words.pair("--set", format!("{key}={value}"));
                }
            }
            Work::Statistics(work) => {
                words.command("stats").data(&[&work.data]).prompt(&work.prompt).pair("--shots", work.shots);
                words.pair("--seed", work.seed).pair("--max-errors", request.max_errors);
            }
            Work::Evaluate(work) => evaluation(&mut words, work, request),
            Work::Sweep(work) => {
                let data: Vec<&String> = work.data.iter().collect();
                words.command("sweep").pair("--method", &work.method).data(&data).prompt(&work.prompt);
                words.policy(work.policy).number("--views", request.views.or(request.recipe.views));
                words.pair("--seed", work.seed);
                words.number("--limit", request.limit.or(request.recipe.limit));
                for axis in &work.axes {
                    words.pair("--set", format!("{}={}", axis.key, axis.values.join(",")));
                }
            }
            Work::Landscape(work) => landscape(&mut words, work),
        }
        self.finish(words, step)
    }

    fn finish(&self, mut words: Words, step: &Step) -> String {
        words.pair("--model", self.model);
        for (flag, value) in &self.shared {
            words.pair(flag, value);
        }
        let open = &self.request.open;
        let places = [("--data-root", &open.root), ("--split-files", &open.split_files)];
        for (flag, place) in places.into_iter().filter_map(|(flag, place)| Some((flag, place.as_ref()?))) {
            words.path(flag, place);
        }
        for (name, path) in &open.paths {
            words.pair("--path", format!("{name}={}", absolute(path).display()));
        }
        for switch in &self.request.compat {
            words.pair("--compat", switch);
        }
        words.path("--out", &out_of(step));
        words.flag("--resume", !matches!(step.work, Work::Landscape(_) | Work::Statistics(_)));
        words.list.join(" ")
    }
}

/// A path that means the same in every folder.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// `eval` puts a shard into a folder of its own, and `stats` writes a file.
fn out_of(step: &Step) -> PathBuf {
    match &step.work {
        Work::Evaluate(EvaluateWork { shard: Some(_), .. }) => step.dir.parent().unwrap_or(&step.dir).to_path_buf(),
        Work::Statistics(_) => step.dir.join("statistics.safetensors"),
        _ => step.dir.clone(),
    }
}

fn evaluation(words: &mut Words, work: &EvaluateWork, request: &ReproduceRequest) {
    words.command("eval").pair("--method", &work.method).data(&[&work.data]).prompt(&work.prompt);
    words.policy(work.policy).number("--views", work.views).pair("--seed", work.seed);
    words.number("--order-seed", work.order_seed).number("--limit", request.limit.or(request.recipe.limit));
    words.number("--max-errors", Some(request.max_errors).filter(|&most| most != EVAL_MAX_ERRORS));
    for (key, value) in settings(&work.options, "") {
        words.pair("--set", format!("{key}={value}"));
    }
    if let Some(folder) = &work.statistics {
        words.path("--statistics", &folder.join("statistics.safetensors"));
    }
    if let Some(folder) = request.generated.as_ref().filter(|_| work.method == "difftpt") {
        words.path("--generated", folder);
    }
    if let Some(shard) = work.shard {
        words.pair("--shard", String::from(shard));
    }
}

/// Unreadable samples at which `eval` stops by default.
const EVAL_MAX_ERRORS: usize = 100;

fn landscape(words: &mut Words, work: &LandscapeWork) {
    words.command("landscape");
    for (name, source) in &work.prompts {
        match source {
            PromptSource::Tuned(path) | PromptSource::File(path) => {
                let path = words.inside(path);
                words.pair("--prompt", format!("{name}={path}"))
            }
            _ => words,
        };
    }
    if work.shots > 0 {
        words.data(&[&work.data]).pair("--shots", work.shots);
    } else {
        words.pair("--first-of", spec(&work.data));
    }
    words.pair("--points", work.points).pair("--seed", work.seed);
}

/// A data set by a name that means the same in every folder.
fn spec(data: &str) -> String {
    match data.split_once(':') {
        Some((kind @ ("folder" | "zhou" | "csv" | "wds"), path)) => {
            format!("{kind}:{}", absolute(Path::new(path)).display())
        }
        _ => data.to_owned(),
    }
}

/// Options with the names that `--set` takes.
fn settings(table: &toml::Table, prefix: &str) -> Vec<(String, String)> {
    let entry = |(key, value): (&String, &toml::Value)| match value {
        toml::Value::Table(inner) => settings(inner, &format!("{prefix}{key}.")),
        toml::Value::String(text) if !text.is_empty() => vec![(format!("{prefix}{key}"), text.clone())],
        value => vec![(format!("{prefix}{key}"), value.to_string())],
    };
    table.iter().flat_map(entry).collect()
}

/// The words of a command line.
#[derive(Default)]
struct Words {
    list: Vec<String>,
    /// The item's folder, in which the command is typed.
    out: PathBuf,
}

impl Words {
    fn command(&mut self, verb: &str) -> &mut Self {
        self.list.extend(["flatclip".to_owned(), verb.to_owned()]);
        self
    }

    fn pair(&mut self, flag: &str, value: impl ToString) -> &mut Self {
        self.list.extend([flag.to_owned(), quoted(&value.to_string())]);
        self
    }

    fn path(&mut self, flag: &str, value: &Path) -> &mut Self {
        let value = self.inside(value);
        self.pair(flag, value)
    }

    /// A path as it is typed in the item's folder.
    fn inside(&self, path: &Path) -> String {
        path.strip_prefix(&self.out).map_or_else(|_| absolute(path), Path::to_path_buf).display().to_string()
    }

    fn data(&mut self, specs: &[&String]) -> &mut Self {
        let named: Vec<String> = specs.iter().map(|name| spec(name)).collect();
        self.pair("--data", named.join(","))
    }

    fn number<T: ToString>(&mut self, flag: &str, value: Option<T>) -> &mut Self {
        match value {
            Some(value) => self.pair(flag, value),
            None => self,
        }
    }

    fn flag(&mut self, flag: &str, on: bool) -> &mut Self {
        self.list.extend(on.then(|| flag.to_owned()));
        self
    }

    fn policy(&mut self, policy: ViewChoice) -> &mut Self {
        match policy {
            ViewChoice::Published => self.pair("--view-policy", "published"),
            ViewChoice::Policy(policy) => self.pair("--view-policy", policy.name()),
        }
    }

    fn prompt(&mut self, source: &PromptSource) -> &mut Self {
        match source {
            PromptSource::OwnTemplates => self.flag("--own-templates", true),
            PromptSource::Text(word) if word == "template" => self,
            PromptSource::Text(word) if word.parse::<Ensemble>().is_ok() => self.pair("--ensemble", word),
            PromptSource::Text(text) => self.pair("--template", text),
            PromptSource::Described(word, file) => {
                let text = if word == "own" { PromptSource::OwnTemplates } else { PromptSource::Text(word.clone()) };
                self.prompt(&text).path("--descriptions", file)
            }
            PromptSource::Tuned(dir) => self.path("--prompt", dir),
            PromptSource::File(path) => {
                let is_prompt = flatclip::Prompt::open(path).is_ok_and(|prompt| prompt.kind() != PromptKind::Features);
                self.path(if is_prompt { "--prompt" } else { "--text-features" }, path)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_become_dotted_keys() {
        let table: toml::Table = "radius = 0.5\n[train]\nepochs = 3\nscale = [0.1, 1.0]".parse().unwrap();
        let found = settings(&table, "");
        assert!(
            found.contains(&("radius".into(), "0.5".into())) && found.contains(&("train.epochs".into(), "3".into()))
        );
        assert!(found.contains(&("train.scale".into(), "[0.1, 1.0]".into())));
    }
}
