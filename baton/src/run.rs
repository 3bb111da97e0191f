//! The commands that serve: `baton serve`, `router`, `prefill-worker` and `decode-worker`. Each file named like a
//! command is the order of things; the parts that they share are beside them.

mod discovery;
mod host;
mod local;
mod model;
mod model_card;
mod operated;
mod ops;
mod reload;
mod responses;
mod role_name;
mod router;
mod running;
mod runtime;
mod secret;
mod serve;
mod shutdown;
mod startup_banner;
mod tiers;
mod tls;
mod worker;
mod worker_setup;

pub(crate) use router::router;
pub(crate) use running::Running;
pub(crate) use secret::{draw_secret, secrets};
pub(crate) use serve::serve;
pub(crate) use shutdown::end_with_input;
pub(crate) use worker::worker;
