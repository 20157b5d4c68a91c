//! ADTE: views selected by Tsallis entropy with an exponent for each class, estimated on the whole test set.
//! Golden cases: `adte-*`.

use super::prelude::*;
use crate::options::mismatch;

pub static SPEC: AdapterSpec = AdapterSpec {
    aliases: &["adte-transductive"],
    summary: "selects views by Tsallis entropy with an exponent per class, estimated on the whole test set",
    docs: "\
What: pass 1, over the whole set without labels: z = mean logits over all views of an image; if its largest
entry is at least gap above the second, z enters the bank of that class (slots per class; a full class
replaces the one of smallest gap, if that of z is larger). P[:,j] = mean softmax of class j's entries; q <-
P q / |P q| from equal values, at most rounds times. The exponent of class k is ln q_k, scaled to [low,
high]: often answered classes get a larger one. Pass 2: a view's score is sum_k p_k^q_k / (1 - q_k); the mean
probability of the int(fraction V) views of lowest score is the answer.
Transductive: every answer depends on the whole set, so it does not compare with methods that see one image.
For one image alone take zero with score = \"tsallis:0.1\", vote = \"mean-probability\"; adte-stream is our form
for streams. A bank with fewer than two classes is an error: it says nothing about the frequency of classes.
compat = true replaces the entry of smallest gap also by a smaller one, as the authors' code does.
Cost: one image-tower pass over the views; rounds K^2 once; memory up to slots K^2.
Reference: ADTE, arXiv 2602.11743 (repository Jinx630/ADTE).
",
    verified: Verified::AuthorsCode,
    options: Adte::OPTIONS,
    ..AdapterSpec::new("adte", Build::Batch(|table| Ok(Box::new(Adte::read(table)?))))
};

crate::option_group! {
    ($) pub(super) class_exponents {
        /// Fraction of the views to select: the int(fraction * V) of lowest score.
        fraction: f64 = 0.1, alias "gamma", range fraction, from "authors' code";
        /// Images that are stored per class.
        slots: usize = 20, range between(1, 10_000), from "authors' code; the paper has 10";
        /// How far the largest mean logit must be above the second for an image to be stored.
        gap: f64 = 1.0, range at_least(0.0), from "authors' code";
        /// Exponent of the class that is answered least.
        low: f64 = 0.01, range above(0.0), from "authors' code";
        /// Exponent of the class that is answered most.
        high: f64 = 0.9, range above(0.0), from "authors' code";
        /// Most rounds of the estimate.
        rounds: usize = 500, range up_to(100_000), from "authors' code";
        /// Change at which the estimate ends.
        tolerance: f64 = 1e-4, range at_least(0.0), from "authors' code";
        /// Replace stored images also by less clear ones, as the authors' code does.
        compat: bool = false, from "choice";
    }
}

crate::options! {
    pub struct Adte for "adte", check Adte::exponents_are_ordered {
        include class_exponents;
    }
}

#[derive(Clone, Debug)]
struct Stored {
    gap: f32,
    probabilities: Vec<f64>,
}

/// Images with a clear answer, a few per class.
#[derive(Clone, Debug, Default)]
pub struct ClassBank {
    classes: Vec<Vec<Stored>>,
}

/// The mean logits of all views, and how far the largest is above the second.
pub fn mean_logits(views: &ViewLogits) -> (Vec<f32>, f32) {
    let z = mean_row(&views.logits, &(0..views.logits.rows()).collect::<Vec<_>>());
    let best = argmax(&z);
    let second = (0..z.len()).filter(|&k| k != best).map(|k| z[k]).fold(f32::NEG_INFINITY, f32::max);
    let gap = z[best] - second;
    (z, gap)
}

impl ClassBank {
    pub fn new(classes: usize) -> Self {
        Self { classes: vec![Vec::new(); classes] }
    }

    pub fn offer(&mut self, views: &ViewLogits, options: &Adte) {
        let (z, gap) = mean_logits(views);
        if f64::from(gap) < options.gap {
            return;
        }
        let item = Stored { gap, probabilities: softmax(&z) };
        let class = &mut self.classes[argmax(&z)];
        if class.len() < options.slots {
            class.push(item);
            return;
        }
        let least = (0..class.len()).fold(0, |least, i| if class[i].gap < class[least].gap { i } else { least });
        if options.compat || class[least].gap < gap {
            class[least] = item;
        }
    }

    /// Gaps of the stored images of every class.
    pub fn gaps(&self) -> Vec<Vec<f32>> {
        self.classes.iter().map(|class| class.iter().map(|item| item.gap).collect()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.classes.iter().map(Vec::len).sum()
    }

    /// Mean probabilities of the stored images of every class that has any.
    pub fn columns(&self) -> Vec<(usize, Vec<f64>)> {
        let mean = |items: &[Stored]| -> Vec<f64> {
            let mut sum = vec![0.0; self.classes.len()];
            for item in items {
                sum.iter_mut().zip(&item.probabilities).for_each(|(s, p)| *s += p / items.len() as f64);
            }
            sum
        };
        let present = self.classes.iter().enumerate().filter(|(_, items)| !items.is_empty());
        present.map(|(class, items)| (class, mean(items))).collect()
    }

    /// Logarithm of how often each class is answered.
    pub fn log_frequencies(&self, options: &Adte) -> Vec<f64> {
        let columns = self.columns();
        let mut q = vec![1.0 / self.classes.len() as f64; self.classes.len()];
        for _ in 0..options.rounds {
            let mut next = vec![0.0f64; q.len()];
            for (class, column) in &columns {
                next.iter_mut().zip(column).for_each(|(n, p)| *n += q[*class] * p);
            }
            let norm = next.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            next.iter_mut().for_each(|x| *x /= norm);
            if next.iter().zip(&q).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt() < options.tolerance {
                break;
            }
            q = next;
        }
        q.into_iter().map(|q| q.max(1e-30).ln()).collect()
    }

    pub fn exponents(&self, options: &Adte) -> Vec<f64> {
        let logs = self.log_frequencies(options);
        let (least, most) = logs.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &x| (a.min(x), b.max(x)));
        let spread = most - least;
        let scaled = |log: f64| options.low + (options.high - options.low) * (log - least) / spread;
        logs.into_iter().map(|log| if spread > 0.0 { scaled(log) } else { options.low }).collect()
    }
}

/// Selects views by their score with an exponent for each class.
pub fn select(views: &ViewLogits, exponents: &[f64], fraction: f64) -> Selection {
    let score =
        |row: &[f32]| softmax(row).iter().zip(exponents).map(|(p, q)| p.powf(*q) / (1.0 - q)).sum::<f64>() as f32;
    LowestScore::of_scores(fraction, views.logits.iter_rows().map(score).collect())
}

/// The answer of selected views: their mean probability.
pub(super) fn answer(views: ViewLogits, selection: Selection) -> Decision {
    let ballot = Decision::from_probabilities(&mean_probability(&views.logits, &selection.selected));
    ballot.answer(views.explain(selection))
}

impl Adte {
    fn exponents_are_ordered(&self) -> Result<()> {
        match self.low < self.high && self.high < 1.0 {
            true => Ok(()),
            false => Err(mismatch(Self::NAME, "high", "more than low and less than 1", self.high)),
        }
    }

    pub fn bank(&self, task: &Task, images: &[ViewSet<'_>]) -> Result<ClassBank> {
        let mut bank = ClassBank::new(task.class_count());
        for image in images {
            image.check(task, &SPEC)?;
            bank.offer(&ViewLogits::of(task, image), self);
        }
        Ok(bank)
    }
}

impl BatchAdapter for Adte {
    fn adapt(&self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>> {
        let bank = self.bank(task, images)?;
        let present = bank.columns().len();
        if present < 2 {
            let reason = format!(
                "estimates how often classes are answered from images with a clear answer, and {present} of {} classes have \
                 one among {} images; it needs two at least: give more images, or take a method for single images",
                task.class_count(),
                images.len()
            );
            return Err(Error::method(Adte::NAME, reason));
        }
        let exponents = bank.exponents(self);
        let of = |image: &ViewSet<'_>| {
            let views = ViewLogits::of(task, image);
            let selection = select(&views, &exponents, self.fraction);
            answer(views, selection)
        };
        Ok(images.iter().map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_says_nothing_about_classes_is_refused() {
        let task = task(4, 16, 30.0);
        let image = views(1, 8, 16);
        let error = Adte::default().adapt(&task, &[ViewSet::new("s", &image)]).unwrap_err().to_string();
        assert!(error.contains("of 4 classes") && error.contains("1 images"), "{error}");
        assert!(Adte::read(&toml::toml! { high = 1.0 }).unwrap_err().to_string().starts_with("adte.high"));
    }

    #[test]
    fn only_the_original_replaces_a_clear_image_by_a_less_clear_one() {
        let of = |gap: f32| ViewLogits::from_logits(Matrix::from_vec(1, 2, vec![gap, 0.0]));
        for (compat, kept) in [(false, 3.0), (true, 2.0)] {
            let options = Adte { slots: 1, compat, ..Adte::default() };
            let mut bank = ClassBank::new(2);
            [3.0, 0.5, 2.0].iter().for_each(|&gap| bank.offer(&of(gap), &options));
            assert_eq!(bank.gaps(), [vec![kept], vec![]]);
        }
    }

    #[test]
    fn a_class_that_is_answered_more_has_a_larger_exponent() {
        let of = |a: f32, b: f32, c: f32| ViewLogits::from_logits(Matrix::from_vec(1, 3, vec![a, b, c]));
        let mut bank = ClassBank::new(3);
        [of(3.0, 0.0, 0.0), of(2.0, 3.5, 0.0), of(2.0, 0.0, 3.2)].iter().for_each(|v| bank.offer(v, &Adte::default()));
        let q = bank.exponents(&Adte::default());
        assert!((q[0] - 0.9).abs() < 1e-9 && q[1] < 0.9 && q[2] >= 0.01, "{q:?}");
    }
}
