//! The lane `tcp`: the reader asks, the owner streams, the reader's kernel writes straight to where the bytes belong.
//!
//! KV that comes encoded takes a way round, by memory of the connection (`encoded`). So does what comes out of memory
//! of a device or goes there: a copier takes it into a frame, from which the owner sends it, or out of one, in which
//! the reader put a run together (`scatters`). The thread waits for neither: a copier's waker rings its bell.
//!
//! One thread of the agent does it for all peers, in both directions: no socket ever makes it wait for another.
//! Only a caller that waits for a read may take its bytes instead (`driver`). Connections are made, and proven to
//! be a peer's, by `control`.
//!
//! A link's connections are its rails (see [`crate::lanes::rails`]). One that fails or slows is closed, so that
//! nothing of it can land late, what it was asked for is asked of the others, and it is made anew later; where it
//! was the only one, transfers wait for it. The link itself ends with the connection that `control` has, or when
//! no rail can be made for a while.

mod asker;
mod driver;
mod encoded;
mod engine;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing_ends;
mod owner;
mod pieces;
mod plan;
mod reader;
mod recovery;
mod scatters;
mod series;
mod streams;
mod thread;
mod trial;
mod way;
mod wire;

pub(crate) use driver::drive;
pub(crate) use encoded::part_of;
pub(crate) use plan::{StreamPlan, begin};
pub(crate) use streams::Streams;
pub(crate) use thread::run;
pub(crate) use trial::try_out;
pub(crate) use way::{JoinedRail, TcpWay};

use crate::agent::link::Link;
use crate::net::socket::Socket;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread that reads or serves looks for what comes next before it sleeps, where something is expected.
const SPIN: Duration = Duration::from_micros(50);

type Orders = crate::lanes::lane_queue::Orders<Order, Socket>;

/// What this lane alone is asked for.
pub(crate) enum Order {
    /// The connections of this link are this lane's.
    Adopt(Arc<Link>),
    /// A rail of a link was tried: its new connection, if it could be made.
    Rejoin(Arc<Link>, usize, Option<JoinedRail>),
}
