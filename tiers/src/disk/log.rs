//! The file of a tier's log: read at start, appended to, and written anew when most of it is overruled.
//!
//! Its room on the device is taken beforehand, like that of the records, and as much again for the next log beside
//! it: a file system that others fill keeps no record from being noted.

use domain::{BlockHash, GroupId};
use kv_manager::tiers::log::{self, Replay};
use kv_manager::tiers::{Slot, TierRecord};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fstat};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use transport::open_own_file;

/// So many entries more than there are slots, and the log is written anew.
pub(super) const OVERRULED_MAX: usize = 64 << 10;

/// The log of an open tier.
pub(super) struct LogFile {
    path: PathBuf,
    shape: u64,
    file: File,
    /// The next log, still empty. `None`: there was no room for it.
    spare: Option<File>,
    held: Held,
    entries: usize,
    slots: usize,
    /// It was told that somebody removed the log.
    is_told: bool,
}

/// What the slots have, by the last word on each slot and on each identity.
#[derive(Default)]
struct Held {
    /// The oldest first.
    by_age: BTreeMap<u64, TierRecord>,
    slots: HashMap<Slot, u64>,
    identities: HashMap<(GroupId, BlockHash), u64>,
    next: u64,
}

impl Held {
    /// What a record takes: in a tree and two maps that are half full.
    const RECORD_BYTES: usize = 2 * size_of::<(u64, TierRecord)>()
        + 2 * size_of::<(Slot, u64)>()
        + 2 * size_of::<((GroupId, BlockHash), u64)>();

    fn put(&mut self, record: TierRecord) {
        let identity = (record.slot.group, record.hash);
        for older in [self.slots.remove(&record.slot), self.identities.remove(&identity)].into_iter().flatten() {
            if let Some(TierRecord { slot, hash, .. }) = self.by_age.remove(&older) {
                self.slots.remove(&slot);
                self.identities.remove(&(slot.group, hash));
            }
        }
        self.slots.insert(record.slot, self.next);
        self.identities.insert(identity, self.next);
        self.by_age.insert(self.next, record);
        self.next += 1;
    }

    /// Returns the oldest first.
    fn records(&self) -> Vec<TierRecord> {
        self.by_age.values().copied().collect()
    }
}

impl LogFile {
    /// Opens the log at `path` of a tier with this shape and so many slots; made where there is none. What it
    /// says. Errors: of the system.
    pub(super) fn open(path: PathBuf, shape: u64, slots: usize) -> io::Result<(Self, Replay)> {
        let mut bytes = Vec::new();
        match open_own_file(&path, OFlags::RDONLY) {
            Ok(file) => drop(File::from(file).read_to_end(&mut bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut replay = log::replay(&bytes, shape);
        let mut held = Held::default();
        replay.records.iter().for_each(|&record| held.put(record));
        replay.records = held.records();
        let file = spare(&path, slots)?;
        let entries = write(&file, shape, &replay.records)?;
        let file = replace(&path, file)?;
        let spare = Some(spare(&path, slots)?);
        Ok((Self { path, shape, file, spare, held, entries, slots, is_told: false }, replay))
    }

    /// Notes that the slot has the record. Errors: of the system; then the log is as it was.
    pub(super) fn append(&mut self, record: TierRecord) -> io::Result<()> {
        if self.entries >= self.slots + OVERRULED_MAX {
            self.rewrite()?;
        }
        // At its place: what is left of one that failed is written over.
        self.file.write_all_at(&log::entry(&record), (log::HEAD + self.entries * log::ENTRY) as u64)?;
        self.entries += 1;
        self.held.put(record);
        if !self.is_told && self.is_removed() {
            self.is_told = true;
            let path = self.path.display();
            tracing::warn!(%path, "somebody removed the log of a disk tier: the tier works on, and what it holds is lost when the worker ends");
        }
        Ok(())
    }

    /// Returns whether the log has no name any more.
    fn is_removed(&self) -> bool {
        fstat(&self.file).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Bytes that what it says takes here, about, and what that may become.
    pub(super) fn index_bytes(&self) -> [usize; 2] {
        [self.held.by_age.len(), self.slots].map(|records| records * Held::RECORD_BYTES)
    }

    /// Writes a log beside the old one and then in its place, so that there is one at any time.
    fn rewrite(&mut self) -> io::Result<()> {
        let new = match self.spare.take() {
            Some(new) => new,
            None => spare(&self.path, self.slots)?,
        };
        let entries = write(&new, self.shape, &self.held.records())?;
        self.file = replace(&self.path, new)?;
        self.entries = entries;
        // With the room that the old one gave back.
        match spare(&self.path, self.slots) {
            Ok(spare) => self.spare = Some(spare),
            Err(error) => tracing::warn!(path = %self.path.display(), %error, "there is no room for the next log yet"),
        }
        Ok(())
    }
}

/// Returns the log's bytes at most, of a tier with so many slots: its head, and an entry more than [`OVERRULED_MAX`]
/// beyond the slots.
fn bytes_max(slots: usize) -> u64 {
    (log::HEAD + (slots + OVERRULED_MAX + 1) * log::ENTRY) as u64
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// An empty file beside the log, with room for all that the next log may become.
fn spare(path: &Path, slots: usize) -> io::Result<File> {
    let file = File::from(open_own_file(&beside(path), OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?);
    match fallocate(&file, FallocateFlags::KEEP_SIZE, 0, bytes_max(slots)) {
        // Room that was not taken beforehand may be missing later; the write that finds it missing fails.
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(file),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes a whole log into the empty file. Its entries.
fn write(file: &File, shape: u64, records: &[TierRecord]) -> io::Result<usize> {
    let mut bytes = log::head(shape).to_vec();
    records.iter().for_each(|record| bytes.extend_from_slice(&log::entry(record)));
    file.write_all_at(&bytes, 0)?;
    Ok(records.len())
}

/// The file beside the log is the log from now on.
fn replace(path: &Path, new: File) -> io::Result<File> {
    fs::rename(beside(path), path)?;
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Tenant;
    use kv_manager::tiers::{Tier, TierConfig, WritePolicy};
    use kv_manager::{EvictionPolicy, GroupConfig, KvConfig, KvManager, Quotas, Watermarks};

    /// Returns the record of this name in that slot, whose tenant follows from the name.
    fn record(at: u32, name: u32) -> TierRecord {
        let mut hash = [0; 16];
        hash[..4].copy_from_slice(&name.to_le_bytes());
        TierRecord { slot: slot(at), hash: BlockHash(hash), tenant: Tenant(7 * name) }
    }

    fn slot(slot: u32) -> Slot {
        Slot { group: GroupId(0), slot }
    }

    #[test]
    fn a_log_that_is_removed_is_told_and_written_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut log, _) = LogFile::open(folder.path().join("log"), 7, 4).expect("it opens");
        log.append(record(0, 1)).expect("it is written");
        assert!(!log.is_told);
        fs::remove_dir_all(folder.path()).expect("it is removed");
        for name in 2..4 {
            log.append(record(0, name)).expect("it is written");
            assert!(log.is_told, "once, at the next record");
        }
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

    fn open(path: &Path) -> (LogFile, Vec<TierRecord>) {
        let (log, replay) = LogFile::open(path.to_owned(), 7, 4).expect("it opens");
        (log, replay.records)
    }

    /// Rewriting keeps the order of writes, and an identity is where it was written last, whichever slot has the
    /// higher number.
    #[test]
    fn a_log_that_is_written_anew_says_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let (mut log, _) = open(&path);
        // Identity 1 moves from slot 3 to slot 0, which are written in an order that is not theirs.
        let last = [record(2, 5), record(0, 1), record(1, 4)];
        for one in [record(3, 1), record(1, 2)].into_iter().chain(last) {
            log.append(one).expect("it is written");
        }
        let entries = log.entries;
        log.rewrite().expect("it is written");
        assert!(log.entries < entries && log.spare.is_some());
        assert_eq!(log::replay(&fs::read(&path).expect("it is there"), 7).records, last);
        drop(log);
        let (_, records) = open(&path);
        assert_eq!(records, last);
    }

    #[test]
    fn what_could_not_be_noted_is_not_held_and_what_follows_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let (mut log, _) = open(&path);
        log.append(record(0, 1)).expect("it is written");
        // Of a write that failed, a part may be there.
        let good = std::mem::replace(&mut log.file, File::open(&path).expect("it is there"));
        log.append(record(1, 2)).expect_err("it is open for reading alone");
        good.write_all_at(&log::entry(&record(1, 2))[..7], fs::metadata(&path).expect("it is there").len())
            .expect("it is written");
        log.file = good;
        log.append(record(2, 3)).expect("it is written");
        let expected = [record(0, 1), record(2, 3)];
        assert_eq!(log.held.records(), expected);
        drop(log);
        assert_eq!(open(&path).1, expected);
    }

    #[test]
    fn the_room_of_a_log_and_of_the_next_one_is_taken_beforehand() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let (mut log, _) = open(&path);
        for _ in 0..2 {
            for path in [path.clone(), beside(&path)] {
                let taken = fs::metadata(&path).expect("it is there").blocks() * 512;
                assert!(taken >= bytes_max(4), "{taken} bytes of {}", path.display());
            }
            log.rewrite().expect("it is written");
        }
    }

    /// Reads back the log of a large disk, whose every slot was written twice, whole and in its order. Prints the time,
    /// for docs/performance/lab/tiers.md.
    #[test]
    fn a_log_of_many_records_is_known_again() {
        const RECORDS: u32 = 200_000;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let last: Vec<_> = (0..RECORDS).map(|n| record((n * 7919 + 13) % RECORDS, RECORDS + n)).collect();
        let mut bytes = log::head(7).to_vec();
        let entries = (0..RECORDS).map(|n| record(n, n)).chain(last.iter().copied());
        entries.for_each(|record| bytes.extend_from_slice(&log::entry(&record)));
        fs::write(&path, bytes).expect("it is written");
        let begun = crate::mover_thread::now();
        let (log, replay) = LogFile::open(path, 7, RECORDS as usize).expect("it opens");
        let opened = crate::mover_thread::now().duration_since(begun);
        assert!(replay.records == last && log.entries == last.len(), "{} records", replay.records.len());
        let size = TierConfig { slots: vec![RECORDS], writes_max: 1, backlog_max: 1, write: WritePolicy::Never };
        let mut kv = KvManager::new(KvConfig {
            block_tokens: 16,
            chunk_tokens: 16,
            groups: vec![GroupConfig { blocks: 4, reserve_blocks: 0, window: None }],
            eviction: EvictionPolicy::Lru,
            watermarks: Watermarks::default(),
            pinned_percent: 0,
            quotas: Quotas::default(),
            park_after: None,
            answers_max: 1,
            leases_max: 1,
        });
        let begun = crate::mover_thread::now();
        kv.add_tier(Tier::Disk, size, &replay.records);
        let known = crate::mover_thread::now().duration_since(begun);
        assert_eq!(kv.tier_records().next(), Some((Tier::Disk, GroupId(0), RECORDS as usize)));
        println!("{RECORDS} records: log {opened:?}, index {known:?}");
    }
}
