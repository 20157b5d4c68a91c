//! Files that are complete or absent: written aside, synced, renamed.

use crate::{Error, Result};
use std::io::{Read as _, Write as _};
use std::path::Path;

/// Writes `bytes` to `path` so that a reader, or a crash, sees the old file or the new one, never a part.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomic_with(path, |file| file.write_all(bytes).map_err(Error::io(path)))
}

/// Like [`write_atomic`], for content that is made piece by piece.
pub(crate) fn write_atomic_with(path: &Path, fill: impl FnOnce(&mut dyn std::io::Write) -> Result<()>) -> Result<()> {
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
pub fn shared<'a, 'b, 'c>(builder: &'a mut tempfile::Builder<'b, 'c>) -> &'a mut tempfile::Builder<'b, 'c> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder
}

/// Longer files are not lists: ImageNet's list of 1.3 million training images takes 60 MB.
const MAX_BYTES: u64 = 256 << 20;

/// A UTF-8 file as text, without its byte-order mark.
pub fn read_text(path: &Path) -> Result<String> {
    let file = std::fs::File::open(path).map_err(Error::io(path))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(Error::io(path))?;
    if bytes.len() as u64 > MAX_BYTES {
        let hint = "a list of names, templates or samples is expected here".to_owned();
        return Err(Error::Limit {
            what: format!("{}: bytes of text", path.display()),
            asked: bytes.len() as u64,
            allowed: MAX_BYTES,
            hint,
        });
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let reason = "is UTF-16 text, expected UTF-8; save it as UTF-8".to_owned();
        return Err(Error::Data { path: path.to_path_buf(), reason });
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let reason = format!("is not UTF-8 text (byte {}); save it as UTF-8", e.utf8_error().valid_up_to());
        Error::Data { path: path.to_path_buf(), reason }
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The path of a file below the repository's `fixtures`.
#[cfg(test)]
pub(crate) fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}
