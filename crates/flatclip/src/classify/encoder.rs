//! The encoder of a loaded CLIP model.

use super::ViewFeatures;
use crate::image::views::{Pixels, ViewKey, ViewOptions, make_view_bytes, make_views};
use crate::image::{self, DecodeOptions, Image};
use crate::model::{Clip, Features, VisionInput};
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Raised when decoding or view making gives other pixels: kept features of older versions are then not used.
pub const PIXEL_VERSION: &str = "2";

/// Images, views and features of one model.
pub struct ClipEncoder {
    /// The model.
    pub clip: Arc<Clip>,
    /// How views are made.
    pub views: ViewOptions,
    /// How images are read.
    pub decode: DecodeOptions,
    /// Seed of the views.
    pub seed: u64,
    /// A MaPLe prompt's visual prompts; empty for the plain tower.
    pub visual_prompts: Vec<Matrix>,
    /// Views cross as bytes: the tower normalises them, and nothing else looks at them.
    pub bytes: bool,
    /// A folder with generated images: `FOLDER/<sample id without ending>/*.png`, for DiffTPT.
    pub generated: Option<PathBuf>,
}

impl ClipEncoder {
    /// The views of an image as the tower takes them.
    pub fn pixels_of(&self, image: &Image, key: ViewKey<'_>) -> Result<Pixels> {
        if self.bytes {
            return make_view_bytes(image, &self.views, key).map(Pixels::Bytes);
        }
        self.views_of(image, key).map(Pixels::Floats)
    }

    /// Features of `count` views of some images, whose pixels are all of one kind.
    pub fn encode_pixels(&self, images: &[&Pixels], count: usize) -> Result<ViewFeatures> {
        let bytes: Option<Vec<&[u8]>> = images.iter().map(|pixels| pixels.bytes()).collect();
        if let Some(bytes) = bytes {
            let (unit, norms) = Features::unit(self.clip.vision().encode_bytes(&bytes, count)?);
            return Ok(ViewFeatures { unit, norms });
        }
        match images {
            [Pixels::Floats(only)] => self.encode(only, count),
            many => self.encode(&many.iter().filter_map(|pixels| pixels.floats()).collect::<Vec<_>>().concat(), count),
        }
    }

    /// The views of an image: normalised pixels `[views, 3, H, W]`.
    pub fn views_of(&self, image: &Image, key: ViewKey<'_>) -> Result<Vec<f32>> {
        make_views(image, &self.views, key)
    }

    /// Unit-norm features of the generated images of a name.
    pub fn generated_named(&self, name: &str) -> Result<Option<Matrix>> {
        let files = self.generated_files(name)?;
        if files.is_empty() {
            return Ok(None);
        }
        let mut pixels = Vec::new();
        for path in &files {
            let bytes = std::fs::read(path).map_err(Error::io(path))?;
            let image = image::decode_from(path, &bytes, &self.decode)?;
            // As the original image is shown to the tower: one plain view.
            let views = ViewOptions { count: 1, first_is_plain: true, ..self.views.clone() };
            pixels.extend(make_views(&image, &views, ViewKey { seed: 0, dataset: "", sample: "" })?);
        }
        Ok(Some(Features::unit(self.clip.encode_images(&pixels, files.len())?).0))
    }

    fn generated_files(&self, name: &str) -> Result<Vec<PathBuf>> {
        let Some(root) = &self.generated else { return Ok(Vec::new()) };
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let folder = root.join(stem);
        let entries = std::fs::read_dir(&folder).map_err(Error::io(&folder))?;
        let mut files: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        files.sort();
        Ok(files)
    }

    /// Features of `count` views.
    pub fn encode(&self, pixels: &[f32], count: usize) -> Result<ViewFeatures> {
        if self.visual_prompts.is_empty() {
            let (unit, norms) = Features::unit(self.clip.encode_images(pixels, count)?);
            return Ok(ViewFeatures { unit, norms });
        }
        let input = VisionInput { prompts: &self.visual_prompts, norms: None, recorded: 0 };
        let pass = self.clip.vision().pass(pixels, count, input)?;
        Ok(ViewFeatures { unit: pass.features().clone(), norms: pass.norms().to_vec() })
    }

    /// Features of a range of the views in `pixels`.
    pub fn encode_range(&self, pixels: &[f32], range: Range<usize>) -> Result<ViewFeatures> {
        let view = pixels.len() / self.views.count;
        self.encode(&pixels[range.start * view..range.end * view], range.len())
    }
}
