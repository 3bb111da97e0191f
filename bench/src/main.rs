//! Measures the transport, and what handoffs and sessions cost: `cargo run --release -p bench -- transfer`, `... -- file`,
//! `... -- handoff`, `... -- session`. docs/benchmarks.md keeps the figures.
//!
//! What is deliberately absent: a verdict, since figures depend on the machine and on what else it does; the engine, which
//! `baton bench engine` measures, and servers, which `baton bench serve` does.

mod file;
mod handoff;
mod processes;
mod session;
mod transfer;

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
    /// Reads between two processes, over each lane.
    Transfer(transfer::Options),
    /// Reads and writes of a file.
    File(file::Options),
    /// Tokens and heartbeats over sessions between processes.
    Session,
}

fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().what {
        What::Handoff(options) => handoff::run(&options),
        What::Transfer(options) => transfer::run(&options),
        What::File(options) => file::run(&options),
        What::Session => session::run(),
    }
}
