use super::*;

crate::choices! {
    /// A colour.
    enum Colour {
        /// Like blood.
        Red = "red",
        /// Like
        /// the sky.
        LightBlue = "light-blue",
    }
}

crate::option_group! {
    ($) steps_group {
        /// Steps.
        steps: usize = 1, range up_to(10), from "paper";
        /// Rate.
        lr: f64 = 0.5, range at_least(0.0), from "authors' code";
    }
}

crate::options! {
    /// For the tests.
    struct Sample for "sample", check Sample::ordered {
        /// Low end
        /// of two.
        low: f64 = 0.0, alias "bottom", range between(0, 1), from "choice";
        include steps_group { steps = 4, from "a later paper"; };
        /// High end.
        high: f64 = 1.0, range above(0.0), from "choice";
        /// Colour.
        colour: Colour = Colour::Red, from "choice";
        /// Bold.
        bold: bool = false, from "choice";
        /// Words.
        words: String = "a photo".into(), from "choice";
        /// Two fractions.
        pair: [f64; 2] = [0.25, 1.0], range fraction, from "choice";
        /// Names.
        names: Vec<String> = Vec::new(), from "choice";
    }
}

impl Sample {
    fn ordered(&self) -> Result<()> {
        if self.low < self.high {
            return Ok(());
        }
        Err(mismatch(Self::NAME, "low", "less than high", self.low))
    }
}

fn read(text: &str) -> Result<Sample> {
    Sample::read(&text.parse().unwrap())
}

#[test]
fn a_table_is_read_with_aliases_wider_numbers_and_defaults() {
    let sample = read("bottom = 0.5\nhigh = 2\ncolour = 'light-blue'\npair = [1, 0.5]\nnames = ['x']").unwrap();
    let expected = Sample {
        low: 0.5,
        high: 2.0,
        colour: Colour::LightBlue,
        pair: [1.0, 0.5],
        names: vec!["x".into()],
        ..Sample::default()
    };
    assert_eq!(sample, expected);
    assert_eq!(Sample::read(&sample.table()).unwrap(), sample);
    assert_eq!(read("").unwrap(), Sample::default());
}

#[test]
fn wrong_keys_types_and_values_name_the_key_and_what_was_expected() {
    for (text, parts) in [
        ("hihg = 1", ["sample.hihg", "did you mean `high`?"]),
        ("something = 1", ["sample.something", "known are low, steps"]),
        ("low = 'x'", ["sample.low", "a number"]),
        ("low = nan", ["sample.low", "a number"]),
        ("low = 1.5", ["sample.low", "from 0 to 1"]),
        ("bottom = -1", ["sample.bottom", "from 0 to 1"]),
        ("high = inf", ["sample.high", "a number"]),
        ("high = 0.0", ["sample.high", "above 0"]),
        ("steps = 1.0", ["sample.steps", "whole number"]),
        ("steps = -1", ["sample.steps", "whole number"]),
        ("steps = 11", ["sample.steps", "to 10"]),
        ("bold = 1", ["sample.bold", "true or false"]),
        ("colour = 'lightblue'", ["sample.colour", "did you mean \"light-blue\"?"]),
        ("colour = 2", ["sample.colour", "one of red, light-blue"]),
        ("pair = [0.5]", ["sample.pair", "a list of 2"]),
        ("pair = [0.0, 0.5]", ["sample.pair", "above 0"]),
        ("names = [1]", ["sample.names", "each a text"]),
        ("low = 0.5\nbottom = 0.5", ["sample.low", "another name"]),
        ("low = 1.0", ["sample.low", "less than high"]),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.starts_with(parts[0]) && error.contains(parts[1]), "{text}: {error}");
    }
    assert!(Sample { low: 3.0, ..Sample::default() }.check().is_err());
}

#[test]
fn the_list_says_what_was_declared() {
    let names: Vec<&str> = Sample::OPTIONS.iter().map(|option| option.name).collect();
    assert_eq!(names, ["low", "steps", "lr", "high", "colour", "bold", "words", "pair", "names"]);
    let [low, steps, lr, _, colour, ..] = Sample::OPTIONS else { panic!() };
    assert_eq!((low.sentence, low.source, low.aliases), ("Low end of two.", "choice", &["bottom"][..]));
    assert_eq!(((steps.default)().as_integer(), steps.source), (Some(4), "a later paper"));
    assert_eq!(((lr.default)().as_float(), lr.source), (Some(0.5), "authors' code"));
    let OptionKind::Choice([red, blue]) = colour.kind else { panic!("{:?}", colour.kind) };
    assert_eq!((red.name, blue.sentence), ("red", "Like the sky."));
    let json = serde_json::to_value(colour).unwrap();
    assert_eq!((&json["default"], &json["kind"]), (&"red".into(), &"choice".into()));
    assert_eq!(defaults(Sample::OPTIONS), Sample::default().table());
}
