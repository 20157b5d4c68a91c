//! Published per-dataset settings, as tables of options. They were evidently chosen on the test sets themselves: an
//! evaluation on one of these data sets takes them (with a note), `preset = "neutral"` does not.

use toml::Table;

crate::choices! {
    /// The benchmarks that have published settings.
    pub enum Benchmark {
        /// That of the data set that is evaluated, if it has one.
        Auto = "auto",
        /// None: the options' own values.
        Neutral = "neutral",
        /// ImageNet.
        Imagenet = "imagenet",
        /// ImageNet-A.
        ImagenetA = "imagenet-a",
        /// ImageNet-V2.
        ImagenetV2 = "imagenet-v2",
        /// ImageNet-R.
        ImagenetR = "imagenet-r",
        /// ImageNet-Sketch.
        ImagenetSketch = "imagenet-sketch",
        /// Caltech101.
        Caltech101 = "caltech101",
        /// DTD.
        Dtd = "dtd",
        /// EuroSAT.
        Eurosat = "eurosat",
        /// FGVC Aircraft.
        Aircraft = "aircraft",
        /// Food101.
        Food101 = "food101",
        /// Flowers102.
        Flowers102 = "flowers102",
        /// Oxford Pets.
        Pets = "pets",
        /// Stanford Cars.
        Cars = "cars",
        /// SUN397.
        Sun397 = "sun397",
        /// UCF101.
        Ucf101 = "ucf101",
    }
}

impl Benchmark {
    /// The benchmark that a data set of this name is, if any.
    pub fn of_data(name: &str) -> Option<Self> {
        Some(match name {
            "imagenet" => Self::Imagenet,
            "imagenet_a" => Self::ImagenetA,
            "imagenetv2" => Self::ImagenetV2,
            "imagenet_r" => Self::ImagenetR,
            "imagenet_sketch" => Self::ImagenetSketch,
            "caltech101" => Self::Caltech101,
            "dtd" => Self::Dtd,
            "eurosat" => Self::Eurosat,
            "fgvc_aircraft" => Self::Aircraft,
            "food101" => Self::Food101,
            "oxford_flowers" => Self::Flowers102,
            "oxford_pets" => Self::Pets,
            "stanford_cars" => Self::Cars,
            "sun397" => Self::Sun397,
            "ucf101" => Self::Ucf101,
            _ => return None,
        })
    }
}

/// A table of numbers.
fn numbers<const N: usize>(values: [(&str, f64); N]) -> Table {
    values.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// TDA's (alpha, beta) of the positive cache, from the configuration files of the authors' code.
fn positive_cache(benchmark: Benchmark) -> Option<(f64, f64)> {
    Some(match benchmark {
        Benchmark::Auto | Benchmark::Neutral => return None,
        Benchmark::Imagenet | Benchmark::ImagenetA => (2.0, 5.0),
        Benchmark::ImagenetV2 | Benchmark::ImagenetR => (1.0, 8.0),
        Benchmark::ImagenetSketch => (2.363, 7.45),
        Benchmark::Caltech101 => (5.0, 5.0),
        Benchmark::Dtd => (2.0, 3.0),
        Benchmark::Eurosat => (4.0, 8.0),
        Benchmark::Aircraft => (2.0, 2.0),
        Benchmark::Food101 => (1.0, 1.0),
        Benchmark::Flowers102 => (1.0, 5.0),
        Benchmark::Pets => (2.0, 7.0),
        Benchmark::Cars => (1.0, 7.0),
        Benchmark::Sun397 => (2.0, 3.0),
        Benchmark::Ucf101 => (3.0, 8.0),
    })
}

/// TDA's alpha and beta.
pub(super) fn tda(benchmark: Benchmark) -> Table {
    positive_cache(benchmark).map_or_else(Table::new, |(alpha, beta)| numbers([("alpha", alpha), ("beta", beta)]))
}

/// DPE's (alpha, beta, learning rate of both residuals, weight of the alignment), from the authors' configuration files.
pub(super) fn dpe(benchmark: Benchmark) -> Table {
    let (alpha, beta, lr, align) = match benchmark {
        Benchmark::Auto | Benchmark::Neutral => return Table::new(),
        Benchmark::Imagenet => (6.0, 5.0, 6e-4, 0.5),
        Benchmark::ImagenetA => (6.0, 5.0, 3e-4, 2.5),
        Benchmark::ImagenetV2 => (3.0, 8.0, 5e-4, 0.5),
        Benchmark::ImagenetR => (3.0, 8.0, 6e-4, 0.0),
        Benchmark::ImagenetSketch => (7.0, 7.45, 6e-4, 0.2),
        Benchmark::Caltech101 => (15.0, 5.0, 6e-4, 0.2),
        Benchmark::Dtd => (6.0, 3.0, 6e-4, 0.2),
        Benchmark::Eurosat => (3.0, 8.0, 5e-5, 0.2),
        Benchmark::Aircraft => (6.0, 2.0, 6e-4, 0.2),
        Benchmark::Food101 => (3.0, 1.0, 2e-4, 0.2),
        Benchmark::Flowers102 => (2.5, 5.0, 1e-4, 0.2),
        Benchmark::Pets => (4.0, 7.0, 5e-5, 0.2),
        Benchmark::Cars => (3.0, 7.0, 1e-4, 1.5),
        Benchmark::Sun397 => (6.0, 3.0, 2e-4, 0.2),
        Benchmark::Ucf101 => (9.0, 8.0, 4e-4, 0.2),
    };
    numbers([("alpha", alpha), ("beta", beta), ("lr_text", lr), ("lr_image", lr), ("align", align)])
}

/// DLAE's (alpha, beta, learning rate, alignment, debias, doubt, ageing) for ViT-B/16, from the authors' configuration files.
pub(super) fn dlae(benchmark: Benchmark) -> Table {
    let (alpha, beta, lr, align, debias, doubt, ageing) = match benchmark {
        Benchmark::Auto | Benchmark::Neutral => return Table::new(),
        Benchmark::Imagenet => (6.0, 5.0, 6e-4, 0.5, 0.8, 0.001, 0.0),
        Benchmark::ImagenetA => (6.0, 5.0, 3e-4, 2.5, 1.0, 0.3, 1e-5),
        Benchmark::ImagenetV2 => (3.0, 8.0, 5e-4, 0.5, 2.5, 0.5, 0.002),
        Benchmark::ImagenetR => (3.0, 8.0, 6e-4, 0.0, 0.8, 0.3, 1e-5),
        Benchmark::ImagenetSketch => (7.0, 7.45, 6e-4, 0.2, 3.0, 1.0, 0.005),
        Benchmark::Caltech101 => (15.0, 5.0, 6e-4, 0.2, 0.3, 0.3, 5e-4),
        Benchmark::Dtd => (6.0, 3.0, 6e-4, 0.2, 2.0, 0.5, 0.02),
        Benchmark::Eurosat => (5.0, 8.0, 5e-5, 0.2, 1.0, 0.3, 1e-6),
        Benchmark::Aircraft => (6.0, 2.0, 6e-4, 0.2, 2.5, 0.5, 0.005),
        Benchmark::Food101 => (3.0, 1.0, 2e-4, 0.2, 3.0, 0.5, 0.005),
        Benchmark::Flowers102 => (8.0, 5.0, 2e-4, 0.2, 2.0, 0.5, 1e-5),
        Benchmark::Pets => (4.0, 7.0, 1e-4, 0.3, 1.0, 0.0, 1e-6),
        Benchmark::Cars | Benchmark::Sun397 => (3.0, 7.0, 1e-4, 1.5, 3.2, 0.5, 0.01),
        Benchmark::Ucf101 => (9.0, 8.0, 4e-4, 0.2, 3.0, 0.5, 1e-5),
    };
    let mut table = numbers([("alpha", alpha), ("beta", beta), ("lr_text", lr), ("lr_image", lr), ("align", align)]);
    table.extend(numbers([("debias", debias), ("doubt", doubt), ("ageing", ageing)]));
    if benchmark == Benchmark::ImagenetA {
        table.insert("inference".to_owned(), "confident".into());
    }
    table
}

/// MCP's (alpha, beta, learning rate of mcp++), from the authors' configuration files.
pub(super) fn mcp(benchmark: Benchmark) -> Table {
    let (alpha, beta, lr) = match benchmark {
        Benchmark::Auto | Benchmark::Neutral => return Table::new(),
        Benchmark::Imagenet => (5.5, 8.0, 6e-5),
        Benchmark::ImagenetA => (4.0, 3.0, 3e-4),
        Benchmark::ImagenetV2 => (2.5, 1.0, 8e-5),
        Benchmark::ImagenetR => (1.0, 8.0, 8e-5),
        Benchmark::ImagenetSketch => (2.0, 3.0, 1e-4),
        Benchmark::Caltech101 => (5.0, 5.0, 8e-5),
        Benchmark::Dtd => (5.0, 7.0, 6e-4),
        Benchmark::Eurosat => (3.0, 8.0, 4e-4),
        Benchmark::Aircraft => (4.0, 5.0, 1e-4),
        Benchmark::Food101 => (1.0, 1.0, 2e-4),
        Benchmark::Flowers102 => (1.0, 8.0, 8e-4),
        Benchmark::Pets => (2.0, 7.0, 4e-4),
        Benchmark::Cars => (3.0, 4.0, 1e-4),
        Benchmark::Sun397 => (1.0, 2.0, 3e-4),
        Benchmark::Ucf101 => (1.0, 7.0, 8e-4),
    };
    let mut table = numbers([("alpha", alpha), ("beta", beta), ("lr_text", lr), ("lr_image", lr)]);
    if benchmark == Benchmark::ImagenetA {
        table.insert("query".to_owned(), "confident-mean".into());
    }
    table
}

/// BoostAdapter's (alpha, beta, delta), from the authors' configuration files: alpha and beta are TDA's. ImageNet is run
/// with one view, which boosts nothing, so its delta is never read.
pub(super) fn boostadapter(benchmark: Benchmark) -> Table {
    let Some((alpha, beta)) = positive_cache(benchmark) else { return Table::new() };
    let delta = match benchmark {
        Benchmark::ImagenetA | Benchmark::ImagenetR | Benchmark::Food101 | Benchmark::Cars => 3,
        Benchmark::Caltech101 | Benchmark::Aircraft => 2,
        Benchmark::ImagenetV2 | Benchmark::ImagenetSketch | Benchmark::Sun397 => 1,
        _ => 0,
    };
    let mean = matches!(
        benchmark,
        Benchmark::ImagenetA | Benchmark::ImagenetV2 | Benchmark::ImagenetR | Benchmark::ImagenetSketch
    );
    let mut table = numbers([("alpha", alpha), ("beta", beta)]);
    table.insert("delta".to_owned(), delta.into());
    // What represents the image: view 0, or the mean of its confident views.
    table.insert("query".to_owned(), if mean { "confident-mean" } else { "view-0" }.into());
    table
}

/// DOTA's (epsilon, eta, rho), from the authors' code.
pub(super) fn dota(benchmark: Benchmark) -> Table {
    let (eta, rho) = match benchmark {
        Benchmark::Auto | Benchmark::Neutral => return Table::new(),
        Benchmark::Imagenet => (0.2, 0.005),
        Benchmark::ImagenetA => (0.5, 0.02),
        Benchmark::ImagenetV2 => (0.1, 0.01),
        Benchmark::ImagenetR => (0.3, 0.0025),
        Benchmark::ImagenetSketch => (0.8, 0.03),
        Benchmark::Caltech101 | Benchmark::Dtd | Benchmark::Pets => (0.3, 0.02),
        Benchmark::Eurosat => (3.0, 0.05),
        Benchmark::Aircraft => (0.2, 0.01),
        Benchmark::Food101 => (0.1, 0.01),
        Benchmark::Flowers102 => (0.2, 0.02),
        Benchmark::Cars => (0.3, 0.01),
        Benchmark::Sun397 => (0.2, 0.01),
        Benchmark::Ucf101 => (0.4, 0.02),
    };
    let epsilon = match benchmark {
        Benchmark::Caltech101 => 2e-3,
        Benchmark::Food101 => 4e-5,
        _ => 1e-4,
    };
    numbers([("epsilon", epsilon), ("eta", eta), ("rho", rho)])
}

/// OnZeta's (alpha, beta): the authors' for ImageNet, elsewhere those of a later comparison.
pub(super) fn onzeta(benchmark: Benchmark) -> Table {
    let (alpha, beta) = match benchmark {
        Benchmark::Auto | Benchmark::Neutral => return Table::new(),
        Benchmark::Imagenet => (1.0, 0.8),
        Benchmark::Caltech101 => (0.0, 0.4),
        _ => (1.0, 0.4),
    };
    numbers([("alpha", alpha), ("beta", beta)])
}

/// ADAPT's temperature of the correction, from the authors' code.
pub(super) fn adapt(benchmark: Benchmark) -> Table {
    let scale = match benchmark {
        Benchmark::Auto | Benchmark::Neutral => return Table::new(),
        Benchmark::Imagenet | Benchmark::ImagenetSketch => 20.0,
        Benchmark::ImagenetV2 => 30.0,
        Benchmark::ImagenetA => 40.0,
        Benchmark::Flowers102 | Benchmark::Cars | Benchmark::Dtd | Benchmark::Sun397 => 60.0,
        Benchmark::Ucf101 => 70.0,
        Benchmark::ImagenetR
        | Benchmark::Pets
        | Benchmark::Eurosat
        | Benchmark::Aircraft
        | Benchmark::Food101
        | Benchmark::Caltech101 => 100.0,
    };
    numbers([("scale", scale)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::adapter;
    use crate::options::OptionValue as _;

    #[test]
    fn a_known_data_set_brings_its_preset_and_what_is_said_stands_above_it() {
        let boost = adapter("boostadapter").unwrap();
        let on = |given: &Table, data: &str| boost.complete(&boost.for_data(given, data)).unwrap();
        let plain = on(&Table::new(), "imagenet_sketch");
        assert_eq!((plain["beta"].as_float(), plain["query"].as_str()), (Some(7.45), Some("confident-mean")));
        assert_eq!(plain["preset"], Benchmark::ImagenetSketch.to_value());
        let own = on(&toml::toml! { beta = 2.0 }, "imagenet_sketch");
        assert_eq!((own["beta"].as_float(), own["alpha"].as_float()), (Some(2.0), Some(2.363)));
        let neutral = on(&toml::toml! { preset = "neutral" }, "imagenet_sketch");
        assert_eq!(neutral["beta"].as_float(), Some(5.0));
        let named = on(&toml::toml! { preset = "dtd" }, "imagenet_sketch");
        assert_eq!(named["beta"].as_float(), Some(3.0));
        assert_eq!(on(&Table::new(), "my-photos")["preset"], Benchmark::Auto.to_value());
        // A method without presets keeps its options as they are.
        assert!(adapter("zero").unwrap().for_data(&Table::new(), "dtd").is_empty());
    }
}
