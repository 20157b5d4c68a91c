//! Prompt files: one safetensors file, its metadata one JSON document under the key `flatclip`.

use super::{Affine, Prompt, PromptContent, Provenance, Tensor};
use crate::error::quoted;
use crate::model::{Context, Position};
use crate::weights::{self, torch_file};
use crate::{Error, Hint, Result, files, sealed};
use flatclip_tensor::Matrix;
use safetensors::tensor::Dtype;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the layout described here.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    #[serde(flatten)]
    kind: Kind,
    provenance: Provenance,
}

/// What of a prompt is not an array.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Kind {
    Templates { templates: Vec<String> },
    Learned { words: String, position: Position },
    Features,
    Cocoop { words: String },
    Maple { words: String, tail: String },
    TipAdapter { labels: Vec<usize>, alpha: f32, beta: f32, templates: Vec<String> },
    Linear { alpha: f32, templates: Vec<String> },
}

impl Prompt {
    /// The file's bytes; the same prompt gives the same bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (kind, tensors) = split(&self.content);
        let header = Header { format: FORMAT, kind, provenance: self.provenance.clone() };
        let json = serde_json::to_string(&header).map_err(|e| self.fault(format!("metadata: {e}")))?;
        // One entry only: the order of several would change from run to run.
        encode_arrays(&tensors, &json).map_err(|reason| self.fault(reason))
    }

    /// Writes the prompt: the file is complete or absent.
    pub fn save(&self, path: &Path) -> Result<()> {
        files::write_atomic(path, &self.to_bytes()?)
    }

    /// Reads a prompt file, or `prompt.safetensors` in a run directory.
    pub fn load(path: &Path) -> Result<Self> {
        let path = if path.is_dir() { path.join("prompt.safetensors") } else { path.to_path_buf() };
        let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
        Self::from_bytes(&bytes, &path)
    }

    /// Reads the bytes of a prompt file; `path` is for messages.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self> {
        let fault = |reason: String| Error::Prompt { path: path.to_path_buf(), reason };
        if torch_file::looks_like_torch(bytes) {
            let reason = "expected a prompt file, found a torch file, which has to be imported first";
            return Err(fault(reason.into()).with_hint(Hint::ImportPrompt));
        }
        let (tensors, json) = decode_arrays(bytes).map_err(fault)?;
        let json = json.ok_or_else(|| {
            fault("expected a prompt file, found a safetensors file without flatclip metadata".into())
                .with_hint(Hint::ImportPrompt)
        })?;
        let header: Header = serde_json::from_str(&json).map_err(|e| fault(format!("metadata: {e}")))?;
        if header.format != FORMAT {
            return Err(fault(format!("prompt format {}, this version reads {FORMAT}", header.format)));
        }
        let content = Arrays(&tensors).join(header.kind).map_err(fault)?;
        Ok(Self { content, provenance: header.provenance, path: path.to_path_buf() })
    }
}

/// Arrays and one metadata document to safetensors bytes with a digest.
pub fn encode_arrays(tensors: &[Tensor], json: &str) -> Result<Vec<u8>, String> {
    sealed::seal(entries(tensors), json)
}

/// The same for other programs, without the digest.
pub fn encode_plain(tensors: &[Tensor], json: &str) -> Result<Vec<u8>, String> {
    sealed::write(&entries(tensors), json)
}

fn entries(tensors: &[Tensor]) -> Vec<sealed::Entry<'_>> {
    let mut entries = Vec::with_capacity(tensors.len());
    for Tensor { name, shape, values } in tensors {
        let bytes = bytemuck::cast_slice(values);
        entries.push(sealed::Entry { name: name.clone(), dtype: Dtype::F32, shape: shape.clone(), bytes });
    }
    entries
}

/// The reverse of [`encode_arrays`]; the document is absent in files of others.
pub fn decode_arrays(bytes: &[u8]) -> Result<(Vec<Tensor>, Option<String>), String> {
    let (views, json) = sealed::open(bytes)?;
    let mut tensors = Vec::new();
    for (name, view) in views {
        if view.dtype() != Dtype::F32 {
            return Err(format!("tensor `{}` has type {:?}, expected F32", quoted(&name), view.dtype()));
        }
        tensors.push(Tensor::new(name, view.shape().to_vec(), weights::Dtype::F32.decode(view.data())));
    }
    Ok((tensors, json))
}

/// A prompt as metadata and arrays.
fn split(content: &PromptContent) -> (Kind, Vec<Tensor>) {
    match content {
        PromptContent::Templates(templates) => (Kind::Templates { templates: templates.clone() }, Vec::new()),
        PromptContent::Learned { context, words, position } => {
            (Kind::Learned { words: words.clone(), position: *position }, vec![context_tensor(context)])
        }
        PromptContent::Features(features) => (Kind::Features, vec![Tensor::matrix("features", features)]),
        PromptContent::CoCoOp { context, words, meta } => {
            let mut tensors = vec![context_tensor(context)];
            tensors.extend(meta[0].tensors("meta_net.linear1").into_iter().chain(meta[1].tensors("meta_net.linear2")));
            (Kind::Cocoop { words: words.clone() }, tensors)
        }
        PromptContent::Maple { context, words, tail, deep, projections } => {
            let mut tensors = vec![context_tensor(context)];
            tensors.extend(deep.iter().enumerate().map(|(i, matrix)| Tensor::matrix(format!("deep.{i}"), matrix)));
            tensors.extend(
                projections.iter().enumerate().flat_map(|(i, layer)| layer.tensors(&format!("projections.{i}"))),
            );
            (Kind::Maple { words: words.clone(), tail: tail.clone() }, tensors)
        }
        PromptContent::TipAdapter { keys, labels, alpha, beta, templates } => {
            let kind =
                Kind::TipAdapter { labels: labels.clone(), alpha: *alpha, beta: *beta, templates: templates.clone() };
            (kind, vec![Tensor::matrix("keys", keys)])
        }
        PromptContent::Linear { layer, alpha, templates } => {
            (Kind::Linear { alpha: *alpha, templates: templates.clone() }, layer.tensors("linear").into())
        }
    }
}

fn context_tensor(context: &Context) -> Tensor {
    Tensor::new("context", context.shape(), context.data.clone())
}

/// Context, deep prompts, projections.
type MapleArrays = (Context, Vec<Matrix>, Vec<Affine>);

/// Arrays by name: those of a file, of a foreign checkpoint, or what a tuner trains.
pub struct Arrays<'a>(pub &'a [Tensor]);

impl Arrays<'_> {
    fn join(self, kind: Kind) -> Result<PromptContent, String> {
        self.finite()?;
        Ok(match kind {
            Kind::Templates { templates } => PromptContent::Templates(templates),
            Kind::Learned { words, position } => {
                PromptContent::Learned { context: self.context("context")?, words, position }
            }
            Kind::Features => PromptContent::Features(self.matrix("features")?),
            Kind::Cocoop { words } => {
                let meta = [self.affine("meta_net.linear1")?, self.affine("meta_net.linear2")?];
                PromptContent::CoCoOp { context: self.shared_context("context")?, words, meta }
            }
            Kind::Maple { words, tail } => {
                let deep = self.numbered("deep", |name| self.matrix(name))?;
                let projections = (0..=deep.len()).map(|i| self.affine(&format!("projections.{i}")));
                let projections = projections.collect::<Result<_, _>>()?;
                PromptContent::Maple { context: self.shared_context("context")?, words, tail, deep, projections }
            }
            Kind::TipAdapter { labels, alpha, beta, templates } => {
                let keys = self.matrix("keys")?;
                if keys.rows() != labels.len() {
                    return Err(format!("{} keys and {} labels", keys.rows(), labels.len()));
                }
                PromptContent::TipAdapter { keys, labels, alpha, beta, templates }
            }
            Kind::Linear { alpha, templates } => {
                PromptContent::Linear { layer: self.affine("linear")?, alpha, templates }
            }
        })
    }

    /// Refuses values that are not finite.
    pub(crate) fn finite(&self) -> Result<(), String> {
        match self.0.iter().find(|t| t.values.iter().any(|x| !x.is_finite())) {
            Some(tensor) => Err(format!("tensor `{}` holds values that are not finite", tensor.name)),
            None => Ok(()),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Tensor, String> {
        self.0.iter().find(|t| t.name == name).ok_or_else(|| {
            let found: Vec<&str> = self.0.iter().map(|t| t.name.as_str()).take(8).collect();
            format!("tensor `{name}` is missing; found {}", found.join(", "))
        })
    }

    /// `[tokens, width]` or `[classes, tokens, width]`.
    pub fn context(&self, name: &str) -> Result<Context, String> {
        let tensor = self.get(name)?;
        match *tensor.shape.as_slice() {
            [tokens, width] if tokens * width > 0 => Ok(Context::shared(tokens, width, tensor.values.clone())),
            [classes, tokens, width] if classes * tokens * width > 0 => {
                Ok(Context::per_class(classes, tokens, width, tensor.values.clone()))
            }
            _ => Err(format!(
                "tensor `{name}` has shape {:?}, expected [n_ctx, width] or [K, n_ctx, width]",
                tensor.shape
            )),
        }
    }

    /// A context of this name that all classes share.
    pub fn shared_context(&self, name: &str) -> Result<Context, String> {
        let context = self.context(name)?;
        match context.classes {
            None => Ok(context),
            Some(_) => Err(format!("tensor `{name}` is class-specific, expected [n_ctx, width]")),
        }
    }

    pub(crate) fn matrix(&self, name: &str) -> Result<Matrix, String> {
        let tensor = self.get(name)?;
        match *tensor.shape.as_slice() {
            [rows, cols] => Ok(Matrix::from_vec(rows, cols, tensor.values.clone())),
            _ => Err(format!("tensor `{name}` has shape {:?}, expected two dimensions", tensor.shape)),
        }
    }

    /// A linear layer of this name.
    pub fn affine(&self, name: &str) -> Result<Affine, String> {
        let weight = self.matrix(&format!("{name}.weight"))?;
        let bias = self.get(&format!("{name}.bias"))?.values.clone();
        if bias.len() != weight.rows() {
            return Err(format!("`{name}`: {} biases for {} outputs", bias.len(), weight.rows()));
        }
        Ok(Affine { weight, bias })
    }

    /// A MaPLe prompt: its context, its deep prompts `deep.0`, ..., and their projections `proj`, `later.0`, ...
    pub(crate) fn maple(&self, context: &str, deep: &str, later: &str) -> Result<MapleArrays, String> {
        let deep = self.numbered(deep, |name| self.matrix(name))?;
        let later = (0..deep.len()).map(|index| format!("{later}.{index}"));
        let projections = std::iter::once("proj".to_owned()).chain(later).map(|name| self.affine(&name));
        Ok((self.shared_context(context)?, deep, projections.collect::<Result<_, _>>()?))
    }

    /// `name.0`, `name.1`, ... as long as there are any.
    pub(crate) fn numbered<T>(&self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
        let exists = |full: &str| self.0.iter().any(|t| t.name == full);
        (0..).map(|i| format!("{name}.{i}")).take_while(|full| exists(full)).map(|full| read(&full)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::class_hash;
    use super::*;

    fn kinds() -> Vec<PromptContent> {
        let matrix = |rows, cols| Matrix::from_vec(rows, cols, (0..rows * cols).map(|i| i as f32 - 2.5).collect());
        let affine = |rows, cols| Affine { weight: matrix(rows, cols), bias: vec![0.5; rows] };
        let context = Context::shared(2, 3, vec![1.0, 2.0, 3.0, 4.0, 5.0, -6.5]);
        let own = Context::per_class(2, 1, 3, vec![0.5; 6]);
        let (words, templates) = ("a photo".to_owned(), vec!["a {}.".to_owned()]);
        let (tail, deep, projections) = ("of a".into(), vec![matrix(2, 3); 2], vec![affine(5, 3); 3]);
        let (keys, labels) = (matrix(3, 4), vec![0, 1, 1]);
        vec![
            PromptContent::Templates(templates.clone()),
            PromptContent::Learned { context: context.clone(), words: words.clone(), position: Position::Middle },
            PromptContent::Learned { context: own, words: String::new(), position: Position::End },
            PromptContent::Features(matrix(2, 4)),
            PromptContent::CoCoOp {
                context: context.clone(),
                words: words.clone(),
                meta: [affine(2, 4), affine(3, 2)],
            },
            PromptContent::Maple { context, words, tail, deep, projections },
            PromptContent::TipAdapter { keys, labels, alpha: 1.0, beta: 5.5, templates: templates.clone() },
            PromptContent::Linear { layer: affine(2, 4), alpha: 0.1, templates },
        ]
    }

    #[test]
    fn every_kind_survives_its_file_and_gives_the_same_bytes_again() {
        let folder = tempfile::tempdir().unwrap();
        for kind in kinds() {
            let classes = vec!["cat".to_owned(), "dog".to_owned()];
            let provenance =
                Provenance { method: "sapt".into(), class_hash: class_hash(&classes), classes, ..Default::default() };
            let prompt = Prompt::new(kind, provenance);
            prompt.save(&folder.path().join("prompt.safetensors")).unwrap();
            let loaded = Prompt::load(folder.path()).unwrap();
            assert_eq!((&loaded.content, &loaded.provenance), (&prompt.content, &prompt.provenance));
            assert_eq!(loaded.to_bytes().unwrap(), prompt.to_bytes().unwrap());
        }
    }

    #[test]
    fn a_class_list_is_refused_only_where_the_prompt_is_tied_to_its_own() {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<String>>();
        let own = list(&["cat", "dog"]);
        let provenance = Provenance { class_hash: class_hash(&own), classes: own.clone(), ..Default::default() };
        for kind in kinds() {
            let prompt = Prompt::new(kind, provenance.clone());
            prompt.check_classes(&own).unwrap();
            let free = match &prompt.content {
                PromptContent::Learned { context, .. } => context.classes.is_none(),
                PromptContent::Features(_) | PromptContent::TipAdapter { .. } | PromptContent::Linear { .. } => false,
                _ => true,
            };
            for other in [list(&["cat", "dog", "hen"]), list(&["dog", "cat"])] {
                let verdict = prompt.check_classes(&other);
                assert_eq!(verdict.is_ok(), free, "{}", prompt.kind());
                if let Err(error) = verdict {
                    assert!(error.to_string().contains("made for 2 classes (cat, dog"), "{error}");
                }
            }
        }
    }

    #[test]
    fn damaged_and_foreign_files_are_explained() {
        let prompt = Prompt::new(kinds().remove(1), Provenance::default());
        let bytes = prompt.to_bytes().unwrap();
        let fault = |bytes: &[u8]| Prompt::from_bytes(bytes, Path::new("p.safetensors")).unwrap_err().to_string();
        for cut in 0..bytes.len() {
            assert!(fault(&bytes[..cut]).starts_with("p.safetensors: "), "cut at {cut}");
        }
        let foreign = safetensors::serialize(Vec::<(&str, safetensors::tensor::TensorView<'_>)>::new(), None).unwrap();
        assert!(fault(&foreign).contains("without flatclip metadata"));
        let context = Tensor::new("context", vec![1], vec![f32::NAN]);
        let json = r#"{"format":1,"kind":"learned","words":"","position":"end","provenance":{}}"#;
        assert!(fault(&encode_arrays(&[context], json).unwrap()).contains("not finite"));
        assert!(fault(&encode_arrays(&[], json).unwrap()).contains("`context` is missing"));
        assert!(fault(&encode_arrays(&[], &json.replace(":1,", ":9,")).unwrap()).contains("prompt format 9"));
    }
}
