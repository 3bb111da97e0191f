//! How the agent's devices serve peers: the queue pairs that let them read, and the keys.

use super::Verbs;
use super::owner::Devices;
use super::queue::{Depth, QueuePair};
use super::rail::Rail;
use super::wire::{RailAddress, RailQueues};
use crate::memory::{Memory, RegionId};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Devices for Verbs {
    type Pair = QueuePair;

    /// It is of the peer's kind, and in its network as far as the addresses tell.
    fn best_rail(&self, address: &RailAddress, taken: &[usize]) -> Result<usize, String> {
        let common = |own: &[u8; 16]| {
            let own = u128::from_be_bytes(*own);
            (own ^ u128::from_be_bytes(address.gid)).leading_zeros()
        };
        let addresses = self.rails.iter().map(Rail::address).enumerate();
        let fits = addresses.filter(|(_, own)| own.kind == address.kind);
        let best = fits.max_by_key(|(place, own)| {
            let uses = taken.iter().filter(|&taken| taken == place).count();
            (std::cmp::Reverse(uses), common(&own.gid), std::cmp::Reverse(*place))
        });
        best.map(|(place, _)| place).ok_or_else(|| format!("no port here speaks {:?}", address.kind))
    }

    fn serve(&self, rail: usize, reader: &RailQueues) -> (RailQueues, Vec<QueuePair>) {
        make_pairs(self, rail, reader).unwrap_or_else(|reason| {
            let rail = &self.rails[rail];
            tracing::debug!(rail = rail.name, reason, "no queue pairs can be made");
            (RailQueues { address: rail.address(), queues: Vec::new() }, Vec::new())
        })
    }

    fn has_failed(pair: &QueuePair) -> bool {
        pair.has_failed()
    }

    fn regions(&self) -> BTreeMap<RegionId, Arc<dyn Memory>> {
        self.regions().lent.clone()
    }

    fn key(&self, rail: usize, memory: &Arc<dyn Memory>) -> Option<u32> {
        Some(self.rails[rail].keys(memory)?.remote)
    }
}

/// Makes a queue pair on rail `own` for each of the reader's. Errors, in words.
fn make_pairs(verbs: &Verbs, own: usize, reader: &RailQueues) -> Result<(RailQueues, Vec<QueuePair>), String> {
    let (rail, address) = (&verbs.rails[own], &reader.address);
    let port = rail.port()?;
    let reads_of_peer = port.address.reads_of_peers.min(address.reads);
    let mut pairs = Vec::new();
    for &number in &reader.queues {
        // It sends nothing, so one entry that is never used is enough.
        let mut pair = QueuePair::new(rail, &verbs.unused[own], 1, true)?;
        pair.connect(&port, address, number, Depth { reads: 0, reads_of_peer })?;
        pairs.push(pair);
    }
    Ok((RailQueues { queues: pairs.iter().map(QueuePair::number).collect(), address: port.address }, pairs))
}

#[cfg(test)]
mod tests {
    use super::super::wire::GidKind;
    use super::*;

    #[test]
    fn a_port_of_another_kind_serves_nobody() {
        let kind = GidKind::RoceV2;
        let address = RailAddress { kind, gid: [1; 16], lid: 0, mtu: 5, reads: 16, reads_of_peers: 16 };
        let refused = Verbs::without_devices().best_rail(&address, &[]);
        assert_eq!(refused, Err("no port here speaks RoceV2".to_owned()));
    }
}
