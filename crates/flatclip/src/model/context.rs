//! What a prompt is to the text tower: learnable context vectors, and the fixed tokens of every class around them.

use crate::{Error, Result};
use flatclip_tensor::ops::l2_norm;
use serde::{Deserialize, Serialize};

/// Position of the class name relative to the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Position {
    /// SOT (where the model has one), context, name, rest.
    #[default]
    End,
    /// SOT, first half of the context, name, second half, rest.
    Middle,
    /// SOT, name, context, rest.
    Front,
}

crate::choices! {
    impl Position {
        /// The context, then the name.
        End = "end",
        /// Half of the context, the name, the other half.
        Middle = "middle",
        /// The name, then the context.
        Front = "front",
    }
}

/// The learnable prompt tokens: `[tokens, width]`, or `[classes, tokens, width]` when class-specific.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// Number of classes of a class-specific context; `None` when all classes share it.
    pub classes: Option<usize>,
    /// Number of context tokens.
    pub tokens: usize,
    /// Width of the text tower.
    pub width: usize,
    /// The values, row-major.
    pub data: Vec<f32>,
}

impl Context {
    /// A context that all classes share.
    ///
    /// # Panics
    /// If `data.len() != tokens * width`: the caller made the data.
    pub fn shared(tokens: usize, width: usize, data: Vec<f32>) -> Self {
        assert_eq!(data.len(), tokens * width, "context data does not fill [{tokens}, {width}]");
        Self { classes: None, tokens, width, data }
    }

    /// One context per class.
    ///
    /// # Panics
    /// If `data.len() != classes * tokens * width`: the caller made the data.
    pub fn per_class(classes: usize, tokens: usize, width: usize, data: Vec<f32>) -> Self {
        assert_eq!(data.len(), classes * tokens * width, "context data does not fill [{classes}, {tokens}, {width}]");
        Self { classes: Some(classes), tokens, width, data }
    }

    /// `[tokens, width]` or `[classes, tokens, width]`.
    pub fn shape(&self) -> Vec<usize> {
        self.classes.into_iter().chain([self.tokens, self.width]).collect()
    }

    /// Euclidean norm over all entries.
    pub fn norm(&self) -> f32 {
        l2_norm(&self.data) as f32
    }

    /// Context token `token` as class `class` sees it.
    pub(crate) fn row(&self, class: usize, token: usize) -> &[f32] {
        &self.data[self.offset(class, token)..][..self.width]
    }

    /// Where that row begins.
    pub(crate) fn offset(&self, class: usize, token: usize) -> usize {
        let class = if self.classes.is_some() { class } else { 0 };
        (class * self.tokens + token) * self.width
    }

    pub(crate) fn zeros_like(other: &Self) -> Self {
        Self { data: vec![0.0; other.data.len()], ..*other }
    }
}

/// The fixed tokens of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName {
    /// Tokens of the name.
    pub name: Vec<u32>,
    /// What follows: usually the full stop and EOT.
    pub rest: Vec<u32>,
}

/// The fixed tokens of all classes, and how a context is put among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassTokens {
    /// Number of context tokens.
    pub n_ctx: usize,
    /// Position of the name.
    pub position: Position,
    /// The start token; SigLIP has none.
    pub sot: Option<u32>,
    /// One entry per class.
    pub classes: Vec<ClassName>,
}

impl ClassTokens {
    /// From tokenised prompts `[K][length]`: SOT, `n_ctx` placeholders, name, rest, EOT (the largest id), padding.
    pub fn from_ids(ids: &[Vec<u32>], name_lens: &[usize], n_ctx: usize, position: Position) -> Result<Self> {
        let until_eot = |row: &Vec<u32>| end_of_text(row).map_or(&[][..], |eot| &row[1..=eot]).to_vec();
        let rows: Vec<Vec<u32>> = ids.iter().map(until_eot).collect();
        let sot = ids.first().and_then(|row| row.first()).copied();
        Ok(Self { sot, ..Self::from_rows(&rows, name_lens, n_ctx, position)? })
    }

    /// From whole rows without start token, as SigLIP reads them: `n_ctx` placeholders, name, end, padding. All of a row
    /// counts.
    pub fn from_rows(ids: &[Vec<u32>], name_lens: &[usize], n_ctx: usize, position: Position) -> Result<Self> {
        let fault = |reason: String| Error::config("class tokens", reason);
        if ids.is_empty() || ids.len() != name_lens.len() {
            return Err(fault(format!("{} token rows and {} name lengths", ids.len(), name_lens.len())));
        }
        let mut classes = Vec::with_capacity(ids.len());
        for (class, (row, &name_len)) in ids.iter().zip(name_lens).enumerate() {
            let end = n_ctx + name_len;
            if row.len() <= end {
                let found = row.len();
                return Err(fault(format!(
                    "class {class}: {found} tokens behind the start, expected {n_ctx} context tokens, {name_len} name tokens \
                     and an end"
                )));
            }
            classes.push(ClassName { name: row[n_ctx..end].to_vec(), rest: row[end..].to_vec() });
        }
        Ok(Self { n_ctx, position, sot: None, classes })
    }

    /// The whole prompt of a class.
    pub(crate) fn sources(&self, class: usize) -> Vec<Source> {
        let ClassName { name, rest } = &self.classes[class];
        let before = match self.position {
            Position::End => self.n_ctx,
            Position::Middle => self.n_ctx / 2,
            Position::Front => 0,
        };
        let token = |&id: &u32| Source::Token(id);
        let start = self.sot.map(Source::Token);
        start
            .into_iter()
            .chain((0..before).map(Source::Context))
            .chain(name.iter().map(token))
            .chain((before..self.n_ctx).map(Source::Context))
            .chain(rest.iter().map(token))
            .collect()
    }
}

/// The content of one position of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A token of the vocabulary.
    Token(u32),
    /// A token of the context.
    Context(usize),
}

/// A row of the text tower's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) source: Source,
    /// Whose embedding is added.
    pub(crate) position: usize,
}

/// Where a text ends: the first of the largest ids.
pub(crate) fn end_of_text(ids: &[u32]) -> Option<usize> {
    let top = ids.iter().max()?;
    ids.iter().position(|id| id == top)
}

#[cfg(test)]
mod tests {
    use super::Source::{Context as C, Token as T};
    use super::*;

    #[test]
    fn padded_ids_are_split_at_the_context_the_name_and_eot() {
        let row = vec![510, 10, 10, 7, 8, 9, 511, 0, 0];
        let tokens = ClassTokens::from_ids(std::slice::from_ref(&row), &[2], 2, Position::End).unwrap();
        assert_eq!(tokens.sot, Some(510));
        assert_eq!(tokens.classes[0], ClassName { name: vec![7, 8], rest: vec![9, 511] });
        assert!(ClassTokens::from_ids(&[row], &[5], 2, Position::End).is_err());
    }

    #[test]
    fn rows_without_a_start_token_begin_with_the_context_and_keep_their_padding() {
        let tokens = ClassTokens::from_rows(&[vec![4, 4, 7, 8, 1, 1]], &[2], 2, Position::End).unwrap();
        assert_eq!(tokens.sources(0), [C(0), C(1), T(7), T(8), T(1), T(1)]);
        assert!(ClassTokens::from_rows(&[vec![4, 4, 7]], &[2], 2, Position::End).is_err());
    }

    #[test]
    fn the_name_stands_at_its_position() {
        let sources = |position| {
            let ids = vec![510, 10, 10, 10, 7, 8, 9, 511, 0, 0];
            ClassTokens::from_ids(&[ids], &[2], 3, position).unwrap().sources(0)
        };
        assert_eq!(sources(Position::End), [T(510), C(0), C(1), C(2), T(7), T(8), T(9), T(511)]);
        assert_eq!(sources(Position::Middle), [T(510), C(0), T(7), T(8), C(1), C(2), T(9), T(511)]);
        assert_eq!(sources(Position::Front), [T(510), T(7), T(8), C(0), C(1), C(2), T(9), T(511)]);
    }
}
