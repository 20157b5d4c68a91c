//! Promises that every adapter keeps, checked by walking the registry.

use super::ADAPTERS;
use crate::methods::policy::{TestFamily, policy_for};
use crate::methods::{AdapterSpec, AnyAdapter, Decision, Kind, OnlineAdapter, Task, ViewSet, adapter, build_adapter};
use crate::rng::Stream;
use flatclip_tensor::Matrix;

pub(crate) fn unit_rows(seed: u64, rows: usize, cols: usize) -> Matrix {
    let mut stream = Stream::new(seed, &["unit rows"]);
    let mut m = Matrix::from_vec(rows, cols, (0..rows * cols).map(|_| stream.normal() as f32).collect());
    crate::methods::probability::normalise_rows(&mut m);
    m
}

/// `V` views that agree about as much as real ones: a common direction plus noise.
pub(super) fn views(seed: u64, count: usize, cols: usize) -> Matrix {
    let base = unit_rows(seed, 1, cols);
    let mut m = unit_rows(seed + 1000, count, cols);
    for row in 0..count {
        m.row_mut(row).iter_mut().zip(base.row(0)).for_each(|(x, b)| *x = 0.7 * *x + b);
    }
    crate::methods::probability::normalise_rows(&mut m);
    m
}

/// A task of drawn text features.
pub(super) fn task(classes: usize, width: usize, logit_scale: f32) -> Task {
    Task::new(names(classes), unit_rows(1, classes, width), logit_scale, 0).unwrap()
}

/// Two lists are the same but for less than `by`.
pub(crate) fn assert_close<T: Copy + Into<f64> + std::fmt::Debug>(a: &[T], b: &[T], by: f64) {
    let is_near = |(&a, &b): (&T, &T)| (a.into() - b.into()).abs() < by;
    assert!(a.len() == b.len() && a.iter().zip(b).all(is_near), "{a:?} {b:?}");
}

/// The gradient at a place is that of central differences of `value`.
pub(crate) fn assert_gradient(at: &Matrix, gradient: &[f32], step: f32, by: f64, value: impl Fn(&Matrix) -> f64) {
    assert_gradient_within(at, gradient, step, |_| by, value);
}

/// The same with a tolerance that depends on the slope.
pub(super) fn assert_gradient_within(
    at: &Matrix,
    gradient: &[f32],
    step: f32,
    by: impl Fn(f64) -> f64,
    value: impl Fn(&Matrix) -> f64,
) {
    for index in 0..at.data().len() {
        let moved = |by: f32| {
            let mut moved = at.clone();
            moved.data_mut()[index] += by;
            value(&moved)
        };
        let (found, expected) = (f64::from(gradient[index]), (moved(step) - moved(-step)) / (2.0 * f64::from(step)));
        assert!((found - expected).abs() < by(expected), "{index}: {found}, differences give {expected}");
    }
}

/// An adapter at the start of a stream.
pub(super) fn ready<A: OnlineAdapter>(mut adapter: A, task: &Task) -> A {
    adapter.prepare(task).unwrap();
    adapter
}

pub(super) fn names(count: usize) -> Vec<String> {
    (0..count).map(|k| format!("class {k}")).collect()
}

fn features_only() -> impl Iterator<Item = &'static AdapterSpec> {
    ADAPTERS.iter().copied().filter(|s| !s.needs.text_tower && !s.needs.pixels && !s.needs.generated)
}

#[test]
fn names_and_aliases_are_unique() {
    let mut all: Vec<&str> = ADAPTERS.iter().flat_map(|s| s.aliases.iter().chain([&s.name])).copied().collect();
    all.sort_unstable();
    all.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1]));
    assert!(adapter("no-such").unwrap_err().to_string().contains("zero-shot"));
}

#[test]
fn every_adapter_has_a_published_view_policy() {
    for spec in ADAPTERS {
        policy_for(spec.name, TestFamily::NaturalShift).unwrap_or_else(|e| panic!("{}: {e}", spec.name));
    }
}

/// A task, and images of a stream.
fn stream(images: u64) -> (Task, Vec<Matrix>) {
    let task = Task::new(names(5), unit_rows(2, 5, 16), 30.0, 0).unwrap();
    (task, (0..images).map(|i| views(50 + i, 12, 16)).collect())
}

/// Options with which a method takes any features: random views can have negative logits only, which dlae refuses.
fn tolerant(spec: &AdapterSpec) -> toml::Table {
    if spec.name == "dlae" {
        toml::toml! { compat = true }
    } else {
        toml::Table::new()
    }
}

fn built(spec: &AdapterSpec, task: &Task) -> AnyAdapter {
    let mut adapter = spec.build(&tolerant(spec)).unwrap();
    assert_eq!(adapter.kind(), spec.kind(), "{}", spec.name);
    adapter.prepare(task).unwrap();
    adapter
}

#[test]
fn preparing_again_forgets_the_stream_and_a_fork_goes_on_by_itself() {
    let (task, images) = stream(8);
    let mut found = 0;
    for spec in features_only() {
        let AnyAdapter::Online(mut adapter) = built(spec, &task) else { continue };
        found += 1;
        let answers = |adapter: &mut dyn OnlineAdapter, images: &[Matrix]| -> Vec<Decision> {
            images.iter().map(|f| adapter.adapt(&task, &ViewSet::new("s", f)).unwrap()).collect()
        };
        let first = answers(adapter.as_mut(), &images[..4]);
        let mut fork = adapter.fork();
        let second = answers(adapter.as_mut(), &images[4..]);
        assert_eq!(answers(fork.as_mut(), &images[4..]), second, "{}: the fork", spec.name);
        adapter.prepare(&task).unwrap();
        assert_eq!(answers(adapter.as_mut(), &images[..4]), first, "{}: after prepare", spec.name);
        adapter.prepare(&task).unwrap();
        assert_ne!(answers(adapter.as_mut(), &images[4..]), second, "{} keeps nothing", spec.name);
    }
    assert!(found >= 2, "{found} online adapters");
}

#[test]
fn an_adapter_of_another_kind_is_refused() {
    let error = build_adapter("tda", &toml::Table::new()).unwrap().into_episodic().err().unwrap().to_string();
    assert!(error.contains("episodic") && error.contains("online"), "{error}");
    assert_eq!(serde_json::to_string(&Kind::Batch).unwrap(), "\"batch\"");
}

#[test]
fn features_that_do_not_fit_or_are_not_finite_are_refused() {
    let classes = names(3);
    let task = Task::new(classes.as_slice(), unit_rows(5, 3, 16), 30.0, 0).unwrap();
    let mut broken = views(7, 6, 16);
    broken.row_mut(3)[2] = f32::NAN;
    for spec in features_only() {
        let mut adapter = build_adapter(spec.name, &toml::Table::new()).unwrap();
        adapter.prepare(&task).unwrap();
        for bad in [&broken, &views(7, 6, 8), &Matrix::zeros(0, 16)] {
            assert!(adapter.adapt_set(&task, &[ViewSet::new("bad", bad)]).is_err(), "{}", spec.name);
        }
    }
}

#[test]
fn one_view_and_one_class_have_an_answer() {
    for classes in [1, 4] {
        let names = names(classes);
        let task = Task::new(names.as_slice(), unit_rows(6, classes, 16), 30.0, 0).unwrap();
        // adte refuses a set that says nothing about the frequency of classes; its own tests show it.
        for spec in features_only().filter(|spec| spec.name != "adte") {
            for count in [1, 2, 64] {
                let mut adapter = spec.build(&tolerant(spec)).unwrap();
                adapter.prepare(&task).unwrap();
                let answer = adapter.adapt_set(&task, &[ViewSet::new("s", &views(8, count, 16))]).unwrap().remove(0);
                assert!(answer.prediction < classes, "{}", spec.name);
                assert!(answer.probabilities.iter().all(|p| p.is_finite()), "{} {count}", spec.name);
            }
        }
    }
}
