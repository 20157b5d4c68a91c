//! Which classes are taken for which.

use super::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confusion {
    pub label: usize,
    pub prediction: usize,
    pub count: usize,
    /// Samples of the true class.
    pub of: usize,
}

/// Counts, row by row: `[label * classes + prediction]`. Outcomes outside the classes are skipped.
pub(crate) fn confusion_matrix(outcomes: &[Outcome], classes: usize) -> Vec<usize> {
    let mut counts = vec![0; classes * classes];
    for outcome in outcomes.iter().filter(|o| o.label < classes && o.prediction < classes) {
        counts[outcome.label * classes + outcome.prediction] += 1;
    }
    counts
}

/// Every wrong answer that occurs, the most frequent first; equal counts in the order of the classes.
pub(crate) fn confusions(matrix: &[usize], classes: usize) -> Vec<Confusion> {
    let mut found = Vec::new();
    for (label, row) in matrix.chunks_exact(classes.max(1)).enumerate() {
        let of = row.iter().sum();
        let wrong = row.iter().enumerate().filter(|&(prediction, &count)| prediction != label && count > 0);
        found.extend(wrong.map(|(prediction, &count)| Confusion { label, prediction, count, of }));
    }
    found.sort_by_key(|confusion| std::cmp::Reverse(confusion.count));
    found
}

#[cfg(test)]
mod tests {
    use super::super::outcome;
    use super::*;

    #[test]
    fn wrong_answers_are_counted_by_pair_and_sorted() {
        let outcomes =
            [(0, 0), (0, 2), (1, 0), (1, 0), (1, 1), (2, 2), (2, 0), (9, 0)].map(|(l, p)| outcome(l, p, 1.0));
        let matrix = confusion_matrix(&outcomes, 3);
        assert_eq!(matrix, [1, 0, 1, 2, 1, 0, 1, 0, 1]);
        let pairs: Vec<_> = confusions(&matrix, 3).iter().map(|c| (c.label, c.prediction, c.count, c.of)).collect();
        assert_eq!(pairs, [(1, 0, 2, 3), (0, 2, 1, 2), (2, 0, 1, 2)]);
        assert!(confusions(&confusion_matrix(&[], 0), 0).is_empty());
    }
}
