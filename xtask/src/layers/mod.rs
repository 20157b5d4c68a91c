//! `cargo xtask layers`: the modules of a library use each other in one direction only.
//!
//! The order is written here once. Every path that starts at the crate root, in `use` lines and in code, is read from the
//! sources and held against it; the table in ARCHITECTURE.md is drawn from what was found.

mod paths;

use anyhow::{Context as _, Result, ensure};
use paths::{paths_of, root_names};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Modules of a library from the lowest to the highest. A module may use those of the steps before its own, and of its own
/// step none but itself.
type Order = &'static [&'static [&'static str]];

/// The libraries, the lower one first; the border between them is checked by the compiler.
const LIBRARIES: [(&str, Order); 2] = [
    (
        "flatclip",
        &[
            &["error"],
            &["digest", "files", "options", "progress", "settings"],
            &["rng", "sealed"],
            &["architecture"],
            &["weights", "text", "image"],
            &["model"],
            &["prompt"],
            &["methods"],
            &["surface"],
            &["classify"],
        ],
    ),
    (
        "flatclip-lab",
        &[
            &["run_dir"],
            &["data"],
            &["tuners"],
            &["catalogue", "train", "eval", "flatness"],
            &["report"],
            &["studies"],
            &["bench"],
            &["reproduce"],
            &["demo"],
        ],
    ),
];

/// Exported macros stand at the crate's root, whatever module declares them.
const MACROS: [(&str, &str); 2] = [("choices", "options"), ("option_group", "options")];

/// The table is between these lines of ARCHITECTURE.md.
const START: &str = "<!-- layers: drawn by `cargo xtask layers --write` -->";
const END: &str = "<!-- /layers -->";

#[derive(clap::Args)]
pub struct Arguments {
    /// Draw the table in ARCHITECTURE.md instead of checking that it is current
    #[arg(long)]
    write: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    check(arguments.write)
}

/// Fails on a back reference, and on a table that is not current unless it may be written.
pub fn check(write: bool) -> Result<()> {
    let root = crate::root()?;
    let mut tables = "| crate | step | module | uses |\n|---|---|---|---|\n".to_owned();
    let mut faults = 0;
    for (library, order) in LIBRARIES {
        let found = scan(&root.join("crates").join(library).join("src"), library, order)?;
        found.faults.iter().for_each(|fault| eprintln!("{fault}"));
        faults += found.faults.len();
        tables += &rows(library, order, &found.uses);
    }
    ensure!(faults == 0, "{faults} faults against the order of the modules");
    let file = root.join("ARCHITECTURE.md");
    let page = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let drawn = with_table(&page, &tables).context("ARCHITECTURE.md has no lines for the table")?;
    if write {
        std::fs::write(&file, drawn)?;
    } else {
        ensure!(page == drawn, "the table in ARCHITECTURE.md is not current; `cargo xtask layers --write` draws it");
    }
    Ok(())
}

/// What the sources use.
#[derive(Default)]
struct Found {
    /// Modules that each module uses.
    uses: BTreeMap<String, BTreeSet<String>>,
    /// One line per back reference, with file and line.
    faults: Vec<String>,
}

/// Reads every source file below `folder`, the `src` of a library.
fn scan(folder: &Path, library: &str, order: Order) -> Result<Found> {
    let lib = std::fs::read_to_string(folder.join("lib.rs")).context("the library has no lib.rs")?;
    let mut names = root_names(&lib);
    names.extend(MACROS.map(|(name, module)| (name.to_owned(), module.to_owned())));
    let mut found = Found::default();
    for (file, module) in sources(folder)? {
        let room = module[0].clone();
        if step(order, &room).is_none() {
            found.faults.push(format!("{file}: module `{room}` has no place in the order; xtask/src/layers names it"));
            continue;
        }
        let text = std::fs::read_to_string(folder.join(&file)).with_context(|| file.clone())?;
        let uses = found.uses.entry(room.clone()).or_default();
        for path in paths_of(&text, module.len()) {
            let used = names.get(&path.name).unwrap_or(&path.name);
            if *used == room {
                continue;
            }
            uses.insert(used.clone());
            if let Some(reason) = against_order(order, &room, used) {
                found.faults.push(format!("crates/{library}/src/{file}:{}: {reason}", path.line));
            }
        }
    }
    Ok(found)
}

/// Source files below `folder`, each with the path of its module; without `lib.rs`, which only lists the modules.
fn sources(folder: &Path) -> Result<Vec<(String, Vec<String>)>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).with_context(|| next.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path.strip_prefix(folder)?;
                let parts = relative.with_extension("");
                let mut module: Vec<String> = parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
                module.pop_if(|last| last == "mod");
                if module != ["lib"] {
                    found.push((relative.to_string_lossy().replace('\\', "/"), module));
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

fn step(order: Order, room: &str) -> Option<usize> {
    order.iter().position(|rooms| rooms.contains(&room))
}

fn against_order(order: Order, room: &str, used: &str) -> Option<String> {
    match (step(order, room)?, step(order, used)) {
        (_, None) => Some(format!("`{room}` uses `{used}`, which has no place in the order")),
        (own, Some(other)) if other == own => Some(format!("`{room}` uses `{used}` of its own step")),
        (own, Some(other)) if other > own => Some(format!("`{room}` uses `{used}`, which stands above it")),
        _ => None,
    }
}

/// One row per module, lowest first.
fn rows(library: &str, order: Order, uses: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut table = String::new();
    for (step, rooms) in order.iter().enumerate() {
        for &room in *rooms {
            let Some(used) = uses.get(room) else { continue };
            let known = order.iter().flat_map(|rooms| rooms.iter());
            let names: Vec<&str> = known.copied().filter(|name| used.contains(*name)).collect();
            let names = if names.is_empty() { "–".to_owned() } else { names.join(", ") };
            table += &format!("| {library} | {} | `{room}` | {names} |\n", step + 1);
        }
    }
    table
}

/// The page with this table between the two marker lines.
fn with_table(page: &str, table: &str) -> Option<String> {
    let start = page.find(START)? + START.len();
    let end = start + page[start..].find(END)?;
    Some(format!("{}\n{table}{}", &page[..start], &page[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(files: &[(&str, &str)]) -> Found {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("lib.rs"), "pub mod text;\npub use error::{Error, Result};\n").unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        scan(folder.path(), "flatclip", LIBRARIES[0].1).unwrap()
    }

    #[test]
    fn a_planted_back_reference_is_found_with_its_line() {
        let found = library(&[
            ("error.rs", "pub struct Error;\n"),
            ("model/mod.rs", "use crate::{Result, weights::Checkpoint};\n"),
            ("weights/open.rs", "use crate::rng::Stream;\n\nfn f() -> crate::model::Clip {}\n"),
            ("text/mod.rs", "use crate::{\n    Error,\n    image::{self, Image},\n};\n"),
        ]);
        assert_eq!(
            found.faults,
            [
                "crates/flatclip/src/text/mod.rs:3: `text` uses `image` of its own step",
                "crates/flatclip/src/weights/open.rs:3: `weights` uses `model`, which stands above it",
            ]
        );
        assert_eq!(found.uses["model"].iter().collect::<Vec<_>>(), ["error", "weights"]);
    }

    #[test]
    fn a_name_that_the_root_re_exports_counts_for_its_module() {
        let found = library(&[("files.rs", "use crate::Error;\n"), ("weights.rs", "use crate::Model;\n")]);
        assert_eq!(found.faults.len(), 1, "{:?}", found.faults);
        assert!(found.faults[0].contains("`Model`, which has no place"), "{:?}", found.faults);
    }

    #[test]
    fn the_table_replaces_what_stands_between_its_lines() {
        let found = library(&[("weights/mod.rs", "use crate::Error;\n"), ("error.rs", "")]);
        let page = format!("before\n{START}\nold\n{END}\nafter\n");
        let drawn = with_table(&page, &rows("flatclip", LIBRARIES[0].1, &found.uses)).unwrap();
        assert!(drawn.contains("| flatclip | 1 | `error` | – |\n| flatclip | 5 | `weights` | error |\n"), "{drawn}");
        assert!(drawn.starts_with("before\n") && drawn.ends_with("after\n") && !drawn.contains("old"), "{drawn}");
        assert_eq!(with_table(&drawn, &rows("flatclip", LIBRARIES[0].1, &found.uses)).unwrap(), drawn);
    }
}
