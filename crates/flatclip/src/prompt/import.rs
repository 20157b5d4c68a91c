//! Prompts that other programs trained: CoOp and CoCoOp checkpoints, MaPLe's whole-model checkpoints, Tip-Adapter's keys.

use super::{Arrays, Prompt, PromptContent, Provenance, Tensor, class_hash, normalise_rows};
use crate::model::Position;
use crate::weights::torch_file;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use std::path::Path;

/// What a foreign file does not say.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Position of the class name in a CoOp prompt (its checkpoints do not record it).
    pub position: Position,
    /// The words a context started from, for the record.
    pub words: String,
    /// The class list, for prompts that are tied to one.
    pub classes: Vec<String>,
    /// Tip-Adapter: images per class, in the order of the classes.
    pub shots: usize,
    /// Tip-Adapter: weight of the cache.
    pub alpha: f32,
    /// Tip-Adapter: sharpness of the cache.
    pub beta: f32,
    /// Tip-Adapter: templates of its classifier.
    pub templates: Vec<String>,
}

/// Reads a foreign prompt; what it is shows in its tensors.
pub fn import(path: &Path, options: &ImportOptions) -> Result<Prompt> {
    let value = torch_file::load(path)?;
    let fault = |reason: String| Error::Prompt { path: path.to_path_buf(), reason };
    // A bare tensor is a key file of Tip-Adapter.
    if let torch_file::Value::Tensor(tensor) = &value {
        return tip_adapter(path, &tensor.shape, tensor.values()?, options);
    }
    let (mut tensors, mut start_token) = (Vec::new(), Vec::new());
    for tensor in value.state_dict().tensors() {
        let name = tensor.name.strip_prefix("module.").unwrap_or(&tensor.name);
        let wanted = name.strip_prefix("prompt_learner.").unwrap_or(name);
        if wanted == "token_prefix" {
            start_token = first_row(&tensor.shape, tensor.values()?).map_err(fault)?;
        }
        // The rest of a whole-model checkpoint, and what depends on the class list it was saved with.
        let skip = ["image_encoder.", "text_encoder.", "token_prefix", "token_suffix", "logit_scale"];
        if skip.iter().any(|s| wanted.starts_with(s)) || tensor.shape.iter().product::<usize>() == 0 {
            continue;
        }
        tensors.push(Tensor::new(wanted, tensor.shape.clone(), tensor.values()?));
    }
    let kind = kind_of(&Arrays(&tensors), options).map_err(fault)?;
    let mut prompt = with_provenance(path, kind, options);
    prompt.provenance.start_token = start_token;
    Ok(prompt)
}

/// The embedding of the start token: the first row of `token_prefix` `[classes, 1, width]`, which is the same for each class.
fn first_row(shape: &[usize], mut values: Vec<f32>) -> Result<Vec<f32>, String> {
    values.truncate(shape.last().copied().unwrap_or(0));
    match values.iter().find(|value| !value.is_finite()) {
        Some(value) => Err(format!("tensor `token_prefix` holds {value}; the checkpoint is damaged")),
        None => Ok(values),
    }
}

fn kind_of(arrays: &Arrays<'_>, options: &ImportOptions) -> Result<PromptContent, String> {
    arrays.finite()?;
    let has = |name: &str| arrays.0.iter().any(|t| t.name == name);
    let words = options.words.clone();
    if !has("ctx") {
        let found: Vec<&str> = arrays.0.iter().map(|t| t.name.as_str()).take(6).collect();
        return Err(format!(
            "no `ctx` among its tensors ({}); expected a checkpoint of CoOp, CoCoOp or MaPLe, or Tip-Adapter's keys",
            found.join(", ")
        ));
    }
    if has("meta_net.linear1.weight") {
        let meta = [arrays.affine("meta_net.linear1")?, arrays.affine("meta_net.linear2")?];
        return Ok(PromptContent::CoCoOp { context: arrays.shared_context("ctx")?, words, meta });
    }
    if has("proj.weight") {
        let (context, deep, projections) =
            arrays.maple("ctx", "compound_prompts_text", "compound_prompt_projections")?;
        // The published recipe: two tokens of "a photo of a" are learned, the others stay.
        let tail =
            if context.tokens <= 4 { ["a", "photo", "of", "a"][context.tokens..].join(" ") } else { String::new() };
        let words = if words.is_empty() { "a photo of a".to_owned() } else { words };
        return Ok(PromptContent::Maple { context, words, tail, deep, projections });
    }
    let context = arrays.context("ctx")?;
    if let Some(classes) = context.classes.filter(|k| !options.classes.is_empty() && *k != options.classes.len()) {
        return Err(format!("contexts for {classes} classes, but {} class names were given", options.classes.len()));
    }
    Ok(PromptContent::Learned { context, words, position: options.position })
}

/// Keys `[D, N]` as Tip-Adapter saves its cache, or `[N, D]` as it saves fine-tuned ones; N is a multiple of the classes.
fn tip_adapter(path: &Path, shape: &[usize], values: Vec<f32>, options: &ImportOptions) -> Result<Prompt> {
    let fault = |reason: String| Error::Prompt { path: path.to_path_buf(), reason };
    let images = options.shots * options.classes.len();
    if images == 0 {
        let reason = "Tip-Adapter's keys do not say their classes; pass the class list and the number of shots";
        return Err(fault(reason.into()));
    }
    let mut keys = match *shape {
        [rows, cols] if rows == images => Matrix::from_vec(rows, cols, values),
        [rows, cols] if cols == images => Matrix::from_vec(rows, cols, values).transpose(),
        _ => {
            return Err(fault(format!(
                "a tensor of shape {shape:?}; expected [D, {images}] or [{images}, D] for {} shots of {} classes",
                options.shots,
                options.classes.len()
            )));
        }
    };
    if shape[0] != images {
        // The cache holds unit-norm features; f16 storage has rounded them. Fine-tuned keys are free.
        normalise_rows(&mut keys)?;
    }
    let labels = (0..images).map(|i| i / options.shots).collect();
    let templates =
        if options.templates.is_empty() { vec![Prompt::TEMPLATE.to_owned()] } else { options.templates.clone() };
    let content = PromptContent::TipAdapter { keys, labels, alpha: options.alpha, beta: options.beta, templates };
    Ok(with_provenance(path, content, options))
}

fn with_provenance(path: &Path, content: PromptContent, options: &ImportOptions) -> Prompt {
    let provenance = Provenance {
        method: "import".into(),
        source: path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        class_hash: if options.classes.is_empty() { String::new() } else { class_hash(&options.classes) },
        classes: options.classes.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..Provenance::default()
    };
    Prompt { content, provenance, path: path.to_path_buf() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrays(list: &[(&str, &[usize])]) -> Vec<Tensor> {
        let tensor =
            |(name, shape): &(&str, &[usize])| Tensor::new(*name, shape.to_vec(), vec![0.5; shape.iter().product()]);
        list.iter().map(tensor).collect()
    }

    #[test]
    fn the_tensors_say_what_a_checkpoint_is() {
        let options = ImportOptions::default();
        let kind = |list: &[(&str, &[usize])]| kind_of(&Arrays(&arrays(list)), &options);
        assert!(matches!(kind(&[("ctx", &[4, 8])]), Ok(PromptContent::Learned { .. })));
        let meta = kind(&[
            ("ctx", &[4, 8]),
            ("meta_net.linear1.weight", &[2, 6]),
            ("meta_net.linear1.bias", &[2]),
            ("meta_net.linear2.weight", &[8, 2]),
            ("meta_net.linear2.bias", &[8]),
        ]);
        assert!(matches!(meta, Ok(PromptContent::CoCoOp { .. })));
        let maple = kind(&[
            ("ctx", &[2, 8]),
            ("proj.weight", &[12, 8]),
            ("proj.bias", &[12]),
            ("compound_prompts_text.0", &[2, 8]),
            ("compound_prompt_projections.0.weight", &[12, 8]),
            ("compound_prompt_projections.0.bias", &[12]),
        ]);
        let Ok(PromptContent::Maple { tail, deep, projections, .. }) = maple else { panic!("not MaPLe") };
        assert_eq!((tail.as_str(), deep.len(), projections.len()), ("of a", 1, 2));
        assert!(kind(&[("weight", &[4, 8])]).unwrap_err().contains("no `ctx`"));
    }

    #[test]
    fn the_embedding_of_the_start_token_stays_with_the_prompt() {
        let prompt = import(&crate::files::fixture("torch/coop.pth.tar-50"), &ImportOptions::default()).unwrap();
        assert_eq!(prompt.provenance.start_token, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let again = Prompt::from_bytes(&prompt.to_bytes().unwrap(), Path::new("again")).unwrap();
        assert_eq!(again.provenance, prompt.provenance);
        assert!(first_row(&[1, 1, 2], vec![1.0, f32::NAN]).unwrap_err().contains("token_prefix"));
    }

    #[test]
    fn key_files_need_their_classes_and_come_in_both_orders() {
        let path = Path::new("keys_2shots.pt");
        let classes: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let options = ImportOptions { classes, shots: 2, alpha: 1.0, beta: 5.5, ..ImportOptions::default() };
        for shape in [[4, 6], [6, 4]] {
            let prompt = tip_adapter(path, &shape, vec![0.5; 24], &options).unwrap();
            let PromptContent::TipAdapter { keys, labels, .. } = prompt.content else { panic!("not a cache") };
            assert_eq!((keys.rows(), keys.cols()), (6, 4));
            assert_eq!(labels, [0, 0, 1, 1, 2, 2]);
        }
        assert!(tip_adapter(path, &[5, 4], vec![0.5; 20], &options).is_err());
        assert!(tip_adapter(path, &[6, 4], vec![0.5; 24], &ImportOptions::default()).is_err());
    }
}
