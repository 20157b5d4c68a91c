//! CoOp's pickled few-shot lists (`split_fewshot/shot_16-seed_1.pkl`): a dictionary with `train` and `val`, each a list of Dassl's
//! `Datum` objects. They are read as names and values by the restricted pickle reader; nothing of them is ever run.

use flatclip::weights::pickle::{self, Graph, Id, Node};
use flatclip::{Error, Result};
use std::path::Path;

/// A list of 16 shots of 1000 classes is 2 MB.
const MAX_BYTES: u64 = 64 << 20;

/// The paths of the images that the list `part` (`train` or `val`) names, as its author's machine had them.
pub(crate) fn read_dassl_list(path: &Path, part: &str) -> Result<Vec<String>> {
    let length = std::fs::metadata(path).map_err(Error::io(path))?.len();
    if length > MAX_BYTES {
        let hint = "a few-shot list of CoOp is expected here".to_owned();
        return Err(Error::Limit { what: path.display().to_string(), asked: length, allowed: MAX_BYTES, hint });
    }
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    let bad = |reason: String| Error::Data { path: path.to_path_buf(), reason };
    let graph = pickle::read(&bytes).map_err(bad)?;
    let missing = || bad(format!("not a few-shot list of CoOp: expected a dictionary with a list `{part}` of images"));
    let Some(Node::List(items)) = entry(&graph, graph.root, part).map(|id| graph.node(id)) else {
        return Err(missing());
    };
    let image = |(at, &id): (usize, &Id)| {
        image_path(&graph, id).ok_or_else(|| bad(format!("entry {at} of `{part}` is not a Datum with an image path")))
    };
    items.iter().enumerate().map(image).collect()
}

/// The value of a text key.
fn entry(graph: &Graph, dictionary: Id, key: &str) -> Option<Id> {
    let Node::Dict(entries) = graph.node(dictionary) else { return None };
    let found = entries.iter().find(|(k, _)| matches!(graph.node(*k), Node::Text(text) if text == key));
    found.map(|&(_, value)| value)
}

fn image_path(graph: &Graph, id: Id) -> Option<String> {
    let Node::Object { state: Some(state), .. } = graph.node(id) else { return None };
    match graph.node(entry(graph, *state, "_impath")?) {
        Node::Text(text) => Some(text.replace('\\', "/")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `pickle.dump({"train": [Datum(impath="/x/y/a/1.jpg", label=3)], "val": []}, protocol=4)` writes it.
    fn list(class: &[u8]) -> Vec<u8> {
        let text = |t: &str| [&[0x8c, t.len() as u8], t.as_bytes()].concat();
        let mut bytes = vec![0x80, 4, b'}', b'('];
        bytes.extend(text("train"));
        bytes.extend([b']']);
        bytes.extend(text("dassl.data.datasets.base_dataset"));
        bytes.extend([&[0x8c, class.len() as u8], class, &[0x93, b')', 0x81]].concat());
        bytes.extend([b'}', b'(']);
        bytes.extend([text("_impath"), text("/x/y/a/1.jpg"), text("_label"), vec![b'K', 3]].concat());
        bytes.extend([b'u', b'b', b'a']);
        bytes.extend(text("val"));
        bytes.extend([b']', b'u', b'.']);
        bytes
    }

    #[test]
    fn the_paths_of_a_list_are_read_and_other_classes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shot_1-seed_1.pkl");
        std::fs::write(&path, list(b"Datum")).unwrap();
        assert_eq!(read_dassl_list(&path, "train").unwrap(), ["/x/y/a/1.jpg"]);
        assert!(read_dassl_list(&path, "val").unwrap().is_empty());
        assert!(read_dassl_list(&path, "test").unwrap_err().to_string().contains("`test`"));
        std::fs::write(&path, list(b"Other")).unwrap();
        assert!(read_dassl_list(&path, "train").unwrap_err().to_string().contains("Other"));
        let whole = list(b"Datum");
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(read_dassl_list(&path, "train").is_err(), "cut at {cut}");
        }
    }
}
