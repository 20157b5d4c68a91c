//! The scene graph: everything that an image and its captions are made from.

use crate::classes::CLASSES;
use crate::rng::{Draws, Purpose};
use crate::{Background, Colour};

/// Three worlds that share no image: to learn from, to choose with, and to read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// What the pocket models were trained on.
    Train,
    /// For every choice: training length, radius, learning rate.
    Validation,
    /// For the final numbers only.
    Test,
}

impl World {
    /// Every world.
    pub const ALL: [World; 3] = [World::Train, World::Validation, World::Test];

    /// Its name in commands and paths.
    pub fn name(self) -> &'static str {
        match self {
            World::Train => "train",
            World::Validation => "validation",
            World::Test => "test",
        }
    }

    /// The world of that name.
    pub fn from_name(name: &str) -> Option<World> {
        World::ALL.into_iter().find(|world| world.name() == name)
    }
}

/// A way of drawing scenes. `Photo` is the source; the others are shifts away from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Shaded figure on a textured background with clutter: the source.
    Photo,
    /// Pencil on paper.
    Sketch,
    /// Flat colours with black outlines.
    Cartoon,
    /// Brush strokes.
    Painting,
    /// Blurred, of low contrast, grainy.
    Noise,
    /// Any colours, turned and stretched, often posterised.
    Rendition,
    /// Small, anywhere, among much clutter, partly hidden.
    Hard,
}

impl Domain {
    /// Every domain, the source first.
    pub const ALL: [Domain; 7] = {
        use Domain::*;
        [Photo, Sketch, Cartoon, Painting, Noise, Rendition, Hard]
    };

    /// The six shifts.
    pub const SHIFTS: [Domain; 6] =
        [Domain::Sketch, Domain::Cartoon, Domain::Painting, Domain::Noise, Domain::Rendition, Domain::Hard];

    /// Its name in commands and paths.
    pub fn name(self) -> &'static str {
        match self {
            Domain::Photo => "photo",
            Domain::Sketch => "sketch",
            Domain::Cartoon => "cartoon",
            Domain::Painting => "painting",
            Domain::Noise => "noise",
            Domain::Rendition => "rendition",
            Domain::Hard => "hard",
        }
    }

    /// The domain of that name.
    pub fn from_name(name: &str) -> Option<Domain> {
        Domain::ALL.into_iter().find(|domain| domain.name() == name)
    }
}

/// One image before it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// The world it belongs to.
    pub world: World,
    /// The style it is drawn in.
    pub domain: Domain,
    /// Which image of this world and domain it is.
    pub index: u64,
    /// The label, an index into [`crate::CLASS_NAMES`].
    pub class: usize,
    /// The colour of the main parts.
    pub colour: Colour,
    /// The colour of the smaller parts.
    pub second_colour: Colour,
    /// Position of the figure.
    pub background: Background,
    /// Half the figure's extent, as a fraction of the image's side.
    pub size: f32,
    /// The figure's centre, as fractions of the image's side.
    pub centre: (f32, f32),
    /// Degrees, clockwise.
    pub rotation: f32,
    /// Horizontal shear.
    pub shear: f32,
    /// Width over height, as the factor applied to the one and divided from the other.
    pub aspect: f32,
    /// Mirrored left to right.
    pub flip: bool,
}

/// The scene of image `index` of a world and domain. Classes come in shuffled blocks of 32, one of each, so that any
/// whole number of blocks is balanced.
pub fn scene(world: World, domain: Domain, index: u64) -> Scene {
    let class = class_of(world, domain, index);
    let draws = &mut Draws::new(world, domain, index, Purpose::Scene, 0);
    let colours = if domain == Domain::Rendition { &Colour::ALL[..] } else { CLASSES[class].colours };
    let colour = draws.pick(colours);
    let others: Vec<Colour> = Colour::ALL.into_iter().filter(|&other| other != colour).collect();
    let second_colour = draws.pick(&others);
    let background = draws.pick(&Background::ALL);
    let size = match domain {
        Domain::Hard => draws.uniform(0.17, 0.27),
        _ => draws.uniform(0.27, 0.44),
    };
    let (rotation, shear, aspect) = match domain {
        Domain::Rendition => (draws.uniform(-45.0, 45.0), 0.22 * draws.normal(), draws.uniform(0.72, 1.38)),
        _ => (9.0 * draws.normal(), 0.08 * draws.normal(), draws.uniform(0.86, 1.16)),
    };
    let room = 0.5 - 0.85 * size;
    let room = if domain == Domain::Hard { room } else { room.min(0.14) };
    Scene {
        world,
        domain,
        index,
        class,
        colour,
        second_colour,
        background,
        size,
        centre: (0.5 + room * draws.uniform(-1.0, 1.0), 0.5 + room * draws.uniform(-1.0, 1.0)),
        rotation,
        shear,
        aspect,
        flip: draws.chance(0.5),
    }
}

fn class_of(world: World, domain: Domain, index: u64) -> usize {
    let block = CLASSES.len() as u64;
    let mut order: [usize; CLASSES.len()] = std::array::from_fn(|class| class);
    Draws::new(world, domain, index / block, Purpose::Order, 0).shuffle(&mut order);
    order[(index % block) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_shows_each_class_once_in_an_order_of_its_own() {
        let block = |start: u64| -> Vec<usize> {
            (start..start + 32).map(|index| scene(World::Test, Domain::Sketch, index).class).collect()
        };
        let mut sorted = block(64);
        assert_ne!(sorted, block(96));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..32).collect::<Vec<_>>());
    }

    #[test]
    fn worlds_do_not_share_scenes() {
        let [train, validation, test] = World::ALL.map(|world| scene(world, Domain::Photo, 5));
        assert!(train.centre != validation.centre && train.centre != test.centre && validation.centre != test.centre);
    }

    #[test]
    fn names_lead_back() {
        assert!(Domain::ALL.iter().all(|&domain| Domain::from_name(domain.name()) == Some(domain)));
        assert!(World::ALL.iter().all(|&world| World::from_name(world.name()) == Some(world)));
        assert_eq!(Domain::from_name("imagenet"), None);
    }
}
