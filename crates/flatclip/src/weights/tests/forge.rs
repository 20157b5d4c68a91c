//! Makes weight files for the tests: other encodings of a checkpoint, and broken ones.

use crate::architecture::{ImageConfig, TextConfig, TextForm, VitForm};
use crate::weights::canonical_file::encode;
use crate::weights::{Checkpoint, Dtype, random_of};
use flatclip_tensor::Matrix;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use tempfile::TempDir;

pub(super) use crate::files::fixture;

pub(super) fn tiny_vit() -> Checkpoint {
    Checkpoint::open(fixture("golden/models/tiny-vit.jit.pt")).unwrap()
}

/// A model of 100 kB with random weights, where a test writes many files.
pub(super) fn small() -> Checkpoint {
    let mut config = tiny_vit().config().clone();
    let (width, layers, heads, mlp) = (64, 2, 1, 128);
    config.image = ImageConfig::Vit { width, layers, heads, patch: 8, mlp, form: VitForm::CLIP };
    let form = TextForm::CLIP;
    config.text = Some(TextConfig { width, layers, heads, context_length: 8, vocab: 32, mlp, form });
    random_of(&config, 0)
}

/// Named f32 tensors.
pub(super) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

pub(super) fn tensors(checkpoint: &Checkpoint) -> Tensors {
    checkpoint.names().map(|name| (name.to_owned(), checkpoint.tensor(name).unwrap())).collect()
}

/// A safetensors file of 32-bit floats.
pub(super) fn safetensors(tensors: &Tensors) -> Vec<u8> {
    safetensors_of(tensors, Dtype::F32)
}

/// A safetensors file, written by the format's own library.
pub(super) fn safetensors_of(tensors: &Tensors, dtype: Dtype) -> Vec<u8> {
    use ::safetensors::{Dtype as Stored, tensor::TensorView};
    let stored = match dtype {
        Dtype::F16 => Stored::F16,
        Dtype::Bf16 => Stored::BF16,
        _ => Stored::F32,
    };
    let bytes: Vec<Vec<u8>> = tensors.values().map(|(_, values)| encode(values, dtype)).collect();
    let views = tensors.iter().zip(&bytes);
    let views = views.map(|((name, (shape, _)), bytes)| (name, TensorView::new(stored, shape.clone(), bytes).unwrap()));
    ::safetensors::serialize(views, None).unwrap()
}

/// Writes a file of a folder.
pub(super) fn written(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A name here and in Hugging Face's layout, or a part of it.
const HUGGING_FACE: [(&str, &str); 17] = [
    ("visual.transformer.resblocks", "vision_model.encoder.layers"),
    ("transformer.resblocks", "text_model.encoder.layers"),
    ("visual.positional_embedding", "vision_model.embeddings.position_embedding.weight"),
    ("positional_embedding", "text_model.embeddings.position_embedding.weight"),
    ("token_embedding.weight", "text_model.embeddings.token_embedding.weight"),
    ("visual.class_embedding", "vision_model.embeddings.class_embedding"),
    ("visual.conv1.weight", "vision_model.embeddings.patch_embedding.weight"),
    ("text_projection", "text_projection.weight"),
    ("visual.proj", "visual_projection.weight"),
    ("visual.ln_pre", "vision_model.pre_layrnorm"),
    ("visual.ln_post", "vision_model.post_layernorm"),
    ("ln_final", "text_model.final_layer_norm"),
    (".ln_1", ".layer_norm1"),
    (".ln_2", ".layer_norm2"),
    (".attn.out_proj", ".self_attn.out_proj"),
    (".mlp.c_fc", ".mlp.fc1"),
    (".mlp.c_proj", ".mlp.fc2"),
];

/// The same tensors under Hugging Face's names.
pub(super) fn hugging_face(tensors: &Tensors) -> Tensors {
    let mut out = Tensors::new();
    for (name, (shape, values)) in tensors {
        let theirs = HUGGING_FACE.iter().fold(name.clone(), |name, (ours, theirs)| name.replace(ours, theirs));
        if let Some((layer, kind)) = theirs.split_once(".attn.in_proj_") {
            for (which, part) in ["q", "k", "v"].into_iter().zip(values.chunks(values.len() / 3)) {
                let mut shape = shape.clone();
                shape[0] /= 3;
                out.insert(format!("{layer}.self_attn.{which}_proj.{kind}"), (shape, part.to_vec()));
            }
        } else if theirs.ends_with("_projection.weight") {
            let matrix = Matrix::from_vec(shape[0], shape[1], values.clone()).transpose();
            out.insert(theirs, (vec![shape[1], shape[0]], matrix.into_vec()));
        } else {
            out.insert(theirs, (shape.clone(), values.clone()));
        }
    }
    // Old files carry index tables.
    out.insert("text_model.embeddings.position_ids".into(), (vec![1, 3], vec![0.0, 1.0, 2.0]));
    out
}

/// An entry of a forged zip: name, content, deflated or stored.
pub(super) type ZipEntry = (String, Vec<u8>, bool);

/// Little-endian numbers, each of so many bytes.
fn numbers(list: &[(usize, usize)]) -> Vec<u8> {
    list.iter().flat_map(|&(number, size)| number.to_le_bytes().into_iter().take(size)).collect()
}

/// A zip archive; `claim` may falsify the unpacked length in the directory.
pub(super) fn zip(entries: &[ZipEntry], claim: impl Fn(&str, u32) -> u32) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, content, deflate) in entries {
        let header = numbers(&[(out.len(), 4)]);
        let packed = if *deflate {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        } else {
            content.clone()
        };
        let (crc, claimed) = (crc32fast::hash(content) as usize, claim(name, content.len() as u32) as usize);
        let method = if *deflate { 8 } else { 0 };
        let sizes = [(crc, 4), (packed.len(), 4), (claimed, 4), (name.len(), 2), (0, 2)];
        let fields = [numbers(&[(20, 2), (0, 2), (method, 2), (0, 4)]), numbers(&sizes)].concat();
        out.extend([&b"PK\x03\x04"[..], &fields, name.as_bytes(), &packed].concat());
        directory.extend([&b"PK\x01\x02\x14\x00"[..], &fields, &[0; 10], &header, name.as_bytes()].concat());
    }
    let count = entries.len();
    let end = numbers(&[(count, 2), (count, 2), (directory.len(), 4), (out.len(), 4), (0, 2)]);
    [&out[..], &directory, b"PK\x05\x06\0\0\0\0", &end].concat()
}

/// A `torch.save` archive of a state dict, as torch writes it; `prefix` before every name, `wrap` as training code does.
pub(super) fn torch_zip(tensors: &Tensors, prefix: &str, wrap: bool, deflate: bool) -> Vec<u8> {
    let mut pickle = b"\x80\x02".to_vec();
    if wrap {
        pickle.extend(b"}");
        text(&mut pickle, "state_dict");
    }
    pickle.extend(b"ccollections\nOrderedDict\n)R(");
    let mut entries = Vec::new();
    for (key, (name, (shape, values))) in tensors.iter().enumerate() {
        text(&mut pickle, &format!("{prefix}{name}"));
        pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        text(&mut pickle, "storage");
        pickle.extend(b"ctorch\nFloatStorage\n");
        text(&mut pickle, &key.to_string());
        text(&mut pickle, "cpu");
        int(&mut pickle, values.len());
        pickle.extend(b"tQK\0(");
        shape.iter().for_each(|&d| int(&mut pickle, d));
        pickle.extend(b"t(");
        for i in 0..shape.len() {
            int(&mut pickle, shape[i + 1..].iter().product());
        }
        pickle.extend(b"t\x89ccollections\nOrderedDict\n)RtR");
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        entries.push((format!("archive/data/{key}"), bytes, deflate));
    }
    pickle.extend(b"u");
    if wrap {
        pickle.extend(b"s");
    }
    pickle.extend(b".");
    entries.push(("archive/data.pkl".into(), pickle, deflate));
    zip(&entries, |_, len| len)
}

fn text(pickle: &mut Vec<u8>, text: &str) {
    pickle.push(b'X');
    pickle.extend((text.len() as u32).to_le_bytes());
    pickle.extend(text.as_bytes());
}

fn int(pickle: &mut Vec<u8>, n: usize) {
    pickle.push(b'J');
    pickle.extend((n as u32).to_le_bytes());
}

/// A torch archive around a hand-written pickle.
pub(super) fn torch_zip_of(pickle: &[u8]) -> Vec<u8> {
    zip(&[("archive/data.pkl".into(), pickle.to_vec(), false)], |_, len| len)
}
