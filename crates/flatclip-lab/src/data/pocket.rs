//! `pocket:DOMAIN[:WORLD[:COUNT]]`: images that the pocket dataset draws, the same bytes everywhere, no file needed.

use super::dataset::{Dataset, Family, Note, Sample, Source, Split};
use flatclip::{Error, Result};
use flatclip_pocket::{CLASS_NAMES, Domain, TRAINED_ON, World, scene};

/// Images when the user does not say how many: 20 for each class on average.
const DEFAULT_COUNT: usize = 640;
/// More would be more than a minute of drawing without new information.
const MAX_COUNT: usize = 1_000_000;

/// Opens a domain of the pocket dataset; without a world the split decides (train, validation, test).
pub(crate) fn open_pocket(text: &str, split: Split) -> Result<Dataset> {
    let mut parts = text.split(':');
    let domain_name = parts.next().unwrap_or_default();
    let domain = Domain::from_name(domain_name).ok_or_else(|| {
        let names: Vec<&str> = Domain::ALL.iter().map(|domain| domain.name()).collect();
        Error::config("data", format!("pocket:{domain_name}: expected one of {}", names.join(", ")))
    })?;
    let world = match parts.next() {
        None | Some("") => world_of(split),
        Some(name) => World::from_name(name).ok_or_else(|| {
            Error::config("data", format!("pocket split `{name}`: expected train, validation or test"))
        })?,
    };
    let count = match parts.next() {
        None => DEFAULT_COUNT,
        Some(text) => text.parse().ok().filter(|count| (1..=MAX_COUNT).contains(count)).ok_or_else(|| {
            Error::config("data", format!("pocket count `{text}`: expected a number from 1 to {MAX_COUNT}"))
        })?,
    };
    // The embedded models have seen the first images of the train world; shots for tuning come after them.
    let first = if world == World::Train { TRAINED_ON } else { 0 };
    let sample = |index: u64| Sample {
        id: format!("{}/{index}", world.name()),
        label: scene(world, domain, index).class,
        source: Source::Drawn { world, domain, index },
    };
    Ok(Dataset {
        spec: String::new(),
        name: format!("pocket:{}", domain.name()),
        family: Family::Pocket,
        split,
        classes: CLASS_NAMES.iter().map(|&name| name.to_owned()).collect(),
        templates: vec![super::folder::PLAIN_TEMPLATE.to_owned()],
        samples: (first..first + count as u64).map(sample).collect(),
        notes: vec![Note::info(format!("{count} images drawn: world {}, domain {}", world.name(), domain.name()))],
    })
}

fn world_of(split: Split) -> World {
    match split {
        Split::Train => World::Train,
        Split::Val => World::Validation,
        Split::Test => World::Test,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatclip::image::DecodeOptions;

    #[test]
    fn images_are_drawn_with_the_labels_of_their_scenes() {
        let data = open_pocket("sketch::5", Split::Val).unwrap();
        assert_eq!((data.classes.len(), data.samples.len()), (32, 5));
        assert_eq!(data.samples[3].id, "validation/3");
        let image = data.samples[3].image(&DecodeOptions::default()).unwrap();
        assert_eq!(image.rgb.len(), image.width * image.height * 3);
        assert_ne!(image.rgb, data.samples[4].image(&DecodeOptions::default()).unwrap().rgb);
        assert!(data.samples[0].stamp().is_ok());
    }

    #[test]
    fn wrong_words_name_the_right_ones() {
        for (text, word) in
            [("moon", "sketch"), ("photo:mars", "validation"), ("photo:test:0", "from 1"), ("photo:test:x", "number")]
        {
            let message = open_pocket(text, Split::Test).unwrap_err().to_string();
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}
