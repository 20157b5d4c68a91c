//! The 32 things that the world shows. A class is a function from random draws to a figure; one file per family.

mod animals;
mod household;
mod plants;
mod things;
mod vehicles;

use crate::Colour;
use crate::figure::Figure;
use crate::rng::Draws;

/// One class.
pub(crate) struct Class {
    pub(crate) name: &'static str,
    pub(crate) figure: fn(&mut Draws) -> Figure,
    /// The colours it has by nature (in `rendition` it may have any).
    pub(crate) colours: &'static [Colour],
}

const fn class(name: &'static str, figure: fn(&mut Draws) -> Figure, colours: &'static [Colour]) -> Class {
    Class { name, figure, colours }
}

/// Anything that is painted in whatever colour people like.
const ANY: &[Colour] = &Colour::ALL;

/// Every class, in the order of the labels.
pub(crate) const CLASSES: [Class; 32] = {
    use Colour::*;
    [
        class("car", vehicles::car, ANY),
        class("bus", vehicles::bus, ANY),
        class("truck", vehicles::truck, ANY),
        class("bicycle", vehicles::bicycle, ANY),
        class("boat", vehicles::boat, ANY),
        class("airplane", vehicles::airplane, ANY),
        class("house", household::house, &[White, Brown, Red, Grey, Yellow]),
        class("tree", plants::tree, &[Green, Orange, Yellow]),
        class("flower", plants::flower, &[Red, Orange, Yellow, Blue, Purple, Pink, White]),
        class("mushroom", plants::mushroom, &[Red, Brown, Orange]),
        class("cactus", plants::cactus, &[Green]),
        class("fish", animals::fish, ANY),
        class("bird", animals::bird, &[Red, Blue, Yellow, Brown, Black, Grey]),
        class("cat", animals::cat, &[Grey, Orange, Black, White, Brown]),
        class("dog", animals::dog, &[Brown, White, Black, Grey, Orange]),
        class("butterfly", animals::butterfly, ANY),
        class("snail", animals::snail, &[Brown, Grey, Orange, Yellow]),
        class("apple", plants::apple, &[Red, Green, Yellow]),
        class("pear", plants::pear, &[Green, Yellow, Brown]),
        class("banana", plants::banana, &[Yellow, Green]),
        class("cup", household::cup, ANY),
        class("bottle", household::bottle, ANY),
        class("vase", household::vase, ANY),
        class("chair", household::chair, &[Brown, Red, Blue, White, Grey]),
        class("table", household::table, &[Brown, Orange, White]),
        class("lamp", household::lamp, ANY),
        class("clock", things::clock, ANY),
        class("umbrella", things::umbrella, ANY),
        class("key", things::key, &[Grey, Yellow, Brown]),
        class("hammer", things::hammer, &[Grey, Black]),
        class("guitar", things::guitar, &[Brown, Orange, Red, Black]),
        class("shoe", things::shoe, ANY),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Role;
    use crate::rng::Purpose;
    use crate::{Domain, World};

    #[test]
    fn every_figure_has_both_colours_and_stays_in_its_square() {
        for class in &CLASSES {
            for index in 0..40 {
                let mut draws = Draws::new(World::Train, Domain::Photo, index, Purpose::Shape, 0);
                let figure = (class.figure)(&mut draws);
                for role in [Role::Main, Role::Second] {
                    assert!(figure.parts.iter().any(|part| part.role == role), "{} lacks {role:?}", class.name);
                }
                for part in &figure.parts {
                    let bounds = part.path.compute_tight_bounds().unwrap();
                    let sides = [bounds.left(), bounds.right(), bounds.top(), bounds.bottom()];
                    let far = sides.into_iter().map(f32::abs).fold(0.0, f32::max);
                    assert!(far < 1.12, "{} reaches {far}", class.name);
                }
            }
        }
    }
}
