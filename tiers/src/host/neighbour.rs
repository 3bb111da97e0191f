//! What one slab of another worker holds, as it was when its directory was last looked at.

use super::view::View;
use crate::records::{RecordError, Records, Spot};
use domain::{BlockHash, GroupId};
use kv_manager::tiers::{ReadEnd, Slot, TierRead};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often a slab's readers say that they read it: much more often than one that nobody reads is removed.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// A slab that is read.
pub(super) struct Neighbour {
    pub(super) view: View,
    /// When something was read from it last, by anybody as far as this one knows.
    pub(super) read_at: Instant,
    /// When this one last told others that it reads it.
    told_at: Option<Instant>,
    /// What others told last that read it.
    touched: Option<(i64, i64)>,
    /// Since when its owner is known to be dead.
    pub(super) dead_since: Option<Instant>,
    /// The word of changes that the last whole look began with.
    changes: Option<u64>,
    /// Where the next look goes on, with the word that this one began with.
    going_on: Option<(usize, u64)>,
    /// Where telling again of what is known goes on.
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

/// What looks found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) learned: Vec<(GroupId, BlockHash)>,
    pub(super) gone: Vec<(GroupId, BlockHash)>,
}

impl Neighbour {
    /// What a slot takes: how it was last seen, and its place in a map that is half full.
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

    /// All that it holds.
    pub(super) fn records(&self) -> impl Iterator<Item = (GroupId, BlockHash)> {
        self.index.keys().copied()
    }

    /// Something was read from it. Whoever answers for it is told every so often.
    pub(super) fn was_read(&mut self, now: Instant) {
        self.read_at = now;
        if self.told_at.is_none_or(|told| now >= told + TELL_EVERY) {
            self.told_at = Some(now);
            self.view.file.touch();
        }
    }

    /// Looks whether others read from it.
    pub(super) fn hear(&mut self, now: Instant) {
        let touched = self.view.file.touched();
        if std::mem::replace(&mut self.touched, touched) != touched {
            self.read_at = now;
        }
    }

    /// The next looks tell of all that it holds once more.
    pub(super) fn tell_again(&mut self) {
        self.telling = Some(0);
    }

    /// Goes on telling again, until `max` records were told. Whether there is more.
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

    /// Looks at the directory until `max` records were found or gone. Whether there is more.
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
        // What changed behind the look is seen by the next one, for the word is another then.
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
        // Whether the bytes are those of the header is seen when they are read.
        let header = self.view.header(slot, generation).filter(|header| header.group == slot.group);
        if let Some(header) = header {
            self.entries[at].hash = Some(header.hash);
            self.index.insert((slot.group, header.hash), slot);
            found.learned.push((slot.group, header.hash));
        }
    }

    /// Reads a record by way of the frame, where it cannot change any more. Nothing of what is wrong, or changed,
    /// gets into the block.
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
            // The next look says what is there instead.
            return Ok(ReadEnd::Missing);
        }
        // SAFETY: as the caller says.
        match unsafe { records.take(read, frame) } {
            Ok(()) => Ok(ReadEnd::Good),
            Err(why) => {
                // It is not found again before its owner has written the slot anew.
                self.index.remove(&record);
                self.entries[at].hash = None;
                Err(why)
            }
        }
    }
}
