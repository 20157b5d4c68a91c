//! Converts the nodes of a pickle to values: recognises tensors, parameters, modules and state dicts.

use super::bytes::{Bytes, Dtype, Stored, bad};
use super::pickle::{Graph, Id, Node};
use super::torch_file::Value;
use crate::{Error, Result};
use std::path::Path;

/// How deep modules and dictionaries may nest. CLIP needs eight levels.
const MAX_DEPTH: usize = 64;
/// Maximum values in the tree per byte of the pickle. A value takes at least one byte; shared containers count every time
/// they occur, so that a small pickle cannot expand to a huge tree.
const VALUES_PER_BYTE: usize = 4;
const FREE_VALUES: usize = 4_096;
/// Maximum bytes of text in the tree per byte of the pickle: a reference to an earlier text takes two bytes.
const TEXT_PER_BYTE: usize = 64;
const FREE_TEXT: usize = 1 << 20;

/// A storage, as described by a persistent identifier.
pub(super) struct StorageId {
    pub(super) key: String,
    pub(super) dtype: Dtype,
    elements: u64,
}

impl StorageId {
    /// `("storage", torch.FloatStorage, key, device, elements)`, followed by `None` in the older format.
    pub(super) fn parse(graph: &Graph, node: &Node) -> Option<Self> {
        let Node::Persistent(id) = node else { return None };
        let Node::Tuple(items) = graph.node(*id) else { return None };
        let [kind, class, key, _device, elements, view @ ..] = items.as_slice() else { return None };
        if *graph.node(*kind) != Node::Text("storage".into()) || view.iter().any(|&v| *graph.node(v) != Node::None) {
            return None;
        }
        let Node::Global(class) = graph.node(*class) else { return None };
        let dtype = match class.strip_prefix("torch.")? {
            "storage.UntypedStorage" => Dtype::U8,
            class => Dtype::of_torch(class)?,
        };
        let Node::Int(elements) = graph.node(*elements) else { return None };
        Some(Self { key: text(graph.node(*key))?, dtype, elements: u64::try_from(*elements).ok()? })
    }

    /// The file must have exactly the size that the pickle declares.
    pub(super) fn check(&self, path: &Path, len: u64) -> Result<()> {
        if self.elements.checked_mul(self.dtype.size() as u64) == Some(len) {
            return Ok(());
        }
        let claim = format!("{} numbers of {}", self.elements, self.dtype.name());
        Err(bad(path, format!("storage `{}` claims {claim}, the file holds {len} bytes for it", self.key)))
    }
}

/// A key as text.
pub(super) fn text(node: &Node) -> Option<String> {
    match node {
        Node::Text(text) => Some(text.clone()),
        Node::Int(n) => Some(n.to_string()),
        _ => None,
    }
}

/// Builds the tree of one graph.
pub(super) struct Tree<'a> {
    path: &'a Path,
    graph: &'a Graph,
    find: &'a dyn Fn(&StorageId) -> Result<Bytes>,
    values_left: usize,
    text_left: usize,
}

impl<'a> Tree<'a> {
    pub(super) fn new(path: &'a Path, graph: &'a Graph, find: &'a dyn Fn(&StorageId) -> Result<Bytes>) -> Self {
        let values_left = budget(graph, VALUES_PER_BYTE, FREE_VALUES);
        let text_left = budget(graph, TEXT_PER_BYTE, FREE_TEXT);
        Self { path, graph, find, values_left, text_left }
    }

    pub(super) fn root(mut self) -> Result<Value> {
        self.value(self.graph.root, 0)
    }

    fn value(&mut self, id: Id, depth: usize) -> Result<Value> {
        self.values_left = self.values_left.checked_sub(1).ok_or_else(|| {
            let allowed = budget(self.graph, VALUES_PER_BYTE, FREE_VALUES);
            limit(self.path, "values (shared ones count each time)", allowed)
        })?;
        if depth > MAX_DEPTH {
            return Err(limit(self.path, "levels of nesting (or an object that contains itself)", MAX_DEPTH));
        }
        Ok(match self.graph.node(id) {
            Node::None | Node::Int(_) | Node::Text(_) | Node::Other | Node::Global(_) | Node::Persistent(_) => {
                Value::None
            }
            Node::List(items) | Node::Tuple(items) => {
                Value::List(items.iter().map(|&item| self.value(item, depth + 1)).collect::<Result<_>>()?)
            }
            Node::Dict(pairs) => Value::Dict(self.entries(pairs, depth)?),
            Node::Object { callable, args, state } => self.object(*callable, *args, *state, depth)?,
        })
    }

    fn entries(&mut self, pairs: &[(Id, Id)], depth: usize) -> Result<Vec<(String, Value)>> {
        let mut out = Vec::new();
        for &(key, value) in pairs {
            // Entries whose keys are neither text nor integers are not needed from a checkpoint.
            if let Some(key) = text(self.graph.node(key)) {
                self.text_left = self.text_left.checked_sub(key.len()).ok_or_else(|| {
                    let allowed = budget(self.graph, TEXT_PER_BYTE, FREE_TEXT);
                    limit(self.path, "bytes of text (shared ones count each time)", allowed)
                })?;
                out.push((key, self.value(value, depth + 1)?));
            }
        }
        Ok(out)
    }

    fn object(&mut self, callable: Id, args: Id, state: Option<Id>, depth: usize) -> Result<Value> {
        let Node::Global(class) = self.graph.node(callable) else { return Ok(Value::None) };
        let args = match self.graph.node(args) {
            Node::Tuple(args) => args.as_slice(),
            _ => &[],
        };
        match (class.as_str(), args) {
            ("torch._utils._rebuild_tensor" | "torch._utils._rebuild_tensor_v2", _) => self.tensor(args),
            ("torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state", [inner, ..]) => {
                self.value(*inner, depth + 1)
            }
            // (function, type, arguments, state): a tensor of a subclass.
            ("torch._tensor._rebuild_from_type_v2", [function, _, inner, ..]) => {
                self.object(*function, *inner, None, depth + 1)
            }
            // A module or another object.
            _ => match state.map(|id| self.graph.node(id)) {
                Some(Node::Dict(pairs)) => Ok(Value::Dict(self.entries(pairs, depth)?)),
                _ => Ok(Value::Dict(Vec::new())),
            },
        }
    }

    /// `(storage, first element, sizes, strides, ..)`.
    fn tensor(&self, args: &[Id]) -> Result<Value> {
        let damaged = || bad(self.path, "damaged: a tensor whose storage, size or strides cannot be read");
        let [storage, first, shape, strides, ..] = args else { return Err(damaged()) };
        let storage = StorageId::parse(self.graph, self.graph.node(*storage)).ok_or_else(damaged)?;
        let Node::Int(first) = self.graph.node(*first) else { return Err(damaged()) };
        let stored = Stored {
            name: storage.key.clone(),
            dtype: storage.dtype,
            shape: self.sizes(*shape).ok_or_else(damaged)?,
            bytes: (self.find)(&storage)?,
            first: usize::try_from(*first).map_err(|_| damaged())?,
            strides: Some(self.sizes(*strides).ok_or_else(damaged)?),
        };
        if stored.strides.as_ref().is_some_and(|strides| strides.len() != stored.shape.len()) {
            return Err(damaged());
        }
        Ok(Value::Tensor(stored))
    }

    fn sizes(&self, id: Id) -> Option<Vec<usize>> {
        let mut node = self.graph.node(id);
        // `torch.Size((..))` holds a plain tuple.
        if let Node::Object { args, .. } = node {
            let Node::Tuple(args) = self.graph.node(*args) else { return None };
            node = self.graph.node(*args.first()?);
        }
        let (Node::Tuple(items) | Node::List(items)) = node else { return None };
        let size = |id: &Id| match self.graph.node(*id) {
            Node::Int(n) => usize::try_from(*n).ok(),
            _ => None,
        };
        items.iter().map(size).collect()
    }
}

fn budget(graph: &Graph, per_byte: usize, free: usize) -> usize {
    graph.consumed.saturating_mul(per_byte).saturating_add(free)
}

fn limit(path: &Path, what: &str, allowed: usize) -> Error {
    Error::Limit {
        what: format!("{}: {what}", path.display()),
        asked: allowed as u64 + 1,
        allowed: allowed as u64,
        hint: "no checkpoint needs that; the file is damaged or hostile".into(),
    }
}
