//! Processes: workers and routers with what dies when they do.

use crate::disk::Platter;
use crate::event::{Life, WorkerIndex};
use crate::invariants::{idle, line, quotas, sealed, waits};
use crate::listing::Follower;
use crate::operators::Duty;
use crate::pool::Pool;
use crate::session::SessionKey;
use crate::shell::Shell;
use discovery::Sight;
use domain::plan::StepPlan;
use domain::session::{Assignment, Role};
use domain::{Epoch, ProgressWord, RequestId, Time, WorkerId};
use engine::sim::{SimModel, StepTime};
use engine::slots::DeviceSlots;
use placement::Placement;
use proto::admin::WorkerAsk;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tiers::TierEvent;
use transport::Completion;
use worker::{Machine, SessionId};

/// What waits in a worker's inbox.
pub(crate) enum Inmail {
    Opened(SessionKey),
    Session(SessionKey, Vec<u8>),
    Peer(WorkerId, Vec<u8>),
    Ended(Completion),
    Connected(WorkerId),
    Lost(WorkerId),
    Moved(TierEvent),
    StepEnded,
    Operator(WorkerAsk),
    Drain,
}

/// A step that a device executes.
pub(crate) struct Running {
    pub(crate) plan: Arc<StepPlan>,
    pub(crate) time: StepTime,
    pub(crate) begin: Time,
    /// The layer that is written next; past the last: the step ends.
    pub(crate) layer: u16,
}

/// A worker that is alive.
pub(crate) struct WorkerLife {
    pub(crate) machine: Machine,
    pub(crate) shell: Shell,
    pub(crate) pools: Vec<Arc<Pool>>,
    pub(crate) progress: ProgressWord,
    pub(crate) model: SimModel,
    /// What the device has of sequences.
    pub(crate) slots: DeviceSlots,
    /// The longest context that it takes.
    pub(crate) context: usize,
    pub(crate) running: Option<Running>,
    /// The next step to reach this layer fails there; the number of layers: one of the next step's spans fails alone.
    pub(crate) fails_in: Option<u16>,
    /// That is since a poisoned prompt is in it.
    pub(crate) poisoned: bool,
    pub(crate) inbox: VecDeque<Inmail>,
    /// When its loop has its next turn.
    pub(crate) wakes: Time,
    /// When its loop had its last turn.
    pub(crate) turned: Time,
    /// Its loop stands still.
    pub(crate) stuck: bool,
    /// What came while its whole process stands still, or did until just now.
    pub(crate) sockets: Option<VecDeque<Inmail>>,
    /// What sessions brought while the inbox was full: they are read when it has room.
    pub(crate) unread: VecDeque<Inmail>,
    pub(crate) drains: bool,
    /// What it was there for in this life, the latest last, as it answered to operators.
    pub(crate) duties: Vec<Duty>,
    pub(crate) sessions: u64,
    /// By what the machine calls them.
    pub(crate) session_keys: BTreeMap<SessionId, SessionKey>,
    /// What it was asked to do, while a world may still ask.
    pub(crate) parts: BTreeMap<(RequestId, Epoch), Assignment>,
    /// Attempts whose copy an owner called valid.
    pub(crate) validated: BTreeSet<(RequestId, Epoch)>,
    /// How many more of its reads fail.
    pub(crate) reads_fail: u32,
    /// Blocks whose bytes were compared already.
    pub(crate) checked: sealed::Checked,
    /// Its blocks when it was looked at last.
    pub(crate) before: quotas::Before,
    /// Since when its fetches wait.
    pub(crate) waits: waits::Since,
    /// What its sequences had or wanted when it was looked at last.
    pub(crate) line: line::Line,
    /// Decoding sequences that were not in its last steps.
    pub(crate) missed: idle::Missed,
}

impl WorkerLife {
    /// Entries of all lists of its machine, by name.
    pub(crate) fn sizes(&self) -> Vec<(&'static str, usize)> {
        let machine = &self.machine;
        let sizes = machine.core().sizes().into_iter().chain(machine.offers().sizes()).chain(machine.fetches().sizes());
        sizes.collect()
    }

    /// What it is there for.
    pub(crate) fn duty(&self) -> Duty {
        *self.duties.last().expect("it starts with one")
    }

    /// Whether it loads from tiers, or lifts between them, or prompts wait to.
    pub(crate) fn tiers_move(&self) -> bool {
        let moves = |name| name == "loads from tiers" || name == "lifts between tiers";
        self.machine.core().sizes().iter().any(|&(name, size)| moves(name) && size > 0)
    }

    /// What came over a session and is not in the inbox yet.
    pub(crate) fn unread_of(&self, key: SessionKey) -> usize {
        let of_it = |mail: &&Inmail| matches!(mail, Inmail::Session(of, _) if *of == key);
        self.sockets.iter().flatten().chain(&self.unread).filter(of_it).count()
    }
}

/// A worker.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    /// The role that it starts with.
    pub(crate) role: Role,
    /// What operators asked of this life.
    pub(crate) wanted: Duty,
    /// They asked something of it. It may have done it though nobody has its answer.
    pub(crate) operated: bool,
    /// Which life it is in, or was in last.
    pub(crate) life: Life,
    pub(crate) alive: Option<WorkerLife>,
    /// What its disk holds.
    pub(crate) platter: Platter,
    /// What its memory above that holds, for as long as it lives.
    pub(crate) slab: Platter,
    /// It will not come back.
    pub(crate) gone: bool,
    /// Reads take so many times as long.
    pub(crate) slow: u32,
}

/// What a router that stands still has not looked at.
pub(crate) enum RouterMail {
    Hello(SessionKey),
    /// `counts`: it is under way until it is looked at; a repeated one is not.
    Bytes {
        session: SessionKey,
        bytes: Vec<u8>,
        counts: bool,
    },
    Ended(SessionKey),
    /// `None`: all that is listed then.
    Sight(Option<Sight>),
    Event(placement::Event),
}

/// A router that is alive.
pub(crate) struct RouterLife {
    pub(crate) placement: Placement,
    pub(crate) links: BTreeMap<WorkerIndex, SessionKey>,
    /// The longest context of each worker, as that last said.
    pub(crate) contexts: BTreeMap<WorkerIndex, u32>,
    /// Sessions that have not begun yet.
    pub(crate) dialling: BTreeMap<WorkerIndex, SessionKey>,
    /// When it dials each worker next, or gives up what it dials.
    pub(crate) dials: BTreeMap<WorkerIndex, Time>,
    /// Waits before it dials again.
    pub(crate) back_off: BTreeMap<WorkerIndex, Duration>,
    pub(crate) follower: Follower,
    pub(crate) inbox: VecDeque<RouterMail>,
    pub(crate) stuck: bool,
    /// When its next tick was entered.
    pub(crate) ticks: Option<Time>,
}

/// A router.
pub(crate) struct Router {
    pub(crate) life: Life,
    pub(crate) alive: Option<RouterLife>,
}
