//! The page in a real browser, as a person uses it.

mod axe;
mod idea;
mod phone;

use super::running::Running;
use super::webdriver::Browser;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A flow and what came of it.
type Flow = (String, Result<()>);

/// What is done on the page.
type Step = fn(&Page) -> Result<()>;

/// Keys as WebDriver writes them.
const TAB: &str = "\u{e004}";
const RIGHT: &str = "\u{e014}";
const ENTER: &str = "\u{e007}";

pub fn run(out: Option<PathBuf>) -> Result<()> {
    let root = crate::root()?;
    let binary = crate::build(root)?;
    check(&binary, out)
}

/// As a step of `cargo xtask test`: only where there is a browser.
pub fn run_if_possible() -> Result<()> {
    check(&crate::target_dir(crate::root()?)?.join("release/flatclip"), None)
}

fn check(binary: &Path, out: Option<PathBuf>) -> Result<()> {
    eprintln!("== page of the server: used in a headless browser");
    let out = out.map_or_else(|| Ok(crate::target_dir(crate::root()?)?.join("serve-page")), Ok::<_, anyhow::Error>)?;
    std::fs::create_dir_all(&out)?;
    let folder = tempfile::tempdir()?;
    let Some(flows) = flows(binary, folder.path(), Some(&out))? else {
        eprintln!(
            "== page of the server: SKIPPED, no chromedriver; `apt-get install chromium chromium-driver` installs one"
        );
        return Ok(());
    };
    let mut failed = 0;
    for (name, outcome) in &flows {
        match outcome {
            Ok(()) => eprintln!("   ok  {name}"),
            Err(error) => {
                failed += 1;
                eprintln!("   FAILED  {name}: {error:#}");
            }
        }
    }
    ensure!(failed == 0, "{failed} of {} flows of the page failed", flows.len());
    eprintln!("== page of the server: {} flows ok, screenshots in {}", flows.len(), out.display());
    Ok(())
}

/// Every flow, with screenshots into a folder if one is named; `None` without a browser.
pub fn flows(binary: &Path, folder: &Path, shots: Option<&Path>) -> Result<Option<Vec<Flow>>> {
    let Some(browser) = Browser::start(1280, 900)? else { return Ok(None) };
    let server = Running::start(binary, folder, &[])?;
    let page = Page {
        url: format!("http://{}/", server.address),
        browser,
        folder: folder.to_path_buf(),
        shots: shots.map(Path::to_path_buf),
    };
    let usual: [(&str, Step); 14] = [
        ("the console is watched", Page::console_is_watched),
        ("opens without a word on the console", Page::opens),
        ("a sample is answered and the kept views stand out", Page::sample),
        ("a dropped photo is answered", Page::dropped),
        ("a chosen file is answered", Page::chosen),
        ("another method answers, two side by side", Page::methods),
        ("a slider changes the answer", Page::slider),
        ("a view shows where it lies and the loss around the prompt", Page::slice),
        ("what the server refuses is shown", Page::refused),
        ("markup in names stays text", Page::markup),
        ("the keyboard alone suffices", Page::keyboard),
        ("a link brings the settings back and never the photo", Page::link),
        ("names and roles for screen readers", Page::roles),
        ("dark and phone", Page::dark_and_phone),
    ];
    let mut outcomes: Vec<Flow> = Vec::new();
    for (name, flow) in usual.into_iter().chain(idea::FLOWS).chain(phone::FLOWS).chain(axe::flows()?) {
        outcomes.push((name.to_owned(), flow(&page).and_then(|()| page.quiet())));
    }
    outcomes.push(("nothing from elsewhere was asked for".to_owned(), page.only_this_server()));
    Ok(Some(outcomes))
}

struct Page {
    url: String,
    browser: Browser,
    folder: PathBuf,
    shots: Option<PathBuf>,
}

const ANSWERED: &str =
    "document.querySelector('.answer .says')?.textContent && document.getElementById('working').hidden";

impl Page {
    fn shot(&self, name: &str) -> Result<()> {
        match &self.shots {
            Some(folder) => self.browser.screenshot(&folder.join(format!("{name}.png"))),
            None => Ok(()),
        }
    }

    fn shot_in_sight(&self, name: &str) -> Result<()> {
        match &self.shots {
            Some(folder) => self.browser.screenshot_in_sight(&folder.join(format!("{name}.png"))),
            None => Ok(()),
        }
    }

    /// Every message on the console is a fault, but the status that a refusal has.
    fn quiet(&self) -> Result<()> {
        let said: Vec<String> = self
            .browser
            .console()?
            .into_iter()
            .filter(|line| !line.contains("Failed to load resource: the server responded with a status of 4"))
            .collect();
        ensure!(said.is_empty(), "the console says {said:?}");
        Ok(())
    }

    fn start(&self) -> Result<()> {
        self.browser.open("about:blank")?;
        self.browser.open(&self.url)?;
        self.browser.until(
            "the page starts",
            "document.querySelectorAll('#samples img').length === 16 && document.querySelector('#method-a select')",
        )?;
        self.browser.until("the first answer", ANSWERED)
    }

    fn text(&self, selector: &str) -> Result<String> {
        let found = self
            .browser
            .run("return document.querySelector(arguments[0])?.textContent ?? null;", &json!([selector]))?;
        Ok(found.as_str().with_context(|| format!("no {selector}"))?.to_owned())
    }

    fn number(&self, expression: &str) -> Result<f64> {
        self.browser.value(expression)?.as_f64().with_context(|| expression.to_owned())
    }

    fn take_sample(&self, number: u32) -> Result<()> {
        self.start()?;
        self.browser.click(&format!("#samples li:nth-child({number}) button"))?;
        self.browser.until("an answer", ANSWERED)?;
        self.browser.until("the row", idea::COMPARED)
    }

    /// A check that cannot see a fault is worth nothing.
    fn console_is_watched(&self) -> Result<()> {
        self.start()?;
        self.browser.console()?;
        self.browser.run("const s = document.createElement('img'); s.src = 'http://flatclip.invalid/x.png'; document.body.append(s); console.error('seen');", &json!([]))?;
        self.browser.until("a moment", "performance.now() > 0")?;
        std::thread::sleep(std::time::Duration::from_millis(300));
        let said = self.browser.console()?.join("\n");
        ensure!(said.contains("seen") && said.contains("flatclip.invalid"), "the console is not seen: {said}");
        Ok(())
    }

    fn opens(&self) -> Result<()> {
        self.start()?;
        self.browser.until(
            "samples are drawn",
            "[...document.querySelectorAll('#samples img')].slice(0, 5).every((i) => i.complete && i.naturalWidth > 0)",
        )?;
        self.shot("empty")
    }

    fn sample(&self) -> Result<()> {
        self.take_sample(3)?;
        let (views, kept) = (
            self.number("document.querySelectorAll('.sheet li').length")?,
            self.number("document.querySelectorAll('.sheet li.kept').length")?,
        );
        ensure!(views == 64.0 && kept == 6.0, "{kept} of {views} views are kept");
        let opacity = |selector: &str| {
            self.number(&format!("Number(getComputedStyle(document.querySelector('{selector} canvas')).opacity)"))
        };
        ensure!(opacity(".sheet li.kept")? > 2.0 * opacity(".sheet li:not(.kept)")?, "kept views do not stand out");
        ensure!(self.number("document.querySelectorAll('.scatter .dot.kept').length")? == 6.0, "no scatter");
        ensure!(self.number("document.querySelectorAll('.scatter .threshold').length")? == 1.0, "no threshold");
        ensure!(self.number("document.querySelectorAll('.bars li').length")? == 6.0, "no bars");
        let said = self.text("#status")?;
        ensure!(said.contains("stss: "), "the status says {said:?}");
        self.shot("light")
    }

    fn dropped(&self) -> Result<()> {
        self.start()?;
        let script = "const done = fetch('samples/sketch-5.png').then((r) => r.blob()).then((blob) => {
            const data = new DataTransfer();
            data.items.add(new File([blob], 'dropped.png', { type: 'image/png' }));
            document.getElementById('drop').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
        }); return true;";
        self.browser.run(script, &json!([]))?;
        self.browser.until("it is taken", "document.getElementById('image-note').textContent.includes('dropped')")?;
        self.browser.until("an answer", ANSWERED)?;
        ensure!(self.text("#warning")?.is_empty(), "a drawing gets a warning");
        ensure!(self.text("#image-note")?.contains("dropped.png, 112 × 112"), "{}", self.text("#image-note")?);
        Ok(())
    }

    fn chosen(&self) -> Result<()> {
        self.start()?;
        let file = self.folder.join("<img src=x onerror=alert(1)>.png");
        let rgb = (0..300 * 200 * 3u32).map(|place| (place / 900 % 200 + place % 50) as u8).collect();
        std::fs::write(&file, flatclip::image::sheet::encode_png(&flatclip::Image { width: 300, height: 200, rgb })?)?;
        self.browser.keys("#file", &file.display().to_string())?;
        self.browser.until("an answer", ANSWERED)?;
        ensure!(
            self.text("#image-note")?.contains("<img src=x onerror=alert(1)>.png, 300 × 200"),
            "{}",
            self.text("#image-note")?
        );
        ensure!(
            self.number("document.querySelectorAll('#image-note img').length")? == 0.0,
            "a file name became markup"
        );
        Ok(())
    }

    fn methods(&self) -> Result<()> {
        self.take_sample(2)?;
        self.browser.click("#compare")?;
        self.browser.until("two answers", "document.querySelectorAll('.answer').length === 2")?;
        self.browser.run(
            "const s = document.getElementById('name-b'); s.value = 'zero'; s.dispatchEvent(new Event('change'));",
            &json!([]),
        )?;
        self.browser.until("the other method", "document.querySelectorAll('.answer h2')[1]?.textContent === 'zero'")?;
        ensure!(self.text(".answer .note")?.contains("ms of work"), "no time");
        self.shot("two-methods")
    }

    fn slider(&self) -> Result<()> {
        self.take_sample(2)?;
        let set = "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('input'));";
        self.browser.run(set, &json!(["a-fraction", "0.5"]))?;
        self.browser.until("half of the views", "document.querySelectorAll('.sheet li.kept').length === 32")?;
        self.browser.run(set, &json!(["a-views", "16"]))?;
        self.browser.until("fewer views", "document.querySelectorAll('.sheet li').length === 16")
    }

    fn slice(&self) -> Result<()> {
        self.take_sample(4)?;
        self.browser.click(".sheet li:nth-child(2) button")?;
        self.browser
            .until("the slice", "document.getElementById('slice-legend').textContent.startsWith('At the prompt')")?;
        ensure!(self.text(".view-says")?.contains("score"), "the view says nothing");
        let painted = "(() => { const c = document.getElementById('slice'); return new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size; })()";
        ensure!(self.number(painted)? > 20.0, "nothing is painted");
        self.shot("slice")?;
        // Moving on ends the work: a new question hides the slice and stops it.
        self.browser.click(".sheet li:nth-child(3) button")?;
        self.browser.keys("#add-class", "sailboat\u{e007}")?;
        self.browser.until("it is gone", "document.getElementById('slice-panel').hidden")
    }

    fn refused(&self) -> Result<()> {
        self.take_sample(1)?;
        self.browser.run("const t = document.getElementById('template'); t.value = 'no place for a name'; t.dispatchEvent(new Event('change'));", &json!([]))?;
        self.browser.until("an alert", "!document.getElementById('alert').hidden")?;
        let said = self.text("#alert")?;
        ensure!(said.contains("{}"), "the alert says {said:?}");
        self.shot("refused")?;
        self.browser.run(
            "const t = document.getElementById('template'); t.value = ''; t.dispatchEvent(new Event('change'));",
            &json!([]),
        )?;
        self.browser.until("an answer again", ANSWERED)?;
        ensure!(self.browser.value("document.getElementById('alert').hidden")? == Value::Bool(true), "the alert stays");
        Ok(())
    }

    fn markup(&self) -> Result<()> {
        self.take_sample(1)?;
        for name in
            ["<img src=x onerror=window.bad=1>", "<script>window.bad=1</script>", "\"><svg onload=window.bad=1>"]
        {
            self.browser.keys("#add-class", &format!("{name}\u{e007}"))?;
        }
        // The small tower may refuse names that are so long; then the alert shows its words.
        let shown = "document.querySelectorAll('.chips li').length === 9 && (document.querySelectorAll('.bars li').length === 9 || !document.getElementById('alert').hidden)";
        self.browser.until("nine classes", shown)?;
        ensure!(self.browser.value("window.bad ?? null")?.is_null(), "markup of a name was run");
        ensure!(
            self.number("document.querySelectorAll('.bars img, .chips img, .bars svg, .chips svg, .chips script, #alert *').length")? == 0.0,
            "a name became markup"
        );
        ensure!(self.text(".chips")?.contains("<img src=x onerror=window.bad=1>"), "the name is not shown");
        Ok(())
    }

    fn keyboard(&self) -> Result<()> {
        self.start()?;
        let focus_on = |what: &str, most: usize| -> Result<()> {
            for _ in 0..most {
                self.browser.press(&[TAB])?;
                if self.browser.value(&format!("document.activeElement?.matches({what:?})"))? == Value::Bool(true) {
                    return Ok(());
                }
            }
            anyhow::bail!("{what} is not reached by {most} tabs");
        };
        focus_on("#samples button", 30)?;
        self.browser.press(&[ENTER])?;
        self.browser.until("an answer", ANSWERED)?;
        focus_on("#add-class", 60)?;
        self.browser.press(&["c", "u", "p", ENTER])?;
        self.browser.until("the class", "document.querySelector('.chips').textContent.includes('cup')")?;
        self.browser.until("an answer with it", "document.querySelectorAll('.bars li').length === 7")?;
        focus_on(".sheet button", 60)?;
        self.browser.press(&[RIGHT, RIGHT, ENTER])?;
        self.browser
            .until("the slice", "document.getElementById('slice-legend').textContent.startsWith('At the prompt')")
    }

    fn link(&self) -> Result<()> {
        self.take_sample(6)?;
        self.browser.keys("#add-class", "teapot\u{e007}")?;
        self.browser.until("the class", "document.querySelectorAll('.bars li').length === 7")?;
        let link = self.browser.value("location.href")?.as_str().unwrap_or_default().to_owned();
        ensure!(link.contains("teapot") && link.contains("photo-5.png") && link.len() < 2000, "{link}");
        let answer = self.text(".answer .bars")?;
        self.browser.open("about:blank")?;
        self.browser.open(&link)?;
        self.browser.until("an answer", ANSWERED)?;
        ensure!(self.text(".answer .bars")? == answer, "the link gives another answer");
        for kind in ["curl", "python", "json", "link"] {
            self.browser.click(&format!("[data-copy={kind}]"))?;
            self.browser.until("the text", "!document.getElementById('copied').hidden && document.getElementById('copied').textContent.length > 20")?;
        }
        Ok(())
    }

    /// What a screen reader needs: a language, a title, headings in order, a name for everything that can be used.
    fn roles(&self) -> Result<()> {
        self.take_sample(1)?;
        let script = r#"
            const faults = [];
            if (!document.documentElement.lang || !document.title) faults.push("no language or title");
            let level = 0;
            for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
                const next = Number(heading.tagName[1]);
                if (next > level + 1) faults.push(`${heading.textContent}: h${next} after h${level}`);
                level = next;
            }
            const seen = new Set();
            for (const element of document.querySelectorAll("[id]")) {
                if (seen.has(element.id)) faults.push(`the id ${element.id} twice`);
                seen.add(element.id);
            }
            for (const element of document.querySelectorAll("button, input, select, a[href], canvas[role], svg[role]")) {
                if (element.closest("[hidden]")) continue;
                const name = element.getAttribute("aria-label") || element.textContent.trim() || element.querySelector("img")?.alt
                    || [...(element.labels ?? [])].map((label) => label.textContent.trim()).join("");
                if (!name) faults.push(`no name: ${element.outerHTML.slice(0, 120)}`);
            }
            for (const image of document.querySelectorAll("img")) if (!image.hasAttribute("alt")) faults.push("an image without alt");
            for (const role of ["main", "h1", "[role=alert]", "[role=status]"]) if (!document.querySelector(role)) faults.push(`no ${role}`);
            return faults;"#;
        let faults = self.browser.run(script, &json!([]))?;
        ensure!(faults == json!([]), "{faults}");
        Ok(())
    }

    fn dark_and_phone(&self) -> Result<()> {
        self.browser.emulate(true, 1280, 900)?;
        self.take_sample(3)?;
        let paper = self.text_of_style("background-color")?;
        self.shot("dark")?;
        for dark in [false, true] {
            self.browser.emulate(dark, 390, 844)?;
            self.take_sample(3)?;
            self.browser.click(".sheet li:nth-child(1) button")?;
            self.browser.until(
                "the slice",
                "document.getElementById('slice-legend').textContent.startsWith('At the prompt')",
            )?;
            let wide = self.number("document.documentElement.scrollWidth")?;
            ensure!(wide <= 390.0, "the page is {wide} wide on a phone of 390");
            self.shot(if dark { "phone-dark" } else { "phone" })?;
        }
        self.browser.emulate(false, 1280, 900)?;
        ensure!(paper != self.text_of_style("background-color")?, "dark and light have the same paper");
        Ok(())
    }

    fn text_of_style(&self, name: &str) -> Result<String> {
        let style = format!("getComputedStyle(document.body).getPropertyValue({name:?})");
        Ok(self.browser.value(&style)?.as_str().unwrap_or_default().to_owned())
    }

    fn only_this_server(&self) -> Result<()> {
        let names = self.browser.value("performance.getEntriesByType('resource').map((entry) => entry.name)")?;
        let names: Vec<&str> = names.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        ensure!(!names.is_empty(), "nothing was loaded");
        let foreign: Vec<&&str> = names.iter().filter(|name| !name.starts_with(&self.url)).collect();
        ensure!(foreign.is_empty(), "{foreign:?}");
        Ok(())
    }
}
