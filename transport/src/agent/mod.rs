//! The agent: one per worker.

pub(crate) mod config;
pub(crate) mod counts;
pub(crate) mod event;
pub(crate) mod link;
pub(crate) mod metadata;
pub(crate) mod peers;
pub(crate) mod shared;

use crate::agent::config::{AgentConfig, ListenConfig};
use crate::agent::counts::AgentCounts;
use crate::agent::event::{AgentEvent, TransferId};
use crate::agent::metadata::ImportError;
use crate::agent::peers::{KnownPeer, SendError};
use crate::agent::shared::{AgentParts, AgentShared};
use crate::lanes::local::Hub;
use crate::lanes::rdma::Verbs;
use crate::lanes::shm::progress_page::ProgressPage;
use crate::lanes::tcp::Streams;
use crate::lanes::{Lane, LaneStatus, Probe};
use crate::memory::{DeregisterError, Memory, RegionId};
use crate::net::control::{Control, Listeners};
use crate::transfer::prepared::Prepared;
use crate::transfer::{PostError, PrepareError, ReadBatch};
use crate::wake::watch::Watched;
use domain::session::{PeerAddress, PeerInfo};
use domain::{ProgressWord, WorkerId};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// What fixes it where devices may not pin memory.
const MEMLOCK_MEND: &str = "raise the limit of locked memory: ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, \
     or --ulimit memlock=-1 for a container";

/// Reads peers' bytes and carries messages. Dropping it ends its transfers and connections, and leaves the hub.
pub struct Agent {
    pub(crate) shared: Arc<AgentShared>,
    /// Its control thread, and those that move bytes.
    threads: Vec<JoinHandle<()>>,
}

impl Agent {
    /// Starts an agent and enters the hub. `progress`: the word of the engine that writes its regions; `sink` gets
    /// its events from the agent's threads, from its callers and from peers. The sink must not block and not call
    /// the agent, and says whether it took the event: a message that it does not take is lost; any other event is
    /// offered again. The end of a transfer may come before [`Agent::post`] returns. Errors: it would listen on
    /// TCP without a secret or TLS, no socket can be bound, no thread started, or the lane `rdma` is required and
    /// cannot be taken here.
    ///
    /// ```
    /// use std::sync::{Arc, mpsc};
    /// use transport::{Agent, AgentConfig, Hub, ListenConfig, SealedMemory};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// // Found by agents of other processes at a free port, whose address `Agent::export` has.
    /// let listen = ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() };
    /// let (id, life, fingerprint) = (domain::WorkerId(1), domain::Incarnation(1), 7);
    /// let config = AgentConfig::in_process(id, life, "P".to_owned(), fingerprint);
    /// let secrets = domain::Secret::new("what the agents of the cluster share").into();
    /// let config = AgentConfig { listen: Some(listen), secrets, ..config };
    /// let (events, heard) = mpsc::channel();
    /// let sink = Box::new(move |event| events.send(event).is_ok());
    /// let agent = Agent::start(&Hub::new(), config, domain::ProgressWord::new(), sink)?;
    /// agent.register(Arc::new(SealedMemory::new("pool", 1 << 20)?));
    /// # drop(agent);
    /// # drop(heard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn start(
        hub: &Hub,
        config: AgentConfig,
        progress: ProgressWord,
        sink: Box<dyn Fn(AgentEvent) -> bool + Send + Sync>,
    ) -> io::Result<Self> {
        let (listeners, address) = listen(hub, &config)?;
        let page = if listeners.unix.is_some() { Some(ProgressPage::new(progress.get())?) } else { None };
        let progress = Watched::new(progress, page);
        let progress = progress.ok_or_else(|| io::Error::other("the progress word belongs to another agent"))?;
        hub.probe(crate::speed::probe::local);
        let streams = config.listen.is_some() && config.lanes.contains(&Lane::Tcp);
        let streams = if streams { Some(Streams::new(config.posted_max)?) } else { None };
        let verbs = open_verbs(&config);
        check_required(&config, &verbs)?;
        let control = Control::new()?;
        let parts = AgentParts { config, address, hub: hub.clone(), progress, control, streams, verbs, sink };
        let shared = Arc::new(AgentShared::new(parts));
        let mut agent = Self { shared: shared.clone(), threads: Vec::new() };
        agent.spawn("control", move |agent| crate::net::control::run(agent, listeners))?;
        for at in 0..agent.shared.copy_threads.all().len() {
            agent.spawn(&format!("copy-{at}"), move |agent| agent.copy_threads.all()[at].run(agent))?;
        }
        if agent.shared.streams.is_some() {
            agent.spawn("tcp", crate::lanes::tcp::run)?;
        }
        if agent.shared.verbs.is_ok() {
            agent.spawn("rdma", |agent| crate::lanes::rdma::run(agent))?;
        }
        let failing = Arc::downgrade(&shared);
        shared.config.failure.on_report(move |_| {
            if let Some(agent) = failing.upgrade() {
                agent.leave();
                agent.close_lanes();
                agent.control.close();
            }
        });
        hub.enter(shared);
        Ok(agent)
    }

    fn spawn(
        &mut self,
        what: &str,
        body: impl FnOnce(&Arc<AgentShared>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let agent = self.shared.clone();
        self.threads.push(self.shared.spawn(what, move || body(&agent))?);
        Ok(())
    }

    /// Where peers find it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() {
    /// # let (owner, _reader, _region) = ends();
    /// let address = owner.address();
    /// assert!(address.tcp.is_empty(), "it listens to no other process");
    /// # }
    /// ```
    pub fn address(&self) -> PeerAddress {
        self.shared.address.clone()
    }

    /// Registers memory: peers may read it, transfers may read into it. Peers that are connected are told.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (_owner, reader, region) = ends();
    /// let memory = SealedMemory::new("scratch", 4096)?;
    /// let scratch = reader.register(Arc::new(memory));
    /// assert_ne!(scratch, region, "each has a number of its own");
    /// # Ok(())
    /// # }
    /// ```
    pub fn register(&self, memory: Arc<dyn Memory>) -> RegionId {
        self.shared.register(memory)
    }

    /// Whether peers can be reached over the lane that is required, with the memory that is registered by now:
    /// devices of `rdma` pin it, which the system may refuse. To be asked once all of it is registered. Errors:
    /// why not, and what fixes it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> std::io::Result<()> {
    /// # let (owner, _reader, _region) = ends();
    /// owner.register(Arc::new(SealedMemory::new("scratch", 4096)?));
    /// owner.check_required()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_required(&self) -> io::Result<()> {
        check_required(&self.shared.config, &self.shared.verbs)
    }

    /// Ends the registration of a region and gives its memory back. Peers are told; one that asks for it all the
    /// same is refused and counted. One that has it mapped (`shm`) may go on reading what is there by transfers
    /// that it has prepared, so what is written there later is read, torn, by whoever has no lease on it: as ever,
    /// who reads without one throws it away. Errors: [`DeregisterError`]; the region stays as it is.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use transport::{Copies, Copy, DeregisterError, ReadBatch};
    /// # let (_owner, reader, region) = ends();
    /// # let copies = Copies::List(vec![Copy { from: 0, to: 0 }]);
    /// # let batch = ReadBatch { source: region, destination: region, len: 8, gate: 0, copies };
    /// let prepared = reader.prepare(OWNER, vec![batch])?;
    /// // Something is prepared that reads into it.
    /// assert!(matches!(reader.deregister(region), Err(DeregisterError::InUse { uses: 1, .. })));
    /// drop(prepared);
    /// let memory = reader.deregister(region)?;
    /// assert_eq!(memory.len(), 1 << 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn deregister(&self, region: RegionId) -> Result<Arc<dyn Memory>, DeregisterError> {
        self.shared.deregister(region)
    }

    /// What others must know of this agent to read from it, as bytes that anything may carry. Its regions are not
    /// among it: peers hear of them, and of changes, over their connections.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (owner, reader, _) = ends();
    /// let metadata: Vec<u8> = owner.export();
    /// // Written to a file, sent as a message, put into a store, and elsewhere:
    /// let peer = reader.import(&metadata)?;
    /// reader.connect(peer);
    /// # Ok(())
    /// # }
    /// ```
    pub fn export(&self) -> Vec<u8> {
        metadata::export(&self.shared.known(), self.shared.config.fingerprint)
    }

    /// Remembers where an agent is, by what it exported: [`Agent::introduce`] by bytes. Errors: [`ImportError`].
    /// Shown at [`Agent::export`].
    pub fn import(&self, metadata: &[u8]) -> Result<WorkerId, ImportError> {
        let known = metadata::import(metadata, self.shared.config.fingerprint)?;
        let id = known.id;
        self.shared.introduce(known);
        Ok(id)
    }

    /// Forgets where a peer is, and ends the connection to it with all transfers over it. It may be introduced again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (owner, reader, _region) = ends();
    /// reader.forget(OWNER);
    /// assert!(!reader.is_connected(OWNER));
    /// // From now on it takes an introduction, or the same hub, to reach it again.
    /// reader.import(&owner.export())?;
    /// reader.connect(OWNER);
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget(&self, peer: WorkerId) {
        self.shared.let_go(peer);
    }

    /// Ends the connection to a peer, with all transfers over it, and remembers where the peer is. No event tells
    /// of it; it is connected again when it is used again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() {
    /// # let (_owner, reader, _region) = ends();
    /// reader.disconnect(OWNER);
    /// assert!(!reader.is_connected(OWNER));
    /// reader.connect(OWNER);
    /// assert!(reader.is_connected(OWNER));
    /// # }
    /// ```
    pub fn disconnect(&self, peer: WorkerId) {
        self.shared.disconnect(peer);
    }

    /// Remembers where a peer is. A newer life of it replaces an older one and its connections; an older one is
    /// ignored. Agents of the same hub need no introduction.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() {
    /// # let (owner, reader, _region) = ends();
    /// use domain::session::{PeerInfo, Role};
    /// let peer = PeerInfo {
    ///     id: OWNER,
    ///     incarnation: domain::Incarnation(1),
    ///     name: "owner".to_owned(),
    ///     role: Role::Prefill,
    ///     address: owner.address(),
    /// };
    /// reader.introduce(peer);
    /// reader.connect(OWNER);
    /// # }
    /// ```
    pub fn introduce(&self, peer: PeerInfo) {
        let PeerInfo { id, incarnation, name, address, role: _ } = peer;
        self.shared.introduce(KnownPeer { id, incarnation, name, address });
    }

    /// Connects a peer and chooses the lane, if it is not connected: at once if it is in this process, else in the
    /// background. The outcome comes as [`AgentEvent::Connected`] or [`AgentEvent::Lost`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() {
    /// # let (_owner, reader, _region) = ends();
    /// // Of the same process, so at once; else an event tells.
    /// reader.connect(OWNER);
    /// assert!(reader.is_connected(OWNER));
    /// # }
    /// ```
    pub fn connect(&self, peer: WorkerId) {
        self.shared.connect(peer);
    }

    /// The lanes taken, by peer.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() {
    /// # let (_owner, reader, _region) = ends();
    /// for (_, status) in reader.lanes() {
    ///     println!("{} over {}", status.peer, status.lane);
    ///     for passed in &status.passed_over {
    ///         println!("  not over {passed}");
    ///     }
    /// }
    /// # }
    /// ```
    pub fn lanes(&self) -> Vec<(WorkerId, LaneStatus)> {
        self.shared.peers.lanes()
    }

    /// What reading from a connected peer costs: as the probe measured when it was connected, and as reads have
    /// done since.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() {
    /// # let (_owner, reader, _region) = ends();
    /// let speed = reader.speed(OWNER).expect("it is connected");
    /// println!("{:.1} GB/s, {:.1} us for a small read", speed.bytes_per_s / 1e9, speed.latency_s * 1e6);
    /// # }
    /// ```
    pub fn speed(&self, peer: WorkerId) -> Option<Probe> {
        self.shared.peers.link(peer).map(|link| link.speed().lately())
    }

    /// Whether the peer is connected and has not left.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() {
    /// # let (_owner, reader, _region) = ends();
    /// assert!(reader.is_connected(OWNER));
    /// assert!(!reader.is_connected(domain::WorkerId(77)), "nobody was introduced by this name");
    /// # }
    /// ```
    pub fn is_connected(&self, peer: WorkerId) -> bool {
        self.shared.peers.link(peer).is_some()
    }

    /// Sends a small message, without waiting. Connects the peer if need be; meanwhile messages wait, in order. Errors:
    /// [`SendError`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (_owner, reader, _region) = ends();
    /// // The other end's sink gets it, as `AgentEvent::Message`.
    /// reader.send(OWNER, b"read".to_vec())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send(&self, peer: WorkerId, bytes: Vec<u8>) -> Result<(), SendError> {
        self.shared.send(peer, bytes)
    }

    /// Prepares a transfer that reads from `peer`. Batches whose gates are open come together, others in their order as
    /// their gates open. Errors: [`PrepareError`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), transport::PrepareError> {
    /// # let (_owner, reader, region) = ends();
    /// use transport::{Copies, Copy, PrepareError, ReadBatch};
    /// // A hundred times 64 bytes, every second one of the owner's, to one contiguous place.
    /// let copies = Copies::Strided { first: Copy { from: 0, to: 0 }, step: Copy { from: 128, to: 64 }, count: 100 };
    /// let batch = ReadBatch { source: region, destination: region, len: 64, gate: 0, copies };
    /// let prepared = reader.prepare(OWNER, vec![batch])?;
    /// assert_eq!(prepared.bytes(), 6400);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prepare(&self, peer: WorkerId, batches: Vec<ReadBatch>) -> Result<Prepared, PrepareError> {
        let link = self.shared.peers.link(peer).ok_or(PrepareError::NotConnected(peer))?;
        let reader = Arc::downgrade(&self.shared);
        let AgentShared { config, claims, .. } = &*self.shared;
        Prepared::check(reader, link, batches, &config.tcp, claims, |id| self.shared.region(id))
    }

    /// Starts a transfer without waiting for it; its end comes as [`AgentEvent::Ended`], and can be asked or
    /// waited for. Once it has ended it may be posted again. Allocates nothing. Errors: [`PostError`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (_owner, reader, region) = ends();
    /// # use std::time::Duration;
    /// # use transport::{Copies, Copy, ReadBatch};
    /// # let copies = Copies::List(vec![Copy { from: 0, to: 0 }]);
    /// # let batch = ReadBatch { source: region, destination: region, len: 4096, gate: 0, copies };
    /// let prepared = reader.prepare(OWNER, vec![batch])?;
    /// for _ in 0..1000 {
    ///     reader.post(&prepared)?;
    ///     prepared.wait(Duration::from_secs(5));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn post(&self, transfer: &Prepared) -> Result<TransferId, PostError> {
        self.shared.post(transfer)
    }

    /// Asks a transfer to end. Its end (as cancelled, or regular if it came first) still comes, exactly once, and says
    /// that its destination is quiesced.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (_owner, reader, region) = ends();
    /// # use std::time::Duration;
    /// # use transport::{Copies, Copy, ReadBatch, TransferError, TransferState};
    /// # let copies = Copies::List(vec![Copy { from: 0, to: 0 }]);
    /// // Behind a gate that its owner never opens.
    /// let batch = ReadBatch { source: region, destination: region, len: 4096, gate: u64::MAX, copies };
    /// let prepared = reader.prepare(OWNER, vec![batch])?;
    /// let id = reader.post(&prepared)?;
    /// assert_eq!(prepared.state(), TransferState::UnderWay);
    /// reader.cancel(id);
    /// let end = prepared.wait(Duration::from_secs(5));
    /// // Nothing is written to its destination from here on.
    /// assert_eq!(end, TransferState::Ended(Err(TransferError::Cancelled)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self, id: TransferId) {
        self.shared.cancel(id);
    }

    /// What it read and what went wrong so far.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() {
    /// # let (_owner, reader, _region) = ends();
    /// for (lane, reads) in reader.counts().reads {
    ///     println!("{lane}: {} transfers, {} bytes", reads.transfers, reads.bytes);
    /// }
    /// # }
    /// ```
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
        agent.close_lanes();
        // Transfers end as cancelled before the links that they go over are cut: the control thread is the last.
        while let Some(thread) = self.threads.pop() {
            if self.threads.is_empty() {
                agent.control.close();
            }
            // What went wrong there was reported.
            let _ = thread.join();
        }
        agent.peers.clear();
    }
}

/// Opens the RDMA devices, where peers of other processes may read over them. Errors: why not, in words.
fn open_verbs(config: &AgentConfig) -> Result<Verbs, String> {
    if !config.lanes.contains(&Lane::Rdma) {
        return Err("forbidden by transport.lanes".to_owned());
    }
    if config.listen.is_none() {
        return Err("this worker listens to no other process".to_owned());
    }
    if config.tls.is_some() {
        return Err("what it moves would not be encrypted, which transport.tls_certificate demands".to_owned());
    }
    let verbs = Verbs::new(&config.rdma, config.posted_max).map_err(|error| error.to_string());
    if let Err(reason) = &verbs {
        tracing::debug!(worker = config.name, reason, "the lane rdma cannot be taken");
    }
    verbs
}

/// Whether the lane `rdma` can be taken, where it is required. Errors: why not.
fn check_required(config: &AgentConfig, verbs: &Result<Verbs, String>) -> io::Result<()> {
    if config.require != Some(Lane::Rdma) || config.listen.is_none() {
        return Ok(());
    }
    let reason = match verbs {
        Err(reason) => reason.clone(),
        Ok(verbs) => match verbs.refused() {
            None => return Ok(()),
            Some(reason) => format!("{reason}; {MEMLOCK_MEND}"),
        },
    };
    Err(io::Error::other(format!("transport.require is rdma, which cannot be taken: {reason}")))
}

/// Opens the sockets by which other processes reach the agent.
fn listen(hub: &Hub, config: &AgentConfig) -> io::Result<(Listeners, PeerAddress)> {
    let mut address = PeerAddress { process: hub.process(), ..PeerAddress::default() };
    let mut listeners = Listeners::default();
    let Some(ListenConfig { bind, advertise }) = &config.listen else { return Ok((listeners, address)) };
    if config.lanes.contains(&Lane::Shm) {
        // The name is unique: the process drew its number at random, and a life of a worker has one agent.
        address.unix = format!("baton-{:016x}-{}-{}", hub.process(), config.id, config.incarnation);
        listeners.listen_unix(&address.unix)?;
    }
    // Both are agreed on over it.
    let over_tcp = [Lane::Tcp, Lane::Rdma].iter().any(|lane| config.lanes.contains(lane));
    if over_tcp && !bind.is_empty() {
        let parts = |text: &str| text.split(',').map(|part| part.trim().to_owned()).collect::<Vec<_>>();
        let (binds, hosts) = (parts(bind), parts(advertise));
        if !advertise.is_empty() && hosts.len() != binds.len() {
            return Err(io::Error::other(format!("{} hosts are told for {} listened on", hosts.len(), binds.len())));
        }
        let is_open = config.secrets.is_empty() && config.tls.is_none();
        if is_open && !config.insecure {
            let reason = format!(
                "whoever reaches {bind} could read the KV cache: set cluster.secret, or transport.tls_certificate, \
                 or cluster.insecure = true to allow it"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let mut told = Vec::new();
        let mut is_loopback = true;
        for (at, bind) in binds.iter().enumerate() {
            let bound = listeners.listen_tcp(bind)?;
            let host = if advertise.is_empty() { bound.ip().to_string() } else { hosts[at].clone() };
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            told.push(format!("{host}:{}", bound.port()));
            is_loopback &= bound.ip().is_loopback();
        }
        address.tcp = told.join(",");
        if is_open && !is_loopback {
            tracing::warn!(
                worker = config.name,
                address = address.tcp,
                "neither a cluster secret nor TLS is set: whoever reaches this address may read the KV cache"
            );
        }
    }
    Ok((listeners, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Incarnation;

    #[test]
    fn a_required_lane_that_may_not_pin_memory_is_an_error_with_what_fixes_it() {
        let config = |require| AgentConfig {
            require,
            listen: Some(ListenConfig { bind: String::new(), advertise: String::new() }),
            ..AgentConfig::in_process(WorkerId(0), Incarnation(1), "w0".to_owned(), 1)
        };
        let verbs = Ok(Verbs::without_devices());
        assert!(check_required(&config(Some(Lane::Rdma)), &verbs).is_ok());
        let refused = "rxe0 port 1: 4096 bytes cannot be registered".to_owned();
        verbs.as_ref().expect("it is there").refuse(crate::memory::RegionId(0), refused);
        let error = check_required(&config(Some(Lane::Rdma)), &verbs).expect_err("nothing can be read over it");
        let error = error.to_string();
        for part in ["transport.require is rdma", "rxe0 port 1: 4096 bytes", "ulimit -l unlimited", "LimitMEMLOCK"] {
            assert!(error.contains(part), "{error}");
        }
        for slower in [None, Some(Lane::Tcp)] {
            assert!(check_required(&config(slower), &verbs).is_ok(), "peers are reached over another lane");
        }
    }
}
