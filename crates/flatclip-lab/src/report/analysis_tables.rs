//! The tables of an analysis, and what they say in words. Every number has a note on how it was found and on which side of the truth it
//! lies.

use super::{AnalysedSet, AnalysisRecord, Cell, Table};
use crate::flatness::WorstEntropy;

/// Where the paper's statement and its proof differ, and what is used here.
pub(super) const SLIPS: &str = "Theorem 4 is printed with 2 mu R_n; its proof, and Theorem 1, have 2 sqrt(2) mu R_n. Both forms are in \
the table; the right side, beta and the comparison with ln K use 2 sqrt(2). \
\n\nThe text says that rho' = 0 degenerates to entropy maximisation; the score is then the entropy, and views of lowest entropy \
are selected. \n\nThe proof infers |xi_2 - xi_1| > beta from gamma-separability and beta < gamma, but xi_2 - xi_1 is M/2 times the \
difference of the divergences: M/2 gamma is compared with beta here. \n\nThe divergence is twice a total variation, so M/2 d is at \
most M. \n\nThe theorem assumes outputs and labels of at least eta. Real ones are not, so both are raised to eta; the bound is then \
about the raised outputs, and scores with the floor stand on its left side. Cross-entropy of such outputs is at most ln(1/eta), \
which is M, and 1/eta-Lipschitz, which makes the complexity term large whatever is measured. That the worst-case loss, a maximum over \
contexts, is Lipschitz in the output at the prompt is an assumption of the paper that is not checked here. \n\nThe theorem's class of \
functions must not depend on the training images. The class here is the ball around the learned prompt, which does depend on them; \
R_n is taken on the drawn training images only, not as an expectation over draws of them. \n\nE_S is an expectation over the training \
distribution; it is taken as the mean over the same drawn training images, which tuning may have seen.";

/// On which side of the true value an estimate lies.
const LOWER: &str = "below";
const UPPER: &str = "above";
const ESTIMATE: &str = "neither";

impl AnalysisRecord {
    /// Both sets side by side.
    pub fn sets_table(&self) -> Table {
        Table::of("Two data sets", [&self.near, &self.far])
            .column("set", |set| Cell::text(&set.name))
            .column("images", |set| Cell::count(set.images))
            .column("classes", |set| Cell::text(format!("{} of {}", set.classes_covered, set.classes)))
            .column("accuracy", |set| Cell::percent(set.accuracy))
            .column("mean entropy", |set| Cell::number(set.mean_entropy, 4))
            .column("mean score", |set| Cell::number(set.mean_score, 4))
            .column("mean distance", |set| Cell::number(set.mean_distance, 4))
            .column("entropy bound holds", |AnalysedSet { entropy_gap: gap, .. }| {
                Cell::text(format!("{} of {}", gap.holding, gap.count))
            })
            .column("outputs below eta", |set| Cell::percent(set.entropy_gap.below_floor))
            .column("mean gap", |set| Cell::number(set.entropy_gap.mean_gap, 3))
            .column("mean bound", |set| Cell::number(set.entropy_gap.mean_bound, 0))
            .with_note(format!(
                "images are spread evenly over the set; accuracy in per cent; entropy, score, gap and bound in nats; distance is 1 - \
                 cosine; the entropy bound is Theorem \"ent\" with all probabilities raised to eta = {}; outputs below eta: images, \
                 in per cent, that have a class below it before that",
                self.near.entropy_gap.eta
            ))
    }

    /// The ordering claim, its null comparison and its control.
    pub fn ordering_table(&self) -> Table {
        Table::of("Is P(score < xi) larger on the nearer set?", &self.ordering.claims)
            .column("score", |claim| Cell::text(&claim.score))
            .column("largest gap", |claim| Cell::number(claim.gap, 3))
            .column("holds", |claim| Cell::text(if claim.holds { "yes" } else { "not shown" }))
            .column("95 % interval", |claim| {
                Cell::text(format!("{:.3} to {:.3}", claim.interval.0, claim.interval.1))
            })
            .column("near against near", |claim| Cell::number(claim.null.0, 3))
            .column("its 95 % quantile", |claim| Cell::number(claim.null.1, 3))
            .column("images", |claim| Cell::text(format!("{} and {}", claim.images.0, claim.images.1)))
            .with_note(
                "largest gap: the largest P(score < xi | nearer) - P(score < xi | farther) over all xi, which is never negative; \
                 interval: basic bootstrap over images; near against near: the same gap between two draws of the nearer set, of the \
                 same sizes; it holds where the interval is above zero and the gap above the quantile",
            )
    }

    /// The worst-case entropy by both searches.
    pub fn worst_entropy_table(&self) -> Table {
        let (random, steps) = (self.near.worst_entropy.directions, self.near.worst_entropy.steps);
        let title = format!("Worst-case entropy H^rho within radius {}", self.bound.worst_case.radius);
        Table::of(title, [(&self.near.name, &self.near.worst_entropy), (&self.far.name, &self.far.worst_entropy)])
            .column("set", |(name, _)| Cell::text(*name))
            .column("images", |(_, worst)| Cell::count(worst.images))
            .column("entropy at the prompt", |(_, worst)| Cell::number(worst.entropy, 4))
            .column(format!("{random} random directions"), |(_, worst)| Cell::number(worst.random, 4))
            .column(format!("ascent, {steps} steps, 1 start"), |(_, worst)| Cell::number(worst.ascent, 4))
            .column("ratio", |(_, worst)| Cell::number(worst.ratio(), 2))
            .with_note(
                "means in nats over the same images, spread over the set; both are lower estimates of H^rho: random directions are \
                 what an STSS score is, ascent of each image's own entropy comes closer",
            )
    }

    /// What the sets show.
    pub fn reading(&self) -> String {
        let s = &self.separation;
        let claim = &self.ordering.claims[0];
        let verdict = if self.holds_everywhere {
            "the nearer set has more scores below some thresholds, and fewer below none"
        } else if self.holds {
            "there are thresholds at which the nearer set has more scores below, but not at every one"
        } else {
            "the conclusion of the theorem is NOT shown on these data"
        };
        format!(
            "P(score < xi) for {} and {}: {verdict}. Largest gap {:.3} at xi = {:.3} (95 % interval {:.3} to {:.3}; two draws of the nearer set \
             give up to {:.3}), smallest {:.3} at xi = {:.3}. {} Rank correlation of an image's score with its distance to the nearest class \
             mean of the training images: {:.2}. The entropy bound holds by so wide a margin that it says little about how close entropy and \
             cross-entropy are.",
            self.near.name,
            self.far.name,
            s.largest.1,
            s.largest.0,
            claim.interval.0,
            claim.interval.1,
            claim.null.1,
            s.smallest.1,
            s.smallest.0,
            self.control_reading(),
            self.distance_score_rank_correlation
        )
    }

    /// What the perturbation adds to the entropy alone.
    fn control_reading(&self) -> String {
        let (o, entropy) = (&self.ordering, &self.ordering.claims[1]);
        let (low, high) = o.difference_interval;
        let adds = if low > 0.0 {
            "the perturbation orders the sets better"
        } else if high < 0.0 {
            "the perturbation orders the sets worse"
        } else {
            "no significant difference"
        };
        format!(
            "The entropy alone, without any perturbation, has a largest gap of {:.3} ({}): the score's differs by {:+.3} (95 % interval {low:.3} to \
             {high:.3}), {adds}.",
            entropy.gap,
            if entropy.holds { "it holds too" } else { "not shown" },
            o.difference
        )
    }

    /// Every term of the bound: its size, on which side of the truth it lies, and how it was found.
    pub fn bound_table(&self) -> Table {
        let header = ["term", "nats", "bounds from", "how it was found"];
        let mut table = Table::new("Terms of the bound on the worst-case entropy", header);
        let mut row = |term: String, value: f64, side: &str, how: String| {
            table.push(vec![Cell::text(term), Cell::number(value, 4), Cell::text(side), Cell::text(how)]);
        };
        self.left_rows(&mut row);
        self.training_rows(&mut row);
        self.right_rows(&mut row);
        let w = &self.bound.worst_case;
        table.notes.push(format!(
            "bounds from: the side of the true value on which the estimate lies; one radius for the scores and the training loss: {}, {:.3} of the context's norm; outputs and labels raised to eta = {}",
            w.radius, self.relative_radius, self.bound.eta
        ));
        table
    }

    fn left_rows(&self, row: &mut dyn FnMut(String, f64, &str, String)) {
        let b = &self.bound;
        for (word, set, left) in [("nearer", &self.near, b.left.0), ("farther", &self.far, b.left.1)] {
            let worst = &set.worst_entropy;
            let how = format!(
                "mean over {} images of {}: the largest of {} random directions, with the floor",
                set.images, set.name, worst.directions
            );
            row(format!("left side H^rho, {word} set"), left.mean, LOWER, how);
            let WorstEntropy { images, steps, .. } = worst;
            let how = format!("mean over {images} of them: ascent with {steps} steps, 1 start, with the floor");
            row(format!("the same by ascent, {word} set"), worst.ascent_floored, LOWER, how);
            let how = format!("what all but {} of the random-direction estimates are below", b.delta);
            row(format!("pointwise left side, {word} set"), left.pointwise, LOWER, how);
        }
    }

    fn training_rows(&self, row: &mut dyn FnMut(String, f64, &str, String)) {
        let (b, w) = (&self.bound, &self.bound.worst_case);
        let how = format!("mean cross-entropy of {}", self.training);
        row("training loss at the prompt".into(), w.centre, ESTIMATE, how);
        let how = format!("largest of {} contexts within radius {}: {}", w.contexts, w.radius, w.found_by());
        row("sharpness, one eps for all images".into(), w.sharpness(), LOWER, how);
        let how = format!(
            "every image its own eps: the same contexts, and ascent with {} steps for {} of {} images",
            w.own_steps, w.own_images, w.images
        );
        row("hat H^rho_S".into(), w.per_image, LOWER, how);
        let few = (self.near.images.min(self.far.images) as f64) < 2.0 / b.delta;
        let few = if few { "; too few images for this quantile: the largest" } else { "" };
        let how = format!("the larger of both sets, of the random-direction estimates, delta = {}{few}", b.delta);
        row("Q(delta/2)".into(), b.quantile, ESTIMATE, how);
        let how = format!(
            "ln(1/eta) with eta = {}; the largest loss found without the floor is {:.2}, {:.0} % of the training images have an output \
             below eta",
            b.eta,
            w.largest_found,
            100.0 * w.below_floor
        );
        row("M".into(), b.loss_bound, UPPER, how);
        row("M sqrt(ln(2/delta)/2n)".into(), b.confidence, UPPER, format!("n = {}", w.images));
        let how = format!(
            "E_S as the mean over the {} drawn training images, each at its theta-tilde as far as the search found it (the larger of \
             cross-entropy and entropy); E|y-f| = {:.4}",
            w.images, w.distance
        );
        row("ln(1/eta) E_S|y-f| + E_S|y-f|^2/eta".into(), b.entropy_gap, ESTIMATE, how);
    }

    fn right_rows(&self, row: &mut dyn FnMut(String, f64, &str, String)) {
        let (b, t, r) = (&self.bound, &self.theory, &self.theory.rademacher);
        for (word, d) in [("nearer", &t.divergence.0), ("farther", &t.divergence.1)] {
            let how = format!(
                "d = {:.3} by a two-sample classifier on {} and {} held-out images (at least {:.3} with probability {}); at most M",
                d.estimate,
                d.held_out.0,
                d.held_out.1,
                d.limit,
                1.0 - b.delta,
            );
            row(format!("M/2 d(S;T), {word} set"), b.loss_bound / 2.0 * d.estimate, LOWER, how);
        }
        let how = format!(
            "R_n = {:.5} \u{b1} {:.5} (standard error, {} antithetic pairs of signs, ascent with {} steps); class: prompts within {:.3} ({}) of \
             the learned one, so it depends on the data; mu = 1/eta = {}",
            r.estimate, r.standard_error, r.pairs, r.steps, r.radius, self.class_radius, t.lipschitz
        );
        row("2 mu R_n, as Theorem 4 is printed".into(), t.complexity_as_printed, LOWER, how);
        let how = format!("\u{b1} {:.2} nats (standard error)", t.complexity_error());
        row("2 sqrt(2) mu R_n, as Theorem 1 and the proof".into(), t.complexity, LOWER, how);
        row("ln K".into(), b.largest_entropy, UPPER, format!("K = {}: no entropy is larger", b.classes));
        let (near, far) = ((t.right_as_printed.0, t.right.0, t.beta.0), (t.right_as_printed.1, t.right.1, t.beta.1));
        for (word, (printed, right, beta)) in [("nearer", near), ("farther", far)] {
            for (form, right) in [("2 mu R_n", printed), ("2 sqrt(2) mu R_n", right)] {
                let vacuous = if right > b.largest_entropy { "VACUOUS: above ln K" } else { "below ln K" };
                let how = format!("{vacuous}; M from above, d, hat H^rho and R_n from below");
                row(format!("right side with {form}, {word} set"), right, ESTIMATE, how);
            }
            let how = "distance of the right side (2 sqrt(2)) and of the pointwise left side".into();
            row(format!("beta, {word} set"), beta, ESTIMATE, how);
        }
        let how = format!("gamma = {:.3}, the difference of both divergences as estimated", t.gamma);
        row("M/2 gamma".into(), t.gap, ESTIMATE, how);
    }

    /// What the terms say, with their limits.
    pub fn bound_reading(&self) -> String {
        let (b, w, t) = (&self.bound, &self.bound.worst_case, &self.theory);
        let size = match t.vacuous {
            (false, false) => format!("Both right sides are below ln K = {:.2}", b.largest_entropy),
            (near, far) => {
                let which = match (near, far) {
                    (true, true) => "for both sets",
                    (true, false) => "for the nearer set",
                    _ => "for the farther set",
                };
                format!(
                    "The bound is VACUOUS {which}: {:.0} and {:.0} nats, where no entropy exceeds ln K = {:.2}; mostly through its entropy term \
                     ({:.0}) and its complexity term ({:.0})",
                    t.right.0, t.right.1, b.largest_entropy, b.entropy_gap, t.complexity
                )
            }
        };
        format!(
            "Within radius {} of the prompt the training loss rises from {:.4} to at least {:.4} nats for one perturbation of all images (its \
             sharpness, what SAPT lowers; {}), and to at least {:.4} when every image has its own (the bound's term). {size}. Comparisons \
             between prompts rest on the worst-case term, not on the sum. {}",
            w.radius,
            w.centre,
            w.shared,
            w.found_by(),
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
}

#[cfg(test)]
mod tests {
    use super::super::analysis::tests::record;

    #[test]
    fn every_term_says_on_which_side_of_the_truth_it_lies() {
        let record = record();
        let table = record.bound_table();
        for row in &table.rows {
            assert!(["below", "above", "neither"].contains(&row[2].text.as_str()), "{row:?}");
        }
        let value = |term: &str| {
            let row = table.rows.iter().find(|row| row[0].text == term).unwrap_or_else(|| panic!("no {term}"));
            (row[1].value.unwrap(), row[2].text.clone())
        };
        // M = ln(1/eta), and M/2 d = M/2 * 1.5.
        let m = -1e-4f64.ln();
        assert_eq!(value("M"), (m, "above".to_owned()));
        assert!((value("M/2 d(S;T), farther set").0 - 0.75 * m).abs() < 1e-12);
        // Both forms of the constant.
        let (printed, proof) =
            (value("2 mu R_n, as Theorem 4 is printed"), value("2 sqrt(2) mu R_n, as Theorem 1 and the proof"));
        assert!((printed.0 - 20.0).abs() < 1e-9 && (proof.0 - 28.284_271).abs() < 1e-4);
        assert!(
            (value("right side with 2 sqrt(2) mu R_n, nearer set").0
                - value("right side with 2 mu R_n, nearer set").0
                - 8.284_271)
                .abs()
                < 1e-4
        );
        assert_eq!(value("ln K").0, 32f64.ln());
    }

    #[test]
    fn a_bound_above_the_largest_entropy_is_called_vacuous_and_the_rest_is_told() {
        let mut record = record();
        assert!(record.bound_reading().contains("VACUOUS for both sets") && record.bound_reading().contains("not met"));
        assert!(record.theory.is_ordered() && !record.theory.is_separated());
        record.theory.vacuous = (false, false);
        assert!(!record.bound_reading().contains("VACUOUS"));
        let table = record.bound_table().to_csv();
        for word in
            ["11.60", "25 % of the training images", "depends on the data", "8 drawn training images", "standard error"]
        {
            assert!(table.contains(word), "no {word:?} in {table}");
        }
    }

    #[test]
    fn the_ordering_claim_stands_beside_its_null_and_its_control() {
        let record = record();
        let table = record.ordering_table();
        assert_eq!(table.rows.len(), 2);
        assert!(table.to_text().contains("entropy alone, radius 0") && table.to_text().contains("near against near"));
        assert!(record.reading().contains("The entropy alone") && record.reading().contains("95 % interval"));
        assert!(record.worst_entropy_table().to_text().contains("1.30"), "ascent over random directions");
        assert!(record.sets_table().to_text().contains("2 of 32"), "classes covered");
    }
}
