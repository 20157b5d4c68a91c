//! Tensors of the Open Inference Protocol, as JSON and as bytes.

use crate::answer::json_bytes;
use crate::typed::{Data, Few, MOST_NAMES, Parameters};
use crate::{Limits, Problem};
use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum inputs or outputs of a request; there are four of each.
const MOST_TENSORS: usize = 16;
/// Numbers of a shape.
const MOST_SIDES: usize = 8;

/// A request to run a model.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InferRequest {
    /// Returned with the outputs.
    #[schema(nullable = false)]
    pub(crate) id: Option<String>,
    /// `method`, `template`, `prompt`, `ensemble`, `views`, `seed`, `options` (a text of JSON), `binary_data_output`.
    #[serde(default)]
    #[schema(value_type = std::collections::BTreeMap<String, Value>)]
    pub(crate) parameters: Parameters,
    #[schema(value_type = Vec<InputTensor>)]
    pub(crate) inputs: Few<InputTensor, MOST_TENSORS>,
    /// Which outputs, each once; all by default.
    #[schema(nullable = false, value_type = Option<Vec<OutputChoice>>)]
    pub(crate) outputs: Option<Few<OutputChoice, MOST_TENSORS>>,
}

/// An input.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InputTensor {
    #[schema(example = "text")]
    pub(crate) name: String,
    #[schema(example = "BYTES")]
    pub(crate) datatype: String,
    #[schema(value_type = Vec<u64>, example = json!([1]))]
    pub(crate) shape: Few<u64, MOST_SIDES>,
    /// Values, flat or nested; absent when they follow as bytes.
    #[schema(value_type = Vec<Value>, required = false, nullable = false, example = json!(["a fish"]))]
    pub(crate) data: Option<Data>,
    /// `binary_data_size` when the values follow as bytes.
    #[serde(default)]
    #[schema(value_type = std::collections::BTreeMap<String, Value>)]
    pub(crate) parameters: Parameters,
}

/// A wanted output.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputChoice {
    pub(crate) name: String,
    /// `binary_data` for bytes.
    #[serde(default)]
    #[schema(value_type = std::collections::BTreeMap<String, Value>)]
    pub(crate) parameters: Parameters,
}

/// The result of a model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InferResponse {
    model_name: String,
    model_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    id: Option<String>,
    #[schema(value_type = Vec<Value>)]
    outputs: Vec<Output>,
}

/// One output, written straight from its numbers.
#[derive(Debug, Serialize)]
struct Output {
    name: &'static str,
    datatype: &'static str,
    shape: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<BinarySize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Tensor>,
}

#[derive(Debug, Serialize)]
struct BinarySize {
    binary_data_size: usize,
}

/// Values of one of the types that are taken and given.
#[derive(Debug)]
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

impl Serialize for Tensor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes { values, .. } => {
                serializer.collect_seq(values.iter().map(|value| String::from_utf8_lossy(value)))
            }
            Self::Uint8 { data, .. } => serializer.collect_seq(data.iter()),
            Self::Fp32 { data, .. } => serializer.collect_seq(data.iter().map(|&x| f64::from(x))),
        }
    }
}

/// Reads an input from its JSON, or from the bytes after it.
pub(crate) fn take_input(input: InputTensor, tail: &mut Bytes) -> Result<Tensor, Problem> {
    let InputTensor { name, datatype, shape, data, parameters } = input;
    let wrong = |what: &str| Problem::invalid(&format!("inputs.{name}"), what);
    let size = parameters.0.get("binary_data_size").and_then(|size| size.as_integer());
    let size = size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    let shape: Vec<usize> = shape.0.iter().map(|&side| usize::try_from(side).unwrap_or(usize::MAX)).collect();
    let count = shape.iter().try_fold(1usize, |all, &side| all.checked_mul(side)).unwrap_or(usize::MAX);
    let binary = match size {
        Some(size) if size <= tail.len() => Some(tail.split_to(size)),
        Some(_) => return Err(Problem::malformed("binary_data_size: expected no more bytes than the body has")),
        None => None,
    };
    let tensor = match (datatype.as_str(), binary, data) {
        ("BYTES", Some(bytes), _) => Tensor::Bytes { shape, values: prefixed(bytes)?, is_json: false },
        ("BYTES", None, Some(data)) if data.has_other || !data.bytes.is_empty() => return Err(wrong("expected texts")),
        ("BYTES", None, Some(data)) => Tensor::Bytes { shape, values: data.texts, is_json: true },
        ("UINT8", Some(data), _) => Tensor::Uint8 { shape, data },
        ("UINT8", None, Some(data)) if data.has_other || !data.texts.is_empty() => {
            return Err(wrong("expected numbers from 0 to 255"));
        }
        ("UINT8", None, Some(data)) => Tensor::Uint8 { shape, data: data.bytes.into() },
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

/// Values with their length before each, four bytes, little-endian.
fn prefixed(mut bytes: Bytes) -> Result<Vec<Bytes>, Problem> {
    let cut = || Problem::malformed("BYTES: a length is larger than what follows");
    let mut values = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_le_bytes(*bytes.first_chunk().ok_or_else(cut)?) as usize;
        drop(bytes.split_to(4));
        if length > bytes.len() {
            return Err(cut());
        }
        if values.len() == MOST_NAMES {
            return Err(Problem::too_much("values of a tensor", "more", MOST_NAMES));
        }
        values.push(bytes.split_to(length));
    }
    Ok(values)
}

/// `[H, W, 3]` or `[N, H, W, 3]` bytes as images: width, height and the pixels of each, which stay parts of the body.
pub(crate) fn images(shape: &[usize], mut data: Bytes, limits: &Limits) -> Result<Vec<(usize, usize, Bytes)>, Problem> {
    let (count, height, width) = match *shape {
        [height, width, 3] => (1, height, width),
        [count, height, width, 3] => (count, height, width),
        _ => {
            let reason = format_args!("expected [N, H, W, 3] or [H, W, 3], found {shape:?}");
            return Err(Problem::invalid("pixels", reason));
        }
    };
    if count == 0 || height == 0 || width == 0 {
        return Err(Problem::invalid("pixels", "expected at least one pixel"));
    }
    if count > limits.images {
        return Err(Problem::too_much("images", count, limits.images));
    }
    let pixels = (height as u64).saturating_mul(width as u64);
    if pixels > limits.pixels {
        return Err(Problem::too_much("pixels", pixels, limits.pixels));
    }
    let size = height * width * 3;
    let mut images = Vec::with_capacity(count);
    while data.len() >= size {
        images.push((width, height, data.split_to(size)));
    }
    Ok(images)
}

/// Refuses duplicate outputs: an answer has each of them once, so its size is known.
pub(crate) fn check_outputs(request: &InferRequest) -> Result<(), Problem> {
    let mut seen = Vec::new();
    for name in request.outputs.iter().flat_map(|outputs| &outputs.0).map(|choice| choice.name.as_str()) {
        if seen.contains(&name) {
            return Err(Problem::invalid("outputs", format_args!("{name:?} is a duplicate; name each output once")));
        }
        seen.push(name);
    }
    Ok(())
}

/// The body, and the length of its JSON where bytes follow.
pub(crate) fn render(
    model: &str,
    request: InferRequest,
    mut tensors: Vec<(&'static str, Tensor)>,
) -> Result<(Vec<u8>, Option<usize>), Problem> {
    let flag = |parameters: &Parameters, key: &str| parameters.0.get(key).and_then(|value| value.as_bool());
    let all_binary = flag(&request.parameters, "binary_data_output").unwrap_or(false);
    let (mut outputs, mut tail) = (Vec::new(), Vec::new());
    let mut put = |(name, tensor): (&'static str, Tensor), binary: bool| {
        let (datatype, shape) = (tensor.datatype(), tensor.shape().to_vec());
        let (parameters, data) = if binary {
            let bytes = tensor.bytes();
            let size = BinarySize { binary_data_size: bytes.len() };
            tail.push(bytes);
            (Some(size), None)
        } else {
            (None, Some(tensor))
        };
        outputs.push(Output { name, datatype, shape, parameters, data });
    };
    match &request.outputs {
        None => tensors.into_iter().for_each(|tensor| put(tensor, all_binary)),
        Some(wanted) => {
            let known: Vec<&str> = tensors.iter().map(|(name, _)| *name).collect();
            for choice in &wanted.0 {
                let place = tensors.iter().position(|(name, _)| *name == choice.name).ok_or_else(|| {
                    let reason = format!("{:?} is not there; these inputs give {}", choice.name, known.join(", "));
                    Problem::invalid("outputs", reason)
                })?;
                put(tensors.swap_remove(place), flag(&choice.parameters, "binary_data").unwrap_or(all_binary));
            }
        }
    }
    let response = InferResponse { model_name: model.to_owned(), model_version: "1", id: request.id, outputs };
    let mut body = json_bytes(&response)?;
    let json_length = (!tail.is_empty()).then_some(body.len());
    tail.iter().for_each(|bytes| body.extend(bytes));
    Ok((body, json_length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn input(datatype: &str, shape: Vec<u64>, data: Option<Value>, size: Option<u64>) -> InputTensor {
        let mut input = json!({ "name": "x", "datatype": datatype, "shape": shape });
        if let Some(data) = data {
            input["data"] = data;
        }
        if let Some(size) = size {
            input["parameters"] = json!({ "binary_data_size": size });
        }
        serde_json::from_value(input).unwrap()
    }

    #[test]
    fn bytes_come_back_as_they_went_and_broken_ones_are_refused() {
        let sent = Tensor::Bytes { shape: vec![2], values: vec!["ab".into(), "".into()], is_json: false }.bytes();
        assert_eq!(sent, [2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]);
        let mut tail = Bytes::from(sent.clone());
        let Ok(Tensor::Bytes { values, .. }) = take_input(input("BYTES", vec![2], None, Some(10)), &mut tail) else {
            panic!("not bytes")
        };
        assert_eq!(values, [Bytes::from("ab"), Bytes::new()]);
        assert!(tail.is_empty());
        for cut in 1..sent.len() {
            let mut tail = Bytes::from(sent[..cut].to_vec());
            assert!(take_input(input("BYTES", vec![2], None, Some(cut as u64)), &mut tail).is_err(), "{cut}");
        }
        assert!(take_input(input("BYTES", vec![1], None, Some(99)), &mut Bytes::new()).is_err());
        assert!(take_input(input("UINT8", vec![u64::MAX, 2], Some(json!([1])), None), &mut Bytes::new()).is_err());
        assert!(take_input(input("UINT8", vec![1], Some(json!([256])), None), &mut Bytes::new()).is_err());
        assert!(take_input(input("FP32", vec![1], Some(json!([0.5])), None), &mut Bytes::new()).is_err());
    }

    #[test]
    fn pixels_become_images_of_their_shape() {
        let limits = Limits { pixels: 10, ..Limits::default() };
        let two = images(&[2, 1, 2, 3], (0..12).collect::<Vec<u8>>().into(), &limits).unwrap();
        assert_eq!((two.len(), two[1].0, two[1].2[0]), (2, 2, 6));
        assert!(images(&[1, 1, 4], vec![0; 4].into(), &limits).is_err());
        assert_eq!(images(&[4, 4, 3], vec![0; 48].into(), &limits).unwrap_err().status, 413);
        assert_eq!(images(&[usize::MAX, 1, 1, 3], Bytes::new(), &limits).unwrap_err().status, 413);
    }
}
