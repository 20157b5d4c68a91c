//! Promises of the adapters that run the text tower, on a tiny model: identities between methods, episodic behaviour, the text bank.

use super::registry_tests::{assert_close, names, unit_rows, views};
use super::{ADAPTERS, stss, tpt};
use crate::Result;
use crate::methods::select::ViewLogits;
use crate::methods::{Adapter, AnyAdapter, Task, TextStore, ViewSet, build_adapter};
use crate::model::{ClassTokens, Clip, Context, LoadOptions, Position};
use crate::rng::Stream;
use crate::weights::Checkpoint;
use flatclip_tensor::Matrix;
use std::path::Path;
use std::sync::{Arc, Mutex};

pub(super) fn clip() -> Arc<Clip> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden/models/tiny-vit.jit.pt");
    Arc::new(Clip::load(&Checkpoint::open(&file).unwrap(), LoadOptions::default()).unwrap())
}

pub(super) fn tokens(order: &[usize]) -> ClassTokens {
    let row = |class: usize| {
        let mut ids = vec![510, 10, 10, 10, 10];
        ids.extend((0..=class % 3).map(|i| 20 + (7 * class + i) as u32));
        ids.extend([9, 511]);
        ids
    };
    let ids: Vec<Vec<u32>> = order.iter().map(|&k| row(k)).collect();
    let lens: Vec<usize> = order.iter().map(|k| k % 3 + 1).collect();
    ClassTokens::from_ids(&ids, &lens, 4, Position::End).unwrap()
}

pub(crate) fn context() -> Context {
    let mut stream = Stream::new(4, &["context"]);
    Context::shared(4, 128, (0..512).map(|_| (0.05 * stream.normal()) as f32).collect())
}

pub(super) fn task(clip: &Arc<Clip>, order: &[usize]) -> Task {
    let (tokens, context) = (tokens(order), context());
    let text = clip.text().unwrap().encode(&tokens, std::slice::from_ref(&context)).unwrap().remove(0);
    Task::new(names(order.len()), text, 100.0, 3).unwrap().with_clip(Arc::clone(clip)).with_context(tokens, context)
}

/// Views near some class, so that answers are neither all sure nor all unsure.
pub(super) fn image(task: &Task, seed: u64, count: usize) -> Matrix {
    let mut rows = views(seed, count, task.text_features().cols());
    let class = seed as usize % task.class_count();
    for row in 0..count {
        rows.row_mut(row).iter_mut().zip(task.text_features().row(class)).for_each(|(x, t)| *x = 0.4 * *x + t);
    }
    crate::methods::probability::normalise_rows(&mut rows);
    rows
}

pub(super) fn prepared(adapter: impl Adapter + 'static, task: &Task) -> Box<dyn Adapter> {
    let mut adapter: Box<dyn Adapter> = Box::new(adapter);
    adapter.prepare(task).unwrap();
    adapter
}

#[test]
fn a_perturbed_prompt_changes_scores_and_moves_no_view_text() {
    let task = task(&clip(), &[0, 1, 2, 3, 4]);
    let features = image(&task, 2, 24);
    let answer = |radius| {
        let adapter = prepared(stss::Stss::new(stss::Config { radius, ..Default::default() }), &task);
        adapter.adapt(&task, &ViewSet::new("s", &features)).unwrap()
    };
    let (flat, sharp) = (answer(0.0), answer(0.5));
    assert_ne!(flat.explanation.scores, sharp.explanation.scores);
    assert_eq!(flat.explanation.entropies, sharp.explanation.entropies);
    assert_eq!(flat.explanation.predictions, sharp.explanation.predictions);
}

#[test]
fn a_step_lowers_the_loss_and_no_step_is_zero_shot() {
    let task = task(&clip(), &[0, 1, 2, 3, 4]);
    let features = image(&task, 3, 20);
    let image = ViewSet::new("s", &features);
    let run = |steps| tpt::Tpt { steps, lr: 1e-4, ..Default::default() }.adapt_traced(&task, &image).unwrap();
    let (_, tuned) = run(3);
    assert!(tuned.steps[2].loss < tuned.steps[0].loss, "{:?}", tuned.steps.iter().map(|s| s.loss).collect::<Vec<_>>());
    let (answer, _) = run(0);
    assert_close(&answer.class_scores, ViewLogits::of(&task, &image).logits.row(0), 1e-3);
}

/// SigLIP's text tower: no start token, no mask, padding that counts.
#[test]
fn contexts_are_moved_in_a_tower_without_causal_mask() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden/models/tiny-siglip");
    let clip = Arc::new(Clip::load(&Checkpoint::open(&folder).unwrap(), LoadOptions::default()).unwrap());
    let tower = clip.text().unwrap();
    let rows: Vec<Vec<u32>> = (0..5).map(|class| vec![4, 4, 4, 20 + class, 40 + 7 * class, 1]).collect();
    let tokens = ClassTokens::from_rows(&rows, &[2; 5], 3, Position::End).unwrap();
    let context = Context::shared(3, tower.width(), tower.embed(&[9, 10, 11]).unwrap().into_vec());
    let text = tower.encode(&tokens, std::slice::from_ref(&context)).unwrap().remove(0);
    let task = Task::new(names(5), text, clip.logit_scale(), 3).unwrap();
    let task = task.with_clip(Arc::clone(&clip)).with_context(tokens, context);
    let features = image(&task, 3, 20);
    let views = ViewSet { generated: Some(&features), ..ViewSet::new("s", &features) };
    let (_, tuned) = tpt::Tpt { steps: 3, lr: 1e-4, ..Default::default() }.adapt_traced(&task, &views).unwrap();
    assert!(tuned.steps[2].loss < tuned.steps[0].loss, "{:?}", tuned.steps.iter().map(|s| s.loss).collect::<Vec<_>>());
    for name in tower_adapters() {
        let AnyAdapter::Episodic(mut adapter) = build_adapter(name, &toml::Table::new()).unwrap() else { continue };
        adapter.prepare(&task).unwrap();
        let answer = adapter.adapt(&task, &views).unwrap();
        assert!((answer.probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-4, "{name}");
    }
}

/// Adapters that need the tower, on features (and generated views, which the others ignore).
fn tower_adapters() -> impl Iterator<Item = &'static str> {
    ADAPTERS.iter().filter(|s| s.needs.text_tower && !s.needs.pixels).map(|s| s.name)
}

#[derive(Default)]
struct LruCache(Mutex<Vec<(String, Matrix)>>);

impl TextStore for LruCache {
    fn load(&self, key: &str) -> Option<Matrix> {
        self.0.lock().unwrap().iter().find(|(k, _)| k == key).map(|(_, rows)| rows.clone())
    }
    fn save(&self, key: &str, rows: &Matrix) {
        self.0.lock().unwrap().push((key.to_owned(), rows.clone()));
    }
}

#[test]
fn a_text_bank_is_kept_and_found_again_under_the_same_settings_only() {
    let lru = Arc::new(LruCache::default());
    let mut task = task(&clip(), &[0, 1, 2, 3, 4]);
    task.store = Some(Arc::clone(&lru) as Arc<dyn TextStore>);
    let bank = |radius| {
        let mut stss = stss::Stss::new(stss::Config { radius, perturbations: 3, ..Default::default() });
        stss.prepare(&task).unwrap();
        stss.bank().unwrap().clone()
    };
    let first = bank(0.5);
    assert_eq!(lru.0.lock().unwrap().len(), 1);
    assert_eq!(bank(0.5), first);
    assert_eq!(lru.0.lock().unwrap().len(), 1);
    assert_ne!(bank(0.4), first);
    assert_eq!(lru.0.lock().unwrap().len(), 2);
    // Rows that do not fit (a damaged store) are computed again, not trusted.
    lru.0.lock().unwrap()[0].1 = Matrix::zeros(2, 32);
    assert_eq!(bank(0.5), first);
}

#[test]
fn what_is_missing_is_named() -> Result<()> {
    let features_only = Task::new(names(4), unit_rows(1, 4, 32), 100.0, 0)?;
    for name in tower_adapters() {
        let mut adapter = build_adapter(name, &toml::Table::new())?;
        let error = adapter.prepare(&features_only).unwrap_err();
        assert!(error.to_string().contains(name) && error.hint().is_some(), "{error}");
    }
    let no_context = Task::new(names(4), unit_rows(1, 4, 32), 100.0, 0)?.with_clip(clip());
    let error = build_adapter("stss", &toml::Table::new())?.prepare(&no_context).unwrap_err().to_string();
    assert!(error.contains("context"), "{error}");
    // Without perturbations the selection needs no context at all.
    build_adapter("stss", &toml::toml! { radius = 0.0 })?.prepare(&no_context)
}

/// The text bank of some options.
fn bank_of(task: &Task, options: &toml::Table) -> crate::methods::bank::TextBank {
    let mut stss = stss::Stss::new(stss::Config::read(options).unwrap());
    stss.prepare(task).unwrap();
    stss.bank().unwrap().clone()
}

#[test]
fn directions_from_the_tower_move_the_text_features_more_than_random_ones() {
    let clip = clip();
    let task = task(&clip, &[0, 1, 2, 3]);
    let moved = |directions: &str| -> f64 {
        let bank = bank_of(&task, &toml::toml! { directions = directions perturbations = 6 radius = 0.2 });
        let step = |text: &Matrix| -> f64 {
            text.data().iter().zip(bank.base().data()).map(|(a, b)| f64::from(a - b).powi(2)).sum()
        };
        bank.perturbed().iter().map(step).sum::<f64>() / 6.0
    };
    let random = moved("gaussian");
    assert!(moved("jacobian") > 2.0 * random && moved("ascent") > random, "{random}");
    let entropy = |directions: &str| -> f32 {
        let bank = bank_of(&task, &toml::toml! { directions = directions perturbations = 6 radius = 0.2 });
        let of = |text: &Matrix| ViewLogits::new(bank.base(), text, task.logit_scale).entropies.iter().sum::<f32>();
        bank.perturbed().iter().map(of).sum()
    };
    assert!(entropy("ascent") > entropy("gaussian"));
}

#[test]
fn given_prompts_stand_in_the_place_of_perturbed_contexts() {
    use crate::methods::bank::TextBank;
    let (base, other) = (unit_rows(1, 4, 16), unit_rows(2, 4, 16));
    assert!(TextBank::from_prompts(base.clone(), vec![unit_rows(3, 5, 16)]).is_err());
    let bank = Arc::new(TextBank::from_prompts(base.clone(), vec![other]).unwrap());
    let mut task = Task::new(names(4), base, 30.0, 0).unwrap();
    task.bank = Some(Arc::clone(&bank));
    // Selection by plain entropy can vote with the mean of the prompts.
    for options in [toml::toml! { lambda = 0.0 }, toml::toml! { lambda = 0.5 reduce = "mean" }] {
        assert_eq!(bank_of(&task, &options), *bank);
    }
}
