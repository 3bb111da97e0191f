//! The thread of a mover of objects: a task for each transfer, and the end of each.

use super::plan::ObjectTransfer;
use super::requests::{Abandoned, Needed, Requests};
use super::{ObjectError, ObjectReport, Shared, now};
use crate::event::TransferId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, Id, JoinSet};

/// How long a mover that ends waits for the store to throw away what it got of uploads that were not finished.
const LAST_WORDS_MAX: Duration = Duration::from_secs(2);

/// What the mover asks of its thread. Its end is the end of the channel.
pub(super) enum Order {
    Post { id: TransferId, transfer: ObjectTransfer, at: Instant },
    Cancel(TransferId),
}

/// Returns once the mover is dropped and every transfer has ended.
pub(super) async fn run(shared: &Shared, requests: Requests, mut orders: UnboundedReceiver<Order>) {
    let requests = Arc::new(requests);
    let mut running = Running { tasks: JoinSet::new(), transfers: HashMap::new(), cancels: HashMap::new() };
    // As many as transfers were open.
    let (abandoned, mut to_abandon) = unbounded_channel();
    let mut last_words = JoinSet::new();
    let mut closed = false;
    while !closed || !running.tasks.is_empty() {
        tokio::select! {
            order = orders.recv(), if !closed => match order {
                Some(Order::Post { id, transfer, at }) => running.begin(id, transfer, at, &requests, &abandoned),
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
                    Err(error) => {
                        if error.is_panic() {
                            tracing::error!(mover = shared.config.name, "a transfer of an object panicked");
                        }
                        (error.id(), Err(ObjectError::Cancelled))
                    }
                };
                if let Some(id) = running.ended(task) {
                    shared.end(id, result);
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
        if let Err(why) = requests.abandon(&upload).await {
            tracing::warn!(mover, why, "parts of an unfinished upload stay in the store until it expires them");
        }
    });
}

/// The tasks, and whose they are.
struct Running {
    tasks: JoinSet<Result<ObjectReport, ObjectError>>,
    transfers: HashMap<Id, TransferId>,
    cancels: HashMap<TransferId, AbortHandle>,
}

impl Running {
    fn begin(
        &mut self,
        id: TransferId,
        transfer: ObjectTransfer,
        at: Instant,
        requests: &Arc<Requests>,
        abandoned: &UnboundedSender<Abandoned>,
    ) {
        let (requests, abandoned) = (requests.clone(), abandoned.clone());
        let task = self.tasks.spawn(async move {
            let needed = Needed::default();
            let outcome = requests.carry_out(&transfer, &needed, &abandoned).await?;
            let begun = needed.begun().unwrap_or(at);
            let moved = matches!(outcome, super::ObjectOutcome::Read | super::ObjectOutcome::Written);
            Ok(ObjectReport {
                outcome,
                bytes: if moved { transfer.bytes() } else { 0 },
                requests: needed.requests(),
                queued: begun.duration_since(at),
                wire: now().duration_since(begun),
            })
        });
        self.transfers.insert(task.id(), id);
        self.cancels.insert(id, task);
    }

    fn cancel(&self, id: TransferId) {
        if let Some(task) = self.cancels.get(&id) {
            task.abort();
        }
    }

    fn ended(&mut self, task: Id) -> Option<TransferId> {
        let id = self.transfers.remove(&task)?;
        self.cancels.remove(&id);
        Some(id)
    }
}
