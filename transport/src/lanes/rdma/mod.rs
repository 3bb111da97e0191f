//! The lane `rdma`: the reader's device reads the owner's memory, over reliably connected queue pairs of
//! libibverbs; the owner's processor has no part in it.
//!
//! One thread of the agent posts reads and takes their completions for all peers. A connection beside each link
//! carries what both ends must know: queue pairs and keys at first, then the owner's progress word while the
//! reader waits for it. That connection, like every other, is made and proven to be a peer's by `control`; the
//! queue pairs of both ends live as long as it.
//!
//! A link has queue pairs on each port that is configured: its rails (see [`crate::lanes::rails`]). A rail is
//! used once it has read something: it may be that its device, or the owner's, is down. The queue pairs of one
//! that fails or slows are ended, what they had not brought is read over the others once it is certain that
//! nothing of it comes late, and both ends make new ones later. The link ends with its last rail: the peer is
//! reached over another lane then.
//!
//! What is deliberately absent: writing. No key allows it, and no queue pair of ours is made for it. And
//! checksums: links check each packet, and a read that was damaged is repeated by the device.

mod completions;
mod engine;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing_ends;
mod nearness;
mod owner;
mod owner_state;
mod plan;
mod port;
#[cfg(any(test, feature = "fuzzing"))]
mod pretended;
mod promise;
mod queue;
mod reader;
mod recovery;
mod serving;
mod transfers;
mod verbs;
mod wire;

pub(crate) use engine::run;
pub(crate) use error::DeviceError;
pub(crate) use plan::ReadPlan;
pub(crate) use wire::ExchangeError;

use crate::agent::config::RdmaConfig;
use crate::agent::link::Link;
use crate::clock::now;
use crate::lanes::lane_queue::LaneQueue;
use crate::lanes::rails::Rails;
use crate::net::control::{Channel, ConnectError, Frame};
use crate::regions::RegionId;
use crate::speed::probe::{PROBE_BYTES, Scratch};
use crate::wake::Doorbell;
use kv_memory::Memory;
use owner_state::OwnerState;
use port::Port;
use reader::{ReaderConnection, ReaderRail, told_as};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use verbs::CompletionQueue;
pub use verbs::RdmaLibraryError;
use wire::kind;

/// Checks that libibverbs is there and has what the lane needs; devices are not looked for.
///
/// ```
/// if let Err(error) = transport::rdma_library() {
///     println!("KV does not go over rdma: {error}");
/// }
/// ```
pub fn rdma_library() -> Result<(), RdmaLibraryError> {
    verbs::Library::of_system().map(drop)
}

/// How others reach the lane's thread, and what all its links share. Queue pairs go before ports: fields drop in order.
pub(crate) struct Verbs {
    config: RdmaConfig,
    lane_queue: LaneQueue<Order, Channel>,
    /// What the thread waits on. It is there before the thread is, which could tell nobody that the system had
    /// none left.
    epoll: OwnedFd,
    /// What the queue pairs of owners never use.
    unused: Vec<Arc<CompletionQueue>>,
    ports: Arc<Vec<Port>>,
    regions: Mutex<Regions>,
    /// Where probes read to; what arrives there is nobody's.
    scratch: Arc<dyn Memory>,
    /// Numbers links, so that completions tell whose they are.
    next_link: AtomicU64,
}

/// The regions of the agent.
#[derive(Default)]
struct Regions {
    /// Those that its devices were lent: peers may read them, and reads go into them.
    lent: BTreeMap<RegionId, Arc<dyn Memory>>,
    /// Those that a device refused, and why.
    refused: BTreeMap<RegionId, String>,
}

/// What a link knows of its owner.
pub(crate) struct RdmaWay {
    owner: OwnerState,
    /// The reader's ports: the link has a rail from each.
    ports: Arc<Vec<Port>>,
}

impl Verbs {
    /// Opens the devices. Errors: the lane cannot be taken.
    pub(crate) fn new(config: &RdmaConfig, posted_max: usize) -> Result<Self, DeviceError> {
        Self::over(port::open(config)?, config, posted_max)
    }

    /// A lane whose protocol can be spoken and by which nothing can be read.
    #[cfg(test)]
    pub(crate) fn without_devices() -> Self {
        Self::over(Vec::new(), &RdmaConfig::default(), 1).expect("there is nothing that could fail")
    }

    fn over(ports: Vec<Port>, config: &RdmaConfig, posted_max: usize) -> Result<Self, DeviceError> {
        let scratch: Arc<dyn Memory> = Arc::new(Scratch::new(PROBE_BYTES));
        ports.iter().try_for_each(|port| port.register(&scratch).map_err(|error| error.of(port.name.as_str())))?;
        let unused = ports.iter().map(|port| CompletionQueue::new(&port.channel, 1, 0).map(Arc::new));
        let unused = unused.collect::<Result<_, _>>()?;
        let lane_queue = LaneQueue::new(Doorbell::new().map_err(DeviceError::System)?, posted_max);
        let epoll = engine::listen(lane_queue.bell(), &ports).map_err(DeviceError::System)?;
        Ok(Self {
            config: config.clone(),
            lane_queue,
            epoll,
            unused,
            ports: Arc::new(ports),
            regions: Mutex::default(),
            scratch,
            next_link: AtomicU64::new(1),
        })
    }

    fn regions(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing can be read into this agent, or out of it: its devices refused all of its memory.
    pub(crate) fn failed(&self) -> Option<String> {
        let Regions { lent, refused } = &*self.regions();
        refused.values().next().filter(|_| lent.is_empty()).cloned()
    }

    /// Why some of the agent's memory cannot be read over the lane, if there is such.
    pub(crate) fn refused(&self) -> Option<String> {
        self.regions().refused.values().next().cloned()
    }

    /// A device refuses this region.
    pub(crate) fn refuse(&self, id: RegionId, reason: String) {
        tracing::warn!(region = id.0, reason, "a region is not read over the lane rdma");
        self.regions().refused.insert(id, reason);
    }

    /// Returns how many queue pairs each rail of a link has.
    fn queues(&self) -> usize {
        usize::from(self.config.queues).clamp(1, wire::QUEUES_MAX)
    }

    /// Returns where probes read to.
    pub(crate) fn scratch(&self) -> Arc<dyn Memory> {
        self.scratch.clone()
    }

    /// Lends the devices a memory. One that any of them refuses is not read over this lane; all others are.
    pub(crate) fn register(&self, id: RegionId, memory: &Arc<dyn Memory>) {
        for (place, port) in self.ports.iter().enumerate() {
            if let Err(error) = port.register(memory) {
                self.ports[..place].iter().for_each(|port| port.deregister(memory));
                return self.refuse(id, error.of(port.name.as_str()).to_string());
            }
        }
        self.regions().lent.insert(id, memory.clone());
        self.lane_queue.ask(Order::ShowRegions);
    }

    /// Takes a memory back from the devices.
    pub(crate) fn deregister(&self, id: RegionId, memory: &Arc<dyn Memory>) {
        let was_lent = {
            let mut regions = self.regions();
            regions.refused.remove(&id);
            regions.lent.remove(&id).is_some()
        };
        if was_lent {
            self.ports.iter().for_each(|port| port.deregister(memory));
            self.lane_queue.ask(Order::ShowRegions);
        }
    }

    pub(crate) fn lane_queue(&self) -> &LaneQueue<Order, Channel> {
        &self.lane_queue
    }

    /// Agrees with the owner at the other end of `channel` on queue pairs, and hears of its regions. `wait` sends
    /// what waits and waits for a frame.
    pub(crate) fn meet(
        &self,
        mut channel: Channel,
        fingerprint: u64,
        wait: impl Fn(&mut Channel) -> Result<Frame, ConnectError>,
    ) -> Result<Met, ConnectError> {
        let number = self.next_link.fetch_add(1, Ordering::Relaxed);
        // A link has the rails that can be made now, and gets others when they can.
        let rail = |port: usize| ReaderRail::new(self, port, told_as(number, port, 0));
        let rails: Vec<_> = (0..self.ports.len()).map(rail).collect();
        let offer = ReaderConnection::offer(&rails, self, fingerprint);
        channel.push(kind::QUEUES, &offer.encode(), None);
        let answer = owner_state::answer(&wait(&mut channel)?, fingerprint, rails.len())?;
        let (mut connected, mut lacks) = (Vec::new(), Vec::new());
        for (place, (rail, owner)) in rails.into_iter().zip(&answer.rails).enumerate() {
            let rail = rail.and_then(|mut rail| rail.connect(owner).map(|()| rail));
            connected.push(rail.map_err(|error| lacks.push((place, error))).ok());
        }
        if connected.iter().all(Option::is_none) {
            let named = |(place, error): (usize, DeviceError)| error.of(self.ports[place].name.as_str());
            return Err(DeviceError::NoneOf(lacks.into_iter().map(named).collect()).into());
        }
        let owner = OwnerState::new(connected.len());
        while !owner.begin(&wait(&mut channel)?)? {}
        let way = RdmaWay { owner, ports: self.ports.clone() };
        rustix::io::ioctl_fionbio(channel.socket(), true).map_err(io::Error::from)?;
        Ok(Met { number, way: Arc::new(way), channel, rails: connected, lacks })
    }

    /// The queue pairs of this link are this lane's.
    pub(crate) fn adopt(&self, link: Arc<Link>, met: Met) {
        let Met { number, way, channel, rails, lacks } = met;
        let there: Vec<bool> = rails.iter().map(Option::is_some).collect();
        let mut policy = Rails::untried(&there, now()).mute_for(recovery::MUTE_MAX);
        policy.report_to(link.shared_speed());
        let connection = ReaderConnection {
            link,
            way,
            channel,
            policy,
            rails,
            attempts: 0,
            waiting: VecDeque::new(),
            watched: 0,
            ended: None,
        };
        self.lane_queue.ask(Order::Adopt(number, Box::new(connection), lacks));
    }
}

/// What this lane alone is asked for.
pub(crate) enum Order {
    /// The link of this number is the lane's from now on; it lacks these rails, for these reasons.
    Adopt(u64, Box<ReaderConnection>, Vec<(usize, DeviceError)>),
    /// There is a region more.
    ShowRegions,
}

/// An owner that was agreed with.
pub(crate) struct Met {
    number: u64,
    pub(crate) way: Arc<RdmaWay>,
    channel: Channel,
    rails: Vec<Option<ReaderRail>>,
    /// The rails that there are none on, and why.
    lacks: Vec<(usize, DeviceError)>,
}

impl RdmaWay {
    /// Returns what is known of the owner's progress.
    pub(crate) fn progress(&self) -> u64 {
        self.owner.word()
    }

    /// Returns the bytes a second that the reader's ports promise together, if all tell.
    pub(crate) fn promised(&self) -> Option<f64> {
        self.ports.iter().map(Port::promised).sum()
    }

    /// Returns the bytes of a region.
    pub(crate) fn region_len(&self, id: RegionId) -> Option<u64> {
        self.owner.region(id).map(|region| region.len)
    }

    /// A region that can be read to see how fast that is.
    pub(crate) fn any_region(&self) -> Option<RegionId> {
        self.owner.any_region()
    }

    /// Returns the keys of a memory of one's own, on each rail of the link.
    fn local_keys(&self, memory: &Arc<dyn Memory>) -> Option<Vec<u32>> {
        self.ports.iter().map(|port| Some(port.keys(memory)?.local)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::verbs::pretended::{self, PretendedDevice, REGISTER_ERROR, REGISTERED};
    use super::*;
    use kv_memory::SealedMemory;
    use std::path::Path;

    #[test]
    fn memory_that_devices_refuse_costs_itself_alone() {
        let devices = [c"a", c"b"].map(|name| PretendedDevice { name, ports_up: &[true] });
        let config = RdmaConfig::default();
        let ports = port::open_by(&pretended::library(&devices), Path::new("/nowhere"), &config);
        let verbs = Verbs::over(ports.expect("they are active"), &config, 1).expect("it can be made");
        let memory = || -> Arc<dyn Memory> { Arc::new(SealedMemory::new("test", 4096).expect("memory")) };
        let (first, second, third) = (memory(), memory(), memory());
        let scratch = REGISTERED.get();

        REGISTER_ERROR.set(libc::ENOMEM);
        verbs.register(RegionId(0), &first);
        REGISTER_ERROR.set(0);
        let reason = verbs.failed().expect("nothing can be read");
        assert!(
            reason.contains("a port 1: 4096 bytes cannot be registered") && reason.contains("ulimit -l"),
            "{reason}"
        );

        verbs.register(RegionId(1), &second);
        assert_eq!((verbs.failed(), REGISTERED.get()), (None, scratch + 2), "others are read");
        assert_eq!(verbs.refused(), Some(reason), "a worker to which the lane is vital does not start");
        assert_eq!(verbs.regions().lent.keys().copied().collect::<Vec<_>>(), [RegionId(1)]);
        assert!(verbs.ports[1].keys(&first).is_none() && verbs.ports[1].keys(&second).is_some());

        verbs.deregister(RegionId(0), &first);
        assert_eq!((verbs.refused(), REGISTERED.get()), (None, scratch + 2));
        verbs.register(RegionId(2), &third);
        verbs.deregister(RegionId(1), &second);
        assert_eq!(REGISTERED.get(), scratch + 2);
    }
}
