//! `cargo xtask pages`: every kind of page that flatclip writes, made with the embedded model and opened in a headless browser
//! without network, in both colour schemes. A message on the console, a resource that cannot be loaded or a page that does
//! not follow the scheme is a failure. The screenshots stay in `target/pages`.

use crate::browser::{Browser, INSTALL, Scheme};
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const CLASSES: &str = "fish,lamp,snail,boat,clock,bicycle,butterfly,airplane";

/// Commands that leave a page behind, quick rather than meaningful, in the order in which they need each other.
static STEPS: &[&[&str]] = &[
    &["pocket", "export", "photos", "--domain", "photo", "--count", "8"],
    &["landscape", "--data", "pocket:photo", "--shots", "2", "--points", "9", "--out", "landscape"],
    &["landscape", "--image", "photos/fish/000002.png", "--classes", CLASSES, "--points", "9", "--out", "views"],
    &["analyze", "--limit", "40", "--shots", "2", "--out", "analysis"],
    &["eval", "--method", "zero-shot,stss", "--data", "pocket:sketch", "--limit", "24", "--no-cache", "--out", "runs"],
    &["sweep", "--preset", "kept", "--data", "pocket:sketch", "--limit", "24", "--cache", "cache", "--out", "sweep"],
    &["report", "runs", "landscape", "views", "analysis", "--paired", "--html", "report.html"],
];

/// What the steps leave: a name for the screenshots, and the file.
const PAGES: [(&str, &str); 5] = [
    ("landscape", "landscape/landscape.html"),
    ("views", "views/landscape.html"),
    ("analysis", "analysis/analysis.html"),
    ("sweep", "sweep/report.html"),
    ("report", "report.html"),
];

#[derive(clap::Args)]
pub struct Arguments {
    /// A Chromium; by default the first known name on the search path
    #[arg(long, value_name = "FILE")]
    browser: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result<()> {
    let browser = Browser::find(arguments.browser).context(INSTALL)?;
    crate::build(crate::root()?)?;
    check(&browser)
}

/// As the last step of `cargo xtask test`: only where there is a browser, and with the binary that the tests were run with.
pub fn run_if_possible() -> Result<()> {
    match Browser::find(None) {
        Some(browser) => check(&browser),
        None => {
            eprintln!("== pages: SKIPPED, {INSTALL}");
            Ok(())
        }
    }
}

fn check(browser: &Browser) -> Result<()> {
    eprintln!("== pages: made with the embedded model, opened in a headless browser");
    let start = Instant::now();
    let folder = make()?;
    sees_faults(browser)?;
    let mut faults = Vec::new();
    for (name, file) in PAGES {
        for scheme in Scheme::ALL {
            let screenshot = folder.join(format!("{name}-{}.png", scheme.name()));
            let said = browser.open(&guarded(&folder.join(file))?, scheme, &screenshot, (1280, 1600))?;
            faults.extend(said.into_iter().map(|line| format!("{file} ({}): {line}", scheme.name())));
            if brightness(&screenshot)? < 0.5 && scheme == Scheme::Light
                || brightness(&screenshot)? > 0.5 && scheme == Scheme::Dark
            {
                faults.push(format!("{file}: does not follow the {} scheme", scheme.name()));
            }
        }
    }
    for fault in &faults {
        eprintln!("{fault}");
    }
    ensure!(faults.is_empty(), "{} faults in pages", faults.len());
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("== pages: {} ok in {seconds:.0} s, screenshots in {}", PAGES.len(), folder.display());
    Ok(())
}

/// Runs the steps in an empty folder below `target`.
fn make() -> Result<PathBuf> {
    let target = crate::target_dir(crate::root()?)?;
    let folder = target.join("pages");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::create_dir_all(&folder)?;
    for step in STEPS {
        let output = Command::new(target.join("release/flatclip")).args(*step).current_dir(&folder).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "flatclip {}: {}\n{said}", step.join(" "), output.status);
    }
    Ok(folder)
}

/// A check that cannot see a fault is worth nothing: a page with one of each kind must be complained about.
fn sees_faults(browser: &Browser) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let faults = [
        ("an error", "<script>console.error('wrong')</script>", "wrong"),
        ("a warning", "<script>console.warn('odd')</script>", "odd"),
        ("an exception", "<script>missing()</script>", "missing"),
        ("a missing file", "<img src=\"absent.png\">", "absent.png"),
        ("an address on the network", "<img src=\"http://flatclip.invalid/x.png\">", "flatclip.invalid"),
    ];
    let page = folder.path().join("faulty.html");
    let body: String = faults.iter().map(|(_, html, _)| *html).collect();
    std::fs::write(
        &page,
        format!("<!doctype html><html><head><title>faults</title></head><body>{body}</body></html>"),
    )?;
    let said = browser.open(&guarded(&page)?, Scheme::Light, &folder.path().join("faulty.png"), (400, 300))?.join("\n");
    for (what, _, word) in faults {
        ensure!(
            said.contains(word),
            "this browser does not tell of {what}; the check would be blind. It said:\n{said}"
        );
    }
    Ok(())
}

/// Mean brightness of a screenshot, 0 to 1.
fn brightness(screenshot: &Path) -> Result<f64> {
    let bytes = std::fs::read(screenshot).with_context(|| screenshot.display().to_string())?;
    let image = flatclip::image::decode_from(screenshot, &bytes, &flatclip::image::DecodeOptions::default())?;
    let sum: f64 = image.rgb.iter().map(|&value| f64::from(value)).sum();
    Ok(sum / image.rgb.len().max(1) as f64 / 255.0)
}

/// The browser tells of a resource that a policy forbids, but not of every one that cannot be loaded: so the page is opened as a
/// copy that forbids whatever is not inside it.
const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; \
                      style-src 'unsafe-inline'; script-src 'unsafe-inline'\">";

fn guarded(page: &Path) -> Result<PathBuf> {
    let text = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
    ensure!(text.contains("<head>"), "{}: has no <head>", page.display());
    let copy = page.with_extension("guarded.html");
    std::fs::write(&copy, text.replacen("<head>", &format!("<head>{POLICY}"), 1))?;
    Ok(copy)
}
