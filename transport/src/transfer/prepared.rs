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

/// A transfer, prepared: checked against the bounds of its regions, which it holds mapped. It is posted as often
/// as its caller likes, one time after the other. Who drops it while it is under way hears of its end all the
/// same.
pub struct Prepared {
    slot: Arc<Slot>,
    /// Who reads.
    reader: Weak<AgentShared>,
    link: Arc<Link>,
    claim: Arc<Claim>,
    bytes: u64,
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
        Self { slot: Arc::new(Slot::new(plan)), reader, link, claim: Arc::new(claim), bytes }
    }

    /// Bytes that it reads.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (_owner, reader, region) = ends();
    /// # use std::time::Duration;
    /// # use transport::{Copies, Copy, Lane, ReadBatch, TransferState};
    /// # let copies = Copies::List(vec![Copy { from: 0, to: 0 }, Copy { from: 8192, to: 4096 }]);
    /// let batch = ReadBatch { source: region, destination: region, len: 4096, gate: 0, copies };
    /// let prepared = reader.prepare(OWNER, vec![batch])?;
    /// assert_eq!(prepared.bytes(), 2 * 4096);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lane that it takes.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (_owner, reader, region) = ends();
    /// # use std::time::Duration;
    /// # use transport::{Copies, Copy, Lane, ReadBatch, TransferState};
    /// # let copies = Copies::List(vec![Copy { from: 0, to: 0 }, Copy { from: 8192, to: 4096 }]);
    /// let batch = ReadBatch { source: region, destination: region, len: 4096, gate: 0, copies };
    /// let prepared = reader.prepare(OWNER, vec![batch])?;
    /// assert_eq!(prepared.lane(), Lane::Local, "both ends are in this process");
    /// # Ok(())
    /// # }
    /// ```
    pub fn lane(&self) -> Lane {
        self.link.lane()
    }

    /// How long it would take if it were posted now and alone, by the same estimate that ranks lanes: what the
    /// probe measured when the peer was connected, and what reads have done since. Gates and other transfers come
    /// on top. `None`: nothing has been measured, since the peer had no memory when it was connected.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), transport::PrepareError> {
    /// # let (_owner, reader, region) = ends();
    /// # use transport::{Copies, Copy, ReadBatch};
    /// let copies = Copies::List(vec![Copy { from: 0, to: 0 }]);
    /// let batch = ReadBatch { source: region, destination: region, len: 4096, gate: 0, copies };
    /// let prepared = reader.prepare(OWNER, vec![batch])?;
    /// let predicted = prepared.estimate().expect("the owner has memory");
    /// println!("{} bytes over {}: {predicted:?}", prepared.bytes(), prepared.lane());
    /// # Ok(())
    /// # }
    /// ```
    pub fn estimate(&self) -> Option<Duration> {
        self.link.speed().predict(self.bytes)
    }

    /// How far it is.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (_owner, reader, region) = ends();
    /// # use std::time::Duration;
    /// # use transport::{Copies, Copy, Lane, ReadBatch, TransferState};
    /// # let copies = Copies::List(vec![Copy { from: 0, to: 0 }, Copy { from: 8192, to: 4096 }]);
    /// let batch = ReadBatch { source: region, destination: region, len: 4096, gate: 0, copies };
    /// let prepared = reader.prepare(OWNER, vec![batch])?;
    /// assert_eq!(prepared.state(), TransferState::Unposted);
    /// reader.post(&prepared)?;
    /// while prepared.state() == TransferState::UnderWay {
    ///     std::hint::spin_loop();
    /// }
    /// assert!(matches!(prepared.state(), TransferState::Ended(Ok(_))));
    /// # Ok(())
    /// # }
    /// ```
    pub fn state(&self) -> TransferState {
        self.slot.state()
    }

    /// Waits until it is not under way, for `at_most`. How far it is then. Over `tcp`, who waits for the one read
    /// that is under way brings its bytes home on its own thread while they come, which saves waking others; the
    /// agent's sink may hear of the end on it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (_owner, reader, region) = ends();
    /// # use std::time::Duration;
    /// # use transport::{Copies, Copy, ReadBatch, TransferState};
    /// # let copies = Copies::List(vec![Copy { from: 0, to: 0 }]);
    /// # let batch = ReadBatch { source: region, destination: region, len: 1 << 20, gate: 0, copies };
    /// let prepared = reader.prepare(OWNER, vec![batch])?;
    /// for _ in 0..3 {
    ///     reader.post(&prepared)?;
    ///     match prepared.wait(Duration::from_secs(5)) {
    ///         TransferState::Ended(Ok(report)) => println!("{report:?}"),
    ///         other => panic!("{other:?}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
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

    /// Ready once it is not under way, with how far it is then.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reading/ends.rs"));
    /// # use transport::{Prepared, TransferState};
    /// async fn read(reader: &Agent, prepared: &Prepared) -> Result<u64, Box<dyn std::error::Error>> {
    ///     reader.post(prepared)?;
    ///     match prepared.ended().await {
    ///         TransferState::Ended(result) => Ok(result?.bytes),
    ///         other => unreachable!("{other:?}"),
    ///     }
    /// }
    /// # fn main() {}
    /// ```
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
        Ok(Transfer { link: self.link.clone(), work, bytes: self.bytes })
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
