//! The checksum of a file, computed while its bytes come.

use crate::listing::Checksum;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// The bytes seen so far.
pub(crate) struct Hasher(Context);

impl Hasher {
    /// Begins a file of `size` bytes whose checksum is of the kind of `expected`.
    pub(crate) fn new(expected: &Checksum, size: u64) -> Self {
        match expected {
            Checksum::Sha256(_) => Self(Context::new(&SHA256)),
            // Git names a blob by its length and its bytes. Source: git, `hash_object_file`.
            Checksum::GitSha1(_) => {
                let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {size}\0").as_bytes());
                Self(context)
            }
        }
    }

    /// Takes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Says whether the bytes were those of `expected`.
    pub(crate) fn is(self, expected: &Checksum) -> bool {
        let digest = self.0.finish();
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        hex == expected.hex()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_sha256sum_and_git() {
        let cases = [
            Checksum::Sha256("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824".to_owned()),
            Checksum::GitSha1("b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0".to_owned()),
        ];
        for expected in cases {
            let mut hasher = Hasher::new(&expected, 5);
            hasher.update(b"he");
            hasher.update(b"llo");
            assert!(hasher.is(&expected), "{expected:?}");
            let mut other = Hasher::new(&expected, 5);
            other.update(b"hullo");
            assert!(!other.is(&expected), "{expected:?}");
        }
    }
}
