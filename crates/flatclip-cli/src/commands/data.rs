//! `flatclip data`: what is on the disk, whether it is whole, and what to do about the rest.

use crate::inputs::data::{DataArgs, PlaceArgs, RootArgs};
use crate::output::{Exit, Output};
use anyhow::{Result, bail};
use flatclip_lab::data::{self, CheckRow, KNOWN, Known, Split, State};
use serde_json::json;

/// Options of `flatclip data`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Look at every known data set below --data-root: found where, counts right or wrong, what to do
    Check {
        /// Only these data sets
        names: Vec<String>,
        #[command(flatten)]
        root: RootArgs,
    },
    /// List the known data sets: published counts, templates, and with --data-root the folder in which each was found
    Ls {
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// One data set as it would be evaluated: classes, counts, fingerprint, first samples
    Show {
        #[command(flatten)]
        data: DataArgs,
    },
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    match args.verb {
        Verb::Check { names, root } => check(&names, &root, out),
        Verb::Ls { place } => ls(&place, out),
        Verb::Show { data } => show(&data, out),
    }
}

fn check(names: &[String], root: &RootArgs, out: &Output) -> Result<Exit> {
    let mut only = Vec::new();
    for name in names {
        match Known::find(name) {
            Some(known) => only.push(known),
            None => bail!("{name:?} is not a known data set; `flatclip data ls` lists them"),
        }
    }
    let options = root.options()?;
    if options.root.is_none() && options.paths.is_empty() {
        bail!("where? give --data-root DIR (or FLATCLIP_DATA), or --path NAME=DIR");
    }
    if let Some(root) = options.root.as_ref().filter(|root| !root.is_dir()) {
        bail!("--data-root {}: no such folder; it holds one folder per data set", root.display());
    }
    let rows = data::check(&options, &only);
    if out.is_json() {
        out.json(&json!({ "schema_version": 1, "data_sets": rows }))?;
    } else {
        print_check(&rows, out)?;
    }
    let asked = !only.is_empty();
    let bad = |row: &&CheckRow| {
        matches!(row.state, State::Incomplete | State::Broken) || (asked && row.state == State::Absent)
    };
    Ok(if rows.iter().filter(bad).count() == 0 { Exit::Done } else { Exit::Counted })
}

fn print_check(rows: &[CheckRow], out: &Output) -> Result<()> {
    let mut table = out.table(&["data set", "state", "classes", "images", "hash of class names"]);
    for row in rows {
        let pair = |(found, expected): (usize, usize)| match (found, expected) {
            (0, 0) => "-".to_owned(),
            (found, 0) => found.to_string(),
            (found, expected) if found == expected => found.to_string(),
            (found, expected) => format!("{found} of {expected}"),
        };
        table.add_row([
            row.name.to_owned(),
            row.state.name().to_owned(),
            pair(row.classes),
            pair(row.samples),
            row.classes_hash.clone(),
        ]);
    }
    out.line(table)?;
    if rows.iter().any(|row| row.state != State::Absent) {
        out.line("\n! differs from the published data set, i is a known trap, > is what to do")?;
    }
    for row in rows.iter().filter(|row| row.state != State::Absent) {
        out.line(format_args!("\n{}", row.title))?;
        for note in &row.notes {
            out.line(format_args!("  {} {}", if note.warning { "!" } else { "-" }, note.text))?;
        }
        for trap in &row.traps {
            out.line(format_args!("  i {trap}"))?;
        }
        if !row.advice.is_empty() {
            out.line(format_args!("  > {}", row.advice))?;
        }
    }
    let absent: Vec<&CheckRow> = rows.iter().filter(|row| row.state == State::Absent).collect();
    if !absent.is_empty() {
        out.line("\nNot here")?;
        for row in absent {
            out.line(format_args!("  {}: {}", row.title, row.advice))?;
        }
    }
    Ok(())
}

fn ls(place: &PlaceArgs, out: &Output) -> Result<Exit> {
    let options = place.options(Split::Test)?;
    if let Some(root) = options.root.as_ref().filter(|root| !root.is_dir()) {
        bail!("--data-root {}: no such folder; it holds one folder per data set", root.display());
    }
    let looked = options.root.is_some() || !options.paths.is_empty();
    if out.is_json() {
        let rows: Vec<_> = KNOWN
            .iter()
            .map(|k| json!({ "name": k.name, "title": k.title, "aliases": k.aliases, "classes": k.classes, "train": k.count(Split::Train), "val": k.count(Split::Val), "test": k.count(Split::Test), "template": k.template, "folder": k.folder(&options) }))
            .collect();
        out.json(&json!({ "schema_version": 1, "data_sets": rows }))?;
        return Ok(Exit::Done);
    }
    // Folders are long: they take the place of the other names and of the template.
    let header: &[&str] = match looked {
        true => &["name", "classes", "train", "val", "test", "found in"],
        false => &["name", "also", "classes", "train", "val", "test", "CoOp's template"],
    };
    let mut table = out.table(header);
    for known in &KNOWN {
        let count = |split| known.count(split).map_or("-".to_owned(), |count| count.to_string());
        let mut row = vec![known.name.to_owned()];
        if !looked {
            row.push(known.aliases.join(", "));
        }
        row.extend([known.classes.to_string(), count(Split::Train), count(Split::Val), count(Split::Test)]);
        row.push(match looked {
            true => known.folder(&options).map_or("-".to_owned(), |folder| folder.display().to_string()),
            false => known.template.to_owned(),
        });
        table.add_row(row);
    }
    out.line(table)?;
    if looked {
        out.note("`flatclip data check` counts what is in each folder");
    }
    Ok(Exit::Done)
}

fn show(args: &DataArgs, out: &Output) -> Result<Exit> {
    let sets = args.open_all(out)?;
    if out.is_json() {
        let rows: Vec<_> = sets
            .iter()
            .map(|d| json!({ "name": d.name, "split": d.split, "classes": d.classes, "class_counts": d.class_counts(), "classes_hash": d.classes_hash(), "samples": d.samples.len(), "templates": d.templates, "notes": d.notes }))
            .collect();
        out.json(&json!({ "schema_version": 1, "data_sets": rows }))?;
        return Ok(Exit::Done);
    }
    for data in &sets {
        out.line(format_args!(
            "{} ({}): {} classes, {} samples, class names {}, template {:?}",
            data.name,
            data.split.name(),
            data.classes.len(),
            data.samples.len(),
            data.classes_hash(),
            data.templates.first().map_or("", String::as_str)
        ))?;
        let by_class = data.by_class();
        let rows = data.classes.iter().zip(&by_class).enumerate().take(20).map(|(label, (class, members))| {
            let first = members.first().map_or("-", |&index| data.samples[index].id.as_str());
            [label.to_string(), class.clone(), members.len().to_string(), first.to_owned()]
        });
        out.rows(&["label", "class", "samples", "first"], rows)?;
        if data.classes.len() > 20 {
            out.line(format_args!("and {} more classes (--json lists all)", data.classes.len() - 20))?;
        }
    }
    Ok(Exit::Done)
}
