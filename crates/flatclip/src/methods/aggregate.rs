//! Aggregators: one answer from the logits of one or several views.

use super::probability::{argmax, mean_probability, mean_row, softmax, softmax_f32, to_f32};
use super::select::{LowestScore, Selection, ViewLogits};
use super::{Decision, Explanation, Task, ViewSet};
use flatclip_tensor::Matrix;

crate::choices! {
    /// How selected views decide together.
    pub enum Vote {
        /// The mean of their softmax probabilities.
        MeanProbability = "mean-probability",
        /// One vote each.
        Majority = "majority",
        /// The softmax of their mean logits.
        MeanLogits = "mean-logits",
        /// Their probabilities weighted by `exp(-score)`.
        ScoreWeighted = "score-weighted",
        /// The probabilities of all views, also those that are not selected, weighted by `exp(-score / 0.5)` (AWT's view weights).
        Soft = "soft",
    }
}

crate::choices! {
    /// Who decides between classes with equally many votes.
    pub enum Tie {
        /// The highest mean probability among them, then the lowest index.
        MeanProbability = "mean-probability",
        /// ZERO's rule: the first view that was not selected, in order of confidence, that votes for one of them.
        DiscardedViews = "discarded-views",
    }
}

impl Decision {
    fn new(prediction: usize, class_scores: Vec<f32>, probabilities: Vec<f32>) -> Self {
        Self { prediction, probabilities, class_scores, explanation: Explanation::default() }
    }

    /// The answer of one row of logits.
    pub fn from_logits(row: &[f32]) -> Self {
        Self::new(argmax(row), row.to_vec(), softmax_f32(row))
    }

    /// The answer of probabilities (or votes) that need only be scaled.
    pub fn from_votes(votes: &[f64], prediction: usize) -> Self {
        let sum: f64 = votes.iter().sum();
        Self::new(prediction, to_f32(votes), votes.iter().map(|&v| (v / sum) as f32).collect())
    }

    /// The answer of whole votes, ties by the mean probability `p` of the voters. What is reported has the same order: the
    /// mean probability counts as one more voter, so the first class is the answer, and no class has exactly nothing.
    fn from_majority(votes: &[f64], p: &[f64]) -> Self {
        let voters: f64 = votes.iter().sum();
        // Half of a probability never reaches the next vote, whatever rounding does.
        let class_scores = votes.iter().zip(p).map(|(&v, &p)| (v + 0.5 * p) as f32).collect();
        let probabilities = votes.iter().zip(p).map(|(&v, &p)| ((v + p) / (voters + 1.0)) as f32).collect();
        Self::new(first_largest(&tied(votes), p), class_scores, probabilities)
    }

    /// The answer of probabilities.
    pub fn from_probabilities(p: &[f64]) -> Self {
        let rounded = to_f32(p);
        Self::new(argmax(&rounded), rounded.clone(), rounded)
    }

    /// The answer `probabilities` for an image of which view 0 alone was looked at.
    pub(super) fn of_first_view(task: &Task, image: &ViewSet<'_>, probabilities: &[f64]) -> Self {
        let views = ViewLogits::from_logits(task.logits(&image.features.select_rows(&[0])));
        let selection = LowestScore::of_scores(1.0, views.entropies.clone());
        Self::from_probabilities(probabilities).answer(views.explain(selection))
    }

    /// Adds the reasons.
    #[must_use]
    pub fn answer(self, explanation: Explanation) -> Self {
        Self { explanation, ..self }
    }
}

/// The selected views of `selection` decide by `vote`; `logits` is `[V, K]`.
pub fn vote(vote: Vote, tie: Tie, logits: &Matrix, selection: &Selection) -> Decision {
    let kept = &selection.selected;
    match vote {
        Vote::MeanProbability => Decision::from_probabilities(&mean_probability(logits, kept)),
        Vote::MeanLogits => Decision::from_logits(&mean_row(logits, kept)),
        Vote::ScoreWeighted => Decision::from_probabilities(&score_weighted(logits, &selection.scores, kept, 1.0)),
        Vote::Soft => {
            let scores = &selection.scores;
            Decision::from_probabilities(&score_weighted(logits, scores, &selection.ranking, SOFT_TEMPERATURE))
        }
        Vote::Majority => {
            let mut votes = vec![0.0f64; logits.cols()];
            kept.iter().for_each(|&view| votes[argmax(logits.row(view))] += 1.0);
            match tie {
                Tie::MeanProbability => Decision::from_majority(&votes, &mean_probability(logits, kept)),
                Tie::DiscardedViews => {
                    let winner = break_tie(&mut votes, logits, selection, TieFallback::Intended);
                    Decision::from_votes(&votes, winner)
                }
            }
        }
    }
}

/// How fast the weights of soft votes fall with the score (AWT's code).
pub const SOFT_TEMPERATURE: f32 = 0.5;

/// `softmax(-score / temperature)`: weights of views that add up to one.
pub fn soft_weights(scores: impl Iterator<Item = f32>, temperature: f32) -> Vec<f64> {
    softmax(&scores.map(|score| -score / temperature).collect::<Vec<f32>>())
}

fn score_weighted(logits: &Matrix, scores: &[f32], views: &[usize], temperature: f32) -> Vec<f64> {
    let weights = soft_weights(views.iter().map(|&view| scores[view]), temperature);
    let mut sum = vec![0.0f64; logits.cols()];
    for (&view, weight) in views.iter().zip(weights) {
        sum.iter_mut().zip(softmax(logits.row(view))).for_each(|(s, p)| *s += weight * p);
    }
    sum
}

/// The classes that have the most votes, ascending.
fn tied(votes: &[f64]) -> Vec<usize> {
    let most = votes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (0..votes.len()).filter(|&k| votes[k] == most).collect()
}

/// Of some classes, the first of largest value; class 0 if there are none.
fn first_largest<T: PartialOrd>(classes: &[usize], values: &[T]) -> usize {
    let first = classes.first().copied().unwrap_or(0);
    classes.iter().fold(first, |best, &k| if values[k] > values[best] { k } else { best })
}

crate::choices! {
    /// What to do when no discarded view votes for a tied class.
    pub enum TieFallback {
        /// The tied class with the largest logit of the most confident discarded view.
        Intended = "intended",
        /// As ZERO's code does: an index slip there excludes the mirror images K-1-t of the tied classes instead of
        /// the rest.
        Original = "original",
    }
}

/// ZERO's tie rule. The winner of a tie gets one more vote.
pub fn break_tie(votes: &mut [f64], logits: &Matrix, selection: &Selection, fallback: TieFallback) -> usize {
    let tied = tied(votes);
    if tied.len() == 1 {
        return tied[0];
    }
    let discarded = &selection.ranking[selection.selected.len()..];
    let vote_of = |view: usize| argmax(logits.row(view));
    // With nothing discarded the selected views decide instead, most confident first: one of them voted for a tied class.
    let voters = if discarded.is_empty() { &selection.selected } else { discarded };
    let winner = voters.iter().map(|&view| vote_of(view)).find(|k| tied.contains(k));
    let winner = winner.unwrap_or_else(|| {
        let row = logits.row(voters[0]);
        let allowed: Vec<usize> = match fallback {
            TieFallback::Intended => tied,
            TieFallback::Original => (0..row.len()).filter(|k| !tied.contains(&(row.len() - 1 - k))).collect(),
        };
        first_largest(&allowed, row)
    });
    votes[winner] += 1.0;
    winner
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(kept: usize, views: usize) -> Selection {
        let ranking: Vec<usize> = (0..views).collect();
        Selection { scores: (0..views).map(|v| v as f32).collect(), selected: ranking[..kept].to_vec(), ranking }
    }

    fn one_hot(classes: &[usize], width: usize) -> Matrix {
        let mut m = Matrix::zeros(classes.len(), width);
        classes.iter().enumerate().for_each(|(row, &k)| m.row_mut(row)[k] = 5.0 + row as f32 * 0.1);
        m
    }

    #[test]
    fn soft_votes_count_views_that_are_not_selected_less() {
        let logits = one_hot(&[0, 1, 2], 3);
        let ballot = vote(Vote::Soft, Tie::MeanProbability, &logits, &selection(1, 3));
        let p = &ballot.probabilities;
        assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-6 && p[0] > p[1] && p[1] > p[2] && p[2] > 0.01, "{p:?}");
        // Scores 0, 1, 2 at a temperature of 0.5.
        let weights = soft_weights([0.0, 1.0, 2.0].into_iter(), SOFT_TEMPERATURE);
        assert!((weights[0] / weights[1] - 2f64.exp()).abs() < 1e-4, "{weights:?}");
    }

    #[test]
    fn a_discarded_view_decides_a_tie() {
        let logits = one_hot(&[0, 2, 1, 2], 3);
        let ballot = vote(Vote::Majority, Tie::DiscardedViews, &logits, &selection(2, 4));
        assert_eq!((ballot.prediction, ballot.class_scores), (2, vec![1.0, 0.0, 2.0]));
    }

    #[test]
    fn the_fallback_keeps_to_the_tied_classes_unless_told_to_copy_the_slip() {
        // Views 0 and 1 tie classes 0 and 1 of 4; the only discarded view votes for 3.
        let mut logits = one_hot(&[0, 1, 3], 4);
        logits.row_mut(2)[1] = 1.0;
        let mut votes = vec![1.0, 1.0, 0.0, 0.0];
        assert_eq!(break_tie(&mut votes.clone(), &logits, &selection(2, 3), TieFallback::Intended), 1);
        // Mirrors of 0 and 1 are 3 and 2: excluded. Left are 0 and 1.
        assert_eq!(break_tie(&mut votes, &logits, &selection(2, 3), TieFallback::Original), 1);
        let mut votes = vec![1.0, 0.0, 1.0, 0.0];
        // Tied 0 and 2, mirrors 3 and 1 excluded.
        assert_eq!(break_tie(&mut votes, &logits, &selection(2, 3), TieFallback::Original), 0);
    }

    #[test]
    fn a_tie_without_discarded_views_still_has_a_winner() {
        let logits = one_hot(&[1, 0], 2);
        let ballot = vote(Vote::Majority, Tie::DiscardedViews, &logits, &selection(2, 2));
        assert_eq!(ballot.prediction, 1);
    }

    #[test]
    fn whole_votes_decide_and_what_is_reported_has_their_order() {
        // Class 0 has more votes; class 1 is surer. Then both have one vote.
        let logits = Matrix::from_vec(3, 3, vec![1.0, 0.9, 0.0, 1.0, 0.9, 0.0, 0.0, 9.0, 0.0]);
        let three = vote(Vote::Majority, Tie::MeanProbability, &logits, &selection(3, 3));
        assert_eq!((three.prediction, argmax(&three.probabilities), argmax(&three.class_scores)), (0, 0, 0));
        let two = Selection { selected: vec![0, 2], ..selection(3, 3) };
        let two = vote(Vote::Majority, Tie::MeanProbability, &logits, &two);
        assert_eq!((two.prediction, argmax(&two.probabilities), argmax(&two.class_scores)), (1, 1, 1));
        assert!((two.probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-6 && two.probabilities[2] > 0.0);
    }

    #[test]
    fn all_votes_agree_when_one_view_is_kept() {
        let logits = one_hot(&[1, 0, 0], 3);
        for kind in [Vote::MeanProbability, Vote::Majority, Vote::MeanLogits, Vote::ScoreWeighted] {
            assert_eq!(vote(kind, Tie::MeanProbability, &logits, &selection(1, 3)).prediction, 1, "{kind:?}");
        }
    }
}
