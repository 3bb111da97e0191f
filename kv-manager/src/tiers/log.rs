//! The log of a disk tier: an append-only list of which slot got which record, so that a tier is known again after
//! a restart without reading its records.
//!
//! An entry is appended once its record is written, and overruled by any later one for the same slot or identity.
//! So whatever the process was doing when it was killed, the log names at worst a record that is gone, which its
//! reader notices. A log begins with a head that says what it is of; one of something else, or of another version,
//! is not used at all.
//!
//! An entry says whose its record is, which the identity does not tell: a quota holds over restarts.

use super::{Slot, TierRecord};
use domain::{BlockHash, GroupId, Tenant};

/// Bytes of the head.
pub const HEAD: usize = 32;
/// Bytes of an entry.
pub const ENTRY: usize = 40;

const MAGIC: [u8; 8] = *b"BTNKVLOG";
const VERSION: u32 = 1;
const PUT: u32 = 0x5450_5442;

/// What a log says.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Replay {
    /// The records, the oldest first.
    pub records: Vec<TierRecord>,
    /// Bytes that were understood: what follows is cut off before more is appended. 0: the head is not of this log.
    pub bytes: usize,
    /// Whether it is the log of something else, or of another version.
    pub foreign: bool,
    /// Entries that are none; those behind them were read on.
    pub corrupt: usize,
    /// Whether the end of the last entry is missing.
    pub torn: bool,
}

/// Writes the head of the log of a tier with this `shape`: a digest of all that its slots depend on.
pub fn head(shape: u64) -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&shape.to_le_bytes());
    seal(&mut bytes);
    bytes
}

/// Writes the entry that says that a slot has the record.
pub fn entry(&TierRecord { slot, hash, tenant }: &TierRecord) -> [u8; ENTRY] {
    let mut bytes = [0; ENTRY];
    bytes[..4].copy_from_slice(&PUT.to_le_bytes());
    bytes[4..6].copy_from_slice(&slot.group.0.to_le_bytes());
    bytes[8..12].copy_from_slice(&slot.slot.to_le_bytes());
    bytes[12..16].copy_from_slice(&tenant.0.to_le_bytes());
    bytes[16..32].copy_from_slice(&hash.0);
    seal(&mut bytes);
    bytes
}

/// Reads a log.
pub fn replay(bytes: &[u8], shape: u64) -> Replay {
    let Some((own, entries)) = bytes.split_first_chunk::<HEAD>() else {
        return Replay { torn: !bytes.is_empty(), ..Replay::default() };
    };
    if *own != head(shape) {
        return Replay { foreign: true, ..Replay::default() };
    }
    let (entries, rest) = entries.as_chunks::<ENTRY>();
    let mut replay = Replay { bytes: bytes.len() - rest.len(), torn: !rest.is_empty(), ..Replay::default() };
    for bytes in entries {
        match decode(bytes) {
            Some(record) => replay.records.push(record),
            None => replay.corrupt += 1,
        }
    }
    replay
}

fn decode(bytes: &[u8; ENTRY]) -> Option<TierRecord> {
    if !is_sealed(bytes) || bytes[..4] != PUT.to_le_bytes() {
        return None;
    }
    let group = GroupId(u16::from_le_bytes(bytes[4..6].try_into().ok()?));
    let slot = u32::from_le_bytes(bytes[8..12].try_into().ok()?);
    let tenant = Tenant(u32::from_le_bytes(bytes[12..16].try_into().ok()?));
    Some(TierRecord { slot: Slot { group, slot }, hash: BlockHash(bytes[16..32].try_into().ok()?), tenant })
}

/// Writes the check of what comes before it into the last eight bytes.
pub(super) fn seal(bytes: &mut [u8]) {
    let (body, check) = bytes.split_at_mut(bytes.len() - 8);
    check.copy_from_slice(&check_of(body));
}

/// Returns whether the last eight bytes are the check of what comes before them.
pub(super) fn is_sealed(bytes: &[u8]) -> bool {
    let (body, check) = bytes.split_at(bytes.len() - 8);
    check == check_of(body)
}

fn check_of(body: &[u8]) -> [u8; 8] {
    let mut check = [0; 8];
    check.copy_from_slice(&blake3::hash(body).as_bytes()[..8]);
    check
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = TierRecord> {
        (0..3_u16, any::<u32>(), any::<[u8; 16]>(), any::<u32>()).prop_map(|(group, slot, hash, tenant)| TierRecord {
            slot: Slot { group: GroupId(group), slot },
            hash: BlockHash(hash),
            tenant: Tenant(tenant),
        })
    }

    fn log(shape: u64, records: &[TierRecord]) -> Vec<u8> {
        let mut bytes = head(shape).to_vec();
        records.iter().for_each(|record| bytes.extend_from_slice(&entry(record)));
        bytes
    }

    proptest! {
        /// Cut anywhere, a log says what was appended before the cut, and where to go on.
        #[test]
        fn cut_at_every_byte(records in prop::collection::vec(record(), 0..6), shape: u64) {
            let bytes = log(shape, &records);
            for cut in 0..=bytes.len() {
                let replay = replay(&bytes[..cut], shape);
                let whole = cut.saturating_sub(HEAD) / ENTRY;
                prop_assert_eq!(&replay.records[..], &records[..whole]);
                prop_assert_eq!(replay.bytes, if cut < HEAD { 0 } else { HEAD + whole * ENTRY });
                prop_assert_eq!(replay.torn, replay.bytes != cut);
                prop_assert_eq!((replay.corrupt, replay.foreign), (0, false));
            }
        }

        /// A flipped bit costs its entry, no other.
        #[test]
        fn flipped_bits_are_noticed(records in prop::collection::vec(record(), 1..6), shape: u64, at: prop::sample::Index, bit in 0..8_u8) {
            let mut bytes = log(shape, &records);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let replay = replay(&bytes, shape);
            if at < HEAD {
                prop_assert!(replay.foreign && replay.records.is_empty());
            } else {
                let mut rest = records;
                rest.remove((at - HEAD) / ENTRY);
                prop_assert_eq!((replay.records, replay.corrupt), (rest, 1));
            }
        }

        #[test]
        fn another_shape_is_foreign(records in prop::collection::vec(record(), 0..3), shape: u64, other: u64) {
            prop_assume!(shape != other);
            prop_assert!(replay(&log(shape, &records), other).foreign);
        }

        #[test]
        fn garbage_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), shape: u64) {
            let mut log = head(shape).to_vec();
            prop_assert!(replay(&bytes, shape).records.is_empty());
            log.extend_from_slice(&bytes);
            let replay = replay(&log, shape);
            prop_assert_eq!(replay.corrupt, bytes.len() / ENTRY);
        }
    }
}
