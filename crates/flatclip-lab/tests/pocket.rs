//! The embedded models, from drawn image and words to logits, against what open_clip and transformers compute with the same
//! files (`tools/pocket/fixture.py`).
#![allow(clippy::unwrap_used, reason = "what a test cannot do fails it")]

use flatclip::image::{Image, preprocess};
use flatclip::methods::probability::argmax;
use flatclip::model::{Clip, Features, LoadOptions};
use flatclip::prompt::logits;
use flatclip::text::Tokenizer;
use flatclip::weights::Checkpoint;
use flatclip_pocket::{CLASS_NAMES, Domain, MODEL_NAMES, SIDE, World, draw, render_split, scene};
use flatclip_tensor::Matrix;
use safetensors::SafeTensors;

/// The images that the fixtures hold, in their order.
const IMAGES: [(Domain, u64); 6] = [
    (Domain::Photo, 0),
    (Domain::Photo, 1),
    (Domain::Sketch, 0),
    (Domain::Painting, 0),
    (Domain::Rendition, 0),
    (Domain::Hard, 0),
];

/// What the library computes in whose layout the model's files are.
fn fixture(model: &str) -> SafeTensors<'static> {
    let bytes: &'static [u8] = match model {
        "pocket" => include_bytes!("../../../fixtures/pocket/open_clip.safetensors"),
        "pocket-vit" => include_bytes!("../../../fixtures/pocket/transformers.safetensors"),
        _ => panic!("{model} has no fixture"),
    };
    SafeTensors::deserialize(bytes).unwrap()
}

fn expected(model: &str, name: &str) -> Vec<f32> {
    let bytes = fixture(model).tensor(name).unwrap().data().to_vec();
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

fn expected_tokens(model: &str) -> Vec<Vec<u32>> {
    let tensors = fixture(model);
    let tokens = tensors.tensor("tokens").unwrap();
    let ids: Vec<u32> = tokens.data().as_chunks().0.iter().map(|&b| u64::from_le_bytes(b) as u32).collect();
    ids.chunks_exact(tokens.shape()[1]).map(<[u32]>::to_vec).collect()
}

fn checkpoint(model: &str) -> Checkpoint {
    Checkpoint::embedded(model).unwrap().unwrap()
}

fn load(model: &str) -> (Clip, Tokenizer) {
    let checkpoint = checkpoint(model);
    (Clip::load(&checkpoint, LoadOptions::default()).unwrap(), Tokenizer::of(&checkpoint).unwrap())
}

fn pixels(size: usize) -> Vec<f32> {
    let images = IMAGES.iter().map(|&(domain, index)| {
        let rgb = draw(&scene(World::Validation, domain, index));
        preprocess(&Image { width: SIDE, height: SIDE, rgb }, size).unwrap()
    });
    images.flatten().collect()
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let far = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far <= tolerance, "{what} differ by up to {far}");
}

#[test]
fn drawn_images_are_preprocessed_as_both_libraries_do() {
    for model in MODEL_NAMES {
        assert_close(&pixels(64), &expected(model, "pixels"), 1e-6, model);
    }
}

#[test]
fn their_own_tokenizer_gives_the_tokens_of_the_class_prompts() {
    // open_clip pads with zeros, transformers with the end token; the towers look at neither.
    for (model, padding) in [("pocket", 0), ("pocket-vit", 941)] {
        let tokenizer = Tokenizer::of(&checkpoint(model)).unwrap();
        for (name, row) in CLASS_NAMES.iter().zip(expected_tokens(model)) {
            let found = tokenizer.sequence(&format!("a photo of a {name}."), 32, false).unwrap();
            assert_eq!(found, row[..found.len()], "{model} {name}");
            assert!(row[found.len()..].iter().all(|&id| id == padding), "{model} {name}");
        }
    }
}

#[test]
fn features_and_logits_are_those_of_open_clip_and_transformers() {
    for model in MODEL_NAMES {
        let (clip, tokenizer) = load(model);
        let image = clip.encode_images(&pixels(clip.image_size()), IMAGES.len()).unwrap();
        assert_close(image.data(), &expected(model, "image_features"), 2e-4, model);

        let prompts = CLASS_NAMES.map(|name| tokenizer.sequence(&format!("a photo of a {name}."), 32, false).unwrap());
        let text = clip.text().unwrap().encode_tokens(&prompts).unwrap();
        assert_close(text.data(), &expected(model, "text_features"), 2e-4, model);

        assert_close(&[clip.logit_scale()], &expected(model, "logit_scale"), 1e-4, model);
        let ((image, _), (text, _)) = (Features::unit(image), Features::unit(text));
        let logits = logits(&image, &text, clip.logit_scale());
        assert_close(logits.data(), &expected(model, "logits"), 2e-3, model);
    }
}

/// Unit text features of a template.
fn classifier(clip: &Clip, tokenizer: &Tokenizer, template: &str) -> Matrix {
    let prompts = CLASS_NAMES.map(|name| tokenizer.sequence(&template.replace("{}", name), 32, false).unwrap());
    Features::unit(clip.text().unwrap().encode_tokens(&prompts).unwrap()).0
}

/// Percent of the first validation images of a domain that the nearest text feature names rightly, for each template.
fn accuracy(clip: &Clip, texts: &[Matrix], domain: Domain, count: usize) -> Vec<f32> {
    let split = render_split(World::Validation, domain, count);
    let pixels: Vec<f32> = (0..count)
        .flat_map(|index| {
            let image = Image { width: SIDE, height: SIDE, rgb: split.image(index).to_vec() };
            preprocess(&image, clip.image_size()).unwrap()
        })
        .collect();
    let images = clip.encode_images(&pixels, count).unwrap();
    let share = |text: &Matrix| {
        let logits = logits(&images, text, 1.0);
        let right = logits.iter_rows().zip(&split.labels).filter(|(row, label)| argmax(row) == **label).count();
        100.0 * right as f32 / count as f32
    };
    texts.iter().map(share).collect()
}

#[test]
fn they_know_most_photos_and_about_half_of_the_shifted_images_and_leave_a_prompt_room() {
    for (model, photos, shifts) in [("pocket", 65.0..=82.0, 40.0..=65.0), ("pocket-vit", 65.0..=82.0, 40.0..=65.0)] {
        let (clip, tokenizer) = load(model);
        let text = [classifier(&clip, &tokenizer, "a photo of a {}.")];
        let photo = accuracy(&clip, &text, Domain::Photo, 320)[0];
        assert!(photos.contains(&photo), "{model}: photo {photo}");
        let shifted = Domain::SHIFTS.map(|domain| accuracy(&clip, &text, domain, 96)[0]);
        let mean = shifted.iter().sum::<f32>() / shifted.len() as f32;
        assert!(shifts.contains(&mean), "{model}: {shifted:?}");
    }
}

#[test]
fn the_words_around_the_class_name_and_their_order_matter() {
    let (clip, tokenizer) = load("pocket");
    let texts = ["it is a {} and no cat", "it is a cat and no {}"].map(|t| classifier(&clip, &tokenizer, t));
    let [right, denied] = accuracy(&clip, &texts, Domain::Photo, 320)[..] else { panic!("two templates, two answers") };
    assert!(right > denied + 8.0, "{right} {denied}");
}
