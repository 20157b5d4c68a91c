//! `flatclip data`: what is on the disk, whether it is whole, and what to do about the rest.

use crate::prelude::*;
use flatclip_lab::data::{self, CheckRow, Dataset, KNOWN, Known, OpenOptions, Split, State};

#[derive(clap::Subcommand)]
pub(crate) enum Verb {
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

pub(crate) fn run(verb: Verb, out: &Output) -> Result<Exit> {
    match verb {
        Verb::Check { names, root } => check(&names, &root, out),
        Verb::Ls { place } => ls(&place, out).map(|()| Exit::Done),
        Verb::Show { data } => show(&data, out).map(|()| Exit::Done),
    }
}

/// The options, with a --data-root that is there.
fn checked(options: OpenOptions) -> Result<OpenOptions> {
    if let Some(root) = options.root.as_ref().filter(|root| !root.is_dir()) {
        bail!("--data-root {}: no such folder; it holds one folder per data set", root.display());
    }
    Ok(options)
}

fn check(names: &[String], root: &RootArgs, out: &Output) -> Result<Exit> {
    let known = |name: &String| {
        Known::find(name).with_context(|| format!("{name:?} is not a known data set; `flatclip data ls` lists them"))
    };
    let only = names.iter().map(known).collect::<Result<Vec<_>>>()?;
    let options = root.options()?;
    if options.root.is_none() && options.paths.is_empty() {
        bail!("where? give --data-root DIR (or FLATCLIP_DATA), or --path NAME=DIR");
    }
    let rows = data::check(&checked(options)?, &only);
    if out.is_json {
        out.json(&json!({ "schema_version": 1, "data_sets": rows }))?;
    } else {
        print_check(&rows, out)?;
    }
    let bad = |row: &CheckRow| match row.state {
        State::Incomplete | State::Broken => true,
        State::Absent => !only.is_empty(),
        _ => false,
    };
    Ok(Exit::unless(rows.iter().any(bad)))
}

fn print_check(rows: &[CheckRow], out: &Output) -> Result<()> {
    let pair = |(found, expected): (usize, usize)| match (found, expected) {
        (0, 0) => "-".to_owned(),
        (found, expected) if expected == 0 || found == expected => found.to_string(),
        (found, expected) => format!("{found} of {expected}"),
    };
    let cells = |row: &CheckRow| {
        let (name, state) = (row.name.to_owned(), row.state.name().to_owned());
        [name, state, pair(row.classes), pair(row.samples), row.classes_hash.clone()]
    };
    out.rows(&["data set", "state", "classes", "images", "hash of class names"], rows.iter().map(cells))?;
    let (absent, found): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.state == State::Absent);
    if !found.is_empty() {
        out.line("\n! differs from the published data set, i is a known trap, > is what to do")?;
    }
    for row in found {
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
    if !absent.is_empty() {
        out.line("\nNot here")?;
        for row in absent {
            out.line(format_args!("  {}: {}", row.title, row.advice))?;
        }
    }
    Ok(())
}

fn ls(place: &PlaceArgs, out: &Output) -> Result<()> {
    let options = checked(place.options(Split::Test)?)?;
    if out.is_json {
        let row = |k: &Known| json!({ "name": k.name, "title": k.title, "aliases": k.aliases, "classes": k.classes, "train": k.count(Split::Train), "val": k.count(Split::Val), "test": k.count(Split::Test), "template": k.template, "folder": k.folder(&options) });
        return out.json(&json!({ "schema_version": 1, "data_sets": KNOWN.iter().map(row).collect::<Vec<_>>() }));
    }
    let counts = |known: &Known| {
        let count = |split| known.count(split).map_or("-".to_owned(), |count| count.to_string());
        [known.classes.to_string(), count(Split::Train), count(Split::Val), count(Split::Test)]
    };
    // Folders are long: they take the place of the other names and of the template.
    if options.root.is_none() && options.paths.is_empty() {
        let row = |known: &Known| {
            let [classes, train, val, test] = counts(known);
            [known.name.to_owned(), known.aliases.join(", "), classes, train, val, test, known.template.to_owned()]
        };
        let header = ["name", "also", "classes", "train", "val", "test", "CoOp's template"];
        return out.rows(&header, KNOWN.iter().map(row));
    }
    let row = |known: &Known| {
        let [classes, train, val, test] = counts(known);
        let folder = known.folder(&options).map_or("-".to_owned(), |folder| folder.display().to_string());
        [known.name.to_owned(), classes, train, val, test, folder]
    };
    out.rows(&["name", "classes", "train", "val", "test", "found in"], KNOWN.iter().map(row))?;
    out.note("`flatclip data check` counts what is in each folder");
    Ok(())
}

fn show(args: &DataArgs, out: &Output) -> Result<()> {
    let sets = args.open_all(out)?;
    if out.is_json {
        let row = |d: &Dataset| json!({ "name": d.name, "split": d.split, "classes": d.classes, "class_counts": d.class_counts(), "classes_hash": d.classes_hash(), "samples": d.samples.len(), "templates": d.templates, "notes": d.notes });
        return out.json(&json!({ "schema_version": 1, "data_sets": sets.iter().map(row).collect::<Vec<_>>() }));
    }
    for data in &sets {
        let (name, split, hash) = (&data.name, data.split.name(), data.classes_hash());
        let (classes, samples) = (data.classes.len(), data.samples.len());
        let template = data.templates.first().map_or("", String::as_str);
        out.line(format_args!(
            "{name} ({split}): {classes} classes, {samples} samples, class names {hash}, template {template:?}"
        ))?;
        let by_class = data.by_class();
        let rows = data.classes.iter().zip(&by_class).enumerate().take(20).map(|(label, (class, members))| {
            let first = members.first().map_or("-", |&index| data.samples[index].id.as_str());
            [label.to_string(), class.clone(), members.len().to_string(), first.to_owned()]
        });
        out.rows(&["label", "class", "samples", "first"], rows)?;
        if classes > 20 {
            out.line(format_args!("and {} more classes (--json lists all)", classes - 20))?;
        }
    }
    Ok(())
}
