//! The hub: where the agents of one process find each other. It is what the `local` lane connects through.

use crate::lane::Probe;
use crate::station::Station;
use domain::WorkerId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The agents of one process. Cheap to clone; all clones are one hub.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    process: u64,
    stations: Mutex<HashMap<WorkerId, Arc<Station>>>,
    /// What reading within this process costs.
    probe: OnceLock<Probe>,
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

impl Hub {
    /// A hub without agents.
    ///
    /// # Panics
    /// If the system has no random numbers to give.
    pub fn new() -> Self {
        let process = u64::from_le_bytes(crate::random::bytes().expect("the system gives random numbers"));
        Self(Arc::new(Inner { process, stations: Mutex::default(), probe: OnceLock::new() }))
    }

    /// The number by which processes are told apart.
    pub(crate) fn process(&self) -> u64 {
        self.0.process
    }

    /// What `measure` measured when it was first asked.
    pub(crate) fn probe(&self, measure: impl FnOnce() -> Probe) -> Probe {
        *self.0.probe.get_or_init(measure)
    }

    fn stations(&self) -> MutexGuard<'_, HashMap<WorkerId, Arc<Station>>> {
        self.0.stations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, station: Arc<Station>) {
        self.stations().insert(station.config.id, station);
    }

    pub(crate) fn find(&self, id: WorkerId) -> Option<Arc<Station>> {
        self.stations().get(&id).cloned()
    }

    /// Leaves only if the entry is still this station: a returned agent of the same id has its own. The others of the
    /// hub, for whom it is gone.
    pub(crate) fn leave(&self, station: &Arc<Station>) -> Vec<Arc<Station>> {
        let mut stations = self.stations();
        let id = station.config.id;
        if stations.get(&id).is_some_and(|entry| Arc::ptr_eq(entry, station)) {
            stations.remove(&id);
        }
        stations.values().cloned().collect()
    }
}
