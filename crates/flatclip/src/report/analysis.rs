//! What `flatclip analyze` found, in words, tables and figures; and the file that a report reads it from.

use super::figure::{Axis, Figure, Layer};
use super::page::Section;
use super::table::{Cell, Table};
use crate::landscape::{Bound, Decile, EntropyGap, Scores, Separation, Theory};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file of an analysis' folder that holds its numbers.
pub(crate) const ANALYSIS_FILE: &str = "analysis.json";

/// Where the paper's statement and its proof differ, and what is used here.
const SLIPS: &str = "Theorem 4 is printed with 2 mu R_n; its proof, and Theorem 1, have 2 sqrt(2) mu R_n, which is used here. \
\n\nThe text says that rho' = 0 degenerates to entropy maximisation; the score is then the entropy, and views of lowest entropy \
are kept. \n\nThe proof infers |xi_2 - xi_1| > beta from gamma-separability and beta < gamma, but xi_2 - xi_1 is M/2 times the \
difference of the divergences: M/2 gamma is compared with beta here. \n\nThe divergence is twice a total variation, so M/2 d is at \
most M. Labels are raised to the floor eta as the assumption y_i >= eta says. Cross-entropy of outputs of at least eta is \
1/eta-Lipschitz, which makes the complexity term large whatever is measured.";

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
    /// Divergence, complexity, tightness and separability.
    pub theory: Theory,
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
        let slips = Section { title: "What we read differently".into(), text: SLIPS.into(), ..Section::default() };
        vec![scores, bound, slips]
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
        let t = &self.theory;
        for (set, d) in [("nearer", &t.divergence.0), ("farther", &t.divergence.1)] {
            let how = format!(
                "d = {:.3} by a two-sample classifier on {} and {} held-out images (at least {:.3} with probability {}); a lower \
                 estimate, at most M = {:.2}",
                d.estimate,
                d.held_out.0,
                d.held_out.1,
                d.limit,
                1.0 - b.delta,
                b.largest_loss
            );
            row(&format!("M/2 d(S;T), {set} set"), Some(b.largest_loss / 2.0 * d.estimate), how);
        }
        let how = format!(
            "R_n = {:.5} by ascent on {} draws of random signs within the radius, a lower estimate; mu = 1/eta = {}",
            t.rademacher.estimate, t.rademacher.draws, t.lipschitz
        );
        row("2 sqrt(2) mu R_n", Some(t.complexity()), how);
        for (set, left, right, beta) in
            [("nearer", t.left.0, t.right.0, t.beta.0), ("farther", t.left.1, t.right.1, t.beta.1)]
        {
            let how = format!("all but {} of the scores; the right side is at least {right:.2}", b.delta);
            row(&format!("pointwise left side, {set} set"), Some(left), how);
            row(&format!("beta, {set} set"), Some(beta), "distance of both sides, at least".into());
        }
        row(
            "M/2 gamma",
            Some(t.gap),
            format!("gamma = {:.3}, the difference of both divergences as estimated", t.gamma),
        );
        table.notes.push(format!("radius {} is {:.3} of the context's norm", w.radius, self.relative_radius));
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
             worst-case term, not on the sum. {}",
            w.radius,
            w.centre,
            w.shared,
            w.per_image,
            self.separability()
        )
    }

    /// Whether what the theorem assumes of both sets is seen.
    fn separability(&self) -> String {
        let t = &self.theory;
        let order = if t.is_ordered() { "is" } else { "is NOT" };
        let met = if t.is_separated() { "met" } else { "not met: the bound is looser than the sets are apart" };
        format!(
            "The set called nearer {order} nearer by the estimated divergence ({:.3} against {:.3}). The theorem's condition that the \
             bounds of both sets differ by more than beta ({:.3} against {:.2}) is {met}; its conclusion is measured by itself above.",
            t.divergence.0.estimate, t.divergence.1.estimate, t.gap, t.beta.1
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
    use crate::landscape::{Divergence, Rademacher, WorstCase};

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
            theory: {
                let bound = Bound::new(worst_case.clone(), 0.05, 1e-4, (0.1, 0.2), (0.15, 0.35));
                let d = |estimate| Divergence { estimate, limit: 0.0, held_out: (4, 4) };
                let rademacher = Rademacher { estimate: 0.001, draws: 2, images: 8 };
                Theory::new(&bound, (d(0.5), d(1.5)), rademacher, (0.2, 0.4))
            },
            relative_radius: 0.5,
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
    fn estimates_from_below_say_so_and_the_proofs_condition_is_told() {
        let record = record();
        let table = record.bound_table().to_csv();
        // M/2 d = 2/2 * 1.5, and 2 sqrt(2) R_n / eta.
        assert!(table.contains("\"M/2 d(S;T), farther set\",1.5,"), "{table}");
        assert!((record.theory.complexity() - 28.284_271).abs() < 1e-4);
        assert!(record.bound_reading().contains("far from tight") && record.bound_reading().contains("not met"));
        assert!(record.theory.is_ordered() && !record.theory.is_separated());
    }
}
