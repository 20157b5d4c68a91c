//! What one image costs with each adapter. A peak of resident memory belongs to a process, and freed memory of one method
//! would be counted for the next: so each row is meant for a process of its own. Inside, encoding alone and the whole
//! image take turns, so that their ratio does not depend on how busy the machine was at another time.

use super::BenchRequest;
use super::cases::{Workbench, class_names, noise, pixels};
use super::measure::{peak_rss_mb, reset_peak, seconds, spread};
use flatclip::classify::ClipEncoder;
use flatclip::image::DecodeOptions;
use flatclip::image::views::ViewOptions;
use flatclip::methods::statistics::SourceStatistics;
use flatclip::methods::{ADAPTERS, Kind, Needs, Task, ViewSet, adapter};
use flatclip::model::{Clip, Context, Features, ImageConfig, Towers};
use flatclip::prompt::{Affine, Prompt, PromptContent, PromptKind, Provenance};
use flatclip::{Error, Matrix, Model, Progress, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// The row that the others are compared with.
const ENCODE: &str = "encode";
/// Rows that are not an adapter with its defaults: name, adapter, options. Random weights are sure of nothing, so SAR would find
/// no reliable view and do nothing: with this margin every view counts, the most that it can cost. Their logits can all be
/// negative, which DLAE refuses unless it does as the authors' code.
const VARIANTS: [(&str, &str, &str); 3] = [
    ("sar", "sar", "margin = 10.0"),
    ("sar-norms", "sar", "adapt = \"norms\"\nmargin = 10.0"),
    ("dlae", "dlae", "compat = true"),
];
/// Refuses a set of one image, which is what is timed here.
const NEEDS_A_SET: &str = "adte";
/// Tokens and depth of the stand-in MaPLe prompt: what PromptAlign starts from.
const MAPLE: (usize, usize) = (2, 3);
/// Generated views of an image, stand-ins.
const GENERATED: usize = 64;

/// One row. Seconds, for one image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MethodTiming {
    /// The adapter, or `encode`.
    pub method: String,
    /// Views of the image.
    pub views: usize,
    /// Once per prompt and class list.
    pub prepare: f64,
    /// Views encoded and answered for.
    pub median: f64,
    /// The fastest repeat.
    pub fastest: f64,
    /// The slowest repeat.
    pub slowest: f64,
    /// After the one that warms up.
    pub repeats: usize,
    /// Of it, what the adapter itself took after the encoding.
    pub added: f64,
    /// Views encoded, in turns with the above.
    pub encode: f64,
    /// Median over the turns of image / encode.
    pub ratio: f64,
    /// Largest resident memory from before the preparation to the end, weights included.
    pub peak_rss_mb: Option<f64>,
    /// What the method was given in place of the real thing.
    pub stand_ins: Vec<String>,
}

/// The rows that these names ask for (`all`: every adapter), encoding alone first.
pub fn method_names(asked: &[String]) -> Result<Vec<String>> {
    let mut names = vec![ENCODE.to_owned()];
    for name in asked {
        if name == "all" {
            names.extend(ADAPTERS.iter().map(|spec| spec.name.to_owned()).filter(|name| name != NEEDS_A_SET));
            let is_new = |name: &&str| ADAPTERS.iter().all(|spec| spec.name != *name);
            names.extend(VARIANTS.iter().map(|variant| variant.0).filter(is_new).map(str::to_owned));
        } else if VARIANTS.iter().any(|variant| variant.0 == name) {
            names.push(name.clone());
        } else if name != ENCODE {
            names.push(adapter(name)?.name.to_owned());
        }
    }
    Ok(names)
}

/// The row of one method, measured in this process: its peak memory is that of the process.
pub fn time_method(args: &BenchRequest, name: &str, progress: &dyn Progress) -> Result<MethodTiming> {
    args.check()?;
    let model = Workbench::new(args, None, progress).load(Towers::Both)?;
    let clip = model.clip();
    if name == ENCODE {
        return encode_row(args, clip);
    }
    let variant = VARIANTS.iter().find(|variant| variant.0 == name);
    let spec = adapter(variant.map_or(name, |variant| variant.1))?;
    let options: toml::Table = variant
        .map_or("", |variant| variant.2)
        .parse()
        .map_err(|e: toml::de::Error| Error::config(name, e.message()))?;
    let mut adapter = spec.build(&options)?;
    let needs = adapter.needs().unwrap_or(spec.needs);
    let passes = clip.passes();
    if needs.vit && !(matches!(clip.config().image, ImageConfig::Vit { .. }) && passes.vision && passes.deep) {
        return Err(Error::method(spec.name, "needs prompts in both towers, which those of this model do not compute"));
    }
    let views = if needs.default_views == 1 { 1 } else { args.views };
    let given = Given::new(clip, &needs)?;
    let classes = class_names(args.classes);

    reset_peak();
    let start = Instant::now();
    let task = given.task(&model, classes)?;
    adapter.prepare(&task)?;
    let prepare = start.elapsed().as_secs_f64();
    let encoder = ClipEncoder {
        bytes: false,
        clip: Arc::clone(clip),
        views: ViewOptions::of(clip.config(), views),
        decode: DecodeOptions::default(),
        seed: 0,
        visual_prompts: given.prompt.visual_prompts(),
        generated: None,
    };
    let pixels = pixels(clip, views);
    let mut turns: Vec<Turn> = Vec::new();
    for turn in 0..=args.repeats {
        let encode = seconds(|| encoder.encode(&pixels, views))?;
        let start = Instant::now();
        let features = encoder.encode(&pixels, views)?;
        let image = ViewSet {
            norms: &features.norms,
            pixels: needs.pixels.then_some(pixels.as_slice()),
            generated: given.generated.as_ref(),
            ..ViewSet::new("bench", &features.unit)
        };
        let encoded = start.elapsed().as_secs_f64();
        std::hint::black_box(adapter.adapt_set(&task, std::slice::from_ref(&image))?);
        let image = start.elapsed().as_secs_f64();
        // Every turn is the first image of a stream.
        if adapter.kind() == Kind::Online {
            adapter.prepare(&task)?;
        }
        // The first turn warms up.
        if turn > 0 {
            turns.push([encode, image, image - encoded]);
        }
    }
    let mut stand_ins = given.stand_ins;
    if options.contains_key("margin") {
        stand_ins.push("every view counts as reliable".to_owned());
    }
    Ok(row(&turns, name, views, prepare, stand_ins))
}

fn encode_row(args: &BenchRequest, clip: &Clip) -> Result<MethodTiming> {
    let pixels = pixels(clip, args.views);
    reset_peak();
    let mut turns: Vec<Turn> = Vec::new();
    for turn in 0..=args.repeats {
        let time = seconds(|| clip.encode_images(&pixels, args.views))?;
        if turn > 0 {
            turns.push([time, time, 0.0]);
        }
    }
    Ok(row(&turns, ENCODE, args.views, 0.0, Vec::new()))
}

/// Times of encoding, of the whole image and of the adapter alone, of one turn.
type Turn = [f64; 3];

/// The row of at least one turn.
fn row(turns: &[Turn], method: &str, views: usize, prepare: f64, stand_ins: Vec<String>) -> MethodTiming {
    let [fastest, median, slowest] = spread(turns.iter().map(|[_, image, _]| *image).collect());
    MethodTiming {
        method: method.to_owned(),
        views,
        prepare,
        median,
        fastest,
        slowest,
        repeats: turns.len(),
        added: spread(turns.iter().map(|[.., added]| *added).collect())[1],
        encode: spread(turns.iter().map(|[encode, ..]| *encode).collect())[1],
        ratio: spread(turns.iter().map(|[encode, image, _]| image / encode).collect())[1],
        peak_rss_mb: peak_rss_mb(),
        stand_ins,
    }
}

/// Prompt, statistics and generated views of the right shape.
pub(super) struct Given {
    pub(super) prompt: Arc<Prompt>,
    statistics: Option<Arc<SourceStatistics>>,
    pub(super) generated: Option<Matrix>,
    stand_ins: Vec<String>,
}

impl Given {
    pub(super) fn new(clip: &Clip, needs: &Needs) -> Result<Self> {
        let mut stand_ins = Vec::new();
        let prompt = if needs.prompts.contains(&PromptKind::Templates) {
            Prompt::templates(&[Prompt::TEMPLATE])?
        } else {
            stand_ins.push(format!("random maple prompt of {} tokens, depth {}", MAPLE.0, MAPLE.1));
            maple(clip)?
        };
        let statistics = needs.statistics.then(|| statistics(clip)).transpose()?.map(Arc::new);
        if statistics.is_some() {
            stand_ins.push("random statistics".to_owned());
        }
        let dim = clip.embed_dim();
        let generated = needs.generated.then(|| {
            stand_ins.push(format!("{GENERATED} random features of generated views, their encoding not timed"));
            Features::unit(Matrix::from_vec(GENERATED, dim, noise("generated", GENERATED * dim))).0
        });
        Ok(Self { prompt: Arc::new(prompt), statistics, generated, stand_ins })
    }

    pub(super) fn task(&self, model: &Model, classes: Vec<String>) -> Result<Task> {
        let mut task = Task::from_prompt(&self.prompt, model.clip(), model.tokenizer(), classes, 0)?;
        task.statistics.clone_from(&self.statistics);
        Ok(task)
    }
}

fn maple(clip: &Clip) -> Result<Prompt> {
    let (tokens, depth) = MAPLE;
    let (text, visual) = (clip.text()?.width(), clip.vision().token_width()?);
    let small = |what: &str, rows: usize, cols: usize| {
        Matrix::from_vec(rows, cols, noise(what, rows * cols).into_iter().map(|x| 0.03 * x).collect())
    };
    let projection =
        |i: usize| Affine { weight: small(&format!("projection {i}"), visual, text), bias: vec![0.0; visual] };
    let kind = PromptContent::Maple {
        context: Context::shared(tokens, text, small("context", tokens, text).into_vec()),
        words: "a photo of a".to_owned(),
        tail: "of a".to_owned(),
        deep: (1..depth).map(|i| small(&format!("deep {i}"), tokens, text)).collect(),
        projections: (0..depth).map(projection).collect(),
    };
    Ok(Prompt::new(kind, Provenance::default()))
}

fn statistics(clip: &Clip) -> Result<SourceStatistics> {
    let ImageConfig::Vit { layers, width, .. } = clip.config().image else {
        return Err(Error::method("promptalign", "token statistics need a vision transformer"));
    };
    let tokens = clip.config().image_tokens() + MAPLE.0;
    let block = |what: &str, i: usize| noise(&format!("{what} {i}"), tokens * width);
    let means = (0..layers).map(|i| Matrix::from_vec(tokens, width, block("mean", i)));
    let positive = |i: usize| block("variance", i).into_iter().map(f32::abs).collect();
    let variances = (0..layers).map(|i| Matrix::from_vec(tokens, width, positive(i)));
    SourceStatistics::new(means.collect(), variances.collect())
}
