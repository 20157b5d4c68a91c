//! Identities between methods, and symmetries that every registered method has, for drawn inputs.
//!
//! The draws are fixed: a method that keeps the best tenth of the views may answer otherwise when two views tie to the last
//! bit, and rounding depends on the order of sums.

use super::registry_tests::{names, unit_rows, views};
use super::tower_tests::{self, clip, context, image, prepared, tokens};
use super::{ADAPTERS, c_tpt, stss, tpt, zero};
use crate::methods::aggregate::{Tie, Vote};
use crate::methods::maple::MapleParameters;
use crate::methods::statistics::SourceStatistics;
use crate::methods::{Adapter, AnyAdapter, Decision, Needs, Task, TextSide, ViewSet, build_adapter};
use crate::model::{Clip, Features};
use crate::prompt::{Affine, Prompt, PromptContent, Provenance};
use crate::rng::Stream;
use flatclip_tensor::Matrix;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rayon::prelude::*;
use std::sync::{Arc, LazyLock};

static CLIP: LazyLock<Arc<Clip>> = LazyLock::new(clip);

fn draws(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(6), failure_persistence: None, ..ProptestConfig::default() }
}

/// Every adapter with its defaults, and the one whose other form needs other inputs.
fn all_methods() -> Vec<(&'static str, toml::Table)> {
    // adte refuses a set of one image; its own tests show it.
    let takes_one = ADAPTERS.iter().filter(|spec| spec.name != "adte");
    let defaults = takes_one.map(|spec| (spec.name, toml::Table::new()));
    defaults.chain([("sar", toml::toml! { adapt = "norms" })]).collect()
}

fn needs_of(name: &str, options: &toml::Table) -> Needs {
    let adapter = build_adapter(name, options).unwrap();
    adapter.needs().unwrap_or(crate::methods::adapter(name).unwrap().needs)
}

static MAPLE: LazyLock<(Arc<Prompt>, Arc<SourceStatistics>)> = LazyLock::new(maple);

/// A small maple prompt and statistics for it.
fn maple() -> (Arc<Prompt>, Arc<SourceStatistics>) {
    let width = CLIP.vision().token_width().unwrap();
    let small = |seed, rows, cols| {
        let mut stream = Stream::new(seed, &["maple"]);
        Matrix::from_vec(rows, cols, (0..rows * cols).map(|_| 0.05 * stream.normal() as f32).collect())
    };
    let kind = PromptContent::Maple {
        context: context(),
        words: String::new(),
        tail: String::new(),
        deep: vec![small(1, 4, 128)],
        projections: (2..4).map(|seed| Affine { weight: small(seed, width, 128), bias: vec![0.0; width] }).collect(),
    };
    let count = CLIP.config().image_tokens() + 4;
    let blocks = |seed: u64| (0..4).map(|i| small(seed + i, count, width)).collect::<Vec<_>>();
    let statistics = SourceStatistics::new(blocks(10), blocks(20)).unwrap();
    (Arc::new(Prompt::new(kind, Provenance::default())), Arc::new(statistics))
}

/// What a method is given of an image: features, pixels and generated features.
struct Image {
    features: Matrix,
    pixels: Vec<f32>,
    generated: Matrix,
}

/// A task over the classes in some order.
fn task(needs: &Needs, order: &[usize]) -> Task {
    if !needs.statistics {
        return tower_tests::task(&CLIP, order);
    }
    let (tokens, (prompt, statistics)) = (tokens(order), &*MAPLE);
    let side = TextSide { tower: CLIP.text().unwrap(), tokens: &tokens };
    let text = MapleParameters::of(Some(prompt), "test").unwrap().text_features(side).unwrap();
    let task = Task::new(names(order.len()), text, 100.0, 3).unwrap();
    let mut task = task.with_clip(Arc::clone(&CLIP)).with_context(tokens, context());
    (task.prompt, task.statistics) = (Some(Arc::clone(prompt)), Some(Arc::clone(statistics)));
    task
}

/// Features near a class where features are all that is needed; else those that the tower gives for drawn pixels.
fn image_for(needs: &Needs, task: &Task, seed: u64, count: usize) -> Image {
    let generated = unit_rows(seed + 77, 5, task.text_features().cols());
    if !needs.pixels {
        return Image { features: image(task, seed, count), pixels: Vec::new(), generated };
    }
    let size = CLIP.image_size();
    let mut stream = Stream::new(seed, &["pixels"]);
    let pixels: Vec<f32> = (0..count * 3 * size * size).map(|_| stream.uniform(-2.0, 2.0) as f32).collect();
    let features = if needs.statistics {
        MapleParameters::of(Some(&MAPLE.0), "test").unwrap().image_features(&CLIP, &pixels, count).unwrap()
    } else {
        Features::unit(CLIP.encode_images(&pixels, count).unwrap()).0
    };
    Image { features, pixels, generated }
}

impl Image {
    fn view_set(&self) -> ViewSet<'_> {
        let pixels = (!self.pixels.is_empty()).then_some(self.pixels.as_slice());
        ViewSet { pixels, generated: Some(&self.generated), ..ViewSet::new("s", &self.features) }
    }

    /// The first answer of a stream, or that of a set of one.
    fn answer(&self, mut adapter: AnyAdapter, task: &Task) -> Decision {
        adapter.adapt_set(task, &[self.view_set()]).unwrap().remove(0)
    }

    fn reordered(&self, order: &[usize]) -> Self {
        let size = self.pixels.len() / order.len();
        let pixels = order.iter().flat_map(|v| &self.pixels[v * size..(v + 1) * size]).copied().collect();
        Self { features: self.features.select_rows(order), pixels, generated: self.generated.clone() }
    }
}

fn ready(name: &str, options: &toml::Table, task: &Task) -> AnyAdapter {
    let mut adapter = build_adapter(name, options).unwrap();
    adapter.prepare(task).unwrap();
    adapter
}

/// A drawn order of `0..count`; the first `fixed` stay.
fn order(seed: u64, count: usize, fixed: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    Stream::new(seed, &["order"]).shuffle(&mut order[fixed..]);
    order
}

/// The two largest differ by less than `by`: which of them is answered is a matter of rounding.
fn close_call(probabilities: &[f32], by: f32) -> bool {
    let mut sorted = probabilities.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    sorted.len() > 1 && sorted[0] - sorted[1] < by
}

/// An AdamW step moves every entry by about the learning rate in the direction of the gradient's sign: an entry whose
/// gradient is rounding noise may go either way.
fn tolerance(needs: &Needs) -> f32 {
    if needs.text_tower || needs.pixels { 0.05 } else { 2e-3 }
}

proptest! {
    #![proptest_config(draws(24))]

    #[test]
    fn stss_without_sharpness_selects_what_zero_and_tpt_select(
        seed in 0u64..10_000, count in 2usize..65, classes in 2usize..7, which in 0usize..3, percent in 5usize..=100,
    ) {
        let task = task(&Needs::CONTEXT, &order(0, classes, classes));
        let features = image(&task, seed, count);
        let image = ViewSet::new("s", &features);
        let fraction = percent as f64 / 100.0;
        let mut flat = stss::Config { fraction, ..Default::default() };
        match which {
            0 => flat.radius = 0.0,
            1 => flat.perturbations = 0,
            _ => flat.lambda = 0.0,
        }
        let of = |adapter: Box<dyn Adapter>| adapter.adapt(&task, &image).unwrap().explanation;
        let stss = of(prepared(stss::Stss::new(flat), &task));
        let zero = of(prepared(zero::Zero { fraction, ..Default::default() }, &task));
        let tpt = of(prepared(tpt::Tpt { fraction, ..Default::default() }, &task));
        prop_assert_eq!(&stss.selected, &zero.selected);
        prop_assert_eq!(&stss.selected, &tpt.selected);
        prop_assert_eq!(&stss.scores, &zero.scores);
    }

    #[test]
    fn stss_with_radius_0_and_a_hard_vote_is_zero(
        seed in 0u64..10_000, count in 1usize..65, classes in 2usize..7, percent in 5usize..=40,
    ) {
        let task = task(&Needs::CONTEXT, &order(0, classes, classes));
        let fraction = if seed % 2 == 0 { 0.1 } else { percent as f64 / 100.0 };
        let config =
            stss::Config { radius: 0.0, fraction, vote: Vote::Majority, tie: Tie::DiscardedViews, ..Default::default() };
        let stss = prepared(stss::Stss::new(config), &task);
        let zero = prepared(zero::Zero { fraction, ..Default::default() }, &task);
        let features = views(seed, count, task.text_features().cols());
        let image = ViewSet::new("s", &features);
        prop_assert_eq!(stss.adapt(&task, &image).unwrap(), zero.adapt(&task, &image).unwrap());
    }

    #[test]
    fn c_tpt_without_weight_is_tpt(seed in 0u64..10_000, count in 2usize..33, steps in 0usize..3, lr in 1e-4f64..1e-2) {
        let task = task(&Needs::CONTEXT, &[0, 1, 2, 3, 4]);
        let tpt = prepared(tpt::Tpt { steps, lr, ..Default::default() }, &task);
        let plain = c_tpt::Config { weight: 0.0, steps, lr, ..Default::default() };
        let c_tpt = prepared(c_tpt::CTpt::new(plain), &task);
        let features = image(&task, seed, count);
        let image = ViewSet::new("s", &features);
        prop_assert_eq!(tpt.adapt(&task, &image).unwrap(), c_tpt.adapt(&task, &image).unwrap());
    }
}

proptest! {
    #![proptest_config(draws(8))]

    #[test]
    fn permuting_classes_permutes_the_answers_of_every_method(seed in 0u64..10_000, count in 8usize..24) {
        let order = order(seed, 5, 0);
        for (name, options) in all_methods() {
            let needs = needs_of(name, &options);
            let (plain, permuted) = (task(&needs, &[0, 1, 2, 3, 4]), task(&needs, &order));
            let image = image_for(&needs, &plain, seed, count);
            let a = image.answer(ready(name, &options, &plain), &plain);
            let b = image.answer(ready(name, &options, &permuted), &permuted);
            let by = tolerance(&needs);
            prop_assert!(a.prediction == order[b.prediction] || close_call(&a.probabilities, by), "{} {:?} {:?}", name, a, b);
            for (index, &class) in order.iter().enumerate() {
                let difference = (a.probabilities[class] - b.probabilities[index]).abs();
                prop_assert!(difference < by, "{}: {} for class {}", name, difference, class);
            }
        }
    }

    #[test]
    fn permuting_augmented_views_changes_no_answer_of_any_method(seed in 0u64..10_000, count in 8usize..24) {
        let order = order(seed, count, 1);
        for (name, options) in all_methods() {
            let needs = needs_of(name, &options);
            let task = task(&needs, &[0, 1, 2, 3, 4]);
            let image = image_for(&needs, &task, seed, count);
            let a = image.answer(ready(name, &options, &task), &task);
            let b = image.reordered(&order).answer(ready(name, &options, &task), &task);
            let by = tolerance(&needs);
            prop_assert!(a.prediction == b.prediction || close_call(&a.probabilities, by), "{} {:?} {:?}", name, a, b);
            for (x, y) in a.probabilities.iter().zip(&b.probabilities) {
                prop_assert!((x - y).abs() < by, "{}: {} and {}", name, x, y);
            }
            // Generated views stand behind the augmented ones.
            let original = |&view: &usize| order.get(view).copied().unwrap_or(view);
            let mut kept: Vec<usize> = b.explanation.selected.iter().map(original).collect();
            let mut expected = a.explanation.selected.clone();
            kept.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(kept, expected, "{}", name);
        }
    }
}

#[test]
fn episodic_methods_give_the_same_bytes_for_any_order_thread_count_and_batch() {
    for (name, options) in all_methods() {
        let needs = needs_of(name, &options);
        let task = task(&needs, &[0, 1, 2, 3, 4]);
        let AnyAdapter::Episodic(adapter) = ready(name, &options, &task) else { continue };
        let images: Vec<Image> = (0..4).map(|seed| image_for(&needs, &task, seed, 12)).collect();
        let answer = |image: &Image| adapter.adapt(&task, &image.view_set()).unwrap();
        let expected: Vec<Decision> = images.iter().map(answer).collect();
        let mut backward: Vec<Decision> = images.iter().rev().map(answer).collect();
        backward.reverse();
        assert_eq!(backward, expected, "{name} in another order");
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let one_by_one: Vec<Decision> = pool.install(|| images.iter().map(answer).collect());
            assert_eq!(one_by_one, expected, "{name} with {threads} threads");
            // As an evaluation answers several images: side by side, one adapter for all.
            let side_by_side: Vec<Decision> = pool.install(|| images.par_iter().map(answer).collect());
            assert_eq!(side_by_side, expected, "{name} side by side with {threads} threads");
        }
    }
}
