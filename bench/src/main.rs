//! Measures the CPU engine and the transport against the limits of the machine, each in the same run as those, and what
//! handoffs and sessions cost: `cargo run --release -p bench -- engine`, `... -- transfer`, `... -- handoff`, `... -- session`.
//! `... -- model` is one side of the comparison that bench/peers/llama makes. docs/benchmarks.md keeps the figures.
//!
//! What is deliberately absent: a verdict. The figures depend on the machine and on what else it does.

mod engine_runs;
mod engine_table;
mod handoff;
mod limits;
mod model;
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
    /// Steps of the CPU device on a random model of the `125m` shape.
    Engine,
    /// Prompts and decode steps of a model, for comparison with other engines.
    Model(model::Options),
    /// Handoffs between processes that serve: what a user waits for, and a picture of it.
    Handoff(handoff::Options),
    /// Reads between two processes, over each lane.
    Transfer(transfer::Options),
    /// Tokens and heartbeats over sessions between processes.
    Session,
}

fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().what {
        What::Engine => engine_table::run(),
        What::Model(options) => model::run(&options),
        What::Handoff(options) => handoff::run(&options),
        What::Transfer(options) => transfer::run(&options),
        What::Session => session::run(),
    }
}
