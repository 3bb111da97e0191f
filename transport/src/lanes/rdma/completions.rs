//! The completion queues of a port, which the queue pairs of all its readers share.

use super::error::DeviceError;
use super::verbs::{CompletionChannel, CompletionQueue, VerbsError};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Completions that are taken by one call.
const TAKEN_AT_ONCE: usize = 32;
/// Reads that one completion queue of a port has room for. A port has one queue, and another whenever links have
/// spoken for all of it: a queue must not overflow, and not every driver enlarges one.
const QUEUE_ENTRIES: u32 = 16 << 10;

/// What a completion says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completed {
    /// What the read was posted with.
    pub(super) id: u64,
    /// 0: it and every earlier read of its queue pair succeeded. Else what libibverbs calls the status.
    pub(super) status: u32,
}

/// Where a port puts the completions of its readers' queue pairs.
pub(super) struct Completions {
    channel: Arc<CompletionChannel>,
    /// Reads that each queue has room for.
    entries: u32,
    queues: Mutex<Vec<Shared>>,
}

/// A completion queue of which parts are taken.
struct Shared {
    queue: Arc<CompletionQueue>,
    /// Of its entries.
    taken: u32,
}

/// Room for the completions of some queue pairs. To be dropped once these are gone, and what they completed was taken.
pub(super) struct Room {
    pub(super) queue: Arc<CompletionQueue>,
    completions: Arc<Completions>,
    number: usize,
    entries: u32,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.completions.queues()[self.number].taken -= self.entries;
    }
}

impl Completions {
    /// Returns those that `channel` tells of. `entries_max`: what the device has for one queue.
    pub(super) fn new(channel: &Arc<CompletionChannel>, entries_max: c_int) -> Arc<Self> {
        let entries = u32::try_from(entries_max).unwrap_or(0).clamp(1, QUEUE_ENTRIES);
        Arc::new(Self { channel: channel.clone(), entries, queues: Mutex::default() })
    }

    fn queues(&self) -> MutexGuard<'_, Vec<Shared>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room for so many completions at once.
    pub(super) fn take_room(self: &Arc<Self>, entries: u32) -> Result<Room, DeviceError> {
        if entries > self.entries {
            return Err(DeviceError::NoRoom { room: self.entries, needed: entries });
        }
        let mut queues = self.queues();
        let number = match queues.iter().position(|shared| self.entries - shared.taken >= entries) {
            Some(number) => number,
            None => {
                let number = queues.len();
                let queue = Arc::new(CompletionQueue::new(&self.channel, self.entries, number as u64)?);
                queue.arm()?;
                queues.push(Shared { queue, taken: 0 });
                number
            }
        };
        let shared = &mut queues[number];
        shared.taken += entries;
        Ok(Room { queue: shared.queue.clone(), completions: self.clone(), number, entries })
    }

    /// Queues that there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.queues().len()
    }

    /// Arms those that the channel announced. To be called before what they have is taken.
    pub(super) fn arm_told(&self) -> Result<(), VerbsError> {
        let mut result = Ok(());
        while let Some(number) = self.channel.take() {
            if let Some(shared) = self.queues().get(number as usize) {
                result = shared.queue.arm().and(result);
            }
        }
        result
    }

    /// Takes all that there are.
    pub(super) fn take(&self, completed: &mut Vec<Completed>) -> Result<(), VerbsError> {
        for shared in self.queues().iter() {
            loop {
                let mut room = [const { MaybeUninit::uninit() }; TAKEN_AT_ONCE];
                let taken = shared.queue.poll(&mut room)?;
                completed.extend(taken.iter().map(|one| Completed { id: one.id, status: one.status }));
                if taken.len() < TAKEN_AT_ONCE {
                    break;
                }
            }
        }
        Ok(())
    }
}
