//! The tokens of a byte-pair encoding, the pairs that merge, and the files that hold them.

use crate::Result;
use crate::error::unusable_weights as bad;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

pub(super) const SOT: &str = "<|startoftext|>";
pub(super) const EOT: &str = "<|endoftext|>";
pub(super) const END_OF_WORD: &str = "</w>";

pub(super) struct Vocabulary {
    /// Token of each byte inside a word, and at its end.
    inside: [u32; 256],
    last: [u32; 256],
    /// A pair of tokens that merges: its rank and the token it becomes.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Bytes of each token, with a space for the end of a word; empty for the markers.
    pub(super) bytes: Vec<Vec<u8>>,
    pub(super) sot: u32,
    pub(super) eot: u32,
}

/// The pairs of a `merges.txt`.
pub(super) fn merge_pairs(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut pairs = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() || (at == 0 && line.starts_with("#version")) {
            continue;
        }
        let pair = line.split_once(' ').filter(|(left, right)| !left.is_empty() && !right.contains(' '));
        pairs.push(pair.ok_or_else(|| format!("line {} of the merges is not a pair of tokens", at + 1))?);
    }
    Ok(pairs)
}

impl Vocabulary {
    /// Every token must be a byte, a marker or what a merge makes: otherwise the merges are cut off, and words would fall
    /// apart into other tokens than the model has seen.
    pub(super) fn new<'a>(
        ids: HashMap<String, u32>,
        merges: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, String> {
        let id = |name: &str| ids.get(name).copied().ok_or_else(|| format!("the vocabulary has no token {name:?}"));
        let mut made = Self {
            inside: [0; 256],
            last: [0; 256],
            merges: HashMap::new(),
            bytes: vec![Vec::new(); ids.len()],
            sot: id(SOT)?,
            eot: id(EOT)?,
        };
        let symbols = byte_symbols();
        for &(byte, symbol) in &symbols {
            made.inside[usize::from(byte)] = id(&symbol.to_string())?;
            made.last[usize::from(byte)] = id(&format!("{symbol}{END_OF_WORD}"))?;
        }
        let mut known: HashSet<u32> = made.inside.into_iter().chain(made.last).collect();
        for (rank, (left, right)) in merges.enumerate() {
            let new = id(&format!("{left}{right}"))?;
            made.merges.entry((id(left)?, id(right)?)).or_insert((rank as u32, new));
            known.insert(new);
        }
        let bytes: HashMap<char, u8> = symbols.iter().map(|&(byte, symbol)| (symbol, byte)).collect();
        let mut names: Vec<(&String, &u32)> = ids.iter().collect();
        names.sort();
        if names.iter().map(|&(_, id)| id).collect::<BTreeSet<_>>().len() != names.len() {
            return Err("two tokens have the same id".into());
        }
        let is_marker = |name: &str| name.starts_with("<|") && name.ends_with("|>");
        if let Some((name, _)) = names.iter().find(|&&(name, id)| !known.contains(id) && !is_marker(name)) {
            let reason = "the merges are cut off or belong to another vocabulary";
            return Err(format!("no merge makes the token {name:?}; {reason}"));
        }
        for (name, &id) in names {
            let beyond = || format!("token {name:?} has id {id}, but there are only {} tokens", ids.len());
            let place = made.bytes.get_mut(id as usize).ok_or_else(beyond)?;
            if name != SOT && name != EOT {
                let (word, end) = name.strip_suffix(END_OF_WORD).map_or((name.as_str(), false), |w| (w, true));
                *place = word.chars().filter_map(|c| bytes.get(&c).copied()).chain(end.then_some(b' ')).collect();
            }
        }
        Ok(made)
    }

    /// Joins the pair of lowest rank, everywhere in the word, until no pair is known.
    pub(super) fn merge(&self, word: &[u8], out: &mut Vec<u32>) {
        let Some((&last, inside)) = word.split_last() else { return };
        let mut ids: Vec<u32> = inside.iter().map(|&b| self.inside[usize::from(b)]).collect();
        ids.push(self.last[usize::from(last)]);
        loop {
            let pairs = ids.windows(2).map(|pair| (pair[0], pair[1]));
            let ranked = pairs.filter_map(|pair| self.merges.get(&pair).map(|&(rank, new)| (rank, new, pair)));
            let Some((_, new, pair)) = ranked.min() else { break };
            let mut kept = 0;
            let mut at = 0;
            while at < ids.len() {
                let joins = at + 1 < ids.len() && (ids[at], ids[at + 1]) == pair;
                ids[kept] = if joins { new } else { ids[at] };
                at += if joins { 2 } else { 1 };
                kept += 1;
            }
            ids.truncate(kept);
        }
        out.extend(ids);
    }
}

/// Every byte with the printable character that represents it, in the order of the vocabulary.
pub(super) fn byte_symbols() -> Vec<(u8, char)> {
    let printable = |b: &u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let shown = (0..=255u8).filter(printable).map(|b| (b, char::from(b)));
    let rest = (0..=255u8).filter(|b| !printable(b));
    shown.chain(rest.zip('\u{100}'..)).collect()
}

pub(super) fn parse_json(path: &Path) -> Result<serde_json::Value> {
    serde_json::from_str(&crate::files::read_text(path)?).map_err(|e| bad(path, format!("not JSON: {e}")))
}

/// A merge of a `tokenizer.json`: older files write "a b", newer ones ["a", "b"].
pub(super) fn merge_of(value: &serde_json::Value) -> Option<(String, String)> {
    match value {
        serde_json::Value::String(text) => text.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())),
        other => Some((other.get(0)?.as_str()?.to_owned(), other.get(1)?.as_str()?.to_owned())),
    }
}

pub(super) fn vocabulary_of(path: &Path, value: &serde_json::Value) -> Result<HashMap<String, u32>> {
    let wrong = || bad(path, "expected an object of token to id");
    let id = |v: &serde_json::Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
    let entries = value.as_object().ok_or_else(wrong)?.iter();
    entries.map(|(name, v)| Ok((name.clone(), id(v).ok_or_else(wrong)?))).collect()
}
