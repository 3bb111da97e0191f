//! What a fetch reads.

use domain::{BlockId, GroupId, StepId};

/// A block to read: a whole record, layer by layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Group of both blocks.
    pub group: GroupId,
    /// The owner's block.
    pub from: BlockId,
    /// The reader's block.
    pub to: BlockId,
    /// Each layer may be read once the owner's progress word has passed it in this step; `None`: now.
    pub step: Option<StepId>,
}
