//! Prompts position by position, as the text tower reads them.

use super::context::{ClassName, ClassTokens, Context, Position};

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

impl ClassTokens {
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

impl Context {
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

/// Where a text ends: the first of the largest ids.
pub(crate) fn end_of_text(ids: &[u32]) -> Option<usize> {
    let top = ids.iter().max()?;
    ids.iter().position(|id| id == top)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_a_start_token_begin_with_the_context_and_keep_their_padding() {
        use Source::{Context as C, Token as T};
        let tokens = ClassTokens::from_rows(&[vec![4, 4, 7, 8, 1, 1]], &[2], 2, Position::End).unwrap();
        assert_eq!(tokens.sources(0), [C(0), C(1), T(7), T(8), T(1), T(1)]);
        assert!(ClassTokens::from_rows(&[vec![4, 4, 7]], &[2], 2, Position::End).is_err());
    }

    #[test]
    fn the_name_stands_at_its_position() {
        use Source::{Context as C, Token as T};
        let sources = |position| {
            let ids = vec![510, 10, 10, 10, 7, 8, 9, 511, 0, 0];
            ClassTokens::from_ids(&[ids], &[2], 3, position).unwrap().sources(0)
        };
        assert_eq!(sources(Position::End), [T(510), C(0), C(1), C(2), T(7), T(8), T(9), T(511)]);
        assert_eq!(sources(Position::Middle), [T(510), C(0), T(7), T(8), C(1), C(2), T(9), T(511)]);
        assert_eq!(sources(Position::Front), [T(510), T(7), T(8), C(0), C(1), C(2), T(9), T(511)]);
    }
}
