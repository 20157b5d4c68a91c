//! Towers that run elsewhere against our f32 kernels: the same weights must give nearly the same features.

use super::{Clip, Features};
use crate::rng::Stream;
use crate::text::Tokenizer;
use crate::{Error, Result};
use flatclip_tensor::Matrix;

/// Images and texts of a check.
const COUNT: usize = 8;

/// The lowest cosine between features of two models over 8 images and 8 texts, the same in every check.
pub fn lowest_cosine(clip: &Clip, reference: &Clip, tokenizer: &Tokenizer) -> Result<f64> {
    let pixels = images(clip.image_size());
    let mut lowest = lowest(clip.encode_images(&pixels, COUNT)?, reference.encode_images(&pixels, COUNT)?)?;
    if let (Ok(ours), Ok(theirs)) = (clip.text(), reference.text()) {
        let texts: Vec<String> = TEXTS.iter().map(|text| (*text).to_owned()).collect();
        let encode = |tower: &dyn super::TextTower| tower.encode_texts(tokenizer, &texts, true);
        lowest = lowest.min(self::lowest(encode(ours)?, encode(theirs)?)?);
    }
    Ok(lowest)
}

const TEXTS: [&str; COUNT] = [
    "a photo of a cat.",
    "a drawing of a house beside a river",
    "two dogs",
    "the number 42 on a red door",
    "an aerial view of fields in autumn",
    "a close-up of a texture, black and white",
    "text",
    "a blurry photo of a person on a bicycle, seen from behind",
];

fn lowest(a: Matrix, b: Matrix) -> Result<f64> {
    let (a, b) = (Features::unit(a).0, Features::unit(b).0);
    if (a.rows(), a.cols()) != (b.rows(), b.cols()) {
        let reason = format!("expected features of width {}, found {}", b.cols(), a.cols());
        return Err(Error::config("device check", reason));
    }
    let cosine = |(a, b): (&[f32], &[f32])| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum() };
    Ok(a.iter_rows().zip(b.iter_rows()).map(cosine).fold(1.0, |low, x| if x < low || x.is_nan() { x } else { low }))
}

/// Smooth waves and noise in turns, in the range of normalised pixels.
fn images(size: usize) -> Vec<f32> {
    let mut stream = Stream::new(8, &["device check"]);
    let mut out = Vec::with_capacity(COUNT * 3 * size * size);
    for image in 0..COUNT {
        for _ in 0..3 {
            let (fx, fy, phase) = (stream.unit() * 12.0, stream.unit() * 12.0, stream.unit() * 6.0);
            for at in 0..size * size {
                let (x, y) = ((at % size) as f64 / size as f64, (at / size) as f64 / size as f64);
                let noise = if image % 2 == 0 { 0.0 } else { stream.normal() };
                out.push((1.5 * (fx * x + fy * y + phase).sin() + 0.5 * noise) as f32);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LoadOptions;
    use crate::weights::{Places, random_of, resolve};

    #[test]
    fn equal_models_agree_and_others_do_not() {
        let checkpoint = resolve("pocket", &Places::default()).unwrap();
        let tokenizer = Tokenizer::of(&checkpoint).unwrap();
        let ours = Clip::load(&checkpoint, LoadOptions::default()).unwrap();
        assert!(lowest_cosine(&ours, &ours, &tokenizer).unwrap() > 0.999_999);
        let other = Clip::load(&random_of(checkpoint.config(), 3), LoadOptions::default()).unwrap();
        assert!(lowest_cosine(&ours, &other, &tokenizer).unwrap() < 0.9);
    }
}
