//! What one slab of another worker holds, as of the last look at its directory.

use super::view::View;
use crate::records::{RecordError, Records, Spot};
use domain::{BlockHash, GroupId};
use kv_manager::tiers::{ReadEnd, Slot, TierRead};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often a reader marks a slab as read: much more often than a slab without readers is removed.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// A slab that is read.
pub(super) struct Neighbour {
    pub(super) view: View,
    /// When a worker last read something from it, as far as this one knows.
    pub(super) read_at: Instant,
    /// When this worker last marked it as read.
    told_at: Option<Instant>,
    /// The last mark of a reader that was seen.
    touched: Option<(i64, i64)>,
    /// Since when its owner is known to be dead. `None`: it lives, as far as is known.
    pub(super) dead_since: Option<Instant>,
    /// The word of changes at which the last complete look began.
    changes: Option<u64>,
    /// The entry at which the next look continues, and the word at which the look began.
    going_on: Option<(usize, u64)>,
    /// The entry at which reporting everything again continues.
    telling: Option<usize>,
    entries: Vec<Entry>,
    index: HashMap<(GroupId, BlockHash), Slot>,
}

/// A slot, as it was last seen.
#[derive(Clone, Copy, Default)]
struct Entry {
    generation: u64,
    hash: Option<BlockHash>,
}

/// What looks found to be new, or gone.
#[derive(Default)]
pub(super) struct Found {
    pub(super) learned: Vec<(GroupId, BlockHash)>,
    pub(super) gone: Vec<(GroupId, BlockHash)>,
}

impl Neighbour {
    /// Bytes that a slot takes here: how it was last seen, and its place in a map that is half full.
    pub(super) const ENTRY_BYTES: usize = size_of::<Entry>() + 2 * size_of::<((GroupId, BlockHash), Slot)>();

    pub(super) fn new(view: View, now: Instant) -> Self {
        let entries = vec![Entry::default(); view.shape.entries()];
        let index = HashMap::new();
        let touched = view.file.touched();
        Self {
            view,
            read_at: now,
            told_at: None,
            touched,
            dead_since: None,
            changes: None,
            going_on: None,
            telling: None,
            entries,
            index,
        }
    }

    pub(super) fn holds(&self, record: &(GroupId, BlockHash)) -> bool {
        self.index.contains_key(record)
    }

    /// Returns all that it holds.
    pub(super) fn records(&self) -> impl Iterator<Item = (GroupId, BlockHash)> {
        self.index.keys().copied()
    }

    /// Notes that this worker read something from it, and marks it as read every so often.
    pub(super) fn was_read(&mut self, now: Instant) {
        self.read_at = now;
        if self.told_at.is_none_or(|told| now >= told + TELL_EVERY) {
            self.told_at = Some(now);
            self.view.file.touch();
        }
    }

    /// Notes whether other workers read from it.
    pub(super) fn hear(&mut self, now: Instant) {
        let touched = self.view.file.touched();
        if std::mem::replace(&mut self.touched, touched) != touched {
            self.read_at = now;
        }
    }

    /// Makes the next looks report all that it holds again.
    pub(super) fn tell_again(&mut self) {
        self.telling = Some(0);
    }

    /// Continues to report everything again, up to `max` records. Returns whether there is more.
    pub(super) fn go_on_telling(&mut self, found: &mut Found, max: usize) -> bool {
        let Some(from) = self.telling.take() else { return false };
        let slots = self.view.shape.slots as usize;
        for at in from..self.entries.len() {
            if found.learned.len() + found.gone.len() >= max {
                self.telling = Some(at);
                return true;
            }
            if let Some(hash) = self.entries[at].hash {
                found.learned.push((GroupId((at / slots) as u16), hash));
            }
        }
        false
    }

    /// Looks at the directory until `max` records were found or gone. Returns whether there is more.
    pub(super) fn look(&mut self, found: &mut Found, max: usize) -> bool {
        let (from, changes) = self.going_on.take().unwrap_or_else(|| (0, self.view.changes()));
        if self.changes == Some(changes) {
            return false;
        }
        for at in from..self.entries.len() {
            if found.learned.len() + found.gone.len() >= max {
                self.going_on = Some((at, changes));
                return true;
            }
            self.look_at(at, found);
        }
        // An entry that changed after it was looked at changed the word, so the next look sees it.
        self.changes = Some(changes);
        false
    }

    fn look_at(&mut self, at: usize, found: &mut Found) {
        let slots = self.view.shape.slots as usize;
        let slot = Slot { group: GroupId((at / slots) as u16), slot: (at % slots) as u32 };
        let generation = self.view.generation(slot);
        let seen = std::mem::replace(&mut self.entries[at], Entry { generation, hash: None });
        if seen.generation == generation {
            self.entries[at] = seen;
            return;
        }
        if let Some(record) = seen.hash.map(|hash| (slot.group, hash)).filter(|it| self.index.get(it) == Some(&slot)) {
            self.index.remove(&record);
            found.gone.push(record);
        }
        // A read verifies that the bytes match the header.
        let header = self.view.header(slot, generation).filter(|header| header.group == slot.group);
        if let Some(header) = header {
            self.entries[at].hash = Some(header.hash);
            self.index.insert((slot.group, header.hash), slot);
            found.learned.push((slot.group, header.hash));
        }
    }

    /// Reads a record through the frame, where it cannot change any more. A record that is wrong, or that changed
    /// meanwhile, does not reach the block.
    ///
    /// # Safety
    ///
    /// The frame is the caller's alone and has room for the record; the block is the read's alone until that has ended.
    pub(super) unsafe fn read(
        &mut self,
        records: &Records,
        read: &TierRead,
        frame: Spot,
    ) -> Result<ReadEnd, RecordError> {
        let record = (read.block.group, read.hash);
        let Some(&slot) = self.index.get(&record) else { return Ok(ReadEnd::Missing) };
        let at = usize::from(slot.group.0) * self.view.shape.slots as usize + slot.slot as usize;
        let generation = self.entries[at].generation;
        // SAFETY: as the caller says.
        if !unsafe { self.view.copy(slot, generation, frame, records.len(slot.group)) } {
            // The next look finds what is there instead.
            return Ok(ReadEnd::Missing);
        }
        // SAFETY: as the caller says.
        match unsafe { records.take(read, frame) } {
            Ok(()) => Ok(ReadEnd::Good),
            Err(why) => {
                // It is not found again until its owner has written the slot again.
                self.index.remove(&record);
                self.entries[at].hash = None;
                Err(why)
            }
        }
    }
}
