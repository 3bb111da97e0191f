//! The slabs of other workers in a folder: which there are, and which worker keeps those of dead owners.
//!
//! A worker that gets the lock of a slab has the proof that the slab's owner is dead. It has then adopted the slab, if
//! it has room. It removes the slab when nothing was read from it for long, when a later one needs the room, or when it
//! ends itself. A slab that no worker has room for is removed in the end, so memory comes back however workers die.

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

/// Slabs that are read at once. Further ones are not read.
pub(super) const NEIGHBOURS_MAX: usize = 32;
/// Slots of all slabs that are read, because what is remembered of their directories takes memory. A slab that has more
/// slots than are left is not read.
pub(super) const ENTRIES_MAX: usize = 1 << 22;
/// Files of other models or versions that are remembered, so that they are not looked at each time.
const FOREIGN_MAX: usize = 64;
/// If slabs hold more than the worker remembers, everything is reported again so often: the worker may have forgotten
/// something meanwhile.
pub(super) const RETELL_EVERY: Duration = Duration::from_secs(60);
/// Records that one look reports, at most: the step loop handles them one by one.
const FOUND_MAX: usize = 1024;
/// So long a worker without room leaves a dead worker's slab to workers with more room.
pub(super) const ORPHAN_WAIT: Duration = Duration::from_secs(10);
/// An adopted slab from which nothing was read for so long is removed.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(600);

/// The slabs of other workers.
pub(super) struct Neighbours {
    name: String,
    shared: Shared,
    /// Name of the file of the own slab.
    own: String,
    layout: KvLayout,
    weights: [u8; 32],
    known: BTreeMap<String, Neighbour>,
    /// Slots that all of them may have together.
    entries_max: usize,
    /// Names of adopted slabs, in the order of adoption.
    adopted: Vec<String>,
    foreign: BTreeMap<String, Foreign>,
    /// Records of a group that the worker remembers, at most.
    known_max: usize,
    /// When everything is reported again. `None`: the worker remembers all that slabs hold.
    retell: Option<Instant>,
    /// What dropped slabs held. It was not reported yet.
    dropped: Vec<(GroupId, BlockHash)>,
}

/// A file that holds nothing for this worker.
struct Foreign {
    /// It is a slab of another model or version.
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
    /// Makes an empty list. `own` is the name of the own slab's file. The worker remembers `known_max` records of each
    /// group, and slabs of up to `entries_max` slots are read.
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

    /// Returns how many bytes the memory of slabs takes, about, and how many it may take.
    pub(super) fn index_bytes(&self) -> [usize; 2] {
        [self.entries(), self.entries_max].map(|entries| entries * Neighbour::ENTRY_BYTES)
    }

    /// Returns the slots of all slabs that are read.
    fn entries(&self) -> usize {
        self.known.values().map(|neighbour| neighbour.view.shape.entries()).sum()
    }

    /// Looks at the folder and at changes in the slabs. Returns what it found, and whether there is more to find.
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
        // What another slab still holds is not gone.
        found.gone.retain(|record| !self.known.values().any(|neighbour| neighbour.holds(record)));
        (found, more)
    }

    /// Reports again what slabs hold, every so often, if they hold more than the worker remembers. Returns whether
    /// there is more to report.
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

    /// Returns the names of the slabs in the folder, without the own one.
    fn names(&self) -> BTreeSet<String> {
        match fs::read_dir(&self.shared.folder) {
            Ok(entries) => {
                let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
                names.filter(|name| name.ends_with(SUFFIX) && *name != self.own).collect()
            }
            Err(error) => {
                tracing::debug!(tier = self.name, %error, "the folder of slabs cannot be listed");
                // Slabs that are mapped stay readable.
                self.known.keys().chain(self.foreign.keys()).cloned().collect()
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.shared.folder.join(name)
    }

    /// Opens a slab that is new. Looks again at a file that holds nothing for this worker from time to time, to remove
    /// it when its owner is dead.
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

    /// Removes a slab of another model or version that was there a while ago already and whose owner is dead. A file
    /// that is no slab stays.
    fn clear(&self, mut file: SlabFile, error: HeadError, seen_before: bool) {
        if error == HeadError::Foreign && seen_before && matches!(file.hold(), Ok(true)) {
            tracing::info!(tier = self.name, "a dead worker's slab of another model or version is removed");
        }
    }

    /// Adopts the slabs of dead workers that there is room for, and drops adopted slabs that there is no room for.
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

    /// Stops reading a slab. An adopted slab is removed.
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
