//! Grids of settings: the cells of a sweep.

use flatclip::{Error, Result};

/// One key with the values it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridAxis {
    /// The key, e.g. `stss.radius`, or one of `method`, `views`, `seed`, `prompt`.
    pub key: String,
    /// As written.
    pub values: Vec<String>,
}

impl std::str::FromStr for GridAxis {
    type Err = Error;

    /// `key=a,b,c`, or `key=low..high:step` for evenly spaced numbers.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::config("set", format!("expected KEY=A,B,.. or KEY=LOW..HIGH:STEP, found {text:?}"));
        let (key, values) = text.split_once('=').ok_or_else(wrong)?;
        let values = match range(values) {
            Some(values) => values,
            None => values.split(',').map(|value| value.trim().to_owned()).collect(),
        };
        if key.trim().is_empty() || values.is_empty() || values.iter().any(String::is_empty) {
            return Err(wrong());
        }
        Ok(Self { key: key.trim().to_owned(), values })
    }
}

/// `0..1:0.25` as 0, 0.25, 0.5, 0.75, 1.
fn range(text: &str) -> Option<Vec<String>> {
    let (low, rest) = text.split_once("..")?;
    let (high, step) = rest.split_once(':')?;
    let (low, high, step): (f64, f64, f64) =
        (low.trim().parse().ok()?, high.trim().parse().ok()?, step.trim().parse().ok()?);
    let count = ((high - low) / step + 1e-9).floor();
    if !(0.0..1000.0).contains(&count) {
        return None;
    }
    // Nine digits, so that 0.1 + 0.2 is written 0.3.
    let show = |value: f64| format!("{value:.9}").trim_end_matches('0').trim_end_matches('.').to_owned();
    Some((0..=count as usize).map(|i| show(low + step * i as f64)).collect())
}

/// Every combination: for each cell the index of its value on every axis; the first axis runs fastest.
pub fn cells(axes: &[GridAxis]) -> Vec<Vec<usize>> {
    let total = axes.iter().map(|axis| axis.values.len()).product();
    let mut all = Vec::with_capacity(total);
    for mut number in 0..total {
        let cell = axes.iter().map(|axis| {
            let index = number % axis.values.len();
            number /= axis.values.len();
            index
        });
        all.push(cell.collect());
    }
    all
}

/// The paper's ablations: (name, what it varies, axes).
pub const SWEEP_PRESETS: [(&str, &str, &[&str]); 4] = [
    (
        "radius",
        "test radius rho' of STSS, figure 3 of the paper",
        &["stss.radius=0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0"],
    ),
    ("fraction", "fraction of the views that STSS selects", &["stss.fraction=0.02,0.05,0.1,0.2,0.3,0.5,0.8,1.0"]),
    ("directions", "number of perturbed contexts R", &["stss.perturbations=2,4,8,16,32,64"]),
    ("lambda", "weight of the sharpness in the score of STSS", &["stss.lambda=0,0.5,1,2,5"]),
];

/// The axes of a preset.
pub fn preset(name: &str) -> Result<Vec<GridAxis>> {
    let found = SWEEP_PRESETS.iter().find(|(known, _, _)| *known == name);
    let (_, _, axes) = found.ok_or_else(|| {
        let known: Vec<&str> = SWEEP_PRESETS.iter().map(|(name, _, _)| *name).collect();
        Error::config("preset", format!("`{name}` is not one of {}", known.join(", ")))
    })?;
    axes.iter().map(|axis| axis.parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_give_their_values() {
        let axis: GridAxis = "stss.radius=0..0.5:0.1".parse().unwrap();
        assert_eq!(axis.values, ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        let axis: GridAxis = "method=zero, mta".parse().unwrap();
        assert_eq!(axis.values, ["zero", "mta"]);
        for bad in ["radius", "=1,2", "radius=", "radius=1,,2"] {
            assert!(bad.parse::<GridAxis>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_grid_has_every_combination_once() {
        let axes: Vec<GridAxis> = ["a=1,2,3", "b=x,y"].iter().map(|t| t.parse().unwrap()).collect();
        let cells = cells(&axes);
        assert_eq!(cells.len(), 6);
        assert_eq!(cells[..4], [vec![0, 0], vec![1, 0], vec![2, 0], vec![0, 1]]);
        assert_eq!(preset("radius").unwrap()[0].values.len(), 11);
        assert!(preset("x").unwrap_err().to_string().contains("directions"));
    }
}
