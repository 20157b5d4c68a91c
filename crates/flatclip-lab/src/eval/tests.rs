//! Promises of a whole run, on a made-up encoder: bytes do not depend on shards, interruptions, cache or threads.

use super::cache::{FeatureCache, FeatureKey};
use super::log::read_log;
use super::run_dir::{PREDICTIONS, PROVENANCE};
use super::*;
use crate::data::{Dataset, OpenOptions, Sample, open};
use crate::run_dir::{CONFIG, RunDir, SUMMARY};
use flatclip::ViewFeatures;
use flatclip::classify::Rounds;
use flatclip::image::views::Pixels;
use flatclip::methods::{self, AnyAdapter, BatchAdapter, Decision, Task, ViewSet, build_adapter};
use flatclip::rng::Stream;
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const VIEWS: usize = 6;
const WIDTH: usize = 8;

/// Features drawn from the image's bytes; counts what it encodes.
#[derive(Default)]
struct Fake {
    encoded: AtomicUsize,
}

impl Encoder for Fake {
    fn views(&self) -> usize {
        VIEWS
    }

    fn pixels(&self, sample: &Sample) -> Result<Pixels> {
        let text = String::from_utf8(sample.read()?).unwrap();
        if text.contains("bad") {
            return Err(Error::Image { path: sample.path().into(), reason: "not an image".into() });
        }
        let mut stream = Stream::new(1, &["fake", &text]);
        Ok(Pixels::Floats((0..VIEWS * WIDTH).map(|_| stream.normal() as f32).collect()))
    }

    fn encode(&self, pixels: &[f32], count: usize) -> Result<ViewFeatures> {
        self.encoded.fetch_add(count, Ordering::Relaxed);
        // Long enough to be seen in the times.
        std::thread::sleep(Duration::from_micros(100 * count as u64));
        let norms: Vec<f32> = pixels.chunks_exact(WIDTH).map(|r| r.iter().map(|x| x * x).sum::<f32>().sqrt()).collect();
        let unit = pixels.iter().enumerate().map(|(i, x)| x / norms[i / WIDTH]).collect();
        Ok(ViewFeatures { unit: Matrix::from_vec(count, WIDTH, unit), norms })
    }
}

struct World {
    dir: tempfile::TempDir,
    dataset: Dataset,
    text: Matrix,
}

fn world(bad: usize) -> World {
    let names: Vec<String> =
        (0..29).map(|i| format!("data/c{}/{}{i}.jpg", i % 4, if i < bad { "bad" } else { "ok" })).collect();
    let dir = crate::data::tree::tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let dataset = open(&format!("folder:{}/data", dir.path().display()), &OpenOptions::default()).unwrap();
    let mut stream = Stream::new(2, &["text"]);
    let text = Matrix::from_vec(4, WIDTH, (0..4 * WIDTH).map(|_| stream.normal() as f32 / 3.0).collect());
    World { dir, dataset, text }
}

struct RunRequest<'a> {
    method: &'a str,
    out: &'a str,
    shard: Option<&'a str>,
    resume: bool,
    order_seed: Option<u64>,
    cache: bool,
    max_errors: usize,
    certainty: Option<f64>,
}

const PLAIN: RunRequest<'_> = RunRequest {
    method: "mta",
    out: "run",
    shard: None,
    resume: false,
    order_seed: None,
    cache: false,
    max_errors: 100,
    certainty: None,
};

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, request: &RunRequest<'_>) -> Result<(Summary, Timing)> {
        self.run_with(build_adapter(request.method, &toml::Table::new())?, request)
    }

    fn run_with(&self, mut adapter: AnyAdapter, request: &RunRequest<'_>) -> Result<(Summary, Timing)> {
        let task = Task::new(self.dataset.classes.as_slice(), self.text.clone(), 100.0, 0)?;
        adapter.prepare(&task)?;
        let plan = Plan::new(self.dataset.samples.len(), None, request.order_seed);
        let shard = request.shard.map(|text| text.parse()).transpose()?;
        let (config, provenance) = (self.config(request, shard), self.provenance());
        let key = FeatureKey { weights: "fake".into(), ..FeatureKey::default() };
        let cache = if request.cache { Some(FeatureCache::open(&self.path("cache"), &key)?) } else { None };
        let (dir, mut log, mut records) =
            RunDir::start(&self.path(request.out), &config, &provenance, &self.dataset.classes, request.resume)?;
        let encoder = Fake::default();
        let evaluation = Evaluation {
            dataset: &self.dataset,
            task: &task,
            wants_pixels: false,
            views_used: if request.method == "zero-shot" { 1 } else { VIEWS },
            encoder: &encoder,
            cache: cache.as_ref(),
            plan: &plan,
            shard,
            max_errors: request.max_errors,
            rounds: request.certainty.map(|p| Rounds::new(p.into())).transpose()?,
            keep_probabilities: false,
        };
        let timing = evaluation.run(&mut adapter, &mut log, &mut records, &())?;
        if !request.resume && request.certainty.is_none() {
            let expected = (timing.samples - timing.cached - count_unreadable(&records)) * VIEWS;
            assert_eq!(encoder.encoded.load(Ordering::Relaxed), expected);
        }
        let summary = Summary::new(&self.dataset.name, request.method, 4, &records)
            .with_confidence(methods::Confidence::of(request.method, &config.options));
        dir.finish(&summary, &timing)?;
        Ok((summary, timing))
    }

    fn config(&self, request: &RunRequest<'_>, shard: Option<Shard>) -> RunConfig {
        RunConfig {
            method: request.method.into(),
            data: "folder:data".into(),
            order_seed: request.order_seed,
            shard,
            views: ViewConfig { policy: "crop-flip".into(), count: VIEWS, certainty: request.certainty },
            options: toml::Table::from_iter([("k".to_owned(), toml::Value::from(0.5))]),
            ..RunConfig::default()
        }
    }

    fn provenance(&self) -> Provenance {
        Provenance {
            classes: 4,
            dataset: self.dataset.name.clone(),
            samples: self.dataset.samples.len(),
            ..Provenance::default()
        }
    }

    /// Everything that must be the same bytes.
    fn bytes(&self, out: &str) -> Vec<Vec<u8>> {
        let path = self.path(out);
        [CONFIG, PROVENANCE, PREDICTIONS, SUMMARY].map(|name| std::fs::read(path.join(name)).unwrap()).to_vec()
    }

    fn records(&self, out: &str) -> Vec<Record> {
        read_log(&self.path(out).join(PREDICTIONS)).unwrap().0
    }

    /// The directories of all shards of a run.
    fn shards(&self, method: &str, count: usize) -> Vec<PathBuf> {
        let run = |index: usize| {
            let (out, shard) = (format!("{method}-{index}-of-{count}"), format!("{index}/{count}"));
            self.run(&RunRequest { method, out: &out, shard: Some(&shard), ..PLAIN }).unwrap();
            self.path(&out)
        };
        (0..count).map(run).collect()
    }
}

fn count_unreadable(records: &[Record]) -> usize {
    records.iter().filter(|record| record.error.as_ref().is_some_and(|error| error.contains("bad"))).count()
}

#[test]
fn shards_merge_to_the_bytes_of_one_run() {
    let world = world(2);
    world.run(&PLAIN).unwrap();
    for count in [1, 2, 3, 7] {
        let parts = world.shards("mta", count);
        let merged = format!("merged-{count}");
        merge(&parts, &world.path(&merged)).unwrap();
        assert_eq!(world.bytes(&merged), world.bytes("run"), "{count} shards");
        if count == 3 {
            let message = merge(&parts[..2], &world.path("gap")).unwrap_err().to_string();
            assert!(message.contains("positions are in no part"), "{message}");
            let twice = [parts[0].clone(), parts[1].clone(), parts[2].clone(), parts[0].clone()];
            assert!(merge(&twice, &world.path("twice")).unwrap_err().to_string().contains("overlaps"));
        }
    }
}

#[test]
fn parts_of_different_runs_are_not_merged() {
    let world = world(0);
    world.run(&RunRequest { out: "a", shard: Some("0/2"), ..PLAIN }).unwrap();
    world.run(&RunRequest { out: "b", shard: Some("1/2"), method: "zero", ..PLAIN }).unwrap();
    let message = merge(&[world.path("a"), world.path("b")], &world.path("m")).unwrap_err().to_string();
    assert!(message.contains("method was \"mta\", now \"zero\""), "{message}");
    assert!(!world.path("m").exists());
}

#[test]
fn a_run_cut_at_any_record_resumes_to_the_same_bytes() {
    let world = world(1);
    let (none, sets) = (toml::Table::new(), toml::toml! { batch = 8 });
    let cases = [
        ("mta", &none, Some(3)),
        ("tda", &none, Some(3)),
        ("stata", &sets, None),
        ("oga", &sets, None),
        ("adapt-transductive", &sets, None),
    ];
    for (method, options, order_seed) in cases {
        let run = |out: &str, resume| {
            let request = RunRequest { method, out, resume, order_seed, ..PLAIN };
            world.run_with(build_adapter(method, options).unwrap(), &request).unwrap();
            world.bytes(out)
        };
        let whole = run(&format!("whole-{method}"), false);
        let log = &whole[2];
        for (number, cut) in [0, 1, 700, 2000, 4000, log.len() - 1, log.len()].into_iter().enumerate() {
            let part = format!("cut-{method}-{number}");
            std::fs::create_dir(world.path(&part)).unwrap();
            for (name, content) in [CONFIG, PROVENANCE].iter().zip(&whole) {
                std::fs::write(world.path(&part).join(name), content).unwrap();
            }
            std::fs::write(world.path(&part).join(PREDICTIONS), &log[..cut.min(log.len())]).unwrap();
            assert_eq!(run(&part, true), whole, "{method} cut at {cut}");
        }
    }
}

#[test]
fn a_second_method_encodes_nothing_and_answers_the_same_bytes() {
    let world = world(0);
    let (_, first) = world.run(&RunRequest { out: "fill", cache: true, ..PLAIN }).unwrap();
    assert_eq!((first.cached, first.samples, first.encode_samples), (0, 29, Some(29)));
    assert!(first.encode > 0.0 && (first.encode - first.encode_session).abs() < 1e-9, "{first:?}");
    for method in ["zero", "mta", "zero-shot"] {
        let (plain, cached) = (format!("plain-{method}"), format!("cached-{method}"));
        world.run(&RunRequest { method, out: &plain, ..PLAIN }).unwrap();
        let (_, timing) = world.run(&RunRequest { method, out: &cached, cache: true, ..PLAIN }).unwrap();
        assert_eq!((timing.cached, timing.encode_session), (29, 0.0));
        // Whichever run encoded: each method is charged for the views that it uses. The cache keeps microseconds.
        let used = if method == "zero-shot" { 1 } else { VIEWS };
        let expected = first.encode * used as f64 / VIEWS as f64;
        assert_eq!((timing.views_used, timing.encode_samples), (used, Some(29)));
        assert!((timing.encode - expected).abs() < 29.0 * 2e-6, "{method}: {} and not {expected}", timing.encode);
        assert_eq!(world.bytes(&plain), world.bytes(&cached));
    }
}

#[test]
fn any_time_views_say_how_many_they_took_and_do_not_depend_on_cache_or_threads() {
    let world = world(2);
    let rounds = RunRequest { method: "zero", certainty: Some(0.999_999), ..PLAIN };
    let (summary, _) = world.run(&RunRequest { out: "fresh", ..rounds }).unwrap();
    let views = |out: &str| -> Vec<usize> {
        world.records(out).iter().filter_map(|record| record.answer.as_ref()?.views).collect()
    };
    let taken = views("fresh");
    assert_eq!(taken.len(), 27, "two images are bad");
    assert!(taken.iter().all(|count| [1, 4, VIEWS].contains(count)), "{taken:?}");
    assert!(taken.contains(&1) && taken.iter().any(|&count| count > 1), "{taken:?}");
    assert_eq!(summary.mean_views, Some(taken.iter().sum::<usize>() as f64 / 27.0));
    // Features of all views that another run kept serve as well.
    world.run(&RunRequest { out: "fill", cache: true, ..PLAIN }).unwrap();
    let (_, timing) = world.run(&RunRequest { out: "kept", cache: true, ..rounds }).unwrap();
    assert_eq!((timing.cached, timing.encode_session), (27, 0.0));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    pool.install(|| world.run(&RunRequest { out: "threads", ..rounds })).unwrap();
    for other in ["kept", "threads"] {
        assert_eq!(world.bytes("fresh"), world.bytes(other), "{other}");
    }
    assert_eq!(views("fill"), [0usize; 0], "a run with all views does not repeat their number");
}

#[test]
fn threads_do_not_change_bytes() {
    let world = world(1);
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| world.run(&RunRequest { out: &format!("t{threads}"), ..PLAIN })).unwrap();
    }
    assert_eq!(world.bytes("t1"), world.bytes("t2"));
    assert_eq!(world.bytes("t1"), world.bytes("t5"));
}

/// Adapters that a run of features alone can serve.
fn feature_adapters(kind: methods::Kind) -> impl Iterator<Item = &'static str> {
    let serves = |n: &methods::Needs| !n.text_tower && !n.pixels && !n.generated && !n.statistics;
    methods::ADAPTERS.iter().filter(move |spec| spec.kind() == kind && serves(&spec.needs)).map(|spec| spec.name)
}

#[test]
fn every_episodic_method_gives_the_same_bytes_in_any_order_and_any_parts() {
    let world = world(1);
    let records = |out: &str| {
        let mut records = world.records(out);
        records.sort_by(|a, b| a.id.cmp(&b.id));
        records.iter_mut().for_each(|record| record.index = 0);
        records
    };
    for method in feature_adapters(methods::Kind::Episodic) {
        let (whole, shuffled) = (format!("{method}-whole"), format!("{method}-shuffled"));
        world.run(&RunRequest { method, out: &whole, ..PLAIN }).unwrap();
        world.run(&RunRequest { method, out: &shuffled, order_seed: Some(8), ..PLAIN }).unwrap();
        assert_eq!(records(&whole), records(&shuffled), "{method}");
        // Other parts are other batches.
        let merged = format!("{method}-merged");
        merge(&world.shards(method, 8), &world.path(&merged)).unwrap();
        assert_eq!(world.bytes(&merged), world.bytes(&whole), "{method}");
    }
}

#[test]
fn every_method_of_streams_or_sets_is_refused_a_part_of_the_stream() {
    let world = world(1);
    for (kind, word) in [(methods::Kind::Online, "online"), (methods::Kind::Batch, "batch")] {
        let all: Vec<&str> = feature_adapters(kind).collect();
        for method in &all {
            let message =
                world.run(&RunRequest { method, out: method, shard: Some("0/2"), ..PLAIN }).unwrap_err().to_string();
            assert!(message.contains(word), "{method}: {message}");
            // One part is the whole stream.
            let out = format!("{method}-whole");
            let (summary, _) = world.run(&RunRequest { method, out: &out, shard: Some("0/1"), ..PLAIN }).unwrap();
            // dlae refuses one more: views of random features whose logits are all negative.
            let failed = if *method == "dlae" { 2 } else { 1 };
            assert_eq!((summary.samples, summary.failed), (29, failed), "{method}");
        }
        assert!(all.len() >= 3, "{word}: {all:?}");
    }
}

/// Answers with the number of images of the set, and keeps no promise about it.
struct Counting {
    size: usize,
    forgets: bool,
}

impl BatchAdapter for Counting {
    fn adapt(&self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>> {
        let mut probabilities = vec![0.0; task.class_count()];
        probabilities[0] = images.len() as f32 / 100.0;
        let decision = Decision {
            prediction: 0,
            class_scores: probabilities.clone(),
            probabilities,
            explanation: flatclip::methods::Explanation::default(),
        };
        Ok(vec![decision; images.len() - usize::from(self.forgets)])
    }

    fn set_size(&self) -> usize {
        self.size
    }
}

#[test]
fn a_stream_is_cut_into_whole_sets_and_bad_samples_are_no_part_of_them() {
    let world = world(2);
    for (size, expected) in [(10, vec![8, 10, 9]), (0, vec![27]), (29, vec![27]), (1000, vec![27])] {
        let out = format!("sets-{size}");
        let adapter = AnyAdapter::Batch(Box::new(Counting { size, forgets: false }));
        world.run_with(adapter, &RunRequest { out: &out, ..PLAIN }).unwrap();
        let records = world.records(&out);
        let mut counts: Vec<i64> = records
            .iter()
            .filter_map(|r| Some((f64::from(r.answer.as_ref()?.confidence) * 100.0).round() as i64))
            .collect();
        assert_eq!(counts.len(), 27);
        counts.dedup();
        assert_eq!(counts, expected, "{size}");
    }
}

#[test]
fn a_set_without_an_answer_for_each_image_has_none() {
    let adapter = AnyAdapter::Batch(Box::new(Counting { size: 10, forgets: true }));
    let (summary, _) = world(0).run_with(adapter, &PLAIN).unwrap();
    assert_eq!(summary.failed, 29);
    assert!(summary.failures[0].1.contains("each of 10 images"), "{:?}", summary.failures[0]);
}

/// The answers of a method for some images, all views given.
fn answers(method: &str, images: &[Matrix], text: &Matrix) -> Vec<Vec<f32>> {
    let names: Vec<String> = (0..text.rows()).map(|k| k.to_string()).collect();
    let mut task = Task::new(names, text.clone(), 20.0, 0).unwrap();
    task.stream_length = Some(images.len());
    let mut adapter = build_adapter(method, &toml::Table::new()).unwrap();
    adapter.prepare(&task).unwrap();
    let norms = vec![1.0; VIEWS];
    let ids: Vec<String> = (0..images.len()).map(|i| i.to_string()).collect();
    let sets: Vec<ViewSet<'_>> =
        images.iter().zip(&ids).map(|(features, id)| ViewSet { norms: &norms, ..ViewSet::new(id, features) }).collect();
    let answered = match adapter.kind() {
        methods::Kind::Episodic => sets.iter().map(|image| adapter.adapt(&task, image).unwrap()).collect(),
        _ => adapter.adapt_set(&task, &sets).unwrap(),
    };
    answered.into_iter().map(|decision| decision.probabilities).collect()
}

#[test]
fn methods_that_are_charged_for_one_view_look_at_no_other() {
    let mut stream = Stream::new(5, &["views"]);
    let mut unit = |rows: usize| {
        let data: Vec<f32> = (0..rows * WIDTH).map(|_| stream.normal() as f32).collect();
        let norms: Vec<f32> = data.chunks_exact(WIDTH).map(|r| r.iter().map(|x| x * x).sum::<f32>().sqrt()).collect();
        Matrix::from_vec(rows, WIDTH, data.iter().enumerate().map(|(i, x)| x / norms[i / WIDTH]).collect())
    };
    let (text, images): (Matrix, Vec<Matrix>) = (unit(4), (0..12).map(|_| unit(VIEWS)).collect());
    // The same plain views, other views beside them.
    let others: Vec<Matrix> = images
        .iter()
        .map(|image| {
            let mut other = unit(VIEWS);
            other.row_mut(0).copy_from_slice(image.row(0));
            other
        })
        .collect();
    let mut found = 0;
    for kind in [methods::Kind::Episodic, methods::Kind::Online, methods::Kind::Batch] {
        // dlae refuses views of random features whose logits are all negative.
        for method in feature_adapters(kind).filter(|name| *name != "dlae") {
            let alone = methods::adapter(method).unwrap().needs.first_view_only;
            let same = answers(method, &images, &text) == answers(method, &others, &text);
            assert!(same || !alone, "{method} looks at other views");
            // Some are run with one view by default and look at all that they get.
            assert!(!same || !["zero", "mta", "bca", "adapt", "adapt-transductive"].contains(&method), "{method}");
            found += usize::from(alone);
        }
    }
    assert_eq!(found, 6);
}

#[test]
fn any_time_views_are_charged_as_far_as_answers_look_at_them() {
    let world = world(0);
    let rounds = RunRequest { method: "zero", certainty: Some(0.999_999), ..PLAIN };
    let (summary, fresh) = world.run(&RunRequest { out: "fresh", ..rounds }).unwrap();
    assert!((fresh.encode - fresh.encode_session).abs() < 29.0 * 1e-6, "{fresh:?}");
    let (_, filled) = world.run(&RunRequest { out: "fill", cache: true, ..PLAIN }).unwrap();
    let (_, cached) = world.run(&RunRequest { out: "cached", cache: true, ..rounds }).unwrap();
    assert_eq!((cached.cached, cached.encode_session), (29, 0.0));
    // Samples differ in their time, so the share is near that of the views and not exactly it.
    let share = cached.encode / filled.encode;
    let views = summary.mean_views.unwrap() / VIEWS as f64;
    assert!((share - views).abs() < 0.5 * views && share < 0.95, "{share} {views}");
}

#[test]
fn the_summary_of_an_earlier_version_is_computed_again_from_its_records() {
    let world = world(1);
    let (summary, _) = world.run(&RunRequest { method: "zero", ..PLAIN }).unwrap();
    let path = world.path("run");
    // As the earlier version wrote it: every tie a hit, a floor under the NLL.
    let mut earlier = serde_json::to_value(&summary).unwrap();
    earlier.as_object_mut().unwrap().remove("confidence");
    let metrics = earlier["metrics"].as_object_mut().unwrap();
    metrics.remove("infinite_nll");
    metrics.insert("nll".into(), 87.3.into());
    metrics.insert("top5".into(), 1.0.into());
    std::fs::write(path.join(SUMMARY), earlier.to_string()).unwrap();
    let log = std::fs::read_to_string(path.join(PREDICTIONS)).unwrap().replace("\"in_top5\":false", "\"in_top5\":true");
    // Lines of that version had no checksum.
    let lines = log.lines().map(|line| format!("{}}}\n", line.split_once(",\"crc32\"").unwrap().0));
    std::fs::write(path.join(PREDICTIONS), lines.collect::<String>()).unwrap();
    let dir = RunDir::open(&path).unwrap();
    let read = dir.summary().unwrap().unwrap();
    assert_eq!(read.metrics, summary.metrics);
    assert!(
        read.metrics.infinite_nll > 0 && read.metrics.nll.is_none() && read.metrics.top5 < 1.0,
        "{:?}",
        read.metrics
    );
    assert_eq!(read.confidence, methods::Confidence::VoteShare);
    dir.renew_summary(&read).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(path.join(SUMMARY)).unwrap()).unwrap();
    assert_eq!(written["metrics"]["infinite_nll"], summary.metrics.infinite_nll);
}

#[test]
fn a_summary_says_how_the_stream_was_cut() {
    let world = world(0);
    world.run(&PLAIN).unwrap();
    let records = world.records("run");
    // 29 samples of four classes, class after class: 8, 7, 7 and 7.
    let sets = Sets::new(8, &records);
    assert_eq!((sets.images, sets.count, sets.mean_classes), (8, 4, 1.5));
    assert_eq!(Sets::new(0, &records), Sets { images: 29, count: 1, mean_classes: 4.0 });
}

#[test]
fn bad_samples_are_counted_listed_and_limited() {
    let world = world(3);
    let (summary, _) = world.run(&PLAIN).unwrap();
    assert_eq!((summary.samples, summary.failed, summary.metrics.count), (29, 3, 26));
    assert!(summary.failures[0].0.contains("bad0") && summary.failures[0].1.contains("not an image"));
    let message = world.run(&RunRequest { out: "strict", max_errors: 0, ..PLAIN }).unwrap_err().to_string();
    assert!(message.contains("bad samples"), "{message}");
}

#[test]
fn runs_are_never_overwritten() {
    let world = world(0);
    world.run(&RunRequest { out: "x", ..PLAIN }).unwrap();
    assert!(
        world.run(&RunRequest { out: "x", ..PLAIN }).unwrap_err().hint() == Some(&flatclip::Hint::ResumeOrElsewhere)
    );
    let message =
        world.run(&RunRequest { out: "x", resume: true, order_seed: Some(1), ..PLAIN }).unwrap_err().to_string();
    assert!(message.contains("order_seed was nothing, now 1"), "{message}");
    world.run(&RunRequest { out: "x", resume: true, ..PLAIN }).unwrap();
}
