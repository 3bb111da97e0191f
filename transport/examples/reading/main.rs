//! One read, step by step, as those who know NIXL would write it: `cargo run --release -p transport --example reading`.
//! docs/start/coming-from-nixl.md has the calls side by side.

use domain::{Incarnation, ProgressWord, WorkerId};
use std::sync::Arc;
use std::time::Duration;
use transport::{Agent, AgentConfig, Copies, Copy, Hub, Memory, ReadBatch, RegionId, SealedMemory, TransferState};

const OWNER: WorkerId = WorkerId(1);
const READER: WorkerId = WorkerId(2);

/// An agent that only those of its hub reach, and its region.
fn agent(hub: &Hub, id: WorkerId) -> (Agent, RegionId) {
    let config = AgentConfig::in_process(id, Incarnation(1), id.to_string(), 16);
    let agent = Agent::start(hub, config, ProgressWord::new(), Box::new(|_| true)).expect("it starts");
    let memory = SealedMemory::new("example", 1 << 20).expect("there is memory");
    // SAFETY: nobody else uses it yet.
    unsafe { memory.as_ptr().write_bytes(if id == OWNER { 7 } else { 0 }, memory.len()) };
    let region = agent.register(Arc::new(memory));
    (agent, region)
}

/// The owner, the reader, and the region of each, which have one number.
fn ends() -> (Agent, Agent, RegionId) {
    let hub = Hub::new();
    let ((owner, _), (reader, region)) = (agent(&hub, OWNER), agent(&hub, READER));
    reader.connect(OWNER);
    (owner, reader, region)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // nixlAgent, createBackend, registerMem: lanes need no set-up of their own.
    let (owner, reader, region) = ends();

    // getLocalMD, loadRemoteMD, makeConnection.
    let peer = reader.import(&owner.export())?;
    reader.connect(peer);
    for (_, status) in reader.lanes() {
        println!("{} over {}: {:.1} GB/s", status.peer, status.lane, status.probe.bytes_per_s / 1e9);
    }

    // prepXferDlist, makeXferReq: every second kilobyte, to one contiguous place.
    let copies = Copies::Strided { first: Copy { from: 0, to: 0 }, step: Copy { from: 2048, to: 1024 }, count: 512 };
    let prepared =
        reader.prepare(peer, vec![ReadBatch { source: region, destination: region, len: 1024, gate: 0, copies }])?;

    // estimateXferCost, queryXferBackend.
    println!("{} bytes over {}, predicted {:?}", prepared.bytes(), prepared.lane(), prepared.estimate());

    // postXferReq, getXferStatus, getXferTelemetry; as often as one likes.
    for _ in 0..3 {
        reader.post(&prepared)?;
        match prepared.wait(Duration::from_secs(5)) {
            TransferState::Ended(Ok(report)) => println!("{report:?}"),
            other => return Err(format!("{other:?}").into()),
        }
    }

    // genNotif; the other end's sink gets it.
    reader.send(peer, b"read".to_vec())?;

    // releaseXferReq, deregisterMem, invalidateRemoteMD.
    drop(prepared);
    let memory = reader.deregister(region)?;
    let first = memory.place().host().ok_or("it is the host's")?;
    // SAFETY: it is registered no more, and no transfer writes it.
    let bytes = unsafe { std::slice::from_raw_parts(first, 512 << 10) };
    assert!(bytes.iter().all(|&byte| byte == 7), "all of it is the owner's");
    reader.forget(peer);
    Ok(())
}
