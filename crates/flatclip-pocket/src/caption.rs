//! Captions made from the scene graph, the way people write them: many forms, often short, now and then wrong.

use crate::classes::CLASSES;
use crate::rng::{Draws, Purpose};
use crate::{Background, Colour, Domain, Scene};

/// A caption and what it claims. Training needs the claims: a caption is true of every image that agrees with them,
/// not only of the one that it was written for.
#[derive(Clone, Debug, PartialEq)]
pub struct Caption {
    /// The words.
    pub text: String,
    /// The class it names.
    pub class: usize,
    /// The main colour, if it names one.
    pub colour: Option<Colour>,
    /// The colour of the smaller parts, if it names one.
    pub second_colour: Option<Colour>,
    /// The background, if it names one.
    pub background: Option<Background>,
    /// The domain, if it names the style ("photo" counts as [`Domain::Photo`], also for `hard`).
    pub style: Option<Domain>,
}

/// The forms. `{k}` kind of image, `{a c}` class with its article, `{c}` class, `{b}` background, `{o}` another class with its
/// article, `{a m c}` class with its main colour, `{s}` second colour. Some depend on the order of their words: swap
/// the colours, or the class and the one denied, and the caption means something else.
const FORMS: &[&str] = &[
    "a {k} of {a c}",
    "a {k} of {a c}",
    "a {k} of {a c}",
    "a {k} of {a m c}",
    "a {k} of {a m c}",
    "a {k} of {a c} {b}",
    "a good {k} of {a c}",
    "a bad {k} of {a c}",
    "the {c} in this {k}",
    "{b}, {a c}",
    "{a m c} {b}",
    "{a c}",
    "{c}",
    "there is {a c} {b}",
    "this is {a c}, not {o}",
    "this is not {o} but {a c}",
    "not {o}, {a c}",
    "{a c} instead of {o}",
    "{a m c} with {s} parts",
    "{s} parts on {a m c}",
    "itap of {a c}",
    "look at the {c} {b}",
    "a {k} of my {c}",
    "one {c}",
];

/// How often a caption gets one of its facts wrong, as captions found on the web do.
const FAULTY: f32 = 0.06;

/// How often the writer does not care for "an".
const CARELESS: f32 = 0.4;

/// Caption number `turn` of a scene.
pub fn caption(scene: &Scene, turn: u64) -> Caption {
    let draws = &mut Draws::new(scene.world, scene.domain, scene.index, Purpose::Caption, turn);
    let form = draws.pick(FORMS);
    let mut told = scene.clone();
    if draws.chance(FAULTY) {
        match draws.below(3) {
            0 => told.class = draws.below(CLASSES.len()),
            1 => told.colour = draws.pick(&Colour::ALL),
            _ => told.background = draws.pick(&Background::ALL),
        }
    }
    let other = (told.class + 1 + draws.below(CLASSES.len() - 1)) % CLASSES.len();
    let careless = draws.chance(CARELESS);
    let article = |words: String| {
        let an = !careless && words.starts_with(['a', 'e', 'i', 'o', 'u']);
        format!("{} {words}", if an { "an" } else { "a" })
    };
    let name = CLASSES[told.class].name;
    let mut text = form
        .replace("{k}", kind(told.domain, draws))
        .replace("{a c}", &article(name.to_string()))
        .replace("{a m c}", &article(format!("{} {name}", told.colour.name())))
        .replace("{o}", &article(CLASSES[other].name.to_string()))
        .replace("{c}", name)
        .replace("{s}", told.second_colour.name())
        .replace("{b}", told.background.phrase());
    if draws.chance(0.5) {
        text.push('.');
    }
    let says = |mark: &str| form.contains(mark);
    Caption {
        text,
        class: told.class,
        colour: says("{a m c}").then_some(told.colour),
        second_colour: says("{s}").then_some(told.second_colour),
        background: says("{b}").then_some(told.background),
        style: says("{k}").then_some(if told.domain == Domain::Hard { Domain::Photo } else { told.domain }),
    }
}

fn kind(domain: Domain, draws: &mut Draws) -> &'static str {
    match domain {
        Domain::Photo | Domain::Hard => draws.pick(&["photo", "photo", "image", "close-up photo"]),
        Domain::Sketch => draws.pick(&["sketch", "drawing", "pencil sketch"]),
        Domain::Cartoon => draws.pick(&["cartoon", "comic"]),
        Domain::Painting => draws.pick(&["painting", "rough painting"]),
        Domain::Noise => draws.pick(&["blurry photo", "noisy photo", "dark photo"]),
        Domain::Rendition => draws.pick(&["rendition", "strange rendition"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{World, scene};

    #[test]
    fn claims_are_in_the_words() {
        for turn in 0..300 {
            let scene = scene(World::Train, Domain::Photo, turn);
            let caption = caption(&scene, turn);
            assert!(!caption.text.contains(['{', '}']), "{}", caption.text);
            assert!(caption.text.contains(CLASSES[caption.class].name), "{}", caption.text);
            for word in caption.colour.iter().chain(&caption.second_colour) {
                assert!(caption.text.contains(word.name()), "{}", caption.text);
            }
            if let Some(background) = caption.background {
                assert!(caption.text.contains(background.phrase()), "{}", caption.text);
            }
        }
    }

    #[test]
    fn most_captions_are_true_and_some_are_not() {
        let scenes = (0..2000).map(|index| scene(World::Train, Domain::Photo, index));
        let wrong = scenes.filter(|scene| caption(scene, 0).class != scene.class).count();
        assert!((10..100).contains(&wrong), "{wrong}");
    }
}
