//! The measure of the transport: reads between two processes over each lane, beside what the machine does at best
//! by the same pattern (plain copies of one's own memory, and a plain stream over loopback); and writes and reads
//! of files and objects.
//!
//! A pass reads the owner's pool once, by transfers of a number of blocks each, with a given number of transfers
//! in flight: all blocks of a size are read before any is read again, so that no cache holds the next one because
//! it was the last one. Before each pass the reader's pool is cleared, and after it every byte is compared, both
//! outside of its time. Files and objects have two ends of this process's own, and memory that is used again and
//! again; how they are compared is told in `own`.
//!
//! [`own`] is the owner's life, [`sweep`] measures, [`Report`] says what came of it, and [`page::html`] draws it.
//! [`lanes`] is the short form: which lanes there are at all, by the probe that connecting makes.
//!
//! What is deliberately absent: the command line and the terminal (`baton bench transfer` has them); KV and its
//! rules, which `bench-lab -- handoff` measures; a verdict, since figures depend on the machine and on what else
//! it does.

pub mod page;

mod ends;
mod error;
mod files;
mod lanes;
mod latency;
mod objects;
mod own;
mod pool;
mod report;
mod settings;
mod stream;
mod sweep;
mod timed;
mod turns;

pub use ends::{Owner, own};
pub use error::BenchError;
pub use lanes::{LaneOfHost, NoLane, lanes};
pub use report::{Report, Row};
pub use settings::{Files, Over, Place, PlaceError, Settings, Store, Trust, Wire};
pub use sweep::{Progress, sweep};
