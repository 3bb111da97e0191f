#![doc = include_str!("../README.md")]

mod doing;
mod registry;
mod system;

pub use doing::Doing;
pub use registry::{does, during, register, spawn};
pub use system::State;

use std::time::Duration;

/// Threads that are listed, at most.
pub const LISTED_MAX: usize = 4096;

/// The threads of this process.
#[derive(Debug)]
pub struct Listed {
    /// Those that say what they do, and then the others, each by name.
    pub threads: Vec<Thread>,
    /// How many more there are than [`LISTED_MAX`].
    pub left_out: usize,
}

/// A thread of this process.
#[derive(Debug)]
pub struct Thread {
    /// What the system calls it.
    pub id: u32,
    /// Its name, which the system cuts to 15 bytes where it is not registered.
    pub name: String,
    /// Whether it runs. `None`: the system does not say.
    pub state: Option<State>,
    /// Processor time that it took.
    pub cpu: Duration,
    /// The function of the kernel that it waits in; empty: it runs, or the system does not say.
    pub kernel: String,
    /// What it says that it does, and for how long. `None`: it is not registered.
    pub doing: Option<(Doing, Duration)>,
}

/// Lists the threads of this process, without waiting for any of them.
pub fn list() -> Listed {
    let mut registered = registry::registered();
    let (seen, left_out) = system::threads(LISTED_MAX);
    let mut threads: Vec<Thread> = seen
        .into_iter()
        .map(|seen| {
            let (name, doing) =
                registered.remove(&seen.id).map_or((seen.name, None), |(name, doing)| (name, Some(doing)));
            Thread { id: seen.id, name, state: Some(seen.state), cpu: seen.cpu, kernel: seen.kernel, doing }
        })
        .collect();
    // Those that the system did not show, all where it shows none.
    threads.extend(registered.into_iter().take(LISTED_MAX - threads.len()).map(|(id, (name, doing))| Thread {
        id,
        name,
        state: None,
        cpu: Duration::ZERO,
        kernel: String::new(),
        doing: Some(doing),
    }));
    threads.sort_by(|a, b| (a.doing.is_none(), &a.name, a.id).cmp(&(b.doing.is_none(), &b.name, b.id)));
    Listed { threads, left_out }
}

#[cfg(test)]
mod tests;
