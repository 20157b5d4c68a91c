//! Accessibility as axe-core judges it, contrast included. It is fetched by npm into the target folder, for this check alone.

use super::idea::{COMPARED, SURFACES};
use super::{ANSWERED, Page, Step};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;

const PACKAGE: &str = "axe-core@4.10.3";

/// The flow, where npm is there.
pub(super) fn flows() -> Result<Option<(&'static str, Step)>> {
    if script()?.is_file() || install()? {
        return Ok(Some(("axe finds no violation, contrast included", Page::axe)));
    }
    eprintln!("== page of the server: axe SKIPPED, {PACKAGE} cannot be installed; it needs npm and a registry");
    Ok(None)
}

fn folder() -> Result<PathBuf> {
    Ok(crate::target_dir(crate::root()?)?.join("axe"))
}

fn script() -> Result<PathBuf> {
    Ok(folder()?.join("node_modules/axe-core/axe.min.js"))
}

fn install() -> Result<bool> {
    std::fs::create_dir_all(folder()?)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix"])
        .arg(folder()?)
        .arg(PACKAGE);
    Ok(npm.output().is_ok_and(|output| output.status.success()) && script()?.is_file())
}

impl Page {
    fn axe(&self) -> Result<()> {
        let source = std::fs::read_to_string(script()?)?;
        self.start()?;
        // A check that cannot see a fault is worth nothing.
        let pale = "const p = document.createElement('p'); p.textContent = 'pale'; p.style.color = '#ddd'; p.style.background = '#fff'; document.querySelector('main').append(p);";
        self.browser.run(pale, &json!([]))?;
        let seen = self.violations(&source, "pale text").err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(seen.contains("color-contrast"), "axe does not see pale text: {seen:?}");
        for (name, dark, width) in
            [("light", false, 1280), ("dark", true, 1280), ("phone", false, 390), ("dark phone", true, 390)]
        {
            self.browser.emulate(dark, width, 900)?;
            self.start()?;
            self.browser.until("the surfaces", SURFACES)?;
            self.violations(&source, &format!("{name}, start"))?;
            self.browser.keys("#file", &self.photo()?)?;
            self.browser.until("an answer", ANSWERED)?;
            self.browser.click("#compare")?;
            self.browser.until("two answers", "document.querySelectorAll('.answer').length === 2")?;
            self.browser.until("the row", COMPARED)?;
            self.browser.click("[data-copy=curl]")?;
            self.browser.click("#compared-panel button.term")?;
            self.violations(&source, &format!("{name}, a photo, two methods, a term"))?;
            self.browser.keys("#template", "no place\u{e007}")?;
            self.browser.until("an alert", "!document.getElementById('alert').hidden")?;
            self.violations(&source, &format!("{name}, refused"))?;
            self.browser.open(&format!("{}docs", self.url))?;
            self.violations(&source, &format!("{name}, routes"))?;
        }
        self.browser.emulate(false, 1280, 900)
    }

    fn violations(&self, source: &str, what: &str) -> Result<()> {
        self.browser.run(source, &json!([]))?;
        let script = "return axe.run(document, { resultTypes: ['violations'] }).then((found) =>
            [found.passes.length, found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 150)).slice(0, 5).join(' | ')}`)]);";
        let found = self.browser.run(script, &json!([]))?;
        ensure!(found[0].as_u64().context("axe did not run")? > 10, "{what}: axe checked nothing");
        ensure!(found[1] == json!([]), "{what}: {}", found[1]);
        Ok(())
    }
}
