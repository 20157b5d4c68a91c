//! What `flatclip analyze` found, in words, tables and figures; and the file that a report reads it from.

use super::figure::{Axis, Figure, Layer};
use super::page::Section;
use super::table::{Cell, Table};
use crate::landscape::{Bound, Decile, EntropyGap, Scores, Separation};
use crate::{Error, Result};
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
    /// Whether the theorem's conclusion is seen at some threshold.
    pub holds: bool,
    /// Whether it is seen at every threshold.
    pub holds_everywhere: bool,
    /// Shares of scores below every threshold.
    pub separation: Separation,
    /// Spearman's correlation of an image's score with its distance to the training images.
    pub distance_score_rank_correlation: f64,
    /// What the training images are, in words.
    pub training: String,
    /// The terms of the bound.
    pub bound: Bound,
}

/// One set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnalysedSet {
    /// As given.
    pub name: String,
    /// How many.
    pub images: usize,
    /// Share of right answers of the single image.
    pub accuracy: f64,
    /// Mean score.
    pub mean_score: f64,
    /// Mean distance to the nearest class mean of the training images.
    pub mean_distance: f64,
    /// Theorem "ent" on its outputs.
    pub entropy_gap: EntropyGap,
    /// Tenths by score.
    pub deciles: Vec<Decile>,
}

impl AnalysedSet {
    /// The numbers of a set.
    pub fn new(name: &str, scores: &Scores, entropy_gap: EntropyGap) -> Self {
        Self {
            name: name.to_owned(),
            images: scores.scores.len(),
            accuracy: scores.accuracy(),
            mean_score: scores.mean_score(),
            mean_distance: scores.mean_distance(),
            entropy_gap,
            deciles: scores.deciles(),
        }
    }
}

impl AnalysisRecord {
    /// Reads the record of an analysis' folder; `None` when the folder holds none.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(ANALYSIS_FILE);
        if !path.is_file() {
            return Ok(None);
        }
        let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
        serde_json::from_slice(&bytes).map(Some).map_err(|e| {
            let reason = format!("not an analysis of this version of flatclip ({e})");
            Error::Run { path, reason }.with_hint(crate::error::Hint::Again("analyze"))
        })
    }

    /// As parts of a page.
    pub fn sections(&self) -> Vec<Section> {
        let scores = Section {
            title: format!("Scores of {} and {}", self.near.name, self.far.name),
            text: self.reading(),
            tables: vec![self.sets_table()],
            figures: vec![self.score_figure(), self.decile_figure()],
            ..Section::default()
        };
        let bound = Section {
            title: "Terms of the generalisation bound".into(),
            text: self.bound_reading(),
            tables: vec![self.bound_table()],
            ..Section::default()
        };
        vec![scores, bound]
    }

    /// Both sets beside each other.
    pub fn sets_table(&self) -> Table {
        let header = [
            "set",
            "images",
            "accuracy",
            "mean score",
            "mean distance",
            "entropy bound holds",
            "mean gap",
            "mean bound",
        ];
        let mut table = Table::new("Two data sets", header);
        for set in [&self.near, &self.far] {
            let gap = &set.entropy_gap;
            table.push(vec![
                Cell::text(&set.name),
                Cell::number(set.images as f64, 0),
                Cell::percent(set.accuracy),
                Cell::number(set.mean_score, 4),
                Cell::number(set.mean_distance, 4),
                Cell::text(format!("{} of {}", gap.holding, gap.count)),
                Cell::number(gap.mean_gap, 3),
                Cell::number(gap.mean_bound, 0),
            ]);
        }
        table.notes.push(format!(
            "accuracy in per cent; scores, gap and bound in nats; distance is 1 - cosine; the entropy bound is Theorem \"ent\" with all \
             probabilities raised to {}",
            self.near.entropy_gap.eta
        ));
        table
    }

    /// What the sets show.
    pub fn reading(&self) -> String {
        let s = &self.separation;
        let verdict = if self.holds_everywhere {
            "at every threshold the nearer set has at least as many scores below it"
        } else if self.holds {
            "there are thresholds at which the nearer set has more scores below, but not at every one"
        } else {
            "no threshold shows it: the conclusion of the theorem is NOT seen on these data"
        };
        format!(
            "P(score < xi) for {} and {}: {verdict}. Largest gap {:.3} at xi = {:.3}, smallest {:.3} at xi = {:.3}. Rank correlation of an \
             image's score with its distance to the nearest class mean of the training images: {:.2}. The entropy bound holds by so wide a \
             margin that it says little about how close entropy and cross-entropy are.",
            self.near.name,
            self.far.name,
            s.largest.1,
            s.largest.0,
            s.smallest.1,
            s.smallest.0,
            self.distance_score_rank_correlation
        )
    }

    /// The measured terms with what each of them is.
    pub fn bound_table(&self) -> Table {
        let (b, w) = (&self.bound, &self.bound.worst_case);
        let mut table =
            Table::new("Terms of the bound on the worst-case entropy", ["term", "nats", "how it was measured"]);
        let mut row = |term: &str, value: Option<f64>, how: String| {
            table.push(vec![
                Cell::text(term),
                value.map_or_else(|| Cell::text("-"), |v| Cell::number(v, 4)),
                Cell::text(how),
            ]);
        };
        row("left side, nearer set", Some(b.left.0), format!("mean score over {}", self.near.name));
        row("left side, farther set", Some(b.left.1), format!("mean score over {}", self.far.name));
        row("training loss at the prompt", Some(w.centre), format!("mean cross-entropy of {}", self.training));
        row(
            "worst case, one eps for all",
            Some(w.shared),
            format!(
                "largest of {} contexts within radius {}: gradient ascent and random directions",
                w.contexts, w.radius
            ),
        );
        let own = format!(
            "the same, and {} of {} images along their own gradient; a lower estimate",
            w.own_gradients, w.images
        );
        row("worst case, each image its own eps", Some(w.per_image), own);
        row("Q(delta/2)", Some(b.quantile), format!("scores of both sets, delta = {}", b.delta));
        row(
            "M sqrt(ln(2/delta)/2n)",
            Some(b.confidence),
            format!(
                "n = {}; M = {:.2}, the largest loss seen: cross-entropy has no upper limit",
                w.images, b.largest_loss
            ),
        );
        let gap = format!("training images at their worst contexts, floor eta = {}", b.eta);
        row("ln(1/eta) E|y-f| + E|y-f|^2/eta", Some(b.entropy_gap), gap);
        row("M/2 d(S;T)", None, "a supremum over all prompts: cannot be measured".into());
        row("2 mu R_n", None, "complexity of the class of all prompts: cannot be measured".into());
        table
    }

    /// What the terms say, with their limits.
    pub fn bound_reading(&self) -> String {
        let (b, w) = (&self.bound, &self.bound.worst_case);
        let left = b.left.0.max(b.left.1);
        let size = if b.measured() > left {
            format!(
                "The measured terms alone sum to {:.2} nats, {:.0} times the larger left side ({left:.3}), so the bound holds here but is far \
                 from tight, mostly through its entropy term ({:.2})",
                b.measured(),
                b.measured() / left.max(1e-12),
                b.entropy_gap
            )
        } else {
            format!(
                "The measured terms sum to {:.2} nats, below the larger left side ({left:.3}): if the bound holds, then by the two terms that \
                 cannot be measured",
                b.measured()
            )
        };
        format!(
            "Within radius {} of the prompt the training loss rises from {:.4} to at least {:.4} nats for one perturbation of all images (what \
             SAPT lowers), and to at least {:.4} when every image has its own (the bound's term). {size}. Comparisons between prompts rest on the \
             worst-case term, not on the sum.",
            w.radius, w.centre, w.shared, w.per_image
        )
    }

    /// Shares of scores below a threshold.
    pub(crate) fn score_figure(&self) -> Figure {
        let s = &self.separation;
        let curve = |name: &str, values: &[f64]| {
            let all = s.thresholds.iter().map(|&t| f64::from(t)).zip(values.iter().copied());
            let points = all.step_by((s.thresholds.len() / 60).max(1)).collect();
            Layer::Line { name: name.to_owned(), points, band: None }
        };
        let x = Axis::new("threshold xi (nats)");
        Figure::new("Share of scores below a threshold", x, Axis::new("P(score < xi)").within(0.0, 1.0))
            .with(curve(&self.near.name, &s.near))
            .with(curve(&self.far.name, &s.far))
    }

    /// Accuracy of the tenths.
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
mod tests {
    use super::*;
    use crate::landscape::WorstCase;

    fn record() -> AnalysisRecord {
        let near = Scores { scores: vec![0.1, 0.2], right: vec![true, true], distances: vec![0.1, 0.2] };
        let far = Scores { scores: vec![0.3, 0.4], right: vec![true, false], distances: vec![0.3, 0.4] };
        let separation = Separation::measure(&near.scores, &far.scores).unwrap();
        let worst_case = WorstCase {
            radius: 0.5,
            images: 8,
            centre: 0.1,
            shared: 0.2,
            per_image: 0.3,
            largest: 2.0,
            distance: 0.1,
            distance_squared: 0.02,
            contexts: 33,
            own_gradients: 8,
        };
        AnalysisRecord {
            schema_version: 1,
            near: AnalysedSet::new("near", &near, EntropyGap::default()),
            far: AnalysedSet::new("far", &far, EntropyGap::default()),
            holds: separation.holds(),
            holds_everywhere: separation.holds_everywhere(),
            separation,
            distance_score_rank_correlation: 1.0,
            training: "8 images".into(),
            bound: Bound::new(worst_case, 0.05, 1e-4, (0.1, 0.2), (0.15, 0.35)),
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
        assert_eq!(AnalysisRecord::read(dir.path()).unwrap_err().hint(), Some(&crate::Hint::Again("analyze")));
    }

    #[test]
    fn what_cannot_be_measured_has_no_number() {
        let table = record().bound_table().to_csv();
        let unmeasured: Vec<&str> = table.lines().filter(|line| line.contains("cannot be measured")).collect();
        assert_eq!(unmeasured.len(), 2);
        assert!(unmeasured.iter().all(|line| line.contains(",-,")), "{unmeasured:?}");
        assert!(record().bound_reading().contains("far from tight"));
    }
}
