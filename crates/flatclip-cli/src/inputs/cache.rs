//! `--cache`: where features are kept between runs.

use std::path::PathBuf;

/// Where features are kept.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CacheArgs {
    /// Folder of the feature cache [default: flatclip in the user's cache folder]
    #[arg(long, env = "FLATCLIP_CACHE", value_name = "DIR")]
    cache: Option<PathBuf>,
}

impl CacheArgs {
    /// The folder: as given, else the user's.
    pub(crate) fn folder(&self) -> PathBuf {
        self.cache.clone().unwrap_or_else(flatclip::cache_folder)
    }
}
