//! The cases, each a stage that people wait for.

use super::measure::{Repeats, Timing, measure};
use super::{Args, flops};
use crate::output::Output;
use anyhow::{Context as _, Result};
use flatclip::image::views::{ViewKey, ViewOptions, make_views_into};
use flatclip::image::{self, DecodeOptions, Picture};
use flatclip::methods::adapters::stss::{self, Stss};
use flatclip::methods::bank::TextBank;
use flatclip::methods::{Adapter as _, Task, ViewSet, build_adapter};
use flatclip::model::{ClassName, ClassTokens, Clip, Context, Features, LoadOptions, Position, Precision, Towers};
use flatclip::rng::Stream;
use flatclip::text::{Tokenizer, imagenet};
use flatclip_tensor::ops::loss::cross_entropy_gradient;
use flatclip_tensor::{Activation, Linear, Matrix, gemm, isa};
use std::cell::OnceCell;
use std::sync::Arc;

type Case = fn(&mut Workbench<'_>) -> Result<Vec<Timing>>;

/// Every case by its name, in the order they run.
pub(super) static CASES: &[(&str, Case)] = &[
    ("gemm", gemm_case),
    ("encode-views", encode_views),
    ("views", views),
    ("text-features", text_features),
    ("context-step", context_step),
    ("sapt-step", sapt_step),
    ("stss-image", stss_image),
    ("tpt-step", tpt_step),
    ("tpt-image", tpt_image),
];

/// Images of a training batch.
const BATCH: usize = 32;

/// What the cases share, made when first needed.
pub(super) struct Workbench<'a> {
    args: &'a Args,
    out: &'a Output,
    precision: Precision,
    loaded: Option<Loaded>,
    product_rates: [OnceCell<f64>; 2],
}

/// A model, or the half of it that a case needs.
struct Loaded {
    towers: Towers,
    clip: Arc<Clip>,
    tokenizer: Tokenizer,
}

impl<'a> Workbench<'a> {
    pub(super) fn new(args: &'a Args, out: &'a Output) -> Self {
        let precision = args.precision.precision();
        Self { args, out, precision, loaded: None, product_rates: Default::default() }
    }

    /// What makes two runs comparable.
    pub(super) fn setting(&self) -> serde_json::Value {
        serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "model": self.args.model,
            "isa": isa::current().name(),
            "precision": self.precision.name(),
            "threads": rayon::current_num_threads(),
        })
    }

    /// Has these towers in memory, and no others: what a case needs is what its peak memory shows.
    pub(super) fn load(&mut self, towers: Towers) -> Result<()> {
        if self.loaded.as_ref().is_some_and(|loaded| loaded.towers == towers) {
            return Ok(());
        }
        self.loaded = None;
        let checkpoint = crate::places::open(&self.args.model, None, true, self.out)?;
        let clip = Clip::load(&checkpoint, LoadOptions { precision: self.precision, ..LoadOptions::of(towers) })?;
        let (threads, isa) = (rayon::current_num_threads(), isa::current());
        self.out.note(format_args!("{}, {}, {threads} threads, {isa}", self.args.model, self.precision.name()));
        self.loaded = Some(Loaded { towers, clip: Arc::new(clip), tokenizer: Tokenizer::of(&checkpoint)? });
        Ok(())
    }

    fn loaded(&self) -> Result<&Loaded> {
        self.loaded.as_ref().context("a case loads the towers that it needs first")
    }

    /// The model as loaded.
    pub(super) fn clip(&self) -> Result<&Arc<Clip>> {
        Ok(&self.loaded()?.clip)
    }

    /// Its tokenizer.
    pub(super) fn tokenizer(&self) -> Result<&Tokenizer> {
        Ok(&self.loaded()?.tokenizer)
    }

    /// The arithmetic that was asked for, resolved.
    pub(super) fn precision(&self) -> &'static str {
        self.precision.name()
    }

    /// GFLOP/s of a bare product of the tower's largest shape.
    fn product_rate(&self, precision: Precision) -> Result<f64> {
        let cell = &self.product_rates[usize::from(precision == Precision::Bf16)];
        if let Some(rate) = cell.get() {
            return Ok(*rate);
        }
        let rate = product(precision, 1576, 768, 3072, Repeats::Count(5))?.gflops.unwrap_or(f64::NAN);
        Ok(*cell.get_or_init(|| rate))
    }

    fn with_share(&self, mut timing: Timing, precision: Precision) -> Result<Timing> {
        if let Some(gflops) = timing.gflops.filter(|_| !self.args.turns) {
            timing.share = Some(gflops / self.product_rate(precision)?);
        }
        Ok(timing)
    }

    /// Pixels that look random; towers do not care.
    fn pixels(&self, clip: &Clip) -> Vec<f32> {
        let count = self.args.views * 3 * clip.image_size() * clip.image_size();
        noise("pixels", count)
    }
}

/// Repeatable values in about (-1, 1).
pub(super) fn noise(what: &str, count: usize) -> Vec<f32> {
    // A short block over and over: drawing tens of millions of numbers would take longer than the case.
    let mut stream = Stream::new(0, &["bench", what]);
    let block: Vec<f32> = (0..count.min(1 << 16)).map(|_| stream.uniform(-1.0, 1.0) as f32).collect();
    block.into_iter().cycle().take(count).collect()
}

fn product(precision: Precision, rows: usize, k: usize, n: usize, repeats: Repeats) -> Result<Timing> {
    let (x, weight) = (noise("x", rows * k), noise("weight", n * k));
    let linear = Linear::with_precision(n, k, &weight, None, precision);
    let mut out = vec![0.0; rows * n];
    let name = format!("gemm {} {rows}x{k}x{n}", precision.name());
    measure(name, repeats, Some(2.0 * (rows * k * n) as f64), || {
        linear.forward(&x, rows, Activation::Identity, &mut out);
        Ok(())
    })
}

fn gemm_case(bench: &mut Workbench<'_>) -> Result<Vec<Timing>> {
    let mut timings = Vec::new();
    // Without tiles bf16 is f32 arithmetic on rounded numbers: measured only when asked for.
    let both = bench.precision == Precision::Bf16;
    for precision in [Precision::F32, Precision::Bf16].into_iter().take(1 + usize::from(both)) {
        for (k, n) in [(768, 3072), (3072, 768), (768, 768), (768, 2304)] {
            let timing = product(precision, 3152, k, n, bench.args.repeats())?;
            timings.push(bench.with_share(timing, precision)?);
        }
    }
    Ok(timings)
}

fn encode_views(bench: &mut Workbench<'_>) -> Result<Vec<Timing>> {
    bench.load(Towers::Image)?;
    let (clip, count) = (bench.clip()?, bench.args.views);
    let pixels = bench.pixels(clip);
    let flops = flops::image(clip.config()).map(|flops| flops * count as f64);
    let name = format!("encode-views {count}");
    let timing = measure(name, bench.args.repeats(), flops, || Ok(clip.encode_images(&pixels, count)?))?;
    Ok(vec![bench.with_share(timing, bench.precision)?])
}

fn views(bench: &mut Workbench<'_>) -> Result<Vec<Timing>> {
    let options = ViewOptions { count: bench.args.views, ..ViewOptions::default() };
    let key = ViewKey { seed: 0, dataset: "bench", sample: "picture" };
    let mut views = Vec::new();
    if let Some(path) = &bench.args.picture {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        let name = format!("views {} of a file, decoded", options.count);
        let timing = measure(name, bench.args.repeats(), None, || {
            let picture = image::decode_from(path, &bytes, &DecodeOptions::default())?;
            Ok(make_views_into(&picture, &options, key, &mut views)?)
        })?;
        return Ok(vec![timing]);
    }
    let rgb: Vec<u8> = noise("picture", 500 * 375 * 3).iter().map(|x| (127.0 + 120.0 * x) as u8).collect();
    let picture = Picture { width: 500, height: 375, rgb };
    let name = format!("views {} of 500x375", options.count);
    let make = || Ok(make_views_into(&picture, &options, key, &mut views)?);
    Ok(vec![measure(name, bench.args.repeats(), None, make)?])
}

/// The first `count` ImageNet names.
pub(super) fn class_names(count: usize) -> Vec<String> {
    imagenet::CLASS_NAMES.iter().take(count).map(|&name| name.to_owned()).collect()
}

/// "a photo of a" as a context before the first `count` ImageNet names.
fn prompts(bench: &Workbench<'_>, count: usize) -> Result<(ClassTokens, Context)> {
    let (clip, tokenizer) = (bench.clip()?, bench.tokenizer()?);
    let words = tokenizer.encode("a photo of a");
    let rest = [tokenizer.encode("."), vec![tokenizer.eot()]].concat();
    let class = |name: &&str| ClassName { name: tokenizer.encode(name), rest: rest.clone() };
    let classes = imagenet::CLASS_NAMES.iter().take(count).map(class).collect();
    let tokens = ClassTokens { n_ctx: words.len(), position: Position::End, sot: tokenizer.sot(), classes };
    let embedded = clip.text()?.embed(&words)?;
    Ok((tokens, Context::shared(words.len(), embedded.cols(), embedded.into_vec())))
}

fn text_features(bench: &mut Workbench<'_>) -> Result<Vec<Timing>> {
    bench.load(Towers::Text)?;
    let (clip, count) = (bench.clip()?, bench.args.classes);
    let (tokens, context) = prompts(bench, count)?;
    let tower = clip.text()?;
    let flops = flops::text(clip.config(), &tokens);
    let name = format!("text-features K={count}");
    let timing =
        measure(name, bench.args.repeats(), flops, || Ok(tower.encode(&tokens, std::slice::from_ref(&context))?))?;
    Ok(vec![bench.with_share(timing, Precision::F32)?])
}

/// Loss and gradient of one batch: what a step of CoOp costs besides the update.
fn step(clip: &Clip, tokens: &ClassTokens, context: &Context, images: &Matrix) -> Result<Context> {
    let pass = clip.text()?.pass(tokens, std::slice::from_ref(context))?;
    let text = &pass.features()[0];
    let (rows, classes, scale) = (images.rows(), text.rows(), clip.logit_scale());
    let mut logits = vec![0.0; rows * classes];
    gemm::product_nt(images.data(), rows, text.data(), classes, text.cols(), &mut logits);
    let mut d = vec![0.0; logits.len()];
    for (row, (logits, d)) in logits.chunks_exact_mut(classes).zip(d.chunks_exact_mut(classes)).enumerate() {
        logits.iter_mut().for_each(|x| *x *= scale);
        cross_entropy_gradient(logits, row % classes, d);
    }
    let turned = Matrix::from_vec(rows, classes, d).transpose();
    let mut d_text = Matrix::zeros(classes, text.cols());
    gemm::product_nn(turned.data(), classes, images.data(), text.cols(), rows, d_text.data_mut());
    d_text.data_mut().iter_mut().for_each(|x| *x *= scale / rows as f32);
    Ok(pass.gradient(&[d_text])?.remove(0))
}

fn batch(clip: &Clip) -> Matrix {
    let dim = clip.embed_dim();
    Features::unit(Matrix::from_vec(BATCH, dim, noise("batch", BATCH * dim))).0
}

fn context_step(bench: &mut Workbench<'_>) -> Result<Vec<Timing>> {
    steps(bench, "context-step", 1)
}

fn sapt_step(bench: &mut Workbench<'_>) -> Result<Vec<Timing>> {
    steps(bench, "sapt-step", 2)
}

/// `times` gradients one after the other, for 100 and for all classes.
fn steps(bench: &mut Workbench<'_>, name: &str, times: usize) -> Result<Vec<Timing>> {
    bench.load(Towers::Text)?;
    let clip = bench.clip()?;
    let images = batch(clip);
    let mut counts = vec![100.min(bench.args.classes), bench.args.classes];
    counts.dedup();
    let mut timings = Vec::new();
    for count in counts {
        let (tokens, context) = prompts(bench, count)?;
        // Forward and input gradient: twice the forward arithmetic.
        let flops = flops::text(clip.config(), &tokens).map(|flops| 2.0 * times as f64 * flops);
        let timing = measure(format!("{name} K={count}"), bench.args.repeats(), flops, || {
            (0..times).try_fold(context.clone(), |context, _| step(clip, &tokens, &context, &images))
        })?;
        timings.push(bench.with_share(timing, Precision::F32)?);
    }
    Ok(timings)
}

/// Views encoded and scored with a text bank from the store: no text tower in memory. The bank's numbers are random.
fn stss_image(bench: &mut Workbench<'_>) -> Result<Vec<Timing>> {
    bench.load(Towers::Image)?;
    let (clip, views, count) = (bench.clip()?, bench.args.views, bench.args.classes);
    let options = stss::Config::default();
    let text = |index: usize| {
        let rows = Matrix::from_vec(count, clip.embed_dim(), noise(&format!("bank {index}"), count * clip.embed_dim()));
        Features::unit(rows).0
    };
    let bank: Vec<f32> = (0..=options.perturbations).flat_map(|i| text(i).data().to_vec()).collect();
    let rows = Matrix::from_vec(bank.len() / clip.embed_dim(), clip.embed_dim(), bank);
    let bank = TextBank::from_rows(&rows, count, options.perturbations).context("a bank of these sizes")?;
    drop(rows);
    let task = Task::new(class_names(count), bank.base().clone(), clip.logit_scale(), 0)?.with_clip(Arc::clone(clip));
    let adapter = Stss::with_bank(options, bank);
    let pixels = bench.pixels(clip);
    let timing = measure(format!("stss-image V={views} K={count}"), bench.args.repeats(), None, || {
        let (features, norms) = Features::unit(clip.encode_images(&pixels, views)?);
        Ok(adapter.adapt(&task, &ViewSet { norms: &norms, ..ViewSet::new("bench", &features) })?)
    })?;
    Ok(vec![timing])
}

/// One step of TPT and the answer, features at hand.
fn tpt_step(bench: &mut Workbench<'_>) -> Result<Vec<Timing>> {
    bench.load(Towers::Text)?;
    let (views, dim) = (bench.args.views, bench.clip()?.embed_dim());
    let features = Features::unit(Matrix::from_vec(views, dim, noise("views", views * dim)));
    tpt(bench, "tpt-step", || Ok(features.clone()))
}

/// Views encoded, one step of TPT, the answer.
fn tpt_image(bench: &mut Workbench<'_>) -> Result<Vec<Timing>> {
    bench.load(Towers::Both)?;
    let (clip, views) = (bench.clip()?, bench.args.views);
    let pixels = bench.pixels(clip);
    tpt(bench, "tpt-image", || Ok(Features::unit(clip.encode_images(&pixels, views)?)))
}

/// TPT on the unit-norm features and norms that `views` makes for each image.
fn tpt(bench: &Workbench<'_>, name: &str, views: impl Fn() -> Result<(Matrix, Vec<f32>)>) -> Result<Vec<Timing>> {
    let (clip, count) = (bench.clip()?, bench.args.classes);
    let (tokens, context) = prompts(bench, count)?;
    let text = clip.text()?.encode(&tokens, std::slice::from_ref(&context))?.remove(0);
    let task = Task::new(class_names(count), text, clip.logit_scale(), 0)?
        .with_clip(Arc::clone(clip))
        .with_context(tokens, context);
    let mut adapter = build_adapter("tpt", &toml::Table::new())?.into_episodic()?;
    adapter.prepare(&task)?;
    let case = format!("{name} V={} K={count}", bench.args.views);
    let timing = measure(case, bench.args.repeats(), None, || {
        let (features, norms) = views()?;
        Ok(adapter.adapt(&task, &ViewSet { norms: &norms, ..ViewSet::new("bench", &features) })?)
    })?;
    Ok(vec![timing])
}
