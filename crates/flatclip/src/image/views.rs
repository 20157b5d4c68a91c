//! The views of a test image: view 0 is the image itself, the others are random crops, flipped at random, and mixed
//! by AugMix if asked for. Every view draws from its own stream, so a view is the same in any order and on any thread.

use super::augment::{CropRange, flip};
use super::augmix::Mix;
use super::{Columns, Crop, Image, Interpolation, Normalise, Output, Preprocess, preprocess};
use crate::architecture::ClipConfig;
use crate::rng::Stream;
use crate::{Error, Result};
use rayon::prelude::*;

/// What the views 1.. are. The published code bases differ in it, which moves results; it is part of a run's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ViewPolicy {
    /// Random crop and flip.
    #[default]
    CropFlip,
    /// Random crop and flip, then AugMix.
    #[serde(rename = "augmix")]
    AugMix,
    /// Every view is the image itself.
    Identity,
}

impl ViewPolicy {
    /// The name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::CropFlip => "crop-flip",
            Self::AugMix => "augmix",
            Self::Identity => "identity",
        }
    }
}

impl std::str::FromStr for ViewPolicy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = [Self::CropFlip, Self::AugMix, Self::Identity].into_iter().find(|p| p.name() == name);
        found.ok_or_else(|| {
            Error::config("views.policy", format!("expected crop-flip, augmix or identity, found {name:?}"))
        })
    }
}

/// How views are made. The defaults are TPT's.
#[derive(Clone, Debug)]
pub struct ViewOptions {
    /// What views 1.. are.
    pub policy: ViewPolicy,
    /// Views, view 0 included.
    pub count: usize,
    /// Rows and columns of a view.
    pub size: usize,
    /// Range of the random crops.
    pub range: CropRange,
    /// Chance of a flip.
    pub flip: f64,
    /// Interpolation of views 1.. : TPT's code leaves torchvision's default, bilinear, for every model.
    pub interpolation: Interpolation,
    /// How view 0 is made, and the pixel scale of all views.
    pub preprocess: Preprocess,
    /// Whether view 0 is the image itself; training takes a random view there, too.
    pub first_is_plain: bool,
    /// Severity of AugMix, 1 to 10.
    pub severity: f64,
}

impl Default for ViewOptions {
    fn default() -> Self {
        Self {
            policy: ViewPolicy::CropFlip,
            count: 64,
            size: 224,
            range: CropRange::default(),
            flip: 0.5,
            interpolation: Interpolation::Bilinear,
            preprocess: Preprocess::CLIP,
            first_is_plain: true,
            severity: 1.0,
        }
    }
}

impl ViewOptions {
    /// Views of this size and pixel scale, those of the model.
    pub fn of(model: &ClipConfig, count: usize) -> Self {
        Self { count, size: model.image_size, preprocess: model.preprocess, ..Self::default() }
    }

    /// One random crop and flip with the model's filter: what CoOp, CoCoOp, MaPLe and Tip-Adapter train on.
    pub fn training(model: &ClipConfig) -> Self {
        Self { interpolation: model.preprocess.filter, first_is_plain: false, ..Self::of(model, 1) }
    }
}

/// Whose views: the keys of the random streams.
#[derive(Clone, Copy, Debug)]
pub struct ViewKey<'a> {
    /// The run's seed.
    pub seed: u64,
    /// The data set.
    pub dataset: &'a str,
    /// The sample's id; training adds the epoch to it.
    pub sample: &'a str,
}

/// Part of the seed of every view that is drawn by content: another text would draw other views.
const CONTENT: &str = "picture"; // a seed, not a word

impl<'a> ViewKey<'a> {
    /// Draws by what the image shows, so that its name and its data set do not matter.
    pub fn of_content(seed: u64, digest: &'a str) -> Self {
        Self { seed, dataset: CONTENT, sample: digest }
    }
}

/// What was drawn for a view.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Draw {
    /// The part of the image; `None` for the image itself, preprocessed as usual.
    pub crop: Option<Crop>,
    /// Mirrored left to right.
    pub flip: bool,
    /// AugMix, if any.
    pub mix: Option<Mix>,
}

/// The draws of view `index` of a `width x height` image.
pub(crate) fn draw_view(width: usize, height: usize, options: &ViewOptions, key: ViewKey<'_>, index: usize) -> Draw {
    if options.policy == ViewPolicy::Identity || (index == 0 && options.first_is_plain) {
        return Draw { crop: None, flip: false, mix: None };
    }
    let mut stream = Stream::new(key.seed, &["views", key.dataset, key.sample, &index.to_string()]);
    let crop = options.range.draw(width, height, &mut stream);
    let flip = stream.unit() < options.flip;
    let mix = (options.policy == ViewPolicy::AugMix).then(|| Mix::draw(options.severity, &mut stream));
    Draw { crop: Some(crop), flip, mix }
}

/// All views, `[count, 3, size, size]`, normalised.
pub fn make_views(image: &Image, options: &ViewOptions, key: ViewKey<'_>) -> Result<Vec<f32>> {
    let mut out = Vec::new();
    make_views_into(image, options, key, &mut out)?;
    Ok(out)
}

/// The same into a buffer that keeps its memory from image to image: half of the time of making views is the system's, for
/// the pages of a new one.
pub fn make_views_into(image: &Image, options: &ViewOptions, key: ViewKey<'_>, out: &mut Vec<f32>) -> Result<()> {
    let normalise = Normalise::of(&options.preprocess);
    render(image, options, key, out, |mut bytes, draw, out| match &draw.mix {
        Some(mix) => {
            if draw.flip {
                flip(&mut bytes, options.size);
            }
            mix.apply(&bytes, options.size, &normalise, out);
        }
        None => normalise.planes(out, &bytes, options.size, draw.flip),
    })
}

/// Every view into its place of `out`: `finish` gets its bytes, neither flipped nor mixed, and what was drawn.
fn render<T: Copy + Default + Send>(
    image: &Image,
    options: &ViewOptions,
    key: ViewKey<'_>,
    out: &mut Vec<T>,
    finish: impl Fn(Vec<u8>, &Draw, &mut [T]) + Sync,
) -> Result<()> {
    let (len, size) = (check(options)?, options.size);
    let columns = Columns::new(&image.rgb, 3, image.width, image.height);
    out.resize(options.count * len, T::default());
    out.par_chunks_exact_mut(len).enumerate().try_for_each(|(index, out)| {
        let draw = draw_view(image.width, image.height, options, key, index);
        let bytes = match draw.crop {
            Some(crop) => columns.resize(crop, Output::whole(size, size), options.interpolation)?,
            None => preprocess::fitted(&columns, [size, size], &options.preprocess)?,
        };
        finish(bytes, &draw, out);
        Ok(())
    })
}

/// Pixels of views `[count, 3, size, size]`, as a tower takes them.
#[derive(Clone, Debug)]
pub enum Pixels {
    /// Normalised.
    Floats(Vec<f32>),
    /// As they are in the image, for a tower that normalises them itself.
    Bytes(Vec<u8>),
}

impl Pixels {
    /// Normalised pixels, if these are.
    pub fn floats(&self) -> Option<&[f32]> {
        match self {
            Self::Floats(values) => Some(values),
            Self::Bytes(_) => None,
        }
    }

    /// Bytes, if these are.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Floats(_) => None,
        }
    }
}

/// All views as bytes, not normalised; for policies that do not mix.
pub fn make_view_bytes(image: &Image, options: &ViewOptions, key: ViewKey<'_>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    render(image, options, key, &mut out, |mut bytes, draw, out| {
        if draw.flip {
            flip(&mut bytes, options.size);
        }
        out.copy_from_slice(&bytes);
    })?;
    Ok(out)
}

/// Views for people: `[count]` images of `size x size` RGB bytes, not normalised. AugMix shows its mixed bytes.
pub(crate) fn thumbnails(image: &Image, options: &ViewOptions, key: ViewKey<'_>) -> Result<Vec<Image>> {
    let bytes = Preprocess { mean: [0.0; 3], std: [1.0; 3], ..options.preprocess };
    let plain = ViewOptions { preprocess: bytes, ..options.clone() };
    let len = check(&plain)?;
    let values = make_views(image, &plain, key)?;
    let pixels = len / 3;
    let byte = |v: f32| (v * 255.0).round().clamp(0.0, 255.0) as u8;
    let interleave = |view: &[f32]| (0..pixels).flat_map(|i| [0, 1, 2].map(|c| byte(view[c * pixels + i]))).collect();
    let image = |view: &[f32]| Image { width: options.size, height: options.size, rgb: interleave(view) };
    Ok(values.chunks_exact(len).map(image).collect())
}

fn check(options: &ViewOptions) -> Result<usize> {
    let range = options.range;
    let rising = |(low, high): (f64, f64)| low > 0.0 && low <= high && high.is_finite();
    if options.size == 0 || options.count == 0 {
        return Err(Error::config(
            "views",
            format!("expected at least 1, found {} of size {}", options.count, options.size),
        ));
    }
    if !rising(range.scale) || range.scale.1 > 1.0 || !rising(range.ratio) {
        let expected = "expected 0 < low <= high for scale (high <= 1) and ratio";
        return Err(Error::config("views.range", format!("{expected}, found {range:?}")));
    }
    Ok(3 * options.size * options.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        let mut stream = Stream::new(9, &["image"]);
        Image { width: 61, height: 47, rgb: (0..61 * 47 * 3).map(|_| stream.bits() as u8).collect() }
    }

    const KEY: ViewKey<'_> = ViewKey { seed: 3, dataset: "d", sample: "s" };

    #[test]
    fn view_zero_is_the_plain_image_and_the_others_differ() {
        for policy in [ViewPolicy::CropFlip, ViewPolicy::AugMix] {
            let options = ViewOptions { policy, count: 5, size: 24, ..Default::default() };
            let views = make_views(&image(), &options, KEY).unwrap();
            let views: Vec<&[f32]> = views.chunks_exact(3 * 24 * 24).collect();
            assert_eq!(views[0], crate::image::preprocess(&image(), 24).unwrap());
            assert!((1..5).all(|v| views[v] != views[v - 1]));
        }
    }

    #[test]
    fn a_view_does_not_depend_on_threads_or_on_how_many_there_are() {
        let options = ViewOptions { policy: ViewPolicy::AugMix, count: 9, size: 16, ..Default::default() };
        let run = |threads: usize, count: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| make_views(&image(), &ViewOptions { count, ..options.clone() }, KEY).unwrap())
        };
        let all = run(1, 9);
        assert_eq!(all, run(3, 9));
        assert_eq!(all[..4 * 768], run(2, 4));
    }

    #[test]
    fn keys_change_the_draws() {
        let options = ViewOptions::default();
        let draw = |key| draw_view(61, 47, &options, key, 1);
        assert_eq!(draw(KEY), draw(KEY));
        assert_ne!(draw(KEY), draw(ViewKey { seed: 4, ..KEY }));
        assert_ne!(draw(KEY), draw(ViewKey { sample: "t", ..KEY }));
        assert_ne!(draw(KEY), draw(ViewKey { dataset: "e", ..KEY }));
    }

    #[test]
    fn thumbnails_show_the_bytes_that_were_normalised() {
        let options = ViewOptions { count: 2, size: 20, ..Default::default() };
        let shown = thumbnails(&image(), &options, KEY).unwrap();
        let image = image();
        let columns = Columns::new(&image.rgb, 3, image.width, image.height);
        let bytes = preprocess::fitted(&columns, [20, 20], &Preprocess::CLIP).unwrap();
        let planes: Vec<u8> = (0..3).flat_map(|c| shown[0].rgb.iter().skip(c).step_by(3).copied()).collect();
        assert_eq!(planes, bytes);
    }

    #[test]
    fn bytes_are_what_is_normalised() {
        let options = ViewOptions { count: 6, size: 20, ..Default::default() };
        let bytes = make_view_bytes(&image(), &options, KEY).unwrap();
        let mut normalised = vec![0.0; bytes.len()];
        let normalise = Normalise::new(options.preprocess.mean, options.preprocess.std);
        for (out, view) in normalised.chunks_exact_mut(1200).zip(bytes.chunks_exact(1200)) {
            normalise.planes(out, view, 20, false);
        }
        assert_eq!(normalised, make_views(&image(), &options, KEY).unwrap());
    }

    #[test]
    fn a_view_is_at_home_in_training() {
        let mut model = ClipConfig::named("ViT-B-16").unwrap();
        (model.image_size, model.preprocess) = (20, Preprocess::PE);
        let options = ViewOptions::training(&model);
        assert!(draw_view(61, 47, &options, KEY, 0).crop.is_some());
        assert_eq!((options.size, options.interpolation), (20, Interpolation::Bilinear));
    }

    #[test]
    fn wrong_options_are_named() {
        let bad = ViewOptions { range: CropRange { scale: (0.5, 0.1), ..Default::default() }, ..Default::default() };
        assert!(make_views(&image(), &bad, KEY).unwrap_err().to_string().contains("views.range"));
        assert!(make_views(&image(), &ViewOptions { count: 0, ..Default::default() }, KEY).is_err());
    }
}
