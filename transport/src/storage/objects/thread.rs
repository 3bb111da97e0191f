//! The thread of a mover of objects: a task for each transfer, and the end of each.

use super::plan::ObjectPlan;
use super::prepared::ObjectSlot;
use super::requests::{Abandoned, Needed, Requests};
use super::{ObjectError, ObjectOutcome, ObjectReport, Shared, lock};
use crate::agent::event::TransferId;
use crate::clock::now;
use crate::failure::caught;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, Id, JoinSet};

/// How long a mover that ends waits for the store to throw away what it got of uploads that were not finished.
const LAST_WORDS_MAX: Duration = Duration::from_secs(5);

/// What the mover asks of its thread. Its end is the end of the channel.
pub(super) enum Order {
    Post { posted: Posted, at: Instant },
    Cancel(TransferId),
}

/// A transfer that was posted and has not ended.
pub(super) struct Posted {
    pub(super) id: TransferId,
    pub(super) plan: Arc<ObjectPlan>,
    /// Where the plan goes back to.
    pub(super) slot: Arc<ObjectSlot>,
}

/// Returns once the mover is dropped and every transfer has ended, or after a panic, with every transfer ended, too.
pub(super) fn run(runtime: &Runtime, shared: &Shared, requests: Requests, mut orders: UnboundedReceiver<Order>) {
    let mut running = Running { tasks: JoinSet::new(), transfers: HashMap::new(), cancels: HashMap::new() };
    let Err(panic) = caught(|| runtime.block_on(serve(shared, requests, &mut orders, &mut running))) else { return };
    shared.failed(panic);
    // What comes from now on is refused.
    orders.close();
    // No task touches memory any more.
    runtime.block_on(running.tasks.shutdown());
    let posted = std::iter::from_fn(|| orders.blocking_recv()).filter_map(|order| match order {
        Order::Post { posted, .. } => Some(posted),
        Order::Cancel(_) => None,
    });
    for posted in running.transfers.into_values().chain(posted) {
        // A sink that panics again keeps nobody from the end of the next one.
        if let Err(panic) = caught(|| shared.end(posted, Err(ObjectError::Panicked))) {
            tracing::error!(mover = shared.config.name, %panic, "the sink that takes the ends of transfers panicked");
        }
    }
}

/// Returns once the mover is dropped and every transfer has ended.
async fn serve(shared: &Shared, requests: Requests, orders: &mut UnboundedReceiver<Order>, running: &mut Running) {
    let requests = Arc::new(requests);
    // As many as transfers were open.
    let (abandoned, mut to_abandon) = unbounded_channel();
    let mut last_words = JoinSet::new();
    let mut closed = false;
    while !closed || !running.tasks.is_empty() {
        tokio::select! {
            order = orders.recv(), if !closed => match order {
                Some(Order::Post { posted, at }) => running.begin(shared, posted, at, &requests, &abandoned),
                Some(Order::Cancel(id)) => running.cancel(id),
                None => {
                    closed = true;
                    running.tasks.abort_all();
                }
            },
            Some(ended) = running.tasks.join_next_with_id() => {
                // The task's future is gone, and with it what touched memory.
                let (task, result) = match ended {
                    Ok((task, result)) => (task, result),
                    Err(error) if error.is_panic() => {
                        shared.failed(&error);
                        (error.id(), Err(ObjectError::Panicked))
                    }
                    Err(error) => (error.id(), Err(ObjectError::Cancelled)),
                };
                if let Some(posted) = running.ended(task) {
                    shared.end(posted, result);
                }
            },
            Some(upload) = to_abandon.recv() => abandon(shared, &requests, upload, &mut last_words),
            Some(_) = last_words.join_next() => {}
        }
    }
    while let Ok(upload) = to_abandon.try_recv() {
        abandon(shared, &requests, upload, &mut last_words);
    }
    let said = async { while last_words.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_WORDS_MAX, said).await.is_err() {
        tracing::warn!(
            mover = shared.config.name,
            "parts of unfinished uploads stay in the store until it expires them"
        );
    }
}

fn abandon(shared: &Shared, requests: &Arc<Requests>, upload: Abandoned, last_words: &mut JoinSet<()>) {
    let (requests, mover) = (requests.clone(), shared.config.name.clone());
    last_words.spawn(async move {
        if let Err(error) = requests.abandon(&upload).await {
            tracing::warn!(mover, %error, "parts of an unfinished upload stay in the store until it expires them");
        }
    });
}

/// The tasks, and whose they are.
struct Running {
    tasks: JoinSet<Result<ObjectReport, ObjectError>>,
    transfers: HashMap<Id, Posted>,
    cancels: HashMap<TransferId, AbortHandle>,
}

impl Running {
    fn begin(
        &mut self,
        shared: &Shared,
        posted: Posted,
        at: Instant,
        requests: &Arc<Requests>,
        abandoned: &UnboundedSender<Abandoned>,
    ) {
        let (requests, abandoned) = (requests.clone(), abandoned.clone());
        let (plan, speeds) = (posted.plan.clone(), shared.speeds.clone());
        let task = self.tasks.spawn(async move {
            let needed = Needed::default();
            let outcome = requests.carry_out(&plan, &needed, &abandoned).await?;
            let (begun, now) = (needed.begun().unwrap_or(at), now());
            let moved = matches!(outcome, ObjectOutcome::Read | ObjectOutcome::Written);
            let bytes = plan.bytes().filter(|_| moved).unwrap_or_default();
            lock(&speeds).ended(bytes, begun, now);
            Ok(ObjectReport {
                outcome,
                bytes: bytes.sum(),
                requests: needed.requests(),
                queued: begun.duration_since(at),
                wire: now.duration_since(begun),
            })
        });
        let id = posted.id;
        self.transfers.insert(task.id(), posted);
        self.cancels.insert(id, task);
    }

    fn cancel(&self, id: TransferId) {
        if let Some(task) = self.cancels.get(&id) {
            task.abort();
        }
    }

    fn ended(&mut self, task: Id) -> Option<Posted> {
        let posted = self.transfers.remove(&task)?;
        self.cancels.remove(&posted.id);
        Some(posted)
    }
}
