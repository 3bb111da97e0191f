//! The file of a tier's log: read at start, appended to, and written anew when most of it is overruled.

use kv_manager::tiers::log::{self, Replay};
use kv_manager::tiers::{Slot, TierRecord};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// So many entries more than there are slots, and the log is written anew.
const OVERRULED_MAX: usize = 64 << 10;

/// The log of an open tier.
pub(super) struct LogFile {
    path: PathBuf,
    shape: u64,
    file: File,
    /// What each slot has.
    held: BTreeMap<Slot, TierRecord>,
    entries: usize,
    slots: usize,
}

impl LogFile {
    /// Opens the log at `path` of a tier with this shape and so many slots; made where there is none. What it says. Errors: of the
    /// system.
    pub(super) fn open(path: PathBuf, shape: u64, slots: usize) -> io::Result<(Self, Replay)> {
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut replay = log::replay(&bytes, shape);
        // The last entry of a slot counts, and of an identity too.
        let (mut held, mut kept) = (BTreeMap::new(), BTreeMap::new());
        for (age, &record) in replay.records.iter().enumerate().rev() {
            let TierRecord { slot, hash, .. } = record;
            if !held.contains_key(&slot) && !kept.contains_key(&(slot.group, hash)) {
                held.insert(slot, record);
                kept.insert((slot.group, hash), age);
            }
        }
        let mut age = 0..;
        replay.records.retain(|record| age.next() == kept.get(&(record.slot.group, record.hash)).copied());
        let file = rewrite(&path, shape, &replay.records)?;
        let entries = replay.records.len();
        Ok((Self { path, shape, file, held, entries, slots }, replay))
    }

    /// Notes that the slot has the record. Errors: of the system; then the log is as it was.
    pub(super) fn append(&mut self, record: TierRecord) -> io::Result<()> {
        self.held.insert(record.slot, record);
        if self.entries >= self.slots + OVERRULED_MAX {
            let records: Vec<_> = self.held.values().copied().collect();
            self.file = rewrite(&self.path, self.shape, &records)?;
            self.entries = records.len();
            return Ok(());
        }
        if let Err(error) = self.file.write_all(&log::entry(&record)) {
            // A part of an entry would put all that follow where nobody looks for them.
            self.file.set_len((log::HEAD + self.entries * log::ENTRY) as u64)?;
            return Err(error);
        }
        self.entries += 1;
        Ok(())
    }
}

/// Writes a log beside the old one and then in its place, so that there is one at any time.
fn rewrite(path: &Path, shape: u64, records: &[TierRecord]) -> io::Result<File> {
    let new = path.with_extension("new");
    let mut bytes = log::head(shape).to_vec();
    records.iter().for_each(|record| bytes.extend_from_slice(&log::entry(record)));
    fs::write(&new, bytes)?;
    fs::rename(&new, path)?;
    OpenOptions::new().append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{BlockHash, GroupId, Tenant};

    /// The record of this name in that slot, whose tenant follows from the name.
    fn record(at: u32, name: u32) -> TierRecord {
        let mut hash = [0; 16];
        hash[..4].copy_from_slice(&name.to_le_bytes());
        TierRecord { slot: slot(at), hash: BlockHash(hash), tenant: Tenant(7 * name) }
    }

    fn slot(slot: u32) -> Slot {
        Slot { group: GroupId(0), slot }
    }

    #[test]
    fn the_last_word_on_a_slot_counts_over_restarts_and_rewrites() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let (mut log, first) = LogFile::open(path.clone(), 7, 4).expect("it opens");
        assert_eq!(first.records, []);
        // Identity 1 moves from slot 0 to slot 2, and slot 1 gets another record.
        for (at, name) in [(0, 1), (1, 2), (1, 3), (2, 1)] {
            log.append(record(at, name)).expect("it is written");
        }
        drop(log);
        let (mut log, replay) = LogFile::open(path.clone(), 7, 4).expect("it opens");
        assert_eq!(replay.records, [record(1, 3), record(2, 1)]);
        // Slot 0 is not known to hold anything: its record is elsewhere.
        for round in 0..(OVERRULED_MAX as u32 + 100) {
            log.append(record(round % 4, 10 + round)).expect("it is written");
        }
        drop(log);
        let entries = (fs::metadata(&path).expect("it is there").len() as usize - log::HEAD) / log::ENTRY;
        assert!(entries < 200, "{entries} entries are left of a log that was written anew");
        let (_, replay) = LogFile::open(path.clone(), 7, 4).expect("it opens");
        assert_eq!(replay.records.len(), 4);
        // Another shape begins with nothing.
        let (_, replay) = LogFile::open(path.clone(), 8, 4).expect("it opens");
        assert!(replay.foreign && replay.records.is_empty());
        let (_, replay) = LogFile::open(path, 7, 4).expect("it opens");
        assert!(replay.foreign, "what was of another shape was replaced");
    }
}
