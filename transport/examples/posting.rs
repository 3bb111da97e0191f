//! What it costs to post a transfer of 1,000 slices over the lane that was chosen: where both ends have that lane alone, and where they
//! know several. Prints the median and the ninth decile of each.

use domain::session::{PeerInfo, Role};
use domain::{Incarnation, ProgressWord, WorkerId};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use transport::{
    Agent, AgentConfig, AgentEvent, Copies, Copy, Hub, Lane, ListenConfig, Prepared, ReadBatch, RegionId, SealedMemory,
};

const OWNER: WorkerId = WorkerId(0);
const SLICES: usize = 1000;
const SLICE_BYTES: usize = 1 << 10;
const ROUNDS: usize = 2000;
const PATIENCE: Duration = Duration::from_secs(20);

struct End {
    agent: Agent,
    info: PeerInfo,
    events: Receiver<AgentEvent>,
}

fn end(id: u32, lanes: &[Lane]) -> Result<End, Box<dyn std::error::Error>> {
    let (sender, events) = sync_channel(16);
    let (id, incarnation, name) = (WorkerId(id), Incarnation(1), format!("w{id}"));
    let mut config = AgentConfig::in_process(id, incarnation, name.clone(), 1);
    config.listen = Some(ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() });
    config.lanes = lanes.to_vec();
    let sink = Box::new(move |event| sender.try_send(event).is_ok());
    let agent = Agent::start(&Hub::new(), config, ProgressWord::new(), sink)?;
    agent.register(Arc::new(SealedMemory::new("posting", 2 * SLICES * SLICE_BYTES)?));
    let info = PeerInfo { id, incarnation, name, role: Role::Prefill, address: agent.address() };
    Ok(End { agent, info, events })
}

/// A reader to which `lanes` are known and which took `taken`, and a transfer of slices that are apart.
fn reader(owner: &End, taken: Lane, lanes: &[Lane]) -> Result<(End, Prepared), Box<dyn std::error::Error>> {
    let reader = end(1, lanes)?;
    let mut info = owner.info.clone();
    if taken == Lane::Tcp {
        // As of another host.
        info.address.unix.clear();
    }
    reader.agent.introduce(info);
    reader.agent.connect(OWNER);
    match reader.events.recv_timeout(PATIENCE)? {
        AgentEvent::Connected { status, .. } if status.lane == taken => {}
        other => return Err(format!("{other:?}").into()),
    }
    let copy = |slice: usize| Copy { from: (2 * slice * SLICE_BYTES) as u64, to: (2 * slice * SLICE_BYTES) as u64 };
    let copies = Copies::List((0..SLICES).map(copy).collect());
    let (source, destination) = (RegionId(0), RegionId(0));
    let prepared =
        reader.agent.prepare(OWNER, vec![ReadBatch { source, destination, len: SLICE_BYTES, gate: 0, copies }])?;
    Ok((reader, prepared))
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let every: Vec<Lane> = Lane::all().map(|(lane, _)| lane).collect();
    let owner = end(0, &every)?;
    let mut rows = Vec::new();
    for taken in [Lane::Shm, Lane::Tcp] {
        for lanes in [&[taken][..], &every] {
            rows.push((taken, lanes.len(), reader(&owner, taken, lanes)?, Vec::with_capacity(ROUNDS)));
        }
    }
    // In turns, so that whatever else the machine does disturbs all alike; and which of a pair comes first changes, since the second
    // finds more in the caches.
    for round in 0..ROUNDS {
        for place in 0..rows.len() {
            let (.., (reader, prepared), times) = &mut rows[place ^ (round % 2)];
            let begin = Instant::now();
            reader.agent.post(prepared)?;
            times.push(begin.elapsed());
            prepared.wait(PATIENCE);
            reader.events.recv_timeout(PATIENCE)?;
        }
    }
    for (taken, known, _, mut times) in rows {
        times.sort_unstable();
        let micros = |part: usize| times[times.len() * part / 10].as_secs_f64() * 1e6;
        println!("{taken}, lanes allowed: {known}: {:.2} us, ninth decile {:.2} us", micros(5), micros(9));
    }
    Ok(())
}
