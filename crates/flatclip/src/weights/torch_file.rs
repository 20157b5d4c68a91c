//! Files that torch writes: `torch.save` (zip, and the older stream of pickles) and TorchScript archives, as a tree of
//! values and tensors. Tensors are read on demand.

use super::bytes::{Bytes, Packing, Source, Stored, bad};
use super::pickle::{self, Graph, Node};
use super::torch_tree::{StorageId, Tree, text};
use super::zip::Archive;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Maximum size of the pickle in a file; tensors are stored outside of it.
const MAX_PICKLE: u64 = 64 << 20;
/// Magic number of the older format.
const LEGACY_MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// A value of a torch file.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A value without tensors: numbers, texts, `None`.
    None,
    /// A list or tuple.
    List(Vec<Value>),
    /// A dictionary with text keys (other keys are written as text), or the attributes of an object, in the file's order.
    Dict(Vec<(String, Value)>),
    /// A tensor or parameter.
    Tensor(Stored),
}

impl Value {
    /// The entry of a dictionary or the attribute of an object.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.entries()?.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Entries of a dictionary or attributes of an object.
    pub(crate) fn entries(&self) -> Option<&[(String, Value)]> {
        if let Self::Dict(entries) = self { Some(entries) } else { None }
    }

    /// The state dict inside: this value, or its entry `state_dict` (or `model`, `model_state_dict`) as training code wraps it.
    pub(crate) fn state_dict(&self) -> &Value {
        let wrapped = ["state_dict", "model_state_dict", "model"].iter().find_map(|key| self.get(key));
        wrapped.filter(|value| value.entries().is_some_and(|e| !e.is_empty())).unwrap_or(self)
    }

    /// All tensors below this value, under their dotted names.
    pub(crate) fn tensors(&self) -> Vec<Stored> {
        let mut out = Vec::new();
        self.collect("", &mut out);
        out
    }

    fn collect(&self, name: &str, out: &mut Vec<Stored>) {
        if let Self::Tensor(tensor) = self {
            out.push(Stored { name: name.to_owned(), ..tensor.clone() });
        }
        for (key, value) in self.entries().unwrap_or_default() {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            value.collect(&name, out);
        }
    }
}

/// Whether the first bytes of a file are those of a format that [`load`] reads.
pub(crate) fn looks_like_torch(head: &[u8]) -> bool {
    head.starts_with(b"PK\x03\x04") || (head.len() >= 14 && head[0] == 0x80 && head[4..14] == LEGACY_MAGIC)
}

/// Reads a file that `torch.save` or `torch.jit.save` wrote. Nothing in it is executed.
pub(crate) fn load(path: impl AsRef<Path>) -> Result<Value> {
    let path = path.as_ref();
    let source = Source::open(path)?;
    let head = source.read(0, source.len.min(16))?;
    if head.starts_with(b"PK\x03\x04") {
        return load_zip(path);
    }
    if looks_like_torch(&head) {
        return load_legacy(path);
    }
    Err(bad(path, "not a torch file: neither a zip archive nor the older torch.save format"))
}

fn load_zip(path: &Path) -> Result<Value> {
    let archive = Archive::open(path)?;
    let pickle = archive.names().filter(|n| *n == "data.pkl" || n.ends_with("/data.pkl")).min_by_key(|n| n.len());
    let foreign = || bad(path, "a zip archive, but not one that torch wrote: it has no data.pkl");
    let pickle = pickle.ok_or_else(foreign)?;
    let folder = pickle.strip_suffix("data.pkl").unwrap_or_default();
    if let Some(order) = archive.find(&format!("{folder}byteorder"))?
        && order.len < 16
        && order.all()? != b"little"
    {
        return Err(bad(path, "written by a big-endian machine; convert it with torch there"));
    }
    let bytes = archive.find(pickle)?.ok_or_else(|| bad(path, "its data.pkl vanished"))?;
    if bytes.len > MAX_PICKLE {
        let what = format!("{}: bytes of data.pkl", path.display());
        let hint = "tensors belong into storages of their own; save the state dict again".into();
        return Err(Error::Limit { what, asked: bytes.len, allowed: MAX_PICKLE, hint });
    }
    let graph = pickle::read(&bytes.all()?).map_err(|reason| bad(path, reason))?;
    let find = |storage: &StorageId| -> Result<Bytes> {
        let name = format!("{folder}data/{}", storage.key);
        let bytes =
            archive.find(&name)?.ok_or_else(|| bad(path, format!("storage `{name}` is missing from the archive")))?;
        storage.check(path, bytes.len)?;
        Ok(bytes)
    };
    Tree::new(path, &graph, &find).root()
}

/// Consecutive pickles (magic, version, system, object, storage keys), then every storage: count and values.
fn load_legacy(path: &Path) -> Result<Value> {
    let source = Source::open(path)?;
    let bytes = source.read(0, source.len.min(MAX_PICKLE))?;
    let mut at = 0;
    let mut next = || -> Result<Graph> {
        let graph = pickle::read(&bytes[at..]).map_err(|reason| bad(path, reason))?;
        at += graph.consumed;
        Ok(graph)
    };
    let (_magic, _version, _system) = (next()?, next()?, next()?);
    let (object, keys) = (next()?, next()?);
    let storages = legacy_storages(&source, at as u64, &object, &keys)?;
    let find = |storage: &StorageId| {
        storages.get(&storage.key).cloned().ok_or_else(|| bad(path, format!("storage `{}` is missing", storage.key)))
    };
    Tree::new(path, &object, &find).root()
}

/// The position of every storage, in the order of `keys`.
fn legacy_storages(source: &Arc<Source>, start: u64, object: &Graph, keys: &Graph) -> Result<BTreeMap<String, Bytes>> {
    let path = &source.path;
    let ids = object.nodes.iter().filter_map(|node| StorageId::parse(object, node));
    let known: BTreeMap<String, StorageId> = ids.map(|id| (id.key.clone(), id)).collect();
    let Node::List(keys_list) = keys.node(keys.root) else {
        return Err(bad(path, "damaged: the list of storages is not a list"));
    };
    let mut storages = BTreeMap::new();
    let mut at = start;
    for &key in keys_list {
        let key = text(keys.node(key)).ok_or_else(|| bad(path, "damaged: a storage without a name"))?;
        let storage = known.get(&key).ok_or_else(|| bad(path, format!("storage `{key}` belongs to no tensor")))?;
        let count = source.read(at, 8)?.iter().rev().fold(0, |n, &b| (n << 8) | u64::from(b));
        let len = count.saturating_mul(storage.dtype.size() as u64);
        storage.check(path, len)?;
        if (at + 8).checked_add(len).is_none_or(|end| end > source.len) {
            return Err(bad(path, format!("truncated: storage `{key}` has {len} bytes, the file ends before")));
        }
        let bytes = Bytes { source: source.clone(), offset: at + 8, stored: len, len, packing: Packing::Plain };
        storages.insert(key, bytes);
        at += 8 + len;
    }
    Ok(storages)
}
