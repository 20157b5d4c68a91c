//! AugMix: the nine operations on bytes, and the mixing of given chains.

use super::case::{Case, Fallible, Report, Tolerance};
use super::preprocess;
use flatclip::image::augmix::{Mix, Operation, Step};
use flatclip::image::{Crop, Interpolation};
use serde_json::Value;

/// Every operation at every level; rotation and shear may be off by one.
pub(crate) fn operations(case: &Case) -> Fallible<Report<'_>> {
    let image = case.u8("in.image")?;
    let size = case.shape("in.image")?[1];
    let (levels, negative) = (case.f32("in.levels")?, case.i64("in.neg")?);
    let mut report = Report::of(case);
    for operation in Operation::ALL {
        let key = format!("out.{}", name(operation));
        let expected = case.u8(&key)?;
        let geometric = matches!(operation, Operation::Rotate | Operation::ShearX | Operation::ShearY);
        for (i, expected) in expected.chunks_exact(image.len()).enumerate() {
            let step = Step { operation, level: level(levels[i]), negative: operation.is_signed() && negative[i] == 1 };
            let found = step.apply(image, size);
            let what = format!("{key}[{i}]");
            if geometric {
                let numbers = |bytes: &[u8]| bytes.iter().map(|&b| f32::from(b)).collect::<Vec<f32>>();
                report.compare(&what, &numbers(&found), &numbers(expected), Tolerance::atol(1.0));
            } else {
                report.same(&what, &found, expected);
            }
        }
    }
    Ok(report)
}

/// A crop mixed with its chains.
pub(crate) fn mixing(case: &Case) -> Fallible<Report<'_>> {
    let size = case.count("size")?;
    let &[top, left, height, width] = case.indices("in.box")?.as_slice() else {
        return Err("`in.box` is not [4]".into());
    };
    let source = preprocess::open(case, case.hyper("file").as_str().ok_or("no `file`")?)?;
    let flip = case.indices("in.flip")?.first() == Some(&1);
    let crop = preprocess::crop(&source, Crop { top, left, height, width }, size, flip, Interpolation::Bilinear)?;
    let chains: Option<Vec<Vec<Step>>> = case
        .hyper("chains")
        .as_array()
        .ok_or("no `chains`")?
        .iter()
        .map(|c| c.as_array()?.iter().map(step).collect())
        .collect();
    let weights = case.f32("in.w")?.try_into().map_err(|_| "`in.w` is not [3]")?;
    let own = *case.f32("in.m")?.first().ok_or("`in.m` is empty")?;
    let mix = Mix { chains: chains.ok_or("a step of `chains` is not [name, level, sign]")?, weights, own };
    let mut found = vec![0.0; crop.len()];
    mix.apply(&crop, size, &preprocess::normalise(case)?, &mut found);
    let mut report = Report::of(case);
    report.close_to("base", &preprocess::normalised(case, &crop, size)?, Tolerance::atol(1e-5));
    // The file allows 0.02 for decoders that differ; with equal bytes only rounding is left.
    report.close_to("mix", &found, case.tolerance("", Tolerance::atol(0.02)));
    Ok(report)
}

/// The name in files.
fn name(operation: Operation) -> String {
    serde_json::to_value(operation).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Levels are decimal numbers that were stored in single precision.
fn level(stored: f32) -> f64 {
    stored.to_string().parse().unwrap_or(f64::from(stored))
}

fn step(value: &Value) -> Option<Step> {
    let operation = Operation::ALL.into_iter().find(|&o| Some(name(o).as_str()) == value[0].as_str())?;
    let negative = operation.is_signed() && value[2].as_u64()? == 1;
    Some(Step { operation, level: value[1].as_f64()?, negative })
}
