//! Files that are complete or absent: written aside, synced, renamed.

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
    let mut aside = tempfile::NamedTempFile::new_in(folder).map_err(Error::io(folder))?;
    let mut buffered = std::io::BufWriter::new(&mut aside);
    fill(&mut buffered)?;
    buffered.flush().map_err(Error::io(path))?;
    drop(buffered);
    aside.as_file().sync_all().map_err(Error::io(path))?;
    aside.persist(path).map_err(|e| Error::Io { path: path.to_path_buf(), source: e.error })?;
    if let Ok(folder) = std::fs::File::open(folder) {
        // The rename itself is durable only when the folder is; a file system that cannot sync folders still has the file.
        let _ = folder.sync_all();
    }
    Ok(())
}
