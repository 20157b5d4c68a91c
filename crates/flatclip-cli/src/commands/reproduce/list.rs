//! `flatclip reproduce list`: the items, what each needs, and what of it is on disk.

use crate::prelude::*;
use flatclip::methods::adapter;
use flatclip_lab::data::{self, Split};
use flatclip_lab::reproduce::Recipe;

pub(crate) fn run(place: &PlaceArgs, find: &FindArgs, out: &Output) -> Result<()> {
    let recipes = Recipe::embedded()?;
    let (mut rows, mut items) = (Vec::new(), Vec::new());
    for recipe in &recipes {
        let (there, missing) = on_disk(recipe, place)?;
        let model = find.builder(&recipe.model)?.offline(true).open(&()).is_ok();
        let tuned: Vec<&str> = recipe.prompts.iter().filter(|p| !p.tuner.is_empty()).map(|p| p.name.as_str()).collect();
        let generated = recipe.rows.iter().any(|row| adapter(&row.method).is_ok_and(|spec| spec.needs.generated));
        let mut needs = vec![format!("{}{}", recipe.model, if model { "" } else { " (not on disk)" })];
        match (there.len(), missing.len()) {
            (0, 0) => {}
            (there, 0) => needs.push(format!("data sets: all {there} on disk")),
            (0, missing) => needs.push(format!("data sets: none of {missing} on disk")),
            (there, count) => {
                needs.push(format!("data sets: {there} of {} on disk, not {}", there + count, missing.join(", ")));
            }
        }
        if !tuned.is_empty() {
            needs.push(format!("tunes {}", tuned.join(", ")));
        }
        if generated {
            needs.push("generated images for DiffTPT".to_owned());
        }
        let paper = if recipe.paper.is_empty() { String::new() } else { format!(" ({})", recipe.paper) };
        rows.push([recipe.name.clone(), recipe.title.clone() + &paper, needs.join("; ")]);
        items.push(json!({
            "name": recipe.name, "paper": recipe.paper, "title": recipe.title, "about": recipe.about, "model": recipe.model,
            "model_on_disk": model, "data_on_disk": there, "data_missing": missing, "tunes": tuned, "generated": generated,
        }));
    }
    if out.is_json {
        return out.json(&json!({ "schema_version": 1, "items": items }));
    }
    out.rows(&["item", "shows", "needs"], rows)
}

/// Data sets of a recipe that can be opened, and those that cannot.
fn on_disk(recipe: &Recipe, place: &PlaceArgs) -> Result<(Vec<String>, Vec<String>)> {
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    let source = Some((&recipe.source, Split::Train)).filter(|(name, _)| !name.is_empty());
    for (name, split) in recipe.datasets.iter().map(|name| (name, Split::Test)).chain(source) {
        let label = if split == Split::Train { format!("{name} (train)") } else { name.clone() };
        let found = data::open(name, &place.options(split)?).is_ok();
        if found { &mut there } else { &mut missing }.push(label);
    }
    Ok((there, missing))
}
