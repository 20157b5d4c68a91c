//! `--cache` and `--no-cache`: where features are kept between runs.

use std::path::PathBuf;

/// Where features are kept.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CacheArgs {
    /// Folder of the feature cache [default: flatclip in the user's cache folder]
    #[arg(long, env = "FLATCLIP_CACHE", value_name = "DIR")]
    cache: Option<PathBuf>,
}

impl CacheArgs {
    /// The folder: as given, else below `XDG_CACHE_HOME` or `~/.cache`.
    pub(crate) fn folder(&self) -> PathBuf {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let user =
            || std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home);
        self.cache
            .clone()
            .or_else(|| user().map(|path| path.join("flatclip")))
            .unwrap_or_else(|| PathBuf::from(".flatclip-cache"))
    }
}
