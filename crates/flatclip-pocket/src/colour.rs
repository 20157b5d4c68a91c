//! Colour words and the backgrounds that captions name.

use crate::rng::Draws;

/// Red, green and blue, 0 to 255, not clamped until the image is finished.
pub(crate) type Rgb = [f32; 3];

/// A colour that captions can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Colour {
    Red,
    Orange,
    Yellow,
    Green,
    Blue,
    Purple,
    Pink,
    Brown,
    White,
    Black,
    Grey,
}

impl Colour {
    /// Every colour.
    pub const ALL: [Colour; 11] = {
        use Colour::*;
        [Red, Orange, Yellow, Green, Blue, Purple, Pink, Brown, White, Black, Grey]
    };

    /// The word for it.
    pub fn name(self) -> &'static str {
        self.word_and_hsv().0
    }

    fn word_and_hsv(self) -> (&'static str, [f32; 3]) {
        match self {
            Colour::Red => ("red", [0.995, 0.84, 0.83]),
            Colour::Orange => ("orange", [0.075, 0.86, 0.95]),
            Colour::Yellow => ("yellow", [0.14, 0.8, 0.97]),
            Colour::Green => ("green", [0.34, 0.68, 0.62]),
            Colour::Blue => ("blue", [0.6, 0.74, 0.8]),
            Colour::Purple => ("purple", [0.77, 0.58, 0.68]),
            Colour::Pink => ("pink", [0.93, 0.43, 0.96]),
            Colour::Brown => ("brown", [0.065, 0.62, 0.48]),
            Colour::White => ("white", [0.12, 0.05, 0.96]),
            Colour::Black => ("black", [0.62, 0.18, 0.17]),
            Colour::Grey => ("grey", [0.6, 0.06, 0.56]),
        }
    }

    /// A shade of the colour; `spread` 0 gives the pure one.
    pub(crate) fn shade(self, draws: &mut Draws, spread: f32) -> Rgb {
        shade(self.word_and_hsv().1, draws, spread)
    }
}

/// The background of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Background {
    Grass,
    Sand,
    Road,
    Room,
    Water,
    Sky,
    Wood,
    Night,
}

impl Background {
    /// Every background.
    pub const ALL: [Background; 8] = {
        use Background::*;
        [Grass, Sand, Road, Room, Water, Sky, Wood, Night]
    };

    /// How a caption says it, as in "a cat *on the grass*".
    pub fn phrase(self) -> &'static str {
        self.phrase_and_hsv().0
    }

    /// The phrase, and hue, saturation and value of the parts above and below the horizon.
    fn phrase_and_hsv(self) -> (&'static str, [f32; 3], [f32; 3]) {
        match self {
            Background::Grass => ("on the grass", [0.55, 0.33, 0.92], [0.3, 0.58, 0.55]),
            Background::Sand => ("on the sand", [0.57, 0.28, 0.95], [0.115, 0.36, 0.88]),
            Background::Road => ("on the road", [0.58, 0.1, 0.82], [0.6, 0.06, 0.42]),
            Background::Room => ("in a room", [0.1, 0.16, 0.88], [0.07, 0.4, 0.58]),
            Background::Water => ("by the water", [0.53, 0.22, 0.96], [0.57, 0.6, 0.64]),
            Background::Sky => ("under the sky", [0.58, 0.5, 0.88], [0.56, 0.2, 0.97]),
            Background::Wood => ("on wood", [0.07, 0.36, 0.64], [0.08, 0.5, 0.48]),
            Background::Night => ("at night", [0.66, 0.5, 0.24], [0.64, 0.4, 0.14]),
        }
    }

    /// Shades of the part above the horizon and of the part below.
    pub(crate) fn shades(self, draws: &mut Draws, spread: f32) -> (Rgb, Rgb) {
        let (_, above, below) = self.phrase_and_hsv();
        (shade(above, draws, spread), shade(below, draws, spread))
    }
}

fn shade([hue, saturation, value]: [f32; 3], draws: &mut Draws, spread: f32) -> Rgb {
    let hue = hue + 0.018 * spread * draws.normal();
    let saturation = (saturation + 0.09 * spread * draws.normal()).clamp(0.0, 1.0);
    let value = (value + 0.09 * spread * draws.normal()).clamp(0.04, 1.0);
    from_hsv(hue, saturation, value)
}

/// Hue in turns, saturation and value in 0..1.
pub(crate) fn from_hsv(hue: f32, saturation: f32, value: f32) -> Rgb {
    let channel = |offset: f32| {
        // Distance on the hue circle to the channel's own hue, in sixths of a turn.
        let turn = hue - offset;
        let turn = turn - turn.floor();
        let sixths = 6.0 * turn.min(1.0 - turn);
        255.0 * value * (1.0 - saturation * (sixths - 1.0).clamp(0.0, 1.0))
    };
    [channel(0.0), channel(1.0 / 3.0), channel(2.0 / 3.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primaries_come_out_of_hsv() {
        for (hsv, expected) in [
            ([0.0, 1.0, 1.0], [255.0, 0.0, 0.0]),
            ([1.0 / 3.0, 1.0, 1.0], [0.0, 255.0, 0.0]),
            ([0.5, 1.0, 1.0], [0.0, 255.0, 255.0]),
            ([0.7, 0.0, 0.5], [127.5; 3]),
        ] {
            let found = from_hsv(hsv[0], hsv[1], hsv[2]);
            let far = (0..3).map(|c| (found[c] - expected[c]).abs()).fold(0.0, f32::max);
            assert!(far < 0.01, "{found:?} is not {expected:?}");
        }
    }
}
