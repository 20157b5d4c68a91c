//! Preprocessing settings in configuration files: `preprocess_cfg` of open_clip, `preprocessor_config.json` of
//! transformers. Settings that flatclip does not support are errors.

use super::bytes::bad;
use crate::Result;
use crate::architecture::{Interpolation, Preprocess, ResizeMode};
use serde::Deserialize as _;
use serde_json::Value;
use std::path::Path;

/// open_clip's `preprocess_cfg`; the defaults are CLIP's. The model's image size overrides its `size`, as in open_clip.
pub(super) fn open_clip(path: &Path, json: &Value) -> Result<Option<Preprocess>> {
    if json.is_null() {
        return Ok(None);
    }
    let usual = Preprocess::CLIP;
    let resize =
        setting(path, json, "resize_mode", "one of shortest, squash, longest", |word| match word.as_str()? {
            "shortest" => Some(ResizeMode::Shortest),
            "squash" => Some(ResizeMode::Squash),
            "longest" => Some(ResizeMode::Longest),
            _ => None,
        })?;
    let filter =
        setting(path, json, "interpolation", "one of bicubic, bilinear, random", |word| match word.as_str()? {
            // With `random`, open_clip uses bicubic for evaluation.
            "bicubic" | "random" => Some(Interpolation::Bicubic),
            "bilinear" => Some(Interpolation::Bilinear),
            _ => None,
        })?;
    let byte = |value: &Value| u8::try_from(value.as_u64()?).ok();
    Ok(Some(Preprocess {
        resize: resize.unwrap_or(usual.resize),
        filter: filter.unwrap_or(usual.filter),
        fill: setting(path, json, "fill_color", "a whole number from 0 to 255", byte)?.unwrap_or(usual.fill),
        mean: triple(path, json, "mean")?.unwrap_or(usual.mean),
        std: triple(path, json, "std")?.unwrap_or(usual.std),
    }))
}

/// transformers' `preprocessor_config.json`.
pub(super) fn hugging_face(path: &Path, json: &Value) -> Result<Preprocess> {
    if !json.is_object() {
        return Err(bad(path, "expected an object of settings"));
    }
    for key in ["do_resize", "do_rescale", "do_normalize"] {
        if !matches!(json[key], Value::Null | Value::Bool(true)) {
            return Err(wrong(path, json, key, "true: every model that flatclip computes takes normalised pixels"));
        }
    }
    if json["rescale_factor"].as_f64().is_some_and(|factor| (factor * 255.0 - 1.0).abs() > 1e-6) {
        return Err(wrong(path, json, "rescale_factor", "1/255"));
    }
    // Pillow's filter constants.
    let filter =
        setting(path, json, "resample", "2 (bilinear) or 3 (bicubic)", |constant| match constant.as_u64()? {
            2 => Some(Interpolation::Bilinear),
            3 => Some(Interpolation::Bicubic),
            _ => None,
        })?;
    let usual = Preprocess::CLIP;
    Ok(Preprocess {
        resize: hugging_face_resize(path, json)?,
        filter: filter.unwrap_or(usual.filter),
        fill: usual.fill,
        mean: triple(path, json, "image_mean")?.unwrap_or(usual.mean),
        std: triple(path, json, "image_std")?.unwrap_or(usual.std),
    })
}

/// A shortest edge with a crop of the same size, or height and width.
fn hugging_face_resize(path: &Path, json: &Value) -> Result<ResizeMode> {
    let (size, crop) = (&json["size"], &json["crop_size"]);
    if size["height"].is_u64() && size["height"] == size["width"] {
        return Ok(ResizeMode::Squash);
    }
    // Older files write one number for both.
    let side = |value: &Value, key: &str| value.as_u64().or_else(|| value[key].as_u64());
    let (edge, crop) = (side(size, "shortest_edge"), side(crop, "height"));
    match (edge, crop, json["do_center_crop"].as_bool()) {
        (None, ..) if size.is_null() => Ok(ResizeMode::Shortest),
        (Some(edge), crop, None | Some(true)) if crop.is_none_or(|crop| crop == edge) => Ok(ResizeMode::Shortest),
        _ => {
            let reason = format!(
                "expected `size` as height and width that are equal, or a shortest_edge with a centre crop of the same \
                 size; found size {size}, crop_size {}, do_center_crop {}",
                json["crop_size"], json["do_center_crop"]
            );
            Err(bad(path, reason))
        }
    }
}

/// A setting of a configuration as `read` takes it; `None` where it is absent.
pub(super) fn setting<T>(
    path: &Path,
    json: &Value,
    key: &str,
    expected: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>> {
    if json[key].is_null() {
        return Ok(None);
    }
    read(&json[key]).map(Some).ok_or_else(|| wrong(path, json, key, expected))
}

/// The error of a setting that flatclip does not support.
fn wrong(path: &Path, json: &Value, key: &str, expected: &str) -> crate::Error {
    let mut found = json[key].to_string();
    found.truncate(found.floor_char_boundary(80));
    bad(path, format!("`{key}`: expected {expected}, found {found}"))
}

fn triple(path: &Path, json: &Value, key: &str) -> Result<Option<[f32; 3]>> {
    let is_std = key.ends_with("std");
    setting(path, json, key, if is_std { "three positive numbers" } else { "three numbers" }, |list| {
        let numbers = <[f32; 3]>::deserialize(list).ok()?;
        numbers.iter().all(|x| x.is_finite() && (!is_std || *x > 0.0)).then_some(numbers)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hub(value: Value) -> Result<Preprocess> {
        hugging_face(Path::new("preprocessor_config.json"), &value)
    }

    fn oc(value: Value) -> Result<Option<Preprocess>> {
        open_clip(Path::new("open_clip_config.json"), &value)
    }

    #[test]
    fn published_configurations_are_read_as_their_libraries_do() {
        let half = json!([0.5, 0.5, 0.5]);
        let siglip = json!({"do_resize": true, "size": {"height": 224, "width": 224}, "resample": 3, "do_rescale": true,
            "rescale_factor": 0.00392156862745098, "do_normalize": true, "image_mean": half, "image_std": half});
        assert_eq!(hub(siglip).unwrap(), Preprocess::SIGLIP);
        let clip = json!({"do_center_crop": true, "crop_size": {"height": 224, "width": 224}, "do_resize": true,
            "size": {"shortest_edge": 224}, "resample": 3});
        assert_eq!(hub(clip).unwrap(), Preprocess::CLIP);
        assert_eq!(hub(json!({"size": 224, "crop_size": 224, "do_center_crop": true})).unwrap(), Preprocess::CLIP);
        let pe = json!({"mean": half, "std": half, "interpolation": "bilinear", "resize_mode": "squash", "size": 224});
        assert_eq!(oc(pe).unwrap(), Some(Preprocess::PE));
        assert_eq!(oc(json!({"mean": null})).unwrap(), Some(Preprocess::CLIP));
        assert_eq!(oc(Value::Null).unwrap(), None);
        let padded = oc(json!({"resize_mode": "longest", "fill_color": 7})).unwrap().unwrap();
        assert_eq!((padded.resize, padded.fill), (ResizeMode::Longest, 7));
    }

    /// Cut off or with bits flipped: read, or refused with the file's name.
    #[test]
    fn damaged_configurations_never_panic() {
        let whole =
            json!({"size": {"height": 224, "width": 224}, "crop_size": 224, "do_center_crop": true, "resample": 3,
            "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "mean": [0.5, 0.5, 0.5], "fill_color": 7,
            "interpolation": "bicubic", "resize_mode": "squash", "rescale_factor": 0.00392156862745098})
            .to_string();
        let mut stream = crate::rng::Stream::new(5, &["damage"]);
        let mut read = 0;
        for _ in 0..2000 {
            let mut bytes = whole.clone().into_bytes();
            let (at, bit) = (stream.below(bytes.len()), stream.below(8));
            bytes[at] ^= 1 << bit;
            let Ok(value) = serde_json::from_slice::<Value>(&bytes) else { continue };
            read += 1;
            let errors = [hub(value.clone()).err(), oc(value).err()];
            assert!(errors.into_iter().flatten().all(|error| error.to_string().contains("_config.json")));
        }
        assert!(read > 200, "{read}");
    }

    #[test]
    fn what_would_be_computed_otherwise_is_refused_by_its_key() {
        for (value, key) in [
            (json!({"size": {"shortest_edge": 256}, "crop_size": {"height": 224}, "do_center_crop": true}), "size"),
            (json!({"size": {"shortest_edge": 224}, "do_center_crop": false}), "do_center_crop"),
            (json!({"size": {"height": 224, "width": 112}}), "size"),
            (json!({"size": {"longest_edge": 224}}), "size"),
            (json!({"size": "large"}), "size"),
            (json!({"resample": 1}), "resample"),
            (json!({"resample": "bicubic"}), "resample"),
            (json!({"do_normalize": false}), "do_normalize"),
            (json!({"rescale_factor": 0.0078}), "rescale_factor"),
            (json!({"image_std": [1, 0, 1]}), "image_std"),
            (json!([]), "object"),
        ] {
            let error = hub(value.clone()).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains("preprocessor_config.json"), "{value}: {error}");
        }
        for (value, key) in [
            (json!({"resize_mode": "crop"}), "resize_mode"),
            (json!({"interpolation": 3}), "interpolation"),
            (json!({"fill_color": 256}), "fill_color"),
            (json!({"fill_color": "\u{e4}".repeat(100)}), "fill_color"),
            (json!({"mean": [1, 2]}), "mean"),
        ] {
            let error = oc(value.clone()).unwrap_err().to_string();
            assert!(error.contains(key), "{value}: {error}");
        }
    }
}
