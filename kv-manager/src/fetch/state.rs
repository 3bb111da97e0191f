//! Where a fetch stands, and what it knows there.

use super::{FetchConfig, FetchError, FetchState, Piece};
use domain::handoff::{Offer, OfferedGroup};
use domain::plan::BlockTable;
use domain::{Choice, GroupId, LeaseId, StepId, Time, Token};
use std::ops::Range;

/// [`FetchState`] with the data of each state.
#[derive(Clone, Debug)]
pub(super) enum State {
    Expecting {
        /// The blocks were asked for: the owner has computed all of them, and says no more than its offer.
        asked: bool,
        /// When the owner last said that the prompt waits in its queue.
        queued: Option<Time>,
    },
    WaitingRoom {
        offered: Offered,
        /// Rising `(blocks, step)`: blocks below `blocks` are written once `step` is. At most one entry per block.
        covered: Vec<(u32, Option<StepId>)>,
    },
    Reading {
        offered: Offered,
        room: Room,
        /// Pieces asked for and not ended.
        outstanding: u32,
    },
    /// The release is sent, so nothing more is owed to the owner.
    Answering {
        lease: LeaseId,
        /// First token of each choice that goes on.
        first: Vec<(Choice, Token)>,
    },
    Quiescing {
        lease: LeaseId,
        /// The owner still has to learn that the reads have ended.
        owes_release: bool,
        /// Pieces asked for and not ended.
        outstanding: u32,
    },
    Done {
        /// The lease that was taken, or refused; `None`: no offer came.
        lease: Option<LeaseId>,
    },
}

impl State {
    /// Returns the state's public name.
    pub(super) fn name(&self) -> FetchState {
        match self {
            Self::Expecting { .. } => FetchState::Expecting,
            Self::WaitingRoom { .. } => FetchState::WaitingRoom,
            Self::Reading { .. } => FetchState::Reading,
            Self::Answering { .. } => FetchState::Answering,
            Self::Quiescing { .. } => FetchState::Quiescing,
            Self::Done { .. } => FetchState::Done,
        }
    }

    /// Returns whether nothing is left but reads that are being cancelled, if any.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self, Self::Quiescing { .. } | Self::Done { .. })
    }

    /// Returns the lease of the offer that was taken, or refused.
    pub(super) fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Expecting { .. } => None,
            Self::WaitingRoom { offered, .. } | Self::Reading { offered, .. } => Some(offered.offer.lease),
            Self::Answering { lease, .. } | Self::Quiescing { lease, .. } => Some(*lease),
            Self::Done { lease } => *lease,
        }
    }

    /// Returns what the owner has said of its offer, until all of it is read.
    pub(super) fn offered(&mut self) -> Option<&mut Offered> {
        match self {
            Self::WaitingRoom { offered, .. } | Self::Reading { offered, .. } => Some(offered),
            Self::Expecting { .. } | Self::Answering { .. } | Self::Quiescing { .. } | Self::Done { .. } => None,
        }
    }
}

/// An offer, and what the owner has said of it since.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    pub(super) offer: Offer,
    /// Blocks of the sequence below this are written, or being written by a known step.
    pub(super) covered: u32,
    /// First token of each choice that goes on; `None` until the owner has computed everything. Empty for blocks that
    /// were asked for.
    pub(super) first: Option<Vec<(Choice, Token)>>,
}

impl Offered {
    /// Returns the number of blocks of the sequence.
    fn blocks(&self, config: &FetchConfig) -> u32 {
        self.offer.tokens.div_ceil(config.block_tokens)
    }

    /// Returns why the offer must not be taken.
    pub(super) fn refusal(&self, config: &FetchConfig) -> Option<FetchError> {
        let (offer, blocks) = (&self.offer, self.blocks(config));
        // All groups end with the same block; how early they begin is seen once the destination is there.
        let whole =
            offer.groups.iter().all(|group| u64::from(group.first) + group.blocks.len() as u64 == blocks.into());
        let complete = offer.ready == offer.tokens || self.first.is_none();
        if offer.layout != config.layout {
            Some(FetchError::LayoutDiffers)
        } else if !whole || !complete {
            Some(FetchError::OfferIncomplete)
        } else {
            None
        }
    }

    /// Notes that the positions below `tokens` are written, or being written by a known step. Returns the blocks that
    /// were not covered before, if there are any: full ones, and the tail with the last position.
    pub(super) fn cover(&mut self, config: &FetchConfig, tokens: u32) -> Option<Range<u32>> {
        let whole = tokens >= self.offer.tokens;
        let to = if whole { self.blocks(config) } else { tokens / config.block_tokens };
        let from = self.covered;
        self.covered = from.max(to);
        (from < to).then_some(from..to)
    }

    /// Returns whether every block of the destination is held or offered: the owner's window may begin later than the
    /// reader's.
    pub(super) fn fits(&self, config: &FetchConfig, room: &Room) -> bool {
        let blocks = self.blocks(config);
        let fits = |(table, offered): (&BlockTable, &OfferedGroup)| {
            let first = table.first.max(room.held);
            table.first + table.blocks.len() as u32 >= blocks && (first >= blocks || first >= offered.first)
        };
        room.tables.len() == self.offer.groups.len() && room.tables.iter().zip(&self.offer.groups).all(fits)
    }

    /// Appends the pieces of those blocks, all groups of a block range together. Blocks that are held, and blocks
    /// before the window of either side, are left out.
    pub(super) fn pieces(&self, room: &Room, blocks: Range<u32>, step: Option<StepId>, pieces: &mut Vec<Piece>) {
        for (number, (table, offered)) in room.tables.iter().zip(&self.offer.groups).enumerate() {
            let first = blocks.start.max(room.held).max(table.first).max(offered.first);
            pieces.extend((first..blocks.end).map(|block| Piece {
                group: GroupId(number as u16),
                from: offered.blocks[(block - offered.first) as usize].0,
                to: table.blocks[(block - table.first) as usize],
                step,
            }));
        }
    }
}

/// The destination, from when it is opened until it is started or freed.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// One entry per group.
    pub(super) tables: Vec<BlockTable>,
    /// Blocks below this are held by the destination already.
    pub(super) held: u32,
}
