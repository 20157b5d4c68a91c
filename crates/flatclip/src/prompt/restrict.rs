//! The part of a prompt that is tied to a class list, for some of its classes.

use super::{Affine, Prompt, PromptContent, class_hash};
use crate::Result;

impl Prompt {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::Provenance;
    use flatclip_tensor::Matrix;

    #[test]
    fn a_cache_keeps_the_shots_of_the_kept_classes_under_their_new_labels() {
        let keys = Matrix::from_vec(4, 1, vec![0.0, 1.0, 2.0, 3.0]);
        let kind = PromptContent::TipAdapter {
            keys,
            labels: vec![0, 1, 2, 1],
            alpha: 1.0,
            beta: 1.0,
            templates: vec!["{}".into()],
        };
        let classes: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let provenance = Provenance { class_hash: class_hash(&classes), classes, ..Provenance::default() };
        let part = Prompt::new(kind, provenance).restricted(&[2, 1]).unwrap();
        let PromptContent::TipAdapter { keys, labels, .. } = &part.content else { panic!("another kind") };
        assert_eq!((keys.data(), labels.as_slice()), ([1.0, 2.0, 3.0].as_slice(), [1, 0, 1].as_slice()));
        assert_eq!(part.provenance.classes, ["c", "b"]);
        part.check_classes(&["c".to_owned(), "b".to_owned()]).unwrap();
    }
}
