//! Downloads known models from the Hugging Face hub (feature `hub`): with resume and retries, checked by size, digest and
//! content, and stored atomically. Used only when a caller requests a model by name.
//!
//! A lock file in the model's folder records what the hub reports about each file at the first download. Later downloads
//! must agree with it, so that a file that changes on the hub is detected.

mod client;
mod lock;

use super::bytes::bad;
use super::known::KnownModel;
use super::{safetensors, torch_file};
use crate::digest::file_sha256;
use crate::{Error, Result};
use client::{Client, Expected, Failure};
use lock::Lock;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Address of the hub.
pub(crate) const HUB: &str = "https://huggingface.co";
/// The configuration and the weights of a repository, best first: open_clip's layout, else that of transformers.
const LAYOUTS: [(&str, [&str; 2]); 2] = [
    ("open_clip_config.json", ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]),
    ("config.json", ["model.safetensors", "pytorch_model.bin"]),
];
/// Further files of a model with its own tokenizer.
const TOKENIZER: [&str; 2] = ["tokenizer_config.json", "tokenizer.json"];
/// Maximum delay between two attempts.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Reports the progress of a download: bytes so far, total bytes.
pub type Progress<'a> = &'a mut dyn FnMut(u64, Option<u64>);

/// The server and the retry settings.
#[derive(Clone)]
pub struct Hub {
    /// Address without a trailing slash, e.g. `HUB` or a mirror.
    pub endpoint: String,
    /// Number of retries after temporary errors.
    pub retries: u32,
    /// Delay before the second attempt; it doubles with each attempt.
    pub first_wait: Duration,
    token: Option<String>,
}

impl Hub {
    /// Sends this token to the endpoint's host, and to no other.
    pub(crate) fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }
}

impl Default for Hub {
    fn default() -> Self {
        Self::from(HUB)
    }
}

impl From<&str> for Hub {
    fn from(endpoint: &str) -> Self {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Self { endpoint, retries: 4, first_wait: Duration::from_secs(1), token: None }
    }
}

/// The token is never shown.
impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "***");
        let mut shown = f.debug_struct("Hub");
        shown.field("endpoint", &self.endpoint).field("retries", &self.retries).field("first_wait", &self.first_wait);
        shown.field("token", &token).finish()
    }
}

/// Downloads `model` into `model_dir` and returns its folder, which [`KnownModel::find`] then finds. Complete files are not
/// downloaded again; incomplete downloads are resumed.
pub fn fetch(model: &KnownModel, model_dir: &Path, hub: impl Into<Hub>, progress: Progress<'_>) -> Result<PathBuf> {
    let hub = hub.into();
    let folder = model.folder(model_dir);
    std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
    let repository = model.repositories.first().copied().unwrap_or_default();
    let mut download =
        Download { client: Client::new(&hub), lock: Lock::open(&folder)?, hub, repository, folder, is_reached: false };
    if model.has_tokenizer() {
        download.file(TOKENIZER[0], &mut |_, _| {})?;
        if !download.file(TOKENIZER[1], &mut |_, _| {})? {
            let reason = format!(
                "the repository holds no {}; put that of another size of the model into {}",
                TOKENIZER[1],
                download.folder.display()
            );
            return Err(Error::Fetch { url: download.url(TOKENIZER[1]), reason });
        }
    }
    for (config, weights) in LAYOUTS {
        // The configuration first: weights without it would count as complete and get the wrong activation. For repositories
        // without a configuration, the model's name determines the settings.
        let is_described = download.file(config, &mut |_, _| {})?;
        for file in weights {
            if download.file(file, progress)? {
                return Ok(download.folder);
            }
        }
        if is_described {
            break;
        }
    }
    let [first, second] = LAYOUTS[0].1;
    Err(Error::Fetch { url: download.url(first), reason: format!("the repository holds neither {first} nor {second}") })
}

struct Download {
    client: Client,
    hub: Hub,
    lock: Lock,
    repository: &'static str,
    folder: PathBuf,
    /// Whether the server has responded before: connection errors after that count as temporary.
    is_reached: bool,
}

impl Download {
    /// The first revision seen, so that configuration and weights are of the same revision.
    fn url(&self, file: &str) -> String {
        let revision = self.lock.revision.as_deref().unwrap_or("main");
        format!("{}/{}/resolve/{revision}/{file}", self.hub.endpoint, self.repository)
    }

    /// Fetches one file; false when the hub does not have it.
    fn file(&mut self, name: &str, progress: Progress<'_>) -> Result<bool> {
        let path = self.folder.join(name);
        if path.is_file() {
            self.check_present(name, &path)?;
            return Ok(true);
        }
        let part = self.folder.join(format!("{name}.part"));
        let url = self.url(name);
        let mut wait = self.hub.first_wait;
        let mut attempts = 1;
        loop {
            let attempt = self.attempt(name, &url, &part, progress).map_err(|failure| match failure {
                // A lost connection is retried. Without any connection so far the error is returned at once.
                Failure::NoConnection { reason } if self.is_reached => Failure::passing(reason),
                other => other,
            });
            self.is_reached |= !matches!(attempt, Err(Failure::NoConnection { .. }));
            match attempt {
                Ok(found) => {
                    if found {
                        std::fs::rename(&part, &path).map_err(Error::io(&path))?;
                    }
                    return Ok(found);
                }
                Err(Failure::Passing { after, .. }) if attempts <= self.hub.retries => {
                    attempts += 1;
                    std::thread::sleep(after.unwrap_or(wait).min(MAX_WAIT));
                    wait = wait.saturating_mul(2);
                }
                Err(Failure::Passing { reason, .. } | Failure::NoConnection { reason }) => {
                    return Err(Error::Fetch { url, reason: format!("{reason} (attempt {attempts})") });
                }
                Err(Failure::Final(error)) => return Err(error),
            }
        }
    }

    /// Checks an existing file against the lock file, and its content against the type in its name.
    fn check_present(&self, name: &str, path: &Path) -> Result<()> {
        let size = std::fs::metadata(path).map_err(Error::io(path))?.len();
        if let Some(expected) =
            self.lock.files.get(name).and_then(|file| file.size).filter(|&expected| expected != size)
        {
            let reason = format!("has {size} bytes, {expected} were fetched; remove it, and it is fetched again");
            return Err(bad(path, reason));
        }
        check_content(name, path)
    }

    /// False when the hub does not have the file.
    fn attempt(&mut self, name: &str, url: &str, part: &Path, progress: Progress<'_>) -> Result<bool, Failure> {
        let Some(expected) = self.client.expected(url)? else { return Ok(false) };
        // Before the download, so that a partial file of another version is detected.
        if !self.lock.agree(name, url, &expected)? {
            discard(part)?;
        }
        self.client.download(url, part, &expected, progress)?;
        self.check_complete(name, url, part, &expected)?;
        Ok(true)
    }

    /// Checks the complete file against what the hub reported. A wrong file is removed.
    fn check_complete(&mut self, name: &str, url: &str, part: &Path, expected: &Expected) -> Result<(), Failure> {
        let found = file_sha256(part)?;
        if let Some(wanted) = expected.file.sha256.as_ref().filter(|wanted| **wanted != found) {
            discard(part)?;
            let reason =
                format!("the download is damaged (its SHA-256 is {found}, the hub says {wanted}) and was removed");
            return Err(Failure::passing(reason));
        }
        if let Err(error) = check_content(name, part) {
            discard(part)?;
            let reason = format!("the server sent something else than {name}: {error}");
            return Err(Failure::fetch(url, reason));
        }
        if let Err(error) = self.lock.complete(name, url, &found) {
            discard(part)?;
            return Err(error);
        }
        Ok(())
    }
}

fn discard(part: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(part) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::Final(Error::io(part)(e))),
        _ => Ok(()),
    }
}

/// Whether the content matches the file type; an HTML error page, for example, does not.
fn check_content(name: &str, path: &Path) -> Result<()> {
    let mut head = [0; 16];
    let mut file = std::fs::File::open(path).map_err(Error::io(path))?;
    let count = file.read(&mut head).map_err(Error::io(path))?;
    if head[..count].trim_ascii_start().starts_with(b"<") {
        return Err(bad(path, "it is an HTML page"));
    }
    match Path::new(name).extension().and_then(|ending| ending.to_str()) {
        Some("safetensors") => safetensors::open(path).map(drop),
        Some("json") => match serde_json::from_str(&crate::files::read_text(path)?) {
            Ok(serde_json::Value::Object(_)) => Ok(()),
            _ => Err(bad(path, "it is not a JSON object")),
        },
        _ if torch_file::looks_like_torch(&head[..count]) => Ok(()),
        _ => Err(bad(path, "it is not a file of torch")),
    }
}
