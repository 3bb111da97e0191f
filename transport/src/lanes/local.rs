//! The hub: where the agents of one process find each other. It is what the `local` lane connects through.

use crate::agent::shared::AgentShared;
use crate::lanes::Probe;
use domain::WorkerId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The agents of one process. Cheap to clone; all clones are one hub.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    process: u64,
    agents: Mutex<HashMap<WorkerId, Arc<AgentShared>>>,
    /// What reading within this process costs.
    probe: OnceLock<Probe>,
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

impl Hub {
    /// Makes a hub without agents.
    ///
    /// # Panics
    /// If the system has no random numbers to give.
    pub fn new() -> Self {
        let process = u64::from_le_bytes(crate::random::bytes().expect("the system gives random numbers"));
        Self(Arc::new(Inner { process, agents: Mutex::default(), probe: OnceLock::new() }))
    }

    /// The number by which processes are told apart.
    pub(crate) fn process(&self) -> u64 {
        self.0.process
    }

    /// Returns what `measure` measured when it was first asked.
    pub(crate) fn probe(&self, measure: impl FnOnce() -> Probe) -> Probe {
        *self.0.probe.get_or_init(measure)
    }

    fn agents(&self) -> MutexGuard<'_, HashMap<WorkerId, Arc<AgentShared>>> {
        self.0.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, agent: Arc<AgentShared>) {
        self.agents().insert(agent.config.id, agent);
    }

    pub(crate) fn find(&self, id: WorkerId) -> Option<Arc<AgentShared>> {
        self.agents().get(&id).cloned()
    }

    /// Leaves only if the entry is still this agent: a returned agent of the same id has its own. The others of the
    /// hub, for whom it is gone.
    pub(crate) fn leave(&self, agent: &Arc<AgentShared>) -> Vec<Arc<AgentShared>> {
        let mut agents = self.agents();
        let id = agent.config.id;
        if agents.get(&id).is_some_and(|entry| Arc::ptr_eq(entry, agent)) {
            agents.remove(&id);
        }
        agents.values().cloned().collect()
    }
}
