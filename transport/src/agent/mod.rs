//! The agent: one for each worker.

pub(crate) mod config;
pub(crate) mod counts;
pub(crate) mod event;
pub(crate) mod known_peer;
pub(crate) mod link;
mod listen;
pub(crate) mod metadata;
pub(crate) mod peers;
pub(crate) mod rdma;
pub(crate) mod shared;
pub(crate) mod start_error;
mod threads;

use crate::agent::config::AgentConfig;
use crate::agent::counts::AgentCounts;
use crate::agent::event::TransferId;
use crate::agent::known_peer::KnownPeer;
use crate::agent::metadata::ImportError;
use crate::agent::peers::SendError;
use crate::agent::shared::{AgentParts, AgentShared, Sink};
use crate::agent::start_error::AgentStartError;
use crate::agent::threads::Threads;
use crate::lanes::local::Hub;
use crate::lanes::shm::progress_page::ProgressPage;
use crate::lanes::tcp::Streams;
use crate::lanes::{Lane, LaneStatus, Probe};
use crate::net::control::Control;
use crate::regions::{DeregisterError, RegionId};
use crate::transfer::prepared::Prepared;
use crate::transfer::{PostError, PrepareError, ReadBatch};
use crate::wake::watch::Watched;
use domain::session::{PeerAddress, PeerInfo};
use domain::{ProgressWord, WorkerId};
use kv_memory::Memory;
use std::sync::Arc;

/// Reads registered memory of peers into its own, and carries small messages.
///
/// ```text
///   owner                                        reader
///   register(memory) ── its regions ───────────> connect(owner)
///                                                prepare(owner, batches)
///   its memory <───────── a lane reads ───────── post(prepared)
///                                                AgentEvent::Ended
/// ```
///
/// # Life of a read
///
/// 1. Both ends [`register`](Self::register) memory.
/// 2. The reader [`connect`](Self::connect)s the owner. The agent measures the lanes and takes the best.
/// 3. The reader [`prepare`](Self::prepare)s a transfer once. The agent checks it and builds the plan of the lane.
/// 4. The reader [`post`](Self::post)s it, as often as needed, one time after the other.
/// 5. Each post has one end: [`AgentEvent::Ended`](crate::AgentEvent::Ended) in the sink, which
///    [`Prepared::wait`] waits for. After it, the destination is not written any more.
///
/// ```
/// use domain::{Incarnation, ProgressWord, WorkerId};
/// use std::sync::{Arc, mpsc};
/// use transport::{Agent, AgentConfig, AgentEvent, Copies, Copy, Hub, ReadBatch, SealedMemory};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Two agents of one process. Agents of other processes need `AgentConfig::listen` and an introduction.
/// let (hub, (events, received)) = (Hub::new(), mpsc::channel());
/// let start = |id: u32| {
///     let config = AgentConfig::in_process(WorkerId(id), Incarnation(1), format!("w{id}"), 16);
///     let events = events.clone();
///     Agent::start(&hub, config, ProgressWord::new(), Box::new(move |event| events.send(event).is_ok()))
/// };
/// let (owner, reader) = (start(1)?, start(2)?);
///
/// let source = owner.register(Arc::new(SealedMemory::new("pool", 1 << 20)?));
/// let destination = reader.register(Arc::new(SealedMemory::new("scratch", 1 << 20)?));
/// reader.connect(WorkerId(1));
/// // Every second kilobyte of the owner's region, to one contiguous place.
/// let copies = Copies::Strided { first: Copy { from: 0, to: 0 }, step: Copy { from: 2048, to: 1024 }, count: 512 };
/// let batch = ReadBatch { source, destination, len: 1024, gate: 0, copies };
/// let prepared = reader.prepare(WorkerId(1), vec![batch])?;
/// let id = reader.post(&prepared)?;
/// for event in received {
///     match event {
///         AgentEvent::Connected { status, .. } => println!("{} is read over {}", status.peer, status.lane),
///         AgentEvent::Ended(end) => {
///             assert_eq!((end.id, end.result?.bytes), (id, 512 << 10));
///             break;
///         }
///         other => panic!("{other:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// Dropping an agent ends its transfers and connections, and leaves the hub.
pub struct Agent {
    pub(crate) shared: Arc<AgentShared>,
    threads: Threads,
}

impl Agent {
    /// Starts an agent and enters the hub. `progress` is the word of the engine that writes the agent's regions.
    ///
    /// `sink` takes the events, on threads of the agent, of its callers and of peers of the same process. It must not
    /// block and not call the agent. It returns whether it took the event: a message that it does not take is lost,
    /// any other event is offered again. The end of a transfer may come before [`Agent::post`] returns.
    pub fn start(hub: &Hub, config: AgentConfig, progress: ProgressWord, sink: Sink) -> Result<Self, AgentStartError> {
        let (listeners, address) = listen::listen(hub, &config)?;
        let page = if listeners.unix.is_some() { Some(ProgressPage::new(progress.get())?) } else { None };
        let progress = Watched::new(progress, page).ok_or(AgentStartError::ProgressWordTaken)?;
        hub.probe(crate::speed::probe::local);
        let takes_tcp = config.listen.is_some() && config.lanes.contains(&Lane::Tcp);
        let streams = if takes_tcp { Some(Streams::new(config.posted_max)?) } else { None };
        let verbs = rdma::open_verbs(&config);
        rdma::check_required(&config, &verbs).map_err(AgentStartError::RequiredLane)?;
        let control = Control::new()?;
        let parts = AgentParts { config, address, hub: hub.clone(), progress, control, streams, verbs, sink };
        let shared = Arc::new(AgentShared::new(parts));
        let threads = Threads::start(&shared, listeners)?;
        let failing = Arc::downgrade(&shared);
        shared.config.failure.on_report(move |_| {
            if let Some(agent) = failing.upgrade() {
                agent.leave();
                agent.close_lanes();
                agent.control.close();
            }
        });
        hub.enter(shared.clone());
        Ok(Self { shared, threads })
    }

    /// Returns where peers find the agent.
    pub fn address(&self) -> PeerAddress {
        self.shared.address.clone()
    }

    // -- memory

    /// Registers memory: peers may read it, and transfers may read into it. Connected peers are told.
    pub fn register(&self, memory: Arc<dyn Memory>) -> RegionId {
        self.shared.register(memory)
    }

    /// Checks that the required lane can be taken with the memory that is registered by now. Devices of `rdma` pin it,
    /// which the system may refuse. `nvlink` reads into memory of a device alone.
    pub fn check_required(&self) -> Result<(), AgentStartError> {
        let AgentConfig { require, listen, .. } = &self.shared.config;
        if *require == Some(Lane::Nvlink) && listen.is_some() {
            self.shared.reader_device().map_err(|error| AgentStartError::NoDevice(error.to_string()))?;
        }
        rdma::check_required(&self.shared.config, &self.shared.verbs).map_err(AgentStartError::RequiredLane)
    }

    /// Ends the registration of a region, and returns its memory. Connected peers are told, and a later read is
    /// refused.
    ///
    /// A peer that mapped the region (`shm`, `nvlink`) may still read it by transfers that it prepared. Such a read has
    /// no lease, so the peer discards its bytes.
    pub fn deregister(&self, region: RegionId) -> Result<Arc<dyn Memory>, DeregisterError> {
        self.shared.deregister(region)
    }

    // -- peers

    /// Returns what others must know of the agent to read from it, as bytes that anything may carry. They do not
    /// contain regions: peers learn those over their connections.
    pub fn export(&self) -> Vec<u8> {
        metadata::export(&self.shared.known(), self.shared.config.fingerprint)
    }

    /// Remembers where an agent is, by the bytes that it exported.
    pub fn import(&self, metadata: &[u8]) -> Result<WorkerId, ImportError> {
        let known = metadata::import(metadata, self.shared.config.fingerprint)?;
        let id = known.id;
        self.shared.introduce(known);
        Ok(id)
    }

    /// Remembers where a peer is. A newer life replaces an older one and its connections; an older one is ignored.
    /// Agents of the same hub need no introduction.
    pub fn introduce(&self, peer: PeerInfo) {
        let PeerInfo { id, incarnation, name, address, role: _ } = peer;
        self.shared.introduce(KnownPeer { id, incarnation, name, address });
    }

    /// Forgets where a peer is, and ends the connection to it with all transfers over it.
    pub fn forget(&self, peer: WorkerId) {
        self.shared.forget(peer);
    }

    /// Connects a peer: at once if it is in this process, else in the background. The outcome is
    /// [`AgentEvent::Connected`](crate::AgentEvent::Connected) or [`AgentEvent::Lost`](crate::AgentEvent::Lost).
    pub fn connect(&self, peer: WorkerId) {
        self.shared.connect(peer);
    }

    /// Ends the connection to a peer with all transfers over it, without an event. The agent connects it again when it
    /// is used again.
    pub fn disconnect(&self, peer: WorkerId) {
        self.shared.disconnect(peer);
    }

    /// Returns whether a peer is connected and has not left.
    pub fn is_connected(&self, peer: WorkerId) -> bool {
        self.shared.peers.link(peer).is_some()
    }

    /// Returns the lane that is taken to each peer, and why no faster one.
    pub fn lanes(&self) -> Vec<(WorkerId, LaneStatus)> {
        self.shared.peers.lanes()
    }

    /// Returns what reading from a connected peer costs: as measured when it was connected, and by reads since.
    pub fn speed(&self, peer: WorkerId) -> Option<Probe> {
        self.shared.peers.link(peer).map(|link| link.speed().lately())
    }

    /// Sends a small message, without waiting. If the peer is not connected, the agent connects it, and messages wait
    /// in their order.
    pub fn send(&self, peer: WorkerId, bytes: Vec<u8>) -> Result<(), SendError> {
        self.shared.send(peer, bytes)
    }

    // -- transfers

    /// Prepares a transfer that reads from `peer`. Batches whose gates are open are read together, others in their
    /// order as their gates open.
    pub fn prepare(&self, peer: WorkerId, batches: Vec<ReadBatch>) -> Result<Prepared, PrepareError> {
        let link = self.shared.peers.link(peer).ok_or(PrepareError::NotConnected(peer))?;
        let reader = Arc::downgrade(&self.shared);
        let AgentShared { config, claims, .. } = &*self.shared;
        Prepared::check(reader, link, batches, &config.tcp, claims, |id| self.shared.region(id))
    }

    /// Starts a transfer, without waiting and without allocation. Once it has ended it may be posted again.
    pub fn post(&self, transfer: &Prepared) -> Result<TransferId, PostError> {
        self.shared.post(transfer)
    }

    /// Asks a transfer to end. Its one end still comes: as cancelled, or the regular one if that came first.
    pub fn cancel(&self, id: TransferId) {
        self.shared.cancel(id);
    }

    /// Returns what the agent read and what went wrong, since its start.
    pub fn counts(&self) -> AgentCounts {
        self.shared.counts.now()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let agent = &self.shared;
        agent.leave();
        for neighbour in agent.hub.leave(agent) {
            neighbour.neighbour_left(agent);
        }
        self.threads.end();
        agent.peers.clear();
    }
}
