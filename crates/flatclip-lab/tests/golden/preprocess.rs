//! Decoding, scaling and cropping: bytes equal PIL's; normalised numbers within the tolerance of the file.

use super::case::{Case, Fallible, Report, Tolerance};
use flatclip::image::{
    Columns, ConvertOrder, Crop, DecodeOptions, Interpolation, Normalise, Output, Preprocess, Source, augment,
    preprocess_source,
};
use serde_json::Value;

/// openai/CLIP's transform, which converts to RGB at the end.
pub(crate) fn clip(case: &Case) -> Fallible<Report<'_>> {
    let size = case.count("n_px")?;
    let mut report = Report::of(case);
    for (index, file) in case.spec["files"].as_object().ok_or("no `files`")? {
        let source = open(case, file["file"].as_str().ok_or("no `file`")?)?;
        let bytes = preprocess_source(&source, [size, size], &Preprocess::CLIP, ConvertOrder::Last);
        compare(case, &mut report, index, &bytes?, size)?;
    }
    Ok(report)
}

/// open_clip's transform of any model.
pub(crate) fn of_models(case: &Case) -> Fallible<Report<'_>> {
    let part = |key: &str, name: &str| (name.to_owned(), case.hyper(key).clone());
    let size: [usize; 2] = serde_json::from_value(case.hyper("size_hw").clone())?;
    let keys = [("resize_mode", "resize"), ("interpolation", "filter"), ("fill_color", "fill")];
    let keys = keys.into_iter().chain([("mean", "mean"), ("std", "std")]).map(|(key, name)| part(key, name));
    let how: Preprocess = serde_json::from_value(Value::Object(keys.collect()))?;
    let mut report = Report::of(case);
    for (index, file) in case.spec["files"].as_object().ok_or("no `files`")? {
        let source = open(case, file["file"].as_str().ok_or("no `file`")?)?;
        let bytes = preprocess_source(&source, size, &how, ConvertOrder::Last)?;
        compare(case, &mut report, index, &bytes, size[1])?;
    }
    Ok(report)
}

/// torchvision's `resized_crop` and `hflip` with given boxes.
pub(crate) fn crops(case: &Case) -> Fallible<Report<'_>> {
    let size = case.count("size")?;
    let params = case.indices("in.params")?;
    let mut report = Report::of(case);
    for (index, file) in case.spec["files"].as_array().ok_or("no `files`")?.iter().enumerate() {
        let &[top, left, height, width, flip, cubic] =
            params.get(index * 6..index * 6 + 6).ok_or("short `in.params`")?
        else {
            return Err("`in.params` is not [n, 6]".into());
        };
        let source = open(case, file.as_str().ok_or("a file is not a name")?)?;
        let interpolation = if cubic == 1 { Interpolation::Bicubic } else { Interpolation::Bilinear };
        let bytes = crop(&source, Crop { top, left, height, width }, size, flip == 1, interpolation)?;
        compare(case, &mut report, &index.to_string(), &bytes, size)?;
    }
    Ok(report)
}

/// JPEG files, decoded.
pub(crate) fn jpeg(case: &Case) -> Fallible<Report<'_>> {
    let mut report = Report::of(case);
    for (index, file) in case.spec["files"].as_object().ok_or("no `files`")? {
        let image = open(case, file.as_str().ok_or("a file is not a name")?)?.to_image();
        let planes: Vec<u8> = (0..3).flat_map(|c| image.rgb.iter().skip(c).step_by(3).copied()).collect();
        let name = format!("out.u8.{index}");
        report.same(&name, &planes, case.u8(&name)?);
    }
    Ok(report)
}

/// An image of the case's folder.
pub(crate) fn open(case: &Case, file: &str) -> Fallible<Source> {
    let path = case.folder().join(file);
    let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Source::decode(&path, &bytes, &DecodeOptions::pillow())?)
}

/// Crop, scale to a square, flip: planes of bytes.
pub(crate) fn crop(source: &Source, crop: Crop, size: usize, flip: bool, filter: Interpolation) -> Fallible<Vec<u8>> {
    let image = source.to_image();
    let columns = Columns::new(&image.rgb, 3, image.width, image.height);
    let mut bytes = columns.resize(crop, Output::whole(size, size), filter)?;
    if flip {
        augment::flip(&mut bytes, size);
    }
    Ok(bytes)
}

/// Planes of normalised numbers with the mean and deviation that the case names.
pub(crate) fn normalised(case: &Case, bytes: &[u8], size: usize) -> Fallible<Vec<f32>> {
    let mut out = vec![0.0; bytes.len()];
    normalise(case)?.planes(&mut out, bytes, size, false);
    Ok(out)
}

/// The mean and deviation that the case names.
pub(crate) fn normalise(case: &Case) -> Fallible<Normalise> {
    let three = |key: &str| {
        let list: Option<Vec<f32>> =
            case.hyper(key).as_array()?.iter().map(|v| Value::as_f64(v).map(|v| v as f32)).collect();
        <[f32; 3]>::try_from(list?).ok()
    };
    Ok(Normalise::new(three("mean").ok_or("no `mean`")?, three("std").ok_or("no `std`")?))
}

fn compare(case: &Case, report: &mut Report<'_>, index: &str, bytes: &[u8], size: usize) -> Fallible<()> {
    let (raw, normal) = (format!("out.u8.{index}"), format!("out.norm.{index}"));
    if case.has(&raw) {
        report.same(&raw, bytes, case.u8(&raw)?);
    }
    if case.has(&normal) {
        let tolerance = case.tolerance("f32", Tolerance::atol(1e-5));
        report.compare(&normal, &normalised(case, bytes, size)?, case.f32(&normal)?, tolerance);
    }
    Ok(())
}
