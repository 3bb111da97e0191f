//! What an agent must know of another one to connect it.

use domain::session::PeerAddress;
use domain::{Incarnation, WorkerId};

/// A life of a peer, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct KnownPeer {
    pub(crate) id: WorkerId,
    pub(crate) incarnation: Incarnation,
    pub(crate) name: String,
    pub(crate) address: PeerAddress,
}
