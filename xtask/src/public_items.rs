//! `cargo xtask public-items`: how many items each library shows to its users, as rustdoc counts them.

use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

pub const LIBRARIES: [&str; 4] = ["flatclip", "flatclip-lab", "flatclip-tensor", "flatclip-pocket"];

#[derive(clap::Args)]
pub struct Arguments {
    /// Also list the items, module by module
    #[arg(long)]
    list: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let root = crate::root()?;
    let packages = LIBRARIES.iter().flat_map(|library| ["-p", library]);
    let documented = crate::cargo()
        .args(["doc", "--release", "--no-deps", "--all-features", "--quiet"])
        .args(packages)
        .current_dir(root)
        .stdout(Stdio::null())
        .status()?;
    ensure!(documented.success(), "the documentation does not build");
    let pages = crate::target_dir(root)?.join("doc");
    for library in LIBRARIES {
        let items = items_of(&pages.join(library.replace('-', "_")).join("all.html"))?;
        println!("{library}: {} public items", items.values().map(Vec::len).sum::<usize>());
        for (module, names) in &items {
            println!("  {:<32} {:>4}", if module.is_empty() { "(crate root)" } else { module }, names.len());
            if arguments.list {
                names.iter().for_each(|name| println!("    {name}"));
            }
        }
    }
    Ok(())
}

fn items_of(page: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let html = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let items = listed(&html);
    ensure!(!items.is_empty(), "{}: lists no items; rustdoc may write it differently now", page.display());
    Ok(items)
}

/// The items of rustdoc's page of all items, by module. A link there reads `<a href="model/struct.Clip.html">model::Clip</a>`.
fn listed(html: &str) -> BTreeMap<String, Vec<String>> {
    let mut items: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let lists = html.split("<ul class=\"all-items\">").skip(1).filter_map(|rest| rest.split("</ul>").next());
    for link in lists.flat_map(|list| list.split("<li><a href=\"").skip(1)) {
        let Some((address, rest)) = link.split_once("\">") else { continue };
        let Some((path, _)) = rest.split_once("</a>") else { continue };
        let file = address.rsplit('/').next().unwrap_or(address);
        let kind = file.split('.').next().unwrap_or(file);
        let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
        items.entry(module.to_owned()).or_default().push(format!("{kind} {name}"));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_counted_by_module() {
        let html = "<h3 id=\"structs\">Structs</h3><ul class=\"all-items\"><li><a href=\"model/struct.Clip.html\">\
                    model::Clip</a></li><li><a href=\"struct.Root.html\">Root</a></li></ul>\
                    <h3 id=\"functions\">Functions</h3><ul class=\"all-items\"><li>\
                    <a href=\"model/fn.load.html\">model::load</a></li></ul><a href=\"index.html\">not::one</a>";
        let items = listed(html);
        assert_eq!(items["model"], ["struct Clip", "fn load"]);
        assert_eq!(items[""], ["struct Root"]);
        assert_eq!(items.len(), 2);
    }
}
