//! STSS: sharpness-aware test-time sample selection. With a SAPT prompt it is FGA. In the order of the paper: perturb the
//! prompt ([`Stss::prepare`]), score the views ([`Scorer`]), select the lowest, let them vote. Golden cases: `fga-stss-*`.

use super::prelude::*;
use crate::methods::Explanation;
use crate::methods::aggregate::{Tie, Vote, vote};
use crate::methods::bank::{Directions, RadiusUnit, RandomPerturbation, TextBank};
use crate::methods::sam::NormScope;
use crate::methods::task::{cosines, packed};
use crate::prompt::PromptKind;
use flatclip_tensor::gemm::Linear;
use flatclip_tensor::threads;
use std::sync::Arc;

pub static SPEC: AdapterSpec = AdapterSpec {
    aliases: &["fga"],
    // Class embeddings serve with a bank of other prompts beside them.
    needs: Needs { bank: true, prompts: PromptKind::TEXT, ..Needs::CONTEXT },
    summary: "selects the views whose entropy stays low around the prompt and lets them vote; FGA with a sapt prompt",
    docs: "\
What: the context p is perturbed R times by random directions of length radius; the text features T_r of all
perturbed contexts are computed once per prompt and class list (the text bank). For each view v: score = H_v
+ lambda * (max_r H_rv - H_v), with H_rv the entropy of softmax(exp(logit_scale) * f_v . T_r). The
int(fraction * V) views of lowest score vote with the unperturbed prompt, one vote each, ties by their mean
probability; the reported probability of a class is (votes + mean probability) / (voters + 1). With lambda =
1 the score is max_r H_rv. With radius = 0, perturbations = 0 or lambda = 0 it is TPT's and ZERO's confidence
filter.
A maple prompt is perturbed in its text tensors, the context and the deep prompts together, one norm over
all; its visual prompts stay. A cocoop context depends on the image: it is perturbed around context +
meta_net(feature of view 0).
Text features of other prompts, where they are given, stand in the place of perturbed contexts: radius, norm,
perturbations and directions are then without effect, and no text tower is needed.
Cost: one image-tower pass over the views; at most R * V * K dot products (below 1 % of it): with reduce =
max, views that cannot be selected any more are dropped before all perturbations are seen, and their
reported score is a lower bound; R text-tower passes once per class list; with a cocoop prompt R + 1
text-tower passes for every image.
Reference: Flatness-guided adaptation (FGA), ICLR 2026; first version as TLLA, arXiv 2501.18864.
",
    verified: Verified::Formula,
    options: Config::OPTIONS,
    ..AdapterSpec::new("stss", Build::Episodic(|table| Ok(Box::new(Stss::new(Config::read(table)?)))))
};

crate::choices! {
    /// How the losses at the perturbed contexts become one.
    pub enum Reduce {
        /// The largest: the paper's.
        Max = "max",
        /// The mean.
        Mean = "mean",
        /// A quantile.
        Quantile = "quantile",
    }
}

crate::choices! {
    /// What happens to the un-augmented view.
    pub enum Original {
        /// It competes like the others.
        Pool = "pool",
        /// It is always selected.
        Forced = "forced",
        /// It is never selected (unless it is the only view).
        Excluded = "excluded",
    }
}

crate::choices! {
    /// Which text features the selected views vote with.
    pub enum VoteText {
        /// Those at the context itself.
        Context = "context",
        /// The mean over the context and its perturbations.
        BankMean = "bank-mean",
    }
}

crate::options! {
    pub struct Config for "stss" {
        /// Length of a perturbation, rho'.
        radius: f64 = 0.5, alias "rho", range at_least(0.0), from "paper";
        /// What the radius is measured in; relative transfers to contexts of other widths.
        radius_unit: RadiusUnit = RadiusUnit::Absolute, from "paper";
        /// Over which entries a perturbation has that length.
        norm: NormScope = NormScope::Whole, from "paper's symbol";
        /// Number of perturbed contexts, R; 4 already costs less than half a point.
        perturbations: usize = 16, range up_to(4096), from "paper";
        /// How directions are drawn; antithetic and orthogonal ones need fewer for the same noise.
        directions: Directions = Directions::Gaussian, from "paper";
        /// Weight of the sharpness.
        lambda: f64 = 1.0, range at_least(0.0), from "paper";
        /// How the losses around the prompt become one.
        reduce: Reduce = Reduce::Max, from "paper";
        /// Which quantile, for reduce = "quantile".
        quantile: f64 = 0.9, range between(0.0, 1.0), from "choice";
        /// Whether negative sharpness counts as zero.
        clamp: bool = false, from "paper's formula";
        include view_selection { fraction = 0.1, from "paper: 6 of 64"; };
        /// Number of views to select; 0 means the fraction.
        count: usize = 0, from "choice";
        /// What happens to the un-augmented view.
        original: Original = Original::Pool, from "choice";
        /// How selected views decide.
        vote: Vote = Vote::Majority, alias "pool", from "paper: votes";
        /// Who decides a tie of a majority.
        tie: Tie = Tie::MeanProbability, from "choice";
        /// Which text features the selected views vote with.
        vote_text: VoteText = VoteText::Context, from "paper";
    }
}

impl Config {
    /// How the context is perturbed; not at all where the score is the plain loss.
    pub fn perturbation(&self) -> RandomPerturbation {
        RandomPerturbation {
            count: if self.lambda == 0.0 { 0 } else { self.perturbations },
            radius: self.radius,
            unit: self.radius_unit,
            norm: self.norm,
            directions: self.directions,
        }
    }
}

/// Options that say how perturbed contexts are made.
const OF_PERTURBATION: [&str; 5] = ["radius", "radius_unit", "norm", "perturbations", "directions"];

/// Refuses options that a ready text bank leaves without a meaning: what stands around the prompt is in the bank.
pub(crate) fn check_bank_options(spec: &AdapterSpec, given: &toml::Table) -> Result<()> {
    if spec.name != Config::NAME {
        return Ok(());
    }
    let of_perturbation = |key: &String| {
        let option = Config::OPTIONS.iter().find(|option| option.answers_to(key))?;
        OF_PERTURBATION.contains(&option.name).then_some(option.name)
    };
    match given.keys().find_map(of_perturbation) {
        Some(name) => {
            let reason = "has no effect with a ready text bank, which holds the text features around the prompt already; \
                          leave the option out, or make the bank with it";
            Err(crate::Error::config(format!("{}.{name}", Config::NAME), reason))
        }
        None => Ok(()),
    }
}

impl Reduce {
    /// One loss from those at the perturbed contexts.
    fn of(self, mut losses: Vec<f32>, quantile: f64) -> f32 {
        match self {
            Self::Max => losses.into_iter().fold(f32::NEG_INFINITY, f32::max),
            Self::Mean => (losses.iter().map(|&h| f64::from(h)).sum::<f64>() / losses.len() as f64) as f32,
            Self::Quantile => {
                losses.sort_by(f32::total_cmp);
                let place = quantile * (losses.len() - 1) as f64;
                let (low, part) = (place.floor() as usize, (place - place.floor()) as f32);
                losses[low] + part * (losses[(low + 1).min(losses.len() - 1)] - losses[low])
            }
        }
    }
}

/// Images whose views share products: enough rows to read the text bank from memory seldom.
const IMAGES_TOGETHER: usize = 16;

#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// One per view, lower is better.
    pub values: Vec<f32>,
    /// Views whose value is a lower bound: they were dropped before all perturbations were seen.
    pub bounds: Vec<usize>,
}

/// Scores views by `score_v = H_v + lambda (max_r H_{r,v} - H_v)`.
#[derive(Clone, Copy, Debug)]
pub struct Scorer<'a> {
    options: &'a Config,
    /// `T_r`, text features at the perturbed contexts.
    perturbed: &'a [Linear],
    /// The factor on cosines.
    scale: f32,
}

impl Scorer<'_> {
    /// `H_{r,v}` at one perturbed context. One `[V, K]` at a time: `[R, V, K]` is never in memory.
    fn losses(&self, features: &Matrix, text: &Linear) -> Vec<f32> {
        logits(features, text, self.scale).iter_rows().map(|row| self.options.score.of(row)).collect()
    }

    /// `H_{r,v}` at every perturbed context.
    pub fn losses_around(&self, features: &Matrix) -> Vec<Vec<f32>> {
        self.perturbed.iter().map(|text| self.losses(features, text)).collect()
    }

    fn score(&self, loss: f32, around: f32) -> f32 {
        let rise = around - loss;
        loss + self.options.lambda as f32 * if self.options.clamp { rise.max(0.0) } else { rise }
    }

    fn score_over(&self, loss: f32, around: Vec<f32>) -> f32 {
        if around.is_empty() { loss } else { self.score(loss, self.options.reduce.of(around, self.options.quantile)) }
    }

    pub fn all(&self, features: &Matrix, views: &ViewLogits) -> Scores {
        let around = self.losses_around(features);
        let of = |(v, &loss): (usize, &f32)| self.score_over(loss, around.iter().map(|losses| losses[v]).collect());
        Scores { values: self.options.score.of_views(views).iter().enumerate().map(of).collect(), bounds: Vec::new() }
    }

    /// Scores that select the same views for less work. The largest loss, and with it the score, can only grow with every
    /// perturbation that is added. So the views of lowest loss are scored first; of the others, a view is dropped as soon as
    /// its score over some perturbations is above all of theirs. Several images share products; no score depends on the others.
    pub fn lazy(&self, images: &[(&Matrix, &ViewLogits)]) -> Vec<Scores> {
        let mut images: Vec<Lazy<'_>> = images.iter().map(|image| Lazy::new(self.options, *image)).collect();
        for text in self.perturbed {
            let losses = self.losses(&rows_of(images.iter().map(|image| (image.features, &image.first))), text);
            let mut left = losses.into_iter();
            images.iter_mut().for_each(|image| image.around.push(left.by_ref().take(image.first.len()).collect()));
        }
        images.iter_mut().for_each(|image| image.score_first(self));
        let count = self.perturbed.len();
        for (seen, r) in (0..count * count).map(|step| (step / count, step % count)) {
            let is_next = |image: &Lazy<'_>| image.order[seen] == r && !image.others.is_empty();
            let mut asked: Vec<&mut Lazy<'_>> = images.iter_mut().filter(|image| is_next(image)).collect();
            if asked.is_empty() {
                continue;
            }
            let losses =
                self.losses(&rows_of(asked.iter().map(|image| (image.features, &image.others))), &self.perturbed[r]);
            let mut left = losses.into_iter();
            asked.iter_mut().for_each(|image| image.score_others(self, &mut left, seen + 1 == count));
        }
        images.into_iter().map(Lazy::scores).collect()
    }
}

/// The views of one image while they are scored.
struct Lazy<'a> {
    features: &'a Matrix,
    loss: Vec<f32>,
    /// The views that are scored first, and the original; of these, the first `places` set the limit.
    first: Vec<usize>,
    places: usize,
    /// Views that may still be selected.
    others: Vec<usize>,
    /// `H_{r,v}` of the first views.
    around: Vec<Vec<f32>>,
    /// The perturbations that raise the first views' loss most are likely to drop the others soonest.
    order: Vec<usize>,
    limit: f32,
    largest: Vec<f32>,
    values: Vec<f32>,
    bounds: Vec<usize>,
}

impl<'a> Lazy<'a> {
    fn new(options: &Config, (features, views): (&'a Matrix, &ViewLogits)) -> Self {
        let loss = options.score.of_views(views);
        let (pool, places) = options.pool(&ranking(&loss));
        let mut first = pool[..places].to_vec();
        first.extend((!pool.contains(&0)).then_some(0));
        Self {
            features,
            first,
            places,
            others: pool[places..].to_vec(),
            around: Vec::new(),
            order: Vec::new(),
            limit: f32::NEG_INFINITY,
            largest: vec![f32::NEG_INFINITY; loss.len()],
            values: loss.clone(),
            bounds: Vec::new(),
            loss,
        }
    }

    fn score_first(&mut self, scorer: &Scorer<'_>) {
        for (at, &v) in self.first.iter().enumerate() {
            self.values[v] = scorer.score_over(self.loss[v], self.around.iter().map(|losses| losses[at]).collect());
        }
        self.limit = self.first[..self.places].iter().map(|&v| self.values[v]).fold(f32::NEG_INFINITY, f32::max);
        let gain: Vec<f32> = self.around.iter().map(|losses| -losses.iter().sum::<f32>()).collect();
        self.order = ranking(&gain);
    }

    fn score_others(&mut self, scorer: &Scorer<'_>, losses: &mut impl Iterator<Item = f32>, is_last: bool) {
        for (&v, at) in self.others.iter().zip(losses) {
            self.largest[v] = self.largest[v].max(at);
            self.values[v] = scorer.score(self.loss[v], self.largest[v]);
        }
        if !is_last {
            let (values, limit) = (&self.values, self.limit);
            self.bounds.extend(self.others.extract_if(.., |v| values[*v] > limit));
        }
    }

    fn scores(mut self) -> Scores {
        self.bounds.sort_unstable();
        Scores { values: self.values, bounds: self.bounds }
    }
}

/// Views of several images, one after the other.
fn rows_of<'a>(images: impl Iterator<Item = (&'a Matrix, &'a Vec<usize>)>) -> Matrix {
    let (mut rows, mut count, mut width) = (Vec::new(), 0, 0);
    for (features, views) in images {
        views.iter().for_each(|&v| rows.extend_from_slice(features.row(v)));
        (count, width) = (count + views.len(), features.cols());
    }
    Matrix::from_vec(count, width, rows)
}

impl Config {
    /// The views that compete, of all views from best to worst, and how many of them are selected.
    fn pool(&self, ranking: &[usize]) -> (Vec<usize>, usize) {
        let count = if self.count > 0 { self.count } else { keep_count(self.fraction, ranking.len()) };
        let others = || ranking.iter().copied().filter(|&view| view != 0).collect::<Vec<_>>();
        let (pool, places) = match self.original {
            Original::Forced => (others(), count - 1),
            Original::Excluded if ranking.len() > 1 => (others(), count),
            Original::Pool | Original::Excluded => (ranking.to_vec(), count),
        };
        let places = places.min(pool.len());
        (pool, places)
    }

    pub fn select(&self, scores: Vec<f32>) -> Selection {
        let (mut pool, places) = self.pool(&ranking(&scores));
        let mut selected = pool[..places].to_vec();
        if self.original == Original::Forced {
            selected.insert(0, 0);
            pool.insert(0, 0);
        }
        Selection { scores, ranking: pool, selected }
    }

    /// Whether dropped views may stay without a score: the largest loss bounds it, and the vote asks selected views alone.
    fn is_lazy(&self) -> bool {
        let asks_others = match self.vote {
            Vote::Soft => true,
            Vote::Majority => self.tie == Tie::DiscardedViews,
            _ => false,
        };
        self.reduce == Reduce::Max && !asks_others
    }
}

fn logits(features: &Matrix, text: &Linear, scale: f32) -> Matrix {
    scaled(cosines(features, text), scale)
}

/// The text bank of a prompt, packed for products: once for all images.
#[derive(Debug)]
struct Packed {
    bank: TextBank,
    /// Absent where the task has the same text features packed.
    base: Option<Linear>,
    /// Where the selected views vote with it.
    mean: Option<Linear>,
    perturbed: Vec<Linear>,
}

impl Packed {
    /// `own`: the text features that a task has packed.
    fn new(bank: TextBank, options: &Config, own: Option<&Matrix>) -> Arc<Self> {
        let base = (own != Some(bank.base())).then(|| packed(bank.base()));
        let mean = (options.vote_text == VoteText::BankMean).then(|| packed(&bank.mean()));
        Arc::new(Self { base, mean, perturbed: bank.perturbed().iter().map(packed).collect(), bank })
    }

    /// What every view says at the unperturbed prompt.
    fn views(&self, task: &Task, image: &ViewSet<'_>) -> ViewLogits {
        match &self.base {
            Some(base) => ViewLogits::from_logits(logits(image.features, base, task.logit_scale)),
            None => ViewLogits::of(task, image),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Stss {
    options: Config,
    around: Option<Arc<Packed>>,
}

impl Stss {
    /// With these options; [`Adapter::prepare`] makes the bank.
    pub fn new(options: Config) -> Self {
        Self { options, around: None }
    }

    pub fn with_bank(options: Config, bank: TextBank) -> Self {
        let around = Some(Packed::new(bank, &options, None));
        Self { options, around }
    }

    /// The bank, once there is one.
    pub fn bank(&self) -> Option<&TextBank> {
        self.around.as_ref().map(|around| &around.bank)
    }

    /// What scores views with the bank, once there is one.
    pub fn scorer(&self, scale: f32) -> Option<Scorer<'_>> {
        self.around.as_ref().map(|around| self.scorer_with(around, scale))
    }

    fn scorer_with<'a>(&'a self, around: &'a Packed, scale: f32) -> Scorer<'a> {
        Scorer { options: &self.options, perturbed: &around.perturbed, scale }
    }
}

impl Adapter for Stss {
    /// Perturb the prompt: `T_r` = text features at `p + rho' u_r`, `u_r` random unit directions, once per class list.
    fn prepare(&mut self, task: &Task) -> Result<()> {
        let bank = TextBank::of_task(task, &self.options.perturbation(), Config::NAME)?;
        self.around = bank.map(|bank| Packed::new(bank, &self.options, Some(task.text_features())));
        Ok(())
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let around = match &self.around {
            Some(around) => Arc::clone(around),
            None => {
                let how = self.options.perturbation();
                let bank = TextBank::of_image(task, image.features.row(0), &how, Config::NAME)?;
                Packed::new(bank, &self.options, None)
            }
        };
        let is_lazy = self.options.is_lazy() && !image.explain;
        Ok(self.answers(task, &around, std::slice::from_ref(image), is_lazy).swap_remove(0))
    }

    /// With bounds for scores, few views of an image see every perturbed context: products over several images are faster.
    fn is_vectorised(&self) -> bool {
        self.options.is_lazy() && self.around.is_some()
    }

    fn adapt_many(&self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>> {
        let Some(around) = self.around.as_ref().filter(|_| self.is_vectorised() && images.iter().all(|i| !i.explain))
        else {
            return images.iter().map(|image| self.adapt(task, image)).collect();
        };
        images.iter().try_for_each(|image| image.check(task, &SPEC))?;
        let several = |images: &[ViewSet<'_>]| self.answers(task, around, images, true);
        Ok(threads::map(images.chunks(IMAGES_TOGETHER).collect(), several).concat())
    }
}

impl Stss {
    /// Score the views of some images, and select those of lowest score; they vote with the unperturbed prompt.
    fn answers(&self, task: &Task, around: &Packed, images: &[ViewSet<'_>], is_lazy: bool) -> Vec<Decision> {
        let (o, scorer) = (&self.options, self.scorer_with(around, task.logit_scale));
        let views: Vec<ViewLogits> = images.iter().map(|image| around.views(task, image)).collect();
        let asked: Vec<_> = images.iter().map(|image| image.features).zip(&views).collect();
        let scores = match is_lazy {
            true => scorer.lazy(&asked),
            false => asked.iter().map(|(features, views)| scorer.all(features, views)).collect(),
        };
        let decide = |((image, views), scores): ((&ViewSet<'_>, ViewLogits), Scores)| {
            let selection = o.select(scores.values);
            let mean = around.mean.as_ref().map(|mean| logits(image.features, mean, task.logit_scale));
            let ballot = vote(o.vote, o.tie, mean.as_ref().unwrap_or(&views.logits), &selection);
            ballot.answer(Explanation { bounds: scores.bounds, ..views.explain(selection) })
        };
        images.iter().zip(views).zip(scores).map(decide).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bank(classes: usize, width: usize, count: u64, spread: f32) -> TextBank {
        let base = unit_rows(1, classes, width);
        let near = |r: u64| {
            let mut text = unit_rows(100 + r, classes, width);
            text.data_mut().iter_mut().zip(base.data()).for_each(|(x, b)| *x = b + spread * *x);
            normalise_rows(&mut text);
            text
        };
        TextBank::from_prompts(base.clone(), (0..count).map(near).collect()).unwrap()
    }

    #[test]
    fn lazy_scores_select_the_same_views_to_the_bit() {
        let mut dropped = 0;
        for (seed, spread) in [(1u64, 0.02), (2, 0.2), (3, 0.8), (4, 0.1)] {
            let (bank, features) = (bank(7, 16, 9, spread), unit_rows(50 + seed, 24, 16));
            let views = ViewLogits::new(&features, bank.base(), 20.0);
            for original in [Original::Pool, Original::Forced, Original::Excluded] {
                for (lambda, clamp, count) in [(1.0, false, 0), (0.4, true, 1), (2.0, false, 5), (1.0, true, 24)] {
                    for score in [Score::Entropy, Score::Tsallis(0.3)] {
                        let options = Config { original, lambda, clamp, count, score, ..Config::default() };
                        let stss = Stss::with_bank(options.clone(), bank.clone());
                        let scorer = stss.scorer(20.0).unwrap();
                        let (all, lazy) =
                            (scorer.all(&features, &views), scorer.lazy(&[(&features, &views)]).remove(0));
                        let is_bound = |v: usize| lazy.bounds.contains(&v);
                        for v in 0..24 {
                            assert!(if is_bound(v) {
                                lazy.values[v] <= all.values[v]
                            } else {
                                lazy.values[v] == all.values[v]
                            });
                        }
                        dropped += lazy.bounds.len();
                        assert_eq!(
                            options.select(lazy.values).selected,
                            options.select(all.values).selected,
                            "{options:?}"
                        );
                    }
                }
            }
        }
        assert!(dropped > 500, "{dropped}");
    }

    #[test]
    fn answers_do_not_depend_on_the_images_they_share_products_with() {
        let bank = bank(7, 16, 9, 0.3);
        let images: Vec<Matrix> = (0..2 * IMAGES_TOGETHER as u64 + 3).map(|i| unit_rows(70 + i, 24, 16)).collect();
        let task =
            Task::new(["a", "b", "c", "d", "e", "f", "g"].map(String::from), bank.base().clone(), 20.0, 0).unwrap();
        let stss = Stss::with_bank(Config::default(), bank);
        assert!(stss.is_vectorised());
        let sets: Vec<ViewSet<'_>> = images.iter().map(|image| ViewSet::new("s", image)).collect();
        let alone: Vec<Decision> = sets.iter().map(|set| stss.adapt(&task, set).unwrap()).collect();
        assert!(alone.iter().any(|answer| !answer.explanation.bounds.is_empty()));
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| stss.adapt_many(&task, &sets)).unwrap(), alone);
        }
        let explained: Vec<ViewSet<'_>> = sets.into_iter().map(|set| ViewSet { explain: true, ..set }).collect();
        assert!(stss.adapt_many(&task, &explained).unwrap().iter().all(|answer| answer.explanation.bounds.is_empty()));
        let mut damaged = images[3].clone();
        damaged.row_mut(2)[1] = f32::NAN;
        assert!(stss.adapt_many(&task, &[ViewSet::new("s", &damaged)]).is_err());
    }

    #[test]
    fn with_lambda_one_the_score_is_the_worst_perturbed_loss_and_clamping_never_goes_below_the_loss() {
        let (bank, features) = (bank(3, 8, 4, 0.4), unit_rows(9, 5, 8));
        let views = ViewLogits::new(&features, bank.base(), 10.0);
        let scores = |lambda, clamp| {
            let stss = Stss::with_bank(Config { lambda, clamp, ..Config::default() }, bank.clone());
            let scorer = stss.scorer(10.0).unwrap();
            (scorer.all(&features, &views).values, scorer.losses_around(&features))
        };
        let (plain, around) = scores(1.0, false);
        let worst: Vec<f32> = (0..5).map(|v| around.iter().map(|losses| losses[v]).fold(0.0, f32::max)).collect();
        let (half, clamped) = (scores(0.5, false).0, scores(1.0, true).0);
        for v in 0..5 {
            let loss = views.entropies[v];
            assert!((plain[v] - worst[v]).abs() < 1e-6);
            assert!((half[v] - 0.5 * (loss + worst[v])).abs() < 1e-6);
            assert!(clamped[v] >= loss);
        }
    }

    #[test]
    fn the_original_is_forced_or_excluded_when_set() {
        let selected =
            |original| Config { original, count: 2, ..Config::default() }.select(vec![2.0, 1.0, 3.0, 4.0]).selected;
        assert_eq!(selected(Original::Pool), [1, 0]);
        assert_eq!(selected(Original::Forced), [0, 1]);
        assert_eq!(selected(Original::Excluded), [1, 2]);
        assert_eq!(Config { original: Original::Excluded, ..Config::default() }.select(vec![1.0]).selected, [0]);
    }

    #[test]
    fn quantiles_lie_between_and_end_at_the_extremes() {
        let at = |quantile| Reduce::Quantile.of(vec![3.0, 1.0, 2.0], quantile);
        assert_eq!((at(0.0), at(0.5), at(1.0), at(0.75)), (1.0, 2.0, 3.0, 2.5));
    }
}
