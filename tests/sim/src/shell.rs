//! The shell of a simulated worker: the device, the transport and the ends of sessions that its machine speaks to.
//! What the machine asks of them is noted here; the world does it when the machine has had its say.

use crate::caps::Caps;
use crate::disk::Move;
use crate::pool::Pool;
use crate::reach::Reached;
use crate::scenario::Scenario;
use crate::session::SessionKey;
use domain::plan::{StepOutput, StepPlan};
use domain::session::PeerInfo;
use domain::{Adapter, KvLayout, ProgressWord, SeqKey, WorkerId};
use engine::check::Checker;
use engine::device::{Device, DeviceLimits, STEPS_IN_FLIGHT_MAX, SubmitError};
use proto::admin::WorkerAnswer;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use transport::{Lane, Memory, PostError, ReadBatch, SendError, TransferId};
use worker::{ReadError, SessionSend, Transport};

/// What a machine asked for.
#[derive(Debug)]
pub(crate) enum Output {
    Connect(WorkerId),
    Message {
        to: WorkerId,
        bytes: Vec<u8>,
    },
    /// A message that was not taken.
    Untaken {
        bytes: Vec<u8>,
    },
    Read {
        id: TransferId,
        from: WorkerId,
        batches: Vec<ReadBatch>,
    },
    Cancel(TransferId),
    Move(Move),
    CancelLoad(SeqKey),
    Session {
        session: SessionKey,
        bytes: Vec<u8>,
    },
    SessionClosed(SessionKey),
}

/// What machine and world share.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) outputs: Vec<Output>,
    /// Peers whose memory can be read.
    pub(crate) connected: BTreeSet<WorkerId>,
    transfers: u64,
    /// The plans that wait to begin.
    pub(crate) submitted: VecDeque<Arc<StepPlan>>,
    /// The plans that do not run since the step before them failed: their changes of slots count.
    pub(crate) skipped: Vec<Arc<StepPlan>>,
    /// Why a plan was refused.
    pub(crate) refused: Option<String>,
    /// Plans whose ends the machine has not taken.
    in_flight: usize,
    pub(crate) ended: VecDeque<StepOutput>,
    /// Readers see more of its steps.
    pub(crate) raised: bool,
    /// Transfers that are posted and not ended, and how many may be.
    pub(crate) posted: usize,
    posted_max: usize,
    /// Messages to one peer that are taken before the world does what was asked for.
    messages_max: usize,
    /// What the machine reached of that.
    pub(crate) reached: Vec<Reached>,
    /// What it answered to an operator.
    pub(crate) answers: Vec<WorkerAnswer>,
}

impl Notes {
    /// From now on so much is taken.
    pub(crate) fn bound(&mut self, caps: &Caps) {
        (self.posted_max, self.messages_max) = (caps.transfers, caps.peer_messages);
    }

    /// A step that was submitted behind one that failed ends without having run.
    pub(crate) fn skip(&mut self, plan: Arc<StepPlan>) {
        let (elapsed, in_kernels) = (Duration::ZERO, Duration::ZERO);
        self.ended.push_back(StepOutput::new(plan.step, Err("the step before it failed"), elapsed, in_kernels));
        self.skipped.push(plan);
    }
}

/// Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct Shell(Arc<Mutex<Notes>>);

impl Shell {
    pub(crate) fn new(caps: &Caps) -> Self {
        let mut notes = Notes::default();
        notes.bound(caps);
        Self(Arc::new(Mutex::new(notes)))
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What takes the worker's messages of a session, at most `max` at a time.
    pub(crate) fn session_send(&self, session: SessionKey, in_flight: Arc<AtomicUsize>, max: usize) -> SessionSend {
        let end = SessionEnd { shell: self.clone(), session };
        Box::new(move |bytes| {
            if in_flight.load(Ordering::Relaxed) >= max {
                return Err(bytes);
            }
            in_flight.fetch_add(1, Ordering::Relaxed);
            end.shell.notes().outputs.push(Output::Session { session: end.session, bytes });
            Ok(())
        })
    }
}

/// The worker closes a session by dropping this.
struct SessionEnd {
    shell: Shell,
    session: SessionKey,
}

impl Drop for SessionEnd {
    fn drop(&mut self) {
        self.shell.notes().outputs.push(Output::SessionClosed(self.session));
    }
}

/// The transport of a machine.
pub(crate) struct Wire(pub(crate) Shell);

impl Transport for Wire {
    fn introduce(&mut self, _peer: PeerInfo) {}

    fn connect(&mut self, peer: WorkerId) {
        let mut notes = self.0.notes();
        if !notes.connected.contains(&peer) {
            notes.outputs.push(Output::Connect(peer));
        }
    }

    fn send(&mut self, to: WorkerId, bytes: Vec<u8>) -> Result<(), SendError> {
        let mut notes = self.0.notes();
        let to_it = |output: &&Output| matches!(output, Output::Message { to: peer, .. } if *peer == to);
        if notes.outputs.iter().filter(to_it).count() >= notes.messages_max {
            notes.reached.push(Reached::MessageRefused);
            notes.outputs.push(Output::Untaken { bytes });
            return Err(SendError::Full(to));
        }
        notes.outputs.push(Output::Message { to, bytes });
        Ok(())
    }

    fn read(&mut self, from: WorkerId, batches: Vec<ReadBatch>) -> Result<(TransferId, Lane), ReadError> {
        let mut notes = self.0.notes();
        if !notes.connected.contains(&from) {
            return Err(ReadError::NotConnected);
        }
        if notes.posted >= notes.posted_max {
            notes.reached.push(Reached::TransferRefused);
            return Err(ReadError::Post(PostError::Full(notes.posted)));
        }
        notes.posted += 1;
        notes.transfers += 1;
        let id = TransferId(notes.transfers);
        notes.outputs.push(Output::Read { id, from, batches });
        Ok((id, Lane::Tcp))
    }

    fn cancel(&mut self, id: TransferId) {
        self.0.notes().outputs.push(Output::Cancel(id));
    }
}

/// The device of a machine.
pub(crate) struct Card {
    pub(crate) shell: Shell,
    pub(crate) layout: KvLayout,
    pub(crate) limits: DeviceLimits,
    pub(crate) checker: Checker,
    pub(crate) pools: Vec<Arc<Pool>>,
    pub(crate) progress: ProgressWord,
    pub(crate) adapters: [Adapter; 1],
}

impl Device for Card {
    fn layout(&self) -> &KvLayout {
        &self.layout
    }

    fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    fn vocab(&self) -> usize {
        Scenario::vocabulary().size() as usize
    }

    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        let mut notes = self.shell.notes();
        if notes.in_flight == STEPS_IN_FLIGHT_MAX {
            self.checker.close_slots();
            return Err(SubmitError::Busy);
        }
        if let Err(refused) = self.checker.take(&plan) {
            notes.refused = Some(refused.to_string());
            return Err(refused);
        }
        notes.in_flight += 1;
        if notes.ended.iter().any(|ended| ended.sampled.is_err()) {
            notes.skip(plan);
        } else {
            notes.submitted.push_back(plan);
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<StepOutput> {
        let mut notes = self.shell.notes();
        let ended = notes.ended.pop_front()?;
        notes.in_flight -= 1;
        Some(ended)
    }

    fn lost(&self) -> Option<&str> {
        None
    }

    fn set_waker(&mut self, _waker: Box<dyn Fn() + Send + Sync>) {}

    fn progress(&self) -> ProgressWord {
        self.progress.clone()
    }

    fn pool(&self, group: usize) -> Arc<dyn Memory> {
        self.pools[group].clone()
    }

    fn adapters(&self) -> &[Adapter] {
        &self.adapters
    }

    fn batch_invariant(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "a card in virtual time".to_owned()
    }
}
