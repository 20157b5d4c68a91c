//! A step as the command that a user would type for it.

use flatclip::ViewChoice;
use flatclip::reproduce::{EvaluateWork, LandscapeWork, PromptSource, ReproduceRequest, Step, Work};
use flatclip::text::templates::Ensemble;
use std::path::Path;

/// The command, with everything quoted that a shell would break.
pub(super) fn command(step: &Step, request: &ReproduceRequest, model: &str) -> String {
    let mut words = Words::default();
    match &step.work {
        Work::Tune(tune) => {
            words.command("tune").pair("--method", &tune.method).pair("--data", &tune.data);
            words.number("--shots", tune.shots).number("--held-out", tune.held_out).pair("--seed", tune.seed);
            words.flag("--allow-fewer", tune.allow_fewer);
            if tune.search {
                words.pair("--search", "radius");
            }
            for (key, value) in tune.overrides.iter().flat_map(|table| settings(table, "")) {
                words.pair("--set", format!("{key}={value}"));
            }
        }
        Work::Statistics(work) => {
            words.command("stats").pair("--data", &work.data).prompt(&work.prompt).pair("--shots", work.shots);
            words.pair("--seed", work.seed);
        }
        Work::Evaluate(work) => evaluation(&mut words, work, request),
        Work::Sweep(work) => {
            words.command("sweep").pair("--method", &work.method).pair("--data", work.data.join(","));
            words.prompt(&work.prompt).policy(work.policy).number("--limit", request.limit.or(request.recipe.limit));
            for axis in &work.axes {
                words.pair("--set", format!("{}={}", axis.key, axis.values.join(",")));
            }
            words.pair("--set", format!("seed={}", work.seed));
        }
        Work::Landscape(work) => landscape(&mut words, work),
    }
    words.pair("--model", model);
    if let Some(root) = &request.open.root {
        words.path("--data-root", root);
    }
    for (name, path) in &request.open.paths {
        words.pair("--path", format!("{name}={}", path.display()));
    }
    words.path("--out", &out_of(step));
    words.flag("--resume", !matches!(step.work, Work::Landscape(_) | Work::Statistics(_)));
    words.0.join(" ")
}

/// `eval` puts a shard into a folder of its own, and `stats` writes a file.
fn out_of(step: &Step) -> std::path::PathBuf {
    match &step.work {
        Work::Evaluate(EvaluateWork { shard: Some(_), .. }) => step.dir.parent().unwrap_or(&step.dir).to_path_buf(),
        Work::Statistics(_) => step.dir.join("statistics.safetensors"),
        _ => step.dir.clone(),
    }
}

fn evaluation(words: &mut Words, work: &EvaluateWork, request: &ReproduceRequest) {
    words.command("eval").pair("--method", &work.method).pair("--data", &work.data).prompt(&work.prompt);
    words.policy(work.policy).number("--views", work.views).pair("--seed", work.seed);
    words.number("--order-seed", work.order_seed).number("--limit", request.limit.or(request.recipe.limit));
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
    for switch in &request.compat {
        words.pair("--compat", switch);
    }
}

fn landscape(words: &mut Words, work: &LandscapeWork) {
    words.command("landscape");
    for (_, source) in &work.prompts {
        words.prompt(source);
    }
    if work.shots > 0 {
        words.pair("--data", &work.data).pair("--shots", work.shots);
    } else {
        words.pair("--image", format!("FIRST-PICTURE-OF-{}", work.data)).pair("--classes-file", "ITS-CLASSES");
    }
    words.pair("--points", work.points).pair("--seed", work.seed);
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
struct Words(Vec<String>);

impl Words {
    fn command(&mut self, verb: &str) -> &mut Self {
        self.0.extend(["flatclip".to_owned(), verb.to_owned()]);
        self
    }

    fn pair(&mut self, flag: &str, value: impl ToString) -> &mut Self {
        self.0.extend([flag.to_owned(), quoted(&value.to_string())]);
        self
    }

    fn path(&mut self, flag: &str, value: &Path) -> &mut Self {
        self.pair(flag, value.display())
    }

    fn number<T: ToString>(&mut self, flag: &str, value: Option<T>) -> &mut Self {
        match value {
            Some(value) => self.pair(flag, value),
            None => self,
        }
    }

    fn flag(&mut self, flag: &str, on: bool) -> &mut Self {
        self.0.extend(on.then(|| flag.to_owned()));
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
                let is_prompt = flatclip::Prompt::open(path).is_ok_and(|prompt| prompt.kind_name() != "features");
                self.path(if is_prompt { "--prompt" } else { "--text-features" }, path)
            }
        }
    }
}

/// As a POSIX shell takes it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_break_is_quoted() {
        assert_eq!(quoted("runs/a-b"), "runs/a-b");
        assert_eq!(quoted("a photo of a {}."), "'a photo of a {}.'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

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
