//! Documents that show commands with their output are run, and what they show is compared with what is printed.
//!
//! In a block marked `console`, lines that begin with `$ ` are run one after the other in a folder of the document's own;
//! below each stands its output, or `...` where it is not compared. Instructions and precision are fixed, so that numbers are
//! the same on every machine. `FLATCLIP_WRITE_DOCS=1 cargo test --release -p flatclip-cli --test documents` writes the output
//! into the documents, which is how they are renewed after a change.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "what a test cannot do fails it")]

use std::path::{Path, PathBuf};
use std::process::Command;

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
fn run(line: &str, folder: &Path) -> Vec<String> {
    let binary = Path::new(env!("CARGO_BIN_EXE_flatclip"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", path)
        .env("XDG_CACHE_HOME", "cache")
        .env("HOME", folder)
        .env("FLATCLIP_ISA", "plain")
        .env("FLATCLIP_PRECISION", "f32")
        .env("FLATCLIP_OFFLINE", "true")
        .env_remove("FLATCLIP_MODEL")
        .env_remove("HF_HOME")
        .env_remove("HF_HUB_CACHE")
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim_end().to_owned()).collect()
}

fn check(document: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path: PathBuf = root.join(document);
    let folder = tempfile::tempdir().unwrap();
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    std::fs::create_dir(folder.path().join("samples")).unwrap();
    for entry in std::fs::read_dir(samples).unwrap().flatten() {
        std::fs::copy(entry.path(), folder.path().join("samples").join(entry.file_name())).unwrap();
    }
    let writes = std::env::var_os("FLATCLIP_WRITE_DOCS").is_some();
    let (mut written, mut differences, mut commands) = (String::new(), Vec::new(), 0);
    for part in parse(&std::fs::read_to_string(&path).unwrap()) {
        match part {
            Part::Text(line) => written.push_str(&format!("{line}\n")),
            Part::Command { line, output } => {
                commands += 1;
                let found = run(&line, folder.path());
                let open = output == ["..."];
                // An empty line between two commands is the document's.
                let blank = output.last().is_some_and(String::is_empty);
                let expected: Vec<String> = output.iter().take(output.len() - usize::from(blank)).cloned().collect();
                if !open && expected != found {
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
#[ignore = "its output is recorded with FLATCLIP_WRITE_DOCS=1 once the embedded models are final"]
fn the_tour_of_the_readme_prints_what_it_shows() {
    check("README.md");
}

#[test]
#[ignore = "its output is recorded with FLATCLIP_WRITE_DOCS=1 once the embedded models are final"]
fn the_first_hour_prints_what_it_shows() {
    check("docs/first-hour.md");
}

#[test]
#[ignore = "its output is recorded with FLATCLIP_WRITE_DOCS=1 once the embedded models are final"]
fn the_choice_of_a_method_prints_what_it_shows() {
    check("docs/guide/choosing.md");
}
