//! What an agent's threads, and the other agents of its process, share of it.
//!
//! It imports the lanes, and they import it: an agent posts transfers to its lanes, whose threads report ends, counts
//! and lost links to the agent. A link within the process even holds the other agent. A trait for each direction would
//! break this circle of files, but have one implementor, and readers would look for the other.

use crate::agent::config::AgentConfig;
use crate::agent::counts::Counts;
use crate::agent::event::{AgentEvent, Completion, TransferError, TransferId, TransferReport};
use crate::agent::known_peer::KnownPeer;
use crate::agent::link::{FairShares, Link, Way};
use crate::agent::peers::Peers;
use crate::agent::rdma::RdmaError;
use crate::lanes::copy_threads::{CopyThreads, copy_at_once};
use crate::lanes::local::Hub;
use crate::lanes::nvlink::{NotFetched, ReaderDevice};
use crate::lanes::rails::RailFault;
use crate::lanes::rdma::Verbs;
use crate::lanes::tcp::{self, Streams};
use crate::lanes::{Lane, Staging};
use crate::net::control::Control;
use crate::regions::{DeregisterError, RegionId, Regions};
use crate::transfer::claims::Claims;
use crate::transfer::prepared::Prepared;
use crate::transfer::run_times::RunTime;
use crate::transfer::{PostError, Work};
use crate::wake::watch::Watched;
use domain::session::PeerAddress;
use domain::{Encoding, KvPart};
use kv_memory::{DeviceId, Memory};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The lowest bits of a transfer's id say which threads have it.
const HOLDER_BITS: u32 = 2;
const HELD_BY_COPY_THREADS: u64 = 0;
const HELD_BY_STREAMS: u64 = 1;
const HELD_BY_VERBS: u64 = 2;

/// Takes an agent's events. See [`crate::Agent::start`].
pub(crate) type Sink = Box<dyn Fn(AgentEvent) -> bool + Send + Sync>;

/// An agent, as its threads and its process' other agents see it.
pub(crate) struct AgentShared {
    pub(crate) config: AgentConfig,
    pub(crate) address: PeerAddress,
    pub(crate) hub: Hub,
    pub(crate) progress: Watched,
    pub(crate) peers: Peers,
    pub(crate) copy_threads: CopyThreads,
    pub(crate) control: Control,
    /// Where it may take the lane `tcp`.
    pub(crate) streams: Option<Streams>,
    /// Where it may take the lane `rdma`; else why not.
    pub(crate) verbs: Result<Verbs, RdmaError>,
    pub(crate) counts: Counts,
    pub(crate) fair_shares: FairShares,
    sink: Sink,
    regions: Mutex<Regions>,
    /// What transfers under way write.
    pub(crate) claims: Arc<Claims>,
    gone: AtomicBool,
    /// Transfers posted and not ended.
    open_transfers: AtomicUsize,
    next_id: AtomicU64,
    /// Events that the sink did not take: the end of each transfer, and what happened to each peer. Bounded by both.
    untold: Mutex<VecDeque<AgentEvent>>,
}

/// What changed among the regions.
pub(crate) struct RegionsNews {
    pub(crate) new: Vec<(RegionId, Arc<dyn Memory>)>,
    pub(crate) withdrawn: Vec<RegionId>,
}

/// What it is made of.
pub(crate) struct AgentParts {
    pub(crate) config: AgentConfig,
    pub(crate) address: PeerAddress,
    pub(crate) hub: Hub,
    pub(crate) progress: Watched,
    pub(crate) control: Control,
    pub(crate) streams: Option<Streams>,
    pub(crate) verbs: Result<Verbs, RdmaError>,
    pub(crate) sink: Sink,
}

impl AgentShared {
    pub(crate) fn new(parts: AgentParts) -> Self {
        let AgentParts { config, address, hub, progress, control, streams, verbs, sink } = parts;
        Self {
            copy_threads: CopyThreads::new(config.posted_max),
            untold: Mutex::new(VecDeque::with_capacity(config.posted_max)),
            config,
            address,
            hub,
            progress,
            peers: Peers::default(),
            control,
            streams,
            verbs,
            counts: Counts::default(),
            fair_shares: FairShares::default(),
            sink,
            regions: Mutex::default(),
            claims: Arc::default(),
            gone: AtomicBool::new(false),
            open_transfers: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
        }
    }

    /// One whose threads nobody starts, for whoever does their work step by step.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn without_threads(config: AgentConfig, streams: Option<Streams>, sink: Sink) -> Self {
        let progress =
            crate::wake::watch::Watched::new(domain::ProgressWord::new(), None).expect("nobody else watches it");
        let control = Control::new().expect("there are descriptors");
        let (address, hub, verbs) = (PeerAddress::default(), Hub::new(), Err(RdmaError::NotListening));
        Self::new(AgentParts { config, address, hub, progress, control, streams, verbs, sink })
    }

    /// Returns what others must know of it.
    pub(crate) fn known(&self) -> KnownPeer {
        let AgentConfig { id, incarnation, name, .. } = &self.config;
        KnownPeer { id: *id, incarnation: *incarnation, name: name.clone(), address: self.address.clone() }
    }

    // -- memory

    fn regions(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(&self, memory: Arc<dyn Memory>) -> RegionId {
        let id = self.regions().add(memory.clone());
        if let Ok(verbs) = &self.verbs {
            verbs.register(id, &memory);
        }
        self.control.regions_changed();
        id
    }

    pub(crate) fn deregister(&self, id: RegionId) -> Result<Arc<dyn Memory>, DeregisterError> {
        let memory = self.regions().remove(id)?;
        if let Ok(verbs) = &self.verbs {
            verbs.deregister(id, &memory);
        }
        self.control.regions_changed();
        Ok(memory)
    }

    pub(crate) fn region(&self, id: RegionId) -> Option<Arc<dyn Memory>> {
        self.regions().get(id)
    }

    /// Returns whether a region was registered, and is no more.
    pub(crate) fn is_withdrawn(&self, id: RegionId) -> bool {
        self.regions().is_withdrawn(id)
    }

    /// The devices of the lane `rdma`, if peers can be read over it. Errors: why not.
    pub(crate) fn usable_verbs(&self) -> Result<&Verbs, RdmaError> {
        let verbs = self.verbs.as_ref().map_err(Clone::clone)?;
        verbs.failed().map_or(Ok(verbs), |reason| Err(RdmaError::Devices(reason.to_string())))
    }

    /// Returns how it reads KV over a lane.
    pub(crate) fn encoding_over(&self, lane: Lane) -> Encoding {
        let reads_encoded = lane == Lane::Tcp && self.config.tcp.encoded;
        let part = |(_, memory): (RegionId, &Arc<dyn Memory>)| tcp::part_of(&**memory);
        let part = reads_encoded.then(|| self.regions().all().find_map(part)).flatten();
        part.map_or(Encoding::Exact, KvPart::encoding)
    }

    /// Returns the device whose memory some of its regions are.
    pub(crate) fn device(&self) -> Option<DeviceId> {
        self.regions().all().find_map(|(_, memory)| memory.place().device()).map(|place| place.id)
    }

    /// Returns the device that reads memory of peers' devices into all of its regions. Errors: there is none.
    pub(crate) fn reader_device(&self) -> Result<ReaderDevice, NotFetched> {
        ReaderDevice::of(self.regions().all().map(|(_, memory)| memory))
    }

    /// Returns whose memory the bytes that come over a link go through host memory for.
    pub(crate) fn staging(&self, link: &Link) -> Staging {
        let own = match link.lane() {
            // A network card, or the device itself, writes where it was told to, whatever that is.
            Lane::Rdma | Lane::Nvlink => None,
            Lane::Local if self.fetches_from_neighbour(link) => return Staging::default(),
            Lane::Local | Lane::Shm | Lane::Tcp => self.device(),
        };
        Staging { peer: link.device(), own }
    }

    /// Returns whether this agent's device copies out of all memory of a peer in this process. It is logged where only
    /// its driver keeps it from that.
    fn fetches_from_neighbour(&self, link: &Link) -> bool {
        let (Way::Local(owner), Ok(reader)) = (&link.way, self.reader_device()) else { return false };
        let regions: Vec<_> = owner.regions().all().map(|(id, memory)| (id, memory.clone())).collect();
        regions.iter().all(|(id, memory)| {
            let mapped = link.mapped_for(&reader, *id, memory).inspect_err(|error| {
                let (worker, peer) = (&self.config.name, &link.name);
                tracing::warn!(worker, peer, %error, "memory of a device of this process is not mapped for another one");
            });
            mapped.is_ok_and(|source| source.is_some())
        })
    }

    /// Brings who has been shown `shown` up to date: the regions that are new to it, and those that were withdrawn.
    pub(crate) fn regions_news(&self, shown: &mut BTreeSet<RegionId>) -> RegionsNews {
        let regions = self.regions();
        let all: BTreeSet<RegionId> = regions.all().map(|(id, _)| id).collect();
        let new = regions.all().filter(|(id, _)| !shown.contains(id));
        let news = RegionsNews {
            new: new.map(|(id, memory)| (id, memory.clone())).collect(),
            withdrawn: shown.difference(&all).copied().collect(),
        };
        *shown = all;
        news
    }

    // -- events

    /// Delivers a message of a peer. `false`: the inbox is full.
    pub(crate) fn deliver(&self, message: AgentEvent) -> bool {
        (self.sink)(message)
    }

    /// Something that the agent's owner must hear, now or as soon as its inbox has room.
    pub(crate) fn tell(&self, event: AgentEvent) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        if untold.is_empty() && (self.sink)(event.clone()) {
            return;
        }
        untold.push_back(event);
        drop(untold);
        self.control.wake();
    }

    /// Tries again to tell what was not taken. Whether something is left.
    pub(crate) fn tell_again(&self) -> bool {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = untold.front().cloned() {
            if !(self.sink)(event) {
                return true;
            }
            untold.pop_front();
        }
        false
    }

    // -- transfers

    pub(crate) fn post(&self, prepared: &Prepared) -> Result<TransferId, PostError> {
        if self.has_failed() {
            return Err(PostError::Failed);
        }
        let posted_max = self.config.posted_max;
        let room = |open| (open < posted_max).then_some(open + 1);
        if self.open_transfers.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            return Err(PostError::Full(posted_max));
        }
        let transfer = prepared.take().inspect_err(|_| {
            self.open_transfers.fetch_sub(1, Ordering::AcqRel);
        })?;
        // The lowest bits say who has it, for the sake of `cancel`.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) << HOLDER_BITS;
        let id = TransferId(match &transfer.work {
            Work::Copies(_) => id | HELD_BY_COPY_THREADS,
            Work::Stream(_) => id | HELD_BY_STREAMS,
            Work::Reads(_) => id | HELD_BY_VERBS,
        });
        let refused = match (&transfer.work, &self.streams, &self.verbs) {
            (Work::Copies(_), ..) => match copy_at_once(id, &transfer) {
                Some((report, runs)) => {
                    self.read(&transfer.link, &report);
                    transfer.end(Ok(report));
                    self.end_with(id, Ok(report), runs);
                    None
                }
                None => self.copy_threads.post(id, transfer),
            },
            (Work::Stream(_), Some(streams), _) => streams.lane_queue().post(id, transfer, tcp::begin),
            (Work::Reads(_), _, Ok(verbs)) => verbs.lane_queue().post(id, transfer, |_, _| true),
            (Work::Stream(_), None, _) | (Work::Reads(_), _, Err(_)) => Some(transfer),
        };
        if let Some(refused) = refused {
            let result = Err(self.outcome(TransferError::PeerGone));
            refused.end(result);
            self.end_with(id, result, Vec::new());
        }
        Ok(id)
    }

    /// Transfers posted and not ended.
    pub(crate) fn open_transfers(&self) -> usize {
        self.open_transfers.load(Ordering::Acquire)
    }

    pub(crate) fn cancel(&self, id: TransferId) {
        match (id.0 & ((1 << HOLDER_BITS) - 1), &self.streams, &self.verbs) {
            (HELD_BY_STREAMS, Some(streams), _) => streams.lane_queue().cancel(id),
            (HELD_BY_VERBS, _, Ok(verbs)) => verbs.lane_queue().cancel(id),
            _ => self.copy_threads.cancel(id),
        }
    }

    /// A transfer brought all its bytes, and those.
    pub(crate) fn read(&self, link: &Arc<Link>, report: &TransferReport) {
        self.counts.read(report);
        let slow = link.speed().take_slow();
        if let Some(slow) = slow {
            self.control.slow(link.clone(), slow);
        }
        let short = link.speed().take_short();
        if let Some(short) = short {
            Counts::add(&self.counts.short);
            tracing::warn!(
                worker = self.config.name,
                peer = link.name,
                lane = %link.lane(),
                "a lane brings far less than is expected of it: {:.2} GB/s, where its ports, or \
                 transport.expect_gbytes_per_s, promise {:.2}: look at cables, switches and PCIe slots (baton doctor)",
                short.bytes_per_s / 1e9,
                short.expected / 1e9
            );
        }
    }

    /// Bytes a second that are expected of a link: what people say, or what its ports promise.
    pub(crate) fn expected(&self, link: &Link) -> Option<f64> {
        let promised = match &link.way {
            Way::Rdma(way) => way.promised(),
            Way::Local(_) | Way::Nvlink(_) | Way::Shm { .. } | Way::Tcp(_) => None,
        };
        self.config.expect_bytes_per_s.or(promised)
    }

    /// A posted transfer ended.
    fn end(&self, completion: Completion) {
        self.open_transfers.fetch_sub(1, Ordering::AcqRel);
        self.tell(AgentEvent::Ended(completion));
    }

    pub(crate) fn end_with(&self, id: TransferId, result: Result<TransferReport, TransferError>, runs: Vec<RunTime>) {
        self.end(Completion { id, result, runs });
    }

    // -- rails

    /// A rail of a link, called `rail`, is not used for now.
    pub(crate) fn rail_put_aside(&self, link: &Link, rail: &str, fault: RailFault, reason: &str) {
        let (worker, peer, lane) = (&self.config.name, &link.name, link.lane());
        self.counts.rail_put_aside(fault);
        tracing::warn!(worker, peer, %lane, rail, fault = fault.name(), reason, "a rail is put aside");
    }

    /// A rail that was put aside did well and is used again.
    pub(crate) fn rail_returned(&self, link: &Link, rail: &str) {
        let (worker, peer, lane) = (&self.config.name, &link.name, link.lane());
        Counts::add(&self.counts.rails_returned);
        tracing::info!(worker, peer, %lane, rail, "a rail is used again");
    }

    // -- threads, and what they cannot handle

    /// Starts a thread of the agent, which fails with it. Errors: of the system.
    pub(crate) fn spawn(
        &self,
        what: &str,
        body: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        self.config.failure.spawn(format!("{}-{what}", self.config.name), body)
    }

    /// Runs a part of a thread, and reports a panic or an error in it. Whether there was neither.
    pub(crate) fn watch(&self, body: impl FnOnce() -> io::Result<()>) -> bool {
        let thread = std::thread::current();
        self.config.failure.watch(thread.name().unwrap_or("unnamed"), body)
    }

    /// Runs the last part of a thread, which ends one after the other of what is open, as often as it panics: each
    /// time less is open.
    pub(crate) fn finish(&self, mut end: impl FnMut()) {
        let mut ended = || {
            end();
            Ok(())
        };
        while !self.watch(&mut ended) {}
    }

    /// Returns whether a thread failed, of the agent or of the worker whose agent it is.
    pub(crate) fn has_failed(&self) -> bool {
        self.config.failure.get().is_some()
    }

    /// Returns how a transfer ends that did not bring its bytes for this reason: what the end of a failed agent takes
    /// along, it failed for.
    pub(crate) fn outcome(&self, error: TransferError) -> TransferError {
        if self.has_failed() { TransferError::Failed } else { error }
    }

    /// Has the lanes end all that is open, take nothing more, and end their threads.
    pub(crate) fn close_lanes(&self) {
        self.copy_threads.close();
        if let Some(streams) = &self.streams {
            streams.lane_queue().close();
        }
        if let Ok(verbs) = &self.verbs {
            verbs.lane_queue().close();
        }
    }

    // -- the end of links and of the agent

    /// Ends a link that was made and is not taken.
    pub(crate) fn discard(&self, link: &Link) {
        link.leave();
        self.lanes_changed();
    }

    /// Has the lanes' threads look for links that are gone.
    fn lanes_changed(&self) {
        if let Some(streams) = &self.streams {
            streams.lane_queue().links_changed();
        }
        if let Ok(verbs) = &self.verbs {
            verbs.lane_queue().links_changed();
        }
    }

    /// The connection to a peer broke, or the peer left or returned as a new life. Ends its transfers.
    pub(crate) fn lose(&self, link: &Arc<Link>, reason: &str) {
        if self.end_link(link, reason) {
            tracing::debug!(worker = self.config.name, peer = link.name, reason, "lost");
            self.tell(AgentEvent::Lost { peer: link.peer, reason: reason.to_owned() });
        }
    }

    /// Ends a link, its transfers and the one that it replaced. Whether it was its peer's current one.
    pub(crate) fn end_link(&self, link: &Arc<Link>, reason: &str) -> bool {
        let Some((current, retired)) = self.peers.forget(link) else { return false };
        self.copy_threads.wake();
        self.lanes_changed();
        self.control.link_lost();
        if let Some(retired) = retired {
            self.lose(&retired, reason);
        }
        current
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// From now on nobody reads it any more.
    pub(crate) fn leave(&self) {
        self.gone.store(true, Ordering::Release);
        // Whoever sleeps until a gate here opens looks whether it ever will.
        self.progress.ring();
    }
}
