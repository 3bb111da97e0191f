//! The slabs of other workers in a folder: which there are, whose owners are dead, and who answers for those.
//!
//! Whoever gets the lock of a slab has the proof that its owner is dead. A worker keeps the lock of as many as it
//! has room for: it has adopted them, and removes them when nothing was read from them for long, when a later one
//! needs the room, or when it ends. One that nobody has room for is removed in the end, so that whatever workers
//! die of, their memory comes back.

use super::Shared;
use super::file::{SUFFIX, SlabFile};
use super::neighbour::{Found, Neighbour};
use super::shape::{HEAD, HeadError};
use super::view::View;
use crate::records::{Records, Spot};
use domain::{BlockHash, GroupId, KvLayout};
use kv_manager::tiers::{ReadEnd, TierRead};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use transport::Memory;

/// Slabs that are read at once; what is beyond them is not looked at.
pub(super) const NEIGHBOURS_MAX: usize = 32;
/// Slots of the slabs that are read, all together: what is remembered of their directories takes memory. A slab
/// that has more than are left is not looked at.
pub(super) const ENTRIES_MAX: usize = 1 << 22;
/// Slabs that are passed over at once, of other models or versions.
const FOREIGN_MAX: usize = 64;
/// How often all is told once more where slabs hold more than the worker remembers: something may have been
/// forgotten meanwhile.
pub(super) const RETELL_EVERY: Duration = Duration::from_secs(60);
/// Records that a look tells of, at most: the step loop takes note of them one by one.
const FOUND_MAX: usize = 1024;
/// A slab whose owner died is left to others for so long, who may have more room.
pub(super) const ORPHAN_WAIT: Duration = Duration::from_secs(10);
/// A slab that was adopted, and from which nothing was read for so long, is removed.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(600);

/// The slabs of others.
pub(super) struct Neighbours {
    name: String,
    shared: Shared,
    /// The file of one's own slab.
    own: String,
    layout: KvLayout,
    weights: [u8; 32],
    known: BTreeMap<String, Neighbour>,
    /// Slots that all of them may have.
    entries_max: usize,
    /// Those that were adopted, the first one first.
    adopted: Vec<String>,
    foreign: BTreeMap<String, Foreign>,
    /// Records of a group that the worker remembers, and when it is told of all of them again if there are more.
    known_max: usize,
    retell: Option<Instant>,
    /// What slabs held that are read no more, and nobody was told of.
    dropped: Vec<(GroupId, BlockHash)>,
}

/// A file that holds nothing for this worker.
struct Foreign {
    /// It is a slab, of another model or version.
    is_slab: bool,
    /// When it is looked at again.
    due: Instant,
}

/// How many slabs there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) live: usize,
    pub(super) adopted: usize,
    pub(super) foreign: usize,
}

impl Neighbours {
    /// None yet. `own` is the file that is none of others; so many records of each group are remembered by the
    /// worker, and so many slots of slabs are looked at.
    pub(super) fn new(
        name: String,
        shared: Shared,
        own: String,
        layout: &KvLayout,
        weights: [u8; 32],
        known_max: usize,
        entries_max: usize,
    ) -> Self {
        Self {
            name,
            shared,
            own,
            layout: layout.clone(),
            weights,
            known: BTreeMap::new(),
            entries_max,
            adopted: Vec::new(),
            foreign: BTreeMap::new(),
            known_max,
            retell: None,
            dropped: Vec::new(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let (known, adopted) = (self.known.len(), self.adopted.len());
        Counts { live: known - adopted, adopted, foreign: self.foreign.len() }
    }

    /// Bytes that what is remembered of slabs takes, about, and what that may become.
    pub(super) fn index_bytes(&self) -> [usize; 2] {
        [self.entries(), self.entries_max].map(|entries| entries * Neighbour::ENTRY_BYTES)
    }

    /// Slots of the slabs that are read.
    fn entries(&self) -> usize {
        self.known.values().map(|neighbour| neighbour.view.shape.entries()).sum()
    }

    /// Looks at the folder and at what changed in the slabs. Also whether there is more to find.
    pub(super) fn look(&mut self, now: Instant) -> (Found, bool) {
        let mut found = Found::default();
        let names = self.names();
        let lost: Vec<String> = self.known.keys().filter(|name| !names.contains(*name)).cloned().collect();
        lost.iter().for_each(|name| self.drop(name));
        self.foreign.retain(|name, _| names.contains(name));
        names.into_iter().for_each(|name| self.meet(name, now));
        self.adopt(now);
        found.gone = self.dropped.split_off(self.dropped.len().saturating_sub(FOUND_MAX));
        let mut more = !self.dropped.is_empty();
        for neighbour in self.known.values_mut() {
            more |= neighbour.look(&mut found, FOUND_MAX);
        }
        more |= self.tell_again(now, &mut found);
        // What another one still holds is not gone.
        found.gone.retain(|record| !self.known.values().any(|neighbour| neighbour.holds(record)));
        (found, more)
    }

    /// Tells of what slabs hold once more, every so often, where there is more than is remembered. Whether there
    /// is more to tell.
    fn tell_again(&mut self, now: Instant, found: &mut Found) -> bool {
        let slots: usize = self.known.values().map(|neighbour| neighbour.view.shape.slots as usize).sum();
        if slots <= self.known_max {
            self.retell = None;
        } else if *self.retell.get_or_insert(now + RETELL_EVERY) <= now {
            self.retell = Some(now + RETELL_EVERY);
            self.known.values_mut().for_each(Neighbour::tell_again);
        }
        let mut more = false;
        for neighbour in self.known.values_mut() {
            more |= neighbour.go_on_telling(found, FOUND_MAX);
        }
        more
    }

    /// Reads a record out of the first slab that has it.
    ///
    /// # Safety
    ///
    /// As of [`Neighbour::read`].
    pub(super) unsafe fn read(&mut self, now: Instant, records: &Records, read: &TierRead, frame: Spot) -> ReadEnd {
        let mut end = ReadEnd::Missing;
        for (slab, neighbour) in &mut self.known {
            // SAFETY: as the caller says.
            match unsafe { neighbour.read(records, read, frame) } {
                Ok(ReadEnd::Good) => {
                    neighbour.was_read(now);
                    return ReadEnd::Good;
                }
                Ok(_) => {}
                Err(why) => {
                    tracing::warn!(tier = self.name, slab, %why, "a record of a neighbour is wrong; it is not used");
                    end = ReadEnd::Wrong;
                }
            }
        }
        end
    }

    /// The slabs in the folder but one's own.
    fn names(&self) -> BTreeSet<String> {
        match fs::read_dir(&self.shared.folder) {
            Ok(entries) => {
                let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
                names.filter(|name| name.ends_with(SUFFIX) && *name != self.own).collect()
            }
            Err(error) => {
                tracing::debug!(tier = self.name, %error, "the folder of slabs cannot be listed");
                // What is mapped stays what it is.
                self.known.keys().chain(self.foreign.keys()).cloned().collect()
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.shared.folder.join(name)
    }

    /// Makes the acquaintance of a slab; of one that holds nothing for this worker, from time to time, so that it
    /// goes when nobody has it any more.
    fn meet(&mut self, name: String, now: Instant) {
        let due = self.foreign.get(&name).is_none_or(|foreign| now >= foreign.due);
        if self.known.contains_key(&name) || !due {
            return;
        }
        let seen_before = self.foreign.remove(&name);
        let view = SlabFile::open(self.path(&name), HEAD).ok_or(HeadError::NoSlab).and_then(|file| {
            View::new(file, &self.layout, self.weights).map_err(|(file, error)| {
                self.clear(file, error, seen_before.is_some());
                error
            })
        });
        match view {
            Ok(view)
                if self.known.len() < NEIGHBOURS_MAX && self.entries() + view.shape.entries() <= self.entries_max =>
            {
                tracing::info!(tier = self.name, slab = name, "a neighbour's slab is read");
                self.known.insert(name, Neighbour::new(view, now));
            }
            Ok(_) => tracing::debug!(
                tier = self.name,
                slab = name,
                "there are too many slabs, or they have too many slots: it is not read"
            ),
            Err(error) => {
                let is_slab = error == HeadError::Foreign;
                if seen_before.is_none_or(|before| before.is_slab != is_slab) {
                    tracing::info!(
                        tier = self.name,
                        slab = name,
                        is_slab,
                        "a file is of another model, version or user"
                    );
                }
                if self.foreign.len() < FOREIGN_MAX {
                    self.foreign.insert(name, Foreign { is_slab, due: now + ORPHAN_WAIT });
                }
            }
        }
    }

    /// Removes a slab of another model or version that was there a while ago already and whose owner is dead; what
    /// is no slab stays.
    fn clear(&self, mut file: SlabFile, error: HeadError, seen_before: bool) {
        if error == HeadError::Foreign && seen_before && matches!(file.hold(), Ok(true)) {
            tracing::info!(tier = self.name, "a dead worker's slab of another model or version is removed");
        }
    }

    /// Takes over the slabs of dead workers that there is room for, and gives up those that there is none for.
    fn adopt(&mut self, now: Instant) {
        let mut room = self.shared.adopted_bytes.saturating_sub(self.adopted_bytes());
        let mut wanted = Vec::new();
        for (name, neighbour) in &mut self.known {
            let file = &mut neighbour.view.file;
            if file.is_held() {
                continue;
            }
            if !matches!(file.hold(), Ok(true)) {
                neighbour.dead_since = None;
                continue;
            }
            let len = file.len() as u64;
            let since = *neighbour.dead_since.get_or_insert(now);
            if len <= room || now >= since + ORPHAN_WAIT {
                room = room.saturating_sub(len);
                neighbour.read_at = now;
                wanted.push(name.clone());
            } else {
                file.release();
            }
        }
        for name in wanted {
            tracing::info!(tier = self.name, slab = name, "a dead worker's slab is adopted");
            self.adopted.push(name);
        }
        self.known.values_mut().filter(|neighbour| neighbour.view.file.is_held()).for_each(|adopted| adopted.hear(now));
        let idle = |name: &String| self.known[name].read_at + IDLE_MAX <= now;
        let too_large = |name: &String| self.known[name].view.file.len() as u64 > self.shared.adopted_bytes;
        let given_up: Vec<String> = self.adopted.iter().filter(|name| idle(name) || too_large(name)).cloned().collect();
        given_up.iter().for_each(|name| self.drop(name));
        while self.adopted_bytes() > self.shared.adopted_bytes {
            let first = self.adopted[0].clone();
            self.drop(&first);
        }
    }

    fn adopted_bytes(&self) -> u64 {
        self.adopted.iter().map(|name| self.known[name].view.file.len() as u64).sum()
    }

    /// A slab is read no more; one that was adopted is gone with that.
    fn drop(&mut self, name: &str) {
        if let Some(neighbour) = self.known.remove(name) {
            self.adopted.retain(|adopted| adopted != name);
            self.dropped.extend(neighbour.records());
            tracing::info!(tier = self.name, slab = name, "a slab is read no more");
        }
    }
}

#[cfg(test)]
mod tests;
