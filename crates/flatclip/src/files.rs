//! Files that are complete or absent: written aside, synced, renamed. And texts that people wrote.

mod text;

pub use text::{escaped, quoted, read_text};

use crate::{Error, Result};
use std::io::Write as _;
use std::path::Path;

/// Writes `bytes` to `path` so that a reader, or a crash, sees the old file or the new one, never a part.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomic_with(path, |file| file.write_all(bytes).map_err(Error::io(path)))
}

/// Like [`write_atomic`], for content that is made piece by piece.
pub fn write_atomic_with(path: &Path, fill: impl FnOnce(&mut dyn std::io::Write) -> Result<()>) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    let mut aside = shared(&mut builder).tempfile_in(folder).map_err(Error::io(folder))?;
    let mut buffered = std::io::BufWriter::new(&mut aside);
    fill(&mut buffered)?;
    buffered.flush().map_err(Error::io(path))?;
    drop(buffered);
    aside.as_file().sync_all().map_err(Error::io(path))?;
    aside.persist(path).map_err(|e| Error::Io { path: path.to_path_buf(), reason: e.error })?;
    if let Ok(folder) = std::fs::File::open(folder) {
        // The rename itself is durable only when the folder is; a file system that cannot sync folders still has the file.
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Files that others may read as far as the user's umask allows: tempfile's own are private, which surprises in a shared folder.
pub(crate) fn shared<'a, 'b, 'c>(builder: &'a mut tempfile::Builder<'b, 'c>) -> &'a mut tempfile::Builder<'b, 'c> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder
}
