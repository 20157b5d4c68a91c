//! The order of rows: the paper's, or as given. Never that of a file system.

use super::Run;
use super::paper::paper_rank;
use std::cmp::Ordering;
use std::path::Path;

/// How the runs of a report are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowOrder {
    /// What the paper has in its order, then the rest as given.
    #[default]
    Paper,
    /// As given; inside a folder by name.
    Given,
}

impl RowOrder {
    /// Brings runs into this order; runs of the same row stay as they are.
    pub fn sort(self, runs: &mut [Run]) {
        if self == Self::Paper {
            runs.sort_by_key(|run| paper_rank(&run.provenance.prompt, &run.config.method));
        }
    }

    /// What to say below a table.
    pub fn note(self) -> &'static str {
        match self {
            Self::Paper => "rows in the paper's order, those it does not have behind them as given",
            Self::Given => "rows as given; the runs of a folder by name",
        }
    }
}

/// Paths by name, with the numbers in them as numbers: `seed-2` before `seed-10`.
pub(super) fn by_name(a: &Path, b: &Path) -> Ordering {
    let (a, b) = (a.to_string_lossy(), b.to_string_lossy());
    let (mut one, mut other) = (chunks(&a), chunks(&b));
    let by_chunk = |x: &str, y: &str| match (x.parse::<u64>(), y.parse::<u64>()) {
        (Ok(x), Ok(y)) => x.cmp(&y),
        _ => x.cmp(y),
    };
    loop {
        match (one.next(), other.next()) {
            (None, None) => return a.cmp(&b),
            (Some(x), Some(y)) if by_chunk(x, y).is_eq() => {}
            (Some(x), Some(y)) => return by_chunk(x, y),
            (x, y) => return x.cmp(&y),
        }
    }
}

/// A text split into digits and the parts between them.
fn chunks(text: &str) -> impl Iterator<Item = &str> {
    let is_digit = |byte: u8| byte.is_ascii_digit();
    text.as_bytes().chunk_by(move |a, b| is_digit(*a) == is_digit(*b)).scan(0, move |start, chunk| {
        let begin = *start;
        *start += chunk.len();
        // Digits are ASCII: a border never lies inside of a letter.
        text.get(begin..*start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["runs/seed-10", "runs/seed-2", "runs/ä-1", "runs/seed-02", "runs", "runs/b"];
        names.sort_by(|a, b| by_name(Path::new(a), Path::new(b)));
        assert_eq!(names, ["runs", "runs/b", "runs/seed-02", "runs/seed-2", "runs/seed-10", "runs/ä-1"]);
    }
}
