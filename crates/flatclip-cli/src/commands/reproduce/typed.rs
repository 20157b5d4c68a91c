//! A plan as the commands that a user would type for it, in the item's folder: so that what they record is what the item
//! records, wherever it lies.

use crate::output::quoted;
use crate::prelude::*;
use flatclip::prompt::PromptKind;
use flatclip::text::templates::Ensemble;
use flatclip_lab::ViewChoice;
use flatclip_lab::reproduce::{EvaluateWork, PromptSource, ReproduceRequest, Step, Work};

pub(super) struct Commands<'a> {
    pub(super) request: &'a ReproduceRequest,
    pub(super) model: &'a str,
    /// Options of every command: arithmetic, cache.
    pub(super) shared: [(&'static str, Option<String>); 3],
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
        let (limit, errors) = (request.limit.or(request.recipe.limit), request.max_errors);
        let mut words = Words { out: &request.out, list: vec!["flatclip".to_owned()] };
        match &step.work {
            Work::Tune(work) => {
                words.word("tune").pair("--method", &work.method).data(&[&work.data]).number("--shots", work.shots);
                words.number("--held-out", work.held_out).pair("--seed", work.seed);
                words.flag("--allow-fewer", work.allow_fewer).pair("--max-errors", work.max_errors);
                words.number("--search", work.search.then_some("radius"));
                work.overrides.iter().for_each(|table| words.settings(table));
            }
            Work::Statistics(work) => {
                words.word("stats").data(&[&work.data]).prompt(&work.prompt).pair("--shots", work.shots);
                words.pair("--seed", work.seed).pair("--max-errors", errors);
            }
            Work::Evaluate(work) => {
                words.word("eval").pair("--method", &work.method).data(&[&work.data]).prompt(&work.prompt);
                words.policy(work.policy).number("--views", work.views).pair("--seed", work.seed);
                words.number("--order-seed", work.order_seed).number("--limit", limit);
                words.number("--max-errors", Some(errors).filter(|&most| most != EVAL_MAX_ERRORS));
                words.settings(&work.options);
                words.path("--statistics", work.statistics.as_ref().map(|folder| folder.join(STATISTICS)));
                words.path("--generated", request.generated.as_ref().filter(|_| work.method == "difftpt"));
                words.number("--shard", work.shard.map(String::from));
            }
            Work::Sweep(work) => {
                words.word("sweep").pair("--method", &work.method).data(&Vec::from_iter(&work.data));
                words.prompt(&work.prompt).policy(work.policy);
                words.number("--views", request.views.or(request.recipe.views)).pair("--seed", work.seed);
                words.number("--limit", limit);
                for axis in &work.axes {
                    words.pair("--set", format!("{}={}", axis.key, axis.values.join(",")));
                }
            }
            Work::Landscape(work) => {
                words.word("landscape");
                for (name, source) in &work.prompts {
                    if let PromptSource::Tuned(path) | PromptSource::File(path) = source {
                        words.pair("--prompt", format!("{name}={}", words.inside(path)));
                    }
                }
                match work.shots {
                    0 => words.pair("--first-of", spec(&work.data)),
                    shots => words.data(&[&work.data]).pair("--shots", shots),
                };
                words.pair("--points", work.points).pair("--seed", work.seed);
            }
        }
        self.finish(words, step)
    }

    /// What all commands have, and where this one writes: `eval` puts a shard into a folder of its own, and `stats` writes a file.
    fn finish(&self, mut words: Words<'_>, step: &Step) -> String {
        words.pair("--model", self.model);
        for (flag, value) in &self.shared {
            words.number(flag, value.as_ref());
        }
        let open = &self.request.open;
        words.path("--data-root", open.root.as_ref()).path("--split-files", open.split_files.as_ref());
        for (name, path) in &open.paths {
            words.pair("--path", format!("{name}={}", absolute(path).display()));
        }
        for switch in &self.request.compat {
            words.pair("--compat", switch);
        }
        words.path(
            "--out",
            match &step.work {
                Work::Evaluate(EvaluateWork { shard: Some(_), .. }) => step.dir.parent().map(Path::to_path_buf),
                Work::Statistics(_) => Some(step.dir.join(STATISTICS)),
                _ => Some(step.dir.clone()),
            },
        );
        words.flag("--resume", !matches!(step.work, Work::Landscape(_) | Work::Statistics(_)));
        words.list.join(" ")
    }
}

/// Unreadable samples at which `eval` stops by default.
const EVAL_MAX_ERRORS: usize = 100;
const STATISTICS: &str = "statistics.safetensors";

/// A path that means the same in every folder.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
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

struct Words<'a> {
    list: Vec<String>,
    out: &'a Path,
}

impl Words<'_> {
    fn word(&mut self, word: &str) -> &mut Self {
        self.list.push(word.to_owned());
        self
    }

    fn pair(&mut self, flag: &str, value: impl ToString) -> &mut Self {
        self.word(flag).word(&quoted(&value.to_string()))
    }

    fn number(&mut self, flag: &str, value: Option<impl ToString>) -> &mut Self {
        match value {
            Some(value) => self.pair(flag, value),
            None => self,
        }
    }

    fn path(&mut self, flag: &str, value: Option<impl AsRef<Path>>) -> &mut Self {
        let value = value.map(|path| self.inside(path.as_ref()));
        self.number(flag, value)
    }

    /// A path as it is typed in the item's folder.
    fn inside(&self, path: &Path) -> String {
        path.strip_prefix(self.out).map_or_else(|_| absolute(path), Path::to_path_buf).display().to_string()
    }

    fn data(&mut self, specs: &[&String]) -> &mut Self {
        let named: Vec<String> = specs.iter().map(|name| spec(name)).collect();
        self.pair("--data", named.join(","))
    }

    fn settings(&mut self, table: &toml::Table) {
        for (key, value) in settings(table, "") {
            self.pair("--set", format!("{key}={value}"));
        }
    }

    fn flag(&mut self, flag: &str, on: bool) -> &mut Self {
        if on { self.word(flag) } else { self }
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
                self.prompt(&text).path("--descriptions", Some(file))
            }
            PromptSource::Tuned(dir) => self.path("--prompt", Some(dir)),
            PromptSource::File(path) => {
                let is_prompt = flatclip::Prompt::open(path).is_ok_and(|prompt| prompt.kind() != PromptKind::Features);
                self.path(if is_prompt { "--prompt" } else { "--text-features" }, Some(path))
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
