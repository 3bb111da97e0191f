//! The cluster's secret, and proofs of knowing it.

use std::fmt;

/// What the processes of a cluster share and nobody else knows. It is never sent: an end proves that it knows the secret by a
/// keyed hash over what the other end drew at random.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// The secret; an empty one is none: every proof made with it can be made by everybody.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The proof over `parts` (each counts with its length) for the purpose `purpose`: BLAKE3 under a key derived from
    /// both. Compare proofs with [`Secret::holds`].
    pub fn prove(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        let mut key = blake3::Hasher::new_derive_key("baton 2026 cluster secret");
        key.update(&(purpose.len() as u64).to_le_bytes());
        key.update(purpose.as_bytes());
        key.update(self.0.as_bytes());
        let mut hasher = blake3::Hasher::new_keyed(key.finalize().as_bytes());
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// Whether `proof` is the one over `parts`. Takes the same time wherever they differ.
    pub fn holds(&self, purpose: &str, parts: &[&[u8]], proof: &[u8; 32]) -> bool {
        blake3::Hash::from(self.prove(purpose, parts)) == blake3::Hash::from(*proof)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Secret(none)" } else { "Secret(..)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_depends_on_secret_purpose_and_every_part() {
        let proof = Secret::new("a").prove("p", &[b"ab", b"c"]);
        assert!(Secret::new("a").holds("p", &[b"ab", b"c"], &proof));
        assert!(!Secret::new("b").holds("p", &[b"ab", b"c"], &proof));
        assert!(!Secret::new("a").holds("q", &[b"ab", b"c"], &proof));
        assert!(!Secret::new("a").holds("p", &[b"a", b"bc"], &proof), "parts do not run into each other");
    }

    #[test]
    fn it_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::new("hush")), "Secret(..)");
    }
}
