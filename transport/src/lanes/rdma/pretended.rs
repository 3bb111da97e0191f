//! Ports that are not there, to feed an owner's end without a device.

use super::owner::OwnerPorts;
use super::wire::{ExchangeError, GidKind, PortAddress, RailQueues};
use crate::regions::RegionId;
use kv_memory::Memory;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Ports that serve whatever they are asked for, but nothing over InfiniBand.
pub(super) struct Pretended {
    ports: usize,
    pairs: Rc<Cell<usize>>,
    regions: BTreeMap<RegionId, Arc<dyn Memory>>,
}

/// A queue pair, which is counted as long as there is one.
pub(super) struct PretendedPair(Rc<Cell<usize>>);

impl Drop for PretendedPair {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Pretended {
    pub(super) fn new(ports: usize) -> Self {
        Self { ports, pairs: Rc::default(), regions: BTreeMap::new() }
    }

    /// Queue pairs that there are.
    pub(super) fn pairs(&self) -> usize {
        self.pairs.get()
    }

    /// From now on peers may read it.
    #[cfg(feature = "fuzzing")]
    pub(super) fn register(&mut self, id: RegionId, memory: Arc<dyn Memory>) {
        self.regions.insert(id, memory);
    }

    /// From now on they may not.
    #[cfg(feature = "fuzzing")]
    pub(super) fn deregister(&mut self, id: RegionId) {
        self.regions.remove(&id);
    }
}

impl OwnerPorts for Pretended {
    type Pair = PretendedPair;

    fn best_port(&self, address: &PortAddress, taken: &[usize]) -> Result<usize, ExchangeError> {
        let uses = |port: &usize| taken.iter().filter(|taken| *taken == port).count();
        let ports = if address.kind == GidKind::InfiniBand { 0 } else { self.ports };
        (0..ports).min_by_key(uses).ok_or(ExchangeError::NoRail(0))
    }

    fn serve(&self, _: usize, reader: &RailQueues) -> (RailQueues, Vec<PretendedPair>) {
        let pair = |_| {
            self.pairs.set(self.pairs.get() + 1);
            PretendedPair(self.pairs.clone())
        };
        (reader.clone(), reader.queues.iter().map(pair).collect())
    }

    fn has_failed(_: &PretendedPair) -> bool {
        false
    }

    fn regions(&self) -> BTreeMap<RegionId, Arc<dyn Memory>> {
        self.regions.clone()
    }

    fn key(&self, port: usize, _: &Arc<dyn Memory>) -> Option<u32> {
        Some(port as u32)
    }
}
