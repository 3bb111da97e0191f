//! A host tier: memory of this host that one worker writes and that describes itself, so that others can read it without asking.
//!
//! The [`slab`] says where what lies; here is the thread that copies records into it and out of it, so that the step loop waits for
//! no copy.

mod slab;

use super::carrier::{Carrier, Order, Waiting, What, orders};
use super::records::Records;
use super::{BACKLOG_MAX, TierEnd, TierParts};
use crate::inbox::Inbox;
use crate::memory::Pool;
use domain::KvLayout;
use engine::device::Device;
use kv_manager::tiers::{ReadEnd, Tier, TierConfig, WriteEnd, WritePolicy};
use slab::Slab;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use transport::Memory;

/// Records being written at once: one is copied at a time, and a few more keep the thread busy.
const WRITES_MAX: usize = 8;

/// Settings of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Name for people.
    pub name: String,
    /// Bytes of its memory.
    pub bytes: u64,
    /// What is written.
    pub write: WritePolicy,
}

/// Why a tier could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// There is no room for anything.
    #[error("a host tier of {bytes} bytes holds {slots} blocks of {each} bytes; give it {needed}")]
    TooSmall {
        /// What it was given.
        bytes: u64,
        /// What that holds.
        slots: u64,
        /// What a block takes, with its entry in the directory.
        each: u64,
        /// What it needs.
        needed: u64,
    },
    /// The system refused something.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Opens a tier for the pools of `device`, which have this layout, and the worker with this inbox. Errors: [`HostError`].
pub fn open_host_tier(
    config: &HostConfig,
    layout: &KvLayout,
    device: &dyn Device,
    inbox: &Inbox,
) -> Result<TierParts, HostError> {
    let input = inbox.input();
    over(config, layout, Pool::all(device, layout), move |end| input.tier_ended(end)).map(|(parts, _)| parts)
}

/// The same for pools in any memory, and the slab's. `sink` gets the end of each move, from the tier's thread; it may wait, but not for
/// ever.
fn over(
    config: &HostConfig,
    layout: &KvLayout,
    pools: Vec<Arc<dyn Memory>>,
    sink: impl Fn(TierEnd) + Send + 'static,
) -> Result<(TierParts, Arc<dyn Memory>), HostError> {
    let slab = Slab::new(config, layout)?;
    let (slots, memory) = (slab.slots(), slab.memory());
    tracing::info!(tier = config.name, slots, bytes = memory.len(), "the host tier is open");
    let (order, inbox) = orders();
    let work =
        Work { name: config.name.clone(), records: Records::new(layout, pools), slab, sink: Box::new(sink), inbox };
    let carrier = Carrier::start(format!("{}-host", config.name), order, move || work.run())?;
    let size = TierConfig {
        slots: vec![slots; layout.groups.len()],
        writes_max: WRITES_MAX,
        backlog_max: BACKLOG_MAX,
        write: config.write,
    };
    Ok((TierParts { tier: Tier::Host, mover: Box::new(carrier), config: size, records: Vec::new() }, memory))
}

/// The thread.
struct Work {
    name: String,
    records: Records,
    slab: Slab,
    sink: Box<dyn Fn(TierEnd) + Send>,
    inbox: Receiver<Order>,
}

impl Work {
    /// Returns once the tier is dropped. What waits then is not moved.
    fn run(mut self) {
        let mut waiting = Waiting::default();
        while let Ok(first) = self.inbox.recv() {
            let mut order = Some(first);
            loop {
                // Before each copy, lest one that nobody waits for comes before one that somebody does.
                let mut cancelled = BTreeSet::new();
                while let Some(one) = order {
                    match one {
                        Order::Move(one) => waiting.push(one),
                        Order::Cancel(key) => drop(cancelled.insert(key)),
                        // Nothing of it ends elsewhere.
                        Order::Ended(..) => {}
                        Order::Close => return,
                    }
                    order = self.inbox.try_recv().ok();
                }
                if !cancelled.is_empty() {
                    waiting.cancel(&cancelled).iter().for_each(|one| (self.sink)(one.failed()));
                }
                let Some(one) = waiting.pop() else { break };
                let (wrote, read) = self.copy(&one.what);
                (self.sink)(one.end(wrote, read));
                order = self.inbox.try_recv().ok();
            }
        }
    }

    fn copy(&mut self, what: &What) -> (WriteEnd, ReadEnd) {
        match what {
            What::Write(write) => {
                // SAFETY: the core keeps the block as it is until this write has ended.
                unsafe { self.slab.put(&self.records, write) };
                (WriteEnd::Written, ReadEnd::Unread)
            }
            // SAFETY: the core keeps the block for this read until it has ended.
            What::Read(_, read) => match unsafe { self.slab.take(&self.records, read) } {
                Ok(()) => (WriteEnd::Failed, ReadEnd::Good),
                Err(why) => {
                    tracing::warn!(tier = self.name, place = ?read.place, why, "a record is wrong; it is not used");
                    (WriteEnd::Failed, ReadEnd::Wrong)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
