// What the examples of the documentation begin with: an owner with a region of a megabyte, all sevens, and a
// reader with one of its own, connected to the owner.
use domain::{Incarnation, ProgressWord, WorkerId};
use std::sync::Arc;
use transport::{Agent, AgentConfig, Hub, Memory, RegionId, SealedMemory};

pub(crate) const OWNER: WorkerId = WorkerId(1);
pub(crate) const READER: WorkerId = WorkerId(2);

/// An agent that only those of its hub reach, and its region.
pub(crate) fn agent(hub: &Hub, id: WorkerId) -> (Agent, RegionId) {
    let config = AgentConfig::in_process(id, Incarnation(1), id.to_string(), 16);
    let agent = Agent::start(hub, config, ProgressWord::new(), Box::new(|_| true)).expect("it starts");
    let memory = SealedMemory::new("example", 1 << 20).expect("there is memory");
    // SAFETY: nobody else uses it yet.
    unsafe { memory.as_ptr().write_bytes(if id == OWNER { 7 } else { 0 }, memory.len()) };
    let region = agent.register(Arc::new(memory));
    (agent, region)
}

/// The owner, the reader, and the region of each, which have one number.
pub(crate) fn ends() -> (Agent, Agent, RegionId) {
    let hub = Hub::new();
    let ((owner, _), (reader, region)) = (agent(&hub, OWNER), agent(&hub, READER));
    reader.connect(OWNER);
    (owner, reader, region)
}
