//! The API keys of clients, which are never printed.

use flatclip::{Error, Result};
use sha2::{Digest as _, Sha256};
use std::path::Path;
use subtle::ConstantTimeEq as _;

/// Bearer keys; a client must send one of them. Only hashes are stored, so that keys cannot be logged, and comparison takes
/// constant time.
#[derive(Clone)]
pub struct Key(Vec<[u8; 32]>);

/// Minimum length: shorter keys could be guessed by brute force.
const SHORTEST: usize = 16;

impl Key {
    /// The keys in a text, one per line, trimmed. With several keys, an old one can be replaced without refusing clients in
    /// between.
    pub fn new(text: &str) -> Result<Self> {
        let is_usable = |key: &&str| key.len() >= SHORTEST && key.bytes().all(|byte| byte.is_ascii_graphic());
        let keys: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if keys.is_empty() || !keys.iter().all(is_usable) {
            let reason = format!("expected at least {SHORTEST} printable ASCII characters without spaces");
            return Err(Error::config("key", reason));
        }
        Ok(Self(keys.into_iter().map(|key| Sha256::digest(key).into()).collect()))
    }

    /// The keys in a file.
    pub fn read(file: &Path) -> Result<Self> {
        Self::new(&std::fs::read_to_string(file).map_err(Error::io(file))?)
    }

    /// Whether the value of an `Authorization` header contains one of the keys.
    pub(crate) fn is_shown(&self, header: Option<&[u8]>) -> bool {
        let shown = header.and_then(|value| {
            let (scheme, rest) = value.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
        });
        let hash: [u8; 32] = Sha256::digest(shown.unwrap_or_default()).into();
        let is_known = self.0.iter().fold(false, |known, key| known | bool::from(hash.ct_eq(key)));
        shown.is_some() & is_known
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
        let two = Key::new("correct-horse-battery\n\nanother-horse-battery\n").unwrap();
        assert!(
            two.is_shown(Some(b"Bearer correct-horse-battery")) && two.is_shown(Some(b"Bearer another-horse-battery"))
        );
        assert!(Key::new("correct-horse-battery\nshort").is_err() && Key::new("").is_err());
        assert!(Key::new("short").is_err() && Key::new("with spaces inside it all").is_err());
    }
}
