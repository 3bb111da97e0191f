//! The header of a record in a tier: what is behind it, so that nothing else is ever taken for it.

use super::log::{is_sealed, seal};
use domain::{BlockHash, GroupId, LAYOUT_VERSION};

/// Bytes of a header. It has a sector to itself, whose rest is zero.
pub const HEADER: usize = 64;

const MAGIC: [u8; 8] = *b"BTNKVREC";
/// Version of the format, of a header and of what is behind it: where a header changes, the layout's version rises with
/// it.
pub const VERSION: u32 = LAYOUT_VERSION;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Its group.
    pub group: GroupId,
    /// Its identity, which covers the weights and all else that its bytes depend on but where they lie.
    pub hash: BlockHash,
    /// [`domain::KvLayout::records_fingerprint`] of its layout.
    pub fingerprint: u64,
    /// Its bytes.
    pub len: u64,
    /// The checksum of its bytes.
    pub checksum: u64,
}

/// Why a header is not the one that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// It is no header, or not a whole one.
    Corrupt,
    /// It is of another version of the format.
    Version(u32),
    /// It is another record's.
    Foreign,
}

impl RecordHeader {
    /// Returns its bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.group.0.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.hash.0);
        bytes[32..40].copy_from_slice(&self.fingerprint.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.len.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.checksum.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    /// Reads the record that `bytes` are the header of. Errors: they are none.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, HeaderError> {
        if bytes[..8] != MAGIC {
            return Err(HeaderError::Corrupt);
        }
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let version = word(8) as u32;
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        if !is_sealed(bytes) {
            return Err(HeaderError::Corrupt);
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&bytes[16..32]);
        let group = GroupId(u16::from_le_bytes([bytes[12], bytes[13]]));
        let header = Self { group, hash: BlockHash(hash), fingerprint: word(32), len: word(40), checksum: word(48) };
        // What it leaves out is zero.
        if *bytes == header.encode() { Ok(header) } else { Err(HeaderError::Corrupt) }
    }

    /// Checks that `bytes` are the header of this record, and returns the checksum that its bytes must have; that
    /// of `self` is not looked at. Errors: [`HeaderError`].
    pub fn checksum_in(&self, bytes: &[u8; HEADER]) -> Result<u64, HeaderError> {
        let found = Self::decode(bytes)?;
        let same = Self { checksum: found.checksum, ..*self } == found;
        if same { Ok(found.checksum) } else { Err(HeaderError::Foreign) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = RecordHeader> {
        (any::<u16>(), any::<[u8; 16]>(), any::<(u64, u64, u64)>()).prop_map(
            |(group, hash, (fingerprint, len, checksum))| RecordHeader {
                group: GroupId(group),
                hash: BlockHash(hash),
                fingerprint,
                len,
                checksum,
            },
        )
    }

    proptest! {
        #[test]
        fn only_the_right_header_is_taken(header in header(), other in header(), at in 0..HEADER, bit in 0..8_u8) {
            let bytes = header.encode();
            let unknown = RecordHeader { checksum: 0, ..header };
            prop_assert_eq!(RecordHeader::decode(&bytes), Ok(header));
            prop_assert_eq!(unknown.checksum_in(&bytes), Ok(header.checksum));
            if (RecordHeader { checksum: header.checksum, ..other }) != header {
                prop_assert_eq!(other.checksum_in(&bytes), Err(HeaderError::Foreign));
            }
            let mut flipped = bytes;
            flipped[at] ^= 1 << bit;
            prop_assert!(unknown.checksum_in(&flipped).is_err());
        }
    }
}
