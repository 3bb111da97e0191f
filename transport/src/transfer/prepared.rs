//! A prepared transfer as its caller holds it, and the plan that goes to a lane and comes back with every post.
//!
//! What is deliberately absent: how bytes move. A plan is the lane's own; here it only waits for the next post.

use crate::agent::event::{TransferError, TransferReport};
use crate::agent::link::Link;
use crate::agent::shared::AgentShared;
use crate::clock::now;
use crate::lanes::Lane;
use crate::lanes::rdma::ReadPlan;
use crate::lanes::tcp::{self, StreamPlan};
use crate::transfer::claims::Claim;
use crate::transfer::plan_slot::{self, TransferState};
use crate::transfer::{Batch, PostError, Transfer, Work};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A prepared transfer: checked against the bounds of its regions, which it holds mapped. Its caller posts it as often
/// as it likes, one time after the other ([`Agent::post`](crate::Agent::post)). A transfer that is dropped while it is
/// under way still has its end.
pub struct Prepared {
    slot: Arc<Slot>,
    /// The agent that reads.
    reader: Weak<AgentShared>,
    link: Arc<Link>,
    claim: Arc<Claim>,
    bytes: u64,
    timed: bool,
}

/// Where a plan is while no lane has it.
type Slot = plan_slot::PlanSlot<Plan, Result<TransferReport, TransferError>>;

/// What one lane makes of a transfer.
pub(crate) enum Plan {
    Copies(Vec<Batch>),
    Reads(ReadPlan),
    Stream(StreamPlan),
}

impl Prepared {
    pub(crate) fn new(reader: Weak<AgentShared>, link: Arc<Link>, plan: Plan, claim: Claim, bytes: u64) -> Self {
        Self { slot: Arc::new(Slot::new(plan)), reader, link, claim: Arc::new(claim), bytes, timed: false }
    }

    /// Has each post keep the times of its parts, for [`Completion::runs`](crate::Completion::runs). Such a post
    /// allocates, once.
    pub fn timed(mut self) -> Self {
        self.timed = true;
        self
    }

    /// Returns how many bytes it reads.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the lane that it takes.
    pub fn lane(&self) -> Lane {
        self.link.lane()
    }

    /// Predicts how long it takes if it is posted now and alone, by the measurements that rank lanes. Gates and other
    /// transfers come on top. `None`: the peer had no memory to measure with when it was connected.
    pub fn estimate(&self) -> Option<Duration> {
        self.link.speed().predict(self.bytes)
    }

    /// Returns how far it is.
    pub fn state(&self) -> TransferState {
        self.slot.state()
    }

    /// Waits until it is not under way, for `at_most`, and returns how far it is then. Over `tcp` a caller that waits
    /// for the only read under way receives its bytes on its own thread, which calls the agent's sink with the end.
    pub fn wait(&self, at_most: Duration) -> TransferState {
        let mut left = at_most;
        if self.lane() == Lane::Tcp
            && let Some(reader) = self.reader.upgrade()
        {
            let begin = now();
            tcp::drive(&reader, &self.link, at_most, || !self.slot.is_under_way());
            left = at_most.saturating_sub(now().duration_since(begin));
        }
        self.slot.wait(left)
    }

    /// Awaits until it is not under way, and returns how far it is then.
    pub async fn ended(&self) -> TransferState {
        self.slot.ended().await
    }

    /// Takes its plan, to be carried out, and holds what it writes until that goes back. Errors: it is under way,
    /// or another one is that writes the same.
    pub(crate) fn take(&self) -> Result<Transfer, PostError> {
        let plan = self.slot.take().ok_or(PostError::UnderWay)?;
        if !self.claim.hold() {
            self.slot.refuse(plan);
            return Err(PostError::Overlap);
        }
        let work = match plan {
            Plan::Copies(batches) => Work::Copies(PlanGuard::new(batches, self)),
            Plan::Reads(plan) => Work::Reads(PlanGuard::new(plan, self)),
            Plan::Stream(plan) => Work::Stream(PlanGuard::new(plan, self)),
        };
        Ok(Transfer { link: self.link.clone(), work, bytes: self.bytes, timed: self.timed })
    }
}

/// A plan that can be carried out more than once.
pub(crate) trait Reusable {
    /// As if it had never been carried out.
    fn reset(self) -> Plan;
}

impl Reusable for Vec<Batch> {
    fn reset(self) -> Plan {
        Plan::Copies(self)
    }
}

/// A plan that a lane has. It goes back to where the next post finds it when it ends, or is dropped.
pub(crate) struct PlanGuard<P: Reusable> {
    /// There until it goes back.
    plan: Option<P>,
    slot: Arc<Slot>,
    claim: Arc<Claim>,
}

impl<P: Reusable> PlanGuard<P> {
    fn new(plan: P, of: &Prepared) -> Self {
        Self { plan: Some(plan), slot: of.slot.clone(), claim: of.claim.clone() }
    }

    /// The transfer ended so: its destination is not touched any more. To be called before anybody is told.
    pub(crate) fn end(mut self, result: Result<TransferReport, TransferError>) {
        self.give_back(result);
    }

    fn give_back(&mut self, result: Result<TransferReport, TransferError>) {
        if let Some(plan) = self.plan.take() {
            self.claim.release();
            self.slot.put(plan.reset(), result);
        }
    }
}

impl<P: Reusable> Drop for PlanGuard<P> {
    fn drop(&mut self) {
        // By a panic of whoever had it: everybody else takes it to its end.
        self.give_back(Err(TransferError::Failed));
    }
}

impl<P: Reusable> Deref for PlanGuard<P> {
    type Target = P;

    fn deref(&self) -> &P {
        self.plan.as_ref().expect("it has not gone back")
    }
}

impl<P: Reusable> DerefMut for PlanGuard<P> {
    fn deref_mut(&mut self) -> &mut P {
        self.plan.as_mut().expect("it has not gone back")
    }
}
