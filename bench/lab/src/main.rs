#![doc = include_str!("../README.md")]

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
