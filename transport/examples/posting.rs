//! What it costs to post a transfer of 1,000 slices over the lane that was chosen: where both ends have that lane
//! alone, and where they know several, and there also of slices that lie in no order, which nothing shorter than a
//! list describes. Prints the median and the ninth decile of each.

use domain::session::{PeerInfo, Role};
use domain::{Incarnation, ProgressWord, Secret, WorkerId};
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
    config.secrets = Secret::new("of this program").into();
    config.lanes = lanes.to_vec();
    let sink = Box::new(move |event| sender.try_send(event).is_ok());
    let agent = Agent::start(&Hub::new(), config, ProgressWord::new(), sink)?;
    agent.register(Arc::new(SealedMemory::new("posting", 2 * SLICES * SLICE_BYTES)?));
    let info = PeerInfo { id, incarnation, name, role: Role::Prefill, address: agent.address() };
    Ok(End { agent, info, events })
}

/// A reader to which `lanes` are known and which took `taken`, and a transfer of slices that are apart: all by as
/// much, or in no order.
fn reader(
    owner: &End,
    taken: Lane,
    lanes: &[Lane],
    in_order: bool,
) -> Result<(End, Prepared), Box<dyn std::error::Error>> {
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
    let place = |slice: usize, step: usize| (2 * (slice * step % SLICES) * SLICE_BYTES) as u64;
    // Each once, and from one to the next never as far.
    let step = |slice: usize| if in_order { 1 } else { 7 + 10 * slice };
    let copy = |slice: usize| Copy { from: place(slice, step(slice)), to: place(slice, 1) };
    let copies = Copies::List((0..SLICES).map(copy).collect());
    let (source, destination) = (RegionId(0), RegionId(0));
    let prepared =
        reader.agent.prepare(OWNER, vec![ReadBatch { source, destination, len: SLICE_BYTES, gate: 0, copies }])?;
    Ok((reader, prepared))
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let every: Vec<Lane> = Lane::all().collect();
    let owner = end(0, &every)?;
    let mut rows = Vec::new();
    for taken in [Lane::Shm, Lane::Tcp] {
        for (lanes, in_order) in [(&[taken][..], true), (&every, true), (&every, false)] {
            let order = if in_order { "in order" } else { "in none" };
            let of = format!("{taken}, lanes allowed: {}, slices {order}", lanes.len());
            rows.push((of, reader(&owner, taken, lanes, in_order)?, Vec::with_capacity(ROUNDS)));
        }
    }
    // In turns, so that whatever else the machine does disturbs all alike; and who comes first changes, since the
    // next finds more in the caches.
    for round in 0..ROUNDS {
        for place in 0..rows.len() {
            let at = (place + round) % rows.len();
            let (_, (reader, prepared), times) = &mut rows[at];
            let begin = Instant::now();
            reader.agent.post(prepared)?;
            times.push(begin.elapsed());
            prepared.wait(PATIENCE);
            reader.events.recv_timeout(PATIENCE)?;
        }
    }
    for (of, _, mut times) in rows {
        times.sort_unstable();
        let micros = |part: usize| times[times.len() * part / 10].as_secs_f64() * 1e6;
        println!("{of}: {:.2} us, ninth decile {:.2} us", micros(5), micros(9));
    }
    Ok(())
}
