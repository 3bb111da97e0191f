//! The lane `tcp`: the reader asks, the owner streams, the reader's kernel writes straight to where the bytes belong.
//!
//! One thread of the agent does it for all peers, in both directions: no socket ever makes it wait for another. Connections
//! are made, and proven to be a peer's, by `control`.
//!
//! A link's connections are its rails (see [`crate::rails`]). One that fails or slows is closed, so that nothing of it can
//! land late, what it was asked for is asked of the others, and it is made anew later; where it was the only one, transfers
//! wait for it. The link itself ends with the connection that `control` has, or when no rail can be made for a while.

mod asker;
mod engine;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod owner;
mod plan;
mod reader;
mod recovery;
mod series;
mod trial;
mod way;
mod wire;

pub(crate) use engine::run;
pub(crate) use plan::{StreamPlan, begin};
pub(crate) use trial::try_out;
pub(crate) use way::{Joined, TcpWay};

use crate::link::Link;
use crate::socket::Socket;
use std::sync::Arc;

/// How others reach the lane's thread.
pub(crate) type Streams = crate::desk::Desk<Order, Socket>;
type Orders = crate::desk::Orders<Order, Socket>;

/// What this lane alone is asked for.
pub(crate) enum Order {
    /// The connections of this link are this lane's.
    Adopt(Arc<Link>),
    /// How trying a rail of a link went.
    Rejoin(Arc<Link>, usize, Joined),
}
