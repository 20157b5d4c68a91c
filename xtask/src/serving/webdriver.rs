//! A browser driven by chromedriver over its own HTTP interface: no more is needed than the two Debian packages.

use super::http::{Answer, ask, get, post_json};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a page takes at most on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running browser with one page.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    #[allow(dead_code)]
    profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser; `None` where there is no chromedriver.
    pub fn start(width: u32, height: u32) -> Result<Option<Self>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        // A browser reserves far more addresses than it uses; a limit on them, as tests have, is lifted where that is allowed.
        if !Command::new("chromedriver").arg("--version").output().is_ok_and(|output| output.status.success()) {
            return Ok(None);
        }
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let profile = tempfile::tempdir()?;
        let mut browser = Self { driver, address, session: String::new(), profile };
        let start = Instant::now();
        while get(address, "/status").is_err() {
            ensure!(start.elapsed() < PATIENCE, "chromedriver does not answer");
            std::thread::sleep(Duration::from_millis(30));
        }
        let arguments = [
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--hide-scrollbars".to_owned(),
            // Whatever is not on this machine does not resolve, so that a page that needs it complains.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1".to_owned(),
            format!("--window-size={width},{height}"),
            format!("--user-data-dir={}", browser.profile.path().display()),
        ];
        let body = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": arguments },
        } } });
        let found = check(ask(address, &post_json("/session", &body))?)?;
        browser.session = found["sessionId"].as_str().context("no session")?.to_owned();
        Ok(Some(browser))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        check(ask(self.address, &post_json(&format!("/session/{}{path}", self.session), body))?)
    }

    pub fn open(&self, url: &str) -> Result<()> {
        self.post("/url", &json!({ "url": url })).map(drop)
    }

    /// Runs a function body in the page and gives what it returns.
    pub fn run(&self, script: &str, arguments: &Value) -> Result<Value> {
        self.post("/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    pub fn value(&self, expression: &str) -> Result<Value> {
        self.run(&format!("return ({expression});"), &json!([]))
    }

    /// Waits until an expression is true.
    pub fn until(&self, what: &str, expression: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            if self.value(&format!("Boolean({expression})"))? == Value::Bool(true) {
                return Ok(());
            }
            ensure!(start.elapsed() < PATIENCE, "{what}: not so after {} s ({expression})", PATIENCE.as_secs());
            std::thread::sleep(Duration::from_millis(40));
        }
    }

    fn element(&self, selector: &str) -> Result<String> {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }))?;
        let id = found.as_object().and_then(|map| map.values().next()).and_then(Value::as_str);
        Ok(id.with_context(|| format!("no element {selector}"))?.to_owned())
    }

    /// Types into an element; a file input takes a path.
    pub fn keys(&self, selector: &str, text: &str) -> Result<()> {
        let element = self.element(selector)?;
        self.post(&format!("/element/{element}/value"), &json!({ "text": text })).map(drop)
    }

    pub fn click(&self, selector: &str) -> Result<()> {
        let element = self.element(selector)?;
        self.post(&format!("/element/{element}/click"), &json!({})).map(drop)
    }

    /// Presses keys on whatever has the focus.
    pub fn press(&self, keys: &[&str]) -> Result<()> {
        let actions: Vec<Value> = keys
            .iter()
            .flat_map(|key| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })])
            .collect();
        self.post("/actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] })).map(drop)
    }

    /// Presses on the middle of an element and moves by so many pixels before letting go: `mouse` or `touch`.
    pub fn drag(&self, selector: &str, pointer: &str, (across, down): (i32, i32)) -> Result<()> {
        let middle = "const e = document.querySelector(arguments[0]); e.scrollIntoView({ block: 'center' });
            const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2];";
        let middle = self.run(middle, &json!([selector]))?;
        let at =
            |axis: usize| middle[axis].as_f64().map(|x| x.round() as i32).with_context(|| format!("no {selector}"));
        let (x, y) = (at(0)?, at(1)?);
        let to = |part: i32| json!({ "type": "pointerMove", "duration": 60, "x": x + across * part / 4, "y": y + down * part / 4 });
        let mut actions = vec![
            json!({ "type": "pointerMove", "duration": 0, "x": x, "y": y }),
            json!({ "type": "pointerDown", "button": 0 }),
        ];
        actions.extend((1..=4).map(to));
        actions.push(json!({ "type": "pointerUp", "button": 0 }));
        let source =
            json!({ "type": "pointer", "id": pointer, "parameters": { "pointerType": pointer }, "actions": actions });
        self.post("/actions", &json!({ "actions": [source] })).map(drop)
    }

    /// A command of the developer tools.
    pub fn tool(&self, command: &str, parameters: &Value) -> Result<Value> {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Sets the colour scheme and the width.
    pub fn emulate(&self, dark: bool, width: u32, height: u32) -> Result<()> {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.tool("Emulation.setEmulatedMedia", &features)?;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.tool("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// What is on screen as PNG.
    pub fn screenshot_in_sight(&self, file: &Path) -> Result<()> {
        save(&self.tool("Page.captureScreenshot", &json!({}))?, file)
    }

    /// The whole page as PNG.
    pub fn screenshot(&self, file: &Path) -> Result<()> {
        let height = self.value("document.documentElement.scrollHeight")?.as_f64().unwrap_or(800.0);
        let width = self.value("document.documentElement.clientWidth")?.as_f64().unwrap_or(800.0);
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let shot = self.tool("Page.captureScreenshot", &json!({ "captureBeyondViewport": true, "clip": clip }))?;
        save(&shot, file)
    }

    /// What the page said on its console since the last call.
    pub fn console(&self) -> Result<Vec<String>> {
        let entries = self.post("/se/log", &json!({ "type": "browser" }))?;
        let text = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        Ok(entries.as_array().into_iter().flatten().map(text).collect())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let request = format!("DELETE /session/{} HTTP/1.1\r\nhost: localhost\r\n\r\n", self.session);
        let _ = ask(self.address, request.as_bytes());
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn save(shot: &Value, file: &Path) -> Result<()> {
    use base64::Engine as _;
    let data = shot["data"].as_str().context("no image")?;
    Ok(std::fs::write(file, base64::engine::general_purpose::STANDARD.decode(data)?)?)
}

/// The value of an answer, or what the driver complains about.
fn check(answer: Answer) -> Result<Value> {
    let mut json = answer.json()?;
    ensure!(answer.status == 200, "the browser says: {} {}", json["value"]["error"], json["value"]["message"]);
    Ok(json["value"].take())
}
