//! What an agent read, and what went wrong, counted since its start.

use crate::agent::event::TransferReport;
use crate::lanes::Lane;
use crate::lanes::rails::RailFault;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an agent counted since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentCounts {
    /// Transfers that brought all their bytes and those bytes, of every lane.
    pub reads: Vec<(Lane, Reads)>,
    /// Connections and reads refused for what was sent, or for their number, by reason.
    pub refused: Vec<(Refusal, u64)>,
    /// Reads that ended because their bytes did not match their checksum.
    pub corrupted: u64,
    /// Messages of peers that the sink did not take.
    pub dropped_messages: u64,
    /// Connections to peers that broke or could not be made.
    pub lost: u64,
    /// Peers that were connected after they had been lost.
    pub reconnected: u64,
    /// Times that a lane to a peer fell under its floor.
    pub slow: u64,
    /// Times that a lane to a peer brought far less than was expected of it.
    pub short: u64,
    /// The rails of links, by lane.
    pub rails: Vec<(Lane, RailCounts)>,
    /// Times that a rail of a link was put aside, by reason.
    pub rails_put_aside: Vec<(RailFault, u64)>,
    /// Times that such a rail was taken back.
    pub rails_returned: u64,
}

/// Rails of all links of a lane, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailCounts {
    /// Those that are used.
    pub up: u64,
    /// Those that are put aside.
    pub aside: u64,
}

/// Transfers over a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Transfers that brought all their bytes.
    pub transfers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that came over the lane for them.
    pub wire_bytes: u64,
}

/// Why a connection was refused or closed, or a read refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not speak our protocol, speaks another version of it, or says more than it may before it has proven
    /// itself.
    Protocol,
    /// It does not know the secret, is another user's, of an earlier life, or means another worker.
    Identity,
    /// It did not say in time who it is.
    Silence,
    /// Its place was wanted: it had not proven itself, and gave way to another; or too many peers are connected.
    Crowd,
    /// It asked for bytes that it may not have.
    Request,
    /// Its regions have another layout.
    Layout,
    /// It answered what it was not asked, or in a way that no owner does.
    Answer,
    /// It speaks without TLS where that is demanded, or the other way round, or its certificate is not of the
    /// authorities, or it breaks the rules of TLS.
    Encryption,
    /// It asked for bytes of a region that is registered no more. That read is refused, and its connection goes on.
    Region,
    /// A device refused what it asked for: by a key or a place that it may not read, or what is registered no
    /// more. Seen when its connection ends, or makes its queue pairs anew.
    Key,
}

impl Refusal {
    const ALL: [Self; 10] = [
        Self::Protocol,
        Self::Identity,
        Self::Silence,
        Self::Crowd,
        Self::Request,
        Self::Layout,
        Self::Answer,
        Self::Encryption,
        Self::Region,
        Self::Key,
    ];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Identity => "identity",
            Self::Silence => "silence",
            Self::Crowd => "crowd",
            Self::Request => "request",
            Self::Layout => "layout",
            Self::Answer => "answer",
            Self::Encryption => "encryption",
            Self::Region => "region",
            Self::Key => "key",
        }
    }
}

#[derive(Default)]
pub(crate) struct Counts {
    transfers: [AtomicU64; Lane::COUNT],
    bytes: [AtomicU64; Lane::COUNT],
    wire_bytes: [AtomicU64; Lane::COUNT],
    refused: [AtomicU64; Refusal::ALL.len()],
    pub(crate) corrupted: AtomicU64,
    pub(crate) dropped_messages: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) reconnected: AtomicU64,
    pub(crate) slow: AtomicU64,
    pub(crate) short: AtomicU64,
    rails_up: [AtomicU64; Lane::COUNT],
    rails_aside: [AtomicU64; Lane::COUNT],
    put_aside: [AtomicU64; RailFault::ALL.len()],
    pub(crate) rails_returned: AtomicU64,
}

impl Counts {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, why: Refusal) {
        Self::add(&self.refused[why as usize]);
    }

    /// A transfer brought its bytes.
    pub(crate) fn read(&self, report: &TransferReport) {
        let lane = report.lane as usize;
        Self::add(&self.transfers[lane]);
        self.bytes[lane].fetch_add(report.bytes, Ordering::Relaxed);
        self.wire_bytes[lane].fetch_add(report.wire_bytes, Ordering::Relaxed);
    }

    /// So many rails of a lane are used and put aside now.
    pub(crate) fn rails(&self, lane: Lane, up: usize, aside: usize) {
        self.rails_up[lane as usize].store(up as u64, Ordering::Relaxed);
        self.rails_aside[lane as usize].store(aside as u64, Ordering::Relaxed);
    }

    pub(crate) fn rail_put_aside(&self, fault: RailFault) {
        Self::add(&self.put_aside[fault as usize]);
    }

    pub(crate) fn now(&self) -> AgentCounts {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let reads = |lane: Lane| Reads {
            transfers: now(&self.transfers[lane as usize]),
            bytes: now(&self.bytes[lane as usize]),
            wire_bytes: now(&self.wire_bytes[lane as usize]),
        };
        let rails = |lane: Lane| RailCounts {
            up: now(&self.rails_up[lane as usize]),
            aside: now(&self.rails_aside[lane as usize]),
        };
        AgentCounts {
            reads: Lane::all().map(|lane| (lane, reads(lane))).collect(),
            refused: Refusal::ALL.map(|why| (why, now(&self.refused[why as usize]))).to_vec(),
            corrupted: now(&self.corrupted),
            dropped_messages: now(&self.dropped_messages),
            lost: now(&self.lost),
            reconnected: now(&self.reconnected),
            slow: now(&self.slow),
            short: now(&self.short),
            rails: [Lane::Rdma, Lane::Tcp].map(|lane| (lane, rails(lane))).to_vec(),
            rails_put_aside: RailFault::ALL.map(|why| (why, now(&self.put_aside[why as usize]))).to_vec(),
            rails_returned: now(&self.rails_returned),
        }
    }
}
