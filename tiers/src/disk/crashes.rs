//! Files as a kill leaves them, at every boundary of what a tier writes: what is found in them is right, or it is
//! not found; and what is written from there on is found by the next life.

use super::tests::{config, home, open};
use super::*;
use crate::rig::{Rig, TENANT, block, hash, layout, slot};
use kv_manager::tiers::log::{ENTRY, HEAD};
use kv_manager::tiers::{ReadEnd, Slot};
use std::fs::File;
use std::os::unix::fs::FileExt;
use tempfile::TempDir;

/// What is written, in this order: slots that get another record, and an identity that moves to another slot.
const WRITES: [(u16, u32, u8); 9] =
    [(0, 0, 1), (1, 3, 2), (0, 1, 3), (0, 0, 4), (1, 0, 5), (1, 3, 6), (0, 2, 1), (0, 5, 7), (1, 1, 5)];
/// What each life writes in the end.
const NEXT: (u16, u32, u8) = (0, 7, 99);

/// A tier's only folder, and what was in it when its worker was killed.
struct Crash {
    config: DiskConfig,
    log: Vec<u8>,
    records: Vec<u8>,
    _folder: TempDir,
}

/// The byte of a record at `at`, which no other record has in the same place.
fn byte(group: u16, name: u8, at: usize) -> u8 {
    name ^ (at * 31 + usize::from(group)) as u8
}

fn fill(rig: &Rig, group: u16, name: u8) {
    for (at, to) in rig.bytes(block(group, 0)).iter_mut().enumerate() {
        *to = byte(group, name, at);
    }
}

fn put(rig: &mut Rig, (group, at, name): (u16, u32, u8)) {
    fill(rig, group, name);
    assert!(rig.write(slot(group, at), block(group, 0), hash(name)), "{name} is written");
}

impl Crash {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = DiskConfig { folders: vec![folder.path().join("one")], ..config(&folder) };
        let (mut rig, _) = open(&config).expect("it opens");
        WRITES.iter().for_each(|&write| put(&mut rig, write));
        drop(rig);
        let read = |name: &str| std::fs::read(home(&config.folders[0]).join(name)).expect("it is there");
        Self { log: read("log"), records: read("records"), config, _folder: folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        home(&self.config.folders[0]).join(name)
    }

    /// Opens the tier over this log and these records. Each record that it says it has is the right one, or is
    /// found to be wrong. How many are right. What is written then is right in the next life, with all that was
    /// right before.
    #[track_caller]
    fn check(&self, log: &[u8], records: &[u8], what: &str) -> usize {
        for (name, bytes) in [("log", log), ("records", records)] {
            std::fs::write(self.path(name), bytes).expect("it is written");
        }
        let (mut rig, held) = open(&self.config).expect("it opens");
        let good = Self::good(&mut rig, &held, what);
        put(&mut rig, NEXT);
        drop(rig);
        let (mut rig, held) = open(&self.config).expect("it opens again");
        let (group, at, _) = NEXT;
        let mut expected = good.clone();
        expected.retain(|of| *of != slot(group, at));
        expected.push(slot(group, at));
        assert_eq!(Self::good(&mut rig, &held, what), expected, "{what}, in the next life");
        good.len()
    }

    /// The slots whose records are right.
    #[track_caller]
    fn good(rig: &mut Rig, held: &[TierRecord], what: &str) -> Vec<Slot> {
        let mut good = Vec::new();
        for &TierRecord { slot, hash, tenant } in held {
            assert_eq!(tenant, TENANT, "{what}");
            let (group, name) = (slot.group.0, hash.0[0]);
            let to = block(group, 1);
            rig.bytes(to).fill(0);
            match rig.read(slot, to, hash) {
                ReadEnd::Good => {
                    let is_right = rig.bytes(to).iter().enumerate().all(|(at, &found)| found == byte(group, name, at));
                    assert!(is_right, "{what}: {slot:?} has other bytes than record {name}");
                    good.push(slot);
                }
                end => assert_eq!(end, ReadEnd::Wrong, "{what}"),
            }
        }
        good
    }
}

/// The log's end is missing from the middle of any entry on: its record is not known, and none before it is lost.
#[test]
fn a_log_that_was_cut_names_what_is_there() {
    let crash = Crash::new();
    let all = crash.check(&crash.log, &crash.records, "nothing is missing");
    // Of nine writes, two were overruled by their slot and one by its identity.
    assert_eq!(all, 6);
    let mut before = 0;
    for entry in 0..=WRITES.len() {
        let begin = HEAD + entry * ENTRY;
        for cut in [begin, begin + 1, begin + ENTRY / 2, begin + ENTRY - 1] {
            if cut > crash.log.len() {
                continue;
            }
            let good = crash.check(&crash.log[..cut], &crash.records, &format!("the log ends at {cut}"));
            assert!(good >= before, "{good} of {before} records are found in a log of {cut} bytes");
            before = good;
        }
    }
    for cut in [0, 1, HEAD - 1] {
        assert_eq!(crash.check(&crash.log[..cut], &crash.records, "the head is cut"), 0);
    }
}

/// The last record was written over another one up to any sector, header first or last, noted or not.
#[test]
fn a_record_that_was_written_in_part_is_not_read() {
    let crash = Crash::new();
    let slots_at = SlotLayout::of(&crash.config, &layout()).expect("there is room");
    let (sector, of) = (FILE_ALIGN as usize, slot(0, 1));
    let begin = slots_at.offset(of) as usize;
    let sectors = 1 + layout().record_bytes(0).div_ceil(sector);
    // What a life that went on wrote to a slot that had another record.
    let (mut rig, _) = open(&crash.config).expect("it opens");
    put(&mut rig, (0, 1, 42));
    drop(rig);
    let read = |name: &str| std::fs::read(crash.path(name)).expect("it is there");
    let (log, new) = (read("log"), read("records"));
    for first in 0..=sectors {
        for last in first..=sectors {
            let mut records = crash.records.clone();
            let written = begin + first * sector..begin + last * sector;
            records[written.clone()].copy_from_slice(&new[written]);
            for (log, noted) in [(&crash.log, false), (&log, true)] {
                let what = format!("sectors {first} to {last} were written, noted: {noted}");
                let good = crash.check(log, &records, &what);
                // It is whole where all of it was written, or nothing.
                let is_whole = if noted { first == 0 && last == sectors } else { first == last };
                assert_eq!(good, if is_whole { 6 } else { 5 }, "{what}");
            }
        }
    }
}

/// The records end anywhere: a file that somebody cut, or that had not got all its room.
#[test]
fn records_that_end_early_are_not_read() {
    let crash = Crash::new();
    for cut in (0..crash.records.len()).step_by(5 * FILE_ALIGN as usize).take(12) {
        crash.check(&crash.log, &crash.records[..cut], &format!("the records end at {cut}"));
    }
    assert_eq!(crash.check(&crash.log, &[], "there are no records"), 0);
}

/// A kill between the next log's bytes and its name leaves the old log, which counts; one behind that leaves the
/// new one.
#[test]
fn a_log_that_was_being_written_anew_does_not_count_before_it_has_its_name() {
    let crash = Crash::new();
    let mut other = crash.log.clone();
    other.truncate(HEAD + ENTRY);
    for cut in (0..=crash.log.len()).step_by(ENTRY / 2) {
        std::fs::write(crash.path("new"), &crash.log[..cut]).expect("it is written");
        std::fs::rename(crash.path("new"), crash.path("log").with_extension("new")).expect("it is named");
        assert_eq!(crash.check(&other, &crash.records, "the next log was being written"), 0, "slot 0 was written over");
        assert_eq!(crash.check(&crash.log, &crash.records, "the next log has its name"), 6);
    }
    let len = File::open(crash.path("log")).and_then(|log| log.metadata()).expect("it is there").len();
    let mut magic = [0; 8];
    File::open(crash.path("log")).and_then(|log| log.read_exact_at(&mut magic, 0)).expect("it is there");
    assert!(len as usize > HEAD && magic == crash.log[..8], "the last life left a log");
}
