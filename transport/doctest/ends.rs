// What the examples of the documentation begin with: an owner with a region of a megabyte, all sevens, and a reader with
// one of its own, connected to the owner.
use domain::{Incarnation, ProgressWord, WorkerId};
use std::sync::Arc;
use transport::{Agent, AgentConfig, Hub, Memory, RegionId, SealedMemory};

const OWNER: WorkerId = WorkerId(1);
const READER: WorkerId = WorkerId(2);

fn agent(hub: &Hub, id: WorkerId) -> (Agent, RegionId) {
    let config = AgentConfig::in_process(id, Incarnation(1), id.to_string(), 16);
    let agent = Agent::start(hub, config, ProgressWord::new(), Box::new(|_| true)).expect("it starts");
    let memory = SealedMemory::new("example", 1 << 20).expect("there is memory");
    // SAFETY: nobody else uses it yet.
    unsafe { memory.as_ptr().write_bytes(if id == OWNER { 7 } else { 0 }, memory.len()) };
    let region = agent.register(Arc::new(memory));
    (agent, region)
}

fn ends() -> (Agent, Agent, RegionId) {
    let hub = Hub::new();
    let ((owner, _), (reader, region)) = (agent(&hub, OWNER), agent(&hub, READER));
    reader.connect(OWNER);
    (owner, reader, region)
}
