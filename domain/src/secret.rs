//! The cluster's secret, and proofs of knowing it.

use std::fmt;

/// What the processes of a cluster share and no other process knows. It is never sent: an end proves that it knows the
/// secret by a keyed hash over what the other end drew at random.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// Makes a secret. An empty one protects nothing: every process can make its proofs.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the proof over `parts` (each counts with its length) for the purpose `purpose`: BLAKE3 under a key
    /// derived from both. Compare proofs with [`Secret::holds`].
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

    /// Returns whether `proof` is the one over `parts`. Takes the same time wherever they differ.
    pub fn holds(&self, purpose: &str, parts: &[&[u8]], proof: &[u8; 32]) -> bool {
        blake3::Hash::from(self.prove(purpose, parts)) == blake3::Hash::from(*proof)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Secret(none)" } else { "Secret(..)" })
    }
}

/// The secrets that a process knows while its cluster's secret is being replaced: the one that it proves itself
/// by, and one more that it accepts. So the processes of a cluster can be restarted one by one: first the new
/// secret is accepted everywhere, then it is used everywhere, then the old one goes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Secrets {
    own: Secret,
    also: Option<Secret>,
}

impl Secrets {
    /// Proves itself by `own`, and accepts proofs by `own` and by `also`.
    pub fn new(own: Secret, also: Option<Secret>) -> Self {
        Self { own, also }
    }

    /// Returns whether there is none: proofs are worth nothing.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Returns the secret by which this process proves itself if it speaks first.
    pub fn own(&self) -> &Secret {
        &self.own
    }

    /// Returns the secret by which `proof` was made, if it is an accepted one. The answer is proven by the same
    /// secret.
    pub fn accepted(&self, purpose: &str, parts: &[&[u8]], proof: &[u8; 32]) -> Option<&Secret> {
        std::iter::once(&self.own).chain(&self.also).find(|secret| secret.holds(purpose, parts, proof))
    }
}

impl From<Secret> for Secrets {
    fn from(own: Secret) -> Self {
        Self { own, also: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_secrets_are_replaced_both_are_accepted() {
        let both = Secrets::new(Secret::new("new"), Some(Secret::new("old")));
        for known in ["new", "old"] {
            let proof = Secret::new(known).prove("p", &[b"a"]);
            assert_eq!(both.accepted("p", &[b"a"], &proof), Some(&Secret::new(known)));
        }
        let strange = Secret::new("other").prove("p", &[b"a"]);
        assert_eq!(both.accepted("p", &[b"a"], &strange), None);
        let none = Secret::default().prove("p", &[b"a"]);
        assert_eq!(both.accepted("p", &[b"a"], &none), None, "an empty secret proves nothing where there is one");
    }

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
