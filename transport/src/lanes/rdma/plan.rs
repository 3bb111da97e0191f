//! A transfer over `rdma`, prepared: where each run's bytes are, where they go, and what is read next.

use super::RdmaWay;
use crate::regions::RegionId;
use crate::transfer::cursor::Cursor;
use crate::transfer::prepared::{Plan, Reusable};
use crate::transfer::{Piece, PrepareError, Run, new_number};
use domain::WorkerId;
use kv_memory::Memory;
use std::sync::Arc;

/// Larger pieces are read in parts, so that a cancelled transfer ends soon and queue pairs share the work evenly.
pub(super) const READ_BYTES_MAX: usize = 256 << 10;

/// A prepared transfer.
pub(crate) struct ReadPlan {
    pub(super) number: u64,
    pub(super) runs: Vec<ReadRun>,
    next: Cursor,
    /// What was read over a rail that failed, to be read again.
    again: Vec<Extent>,
    /// Rails of the link that it is read over, a bit for each.
    used: u8,
}

impl Reusable for ReadPlan {
    fn reset(mut self) -> Plan {
        (self.number, self.next) = (new_number(), Cursor::default());
        self.again.clear();
        self.used = 0;
        self.runs.iter_mut().for_each(|run| run.missing = run.bytes);
        Plan::Reads(self)
    }
}

/// Pieces between one pair of regions behind one gate.
pub(super) struct ReadRun {
    pub(super) gate: u64,
    pub(super) bytes: usize,
    /// Bytes that have not arrived.
    pub(super) missing: usize,
    pieces: Vec<Piece>,
    /// Where the owner's region begins, and its key on each rail of the link.
    remote_address: u64,
    remote_keys: Vec<u32>,
    local_keys: Vec<u32>,
    destination: Arc<dyn Memory>,
}

/// Whether something can be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Yes.
    Open,
    /// Once the owner's word has risen.
    Gated,
    /// All is posted.
    Nothing,
}

/// Part of a piece, which one work request reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) run: u32,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) len: u32,
    /// Whether it is the first one of its run.
    pub(super) is_first: bool,
}

impl ReadPlan {
    /// The plan for `runs`, whose pieces are inside their regions.
    pub(crate) fn new(
        way: &RdmaWay,
        peer: WorkerId,
        runs: Vec<Run>,
        destination: impl Fn(RegionId) -> Result<Arc<dyn Memory>, PrepareError>,
    ) -> Result<Self, PrepareError> {
        let run = |run: Run| {
            let missing = |peer, region| PrepareError::NoRegion { peer, region };
            let source = way.owner.region(run.source).ok_or(missing(Some(peer), run.source))?;
            let destination = destination(run.destination)?;
            let region = run.destination;
            let local_keys = way.local_keys(&destination).ok_or(PrepareError::NotLent { region })?;
            let bytes = run.pieces.iter().map(|piece| piece.len).sum();
            Ok(ReadRun {
                gate: run.gate,
                bytes,
                missing: bytes,
                pieces: run.pieces,
                remote_address: source.address,
                remote_keys: source.keys,
                local_keys,
                destination,
            })
        };
        let runs = runs.into_iter().map(run).collect::<Result<_, _>>()?;
        let number = new_number();
        Ok(Self { number, runs, next: Cursor::default(), again: Vec::new(), used: 0 })
    }

    /// Rails that it went over.
    pub(super) fn rails(&self) -> u16 {
        self.used.count_ones().max(1) as u16
    }

    /// Returns whether the next extent may be read, given the owner's word.
    pub(super) fn peek(&self, word: u64) -> Next {
        match self.runs.get(self.next.run) {
            _ if !self.again.is_empty() => Next::Open,
            None => Next::Nothing,
            Some(run) if run.gate > word => Next::Gated,
            Some(_) => Next::Open,
        }
    }

    /// Returns the word that opens all gates.
    pub(super) fn last_gate(&self) -> u64 {
        self.runs.iter().map(|run| run.gate).max().unwrap_or(0)
    }

    /// Takes the next extent, whether its gate is open or not.
    pub(super) fn take(&mut self) -> Option<Extent> {
        if let Some(extent) = self.again.pop() {
            return Some(extent);
        }
        let at = self.next;
        let run = self.runs.get(at.run)?;
        let piece = &run.pieces[at.piece];
        let len = (piece.len - at.offset).min(READ_BYTES_MAX);
        let (from, to) = (piece.from + at.offset as u64, piece.to + at.offset as u64);
        self.next.advance(len, &run.pieces);
        Some(Extent { run: at.run as u32, from, to, len: len as u32, is_first: at.begins_run() })
    }

    /// An extent that was taken did not come, and is read again.
    pub(super) fn put_back(&mut self, extent: Extent) {
        self.again.push(Extent { is_first: false, ..extent });
    }

    /// An extent as rail `rail` of the link reads it.
    pub(super) fn read(&mut self, extent: &Extent, rail: usize, id: u64) -> super::queue::Read {
        self.used |= 1 << rail;
        let run = &self.runs[extent.run as usize];
        super::queue::Read {
            id,
            remote_key: run.remote_keys[rail],
            remote_address: run.remote_address + extent.from,
            local_key: run.local_keys[rail],
            local_address: run.destination.place().address() + extent.to,
            len: extent.len,
        }
    }
}
