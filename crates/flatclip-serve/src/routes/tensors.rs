//! Tensors of the Open Inference Protocol, as JSON and as bytes.

use crate::answer::json_bytes;
use crate::problem::Problem;
use axum::body::Bytes;
use flatclip::Picture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// A request to run a model.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InferRequest {
    /// Given back with the outputs.
    #[schema(nullable = false)]
    pub(crate) id: Option<String>,
    /// `method`, `template`, `prompt`, `ensemble`, `views`, `seed`, `options` (a text of JSON), `binary_data_output`.
    #[serde(default)]
    #[schema(value_type = std::collections::BTreeMap<String, Value>)]
    pub(crate) parameters: Map<String, Value>,
    pub(crate) inputs: Vec<InputTensor>,
    /// Which outputs; all by default.
    #[schema(nullable = false)]
    pub(crate) outputs: Option<Vec<OutputChoice>>,
}

/// An input.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InputTensor {
    #[schema(example = "text")]
    pub(crate) name: String,
    #[schema(example = "BYTES")]
    pub(crate) datatype: String,
    #[schema(example = json!([1]))]
    pub(crate) shape: Vec<u64>,
    /// Values, flat or nested; absent when they follow as bytes.
    #[schema(value_type = Vec<Value>, required = false, nullable = false, example = json!(["a fish"]))]
    pub(crate) data: Option<Value>,
    /// `binary_data_size` when the values follow as bytes.
    #[serde(default)]
    #[schema(value_type = std::collections::BTreeMap<String, Value>)]
    pub(crate) parameters: Map<String, Value>,
}

/// A wanted output.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputChoice {
    pub(crate) name: String,
    /// `binary_data` for bytes.
    #[serde(default)]
    #[schema(value_type = std::collections::BTreeMap<String, Value>)]
    pub(crate) parameters: Map<String, Value>,
}

/// What a model gave.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InferResponse {
    model_name: String,
    model_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    id: Option<String>,
    #[schema(value_type = Vec<Value>)]
    outputs: Vec<Value>,
}

/// Values of one of the types that are taken and given.
pub(crate) enum Tensor {
    Bytes { shape: Vec<usize>, values: Vec<Bytes>, is_json: bool },
    Uint8 { shape: Vec<usize>, data: Bytes },
    Fp32 { shape: Vec<usize>, data: Vec<f32> },
}

impl Tensor {
    /// Rows of one width.
    pub(crate) fn rows(rows: Vec<Vec<f32>>) -> Self {
        let shape = vec![rows.len(), rows.first().map_or(0, Vec::len)];
        Self::Fp32 { shape, data: rows.concat() }
    }

    fn datatype(&self) -> &'static str {
        match self {
            Self::Bytes { .. } => "BYTES",
            Self::Uint8 { .. } => "UINT8",
            Self::Fp32 { .. } => "FP32",
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Bytes { shape, .. } | Self::Uint8 { shape, .. } | Self::Fp32 { shape, .. } => shape,
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Bytes { values, .. } => values.iter().map(|value| String::from_utf8_lossy(value)).collect(),
            Self::Uint8 { data, .. } => data.iter().copied().collect(),
            Self::Fp32 { data, .. } => data.iter().map(|&x| f64::from(x)).collect(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Bytes { values, .. } => {
                let prefixed = |value: &Bytes| [&(value.len() as u32).to_le_bytes(), value.as_ref()].concat();
                values.iter().flat_map(prefixed).collect()
            }
            Self::Uint8 { data, .. } => data.to_vec(),
            Self::Fp32 { data, .. } => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }
}

/// Reads an input from its JSON, or from the bytes after it.
pub(crate) fn take_input(input: &InputTensor, tail: &mut Bytes) -> Result<Tensor, Problem> {
    let wrong = |what: &str| Problem::invalid(&format!("inputs.{}", input.name), what);
    let size = input.parameters.get("binary_data_size").and_then(Value::as_u64).map(|size| size as usize);
    let shape: Vec<usize> = input.shape.iter().map(|&side| usize::try_from(side).unwrap_or(usize::MAX)).collect();
    let count = shape.iter().try_fold(1usize, |all, &side| all.checked_mul(side)).unwrap_or(usize::MAX);
    let binary = match size {
        Some(size) if size <= tail.len() => Some(tail.split_to(size)),
        Some(_) => return Err(Problem::malformed("binary_data_size: expected no more bytes than the body has")),
        None => None,
    };
    let tensor = match (input.datatype.as_str(), binary, &input.data) {
        ("BYTES", Some(bytes), _) => Tensor::Bytes { shape, values: prefixed(bytes)?, is_json: false },
        ("BYTES", None, Some(data)) => {
            let mut values = Vec::new();
            let text = |value: &Value| value.as_str().map(|text| Bytes::from(text.to_owned()));
            flat(data, &mut |value| text(value).map(|text| values.push(text)).is_some(), 0)
                .then_some(())
                .ok_or_else(|| wrong("expected texts"))?;
            Tensor::Bytes { shape, values, is_json: true }
        }
        ("UINT8", Some(data), _) => Tensor::Uint8 { shape, data },
        ("UINT8", None, Some(data)) => {
            let mut bytes = Vec::new();
            let byte = |value: &Value| value.as_u64().and_then(|number| u8::try_from(number).ok());
            flat(data, &mut |value| byte(value).map(|byte| bytes.push(byte)).is_some(), 0)
                .then_some(())
                .ok_or_else(|| wrong("expected numbers from 0 to 255"))?;
            Tensor::Uint8 { shape, data: bytes.into() }
        }
        (_, None, None) => return Err(wrong("expected data, or binary_data_size and bytes after the JSON")),
        (other, _, _) => return Err(wrong(&format!("expected BYTES or UINT8, found {other:?}"))),
    };
    let found = match &tensor {
        Tensor::Bytes { values, .. } => values.len(),
        Tensor::Uint8 { data, .. } => data.len(),
        Tensor::Fp32 { data, .. } => data.len(),
    };
    if found == count {
        return Ok(tensor);
    }
    Err(wrong(&format!("expected {count} values for its shape, found {found}")))
}

/// Visits every value of nested lists; false when one is refused.
fn flat(value: &Value, visit: &mut impl FnMut(&Value) -> bool, depth: usize) -> bool {
    match value {
        Value::Array(values) if depth < 8 => values.iter().all(|value| flat(value, visit, depth + 1)),
        Value::Array(_) => false,
        value => visit(value),
    }
}

/// Values with their length before each, four bytes, little-endian.
fn prefixed(mut bytes: Bytes) -> Result<Vec<Bytes>, Problem> {
    let cut = || Problem::malformed("BYTES: a length is larger than what follows");
    let mut values = Vec::new();
    while !bytes.is_empty() {
        if bytes.len() < 4 {
            return Err(cut());
        }
        let head = bytes.split_to(4);
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > bytes.len() {
            return Err(cut());
        }
        values.push(bytes.split_to(length));
    }
    Ok(values)
}

/// `[H, W, 3]` or `[N, H, W, 3]` bytes as pictures.
pub(crate) fn pictures(shape: &[usize], data: &[u8], most: u64) -> Result<Vec<Picture>, Problem> {
    let (count, height, width) = match *shape {
        [height, width, 3] => (1, height, width),
        [count, height, width, 3] => (count, height, width),
        _ => {
            return Err(Problem::invalid(
                "pixels",
                format_args!("expected [N, H, W, 3] or [H, W, 3], found {shape:?}"),
            ));
        }
    };
    if count == 0 || height == 0 || width == 0 {
        return Err(Problem::invalid("pixels", "expected at least one pixel"));
    }
    let pixels = height as u64 * width as u64;
    if pixels > most {
        return Err(Problem::too_much("pixels", pixels, most));
    }
    let picture = |rgb: &[u8]| Picture { width, height, rgb: rgb.to_vec() };
    Ok(data.chunks_exact(height * width * 3).map(picture).collect())
}

/// The body, and the length of its JSON where bytes follow.
pub(crate) fn render(
    model: &str,
    request: &InferRequest,
    tensors: Vec<(&'static str, Tensor)>,
) -> Result<(Vec<u8>, Option<usize>), Problem> {
    let flag = |parameters: &Map<String, Value>, key: &str| parameters.get(key).and_then(Value::as_bool);
    let all_binary = flag(&request.parameters, "binary_data_output").unwrap_or(false);
    let (mut outputs, mut tail) = (Vec::new(), Vec::new());
    let mut put = |name: &str, tensor: &Tensor, binary: bool| {
        let mut output = json!({ "name": name, "datatype": tensor.datatype(), "shape": tensor.shape() });
        if binary {
            let bytes = tensor.bytes();
            output["parameters"] = json!({ "binary_data_size": bytes.len() });
            tail.push(bytes);
        } else {
            output["data"] = tensor.json();
        }
        outputs.push(output);
    };
    match &request.outputs {
        None => tensors.iter().for_each(|(name, tensor)| put(name, tensor, all_binary)),
        Some(wanted) => {
            for choice in wanted {
                let found = tensors.iter().find(|(name, _)| *name == choice.name).ok_or_else(|| {
                    let known: Vec<&str> = tensors.iter().map(|(name, _)| *name).collect();
                    let reason = format!("{:?} is not there; these inputs give {}", choice.name, known.join(", "));
                    Problem::invalid("outputs", reason)
                })?;
                put(found.0, &found.1, flag(&choice.parameters, "binary_data").unwrap_or(all_binary));
            }
        }
    }
    let response = InferResponse { model_name: model.to_owned(), model_version: "1", id: request.id.clone(), outputs };
    let mut body = json_bytes(&response)?;
    let json_length = (!tail.is_empty()).then_some(body.len());
    tail.iter().for_each(|bytes| body.extend(bytes));
    Ok((body, json_length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(datatype: &str, shape: Vec<u64>, data: Option<Value>, size: Option<u64>) -> InputTensor {
        let parameters = size.map(|size| Map::from_iter([("binary_data_size".to_owned(), size.into())]));
        InputTensor {
            name: "x".to_owned(),
            datatype: datatype.to_owned(),
            shape,
            data,
            parameters: parameters.unwrap_or_default(),
        }
    }

    #[test]
    fn bytes_come_back_as_they_went_and_broken_ones_are_refused() {
        let sent = Tensor::Bytes { shape: vec![2], values: vec!["ab".into(), "".into()], is_json: false }.bytes();
        assert_eq!(sent, [2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]);
        let mut tail = Bytes::from(sent.clone());
        let Ok(Tensor::Bytes { values, .. }) = take_input(&input("BYTES", vec![2], None, Some(10)), &mut tail) else {
            panic!("not bytes")
        };
        assert_eq!(values, [Bytes::from("ab"), Bytes::new()]);
        assert!(tail.is_empty());
        for cut in 1..sent.len() {
            let mut tail = Bytes::from(sent[..cut].to_vec());
            assert!(take_input(&input("BYTES", vec![2], None, Some(cut as u64)), &mut tail).is_err(), "{cut}");
        }
        assert!(take_input(&input("BYTES", vec![1], None, Some(99)), &mut Bytes::new()).is_err());
        assert!(take_input(&input("UINT8", vec![u64::MAX, 2], Some(json!([1])), None), &mut Bytes::new()).is_err());
        assert!(take_input(&input("UINT8", vec![1], Some(json!([256])), None), &mut Bytes::new()).is_err());
        assert!(take_input(&input("FP32", vec![1], Some(json!([0.5])), None), &mut Bytes::new()).is_err());
    }

    #[test]
    fn pixels_become_pictures_of_their_shape() {
        let two = pictures(&[2, 1, 2, 3], &(0..12).collect::<Vec<u8>>(), 10).unwrap();
        assert_eq!((two.len(), two[1].width, two[1].rgb[0]), (2, 2, 6));
        assert!(pictures(&[1, 1, 4], &[0; 4], 10).is_err());
        assert_eq!(pictures(&[4, 4, 3], &[0; 48], 10).unwrap_err().status, 413);
    }
}
