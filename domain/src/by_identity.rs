//! Hashing for maps whose keys are block identities.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds the hasher of a map whose keys are identities, alone or beside a group or a worker. Without a key of its
/// own: the same calls leave the same state in every run.
pub type ByIdentity = BuildHasherDefault<IdentityHasher>;

/// Takes eight bytes of the identity as they are: an identity is the output of a keyed cryptographic hash, so its
/// bytes are as even as those of any other hash of it.
///
/// A client that knows the weights and the name of its tenant can compute identities, and can look for texts whose
/// identities begin alike. That makes look-ups of these slower by comparisons, and never wrong. They are in a map only
/// after a worker computed the KV of each of the texts. So it is an expensive way to slow a cache down, and any hash
/// with a known key allows the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, bytes: &[u8]) {
        let first = bytes.first_chunk().expect("an identity has sixteen bytes");
        self.0 ^= u64::from_le_bytes(*first);
    }

    /// Takes a group.
    fn write_u16(&mut self, group: u16) {
        self.0 ^= u64::from(group);
    }

    /// Takes a worker.
    fn write_u32(&mut self, worker: u32) {
        self.0 ^= u64::from(worker);
    }

    /// Ignores the length of an identity, which is always the same.
    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockHash, GroupId, WorkerId};
    use std::hash::{BuildHasher, Hash};

    fn hash(key: impl Hash) -> u64 {
        ByIdentity::default().hash_one(key)
    }

    #[test]
    fn it_is_the_head_of_the_identity_and_what_stands_beside_it() {
        let identity = BlockHash([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        assert_eq!(hash(identity), 0x0807_0605_0403_0201);
        assert_eq!(hash((GroupId(0x10), identity)), 0x0807_0605_0403_0211);
        assert_eq!(hash((WorkerId(0x100), identity)), 0x0807_0605_0403_0301);
    }
}
