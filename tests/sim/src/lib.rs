//! The simulator: whole clusters of the real cores in virtual time, from one seed.
//!
//! A [`World`](world) holds routers and workers as their cores ([`placement::Placement`], [`worker::Machine`]) and
//! stands in for everything around them: the network and its faults, processes that die, stand still and return,
//! devices, reads of a peer's memory, disks that outlive their workers, a directory of workers, clients. One seed draws
//! the cluster, what is asked of it and what goes wrong; there is no thread and no clock in a world, so a seed always
//! runs the same. Faults come in a phase that hurts; then all is healed, and everything that is still open must finish.
//! `invariants` holds what must be so meanwhile, a file each.
//!
//! What is deliberately absent: sockets, HTTP, texts, and threads of workers, which tests with real processes
//! cover; encodings of records, stores of objects and slabs of neighbours, which are behind what moves records and
//! have worlds of their own in `worker`.

mod caps;
mod client;
mod coverage;
mod directory;
mod disk;
mod event;
mod event_queue;
mod expected;
mod fault;
mod fault_effects;
mod invariants;
mod lease;
mod limit;
mod listing;
mod operators;
mod pool;
mod process;
mod random;
mod reach;
mod read;
mod routers;
mod run;
mod scenario;
mod session;
mod shell;
mod slot_ownership;
mod step;
mod tenants;
mod trace;
mod workers;
mod world;

pub use coverage::Coverage;
pub use invariants::{Law, Violation};
pub use run::{Batch, Fleet, Found, Outcome, Subset, replay, run_fleet, run_seed, run_seeds, shrink, trace_of};
