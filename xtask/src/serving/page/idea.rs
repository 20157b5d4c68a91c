//! What the page shows of the idea: the first answer, methods in a row, the selection line, surfaces that turn.

use super::{ANSWERED, Page, Step};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

pub(super) const FLOWS: [(&str, Step); 6] = [
    ("opens with an image that zero-shot gets wrong and STSS right", Page::first_answer),
    ("a photo gets a warning before the answer", Page::warning),
    ("three methods stand in one row with what they selected", Page::row),
    ("the selection line is moved by mouse, touch and keys, and the vote follows", Page::selection_line),
    ("two surfaces turn together by mouse, touch and keys", Page::surfaces),
    ("a link with broken settings starts the page", Page::broken_links),
];

pub(super) const COMPARED: &str = "document.querySelectorAll('#compared .strip').length === 3";
pub(super) const SURFACES: &str = "document.getElementById('slice-legend').textContent.startsWith('At the prompt')";

impl Page {
    /// A file of noise that no synthetic drawing has the size of.
    pub(super) fn photo(&self) -> Result<String> {
        let file = self.folder.join("photo.png");
        let rgb = (0..320 * 240 * 3u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let image = flatclip::Image { width: 320, height: 240, rgb };
        std::fs::write(&file, flatclip::image::sheet::encode_png(&image)?)?;
        Ok(file.display().to_string())
    }

    fn first_answer(&self) -> Result<()> {
        self.start()?;
        self.browser.until("the row", COMPARED)?;
        for (method, mark) in [("zero-shot", "wrong"), ("stss", "right")] {
            let found = self.text(&format!("#compared [data-method={method}]"))?;
            ensure!(found.contains(mark), "{method} is not marked {mark}: {found}");
        }
        let (title, idea) = (self.text("#compared-title")?, self.text("#idea")?);
        ensure!(title.starts_with("One view is wrong") && idea.contains("6 that are confident"), "{title}: {idea}");
        let known = self.text("#known")?;
        ensure!(known.contains("trained on synthetic drawings and knows 32 classes"), "the model knows {known:?}");
        let asked = "performance.getEntriesByType('resource').filter((e) => e.name.endsWith('v1/classify')).length";
        ensure!(self.number(asked)? == 3.0, "the answers do not come from the server");
        self.browser.until("the surfaces", SURFACES)?;
        self.shot("start")
    }

    fn warning(&self) -> Result<()> {
        self.start()?;
        self.browser.until("the surfaces", SURFACES)?;
        ensure!(self.text("#warning")?.is_empty(), "a warning about a drawing");
        // Which comes first is seen by the page itself.
        let watch = "window.order = [];
            const warning = document.getElementById('warning');
            new MutationObserver(() => {
                if (!warning.hidden) order.push('warning');
                if (document.querySelector('.answer .says')) order.push('answer');
            }).observe(document.getElementById('results'), { subtree: true, childList: true, attributes: true });";
        self.browser.run(watch, &json!([]))?;
        self.browser.keys("#file", &self.photo()?)?;
        self.browser.until("an answer", ANSWERED)?;
        let order = self.browser.value("[...new Set(window.order)]")?;
        ensure!(order == json!(["warning", "answer"]), "seen in this order: {order}");
        let text = self.text("#warning")?;
        for part in ["synthetic drawings", "not meaningful", "--model ViT-B-16"] {
            ensure!(text.contains(part), "the warning says {text:?}");
        }
        let above = "document.getElementById('warning').getBoundingClientRect().bottom <= document.querySelector('#compared').getBoundingClientRect().top";
        ensure!(self.browser.value(above)? == Value::Bool(true), "the warning is not above the answer");
        self.browser.until("the row", COMPARED)?;
        self.shot("warning")?;
        self.browser.click("#samples li:nth-child(1) button")?;
        self.browser.until("an answer", ANSWERED)?;
        ensure!(self.text("#warning")?.is_empty(), "the warning stays for a drawing");
        self.browser.keys("#add-class", "whale\u{e007}")?;
        self.browser
            .until("a class that it does not know", "document.getElementById('warning').textContent.includes('whale')")
    }

    fn row(&self) -> Result<()> {
        self.take_sample(2)?;
        self.browser.until("the row", COMPARED)?;
        let tops = self.browser.value(
            "[...new Set([...document.querySelectorAll('#compared li')].map((e) => e.getBoundingClientRect().top))].length",
        )?;
        ensure!(tops == json!(1), "the methods stand in {tops} rows");
        for (method, views) in [("zero-shot", 1.0), ("zero", 19.0), ("stss", 6.0)] {
            let card = format!("#compared [data-method={method}]");
            let shown = self.number(&format!("document.querySelectorAll('{card} .strip canvas').length"))?;
            ensure!(shown == views, "{method} shows {shown} selected views");
            ensure!(!self.text(&format!("{card} .answered"))?.is_empty(), "{method} has no answer");
        }
        Ok(())
    }

    fn selection_line(&self) -> Result<()> {
        self.start()?;
        self.browser.until("the row", COMPARED)?;
        let count = || self.number("Number(document.querySelector('.handle').getAttribute('aria-valuenow'))");
        ensure!(count()? == 6.0, "{} views are selected", count()?);
        let mut bars = self.text(".bars")?;
        for how in ["mouse", "touch", "keys"] {
            let before = count()?;
            match how {
                "keys" => {
                    self.browser.run("document.querySelector('.handle').focus();", &json!([]))?;
                    self.browser.press(&["\u{e014}", "\u{e014}", "\u{e010}"])?; // right, right, end
                }
                _ => self.browser.drag(".handle .grip", how, (70, 0))?,
            }
            let now = count()?;
            ensure!(now > before, "{how}: {before} views are selected, then {now}");
            let followed = format!(
                "document.querySelector('.facts').textContent.startsWith('{now} of 64') || ({now} === 64 && document.querySelector('.facts').textContent.startsWith('64 views'))"
            );
            self.browser.until("the answer follows", &followed)?;
            for selector in [".scatter .dot.kept", ".sheet li.kept"] {
                let shown = self.number(&format!("document.querySelectorAll('{selector}').length"))?;
                ensure!(shown == now, "{how}: {shown} of {selector} for {now} views");
            }
            let tally = self.text(".tally")?;
            ensure!(tally.starts_with(&format!("{now} selected: ")), "{how}: {tally}");
            let next = self.text(".bars")?;
            ensure!(next != bars, "{how}: the vote does not follow");
            bars = next;
        }
        let card = self.text("#compared [data-method=stss]")?;
        ensure!(card.contains("64 of 64 views"), "the row says {card}");
        ensure!(self.text("[for=a-fraction] + output")? == "1", "the slider stays");
        Ok(())
    }

    fn surfaces(&self) -> Result<()> {
        self.start()?;
        self.browser.until("the surfaces", SURFACES)?;
        for (caption, start) in [("#slice-caption", "Selected, view "), ("#slice-other-caption", "Rejected, view ")] {
            let text = self.text(caption)?;
            ensure!(text.starts_with(start), "{caption} says {text:?}");
        }
        let images =
            || self.browser.value("['slice', 'slice-other'].map((id) => document.getElementById(id).toDataURL())");
        let mut before = images()?;
        ensure!(before[0] != before[1], "both surfaces are the same");
        for (how, canvas) in [("mouse", "#slice"), ("touch", "#slice-other"), ("keys", "#slice")] {
            match how {
                "keys" => {
                    self.browser.run("document.getElementById('slice').focus();", &json!([]))?;
                    self.browser.press(&["\u{e012}", "\u{e013}"])?; // left, up
                }
                _ => self.browser.drag(canvas, how, (60, 4))?,
            }
            let after = images()?;
            ensure!(before[0] != after[0] && before[1] != after[1], "{how} on {canvas} does not turn both");
            before = after;
        }
        // Another rejected view takes the place of the rejected one.
        self.browser.click(".sheet li:last-child button")?;
        self.browser.until("the surfaces", SURFACES)?;
        let last = self.browser.value("document.querySelector('.sheet li:last-child button').dataset.view")?;
        let caption = self.text("#slice-other-caption")?;
        let expected = format!("Rejected, view {}:", last.as_str().unwrap_or_default());
        ensure!(caption.starts_with(&expected), "{caption:?} is not {expected:?}");
        self.browser.run("document.getElementById('compared-panel').scrollIntoView();", &json!([]))?;
        self.shot("surfaces")
    }

    fn broken_links(&self) -> Result<()> {
        for settings in [r#"{"a":{"method":"stss","views":16,"options":null}}"#, "{", "null", r#"{"classes":7}"#] {
            self.browser.open("about:blank")?;
            self.browser.open(&format!("{}#{settings}", self.url))?;
            self.browser.until("the page starts", "document.querySelectorAll('#samples img').length === 16")?;
            self.browser.click("#samples li:nth-child(2) button")?;
            self.browser.until("an answer", ANSWERED)?;
        }
        Ok(())
    }
}
