//! The lane `tcp`: the reader asks, the owner streams, the reader's kernel writes straight to where the bytes belong.
//!
//! One thread of the agent does it for all peers, in both directions: no socket ever makes it wait for another. Connections
//! are made, and proven to be a peer's, by `control`.

mod asker;
mod engine;
mod owner;
mod plan;
mod reader;
mod series;
mod wire;

pub(crate) use asker::Asker;
pub(crate) use engine::run;
pub(crate) use plan::{StreamPlan, begin};

use crate::link::Link;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How others reach the lane's thread.
pub(crate) type Streams = crate::desk::Desk<Arc<Link>, OwnedFd>;
type Orders = crate::desk::Orders<Arc<Link>, OwnedFd>;
