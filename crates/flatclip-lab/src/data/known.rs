//! The 15 data sets of the benchmark: published counts, folders in CoOp's and in TPT's layout, CoOp's templates.

use super::dataset::{Dataset, Family, Note, Sample, Split};
use Layout::{CoOp, Mta, Tpt, Unpacked, Zero};
use flatclip::text::imagenet::{WNIDS, WNIDS_A, WNIDS_R};
use std::sync::LazyLock;

/// Whose folder names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// KaiyangZhou/CoOp, also TDA, DPE, MaPLe, PromptAlign.
    CoOp,
    /// azshue/TPT, also C-TPT, DMN, DynaPrompt.
    Tpt,
    /// MTA: TPT's names with an `images` level.
    Mta,
    /// ZERO: lower-case names, an `images` level.
    Zero,
    /// The folder that the official archive unpacks to.
    Unpacked,
}

impl Layout {
    pub(crate) fn name(self) -> &'static str {
        match self {
            CoOp => "CoOp",
            Tpt => "TPT",
            Mta => "MTA",
            Zero => "ZERO",
            Unpacked => "unpacked archive",
        }
    }
}

/// How labels are defined.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Folders are wnids of these classes.
    Wnids(&'static LazyLock<Vec<&'static str>>),
    /// Folders are the numbers 0 to 999.
    Numbers,
    /// A split file of this name.
    Zhou(&'static str),
    /// variants.txt and images_variant_*.txt.
    Aircraft,
}

/// One place to look: the data set's folder below the root, the image folder inside.
pub(super) type Place = (Layout, &'static str, &'static str);

/// What is published about a data set.
#[derive(Debug)]
pub struct Known {
    /// CoOp's name.
    pub name: &'static str,
    /// Other names, compared without case, `-` and `_`.
    pub aliases: &'static [&'static str],
    /// As in a table's head.
    pub title: &'static str,
    /// Which table.
    pub family: Family,
    /// How many classes.
    pub classes: usize,
    /// Published sizes of train, val and test; 0 where the split does not exist or is not published.
    pub counts: [usize; 3],
    /// CoOp's zero-shot template (TPT and its descendants use `a photo of a {}.` everywhere).
    pub template: &'static str,
    /// Where to get it when links are dead.
    pub mirrors: &'static str,
    pub(super) kind: Kind,
    pub(super) places: &'static [Place],
}

impl Known {
    /// The published number of samples of a split, if there is one.
    pub fn count(&self, split: Split) -> Option<usize> {
        let [train, val, test] = self.counts;
        let count = match split {
            Split::Train => train,
            Split::Val => val,
            Split::Test => test,
        };
        (count > 0).then_some(count)
    }

    /// What was read of it.
    pub(super) fn dataset(
        &self,
        split: Split,
        classes: Vec<String>,
        samples: Vec<Sample>,
        notes: Vec<Note>,
    ) -> Dataset {
        let (name, templates) = (self.name.to_owned(), vec![self.template.to_owned()]);
        Dataset { name, spec: String::new(), family: self.family, split, classes, templates, samples, notes }
    }

    /// The data set of that name, whatever its case and separators.
    pub fn find(name: &str) -> Option<&'static Self> {
        let key = |text: &str| text.to_ascii_lowercase().replace(['-', '_', ' ', '/'], "");
        let wanted = key(name);
        KNOWN.iter().find(|known| {
            let mut names = [known.name, known.title].into_iter().chain(known.aliases.iter().copied());
            names.any(|name| key(name) == wanted)
        })
    }
}

const PHOTO: &str = "a photo of a {}.";

/// All of them, in the order of the paper's tables.
pub static KNOWN: [Known; 15] = [
    Known {
        name: "imagenet",
        aliases: &["I", "imagenet1k", "ilsvrc2012"],
        title: "ImageNet",
        family: Family::Imagenet,
        classes: 1000,
        counts: [0, 50_000, 50_000],
        template: PHOTO,
        mirrors: "image-net.org (account needed), Kaggle `imagenet-object-localization-challenge`, \
                  Hugging Face `ILSVRC/imagenet-1k`; sort val into wnid folders with valprep.sh",
        kind: Kind::Wnids(&WNIDS),
        places: &[
            (CoOp, "imagenet", "images/val"),
            (Tpt, "ImageNet", "val"),
            (Zero, "imagenet", "images"),
            (Unpacked, "ILSVRC/Data/CLS-LOC", "val"),
        ],
    },
    Known {
        name: "imagenet_a",
        aliases: &["A", "imagenet-adversarial"],
        title: "ImageNet-A",
        family: Family::Imagenet,
        classes: 200,
        counts: [0, 0, 7_500],
        template: PHOTO,
        mirrors: "github.com/hendrycks/natural-adv-examples (imagenet-a.tar)",
        kind: Kind::Wnids(&WNIDS_A),
        places: &[
            (CoOp, "imagenet-adversarial", "imagenet-a"),
            (Tpt, "imagenet-a", ""),
            (Mta, "imagenet-a", "images"),
            (Unpacked, "imagenet_a", ""),
        ],
    },
    Known {
        name: "imagenetv2",
        aliases: &["V", "V2", "imagenet-v2", "imagenetv2-matched-frequency"],
        title: "ImageNet-V2",
        family: Family::Imagenet,
        classes: 1000,
        counts: [0, 0, 10_000],
        template: PHOTO,
        mirrors: "Hugging Face `vaishaal/ImageNetV2` (imagenetv2-matched-frequency.tar.gz)",
        kind: Kind::Numbers,
        places: &[
            (CoOp, "imagenetv2", "imagenetv2-matched-frequency-format-val"),
            (Tpt, "imagenetv2-matched-frequency-format-val", ""),
            (Mta, "imagenetv2-matched-frequency-format-val", "images"),
            (Zero, "imagenetv2", "images"),
            (Unpacked, "imagenetv2-matched-frequency", ""),
        ],
    },
    Known {
        name: "imagenet_r",
        aliases: &["R", "imagenet-rendition"],
        title: "ImageNet-R",
        family: Family::Imagenet,
        classes: 200,
        counts: [0, 0, 30_000],
        template: PHOTO,
        mirrors: "github.com/hendrycks/imagenet-r (imagenet-r.tar)",
        kind: Kind::Wnids(&WNIDS_R),
        places: &[
            (CoOp, "imagenet-rendition", "imagenet-r"),
            (Tpt, "imagenet-r", ""),
            (Mta, "imagenet-r", "images"),
            (Unpacked, "imagenet_r", ""),
        ],
    },
    Known {
        name: "imagenet_sketch",
        aliases: &["K", "S", "sketch"],
        title: "ImageNet-Sketch",
        family: Family::Imagenet,
        classes: 1000,
        counts: [0, 0, 50_889],
        template: PHOTO,
        mirrors: "github.com/HaohanWang/ImageNet-Sketch, Hugging Face `songweig/imagenet_sketch`; the archive unpacks to sketch/",
        kind: Kind::Wnids(&WNIDS),
        places: &[
            (CoOp, "imagenet-sketch", "images"),
            (Tpt, "ImageNet-Sketch", ""),
            (Unpacked, "imagenet-sketch", "sketch"),
            (Unpacked, "sketch", ""),
            (Unpacked, "imagenet_sketch", ""),
        ],
    },
    Known {
        name: "caltech101",
        aliases: &["caltech-101"],
        title: "Caltech101",
        family: Family::FineGrained,
        classes: 100,
        counts: [4_128, 1_649, 2_465],
        template: PHOTO,
        mirrors: "data.caltech.edu/records/mzrjq-6wc02 (101_ObjectCategories.tar.gz)",
        kind: Kind::Zhou("split_zhou_Caltech101.json"),
        places: &[
            (CoOp, "caltech-101", "101_ObjectCategories"),
            (Tpt, "Caltech101", ""),
            (Zero, "caltech101", "images"),
        ],
    },
    Known {
        name: "oxford_pets",
        aliases: &["pets", "oxfordpets", "OxfordIIITPet"],
        title: "Pets",
        family: Family::FineGrained,
        classes: 37,
        counts: [2_944, 736, 3_669],
        template: "a photo of a {}, a type of pet.",
        mirrors: "robots.ox.ac.uk/~vgg/data/pets (images.tar.gz)",
        kind: Kind::Zhou("split_zhou_OxfordPets.json"),
        places: &[
            (CoOp, "oxford_pets", "images"),
            (Tpt, "OxfordPets", ""),
            (Zero, "oxfordpets", "images"),
            (Zero, "pets", "images"),
            (Unpacked, "oxford-iiit-pet", "images"),
        ],
    },
    Known {
        name: "stanford_cars",
        aliases: &["cars", "stanfordcars"],
        title: "Cars",
        family: Family::FineGrained,
        classes: 196,
        counts: [6_509, 1_635, 8_041],
        template: PHOTO,
        mirrors: "the original site is gone since 2023; Kaggle `eduardo4jesus/stanford-cars-dataset` keeps the original file \
                  names, by-class re-uploads are found by file name",
        kind: Kind::Zhou("split_zhou_StanfordCars.json"),
        places: &[
            (CoOp, "stanford_cars", ""),
            (Tpt, "StanfordCars", ""),
            (Zero, "cars", "images"),
            (Unpacked, "stanford-cars", ""),
            (Unpacked, "cars", ""),
        ],
    },
    Known {
        name: "oxford_flowers",
        aliases: &["flowers", "flower102", "flowers102", "oxfordflowers"],
        title: "Flowers102",
        family: Family::FineGrained,
        classes: 102,
        counts: [4_093, 1_633, 2_463],
        template: "a photo of a {}, a type of flower.",
        mirrors: "robots.ox.ac.uk/~vgg/data/flowers/102 (102flowers.tgz)",
        kind: Kind::Zhou("split_zhou_OxfordFlowers.json"),
        places: &[
            (CoOp, "oxford_flowers", "jpg"),
            (Tpt, "Flower102", "jpg"),
            (Zero, "flowers102", "jpg"),
            (Unpacked, "flowers-102", "jpg"),
        ],
    },
    Known {
        name: "fgvc_aircraft",
        aliases: &["aircraft", "fgvcaircraft"],
        title: "Aircraft",
        family: Family::FineGrained,
        classes: 100,
        counts: [3_334, 3_333, 3_333],
        template: "a photo of a {}, a type of aircraft.",
        mirrors: "robots.ox.ac.uk/~vgg/data/fgvc-aircraft (fgvc-aircraft-2013b.tar.gz, take its data folder)",
        kind: Kind::Aircraft,
        places: &[
            (CoOp, "fgvc_aircraft", "images"),
            (Tpt, "Aircraft", "images"),
            (Unpacked, "fgvc-aircraft-2013b", "data/images"),
            (Unpacked, "fgvc-aircraft-2013b/data", "images"),
        ],
    },
    Known {
        name: "sun397",
        aliases: &["sun"],
        title: "SUN397",
        family: Family::FineGrained,
        classes: 397,
        counts: [15_880, 3_970, 19_850],
        template: PHOTO,
        mirrors: "the original site is unreliable since 2025; Hugging Face `tanganke/sun397`; Kaggle copies split into \
                  train/test folders are found by file name",
        kind: Kind::Zhou("split_zhou_SUN397.json"),
        places: &[(CoOp, "sun397", "SUN397"), (Tpt, "SUN397", ""), (Zero, "sun397", "images")],
    },
    Known {
        name: "dtd",
        aliases: &["describabletextures"],
        title: "DTD",
        family: Family::FineGrained,
        classes: 47,
        counts: [2_820, 1_128, 1_692],
        template: "{} texture.",
        mirrors: "robots.ox.ac.uk/~vgg/data/dtd (dtd-r1.0.1.tar.gz)",
        kind: Kind::Zhou("split_zhou_DescribableTextures.json"),
        places: &[(CoOp, "dtd", "images"), (Tpt, "DTD", "images")],
    },
    Known {
        name: "eurosat",
        aliases: &[],
        title: "EuroSAT",
        family: Family::FineGrained,
        classes: 10,
        counts: [13_500, 5_400, 8_100],
        template: "a centered satellite photo of {}.",
        mirrors: "zenodo.org/records/7711810 (EuroSAT_RGB.zip; its folder replaces 2750/)",
        kind: Kind::Zhou("split_zhou_EuroSAT.json"),
        places: &[
            (CoOp, "eurosat", "2750"),
            (Tpt, "eurosat", ""),
            (Unpacked, "EuroSAT_RGB", ""),
            (Unpacked, "eurosat", "EuroSAT_RGB"),
        ],
    },
    Known {
        name: "food101",
        aliases: &["food-101", "food"],
        title: "Food101",
        family: Family::FineGrained,
        classes: 101,
        counts: [50_500, 20_200, 30_300],
        template: "a photo of {}, a type of food.",
        mirrors: "data.vision.ee.ethz.ch/cvl/food-101.tar.gz, Hugging Face `ethz/food101`",
        kind: Kind::Zhou("split_zhou_Food101.json"),
        places: &[(CoOp, "food-101", "images"), (Tpt, "Food101", "images")],
    },
    Known {
        name: "ucf101",
        aliases: &["ucf"],
        title: "UCF101",
        family: Family::FineGrained,
        classes: 101,
        counts: [7_639, 1_898, 3_783],
        template: "a photo of a person doing {}.",
        mirrors: "CoOp's DATASETS.md links UCF-101-midframes.zip; frames extracted by another decoder change the numbers",
        kind: Kind::Zhou("split_zhou_UCF101.json"),
        places: &[(CoOp, "ucf101", "UCF-101-midframes"), (Tpt, "UCF101", ""), (Zero, "ucf101", "images")],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_are_unique_whatever_their_spelling() {
        for known in &KNOWN {
            for name in known.aliases.iter().chain([&known.name, &known.title]) {
                assert_eq!(Known::find(name).map(|found| found.name), Some(known.name), "{name}");
            }
        }
        assert!(Known::find("imagenet-q").is_none());
    }

    #[test]
    fn five_imagenets_and_ten_fine_grained_sets() {
        assert_eq!(KNOWN.iter().filter(|known| known.family == Family::Imagenet).count(), 5);
        let test: usize = KNOWN.iter().filter_map(|known| known.count(Split::Test)).sum();
        assert_eq!(test, 50_000 + 7_500 + 10_000 + 30_000 + 50_889 + 83_696);
    }
}
