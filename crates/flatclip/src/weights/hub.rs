//! Fetching known models from the Hugging Face hub (feature `hub`): resumable, checked by size and SHA-256, complete or
//! absent. Only a caller that asks for a model by name ever gets here.

use super::known::KnownModel;
use crate::digest::file_sha256;
use crate::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Where the hub lives.
pub const HUB: &str = "https://huggingface.co";
/// Weights, best first.
const WEIGHTS: [&str; 2] = ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"];
const CONFIG: &str = "open_clip_config.json";
/// The largest known model has 2 GB.
const MAX_BYTES: u64 = 64 << 30;

/// Tells the caller how far a download is: bytes so far, bytes in all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, Option<u64>);

/// Fetches `model` into `model_dir` and returns its folder, which [`KnownModel::find`] then finds. What is complete already
/// is not fetched again; what is incomplete goes on where it stopped.
pub fn fetch(model: &KnownModel, model_dir: &Path, hub: &str, progress: Progress<'_>) -> Result<PathBuf> {
    let folder = model.folder(model_dir);
    std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
    let repository = model.repositories.first().copied().unwrap_or_default();
    let url = |file: &str| format!("{hub}/{repository}/resolve/main/{file}");
    let client = Client::new();
    // The configuration first: weights without it would be taken for complete, with the wrong activation. Some
    // repositories have none; then the name says what it would.
    client.file(&url(CONFIG), &folder.join(CONFIG), &mut |_, _| {})?;
    for file in WEIGHTS {
        if client.file(&url(file), &folder.join(file), progress)? {
            return Ok(folder);
        }
    }
    Err(Error::Fetch {
        url: url(WEIGHTS[0]),
        reason: format!("the repository holds neither {} nor {}", WEIGHTS[0], WEIGHTS[1]),
    })
}

/// What the hub says about a file before it is fetched.
struct Expected {
    size: Option<u64>,
    sha256: Option<String>,
}

struct Client {
    /// Follows redirects to wherever the bytes are.
    follow: Agent,
    /// Stops at the hub's own answer, which carries size and SHA-256.
    ask: Agent,
}

impl Client {
    fn new() -> Self {
        let agent = |redirects| -> Agent {
            Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(redirects)
                .max_redirects_will_error(false)
                .user_agent(concat!("flatclip/", env!("CARGO_PKG_VERSION")))
                .timeout_connect(Some(Duration::from_secs(30)))
                .timeout_recv_response(Some(Duration::from_secs(60)))
                .timeout_per_read(Some(Duration::from_secs(60)))
                .build()
                .into()
        };
        Self { follow: agent(10), ask: agent(0) }
    }

    /// Fetches one file; false when the hub does not have it.
    fn file(&self, url: &str, path: &Path, progress: Progress<'_>) -> Result<bool> {
        if path.is_file() {
            return Ok(true);
        }
        let Some(expected) = self.expected(url)? else { return Ok(false) };
        let part = part_of(path);
        let mut have = std::fs::metadata(&part).map_or(0, |about| about.len());
        if expected.size.is_some_and(|size| have > size) {
            have = 0;
        }
        if expected.size != Some(have) || have == 0 {
            self.download(url, &part, have, &expected, progress)?;
        }
        check(url, &part, &expected)?;
        std::fs::rename(&part, path).map_err(Error::io(path))?;
        Ok(true)
    }

    fn expected(&self, url: &str) -> Result<Option<Expected>> {
        let response = self.ask.head(url).call().map_err(|e| unreachable(url, &e))?;
        match response.status().as_u16() {
            404 => return Ok(None),
            200..=399 => {}
            status => return Err(refused(url, status)),
        }
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        // Large files are described by `x-linked-*`; a plain answer describes itself.
        let size = header("x-linked-size").or_else(|| header("content-length").filter(|_| response.status() == 200));
        let tag = header("x-linked-etag").map(|tag| tag.trim_matches('"').to_ascii_lowercase());
        let sha256 = tag.filter(|tag| tag.len() == 64 && tag.bytes().all(|b| b.is_ascii_hexdigit()));
        let size = size.and_then(|size| size.parse().ok());
        if let Some(size) = size.filter(|size| *size > MAX_BYTES) {
            let hint = "no known model is that large".into();
            return Err(Error::Limit { what: format!("{url}: bytes"), asked: size, allowed: MAX_BYTES, hint });
        }
        Ok(Some(Expected { size, sha256 }))
    }

    fn download(&self, url: &str, part: &Path, have: u64, expected: &Expected, progress: Progress<'_>) -> Result<()> {
        // Compressed transfer would make byte ranges meaningless.
        let mut request = self.follow.get(url).header("accept-encoding", "identity");
        if have > 0 {
            request = request.header("range", format!("bytes={have}-"));
        }
        let response = request.call().map_err(|e| unreachable(url, &e))?;
        let (file, start) = match response.status().as_u16() {
            206 if resumes_at(&response, have) => (OpenOptions::new().append(true).open(part), have),
            // A server that does not know ranges sends everything.
            200 => (File::create(part), 0),
            status => return Err(refused(url, status)),
        };
        let mut file = file.map_err(Error::io(part))?;
        let limit = expected.size.unwrap_or(MAX_BYTES).saturating_sub(start);
        // One byte more than expected shows that there is too much, and is never kept.
        let mut body = response.into_body().into_with_config().limit(u64::MAX).reader().take(limit.saturating_add(1));
        let mut buffer = vec![0; 1 << 16];
        let mut done = start;
        loop {
            let n = body.read(&mut buffer).map_err(|e| Error::Fetch {
                url: url.to_owned(),
                reason: format!("interrupted after {done} bytes ({e}); run it again, it goes on from there"),
            })?;
            if n == 0 {
                break;
            }
            file.write_all(&buffer[..n]).map_err(Error::io(part))?;
            done += n as u64;
            progress(done, expected.size);
        }
        file.sync_all().map_err(Error::io(part))
    }
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn resumes_at(response: &Response<Body>, have: u64) -> bool {
    let range = response.headers().get("content-range").and_then(|value| value.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {have}-")))
}

/// The whole file against what the hub said. A file that is too short stays, to go on; a wrong one is removed.
fn check(url: &str, part: &Path, expected: &Expected) -> Result<()> {
    let size = std::fs::metadata(part).map_err(Error::io(part))?.len();
    let wrong = |reason: String| Error::Fetch { url: url.to_owned(), reason };
    if let Some(wanted) = expected.size.filter(|wanted| *wanted > size) {
        return Err(wrong(format!(
            "the connection ended after {size} of {wanted} bytes; run it again, it goes on from there"
        )));
    }
    let mut problem = expected
        .size
        .filter(|wanted| *wanted < size)
        .map(|wanted| format!("more than the {wanted} bytes that the hub says"));
    if let (None, Some(wanted)) = (&problem, &expected.sha256) {
        let found = file_sha256(part)?;
        if found != *wanted {
            problem = Some(format!("its SHA-256 is {found}, the hub says {wanted}"));
        }
    }
    match problem {
        None => Ok(()),
        Some(problem) => {
            std::fs::remove_file(part).map_err(Error::io(part))?;
            Err(wrong(format!("the download is damaged ({problem}) and was removed; run it again")))
        }
    }
}

fn unreachable(url: &str, error: &ureq::Error) -> Error {
    let hint = "without a network, put the files into the model folder yourself";
    Error::Fetch { url: url.to_owned(), reason: format!("{error}; {hint}") }
}

fn refused(url: &str, status: u16) -> Error {
    Error::Fetch { url: url.to_owned(), reason: format!("the server answered {status}") }
}
