//! A connected peer: the way to its bytes, and whether it is still there.

use crate::agent::known_peer::KnownPeer;
use crate::agent::shared::AgentShared;
use crate::lanes::Lane;
use crate::lanes::rdma::RdmaWay;
use crate::lanes::shm::peer_mapping::PeerMapping;
use crate::lanes::shm::progress_page::ProgressView;
use crate::lanes::tcp::TcpWay;
use crate::regions::RegionId;
use crate::speed::fair_share::FairShare;
use crate::speed::link_speed::LinkSpeed;
use crate::wake::{SharedFutex, Wake};
use domain::{Incarnation, WorkerId};
use kv_memory::{DeviceId, Memory, Place};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One connection to one life of a peer. A new connection is a new link.
pub(crate) struct Link {
    pub(crate) peer: WorkerId,
    pub(crate) incarnation: Incarnation,
    /// Name for people.
    pub(crate) name: String,
    pub(crate) way: Way,
    gone: AtomicBool,
    speed: Arc<Mutex<LinkSpeed>>,
}

/// How the peer's bytes are read.
pub(crate) enum Way {
    /// Its memory is this process'.
    Local(Arc<AgentShared>),
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
}

impl Source {
    /// Returns where it is. What is mapped must not be written.
    pub(crate) fn place(&self) -> Place<'_> {
        match self {
            Source::Own(memory) => memory.place(),
            Source::Mapped(mapping) => Place::Host(mapping.as_ptr().cast_mut()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Source::Own(memory) => memory.len(),
            Source::Mapped(mapping) => mapping.len(),
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
        Self { peer, incarnation, name: name.clone(), way, gone: AtomicBool::new(false), speed }
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
            Way::Shm { progress, .. } => progress.get(),
            Way::Rdma(way) => way.progress(),
            Way::Tcp(_) => 0,
        }
    }

    /// Returns the same; and where the word is this process', its next raise wakes `wake`.
    pub(crate) fn watch(&self, wake: &Arc<dyn Wake>) -> u64 {
        match &self.way {
            Way::Local(agent) => agent.progress.watch(wake),
            Way::Shm { .. } | Way::Rdma(_) | Way::Tcp(_) => self.progress(),
        }
    }

    /// Returns what to sleep on until the peer's word differs from `seen`, if that is another process' memory.
    pub(crate) fn futex(&self, seen: u64) -> Option<SharedFutex> {
        match &self.way {
            Way::Shm { progress, .. } => Some(progress.futex(seen)),
            Way::Local(_) | Way::Rdma(_) | Way::Tcp(_) => None,
        }
    }

    /// A region that this process can copy from.
    pub(crate) fn source(&self, id: RegionId) -> Option<Source> {
        match &self.way {
            Way::Local(agent) => agent.region(id).map(Source::Own),
            Way::Shm { regions, .. } => {
                let regions = regions.lock().unwrap_or_else(PoisonError::into_inner);
                regions.get(&id).cloned().flatten().map(Source::Mapped)
            }
            Way::Rdma(_) | Way::Tcp(_) => None,
        }
    }

    /// A region that can be read to see how fast that is, and its bytes.
    pub(crate) fn any_region(&self) -> Option<(RegionId, u64)> {
        let id = match &self.way {
            Way::Tcp(way) => way.any_region(),
            Way::Rdma(way) => way.any_region(),
            Way::Local(_) | Way::Shm { .. } => None,
        }?;
        Some((id, self.region_len(id)?))
    }

    /// Returns the device whose memory the peer's regions are, where the host reads them nevertheless.
    pub(crate) fn device(&self) -> Option<DeviceId> {
        match &self.way {
            Way::Local(agent) => agent.device(),
            Way::Tcp(way) => way.device(),
            Way::Shm { .. } | Way::Rdma(_) => None,
        }
    }

    /// Returns the bytes of a region.
    pub(crate) fn region_len(&self, id: RegionId) -> Option<u64> {
        match &self.way {
            Way::Tcp(way) => way.region_len(id),
            Way::Rdma(way) => way.region_len(id),
            Way::Local(_) | Way::Shm { .. } => self.source(id).map(|source| source.len() as u64),
        }
    }
}
