//! What a fuzzer feeds here; see `crate::fuzzing`.

use super::wire::{Attempt, GidKind, KeyedRegion, PORTS_MAX, PortAddress, Queues, RailQueues, RemadeRail, decode_word};
use crate::fields::read_region;
use crate::regions::RegionId;

/// What two agents say to each other about queue pairs and keys: the first byte says how many rails are agreed on,
/// the others are the body of a frame of any kind.
pub(crate) fn exchange(bytes: &[u8]) {
    let Some((&rails, body)) = bytes.split_first() else { return };
    if let Ok(queues) = Queues::decode(body) {
        assert_eq!(queues.encode(), body);
        assert!((1..=PORTS_MAX).contains(&queues.rails.len()));
    }
    let rails = usize::from(rails) % PORTS_MAX + 1;
    if let Ok(region) = KeyedRegion::decode(body, rails) {
        assert_eq!(region.encode(), body);
        assert!(region.keys.len() == rails && region.address.checked_add(region.len).is_some());
    }
    if let Ok(anew) = RemadeRail::decode(body) {
        assert_eq!(anew.encode(), body);
    }
    let _ = (read_region(body), decode_word(body));
}

/// Returns what is said on good days.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let address = PortAddress { kind: GidKind::RoceV2, gid: [7; 16], lid: 3, mtu: 5, reads: 16, reads_of_peers: 12 };
    let rail = RailQueues { address, queues: vec![(17, 0), (18, 0xFF_FFFF)] };
    let which = Attempt { rail: 1, number: 2 };
    let region = KeyedRegion { id: RegionId(5), len: 1 << 40, address: 1 << 46, keys: vec![1, u32::MAX] };
    let bodies = [
        Queues { fingerprint: 9, rails: vec![rail.clone(), rail.clone()] }.encode(),
        RemadeRail { which, queues: rail.clone() }.encode(),
        RemadeRail { which, queues: RailQueues { queues: Vec::new(), ..rail } }.encode(),
        region.encode(),
        5_u32.to_le_bytes().to_vec(),
        7_u64.to_le_bytes().to_vec(),
    ];
    // Two rails.
    bodies.map(|body| [&[1], &body[..]].concat()).to_vec()
}
