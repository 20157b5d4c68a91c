//! A headless browser that opens one file without any network and tells what it complained about.

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// What to do where none is found.
pub const INSTALL: &str = "no browser found; `apt-get install chromium` installs one, or give --browser FILE";

/// Nothing may phone home, and every address outside the file fails, so that a page that needs the network is noticed.
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND",
];

/// A page takes a second or two; a loaded machine gets more.
const PATIENCE: Duration = Duration::from_secs(90);

/// The colour scheme that the page is told to prefer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Light,
    Dark,
}

impl Scheme {
    pub const ALL: [Self; 2] = [Self::Light, Self::Dark];

    pub fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    fn flag(self) -> &'static str {
        match self {
            Self::Light => "--blink-settings=preferredColorScheme=1",
            Self::Dark => "--blink-settings=preferredColorScheme=0",
        }
    }
}

/// A Chromium on this machine.
pub struct Browser {
    program: PathBuf,
}

impl Browser {
    /// The given program, or the first known name on the search path.
    pub fn find(given: Option<PathBuf>) -> Option<Self> {
        if let Some(program) = given {
            return Some(Self { program });
        }
        let path = std::env::var_os("PATH")?;
        let files = std::env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
        files.into_iter().find(|file| file.is_file()).map(|program| Self { program })
    }

    /// Opens a file, saves what is seen as PNG, and gives every line that the page caused on the console: script errors,
    /// warnings, and resources that could not be loaded.
    pub fn open(&self, page: &Path, scheme: Scheme, screenshot: &Path, size: (usize, usize)) -> Result<Vec<String>> {
        let profile = tempfile::tempdir()?;
        let log = profile.path().join("log");
        let page = page.canonicalize().with_context(|| page.display().to_string())?;
        let mut child = Command::new(&self.program)
            .args(FLAGS)
            .arg(scheme.flag())
            .arg(format!("--window-size={},{}", size.0, size.1))
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            .arg(format!("--screenshot={}", screenshot.display()))
            .arg(format!("file://{}", page.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .spawn()
            .with_context(|| format!("starting {}", self.program.display()))?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                bail!("{}: the browser was not done after {} s", page.display(), PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let said = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
        if !status.success() || !screenshot.is_file() {
            bail!("{}: {} ended with {status} and these words:\n{said}", page.display(), self.program.display());
        }
        Ok(complaints(&said))
    }
}

/// The lines of the browser's log that come from the page. Chromium writes all of them as INFO, whatever their level, and our
/// pages say nothing of their own, so each of them is a fault.
fn complaints(log: &str) -> Vec<String> {
    log.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_the_page_are_complaints() {
        let log = "[1:1:0101/000000.1:ERROR:dbus/bus.cc:406] no bus\n\
                   [1:1:0101/000000.2:INFO:CONSOLE:12] \"Uncaught ReferenceError\", source: file:///x.html (12)\n\
                   1234 bytes written to file out.png\n";
        let found = complaints(log);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("ReferenceError"));
    }
}
