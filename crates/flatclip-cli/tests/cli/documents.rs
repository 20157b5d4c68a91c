//! Documents that show commands with their output are run, and what they show is compared with what is printed.
//!
//! In a block marked `console`, lines that begin with `$ ` are run one after the other in a folder of the document's own;
//! below each stands its output, or `...` where it is not compared. Instructions and precision are fixed, so that numbers are
//! the same on every machine. Not compared are the line that says which model was loaded, which is skipped, the home folder,
//! which is written `~`, and a thousandth part of a decimal. `FLATCLIP_WRITE_DOCS=1 cargo test --release -p flatclip-cli --test
//! documents` writes the output into the documents, which is how they are renewed after a change.
#![cfg(unix)]

use super::common::{BINARY, Home, entries, in_repository};
use std::path::Path;

/// A document as parts that stay and commands with their output.
enum Part {
    Text(String),
    Command { line: String, output: Vec<String> },
}

fn parse(text: &str) -> Vec<Part> {
    let (mut parts, mut inside) = (Vec::new(), false);
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
            parts.push(Part::Text(line.to_owned()));
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            parts.push(Part::Command { line: command.to_owned(), output: Vec::new() });
        } else if let (true, Some(Part::Command { output, .. })) = (inside, parts.last_mut()) {
            output.push(line.to_owned());
        } else {
            parts.push(Part::Text(line.to_owned()));
        }
    }
    parts
}

/// Runs a line in a shell that finds this build first; standard error is shown where the line asks for it.
fn run(line: &str, home: &Home) -> Vec<String> {
    let binary = Path::new(BINARY);
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let fixed =
        [("PATH", &*path), ("XDG_CACHE_HOME", "cache"), ("FLATCLIP_ISA", "plain"), ("FLATCLIP_PRECISION", "f32")];
    let output = home.program("bash").args(["-c", line]).envs(fixed).output().unwrap();
    let folder = home.folder();
    let text = String::from_utf8_lossy(&output.stdout).replace(&*folder.to_string_lossy(), "~");
    let lines = text.lines().filter(|line| !line.starts_with("pocket: ModifiedResNet"));
    without_end(lines.map(|line| line.trim_end().to_owned()).collect())
}

/// The lines without empty ones at their end.
fn without_end(mut lines: Vec<String>) -> Vec<String> {
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Whether two lines are the same but for a thousandth part, or one in the last digit, of their decimals: libraries of
/// elementary functions differ between systems.
fn alike(a: &str, b: &str) -> bool {
    let ((text, ours), (other, theirs)) = (decimals(a), decimals(b));
    let near = |(&(a, unit), &(b, _)): (&(f64, f64), &(f64, f64))| (a - b).abs() <= (1.01 * unit).max(1e-3 * a.abs());
    text == other && ours.len() == theirs.len() && ours.iter().zip(&theirs).all(near)
}

/// A line without its decimals, and these with the unit of their last digit.
fn decimals(line: &str) -> (String, Vec<(f64, f64)>) {
    let (mut text, mut found) = (String::new(), Vec::new());
    let numeric = |c: char| c.is_ascii_digit() || c == '.';
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let length = rest[start..].find(|c| !numeric(c)).unwrap_or(rest.len() - start);
        let number = &rest[start..start + length];
        text.push_str(&rest[..start]);
        match (number.split_once('.'), number.parse()) {
            (Some((_, digits)), Ok(value)) if !digits.is_empty() => {
                found.push((value, 0.1f64.powi(digits.len() as i32)));
                text.push('#');
            }
            _ => text.push_str(number),
        }
        rest = &rest[start + length..];
    }
    (text + rest, found)
}

fn check(document: &str) {
    let (path, home) = (in_repository(document), Home::new());
    std::fs::create_dir(home.path("samples")).unwrap();
    for file in entries(&in_repository("crates/flatclip-cli/tests/samples")) {
        std::fs::copy(&file, home.path("samples").join(file.file_name().unwrap())).unwrap();
    }
    let writes = std::env::var_os("FLATCLIP_WRITE_DOCS").is_some();
    let (mut written, mut differences, mut commands) = (String::new(), Vec::new(), 0);
    for part in parse(&std::fs::read_to_string(&path).unwrap()) {
        match part {
            Part::Text(line) => written.push_str(&format!("{line}\n")),
            Part::Command { line, output } => {
                commands += 1;
                let found = run(&line, &home);
                let open = output == ["..."];
                // An empty line between two commands is the document's.
                let blank = output.last().is_some_and(String::is_empty);
                let expected = without_end(output.clone());
                let same = expected.len() == found.len() && expected.iter().zip(&found).all(|(a, b)| alike(a, b));
                if !open && !same {
                    differences.push(format!(
                        "$ {line}\n--- {document} says\n{}\n--- it prints\n{}",
                        expected.join("\n"),
                        found.join("\n")
                    ));
                }
                written.push_str(&format!("$ {line}\n"));
                for line in if open { &output } else { &found } {
                    written.push_str(&format!("{line}\n"));
                }
                if blank {
                    written.push('\n');
                }
            }
        }
    }
    assert!(commands > 0, "{document} shows no command");
    if writes {
        std::fs::write(&path, written).unwrap();
        return;
    }
    let hint = "FLATCLIP_WRITE_DOCS=1 writes what is printed into the document";
    assert!(differences.is_empty(), "{}\n\n{hint}", differences.join("\n\n"));
}

#[test]
fn the_tutorial_prints_what_it_shows() {
    check("docs/tutorial.md");
}

#[test]
fn the_first_hour_prints_what_it_shows() {
    check("docs/design/first-hour.md");
}

#[test]
fn the_first_hour_has_every_point_as_a_command() {
    let text = include_str!("../../../../docs/design/first-hour.md");
    for number in 1..=16 {
        let (_, point) = text.split_once(&format!("\n**{number}. ")).unwrap_or_else(|| panic!("no point {number}"));
        let end = point.find(&format!("\n**{}. ", number + 1)).unwrap_or(point.len());
        assert!(point[..end].contains("\n$ flatclip "), "point {number} has no command");
    }
}

#[test]
fn lines_are_alike_but_for_the_last_digit_of_a_decimal() {
    assert!(alike("a 0.9751 b 3", "a 0.9752 b 3") && alike("x 0.9296579", "x 0.9296601"));
    assert!(!alike("a 0.9751", "a 0.9771") && !alike("57.81", "59.38") && !alike("3 views", "4 views"));
    assert!(!alike("a 0.9751", "b 0.9751") && !alike("v1.2.3", "v1.2.4"));
}

#[test]
fn the_choice_of_a_method_prints_what_it_shows() {
    check("docs/guide/choosing.md");
}
