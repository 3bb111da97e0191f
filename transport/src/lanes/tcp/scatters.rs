//! Runs that arrived in frames and go on to memory of a device, by its copier.

use super::owner::Waker;
use super::plan::StreamPlan;
use super::wire::{RUN_BYTES_MAX, RunHead};
use crate::net::control::ChannelError;
use domain::KvPart;
use kv_memory::{Copied, CopyError, CopyOrder, Frame, Memory, SumOf, Ticket};
use std::collections::VecDeque;

/// Frames of a connection that are on their way to a device. The next run waits until one has got there.
const SCATTERS_MAX: usize = 4;

/// What of a connection is on its way.
pub(super) struct Scatters {
    under_way: VecDeque<(RunHead, Ticket)>,
    /// Frames that nothing lies in.
    frames: Vec<Frame>,
    waker: Waker,
}

/// A run that has got to its device, or never will.
pub(super) struct Scattered {
    pub(super) head: RunHead,
    pub(super) result: Result<(), CopyError>,
}

impl Scatters {
    pub(super) fn new(waker: Waker) -> Self {
        Self { under_way: VecDeque::new(), frames: Vec::new(), waker }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.under_way.len() >= SCATTERS_MAX
    }

    /// Returns a frame for a run that goes to this memory. Errors: the system has no memory for it.
    pub(super) fn frame(&mut self, memory: &dyn Memory) -> Result<Frame, ChannelError> {
        let new = || match memory.place().device() {
            Some(device) => device.copier.frame(RUN_BYTES_MAX),
            None => Frame::new(RUN_BYTES_MAX),
        };
        self.frames.pop().map_or_else(new, Ok).map_err(ChannelError::Failed)
    }

    /// Sends a run that is there as a whole on to its device.
    pub(super) fn begin(
        &mut self,
        head: RunHead,
        part: Option<KvPart>,
        frame: Frame,
        memory: &dyn Memory,
        plan: &mut StreamPlan,
    ) {
        let Some(device) = memory.place().device() else { return };
        plan.landings[head.pieces()].iter_mut().for_each(|landing| landing.scatters = true);
        let ranges = plan.landings[head.pieces()].iter().filter_map(|landing| landing.range()).collect();
        let sum = match (plan.checksums, part) {
            (false, _) => SumOf::Nothing,
            (true, Some(_)) => SumOf::Frame,
            (true, None) => SumOf::Ranges,
        };
        let order = CopyOrder { frame, ranges, part, sum, waker: Some(self.waker.clone()) };
        plan.scattering += 1;
        self.under_way.push_back((head, device.copier.scatter(order, head.sum)));
    }

    /// Takes the next run that is over. `None`: it is under way, or there is none.
    pub(super) fn next_over(&mut self) -> Option<Scattered> {
        let is_over = self.under_way.front().is_some_and(|(_, ticket)| ticket.is_over());
        is_over.then(|| self.wait()).flatten()
    }

    /// Waits for the next run. `None`: there is none.
    pub(super) fn wait(&mut self) -> Option<Scattered> {
        let (head, ticket) = self.under_way.pop_front()?;
        let result = ticket.wait().map(|Copied { frame, .. }| self.frames.push(frame));
        Some(Scattered { head, result })
    }
}
