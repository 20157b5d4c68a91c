//! Configuration of a server: addresses, models, limits.

use crate::typed::{MOST_IMAGES, MOST_NAMES};
use flatclip::settings::toml_error;
use flatclip::{Error, Hint, Result};
use serde::Deserialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Settings of a server. A configuration file has the same settings as TOML; see `docs/guide/serving.md`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address and port.
    pub bind: SocketAddr,
    /// Allow serving other machines without a key.
    pub insecure: bool,
    /// A file with one key per line; clients must send one of them. Reloaded on SIGHUP.
    pub key_file: Option<PathBuf>,
    /// The models; the first is the default of requests.
    pub models: Vec<ModelEntry>,
    /// Prompts by name.
    pub prompts: Vec<PromptEntry>,
    /// Class lists by name.
    pub class_sets: Vec<ClassSet>,
    /// Folder in which known models are searched first.
    pub model_dir: Option<PathBuf>,
    /// Never download a model.
    pub offline: bool,
    /// Run each model once before the server reports that it is ready.
    pub warm_up: bool,
    /// Host names under which browsers may reach the server, in addition to `localhost` and loopback addresses; `*` for all. If
    /// empty, names are checked only on a loopback address.
    pub allowed_hosts: Vec<String>,
    /// Origins of pages on other servers that may send requests and read the answers (CORS), such as `https://example.org`; `*`
    /// for all.
    pub allowed_origins: Vec<String>,
    /// Log the addresses of clients.
    pub log_addresses: bool,
    /// Limits on requests and resources.
    pub limits: Limits,
    /// The file this was read from; reloaded on SIGHUP.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// The key, if it is not in a file.
    #[serde(skip)]
    pub key: Option<crate::Key>,
    /// Lets a request header make a handler or a worker panic, for tests.
    #[doc(hidden)]
    #[serde(skip)]
    pub faults: bool,
}

/// A model to load.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// Its name in requests.
    pub name: String,
    /// The argument of `Model::load`: a known name, a folder or a file; the name above by default.
    pub source: Option<String>,
    /// `auto`, `f32`, `bf16`, `i16` or `f16`.
    pub precision: Option<String>,
}

/// A prompt to load.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptEntry {
    /// Its name in requests.
    pub name: String,
    /// A prompt file, or the directory of a tuning run.
    pub path: PathBuf,
}

/// Class names under one name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassSet {
    /// Its name in requests.
    pub name: String,
    /// The class names.
    #[serde(default)]
    pub classes: Vec<String>,
    /// Alternatively, a file with one name per line.
    pub file: Option<PathBuf>,
}

/// Declares the limits, each with its default.
macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr,)*) => {
        /// Limits of a server.
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Limits {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }
    };
}

limits! {
    /// Threads that take work from the queue; each batch runs on all cores.
    workers: usize = std::thread::available_parallelism().map_or(2, std::num::NonZeroUsize::get),
    /// Maximum images that wait or run, separately for light jobs (up to 4 views) and others; more are refused with status 429.
    queue: usize = 64,
    /// Share of the queue, of held bytes and of sessions that one client (address) may use.
    client_share: f64 = 0.5,
    /// Maximum views in one call of the image tower.
    batch_views: usize = 64,
    /// Milliseconds that an incomplete batch waits for more images.
    batch_wait_ms: u64 = 0,
    /// Bytes of a request's body.
    body_bytes: usize = 16 << 20,
    /// Bytes of all bodies, of their parsed contents, and of answers that are held at the same time.
    held_bytes: usize = 128 << 20,
    /// Bytes of an answer.
    answer_bytes: usize = 16 << 20,
    /// Megabytes of decoded pixels and views that are processed at the same time; an image that needs more is processed alone.
    pixel_megabytes: usize = 192,
    /// Total megabytes that the process may use in addition to its models.
    memory_megabytes: usize = 512,
    /// Pixels of an image.
    pixels: u64 = 25_000_000,
    /// Images of a request.
    images: usize = 32,
    /// Class names of a request.
    classes: usize = 2000,
    /// Characters of a class name, a template or a text.
    name_chars: usize = 200,
    /// Texts of a request.
    texts: usize = 256,
    /// Views of an image.
    views: usize = 256,
    /// Largest whole number that an option of a method may have: steps and perturbations cost time.
    option_integer: u64 = 64,
    /// Grid points along each axis of a loss slice.
    slice_points: usize = 31,
    /// Maximum class lists in the cache of text features.
    kept_classifiers: usize = 64,
    /// Megabytes of cached text features, text banks and sessions.
    kept_megabytes: usize = 128,
    /// Maximum estimated milliseconds for building a classifier; longer builds are refused.
    build_ms: u64 = 1_800_000,
    /// Open sessions.
    sessions: usize = 64,
    /// Seconds after which a session that is not used is closed.
    session_seconds: u64 = 600,
    /// Maximum open connections, as far as the limit on open files allows; for a further one an idle one is closed, or it is
    /// refused.
    connections: usize = 1024,
    /// Milliseconds for a request's head, and again for its body.
    read_ms: u64 = 10_000,
    /// Milliseconds in which a client must read a part of its response.
    write_ms: u64 = 10_000,
    /// Milliseconds from the last byte of a request to its answer.
    deadline_ms: u64 = 30_000,
    /// Milliseconds that a stopping server waits for accepted requests.
    drain_ms: u64 = 25_000,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            insecure: false,
            key_file: None,
            models: vec![ModelEntry { name: "pocket".to_owned(), source: None, precision: None }],
            prompts: Vec::new(),
            class_sets: Vec::new(),
            model_dir: None,
            offline: false,
            warm_up: true,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            log_addresses: false,
            limits: Limits::default(),
            file: None,
            key: None,
            faults: false,
        }
    }
}

impl Limits {
    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    pub(crate) fn read_time(&self) -> Duration {
        Duration::from_millis(self.read_ms)
    }

    /// The first limit whose value makes serving impossible.
    fn check(&self) -> Result<()> {
        let wrong = |name: &str, reason: String| Err(Error::config(format!("limits.{name}"), reason));
        let least = [
            ("workers", self.workers),
            ("queue", self.queue),
            ("batch_views", self.batch_views),
            ("body_bytes", self.body_bytes),
            ("images", self.images),
            ("classes", self.classes),
            ("views", self.views),
            ("connections", self.connections),
            ("kept_classifiers", self.kept_classifiers),
        ];
        for (name, value) in least {
            if value == 0 {
                return wrong(name, "expected at least 1, found 0".to_owned());
            }
        }
        if self.held_bytes / 2 < self.body_bytes {
            let reason = format!("expected at least twice body_bytes ({}), found {}", self.body_bytes, self.held_bytes);
            return wrong("held_bytes", reason);
        }
        if self.deadline_ms == 0 || self.read_ms == 0 || self.write_ms == 0 {
            return Err(Error::config("limits", "expected deadline_ms, read_ms and write_ms above 0"));
        }
        if !(self.client_share > 0.0 && self.client_share <= 1.0) {
            return wrong("client_share", format!("expected a number in (0, 1], found {}", self.client_share));
        }
        for (name, value, most) in [("images", self.images, MOST_IMAGES), ("classes", self.classes, MOST_NAMES)] {
            if value > most {
                return wrong(name, format!("expected at most {most}, found {value}"));
            }
        }
        let parts = (self.held_bytes >> 20) + self.pixel_megabytes + self.kept_megabytes;
        if self.memory_megabytes < parts {
            let reason = format!(
                "expected at least held_bytes, pixel_megabytes and kept_megabytes together ({parts}), found {}",
                self.memory_megabytes
            );
            return wrong("memory_megabytes", reason);
        }
        Ok(())
    }
}

impl Config {
    /// Reads a file; a wrong key, type or value is an error that names it.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).map_err(Error::io(file))?;
        let key = file.display().to_string();
        let mut config: Self = toml::from_str(&text).map_err(|error| toml_error(key, &text, &error))?;
        config.file = Some(file.to_owned());
        config.check()?;
        Ok(config)
    }

    /// Checks for settings that are invalid or unsafe.
    pub fn check(&self) -> Result<()> {
        self.limits.check()?;
        if self.models.is_empty() {
            return Err(Error::config("models", "expected at least one model, found none"));
        }
        unique("models", self.models.iter().map(|model| model.name.as_str()))?;
        unique("prompts", self.prompts.iter().map(|prompt| prompt.name.as_str()))?;
        unique("class_sets", self.class_sets.iter().map(|set| set.name.as_str()))
    }

    pub(crate) fn read_key(&self) -> Result<Option<crate::Key>> {
        match (&self.key, &self.key_file) {
            (Some(key), _) => Ok(Some(key.clone())),
            (None, Some(file)) => crate::Key::read(file).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Refuses to serve other machines without a key, unless explicitly allowed.
    pub(crate) fn check_exposure(&self, has_key: bool) -> Result<()> {
        if self.bind.ip().is_loopback() || has_key || self.insecure {
            return Ok(());
        }
        let reason = format!("{} can be reached from other machines, so clients must show a key", self.bind);
        Err(Error::config("bind", reason).with_hint(Hint::ServerKey))
    }
}

fn unique<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        let is_plain =
            !name.is_empty() && name.len() <= 100 && !name.contains(|c: char| c.is_control() || c == '?' || c == '#');
        if !is_plain {
            let reason = format!("expected a short name without control characters, found {name:?}");
            return Err(Error::config(what, reason));
        }
        if !seen.insert(name) {
            return Err(Error::config(what, format!("expected each name once, found {name:?} twice")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("serve.toml");
        std::fs::write(&file, text).unwrap();
        Config::read(&file)
    }

    #[test]
    fn a_file_names_models_prompts_class_sets_and_limits() {
        let config = read(
            "bind = '127.0.0.1:9000'\n[[models]]\nname = 'small'\nsource = 'pocket-vit'\n[[class_sets]]\nname = 'pets'\n\
             classes = ['cat', 'dog']\n[limits]\nqueue = 7\n",
        )
        .unwrap();
        assert_eq!((config.models[0].source.as_deref(), config.limits.queue), (Some("pocket-vit"), 7));
        assert_eq!(config.limits.views, Limits::default().views);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, found) in [
            ("bnid = 'x'", "line 1: unknown field `bnid`"),
            ("\n[limits]\nqueue = -1", "line 3"),
            ("[limits]\nqueue = 0", "limits.queue: expected at least 1"),
            ("models = []", "models: expected at least one"),
            ("[limits]\nheld_bytes = 1", "limits.held_bytes"),
            ("[[models]]\nname='a'\n[[models]]\nname='a'", "twice"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(found), "{text}: {error}");
        }
    }

    #[test]
    fn the_world_is_served_only_with_a_key_or_on_purpose() {
        let open = Config { bind: "0.0.0.0:80".parse().unwrap(), ..Config::default() };
        assert!(open.check_exposure(false).unwrap_err().to_string().contains("key"));
        assert!(open.check_exposure(true).is_ok());
        assert!(Config { insecure: true, ..open }.check_exposure(false).is_ok());
        assert!(Config::default().check_exposure(false).is_ok());
    }
}
