//! What two agents say to each other about queue pairs and keys, over a connection of its own.
//!
//! The reader offers its rails with a queue pair for each; the owner answers with one of its own for each of
//! those, and with the keys of its regions. Later the owner tells of new regions and, while the reader watches, of
//! its progress; and for a rail that failed, both make new queue pairs. All numbers are little endian. What the
//! other end says is checked here as far as it can be without looking at devices.

use crate::memory::RegionId;

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
pub(super) enum GidKind {
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

impl Queues {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.fingerprint.to_le_bytes());
        bytes.push(self.rails.len() as u8);
        self.rails.iter().for_each(|rail| rail.encode(&mut bytes));
        bytes
    }

    /// Errors: what is wrong with it, in words.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = Rest(bytes);
        let version = u16::from_le_bytes(rest.take()?);
        if version != VERSION {
            return Err(format!("version {version} of the exchange of queue pairs, where {VERSION} is spoken here"));
        }
        let fingerprint = rest.u64()?;
        let count = rest.count(1, PORTS_MAX, "rails")?;
        let rails = (0..count).map(|_| RailQueues::decode(&mut rest)).collect::<Result<_, _>>()?;
        rest.end()?;
        Ok(Self { fingerprint, rails })
    }

    /// Checks that the other end means the same by a region's bytes. Errors: what both mean.
    pub(super) fn check_fingerprint(&self, own: u64) -> Result<(), String> {
        let other = self.fingerprint;
        if other == own {
            return Ok(());
        }
        Err(format!("its regions have the layout {other:016x}, where {own:016x} is meant"))
    }
}

impl RemadeRail {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.which.encode();
        self.queues.encode(&mut bytes);
        bytes
    }

    /// Errors: what is wrong with it, in words.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = Rest(bytes);
        let which = Attempt::decode(&mut rest)?;
        let queues = RailQueues::decode(&mut rest)?;
        rest.end()?;
        Ok(Self { which, queues })
    }
}

impl Attempt {
    fn encode(self) -> Vec<u8> {
        [&[self.rail][..], &self.number.to_le_bytes()].concat()
    }

    fn decode(rest: &mut Rest<'_>) -> Result<Self, String> {
        let [rail] = rest.take()?;
        Ok(Self { rail, number: u32::from_le_bytes(rest.take()?) })
    }
}

impl RailQueues {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let Self { address, queues } = self;
        bytes.push(match address.kind {
            GidKind::InfiniBand => 0,
            GidKind::RoceV1 => 1,
            GidKind::RoceV2 => 2,
        });
        bytes.extend_from_slice(&address.gid);
        bytes.extend_from_slice(&address.lid.to_le_bytes());
        bytes.extend_from_slice(&[address.mtu, address.reads, address.reads_of_peers, queues.len() as u8]);
        for (number, packet) in queues {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(&packet.to_le_bytes());
        }
    }

    fn decode(rest: &mut Rest<'_>) -> Result<Self, String> {
        let kind = match rest.take::<1>()? {
            [0] => GidKind::InfiniBand,
            [1] => GidKind::RoceV1,
            [2] => GidKind::RoceV2,
            [other] => return Err(format!("a port of kind {other}")),
        };
        let gid = rest.take()?;
        let lid = u16::from_le_bytes(rest.take()?);
        let [mtu, reads, reads_of_peers] = rest.take()?;
        if !(1..=5).contains(&mtu) {
            return Err(format!("packets of size {mtu}"));
        }
        let count = rest.count(0, QUEUES_MAX, "queue pairs")?;
        let queue = |rest: &mut Rest<'_>| Ok::<_, String>((rest.number()?, rest.number()?));
        let queues = (0..count).map(|_| queue(rest)).collect::<Result<_, _>>()?;
        Ok(Self { address: PortAddress { kind, gid, lid, mtu, reads, reads_of_peers }, queues })
    }
}

impl KeyedRegion {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.id.0.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.len.to_le_bytes());
        bytes.extend_from_slice(&self.address.to_le_bytes());
        bytes.push(self.keys.len() as u8);
        self.keys.iter().for_each(|key| bytes.extend_from_slice(&key.to_le_bytes()));
        bytes
    }

    /// A region with a key for each of `rails`. Errors: what is wrong with it, in words.
    pub(super) fn decode(bytes: &[u8], rails: usize) -> Result<Self, String> {
        let mut rest = Rest(bytes);
        let id = RegionId(u32::from_le_bytes(rest.take()?));
        let (len, address) = (rest.u64()?, rest.u64()?);
        let count = rest.count(1, PORTS_MAX, "keys")?;
        if count != rails {
            return Err(format!("a region with {count} keys for {rails} rails"));
        }
        if address.checked_add(len).is_none() {
            return Err(format!("a region of {len} bytes at {address:#x}"));
        }
        let keys = (0..count).map(|_| Ok(u32::from_le_bytes(rest.take()?))).collect::<Result<_, String>>()?;
        rest.end()?;
        Ok(Self { id, len, address, keys })
    }
}

/// The region that is registered no more. Errors: it is none.
pub(super) fn decode_withdrawn(bytes: &[u8]) -> Result<RegionId, String> {
    bytes.try_into().map(|id| RegionId(u32::from_le_bytes(id))).map_err(|_| "a region of another length".to_owned())
}

/// A progress word, said or waited for. Errors: it is none.
pub(super) fn decode_word(bytes: &[u8]) -> Result<u64, String> {
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| "a progress word of another length".to_owned())
}

/// What is left of a message.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (part, rest) = self.0.split_first_chunk().ok_or("a message that ends too early")?;
        self.0 = rest;
        Ok(*part)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.take().map(u64::from_le_bytes)
    }

    fn number(&mut self) -> Result<u32, String> {
        let number = u32::from_le_bytes(self.take()?);
        if number >> NUMBER_BITS == 0 { Ok(number) } else { Err(format!("number {number} of a queue pair or packet")) }
    }

    fn count(&mut self, least: usize, most: usize, what: &str) -> Result<usize, String> {
        let [count] = self.take()?;
        let count = usize::from(count);
        if !(least..=most).contains(&count) {
            return Err(format!("{count} {what}, where {least} to {most} may be"));
        }
        Ok(count)
    }

    fn end(&self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("a message with {} bytes too many", self.0.len())) }
    }
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
        let reason = Queues::decode(&bytes).expect_err(expect);
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
        let reason = queues().check_fingerprint(0xAB).expect_err("it is another");
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
        assert_eq!(decode_withdrawn(&5_u32.to_le_bytes()), Ok(RegionId(5)));
        assert!(decode_withdrawn(&[0; 5]).is_err());
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
