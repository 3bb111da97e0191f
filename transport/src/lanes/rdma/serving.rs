//! How the agent's devices serve peers: the queue pairs that let them read, and the keys.

use super::Verbs;
use super::error::DeviceError;
use super::owner::OwnerPorts;
use super::port::Port;
use super::queue::{Depth, QueuePair};
use super::wire::{ExchangeError, PortAddress, RailQueues};
use crate::regions::RegionId;
use kv_memory::Memory;
use std::collections::BTreeMap;
use std::sync::Arc;

impl OwnerPorts for Verbs {
    type Pair = QueuePair;

    /// It is of the peer's kind, and in its network as far as the addresses tell.
    fn best_port(&self, address: &PortAddress, taken: &[usize]) -> Result<usize, ExchangeError> {
        let common = |own: &[u8; 16]| {
            let own = u128::from_be_bytes(*own);
            (own ^ u128::from_be_bytes(address.gid)).leading_zeros()
        };
        let addresses = self.ports.iter().map(Port::address).enumerate();
        let fits = addresses.filter(|(_, own)| own.kind == address.kind);
        let best = fits.max_by_key(|(place, own)| {
            let uses = taken.iter().filter(|&taken| taken == place).count();
            (std::cmp::Reverse(uses), common(&own.gid), std::cmp::Reverse(*place))
        });
        best.map(|(place, _)| place).ok_or(ExchangeError::NoPort(address.kind))
    }

    fn serve(&self, port: usize, reader: &RailQueues) -> (RailQueues, Vec<QueuePair>) {
        make_pairs(self, port, reader).unwrap_or_else(|error| {
            let port = &self.ports[port];
            tracing::debug!(port = port.name, %error, "no queue pairs can be made");
            (RailQueues { address: port.address(), queues: Vec::new() }, Vec::new())
        })
    }

    fn has_failed(pair: &QueuePair) -> bool {
        pair.has_failed()
    }

    fn regions(&self) -> BTreeMap<RegionId, Arc<dyn Memory>> {
        self.regions().lent.clone()
    }

    fn key(&self, port: usize, memory: &Arc<dyn Memory>) -> Option<u32> {
        Some(self.ports[port].keys(memory)?.remote)
    }
}

/// Makes a queue pair on port `own` for each of the reader's.
fn make_pairs(verbs: &Verbs, own: usize, reader: &RailQueues) -> Result<(RailQueues, Vec<QueuePair>), DeviceError> {
    let (port, address) = (&verbs.ports[own], &reader.address);
    let state = port.state()?;
    let reads_of_peer = state.address.reads_of_peers.min(address.reads);
    let mut pairs = Vec::new();
    for &number in &reader.queues {
        // It sends nothing, so one entry that is never used is enough.
        let mut pair = QueuePair::new(port, &verbs.unused[own], 1, true)?;
        pair.connect(&state, address, number, Depth { reads: 0, reads_of_peer })?;
        pairs.push(pair);
    }
    Ok((RailQueues { queues: pairs.iter().map(QueuePair::number).collect(), address: state.address }, pairs))
}

#[cfg(test)]
mod tests {
    use super::super::wire::GidKind;
    use super::*;

    #[test]
    fn a_port_of_another_kind_serves_nobody() {
        let kind = GidKind::RoceV2;
        let address = PortAddress { kind, gid: [1; 16], lid: 0, mtu: 5, reads: 16, reads_of_peers: 16 };
        let refused = Verbs::without_devices().best_port(&address, &[]);
        assert_eq!(refused.expect_err("it is none").to_string(), "no port here speaks RoceV2");
    }
}
