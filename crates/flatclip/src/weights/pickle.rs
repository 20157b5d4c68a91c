//! A restricted pickle reader. It builds a graph of plain nodes and never calls anything: a global is a name, and a call
//! is recorded as "this name, these arguments" for `torch_file` (or a reader of CoOp's lists) to recognise. Names outside the
//! allow-list are errors, lengths are checked against the remaining bytes, and the number of nodes is limited.

use super::bytes::{Dtype, signed};
use crate::error::quoted;

/// Real checkpoints have some ten thousand nodes; a training checkpoint with optimizer state some hundred thousand.
pub(crate) const MAX_NODES: usize = 4_000_000;
/// Longest module or class name.
const MAX_NAME: usize = 512;
/// Maximum number of open marks.
const MAX_MARKS: usize = 1_000;

/// A node's number in a [`Graph`].
pub type Id = u32;

/// A value in a pickle. Containers hold node indices, so that shared nodes are stored once and cycles are harmless.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `None`.
    None,
    /// An integer of at most 64 bits.
    Int(i64),
    /// A string.
    Text(String),
    /// A value that no reader needs: a truth value, a float, bytes, a longer integer.
    Other,
    /// A list.
    List(Vec<Id>),
    /// A tuple.
    Tuple(Vec<Id>),
    /// Keys and values, in their order.
    Dict(Vec<(Id, Id)>),
    /// `module.name` of the allow-list.
    Global(String),
    /// An identifier that the container resolves: a torch storage.
    Persistent(Id),
    /// What calling `callable` with `args` would make, with the state that would be set on it.
    Object {
        /// What would be called.
        callable: Id,
        /// With what.
        args: Id,
        /// The state that would be set.
        state: Option<Id>,
    },
}

/// The result: all nodes, and the index of the root.
#[derive(Debug)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// The value.
    pub root: Id,
    /// Bytes of the input that the pickle took.
    pub(crate) consumed: usize,
}

impl Graph {
    /// The node with an index.
    pub fn node(&self, id: Id) -> &Node {
        // Ids are made by `Machine::step` only and nodes are never removed.
        &self.nodes[id as usize]
    }
}

/// Globals that checkpoints refer to. None is ever called; all others are refused.
fn is_allowed(module: &str, name: &str) -> bool {
    match module {
        "torch" => {
            let float = matches!(name, "float32" | "float16" | "bfloat16" | "float64");
            let integer = matches!(name, "int64" | "int32" | "int16" | "int8" | "uint8" | "bool");
            let other = matches!(name, "Size" | "device" | "dtype" | "strided" | "Tensor" | "preserve_format");
            float || integer || other || Dtype::of_torch(name).is_some()
        }
        "torch._utils" => matches!(
            name,
            "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_parameter" | "_rebuild_parameter_with_state"
        ),
        "torch._tensor" => name == "_rebuild_from_type_v2",
        "torch.nn.parameter" => matches!(name, "Parameter" | "Buffer"),
        "torch.storage" => matches!(name, "UntypedStorage" | "TypedStorage" | "_TypedStorage"),
        "torch.serialization" => name == "_get_layout",
        "torch.jit._pickle" => matches!(
            name,
            "build_intlist" | "build_doublelist" | "build_boollist" | "build_tensorlist" | "restore_type_tag"
        ),
        "collections" => matches!(name, "OrderedDict" | "defaultdict" | "Counter"),
        "builtins" | "__builtin__" => {
            matches!(name, "set" | "frozenset" | "dict" | "list" | "int" | "float" | "object")
        }
        "copyreg" | "copy_reg" => name == "_reconstructor",
        "_codecs" => name == "encode",
        "numpy" => matches!(name, "dtype" | "ndarray"),
        "numpy.core.multiarray" | "numpy._core.multiarray" => matches!(name, "scalar" | "_reconstruct"),
        "argparse" => name == "Namespace",
        "dassl.optim.lr_scheduler" => name.ends_with("Scheduler"),
        "dassl.data.datasets.base_dataset" | "dassl.data.datasets" => name == "Datum",
        _ => module == "__torch__" || module.starts_with("__torch__.") || module.starts_with("torch.optim."),
    }
}

/// Reads one pickle from the beginning of `bytes`.
pub fn read(bytes: &[u8]) -> Result<Graph, String> {
    let mut machine =
        Machine { bytes, at: 0, nodes: Vec::new(), stack: Vec::new(), marks: Vec::new(), memo: Vec::new(), copied: 0 };
    loop {
        let at = machine.at;
        let op = machine.byte()?;
        if op == b'.' {
            let root = machine.pop()?;
            return Ok(Graph { nodes: machine.nodes, root, consumed: machine.at });
        }
        machine.step(op).map_err(|reason| format!("pickle, byte {at}: {reason}"))?;
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: Vec<Option<Id>>,
    /// Entries that calls have copied.
    copied: usize,
}

type Step<T = ()> = Result<T, String>;

impl<'a> Machine<'a> {
    fn step(&mut self, op: u8) -> Step {
        let node = match op {
            0x80 => return self.protocol(),
            0x95 => return self.take(8).map(drop), // FRAME: a hint about the bytes that follow
            b'(' => return self.mark(),
            b'0' => return self.pop_or_unmark(),
            b'1' => return self.pop_mark().map(drop),
            b'2' => return self.top().map(|id| self.stack.push(id)),
            b'a' | b'e' | 0x90 => return self.append(op),
            b's' | b'u' => return self.set_items(op),
            b'b' => return self.build(),
            b'p' | b'q' | b'r' | 0x94 => return self.put(op),
            b'g' | b'h' | b'j' => return self.get(op),
            b'N' => Node::None,
            0x88 | 0x89 => Node::Other,
            b'K' => Node::Int(self.number(1)? as i64),
            b'M' => Node::Int(self.number(2)? as i64),
            b'J' => Node::Int(i64::from(self.number(4)? as u32 as i32)),
            b'I' | b'L' => match self.line()?.trim_end_matches('L') {
                "00" | "01" => Node::Other, // truth values
                digits => {
                    Node::Int(digits.parse().map_err(|_| format!("`{digits:.20}` is not an integer of 64 bits"))?)
                }
            },
            0x8a => long(self.counted(1)?),
            0x8b => long(self.counted(4)?),
            b'F' => {
                let line = self.line()?;
                line.parse::<f64>().map(|_| Node::Other).map_err(|_| format!("`{line:.20}` is not a number"))?
            }
            b'G' => self.take(8).map(|_| Node::Other)?,
            b'V' => Node::Text(self.line()?.to_owned()),
            b'S' => Node::Text(self.line()?.trim_matches(['\'', '"']).to_owned()),
            b'U' | b'T' => {
                // Python 2 strings are bytes (numpy scalars in old training checkpoints).
                let bytes = self.counted(if op == b'U' { 1 } else { 4 })?;
                std::str::from_utf8(bytes).map_or(Node::Other, |text| Node::Text(text.to_owned()))
            }
            0x8c => text(self.counted(1)?)?,
            b'X' => text(self.counted(4)?)?,
            0x8d => text(self.counted(8)?)?,
            b'C' => self.counted(1).map(|_| Node::Other)?,
            b'B' => self.counted(4).map(|_| Node::Other)?,
            0x8e | 0x96 => self.counted(8).map(|_| Node::Other)?,
            b')' => Node::Tuple(Vec::new()),
            b't' => Node::Tuple(self.pop_mark()?),
            0x85..=0x87 => Node::Tuple(self.pop_many(usize::from(op - 0x84))?),
            b']' | 0x8f => Node::List(Vec::new()),
            b'l' | 0x91 => Node::List(self.pop_mark()?),
            b'}' => Node::Dict(Vec::new()),
            b'd' => Node::Dict(pairs(&self.pop_mark()?)?),
            b'c' | 0x93 => self.global(op)?,
            b'R' | 0x81 | 0x92 => self.construct(op)?,
            b'Q' => Node::Persistent(self.pop()?),
            _ => return Err(format!("opcode 0x{op:02x} is not one that weight files use")),
        };
        if self.nodes.len() >= MAX_NODES {
            return Err(format!("more than {MAX_NODES} values; a checkpoint has far fewer"));
        }
        self.stack.push(self.nodes.len() as Id);
        self.nodes.push(node);
        Ok(())
    }

    // Input

    fn take(&mut self, len: usize) -> Step<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..len).ok_or_else(|| format!("truncated: {len} bytes wanted, {} left", rest.len()))?;
        self.at += len;
        Ok(taken)
    }

    fn byte(&mut self) -> Step<u8> {
        Ok(self.take(1)?[0])
    }

    /// A little-endian unsigned number of `size` bytes.
    fn number(&mut self, size: usize) -> Step<usize> {
        let value = self.take(size)?.iter().rev().fold(0u64, |n, &b| (n << 8) | u64::from(b));
        usize::try_from(value).map_err(|_| format!("{value} is too large"))
    }

    fn counted(&mut self, size: usize) -> Step<&'a [u8]> {
        let len = self.number(size)?;
        self.take(len)
    }

    fn line(&mut self) -> Step<&'a str> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|&b| b == b'\n').ok_or("truncated: a line without an end")?;
        self.at += end + 1;
        std::str::from_utf8(&rest[..end]).map_err(|_| "a line that is not UTF-8".into())
    }

    // Stack

    /// The number of values above the last mark must be at least `len`.
    fn check_depth(&self, len: usize) -> Step {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() < floor + len { Err("nothing on the stack".into()) } else { Ok(()) }
    }

    fn pop_many(&mut self, len: usize) -> Step<Vec<Id>> {
        self.check_depth(len)?;
        Ok(self.stack.split_off(self.stack.len() - len))
    }

    fn pop(&mut self) -> Step<Id> {
        Ok(self.pop_many(1)?[0])
    }

    fn top(&self) -> Step<Id> {
        self.check_depth(1)?;
        Ok(self.stack[self.stack.len() - 1])
    }

    fn top_node(&mut self) -> Step<&mut Node> {
        let id = self.top()?;
        Ok(&mut self.nodes[id as usize])
    }

    fn mark(&mut self) -> Step {
        if self.marks.len() >= MAX_MARKS {
            return Err(format!("more than {MAX_MARKS} open brackets"));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn pop_mark(&mut self) -> Step<Vec<Id>> {
        let mark = self.marks.pop().ok_or("no open bracket")?;
        Ok(self.stack.split_off(mark))
    }

    fn pop_or_unmark(&mut self) -> Step {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    // Opcodes

    fn protocol(&mut self) -> Step {
        match self.byte()? {
            0..=5 => Ok(()),
            other => Err(format!("protocol {other}; 0 to 5 are known")),
        }
    }

    fn append(&mut self, op: u8) -> Step {
        let items = if op == b'a' { vec![self.pop()?] } else { self.pop_mark()? };
        match self.top_node()? {
            Node::List(list) => list.extend(items),
            // `build_tensorlist` and the like: items appended to an object are not named weights.
            Node::Object { .. } => {}
            _ => return Err("items for something that is not a list".into()),
        }
        Ok(())
    }

    fn set_items(&mut self, op: u8) -> Step {
        let items = if op == b's' { self.pop_many(2)? } else { self.pop_mark()? };
        let new = pairs(&items)?;
        match self.top_node()? {
            Node::Dict(dict) => dict.extend(new),
            Node::Object { .. } => {}
            _ => return Err("entries for something that is not a dictionary".into()),
        }
        Ok(())
    }

    fn global(&mut self, op: u8) -> Step<Node> {
        let (module, name) = if op == b'c' {
            (self.line()?.to_owned(), self.line()?.to_owned())
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            match (&self.nodes[module as usize], &self.nodes[name as usize]) {
                (Node::Text(module), Node::Text(name)) => (module.clone(), name.clone()),
                _ => return Err("a global whose name is not text".into()),
            }
        };
        if module.len() + name.len() > MAX_NAME || !is_allowed(&module, &name) {
            let hint = "flatclip runs no code from files; if the file is yours, save only its state dict";
            let (module, name) = (quoted(&module), quoted(&name));
            return Err(format!("it names the forbidden global `{module}.{name}`; {hint}"));
        }
        Ok(Node::Global(format!("{module}.{name}")))
    }

    /// REDUCE, NEWOBJ, NEWOBJ_EX: recorded, not executed. Only an ordered dictionary is built.
    fn construct(&mut self, op: u8) -> Step<Node> {
        if op == 0x92 {
            self.pop()?; // keyword arguments
        }
        let (args, callable) = (self.pop()?, self.pop()?);
        let Node::Global(name) = &self.nodes[callable as usize] else {
            return Err("a call of something that is not a global".into());
        };
        if matches!(name.as_str(), "collections.OrderedDict" | "collections.defaultdict" | "collections.Counter") {
            let pairs = self.initial_pairs(args);
            // Many calls may refer to one list: the entries they copy count as nodes.
            self.copied += pairs.len();
            if self.copied > MAX_NODES {
                return Err(format!("more than {MAX_NODES} entries; a checkpoint has far fewer"));
            }
            return Ok(Node::Dict(pairs));
        }
        Ok(Node::Object { callable, args, state: None })
    }

    /// Python 2 wrote an ordered dictionary as a call with a list of [key, value] lists.
    fn initial_pairs(&self, args: Id) -> Vec<(Id, Id)> {
        let items = |id: Id| match &self.nodes[id as usize] {
            Node::Tuple(items) | Node::List(items) => items.as_slice(),
            _ => &[],
        };
        let list = items(args).first().map_or(&[][..], |&id| items(id));
        list.iter().filter_map(|&pair| <[Id; 2]>::try_from(items(pair)).ok()).map(|[k, v]| (k, v)).collect()
    }

    fn build(&mut self) -> Step {
        let new = self.pop()?;
        match self.top_node()? {
            Node::Object { state, .. } => *state = Some(new),
            // The `_metadata` of a state dict.
            Node::Dict(_) => {}
            _ => return Err("a state for something that is not an object".into()),
        }
        Ok(())
    }

    fn slot(&mut self, op: u8) -> Step<usize> {
        match op {
            b'p' | b'g' => self.line()?.parse().map_err(|_| "a memo number that is no number".to_owned()),
            b'q' | b'h' => self.number(1),
            b'r' | b'j' => self.number(4),
            _ => Ok(self.memo.len()),
        }
    }

    fn put(&mut self, op: u8) -> Step {
        let slot = self.slot(op)?;
        // Picklers count memo slots up, so a slot is at most the number of opcodes so far.
        if slot > self.at {
            return Err(format!("memo slot {slot} before {} opcodes", self.at));
        }
        if slot >= self.memo.len() {
            self.memo.resize(slot + 1, None);
        }
        self.memo[slot] = Some(self.top()?);
        Ok(())
    }

    fn get(&mut self, op: u8) -> Step {
        let slot = self.slot(op)?;
        let id = self.memo.get(slot).copied().flatten().ok_or_else(|| format!("memo slot {slot} is empty"))?;
        self.stack.push(id);
        Ok(())
    }
}

fn text(bytes: &[u8]) -> Step<Node> {
    std::str::from_utf8(bytes).map(|text| Node::Text(text.to_owned())).map_err(|_| "a text that is not UTF-8".into())
}

fn pairs(items: &[Id]) -> Step<Vec<(Id, Id)>> {
    match items.as_chunks::<2>() {
        (pairs, []) => Ok(pairs.iter().map(|&[k, v]| (k, v)).collect()),
        _ => Err("a dictionary with a key without a value".into()),
    }
}

/// An integer of any length.
fn long(bytes: &[u8]) -> Node {
    if bytes.len() > 8 { Node::Other } else { Node::Int(signed(bytes)) }
}
