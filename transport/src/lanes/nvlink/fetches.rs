//! What the copier of a reader's device carries out for one transfer.

use crate::clock::now;
use crate::lanes::lane_queue::Open;
use crate::transfer::Batch;
use crate::transfer::cursor::Cursor;
use crate::transfer::timeline::Moment;
use kv_memory::{Copier, CopyError, FetchOrder, FetchRange, Fetched, PeerMemory, Ticket};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Orders of a transfer that are under way: the device carries one out while the next one is laid.
const FETCHES_MAX: usize = 2;
/// Bytes of an order. A transfer that is cancelled ends after those that are under way: some tenths of a millisecond
/// between devices.
const FETCH_BYTES_MAX: usize = 32 << 20;
/// Ranges of an order.
const FETCH_RANGES_MAX: usize = 4096;

/// Wakes the thread that laid an order.
pub(crate) type Waker = Arc<dyn Fn() + Send + Sync>;

/// What is under way for one transfer. Dropping it waits for the end of that: nothing writes the destination then.
#[derive(Default)]
pub(crate) struct Fetches {
    /// In the order in which they end.
    under_way: VecDeque<Fetch>,
    /// When the first of them was laid.
    since: Option<Instant>,
    /// Room for ranges of the next orders.
    spare: Vec<Vec<FetchRange>>,
}

struct Fetch {
    ticket: Ticket<Fetched>,
    gate: u64,
    /// All bytes behind the gate, if this order brings the last of them.
    ends_run: Option<usize>,
}

impl Fetches {
    /// Returns whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Returns whether no more may be laid now.
    pub(crate) fn is_full(&self) -> bool {
        self.under_way.len() >= FETCHES_MAX
    }

    /// Returns whether an order has ended that was not taken.
    pub(crate) fn is_news(&self) -> bool {
        self.under_way.front().is_some_and(|fetch| fetch.ticket.is_over())
    }

    /// Lays an order for what `next` is at, of `batch` alone, and moves it on.
    pub(crate) fn lay(
        &mut self,
        open: &mut Open,
        (batch, next): (&Batch, &mut Cursor),
        (source, copier): (&Arc<PeerMemory>, &Arc<dyn Copier>),
        waker: &Waker,
    ) {
        let now = now();
        open.begin(now);
        if self.since.is_none() {
            self.since = Some(now);
            open.link.speed().begin_copy(now);
        }
        if next.begins_run() {
            open.note(Moment::Begun, batch.gate, batch.bytes());
        }
        let mut ranges = self.spare.pop().unwrap_or_default();
        let (mut bytes, mut ends) = (0, false);
        while !ends && bytes < FETCH_BYTES_MAX && ranges.len() < FETCH_RANGES_MAX {
            let (piece, offset) = (&batch.pieces[next.piece], next.offset);
            let len = (piece.len - offset).min(FETCH_BYTES_MAX - bytes);
            ranges.push(FetchRange { from: piece.from + offset as u64, to: piece.to + offset as u64, len });
            bytes += len;
            ends = next.advance(len, &batch.pieces);
        }
        let ticket = copier.fetch(FetchOrder { source: source.clone(), ranges, waker: Some(waker.clone()) });
        self.under_way.push_back(Fetch { ticket, gate: batch.gate, ends_run: ends.then(|| batch.bytes()) });
    }

    /// Takes what has ended. Returns whether anything has. Errors: of the copier, and the rest is still under way.
    pub(crate) fn take(&mut self, open: &mut Open) -> Result<bool, CopyError> {
        let mut any = false;
        while let Some(fetch) = self.under_way.pop_front_if(|fetch| fetch.ticket.is_over()) {
            any = true;
            let Fetch { ticket, gate, ends_run } = fetch;
            let result = ticket.wait();
            let (now, bytes) = (now(), result.as_ref().map_or(0, |fetched| fetched.bytes));
            open.delivered(bytes);
            open.link.speed().delivered(bytes, now);
            if let Some(since) = self.since.take_if(|_| self.under_way.is_empty()) {
                open.add_wire(now.duration_since(since));
                open.link.speed().end_copy(0, now);
            }
            let Fetched { mut ranges, .. } = result?;
            ranges.clear();
            self.spare.push(ranges);
            if let Some(bytes) = ends_run {
                open.note(Moment::Read, gate, bytes);
            }
        }
        Ok(any)
    }
}

impl Drop for Fetches {
    fn drop(&mut self) {
        // How they end is nobody's business any more.
        self.under_way.drain(..).for_each(|fetch| drop(fetch.ticket.wait()));
    }
}
