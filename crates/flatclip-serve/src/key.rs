//! The key that clients show, which is never printed.

use flatclip::{Error, Result};
use sha2::{Digest as _, Sha256};
use std::path::Path;
use subtle::ConstantTimeEq as _;

/// A bearer key. Only its hash is kept, so that it cannot reach a log, and comparing takes the same time for any guess.
#[derive(Clone)]
pub struct Key([u8; 32]);

/// Fewer characters could be tried one after the other.
const SHORTEST: usize = 16;

impl Key {
    /// The key of this text; white space around it is cut off.
    pub fn new(text: &str) -> Result<Self> {
        let text = text.trim();
        let is_usable = text.len() >= SHORTEST && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_usable {
            let reason = format!("expected at least {SHORTEST} printable ASCII characters without spaces");
            return Err(Error::config("key", reason));
        }
        Ok(Self(Sha256::digest(text).into()))
    }

    /// The key in a file.
    pub fn read(file: &Path) -> Result<Self> {
        Self::new(&std::fs::read_to_string(file).map_err(Error::io(file))?)
    }

    /// Whether the value of an `Authorization` header shows this key.
    pub(crate) fn is_shown(&self, header: Option<&[u8]>) -> bool {
        let shown = header.and_then(|value| {
            let (scheme, rest) = value.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
        });
        let hash: [u8; 32] = Sha256::digest(shown.unwrap_or_default()).into();
        shown.is_some() & bool::from(hash.ct_eq(&self.0))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_key_is_accepted_and_it_is_never_printed() {
        let key = Key::new("correct-horse-battery\n").unwrap();
        assert!(key.is_shown(Some(b"Bearer correct-horse-battery")));
        assert!(key.is_shown(Some(b"bearer  correct-horse-battery ")));
        for wrong in [&b"Bearer correct-horse-batterz"[..], b"correct-horse-battery", b"Bearer ", b"", b"Basic x"] {
            assert!(!key.is_shown(Some(wrong)));
        }
        assert!(!key.is_shown(None));
        assert!(!format!("{key:?}").contains("horse"));
        assert!(Key::new("short").is_err() && Key::new("with spaces inside it all").is_err());
    }
}
