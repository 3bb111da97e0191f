//! A connected peer: the way to its bytes, and whether it is still there.

use crate::agent::known_peer::KnownPeer;
use crate::agent::shared::AgentShared;
use crate::lanes::Lane;
use crate::lanes::nvlink::{NvlinkWay, ReaderDevice};
use crate::lanes::rdma::RdmaWay;
use crate::lanes::shm::progress_page::ProgressView;
use crate::lanes::tcp::TcpWay;
use crate::regions::RegionId;
use crate::speed::fair_share::FairShare;
use crate::speed::link_speed::LinkSpeed;
use crate::wake::{SharedFutex, Wake};
use domain::{Incarnation, WorkerId};
use kv_memory::{DeviceId, Memory, PeerMapping, PeerMemory, Place};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One connection to one life of a peer. A new connection is a new link.
pub(crate) struct Link {
    pub(crate) peer: WorkerId,
    pub(crate) incarnation: Incarnation,
    /// Name for people.
    pub(crate) name: String,
    pub(crate) way: Way,
    /// Memory of the peer's devices as one of this process' reads it, where the peer is in this process, too.
    own_mapped: Mutex<BTreeMap<(RegionId, DeviceId), Arc<PeerMemory>>>,
    gone: AtomicBool,
    speed: Arc<Mutex<LinkSpeed>>,
}

/// How the peer's bytes are read.
pub(crate) enum Way {
    /// Its memory is this process'.
    Local(Arc<AgentShared>),
    /// Its devices' memory is mapped for this process' device.
    Nvlink(NvlinkWay),
    /// Its memory is mapped.
    Shm {
        progress: ProgressView,
        /// `None`: there is no file behind that one.
        regions: Mutex<BTreeMap<RegionId, Option<Arc<PeerMapping>>>>,
    },
    /// A device of this host reads them.
    Rdma(Arc<RdmaWay>),
    /// It is asked to send them.
    Tcp(TcpWay),
}

impl Way {
    fn lane(&self) -> Lane {
        match self {
            Way::Local(_) => Lane::Local,
            Way::Nvlink(_) => Lane::Nvlink,
            Way::Shm { .. } => Lane::Shm,
            Way::Rdma(_) => Lane::Rdma,
            Way::Tcp(_) => Lane::Tcp,
        }
    }
}

/// The links of an agent over each lane.
pub(crate) type FairShares = [Arc<FairShare>; Lane::COUNT];

/// Memory of a peer that this process can copy from. Mapped as long as the value lives.
#[derive(Clone)]
pub(crate) enum Source {
    Own(Arc<dyn Memory>),
    Mapped(Arc<PeerMapping>),
    /// A device's, which this process' device copies out of.
    Fetched(Arc<PeerMemory>),
    /// The same, where its owner is in this process and lends it.
    Lent(Arc<PeerMemory>, #[expect(dead_code, reason = "it is held")] Arc<dyn Memory>),
}

impl Source {
    /// Returns where it is, as the host knows it. What is mapped must not be written. Errors: a device alone reads it.
    pub(crate) fn place(&self) -> Result<Place<'_>, &Arc<PeerMemory>> {
        match self {
            Source::Own(memory) => Ok(memory.place()),
            Source::Mapped(mapping) => Ok(Place::Host(mapping.as_ptr().cast_mut())),
            Source::Fetched(memory) | Source::Lent(memory, _) => Err(memory),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Source::Own(memory) => memory.len(),
            Source::Mapped(mapping) => mapping.len(),
            Source::Fetched(memory) | Source::Lent(memory, _) => memory.len(),
        }
    }
}

impl Link {
    /// `fair_shares`: of the agent's lanes.
    pub(crate) fn new(known: &KnownPeer, way: Way, fair_shares: &FairShares) -> Self {
        let speed = Arc::new(Mutex::new(LinkSpeed::among(fair_shares[way.lane() as usize].clone())));
        if let Way::Tcp(way) = &way {
            way.tell(speed.clone());
        }
        let KnownPeer { id: peer, incarnation, ref name, .. } = *known;
        let (own_mapped, gone) = (Mutex::default(), AtomicBool::new(false));
        Self { peer, incarnation, name: name.clone(), way, own_mapped, gone, speed }
    }

    pub(crate) fn lane(&self) -> Lane {
        self.way.lane()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire) || matches!(&self.way, Way::Local(agent) if agent.is_gone())
    }

    /// Returns how fast it is.
    pub(crate) fn speed(&self) -> MutexGuard<'_, LinkSpeed> {
        self.speed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the same, for whoever accounts for what it brings.
    pub(crate) fn shared_speed(&self) -> Arc<Mutex<LinkSpeed>> {
        self.speed.clone()
    }

    /// The peer left. `false`: that was known.
    pub(crate) fn leave(&self) -> bool {
        self.speed().end();
        !self.gone.swap(true, Ordering::AcqRel)
    }

    /// Returns the peer's progress word, where this process sees it; else none of its gates but 0 is known to be open.
    pub(crate) fn progress(&self) -> u64 {
        match &self.way {
            Way::Local(agent) => agent.progress.get(),
            Way::Nvlink(way) => way.progress().get(),
            Way::Shm { progress, .. } => progress.get(),
            Way::Rdma(way) => way.progress(),
            Way::Tcp(_) => 0,
        }
    }

    /// Returns the same; and where the word is this process', its next raise wakes `wake`.
    pub(crate) fn watch(&self, wake: &Arc<dyn Wake>) -> u64 {
        match &self.way {
            Way::Local(agent) => agent.progress.watch(wake),
            Way::Nvlink(_) | Way::Shm { .. } | Way::Rdma(_) | Way::Tcp(_) => self.progress(),
        }
    }

    /// Returns what to sleep on until the peer's word differs from `seen`, if that is another process' memory.
    pub(crate) fn futex(&self, seen: u64) -> Option<SharedFutex> {
        match &self.way {
            Way::Nvlink(way) => Some(way.progress().futex(seen)),
            Way::Shm { progress, .. } => Some(progress.futex(seen)),
            Way::Local(_) | Way::Rdma(_) | Way::Tcp(_) => None,
        }
    }

    /// A region that this process can copy from.
    pub(crate) fn source(&self, id: RegionId) -> Option<Source> {
        match &self.way {
            Way::Local(agent) => agent.region(id).map(Source::Own),
            Way::Nvlink(way) => way.region(id).map(Source::Fetched),
            Way::Shm { regions, .. } => {
                let regions = regions.lock().unwrap_or_else(PoisonError::into_inner);
                regions.get(&id).cloned().flatten().map(Source::Mapped)
            }
            Way::Rdma(_) | Way::Tcp(_) => None,
        }
    }

    /// Returns a region of a peer in this process as `reader` copies out of it. `None`: its device cannot. Errors: of
    /// the reader's driver.
    pub(crate) fn mapped_for(
        &self,
        reader: &ReaderDevice,
        id: RegionId,
        memory: &Arc<dyn Memory>,
    ) -> io::Result<Option<Source>> {
        let Way::Local(owner) = &self.way else { return Ok(None) };
        let mut mapped = self.own_mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.retain(|&(id, _), _| !owner.is_withdrawn(id));
        let entry = mapped.entry((id, reader.id()));
        let source = match entry {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => match reader.map_own(&**memory) {
                Some(new) => place.insert(new?).clone(),
                None => return Ok(None),
            },
        };
        Ok(Some(Source::Lent(source, memory.clone())))
    }

    /// A region that can be read to see how fast that is, and its bytes.
    pub(crate) fn any_region(&self) -> Option<(RegionId, u64)> {
        let id = match &self.way {
            Way::Tcp(way) => way.any_region(),
            Way::Rdma(way) => way.any_region(),
            Way::Local(_) | Way::Nvlink(_) | Way::Shm { .. } => None,
        }?;
        Some((id, self.region_len(id)?))
    }

    /// Returns the device whose memory the peer's regions are, where the host reads them nevertheless.
    pub(crate) fn device(&self) -> Option<DeviceId> {
        match &self.way {
            Way::Local(agent) => agent.device(),
            Way::Tcp(way) => way.device(),
            Way::Nvlink(_) | Way::Shm { .. } | Way::Rdma(_) => None,
        }
    }

    /// Returns the bytes of a region.
    pub(crate) fn region_len(&self, id: RegionId) -> Option<u64> {
        match &self.way {
            Way::Tcp(way) => way.region_len(id),
            Way::Rdma(way) => way.region_len(id),
            Way::Local(_) | Way::Nvlink(_) | Way::Shm { .. } => self.source(id).map(|source| source.len() as u64),
        }
    }
}
