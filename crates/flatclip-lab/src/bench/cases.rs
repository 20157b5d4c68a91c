//! The cases, each a stage that people wait for.

use super::measure::{CaseTiming, TurnTaker, measure};
use super::pairs::{files, stss_scores};
use super::{BenchRequest, flops};
use flatclip::classify::Rounds;
use flatclip::image::views::{ViewKey, ViewOptions, make_views_into};
use flatclip::image::{self, DecodeOptions, Image};
use flatclip::methods::adapters::stss::{self, Stss};
use flatclip::methods::bank::TextBank;
use flatclip::methods::{Adapter as _, Task, ViewSet, build_adapter};
use flatclip::model::{ClassTokens, Clip, Context, Features, Precision, Towers};
use flatclip::prompt::{Prompt, template_context};
use flatclip::rng::Stream;
use flatclip::text::imagenet;
use flatclip::{Error, Model, Progress, Result};
use flatclip_tensor::ops::loss::cross_entropy_gradient;
use flatclip_tensor::{Activation, Linear, Matrix, gemm, isa};
use std::cell::OnceCell;
use std::sync::Arc;

/// A stage that people wait for.
type Case = fn(&mut Workbench<'_>) -> Result<Vec<CaseTiming>>;

/// Every case by its name, in the order they run.
pub(super) static CASES: &[(&str, Case)] = &[
    ("gemm", gemm_case),
    ("encode-views", encode_views),
    ("files", files),
    ("rounds", rounds),
    ("views", views),
    ("text-features", text_features),
    ("context-step", context_step),
    ("sapt-step", sapt_step),
    ("stss-image", stss_image),
    ("stss-rounds", stss_rounds),
    ("stss-scores", stss_scores),
    ("tpt-step", tpt_step),
    ("tpt-image", tpt_image),
];

/// Images of a training batch.
const BATCH: usize = 32;

/// What the cases share, made when first needed.
pub(super) struct Workbench<'a> {
    pub(super) request: &'a BenchRequest,
    pub(super) progress: &'a dyn Progress,
    turns: Option<&'a mut dyn TurnTaker>,
    loaded: Option<(Towers, Model)>,
    product_rates: [OnceCell<f64>; Precision::ALL.len()],
}

impl<'a> Workbench<'a> {
    pub(super) fn new(
        request: &'a BenchRequest,
        turns: Option<&'a mut dyn TurnTaker>,
        progress: &'a dyn Progress,
    ) -> Self {
        Self { request, progress, turns, loaded: None, product_rates: Default::default() }
    }

    /// Has these towers in memory, and no others: what a case needs is what its peak memory shows.
    pub(super) fn load(&mut self, towers: Towers) -> Result<Model> {
        if let Some((found, model)) = &self.loaded
            && *found == towers
        {
            return Ok(model.clone());
        }
        self.loaded = None;
        let BenchRequest { model, find, precision, text_precision, .. } = self.request;
        let loaded =
            find.clone().precision(*precision).text_precision(*text_precision).towers(towers).load(self.progress)?;
        let (threads, isa) = (rayon::current_num_threads(), isa::current());
        let (image, text) = (precision.name(), text_precision.name());
        self.progress.note(&format!("{model}, images {image}, texts {text}, {threads} threads, {isa}"));
        self.loaded = Some((towers, loaded.clone()));
        Ok(loaded)
    }

    fn measure<R>(&mut self, case: String, flops: Option<f64>, work: impl FnMut() -> Result<R>) -> Result<CaseTiming> {
        measure(case, self.request.repeats, self.turns.as_deref_mut().map(|turns| turns as _), flops, work)
    }

    /// GFLOP/s of a bare product of the tower's largest shape.
    fn product_rate(&self, precision: Precision) -> Result<f64> {
        let cell = &self.product_rates[precision as usize];
        if let Some(rate) = cell.get() {
            return Ok(*rate);
        }
        let (name, flops, work) = product(precision, 1576, 768, 3072);
        let rate = measure(name, 5, None, Some(flops), work)?.gflops.unwrap_or(f64::NAN);
        Ok(*cell.get_or_init(|| rate))
    }

    fn with_share(&self, mut timing: CaseTiming, precision: Precision) -> Result<CaseTiming> {
        if let Some(gflops) = timing.gflops.filter(|_| self.turns.is_none()) {
            timing.share = Some(gflops / self.product_rate(precision)?);
        }
        Ok(timing)
    }

    /// What `work` costs for views in rounds, to each place where any-time views can stop: `work` gets the ends of all rounds.
    fn in_rounds<R>(
        &mut self,
        name: impl Fn(usize) -> String,
        mut work: impl FnMut(&[usize]) -> Result<R>,
    ) -> Result<Vec<CaseTiming>> {
        // Views after no round, after the first, and so on to all.
        let mut stops = vec![0, 1];
        while stops[stops.len() - 1] < self.request.views {
            stops.push(Rounds::next(stops[stops.len() - 1], self.request.views));
        }
        (1..stops.len()).map(|last| self.measure(name(stops[last]), None, || work(&stops[..=last]))).collect()
    }
}

/// Pixels of views that look random; towers do not care.
pub(super) fn pixels(clip: &Clip, views: usize) -> Vec<f32> {
    noise("pixels", views * 3 * clip.image_size() * clip.image_size())
}

/// Repeatable values in about (-1, 1).
pub(super) fn noise(what: &str, count: usize) -> Vec<f32> {
    // A short block over and over: drawing tens of millions of numbers would take longer than the case.
    let mut stream = Stream::new(0, &["bench", what]);
    let block: Vec<f32> = (0..count.min(1 << 16)).map(|_| stream.uniform(-1.0, 1.0) as f32).collect();
    block.into_iter().cycle().take(count).collect()
}

/// A bare product: its name, its arithmetic, and the work.
fn product(precision: Precision, rows: usize, k: usize, n: usize) -> (String, f64, impl FnMut() -> Result<()>) {
    let (x, weight) = (noise("x", rows * k), noise("weight", n * k));
    let linear = Linear::with_precision(n, k, &weight, None, precision);
    let mut out = vec![0.0; rows * n];
    let work = move || {
        linear.forward(&x, rows, Activation::Identity, &mut out);
        Ok(())
    };
    (format!("gemm {} {rows}x{k}x{n}", precision.name()), 2.0 * (rows * k * n) as f64, work)
}

fn gemm_case(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    let mut timings = Vec::new();
    let mut precisions = vec![Precision::F32, bench.request.precision];
    precisions.dedup();
    for precision in precisions {
        for (k, n) in [(768, 3072), (3072, 768), (768, 768), (768, 2304)] {
            let (name, flops, work) = product(precision, 3152, k, n);
            let timing = bench.measure(name, Some(flops), work)?;
            timings.push(bench.with_share(timing, precision)?);
        }
    }
    Ok(timings)
}

fn encode_views(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    let (model, count) = (bench.load(Towers::Image)?, bench.request.views);
    let clip = model.clip();
    let pixels = pixels(clip, count);
    let flops = flops::image(clip.config()).map(|flops| flops * count as f64);
    let name = format!("encode-views {count}");
    let timing = bench.measure(name, flops, || clip.encode_images(&pixels, count))?;
    Ok(vec![bench.with_share(timing, bench.request.precision)?])
}

/// Views encoded in rounds, to each place where any-time views can stop: what an answer costs that needs so many.
fn rounds(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    let (model, count) = (bench.load(Towers::Image)?, bench.request.views);
    let clip = model.clip();
    let (pixels, size) = (pixels(clip, count), 3 * clip.image_size() * clip.image_size());
    let round = |ends: &[usize]| clip.encode_images(&pixels[ends[0] * size..ends[1] * size], ends[1] - ends[0]);
    let encode = |stops: &[usize]| stops.windows(2).map(round).collect::<Result<Vec<Matrix>>>();
    bench.in_rounds(|views| format!("rounds to {views} views"), encode)
}

fn views(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    let options = ViewOptions { count: bench.request.views, ..ViewOptions::default() };
    let key = ViewKey { seed: 0, dataset: "bench", sample: "image" };
    let mut views = Vec::new();
    let mut make = |image: &Image| make_views_into(image, &options, key, &mut views);
    let timing = if let Some(path) = &bench.request.image {
        let bytes = std::fs::read(path).map_err(Error::io(path))?;
        let name = format!("views {} of a file, decoded", options.count);
        bench.measure(name, None, || make(&image::decode_from(path, &bytes, &DecodeOptions::default())?))?
    } else {
        let rgb: Vec<u8> = noise("image", 500 * 375 * 3).iter().map(|x| (127.0 + 120.0 * x) as u8).collect();
        let image = Image { width: 500, height: 375, rgb };
        bench.measure(format!("views {} of 500x375", options.count), None, || make(&image))?
    };
    Ok(vec![timing])
}

/// The first `count` ImageNet names.
pub(super) fn class_names(count: usize) -> Vec<String> {
    imagenet::CLASS_NAMES.iter().take(count).map(|&name| name.to_owned()).collect()
}

/// "a photo of a" as a context before the first `count` ImageNet names.
fn prompts(model: &Model, count: usize) -> Result<(ClassTokens, Context)> {
    let context = template_context(Prompt::TEMPLATE, model.clip().text()?, model.tokenizer(), &class_names(count))?;
    context.ok_or_else(|| Error::config("template", "expected words before the class name"))
}

fn text_features(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    let (model, count) = (bench.load(Towers::Text)?, bench.request.classes);
    let clip = model.clip();
    let (tokens, context) = prompts(&model, count)?;
    let tower = clip.text()?;
    let flops = flops::text(clip.config(), &tokens);
    let name = format!("text-features K={count}");
    let timing = bench.measure(name, flops, || tower.encode(&tokens, std::slice::from_ref(&context)))?;
    Ok(vec![bench.with_share(timing, bench.request.text_precision)?])
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

fn context_step(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    steps(bench, "context-step", 1)
}

fn sapt_step(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    steps(bench, "sapt-step", 2)
}

/// `times` gradients one after the other, for 100 and for all classes.
fn steps(bench: &mut Workbench<'_>, name: &str, times: usize) -> Result<Vec<CaseTiming>> {
    let model = bench.load(Towers::Text)?;
    let clip = model.clip();
    let images = batch(clip);
    let mut counts = vec![100.min(bench.request.classes), bench.request.classes];
    counts.dedup();
    let mut timings = Vec::new();
    for count in counts {
        let (tokens, context) = prompts(&model, count)?;
        // Forward and input gradient: twice the forward arithmetic.
        let flops = flops::text(clip.config(), &tokens).map(|flops| 2.0 * times as f64 * flops);
        let timing = bench.measure(format!("{name} K={count}"), flops, || {
            (0..times).try_fold(context.clone(), |context, _| step(clip, &tokens, &context, &images))
        })?;
        timings.push(bench.with_share(timing, bench.request.text_precision)?);
    }
    Ok(timings)
}

/// Views encoded and scored with a text bank from the store: no text tower in memory. The bank's numbers are random.
fn stss_image(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    let (model, views, count) = (bench.load(Towers::Image)?, bench.request.views, bench.request.classes);
    let clip = model.clip();
    let (adapter, task) = stss_of(clip, count)?;
    let pixels = pixels(clip, views);
    let timing = bench.measure(format!("stss-image V={views} K={count}"), None, || {
        let (features, norms) = Features::unit(clip.encode_images(&pixels, views)?);
        adapter.adapt(&task, &ViewSet { norms: &norms, ..ViewSet::new("bench", &features) })
    })?;
    Ok(vec![timing])
}

/// The same in rounds, to each place where any-time views can stop: views encoded, and after every round scored and answered.
fn stss_rounds(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    let (model, views, count) = (bench.load(Towers::Image)?, bench.request.views, bench.request.classes);
    let clip = model.clip();
    let (adapter, task) = stss_of(clip, count)?;
    let (pixels, size) = (pixels(clip, views), 3 * clip.image_size() * clip.image_size());
    bench.in_rounds(
        |views| format!("stss-rounds to {views} views K={count}"),
        |stops| {
            let mut seen = Vec::new();
            let mut answer = None;
            for ends in stops.windows(2) {
                let new = clip.encode_images(&pixels[ends[0] * size..ends[1] * size], ends[1] - ends[0])?;
                seen.extend(Features::unit(new).0.into_vec());
                let features = Matrix::from_vec(ends[1], clip.embed_dim(), seen.clone());
                answer = Some(adapter.adapt(&task, &ViewSet::new("bench", &features))?);
            }
            Ok(answer)
        },
    )
}

/// STSS with a bank of random numbers, and its task.
fn stss_of(clip: &Arc<Clip>, count: usize) -> Result<(Stss, Task)> {
    let options = stss::Config::default();
    let text = |index: usize| {
        let rows = Matrix::from_vec(count, clip.embed_dim(), noise(&format!("bank {index}"), count * clip.embed_dim()));
        Features::unit(rows).0
    };
    let bank: Vec<f32> = (0..=options.perturbations).flat_map(|i| text(i).data().to_vec()).collect();
    let rows = Matrix::from_vec(bank.len() / clip.embed_dim(), clip.embed_dim(), bank);
    let bank = TextBank::from_rows(&rows, count, options.perturbations)
        .ok_or_else(|| Error::config("bank", "sizes do not fit"))?;
    drop(rows);
    let task = Task::new(class_names(count), bank.base().clone(), clip.logit_scale(), 0)?.with_clip(Arc::clone(clip));
    Ok((Stss::with_bank(options, bank), task))
}

/// One step of TPT and the answer, from given features.
fn tpt_step(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    let model = bench.load(Towers::Text)?;
    let (views, dim) = (bench.request.views, model.width());
    let features = Features::unit(Matrix::from_vec(views, dim, noise("views", views * dim)));
    tpt(bench, &model, "tpt-step", || Ok(features.clone()))
}

/// Views encoded, one step of TPT, the answer.
fn tpt_image(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    let (model, views) = (bench.load(Towers::Both)?, bench.request.views);
    let clip = model.clip();
    let pixels = pixels(clip, views);
    tpt(bench, &model, "tpt-image", || Ok(Features::unit(clip.encode_images(&pixels, views)?)))
}

/// TPT on the unit-norm features and norms that `views` makes for each image.
fn tpt(
    bench: &mut Workbench<'_>,
    model: &Model,
    name: &str,
    views: impl Fn() -> Result<(Matrix, Vec<f32>)>,
) -> Result<Vec<CaseTiming>> {
    let (clip, count) = (model.clip(), bench.request.classes);
    let (tokens, context) = prompts(model, count)?;
    let text = clip.text()?.encode(&tokens, std::slice::from_ref(&context))?.remove(0);
    let task = Task::new(class_names(count), text, clip.logit_scale(), 0)?
        .with_clip(Arc::clone(clip))
        .with_context(tokens, context);
    let mut adapter = build_adapter("tpt", &toml::Table::new())?.into_episodic()?;
    adapter.prepare(&task)?;
    let case = format!("{name} V={} K={count}", bench.request.views);
    let timing = bench.measure(case, None, || {
        let (features, norms) = views()?;
        adapter.adapt(&task, &ViewSet { norms: &norms, ..ViewSet::new("bench", &features) })
    })?;
    Ok(vec![timing])
}
