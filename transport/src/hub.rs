//! The hub: where the agents of one process find each other. It is what the `local` lane connects through.

use crate::event::AgentEvent;
use crate::memory::{Memory, RegionId, Regions};
use crate::watch::Watched;
use domain::WorkerId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The agents of one process. Cheap to clone; all clones are one hub.
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<HashMap<WorkerId, Arc<Station>>>>);

impl Hub {
    /// A hub without agents.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn enter(&self, id: WorkerId, station: Arc<Station>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, station);
    }

    pub(crate) fn find(&self, id: WorkerId) -> Option<Arc<Station>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Leaves only if the entry is still this station: a returned agent of the same id has its own.
    pub(crate) fn leave(&self, id: WorkerId, station: &Arc<Station>) {
        station.gone.store(true, Ordering::Release);
        let mut stations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stations.get(&id).is_some_and(|entry| Arc::ptr_eq(entry, station)) {
            stations.remove(&id);
        }
    }
}

/// What an agent shows to its peers in the process.
pub(crate) struct Station {
    pub(crate) name: String,
    pub(crate) progress: Watched,
    pub(crate) sink: Box<dyn Fn(AgentEvent) -> bool + Send + Sync>,
    regions: Mutex<Regions>,
    gone: AtomicBool,
}

impl Station {
    pub(crate) fn new(name: String, progress: Watched, sink: Box<dyn Fn(AgentEvent) -> bool + Send + Sync>) -> Self {
        Self { name, progress, sink, regions: Mutex::default(), gone: AtomicBool::new(false) }
    }

    pub(crate) fn register(&self, memory: Arc<dyn Memory>) -> RegionId {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner).add(memory)
    }

    pub(crate) fn region(&self, id: RegionId) -> Option<Arc<dyn Memory>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner).get(id)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}
