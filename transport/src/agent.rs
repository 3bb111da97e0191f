//! The agent: one per worker.

use crate::copy::copy_racing;
use crate::event::{AgentEvent, TransferId};
use crate::hub::{Hub, Station};
use crate::lane::{Lane, LaneStatus, Probe};
use crate::memory::{Memory, RegionId};
use crate::mover::Mover;
use crate::transfer::{PostError, PrepareError, ReadBatch, Transfer, TransferBuilder};
use crate::watch::Watched;
use domain::session::PeerInfo;
use domain::{ProgressWord, WorkerId};
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// Bytes that the probe at connect time reads at once.
const PROBE_BYTES: usize = 4 << 20;
/// Reads of one word that the probe times.
const PROBE_READS: u32 = 64;

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Whose agent it is.
    pub id: WorkerId,
    /// Name for people.
    pub name: String,
    /// Transfers posted and not ended; one more is refused.
    pub posted_max: usize,
    /// A peer that this lane (or a faster one) does not reach is not connected.
    pub require: Option<Lane>,
}

/// Reads peers' bytes and carries messages. Dropping it ends its transfers and leaves the hub.
pub struct Agent {
    config: AgentConfig,
    hub: Hub,
    station: Arc<Station>,
    mover: Arc<Mover>,
    thread: Option<JoinHandle<()>>,
    peers: HashMap<WorkerId, Connection>,
}

struct Connection {
    station: Arc<Station>,
    status: LaneStatus,
}

/// Why a peer was not connected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nobody of that id is there.
    #[error("worker {0} is not in this process, and no lane to another process is built in")]
    Unreachable(WorkerId),
    /// `transport.require` forbids the lanes that reach it.
    #[error("transport.require = \"{required}\", but worker {peer} is reached by `{best}` only ({reasons})")]
    LaneRequired {
        /// The peer.
        peer: WorkerId,
        /// What was required.
        required: Lane,
        /// The best lane there is.
        best: Lane,
        /// Why not the required one.
        reasons: String,
    },
}

/// Why a message was not sent. A message not sent is a message lost: the deadlines of the protocol cover it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The peer is not connected or left.
    #[error("worker {0} is not connected")]
    NotConnected(WorkerId),
    /// The peer's inbox is full.
    #[error("the inbox of worker {0} is full")]
    Full(WorkerId),
}

impl Agent {
    /// Starts an agent and enters the hub. `progress`: the word of the engine that writes its regions; `sink` gets its
    /// events from the agent's thread and from peers, must not block, and says whether it took the event (completions
    /// are bounded by `posted_max` and must be taken).
    pub fn start(
        hub: &Hub,
        config: AgentConfig,
        progress: ProgressWord,
        sink: Box<dyn Fn(AgentEvent) -> bool + Send + Sync>,
    ) -> std::io::Result<Self> {
        let progress = Watched::new(progress);
        let progress = progress.ok_or_else(|| std::io::Error::other("the progress word belongs to another agent"))?;
        let station = Arc::new(Station::new(config.name.clone(), progress, sink));
        let mover = Arc::new(Mover::new(config.posted_max, station.clone()));
        let thread = std::thread::Builder::new().name(format!("{}-mover", config.name)).spawn({
            let mover = mover.clone();
            move || mover.run()
        })?;
        hub.enter(config.id, station.clone());
        Ok(Self { config, hub: hub.clone(), station, mover, thread: Some(thread), peers: HashMap::new() })
    }

    /// Registers memory: peers may read it, transfers may read into it.
    pub fn register(&mut self, memory: Arc<dyn Memory>) -> RegionId {
        self.station.register(memory)
    }

    /// A peer is there. In one process the hub knows where.
    pub fn introduce(&mut self, _peer: PeerInfo) {}

    /// Connects a peer (again, if it returned); the outcome is an event.
    pub fn connect(&mut self, peer: WorkerId) {
        let event = match self.choose(peer) {
            Ok(status) => AgentEvent::Connected { peer, status: status.clone() },
            Err(error) => AgentEvent::Lost { peer, reason: error.to_string() },
        };
        (self.station.sink)(event);
    }

    fn choose(&mut self, peer: WorkerId) -> Result<&LaneStatus, ConnectError> {
        let station = self.hub.find(peer).ok_or(ConnectError::Unreachable(peer))?;
        let lane = Lane::Local;
        if let Some(required) = self.config.require.filter(|&required| lane > required) {
            let reasons = format!("{required}: {}", required.not_built().unwrap_or("does not reach it"));
            return Err(ConnectError::LaneRequired { peer, required, best: lane, reasons });
        }
        let passed_over = Lane::all()
            .take_while(|&(faster, _)| faster != lane)
            .map(|(faster, reason)| (faster, reason.unwrap_or("does not reach it").to_owned()))
            .collect();
        let status = LaneStatus { peer: station.name.clone(), lane, probe: probe(), passed_over };
        self.peers.insert(peer, Connection { station, status });
        Ok(&self.peers[&peer].status)
    }

    /// The lanes taken, by peer.
    pub fn lanes(&self) -> impl Iterator<Item = (WorkerId, &LaneStatus)> {
        self.peers.iter().map(|(&id, connection)| (id, &connection.status))
    }

    /// Whether the peer is connected and has not left.
    pub fn is_connected(&self, peer: WorkerId) -> bool {
        self.peers.get(&peer).is_some_and(|connection| !connection.station.is_gone())
    }

    /// Sends a small message, without waiting. Errors: [`SendError`].
    pub fn send(&mut self, peer: WorkerId, bytes: Vec<u8>) -> Result<(), SendError> {
        if !self.is_connected(peer) {
            self.connect(peer);
        }
        let connection = self.peers.get(&peer).filter(|connection| !connection.station.is_gone());
        let connection = connection.ok_or(SendError::NotConnected(peer))?;
        let message = AgentEvent::Message { from: self.config.id, bytes };
        if (connection.station.sink)(message) { Ok(()) } else { Err(SendError::Full(peer)) }
    }

    /// Prepares a transfer that reads from `peer`. Errors: [`PrepareError`].
    pub fn prepare(&self, peer: WorkerId, batches: Vec<ReadBatch>) -> Result<Transfer, PrepareError> {
        let connection = self.peers.get(&peer).filter(|connection| !connection.station.is_gone());
        let connection = connection.ok_or(PrepareError::NotConnected(peer))?;
        let mut builder = TransferBuilder {
            peer,
            station: connection.station.clone(),
            own: self.station.clone(),
            lane: connection.status.lane,
            batches: Vec::new(),
        };
        for ReadBatch { source, destination, len, gate, copies } in batches {
            builder.batch(source, destination, len, gate, copies)?;
        }
        Ok(builder.build())
    }

    /// Starts a transfer without waiting for it; its end comes as [`AgentEvent::Ended`]. Errors: [`PostError`].
    pub fn post(&self, transfer: Transfer) -> Result<TransferId, PostError> {
        self.mover.post(transfer)
    }

    /// Asks a transfer to end. Its end (as cancelled, or regular if it came first) still comes, exactly once, and says
    /// that its destination is quiesced.
    pub fn cancel(&self, id: TransferId) {
        self.mover.cancel(id);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.hub.leave(self.config.id, &self.station);
        self.mover.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(agent = self.config.name, "the mover thread panicked");
        }
    }
}

/// Measures what a local read costs: large copies and single words, out of memory of its own.
#[expect(clippy::disallowed_methods, reason = "the probe measures")]
fn probe() -> Probe {
    let source = vec![1_u8; PROBE_BYTES];
    let mut destination = vec![0_u8; PROBE_BYTES];
    let mut copy = |len: usize| {
        // SAFETY: both buffers have PROBE_BYTES >= len bytes and do not overlap.
        unsafe { copy_racing(source.as_ptr(), destination.as_mut_ptr(), len) };
    };
    copy(PROBE_BYTES);
    let begin = Instant::now();
    copy(PROBE_BYTES);
    let large = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    (0..PROBE_READS).for_each(|_| copy(size_of::<u64>()));
    let small = begin.elapsed().as_secs_f64() / f64::from(PROBE_READS);
    std::hint::black_box(&destination);
    Probe { bytes_per_s: PROBE_BYTES as f64 / large.max(1e-9), latency_s: small }
}
