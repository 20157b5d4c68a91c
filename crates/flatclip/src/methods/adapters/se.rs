//! SE: view 0 and the most confident other views, mixed by how confident view 0 is among them. Golden cases: `se-*`.

use super::prelude::*;

pub static SPEC: AdapterSpec = AdapterSpec {
    summary: "mixes the un-augmented view with the most confident others, by its rank among them",
    docs: "\
What: r is the share of views 1..V with a higher score than view 0, d = r - 0.5. The int(fraction (V - 1))
other views of lowest score are selected; view 0 is never one of them.
  answer = alpha softmax(l_0) + (1 - alpha) mean softmax(selected),
  alpha = 0.5 + sign(d) d^2 scale (square), 0.5 + d scale (linear, as in use), or given (fixed).
compat = true selects 6 views whatever their number, as the authors' code does; both are 6 of 64.
When the selected views all agree with view 0, the answer is that class with any alpha (USE's gate).
Cost: one image-tower pass over the views; no gradient, no state.
Reference: USE, ICML 2026 (repository sirujiang/USE, instance_method/se.py).
",
    verified: Verified::AuthorsCode,
    options: Se::OPTIONS,
    ..AdapterSpec::new("se", Build::Episodic(|table| Ok(Box::new(Se::read(table)?))))
};

crate::choices! {
    /// How the weight of view 0 follows from its rank.
    pub enum AlphaRule {
        /// `0.5 + sign(d) d^2 scale`.
        Square = "square",
        /// `0.5 + d scale`.
        Linear = "linear",
        /// The option alpha.
        Fixed = "fixed",
    }
}

crate::options! {
    pub struct Se for "se" {
        include view_selection { fraction = 0.1, from "authors' code: 6 of 63"; };
        /// How the weight of view 0 follows from its rank among the views.
        alpha_rule: AlphaRule = AlphaRule::Square, from "authors' code";
        /// How much it follows.
        scale: f64 = 0.4, range between(0.0, 1.0), from "authors' code";
        /// The weight of view 0 for alpha_rule = "fixed".
        alpha: f64 = 0.5, range between(0.0, 1.0), from "choice";
        /// Select exactly 6 views, as the authors' code does.
        compat: bool = false, from "choice";
    }
}

/// How view 0 and the others are mixed.
#[derive(Clone, Debug)]
pub struct Mixture {
    /// The other views, best first.
    pub kept: Vec<usize>,
    /// Share of the other views with a higher score than view 0.
    pub rank: f64,
    pub alpha: f64,
    scores: Vec<f32>,
    ranking: Vec<usize>,
}

impl Mixture {
    pub fn probabilities(&self, logits: &Matrix) -> Vec<f64> {
        let mut mixed = softmax(logits.row(0));
        if !self.kept.is_empty() {
            let others = mean_probability(logits, &self.kept);
            mixed.iter_mut().zip(others).for_each(|(m, p)| *m = self.alpha * *m + (1.0 - self.alpha) * p);
        }
        mixed
    }

    /// USE's gate: whether every selected view has the class of view 0, so that tuning is not worth its cost.
    pub fn agrees(&self, logits: &Matrix) -> bool {
        let class = argmax(logits.row(0));
        self.kept.iter().all(|&view| argmax(logits.row(view)) == class)
    }
}

impl Se {
    pub fn mixture(&self, views: &ViewLogits) -> Mixture {
        let (o, scores) = (self, self.score.of_views(views));
        let others = scores.len() - 1;
        let ranking: Vec<usize> = ranking(&scores).into_iter().filter(|&view| view != 0).collect();
        let count = if o.compat { 6 } else { keep_count(o.fraction, others) };
        let kept = ranking.iter().copied().take(count).collect();
        let above = scores[1..].iter().filter(|&&score| scores[0] < score).count();
        let rank = above as f64 / others.max(1) as f64;
        let d = rank - 0.5;
        let alpha = match o.alpha_rule {
            AlphaRule::Square => 0.5 + d.signum() * d * d * o.scale,
            AlphaRule::Linear => 0.5 + d * o.scale,
            AlphaRule::Fixed => o.alpha,
        };
        Mixture { kept, rank, alpha, scores, ranking }
    }
}

impl Adapter for Se {
    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let mixture = self.mixture(&views);
        let ballot = Decision::from_probabilities(&mixture.probabilities(&views.logits));
        let with_view_0 = |views: &[usize]| [&[0], views].concat();
        let (selected, ranking) = (with_view_0(&mixture.kept), with_view_0(&mixture.ranking));
        Ok(ballot.answer(views.explain(Selection { scores: mixture.scores, ranking, selected })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_view_is_zero_shot_and_a_closed_gate_keeps_the_class() {
        let task = task(4, 16, 30.0);
        let se = Se::default();
        let mut closed = 0;
        for seed in 0..20 {
            let image = views(seed, 16, 16);
            let seen = ViewLogits::of(&task, &ViewSet::new("s", &image));
            let class = argmax(seen.logits.row(0));
            let single = se.adapt(&task, &ViewSet::new("s", &image.select_rows(&[0]))).unwrap();
            assert_eq!(single.prediction, class);
            if se.mixture(&seen).agrees(&seen.logits) {
                closed += 1;
                assert_eq!(se.adapt(&task, &ViewSet::new("s", &image)).unwrap().prediction, class);
            }
        }
        assert!((1..20).contains(&closed), "{closed}");
    }
}
