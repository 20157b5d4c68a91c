//! Texts, names and documentation use the words of the field, one for each idea.

use std::path::{Path, PathBuf};

/// What is not said, and what is said instead.
const REPLACED: [(&str, &str); 22] = [
    ("picture", "image"),
    ("pictures", "images"),
    ("drawn world", "synthetic (pocket) dataset"),
    ("that no step saw", "held-out"),
    ("go on with", "resume with"),
    ("go on without", "skip"),
    ("left out", "skipped"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("spoilt", "broken"),
    ("stands twice", "duplicate"),
    ("stand twice", "duplicate"),
    ("told apart", "no significant difference, or distinguished"),
    ("obstacle", "requirement"),
    ("supply", "capabilities"),
    ("writes the bytes of", "is byte-identical to"),
    ("leads back", "symlink loop"),
    ("as busy as", "at the current load"),
    ("miniature", "toy model"),
    ("desk", "step store"),
    ("shelf", "LRU cache"),
    ("rows of their own", "separate rows"),
];

/// Folders and files that people read; tests and generated data are not among them.
const READ: [&str; 10] = [
    "crates",
    "xtask/src",
    "python/flatclip",
    "python/examples",
    "docs",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "packaging",
];

const ENDINGS: [&str; 9] = ["rs", "md", "py", "pyi", "js", "html", "toml", "yml", "yaml"];

fn collect(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), found);
        }
    } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|&known| ending == known)) {
        found.push(path.to_path_buf());
    }
}

/// Whether `line` has `phrase` as whole words.
fn says(line: &str, phrase: &str) -> bool {
    line.match_indices(phrase).any(|(at, _)| {
        let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !letter(line[..at].chars().next_back()) && !letter(line[at + phrase.len()..].chars().next())
    })
}

#[test]
fn texts_docs_and_names_use_the_words_of_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    READ.iter().for_each(|place| collect(&root.join(place), &mut files));
    assert!(files.len() > 500, "{} files", files.len());
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with("tests/cli/wording.rs")) {
        for (number, line) in std::fs::read_to_string(file).unwrap().to_lowercase().lines().enumerate() {
            if line.ends_with("// a seed, not a word") {
                continue;
            }
            for (phrase, better) in REPLACED.iter().filter(|(phrase, _)| says(line, phrase)) {
                let place = file.strip_prefix(&root).unwrap().display();
                faults.push(format!("{place}:{}: `{phrase}`, say: {better}", number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn whole_words_are_found_and_parts_of_words_are_not() {
    assert!(says("what was left out.", "left out") && says("(desk)", "desk"));
    assert!(!says("recommend it", "mend") && !says("desktop", "desk"));
}
