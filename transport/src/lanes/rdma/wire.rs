//! What two agents say to each other about queue pairs and keys, over a connection of its own.
//!
//! The reader offers its rails with a queue pair for each; the owner answers with one of its own for each of
//! those, and with the keys of its regions. Later the owner tells of new regions and, while the reader watches, of
//! its progress; and for a rail that failed, both make new queue pairs. All numbers are little endian. What the
//! other end says is checked here as far as it can be without looking at devices.

use crate::fields::{FieldReader, FieldWriter};
use crate::regions::RegionId;
use crate::wire_error::WireError;

/// Version of these messages. Other versions are refused.
pub(super) const VERSION: u16 = 4;
/// Rails of one agent; a host's further ports are left alone.
pub(super) const PORTS_MAX: usize = 8;
/// Queue pairs for a peer on one rail.
pub(crate) const QUEUES_MAX: usize = 8;
/// Queue pair and packet numbers have so many bits.
const NUMBER_BITS: u32 = 24;

/// What kind each frame is. They are of another range than those of `control`, whose frames come before.
pub(super) mod kind {
    /// Queue pairs, of either end: [`super::Queues`].
    pub(crate) const QUEUES: u8 = 32;
    /// A region: [`super::KeyedRegion`].
    pub(crate) const REGION: u8 = 33;
    /// The owner has told of all regions that there are.
    pub(crate) const READY: u8 = 34;
    /// The reader wants to hear of every raise of the progress word until it has reached this.
    pub(crate) const WATCH: u8 = 35;
    /// The progress word.
    pub(crate) const WORD: u8 = 36;
    /// A region is registered no more: its number.
    pub(crate) const WITHDRAWN: u8 = 37;
    /// New queue pairs for one rail, of either end, where there are none or those that there were failed:
    /// [`super::RemadeRail`].
    pub(crate) const RAIL: u8 = 38;
}

/// How a port is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GidKind {
    InfiniBand,
    RoceV1,
    RoceV2,
}

/// What one end of a queue pair must know of the other's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortAddress {
    pub(super) kind: GidKind,
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    /// 1 to 5: packets of 128 bytes shifted by so much.
    pub(super) mtu: u8,
    /// Reads that it has under way at once, at most.
    pub(super) reads: u8,
    /// Reads of the other end that it serves at once, at most.
    pub(super) reads_of_peers: u8,
}

/// The queue pairs on one rail; none: nothing can be read over it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RailQueues {
    pub(super) address: PortAddress,
    /// Number and first packet of each.
    pub(super) queues: Vec<(u32, u32)>,
}

/// The queue pairs of one end. The answer has as many, in the order of the offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queues {
    /// Of the layout that the regions have.
    pub(super) fingerprint: u64,
    pub(super) rails: Vec<RailQueues>,
}

/// Queue pairs for one rail, in place of earlier ones if there were any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemadeRail {
    pub(super) which: Attempt,
    pub(super) queues: RailQueues,
}

/// Which rail of a link is made anew, in the reader's order, and for the how-manieth time: the answer repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) rail: u8,
    pub(super) number: u32,
}

/// A region of the owner, as the reader's device addresses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyedRegion {
    pub(super) id: RegionId,
    pub(crate) len: u64,
    pub(super) address: u64,
    /// Its key on each rail.
    pub(super) keys: Vec<u32>,
}

/// Why what the other end says of queue pairs, keys and regions is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("version {0} of the exchange of queue pairs, where {VERSION} is spoken here")]
    Version(u16),
    #[error("its regions have the layout {theirs:016x}, where {ours:016x} is meant")]
    Layout { theirs: u64, ours: u64 },
    #[error("{count} {what}, where {least} to {most} may be")]
    Count { count: usize, what: &'static str, least: usize, most: usize },
    #[error("a port of kind {0}")]
    GidKind(u8),
    #[error("packets of size {0}")]
    PacketSize(u8),
    #[error("number {0} of a queue pair or packet")]
    Number(u32),
    #[error("a region with {keys} keys for {rails} rails")]
    Keys { keys: usize, rails: usize },
    #[error("a region of {len} bytes at {address:#x}")]
    RegionWraps { len: u64, address: u64 },
    #[error("{answered} rails answer {offered}")]
    Rails { answered: usize, offered: usize },
    #[error("there is no rail {0}")]
    NoRail(usize),
    #[error("no port here speaks {0:?}")]
    NoPort(GidKind),
    #[error("it asks for rails anew, and takes none of the answers")]
    AnswersNotTaken,
}

impl Queues {
    pub(super) fn encode(&self) -> Vec<u8> {
        let fields = FieldWriter::default().u16(VERSION).u64(self.fingerprint).u8(self.rails.len() as u8);
        fields.each(&self.rails, RailQueues::write).finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ExchangeError> {
        let mut fields = FieldReader::new(bytes);
        let version = fields.u16()?;
        if version != VERSION {
            return Err(ExchangeError::Version(version));
        }
        let fingerprint = fields.u64()?;
        let count = read_count(&mut fields, 1, PORTS_MAX, "rails")?;
        let rails = (0..count).map(|_| RailQueues::read(&mut fields)).collect::<Result<_, _>>()?;
        fields.end()?;
        Ok(Self { fingerprint, rails })
    }

    /// Checks that the other end means the same by a region's bytes.
    pub(super) fn check_fingerprint(&self, ours: u64) -> Result<(), ExchangeError> {
        let theirs = self.fingerprint;
        if theirs == ours { Ok(()) } else { Err(ExchangeError::Layout { theirs, ours }) }
    }
}

impl RemadeRail {
    pub(super) fn encode(&self) -> Vec<u8> {
        let fields = FieldWriter::default().u8(self.which.rail).u32(self.which.number);
        RailQueues::write(fields, &self.queues).finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ExchangeError> {
        let mut fields = FieldReader::new(bytes);
        let which = Attempt { rail: fields.u8()?, number: fields.u32()? };
        let queues = RailQueues::read(&mut fields)?;
        fields.end()?;
        Ok(Self { which, queues })
    }
}

impl RailQueues {
    fn write(fields: FieldWriter, rail: &Self) -> FieldWriter {
        let Self { address, queues } = rail;
        let kind = match address.kind {
            GidKind::InfiniBand => 0,
            GidKind::RoceV1 => 1,
            GidKind::RoceV2 => 2,
        };
        let fields = fields.u8(kind).bytes(&address.gid).u16(address.lid);
        let fields = fields.bytes(&[address.mtu, address.reads, address.reads_of_peers, queues.len() as u8]);
        fields.each(queues, |fields, &(number, packet)| fields.u32(number).u32(packet))
    }

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, ExchangeError> {
        let kind = match fields.u8()? {
            0 => GidKind::InfiniBand,
            1 => GidKind::RoceV1,
            2 => GidKind::RoceV2,
            other => return Err(ExchangeError::GidKind(other)),
        };
        let (gid, lid, [mtu, reads, reads_of_peers]) = (fields.bytes()?, fields.u16()?, fields.bytes()?);
        if !(1..=5).contains(&mtu) {
            return Err(ExchangeError::PacketSize(mtu));
        }
        let count = read_count(fields, 0, QUEUES_MAX, "queue pairs")?;
        let queues = (0..count).map(|_| Ok((read_number(fields)?, read_number(fields)?)));
        let queues = queues.collect::<Result<_, ExchangeError>>()?;
        Ok(Self { address: PortAddress { kind, gid, lid, mtu, reads, reads_of_peers }, queues })
    }
}

impl KeyedRegion {
    pub(super) fn encode(&self) -> Vec<u8> {
        let fields = FieldWriter::default().region(self.id).u64(self.len).u64(self.address);
        fields.u8(self.keys.len() as u8).each(&self.keys, |fields, &key| fields.u32(key)).finish()
    }

    /// Reads a region that has a key for each of `rails`.
    pub(super) fn decode(bytes: &[u8], rails: usize) -> Result<Self, ExchangeError> {
        let mut fields = FieldReader::new(bytes);
        let (id, len, address) = (fields.region()?, fields.u64()?, fields.u64()?);
        let count = read_count(&mut fields, 1, PORTS_MAX, "keys")?;
        if count != rails {
            return Err(ExchangeError::Keys { keys: count, rails });
        }
        if address.checked_add(len).is_none() {
            return Err(ExchangeError::RegionWraps { len, address });
        }
        let keys = (0..count).map(|_| fields.u32()).collect::<Result<_, _>>()?;
        fields.end()?;
        Ok(Self { id, len, address, keys })
    }
}

/// Reads a progress word, said or waited for.
pub(super) fn decode_word(bytes: &[u8]) -> Result<u64, WireError> {
    let mut fields = FieldReader::new(bytes);
    let word = fields.u64()?;
    fields.end()?;
    Ok(word)
}

/// Takes the number of a queue pair, or of a packet.
fn read_number(fields: &mut FieldReader<'_>) -> Result<u32, ExchangeError> {
    let number = fields.u32()?;
    if number >> NUMBER_BITS == 0 { Ok(number) } else { Err(ExchangeError::Number(number)) }
}

/// Takes how many of `what` follow.
fn read_count(
    fields: &mut FieldReader<'_>,
    least: usize,
    most: usize,
    what: &'static str,
) -> Result<usize, ExchangeError> {
    let count = usize::from(fields.u8()?);
    if (least..=most).contains(&count) { Ok(count) } else { Err(ExchangeError::Count { count, what, least, most }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queues() -> Queues {
        let address =
            PortAddress { kind: GidKind::RoceV2, gid: [7; 16], lid: 3, mtu: 5, reads: 16, reads_of_peers: 12 };
        let rail = RailQueues { address, queues: vec![(17, 0), (18, 0xFF_FFFF)] };
        let none = RailQueues { queues: Vec::new(), ..rail.clone() };
        Queues { fingerprint: 9, rails: vec![rail.clone(), none, RailQueues { queues: vec![(1, 2)], ..rail }] }
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut Vec<u8>), expect: &str) {
        let mut bytes = queues().encode();
        change(&mut bytes);
        let reason = Queues::decode(&bytes).expect_err(expect).to_string();
        assert!(reason.contains(expect), "{reason}");
    }

    #[test]
    fn queues_come_as_they_went_and_nonsense_is_refused() {
        assert_eq!(Queues::decode(&queues().encode()), Ok(queues()));
        refused(|bytes| bytes[0] = 1, "version 1 of the exchange");
        refused(|bytes| bytes[10] = 0, "0 rails");
        refused(|bytes| bytes[10] = 200, "200 rails");
        refused(|bytes| bytes[11] = 3, "a port of kind 3");
        refused(|bytes| bytes[30] = 6, "packets of size 6");
        refused(|bytes| bytes[33] = 9, "9 queue pairs");
        refused(|bytes| bytes[37] = 1, "of a queue pair or packet");
        refused(|bytes| bytes.push(0), "1 bytes too many");
        refused(|bytes| bytes.truncate(bytes.len() - 1), "ends too early");
        assert!(queues().check_fingerprint(9).is_ok());
        let reason = queues().check_fingerprint(0xAB).expect_err("it is another").to_string();
        assert!(reason.contains("0000000000000009") && reason.contains("00000000000000ab"), "{reason}");
    }

    #[test]
    fn regions_come_as_they_went_and_nonsense_is_refused() {
        let region = KeyedRegion { id: RegionId(5), len: 1 << 40, address: 1 << 46, keys: vec![1, u32::MAX] };
        assert_eq!(KeyedRegion::decode(&region.encode(), 2), Ok(region.clone()));
        assert!(KeyedRegion::decode(&region.encode(), 1).is_err());
        let around = KeyedRegion { address: u64::MAX, ..region };
        assert!(KeyedRegion::decode(&around.encode(), 2).is_err());
        assert_eq!(decode_word(&7_u64.to_le_bytes()), Ok(7));
        assert!(decode_word(&[0; 7]).is_err());
        assert!(decode_word(&[0; 9]).is_err());
    }

    #[test]
    fn rails_come_anew_as_they_went() {
        let which = Attempt { rail: 3, number: 70_000 };
        let anew = RemadeRail { which, queues: queues().rails[0].clone() };
        assert_eq!(RemadeRail::decode(&anew.encode()), Ok(anew.clone()));
        assert!(RemadeRail::decode(&anew.encode()[1..]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..200), rails in 1_usize..PORTS_MAX) {
            // Whatever is read of it is written alike.
            if let Ok(queues) = Queues::decode(&bytes) {
                prop_assert_eq!(queues.encode(), bytes.clone());
            }
            if let Ok(region) = KeyedRegion::decode(&bytes, rails) {
                prop_assert_eq!(region.encode(), bytes.clone());
            }
            if let Ok(anew) = RemadeRail::decode(&bytes) {
                prop_assert_eq!(anew.encode(), bytes);
            }
        }
    }
}
