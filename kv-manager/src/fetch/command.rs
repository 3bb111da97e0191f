//! What a fetch tells its worker to do.

use super::{FetchError, Piece};
use domain::handoff::PeerBody;
use domain::{Choice, Token};

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum FetchCommand {
    /// Ask the owner whether it still has the attempt ([`PeerBody::Expect`]).
    Inquire,
    /// Open a destination for so many positions, with `leave = 0`, as soon as there is room; then tell
    /// [`FetchEvent::Room`](super::FetchEvent::Room).
    WantRoom {
        /// Positions.
        tokens: u32,
    },
    /// Read these; never empty. Each piece counts in one [`FetchEvent::ReadsEnded`](super::FetchEvent::ReadsEnded).
    Read(Vec<Piece>),
    /// End all reads not ended yet, those not begun among them; then tell
    /// [`FetchEvent::Quiesced`](super::FetchEvent::Quiesced), once.
    CancelReads,
    /// Send to the owner.
    Send(PeerBody),
    /// The copy is valid: seal it and decode on.
    Start {
        /// First token of each choice that goes on; empty only where blocks were asked for
        /// ([`Fetch::ask`](super::Fetch::ask)).
        first: Vec<(Choice, Token)>,
    },
    /// The attempt cannot go on here. At most once, never after a cancel, never with a start.
    Fail(FetchError),
    /// The destination's blocks may be freed: no read touches them. Exactly once if room was given and nothing started.
    Free,
    /// Nothing is left to do: the machine may be dropped. Room that is given all the same is freed at once.
    Done,
}
