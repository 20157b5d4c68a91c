//! What `flatclip analyze` found, in words, tables and figures; and the file that a report reads it from.

use super::Section;
use super::analysis_tables::SLIPS;
use super::compose::read_record;
use super::figure::{Axis, Figure, Layer};
use crate::flatness::{Bound, Decile, EntropyGap, Ordering, Scores, Separation, Theory, WorstEntropy, mean};
use flatclip::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file of an analysis' folder that holds its numbers.
pub(crate) const ANALYSIS_FILE: &str = "analysis.json";

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnalysisRecord {
    /// Of this layout.
    pub schema_version: u32,
    /// The nearer set.
    pub near: AnalysedSet,
    /// The farther set.
    pub far: AnalysedSet,
    /// Whether the theorem's conclusion is shown for the score: the interval of its largest gap is above zero, and the gap above
    /// what two draws of the nearer set give.
    pub holds: bool,
    /// Whether in addition no threshold has the opposite order.
    pub holds_everywhere: bool,
    /// The test of that, beside the same of the entropy alone.
    pub ordering: Ordering,
    /// Shares of scores below every threshold.
    pub separation: Separation,
    /// Shares of entropies at the prompt below every threshold: the control.
    pub control: Separation,
    /// Spearman's correlation of an image's score with its distance to the training images.
    pub distance_score_rank_correlation: f64,
    /// What the training images are, in words.
    pub training: String,
    /// The terms of the bound.
    pub bound: Bound,
    /// Divergence, complexity, tightness and separability.
    pub theory: Theory,
    /// Where the radius of the class of functions comes from.
    pub class_radius: String,
    /// The radius as a fraction of the context's norm.
    pub relative_radius: f64,
}

/// One set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnalysedSet {
    /// As given.
    pub name: String,
    /// How many.
    pub images: usize,
    /// Classes that these are of.
    pub classes_covered: usize,
    /// Classes of the set.
    pub classes: usize,
    /// Share of right answers of the single image.
    pub accuracy: f64,
    /// Mean entropy at the prompt.
    pub mean_entropy: f64,
    /// Mean score: the largest entropy over random directions.
    pub mean_score: f64,
    /// Mean distance to the nearest class mean of the training images.
    pub mean_distance: f64,
    /// The worst-case entropy by random directions and by ascent.
    pub worst_entropy: WorstEntropy,
    /// Theorem "ent" on its outputs.
    pub entropy_gap: EntropyGap,
    /// Tenths by score.
    pub deciles: Vec<Decile>,
}

impl AnalysedSet {
    /// The numbers of a set that has images of so many of its classes.
    pub(crate) fn new(
        name: &str,
        (classes_covered, classes): (usize, usize),
        scores: &Scores,
        worst_entropy: WorstEntropy,
        entropy_gap: EntropyGap,
    ) -> Self {
        Self {
            name: name.to_owned(),
            images: scores.scores.len(),
            classes_covered,
            classes,
            accuracy: scores.accuracy(),
            mean_entropy: mean(scores.entropies.iter().copied()),
            worst_entropy,
            mean_score: mean(scores.scores.iter().copied()),
            mean_distance: mean(scores.distances.iter().copied()),
            entropy_gap,
            deciles: scores.deciles(),
        }
    }
}

impl AnalysisRecord {
    /// Reads the record of an analysis' folder; `None` when the folder holds none.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        read_record(folder, ANALYSIS_FILE, "an analysis", "analyze")
    }

    /// As parts of a page.
    pub fn sections(&self) -> Vec<Section> {
        let scores = format!("Scores of {} and {}", self.near.name, self.far.name);
        let scores = Section {
            tables: vec![self.sets_table(), self.ordering_table(), self.worst_entropy_table()],
            figures: vec![self.score_figure(), self.control_figure(), self.decile_figure()],
            ..Section::new(scores, self.reading())
        };
        let bound = Section::new("Terms of the generalisation bound", self.bound_reading());
        let bound = Section { tables: vec![self.bound_table()], ..bound };
        vec![scores, bound, Section::new("What we read differently", SLIPS)]
    }

    pub(crate) fn score_figure(&self) -> Figure {
        self.shares("Share of scores below a threshold", "P(score < xi)", &self.separation)
    }

    /// The same of the entropy at the prompt, which no radius enters.
    pub(crate) fn control_figure(&self) -> Figure {
        self.shares("Control: share of entropies below a threshold", "P(entropy < xi)", &self.control)
    }

    fn shares(&self, title: &str, y: &str, s: &Separation) -> Figure {
        let curve = |name: &str, values: &[f64]| {
            let all = s.thresholds.iter().map(|&t| f64::from(t)).zip(values.iter().copied());
            Layer::line(name, all.step_by((s.thresholds.len() / 60).max(1)).collect())
        };
        Figure::new(title, Axis::new("threshold xi (nats)"), Axis::new(y).within(0.0, 1.0))
            .with(curve(&self.near.name, &s.near))
            .with(curve(&self.far.name, &s.far))
    }

    pub(crate) fn decile_figure(&self) -> Figure {
        let bars = |set: &AnalysedSet| Layer::Bars {
            name: set.name.clone(),
            values: set.deciles.iter().map(|d| 100.0 * d.accuracy).collect(),
        };
        let names = (1..=self.near.deciles.len()).map(|i| i.to_string());
        let x = Axis::categories("tenth of the images, lowest scores first", names);
        Figure::new("Accuracy by score", x, Axis::new("accuracy (%)").within(0.0, 100.0))
            .with(bars(&self.near))
            .with(bars(&self.far))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::flatness::{Divergence, Left, Rademacher, ScoreKind, tests_worst_case};

    pub(in crate::report) fn record() -> AnalysisRecord {
        let set = |scores: [f32; 2], right: bool| Scores {
            scores: scores.to_vec(),
            entropies: scores.map(|s| s / 2.0).to_vec(),
            floored: scores.to_vec(),
            right: vec![true, right],
            distances: scores.to_vec(),
        };
        let (near, far) = (set([0.1, 0.2], true), set([0.3, 0.4], false));
        let separation = Separation::measure(&near.scores, &far.scores).unwrap();
        let kind = |name: &str| ScoreKind { name: name.into(), near: &near.scores, far: &far.scores };
        let ordering = Ordering::measure(&kind("score"), &kind("entropy alone, radius 0"), &[], 1).unwrap();
        let left = |mean| Left { mean, quantile: 0.1, pointwise: mean + 0.05 };
        let bound = Bound::new(tests_worst_case(8), 32, 0.05, 1e-4, (left(0.15), left(0.35)));
        let d = |estimate| Divergence { estimate, limit: 0.0, held_out: (4, 4) };
        let rademacher =
            Rademacher { estimate: 0.001, standard_error: 1e-5, pairs: 8, steps: 4, images: 8, radius: 0.5 };
        let (entropy, random, ascent) = (0.1, 0.2, 0.26);
        let worst = WorstEntropy { images: 2, entropy, random, directions: 16, ascent, steps: 6, ascent_floored: 0.3 };
        let analysed = |name, scores| AnalysedSet::new(name, (2, 32), scores, worst, EntropyGap::default());
        AnalysisRecord {
            schema_version: 3,
            near: analysed("near", &near),
            far: analysed("far", &far),
            holds: ordering.claims[0].holds,
            holds_everywhere: ordering.claims[0].holds,
            ordering,
            control: separation.clone(),
            separation,
            distance_score_rank_correlation: 1.0,
            training: "8 images".into(),
            theory: Theory::new(&bound, (d(0.5), d(1.5)), rademacher),
            class_radius: "rho".into(),
            relative_radius: 0.5,
            bound,
        }
    }

    #[test]
    fn what_was_found_is_read_back_and_said() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(AnalysisRecord::read(dir.path()).unwrap(), None);
        let path = dir.path().join(ANALYSIS_FILE);
        std::fs::write(&path, serde_json::to_vec(&record()).unwrap()).unwrap();
        assert_eq!(AnalysisRecord::read(dir.path()).unwrap(), Some(record()));
        std::fs::write(&path, "{\"schema_version\":1}").unwrap();
        assert_eq!(AnalysisRecord::read(dir.path()).unwrap_err().hint(), Some(&flatclip::Hint::Again("analyze")));
    }
}
