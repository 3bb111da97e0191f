//! The ways to carry reads and writes of files out, and the choice among them.

use super::operation::{Done, Operation};
use super::ring::Ring;
use super::threads::{Threads, carry_out};
use super::{FileConfig, OPERATION_BYTES_MAX};
use crate::failure::Failure;
use crate::wake::Doorbell;
use std::fmt;
use std::io;
use std::sync::Arc;

/// A way to carry reads and writes of files out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum FileWay {
    /// The device reads and writes memory of a GPU.
    Gds,
    /// The kernel takes many operations with one call.
    IoUring,
    /// Threads that block, each with one operation.
    Threads,
}

/// The fastest by nature first.
const RANKING: [FileWay; 3] = [FileWay::Gds, FileWay::IoUring, FileWay::Threads];

impl FileWay {
    /// Returns the name in logs and pages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gds => "gds",
            Self::IoUring => "io_uring",
            Self::Threads => "threads",
        }
    }
}

impl fmt::Display for FileWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No way is there, and why.
#[derive(Debug, thiserror::Error)]
#[error("files can be read and written in no way: {}", reasons(.0))]
struct NoWay(Vec<(FileWay, String)>);

/// What carries operations out.
pub(super) enum Engine {
    Ring(Box<Ring>),
    Threads(Threads),
}

impl Engine {
    /// The first of the ways that is to be had, and why those before it are not. Errors: none is.
    pub(super) fn choose(
        config: &FileConfig,
        failure: &Failure,
        bell: &Arc<Doorbell>,
    ) -> io::Result<(Self, Vec<(FileWay, String)>)> {
        let mut passed_over = Vec::new();
        for way in RANKING {
            let made = match way {
                FileWay::Gds => Err("not built in".to_owned()),
                FileWay::IoUring if !config.io_uring => Err("switched off".to_owned()),
                FileWay::IoUring => match Ring::new(config.depth, bell.clone()) {
                    Ok(ring) => Ok(Self::Ring(Box::new(ring))),
                    Err(error) => Err(format!("not to be had: {error}")),
                },
                FileWay::Threads => {
                    let name = format!("{}-file", config.name);
                    let threads = Threads::new(&name, config.depth, failure, bell.clone(), carry_out);
                    threads.map(Self::Threads).map_err(|error| error.to_string())
                }
            };
            match made {
                Ok(engine) => return Ok((engine, passed_over)),
                Err(why) => passed_over.push((way, why)),
            }
        }
        Err(io::Error::other(NoWay(passed_over)))
    }

    pub(super) fn way(&self) -> FileWay {
        match self {
            Self::Ring(_) => FileWay::IoUring,
            Self::Threads(_) => FileWay::Threads,
        }
    }

    /// Bytes that an operation from `offset` of a region of memory on can have.
    pub(super) fn at_once(&self, offset: u64) -> usize {
        match self {
            Self::Ring(_) => OPERATION_BYTES_MAX.min(Ring::at_once(offset)),
            Self::Threads(_) => OPERATION_BYTES_MAX,
        }
    }

    pub(super) fn push(&mut self, slot: usize, operation: &Operation) {
        match self {
            Self::Ring(ring) => ring.push(slot, operation),
            Self::Threads(threads) => threads.push(slot, operation),
        }
    }

    /// Makes it the calling thread's.
    pub(super) fn begin(&self) -> io::Result<()> {
        match self {
            Self::Ring(ring) => ring.begin(),
            Self::Threads(_) => Ok(()),
        }
    }

    /// Starts what was pushed.
    pub(super) fn start(&mut self) -> io::Result<()> {
        match self {
            Self::Ring(ring) => ring.start(),
            Self::Threads(_) => Ok(()),
        }
    }

    pub(super) fn turn(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        match self {
            Self::Ring(ring) => ring.turn(wait, done),
            Self::Threads(threads) => threads.turn(wait, done),
        }
    }
}

/// Ways that were not taken, for people.
pub(super) fn reasons(passed_over: &[(FileWay, String)]) -> String {
    let reasons: Vec<_> = passed_over.iter().map(|(way, why)| format!("{way}: {why}")).collect();
    reasons.join("; ")
}
