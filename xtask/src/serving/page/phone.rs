//! A phone: the answer comes on screen, errors where the eye is, terms on tap.

use super::idea::COMPARED;
use super::{ANSWERED, Page, Step};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;

/// A flow on a screen of 390 x 844; afterwards the usual one is back.
macro_rules! on_phone {
    ($flow:ident) => {
        |page| {
            page.browser.emulate(false, 390, 844)?;
            let outcome = page.$flow();
            page.browser.emulate(false, 1280, 900)?;
            outcome
        }
    };
}
pub(super) const FLOWS: [(&str, Step); 3] = [
    ("on a phone progress and answer come on screen", on_phone!(answer_in_sight)),
    ("on a phone errors stand beside what caused them", on_phone!(errors_in_sight)),
    ("on a phone terms are explained on tap", on_phone!(terms)),
];

impl Page {
    /// Waits until an element is on screen as a whole.
    fn in_sight(&self, selector: &str) -> Result<()> {
        let seen = format!(
            "(() => {{ const r = document.querySelector('{selector}')?.getBoundingClientRect();
            return r && r.height > 0 && r.top >= 0 && r.left >= 0 && r.bottom <= innerHeight && r.right <= innerWidth; }})()"
        );
        self.browser.until(&format!("{selector} is on screen"), &seen)
    }

    fn answer_in_sight(&self) -> Result<()> {
        self.start()?;
        // A slow network, so that the progress can be seen.
        let slow = "const now = window.fetch; window.fetch = async (...a) => {
            if (String(a[0]).endsWith('classify')) await new Promise((r) => setTimeout(r, 1500));
            return now(...a); };";
        self.browser.run(slow, &json!([]))?;
        self.browser.keys("#file", &self.photo()?)?;
        self.browser.until("progress", "!document.getElementById('working').hidden")?;
        for part in ["#working", "#status", "#warning"] {
            self.in_sight(part)?;
        }
        self.browser.until("an answer", ANSWERED)?;
        for part in ["#warning", "#status", "#compared [data-method=stss] .answered"] {
            self.in_sight(part)?;
        }
        self.browser.until("the row", COMPARED)?;
        self.in_sight("#compared [data-method=zero-shot] .answered")?;
        let wide = self.number("document.documentElement.scrollWidth")?;
        ensure!(wide <= 390.0, "the page is {wide} wide on a phone of 390");
        self.shot_in_sight("phone-answer")?;
        self.shot("phone-answer-whole")
    }

    fn errors_in_sight(&self) -> Result<()> {
        let bad = self.folder.join("broken.png");
        std::fs::write(&bad, b"not an image")?;
        let set = |id: &str, value: &str| {
            let script = "const t = document.getElementById(arguments[0]); t.scrollIntoView({ block: 'center' });
                t.value = arguments[1]; t.dispatchEvent(new Event('change', { bubbles: true }));";
            self.browser.run(script, &json!([id, value]))
        };
        for (cause, near) in [("template", "#template"), ("file", "#drop"), ("class", "#add-class"), ("chip", "#chips")]
        {
            self.start()?;
            match cause {
                "template" => drop(set("template", "no place for a name")?),
                "file" => self.browser.keys("#file", &bad.display().to_string())?,
                "chip" => {
                    let all = "for (let b; (b = document.querySelector('#chips button'));) b.click();";
                    self.browser.run(all, &json!([]))?;
                }
                _ => self.browser.keys("#add-class", &format!("{}\u{e007}", "very long ".repeat(15)))?,
            }
            self.browser.until("an alert", "!document.getElementById('alert').hidden")?;
            self.in_sight("#alert").with_context(|| cause)?;
            let gap = format!(
                "Math.abs(document.getElementById('alert').getBoundingClientRect().top - document.querySelector('{near}').getBoundingClientRect().bottom)"
            );
            let gap = self.number(&gap)?;
            ensure!(gap < 60.0, "{cause}: the error is {gap} pixels away from {near}");
        }
        Ok(())
    }

    fn terms(&self) -> Result<()> {
        self.start()?;
        self.browser.until("the row", COMPARED)?;
        let terms = self.number("document.querySelectorAll('button.term').length")?;
        ensure!(terms >= 9.0, "{terms} terms");
        for place in 0..terms as usize {
            let tap = "const b = document.querySelectorAll('button.term')[arguments[0]]; if (!b.checkVisibility()) return null;
                b.scrollIntoView({ block: 'center' }); b.click(); return document.getElementById('term').textContent;";
            let text = self.browser.run(tap, &json!([place]))?;
            let Some(text) = text.as_str() else { continue };
            ensure!(text.len() > 40, "a term is explained by {text:?}");
            self.in_sight("#term").with_context(|| text.to_owned())?;
            self.browser.press(&["\u{e00c}"])?; // escape
            self.browser.until("it is gone", "!document.getElementById('term').checkVisibility()")?;
        }
        Ok(())
    }
}
