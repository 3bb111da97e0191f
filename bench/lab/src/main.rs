//! Measures policies of eviction, quotas, what encodings of KV lose, and what handoffs and sessions cost, and a
//! plain client of an object store: `cargo run --release -p bench-lab -- eviction`, `... -- quotas`, `... --
//! encoding`, `... -- handoff`, `... -- session`, `... -- object`. docs/performance/lab has the figures.
//!
//! What is deliberately absent: a verdict, since figures depend on the machine and on what else it does; the speed
//! of the engine, of the transport and of servers, which `baton bench engine`, `baton bench transfer` and `baton
//! bench serve` measure.

mod encoding;
mod eviction;
mod handoff;
mod object;
mod processes;
mod session;

use clap::{Parser, Subcommand};
use std::error::Error;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Handoffs between processes that serve: what a user waits for, and a picture of it.
    Handoff(handoff::Options),
    /// What encodings of KV lose, and how fast they are.
    Encoding(encoding::Options),
    /// What each policy of eviction still has of a made-up trace.
    Eviction(eviction::Options),
    /// What quotas of tenants cost on the same trace.
    Quotas(eviction::quotas::Options),
    /// Reads of objects by a plain client: of those that `baton bench transfer --lanes object --keep` left.
    Object(object::Options),
    /// Tokens and heartbeats over sessions between processes.
    Session,
}

fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().what {
        What::Handoff(options) => handoff::run(&options),
        What::Encoding(options) => encoding::run(&options),
        What::Eviction(options) => eviction::run(&options),
        What::Quotas(options) => eviction::quotas::run(&options),
        What::Object(options) => object::run(&options),
        What::Session => session::run(),
    }
}
