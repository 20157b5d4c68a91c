//! Prompts as people name them (files, run directories, templates, known sets of templates), and parts of them.

use super::{Affine, Prompt, PromptContent, Provenance, class_hash, read_text_features, template_context};
use crate::digest::Digest;
use crate::model::Clip;
use crate::text::Tokenizer;
use crate::text::templates::Ensemble;
use crate::{Error, Result};
use flatclip_tensor::ops::l2_norm;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How a prompt was tuned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// The seed of shots, views and start.
    pub seed: u64,
    /// Fingerprint of all other settings: prompts tuned alike but for the seed have the same.
    pub settings: String,
}

impl Prompt {
    /// Reads a prompt: its file, the run directory of a finished tuning run, or a `.npy` file of class embeddings.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let file = file_of(path.as_ref())?;
        if file.extension().is_some_and(|ending| ending == "npy") {
            return read_text_features(&file);
        }
        Self::load(&file)
    }

    /// The prompt that one word means: a text with `{}`, a known set of templates, `template` for the usual one, or a
    /// path that [`Prompt::open`] takes.
    pub fn parse(word: &str) -> Result<Self> {
        if word.contains("{}") {
            return Self::templates(&[word]);
        }
        if word == "template" {
            return Self::templates(&[Self::TEMPLATE]);
        }
        if let Ok(ensemble) = word.parse::<Ensemble>() {
            return Self::templates(ensemble.templates());
        }
        if !Path::new(word).exists() {
            let reason = format!(
                "{word:?} is no file or folder; expected a prompt file, the directory of a tuning run, a text with {{}}, \
                 template, or a known set of templates: {}",
                Ensemble::names()
            );
            return Err(Error::config("prompt", reason));
        }
        Self::open(word)
    }

    /// The prompt in a record: its templates, their number, or its file.
    pub fn title(&self) -> String {
        match &self.content {
            PromptContent::Templates(templates) if templates.len() <= 3 => templates.join(" | "),
            PromptContent::Templates(templates) => format!("{} templates", templates.len()),
            _ => self.path.display().to_string(),
        }
    }

    /// The method of a prompt that was not tuned for another.
    pub const DEFAULT_METHOD: &str = "zero-shot";

    /// The method that answers where none is named: `stss` for a sapt prompt, since the two together are FGA, and
    /// [`Prompt::DEFAULT_METHOD`] for every other prompt.
    pub fn default_method(&self) -> &'static str {
        if self.label() == "sapt" { "stss" } else { Self::DEFAULT_METHOD }
    }

    /// How it was tuned, where its file records it: the seed, and a fingerprint of everything else.
    pub fn tuning(&self) -> Option<Tuning> {
        let Provenance { config, method, model_hash, class_hash, .. } = &self.provenance;
        let mut settings: toml::Table = config.parse().ok()?;
        let seed = u64::try_from(settings.remove("seed")?.as_integer()?).ok()?;
        // How often it was saved does not matter, and the weights' hash identifies the model better than its name.
        for key in ["checkpoint_every", "model"] {
            settings.remove(key);
        }
        // A radius that was searched for is a result, and can differ from seed to seed.
        if settings.get("search").and_then(toml::Value::as_bool) == Some(true)
            && let Some(options) = settings.get_mut(method).and_then(toml::Value::as_table_mut)
        {
            options.remove("radius");
        }
        let text = toml::to_string(&settings).ok()?;
        let settings = Digest::default().part(method).part(model_hash).part(class_hash).part(text).short();
        Some(Tuning { seed, settings })
    }

    /// The prompt in a table: `template`, `templates-80`, `coop`, `sapt`, `features`, ...
    pub fn label(&self) -> String {
        match &self.content {
            PromptContent::Templates(templates) if templates.len() == 1 => "template".to_owned(),
            PromptContent::Templates(templates) => format!("templates-{}", templates.len()),
            PromptContent::Features(_) if self.provenance.method == "descriptions" => "descriptions".to_owned(),
            // A bare context is what CoOp saves, and TPT and its descendants load.
            PromptContent::Learned { .. } if self.provenance.method == "import" => "coop".to_owned(),
            PromptContent::Learned { .. } if !self.provenance.method.is_empty() => self.provenance.method.clone(),
            _ => self.kind().to_string(),
        }
    }

    /// The norm of the context that it puts before the class names: of what was learned, or of the words of a single
    /// template. None for other prompts, and without a text tower.
    pub fn context_norm(&self, clip: &Clip, tokenizer: &Tokenizer) -> Option<f64> {
        match &self.content {
            PromptContent::Learned { context, .. } => Some(l2_norm(context.data.iter())),
            PromptContent::Templates(templates) => {
                let [template] = templates.as_slice() else { return None };
                let words = template_context(template, clip.text().ok()?, tokenizer, &["x".to_owned()]).ok()??.1;
                Some(l2_norm(words.data.iter()))
            }
            _ => None,
        }
    }

    /// Where it was learned, when that was elsewhere; empty for templates and for prompts that were tuned here.
    pub fn origin(&self) -> String {
        match self.provenance.method.as_str() {
            "import" => format!("imported from {}", self.provenance.source),
            _ => String::new(),
        }
    }

    /// How many classes it is tied to: rows of embeddings, a cache of labelled shots, a linear classifier. `None` for prompts
    /// that serve any class list.
    pub fn bound_classes(&self) -> Option<usize> {
        match &self.content {
            PromptContent::Features(rows) => Some(rows.rows()),
            PromptContent::TipAdapter { .. } => Some(self.provenance.classes.len()),
            PromptContent::Linear { layer, .. } => Some(layer.bias.len()),
            _ => None,
        }
    }

    /// The same prompt for some of its classes, in the order of `keep`.
    pub fn restricted(&self, keep: &[usize]) -> Result<Self> {
        let mut part = self.clone();
        match &mut part.content {
            PromptContent::Features(rows) => *rows = rows.select_rows(keep),
            PromptContent::TipAdapter { keys, labels, .. } => {
                let new = |label: usize| keep.iter().position(|&kept| kept == label);
                let (places, fresh): (Vec<usize>, Vec<usize>) =
                    labels.iter().enumerate().filter_map(|(place, &label)| Some((place, new(label)?))).unzip();
                (*keys, *labels) = (keys.select_rows(&places), fresh);
            }
            PromptContent::Linear { layer, .. } => {
                let bias = keep.iter().map(|&label| layer.bias[label]).collect();
                *layer = Affine { weight: layer.weight.select_rows(keep), bias };
            }
            _ => return Ok(part),
        }
        let provenance = &mut part.provenance;
        if !provenance.classes.is_empty() {
            provenance.classes = keep.iter().filter_map(|&label| self.provenance.classes.get(label).cloned()).collect();
            provenance.class_hash = class_hash(&provenance.classes);
        }
        Ok(part)
    }
}

/// A run directory holds its prompt under a fixed name.
fn file_of(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let file = path.join("prompt.safetensors");
    if file.is_file() {
        return Ok(file);
    }
    let reason = "no prompt.safetensors in this folder; is it the directory of a finished tuning run?".to_owned();
    Err(Error::Prompt { path: path.to_path_buf(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatclip_tensor::Matrix;

    #[test]
    fn a_word_is_a_template_a_known_set_or_a_path_that_exists() {
        use PromptContent::Templates;
        let kind = |word| Prompt::parse(word).unwrap().content;
        assert!(matches!(kind("a sketch of a {}."), Templates(t) if t == ["a sketch of a {}."]));
        assert!(matches!(kind("template"), Templates(t) if t.len() == 1));
        assert!(matches!(kind("imagenet7"), Templates(t) if t.len() == 7));
        assert!(Prompt::parse("no-such-run").unwrap_err().to_string().contains("imagenet80"));
    }

    #[test]
    fn prompts_tuned_alike_but_for_the_seed_have_the_same_settings() {
        let tuned = |config: &str| {
            let mut prompt = Prompt::templates(&["{}"]).unwrap();
            (prompt.provenance.method, prompt.provenance.config) = ("sapt".into(), config.into());
            prompt.tuning()
        };
        let config = |seed: u32, search: bool, radius: f64| {
            format!("seed = {seed}\nshots = 4\nmodel = \"m{seed}\"\nsearch = {search}\n[sapt]\nradius = {radius:?}\n")
        };
        let (one, two) = (tuned(&config(1, false, 0.1)).unwrap(), tuned(&config(2, false, 0.1)).unwrap());
        assert_eq!((one.seed, two.seed), (1, 2));
        assert_eq!(one.settings, two.settings);
        assert_ne!(one.settings, tuned(&config(1, false, 0.2)).unwrap().settings);
        // A searched radius is what a seed found.
        assert_eq!(tuned(&config(1, true, 0.1)).unwrap().settings, tuned(&config(2, true, 0.2)).unwrap().settings);
        assert_eq!(tuned(""), None);
    }

    #[test]
    fn a_cache_keeps_the_shots_of_the_kept_classes_under_their_new_labels() {
        let keys = Matrix::from_vec(4, 1, vec![0.0, 1.0, 2.0, 3.0]);
        let (labels, templates) = (vec![0, 1, 2, 1], vec!["{}".into()]);
        let kind = PromptContent::TipAdapter { keys, labels, alpha: 1.0, beta: 1.0, templates };
        let classes: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let provenance = Provenance { class_hash: class_hash(&classes), classes, ..Provenance::default() };
        let part = Prompt::new(kind, provenance).restricted(&[2, 1]).unwrap();
        let PromptContent::TipAdapter { keys, labels, .. } = &part.content else { panic!("another kind") };
        assert_eq!((keys.data(), labels.as_slice()), ([1.0, 2.0, 3.0].as_slice(), [1, 0, 1].as_slice()));
        assert_eq!(part.provenance.classes, ["c", "b"]);
        part.check_classes(&["c".to_owned(), "b".to_owned()]).unwrap();
    }
}
