//! The 32 things that the world shows. A class is a function from random draws to a figure; one file per family.

mod animals;
mod fruit;
mod furniture;
mod plants;
mod things;
mod vehicles;
mod vessels;

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
        class("house", furniture::house, &[White, Brown, Red, Grey, Yellow]),
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
        class("apple", fruit::apple, &[Red, Green, Yellow]),
        class("pear", fruit::pear, &[Green, Yellow, Brown]),
        class("banana", fruit::banana, &[Yellow, Green]),
        class("cup", vessels::cup, ANY),
        class("bottle", vessels::bottle, ANY),
        class("vase", vessels::vase, ANY),
        class("chair", furniture::chair, &[Brown, Red, Blue, White, Grey]),
        class("table", furniture::table, &[Brown, Orange, White]),
        class("lamp", furniture::lamp, ANY),
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
                    let far = bounds
                        .left()
                        .abs()
                        .max(bounds.right().abs())
                        .max(bounds.top().abs())
                        .max(bounds.bottom().abs());
                    assert!(far < 1.12, "{} reaches {far}", class.name);
                }
            }
        }
    }
}
