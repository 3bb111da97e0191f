//! The transfers of fetches.

use super::{AttemptId, Fetches};
use crate::state::WorkerState;
use crate::transport::ReadError;
use domain::{KvLayout, ProgressWord, StepId, Time};
use kv_manager::{FetchEvent, Piece};
use std::collections::BTreeMap;
use telemetry::failpoint::{self, FailPoint};
use transport::{Completion, Copy, PrepareError, ReadBatch, RegionId, TransferError};

impl Fetches {
    /// Begins to read, or notes to do so when the owner is connected. Returns what the machine must learn at once, if
    /// anything.
    pub(super) fn read(&mut self, core: &mut WorkerState, id: AttemptId, pieces: Vec<Piece>) -> Option<FetchEvent> {
        let entry = self.open.get_mut(&id)?;
        let count = pieces.len() as u32;
        match core.transport.read(entry.owner, batches(&core.config.layout, &pieces)) {
            Ok((transfer, lane)) => {
                entry.lane = lane.name();
                let (worker, request) = (&core.config.name, id.0);
                tracing::trace!(target: "timeline", worker, %request, transfer = transfer.0, "read posted");
                if let Some(timed) = core.attempts.timed(id.0, id.1) {
                    timed.posted(core.now, transfer);
                }
                entry.transfers.push(transfer);
                self.transfers.insert(transfer, (id, count));
                failpoint::pass(FailPoint::Read, "posted");
                None
            }
            Err(ReadError::NotConnected) => {
                entry.unposted.push(pieces);
                core.transport.connect(entry.owner);
                None
            }
            Err(error) => {
                entry.failed_here = is_own(&error);
                tracing::warn!(worker = core.config.name, request = %id.0, %error, "a read was not begun");
                Some(FetchEvent::ReadsEnded { pieces: count, ok: false })
            }
        }
    }

    /// Takes the end of a transfer.
    pub fn transfer_ended(&mut self, core: &mut WorkerState, now: Time, completion: &Completion) {
        let Some((id, pieces)) = self.transfers.remove(&completion.id) else { return };
        if let Ok(report) = &completion.result {
            core.fetched(report);
        }
        let Some(entry) = self.open.get_mut(&id) else { return };
        let (worker, request, transfer) = (&core.config.name, id.0, completion.id.0);
        tracing::trace!(target: "timeline", worker, %request, transfer, ok = completion.result.is_ok(), "read ended");
        core.transferred(now, id, entry.owner, completion);
        entry.transfers.retain(|&transfer| transfer != completion.id);
        entry.failed_here = completion.result == Err(TransferError::Failed);
        let quiesced = entry.cancelling && entry.transfers.is_empty();
        self.event(core, now, id, FetchEvent::ReadsEnded { pieces, ok: completion.result.is_ok() });
        if quiesced {
            self.event(core, now, id, FetchEvent::Quiesced);
        }
    }
}

/// Returns whether a read that was not begun is this worker's own failure, and not one of an owner that offered what is
/// not there.
fn is_own(error: &ReadError) -> bool {
    match error {
        ReadError::NotConnected => false,
        ReadError::Prepare(error) => {
            !matches!(error, PrepareError::NoRegion { peer: Some(_), .. } | PrepareError::OutOfBounds { .. })
        }
        ReadError::Post(_) => true,
    }
}

/// Returns the batches of one transfer for `pieces`: whole records of what is ready, and layer by layer what a step
/// still writes.
fn batches(layout: &KvLayout, pieces: &[Piece]) -> Vec<ReadBatch> {
    let mut by_step: BTreeMap<Option<StepId>, Vec<&Piece>> = BTreeMap::new();
    for piece in pieces {
        by_step.entry(piece.step).or_default().push(piece);
    }
    let mut all = Vec::new();
    for (step, pieces) in by_step {
        // In the order in which layers are written; a ready record is one piece of all its layers.
        let mut batches: Vec<(u64, usize, u64, usize)> = Vec::new();
        for (group, shape) in layout.groups.iter().enumerate() {
            match step {
                None => batches.push((0, group, 0, layout.record_bytes(group))),
                Some(step) => batches.extend(shape.layers.iter().enumerate().map(|(index, &layer)| {
                    let slice = layout.slice_range(group, index);
                    (ProgressWord::mark(step, layer), group, slice.start as u64, slice.len())
                })),
            }
        }
        batches.sort_unstable();
        for (gate, group, offset, len) in batches {
            let record = layout.record_bytes(group) as u64;
            let at = |block: domain::BlockId| u64::from(block.0) * record + offset;
            let copies = pieces.iter().filter(|piece| usize::from(piece.group.0) == group);
            let copies: Vec<Copy> = copies.map(|piece| Copy { from: at(piece.from), to: at(piece.to) }).collect();
            if !copies.is_empty() {
                let region = RegionId(group as u32);
                all.push(ReadBatch { source: region, destination: region, len, gate, copies: copies.into() });
            }
        }
    }
    all
}
