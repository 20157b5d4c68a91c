//! Sentences that describe classes, such as CuPL's: a JSON object of class names, each with a list of sentences. A class is the
//! mean of its filled templates and of all its sentences, each made unit-norm, as DPE was published.

use super::{Prompt, normalise_rows};
use crate::error::nearest;
use crate::files::read_text;
use crate::model::{Clip, Features};
use crate::text::Tokenizer;
use crate::text::templates::fill;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A file of descriptions.
#[derive(Clone, Debug)]
pub struct Descriptions {
    path: PathBuf,
    sentences: BTreeMap<String, Vec<String>>,
}

/// Names are compared without case, and with spaces for underscores.
fn key(name: &str) -> String {
    name.replace('_', " ").trim().to_lowercase()
}

impl Descriptions {
    /// Reads `{"class name": ["sentence", ...], ...}`.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |found: String| {
            let reason = format!("expected a JSON object of class names, each with a list of sentences; {found}");
            Error::Data { path: path.to_path_buf(), reason }
        };
        let found: BTreeMap<String, Vec<String>> =
            serde_json::from_str(&read_text(path)?).map_err(|e| wrong(e.to_string()))?;
        if let Some((name, _)) = found.iter().find(|(_, list)| list.iter().all(|text| text.trim().is_empty())) {
            return Err(wrong(format!("{name:?} has no sentence")));
        }
        let sentences = found.into_iter().map(|(name, list)| (key(&name), list)).collect();
        Ok(Self { path: path.to_path_buf(), sentences })
    }

    /// Class embeddings for a class list; every class must be described.
    pub fn prompt(
        &self,
        clip: &Clip,
        tokenizer: &Tokenizer,
        templates: &[String],
        classes: &[String],
    ) -> Result<Prompt> {
        let missing: Vec<&String> = classes.iter().filter(|name| !self.sentences.contains_key(&key(name))).collect();
        if let Some(first) = missing.first() {
            let known: Vec<&str> = self.sentences.keys().map(String::as_str).collect();
            let near = nearest(first, &known).map(|near| format!(", though {near:?}")).unwrap_or_default();
            let reason = format!(
                "describes {} classes, but not {first:?}{near} ({} of {} classes are missing); its names must be those of \
                 the data set",
                self.sentences.len(),
                missing.len(),
                classes.len()
            );
            return Err(Error::Data { path: self.path.clone(), reason });
        }
        let tower = clip.text()?;
        let mut means = Matrix::zeros(classes.len(), clip.embed_dim());
        for (label, class) in classes.iter().enumerate() {
            let mut texts = templates.iter().map(|t| fill(t, class)).collect::<Result<Vec<_>>>()?;
            texts.extend(self.sentences[&key(class)].iter().filter(|text| !text.trim().is_empty()).cloned());
            let unit = Features::unit(tower.encode_texts(tokenizer, &texts, false)?).0;
            for row in unit.iter_rows() {
                means.row_mut(label).iter_mut().zip(row).for_each(|(sum, x)| *sum += x / unit.rows() as f32);
            }
        }
        normalise_rows(&mut means)?;
        let mut prompt = Prompt::features(means)?;
        prompt.provenance.method = "descriptions".into();
        prompt.path.clone_from(&self.path);
        Ok(prompt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LoadOptions;
    use crate::weights::Checkpoint;

    #[test]
    fn a_class_is_the_mean_of_its_templates_and_sentences() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cupl.json");
        std::fs::write(&path, r#"{"Cat": ["a photo of a cat."], "big_dog": ["a dog.", "a drawing of a dog."]}"#)
            .unwrap();
        let checkpoint = Checkpoint::embedded("pocket").unwrap().unwrap();
        let clip = Clip::load(&checkpoint, LoadOptions::default()).unwrap();
        let tokenizer = Tokenizer::of(&checkpoint).unwrap();
        let classes = ["cat".to_owned(), "big dog".to_owned()];
        let templates = ["a photo of a {}.".to_owned()];
        let described = Descriptions::read(&path).unwrap();
        let prompt = described.prompt(&clip, &tokenizer, &templates, &classes).unwrap();
        assert_eq!(prompt.label(), "descriptions");
        let found = prompt.text_features(&clip, &tokenizer, &classes).unwrap();
        // Both texts of the first class are the same.
        let plain = Prompt::templates(&["a photo of a {}."]).unwrap();
        let expected = plain.text_features(&clip, &tokenizer, &classes[..1]).unwrap();
        assert!(found.row(0).iter().zip(expected.row(0)).all(|(a, b)| (a - b).abs() < 1e-6));
        let lacking = described.prompt(&clip, &tokenizer, &templates, &["cow".to_owned()]);
        assert!(lacking.unwrap_err().to_string().contains("\"cow\""));
        std::fs::write(&path, r#"{"cat": "one sentence"}"#).unwrap();
        assert!(Descriptions::read(&path).unwrap_err().to_string().contains("list of sentences"));
    }
}
