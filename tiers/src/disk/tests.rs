//! A tier over real files, asked as a worker asks it.

use super::*;
use crate::rig::{Rig, TENANT, block, encoded, hash, key, layout, pools, slot};
use domain::Encoding;
use kv_manager::tiers::ReadEnd;
use kv_manager::tiers::header::HEADER;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use tempfile::TempDir;
use transport::Failure;

pub(super) fn config(folder: &TempDir) -> DiskConfig {
    let folders = ["one", "two"].map(|name| folder.path().join(name)).to_vec();
    DiskConfig {
        name: "test".to_owned(),
        worker: WorkerId(1),
        weights: [1; 32],
        folders,
        bytes: 1 << 20,
        write: WritePolicy::Through,
        depth: 4,
    }
}

/// With the records that it held.
pub(super) fn open(config: &DiskConfig) -> Result<(Rig, Vec<TierRecord>), DiskError> {
    open_in(config, Encoding::Exact)
}

/// Returns the folder of the tier's model and version in this one of its folders.
pub(super) fn home(folder: &Path) -> PathBuf {
    home_in(folder, Encoding::Exact)
}

fn home_in(folder: &Path, encoding: Encoding) -> PathBuf {
    folder.join(ModelKey::of(&encoded(encoding), &[1; 32]).joined('-'))
}

fn open_in(config: &DiskConfig, encoding: Encoding) -> Result<(Rig, Vec<TierRecord>), DiskError> {
    let (sink, ends) = channel();
    let (pools, lent) = pools();
    let mut parts = over(config, &encoded(encoding), lent, &Failure::new(), move |end| drop(sink.send(end)))?;
    let records = std::mem::take(&mut parts.records);
    Ok((Rig::new(parts, ends, pools), records))
}

#[test]
fn records_come_back_as_they_were_in_this_life_and_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&folder);
    let (mut rig, records) = open(&config).expect("it opens");
    assert_eq!(records, []);
    rig.check_what_is_written_comes_back();
    let written: Vec<_> = (0..2).map(|group| rig.bytes(block(group, 1)).to_vec()).collect();
    drop(rig);
    let (mut rig, records) = open(&config).expect("it opens again");
    let written_to = |group| TierRecord { slot: slot(group, 3), hash: hash(5), tenant: TENANT };
    assert_eq!(records, [0, 1].map(written_to));
    for group in 0..2 {
        assert_eq!(rig.read(slot(group, 3), block(group, 0), hash(5)), ReadEnd::Good);
        assert_eq!(rig.bytes(block(group, 0)), written[usize::from(group)]);
    }
}

/// In less room; and only a worker with the same encoding finds it.
#[test]
fn encoded_records_come_back_as_that_has_it_in_this_life_and_the_next() {
    for (encoding, other) in [(Encoding::Int8, Encoding::Fp8), (Encoding::Fp8, Encoding::Exact)] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(&folder);
        let exact = open(&config).expect("it opens").0.slots;
        let (mut rig, records) = open_in(&config, encoding).expect("it opens");
        assert_eq!(records, []);
        assert!(rig.slots > exact * 4 / 3, "{} slots in place of {exact}", rig.slots);
        rig.check_what_is_encoded_comes_back(encoding);
        let read: Vec<_> = (0..2).map(|group| rig.bytes(block(group, 2)).to_vec()).collect();
        drop(rig);
        let (mut rig, records) = open_in(&config, encoding).expect("it opens again");
        let written_to = |group| TierRecord { slot: slot(group, 3), hash: hash(5), tenant: TENANT };
        assert_eq!(records, [0, 1].map(written_to));
        for group in 0..2 {
            assert_eq!(rig.read(slot(group, 3), block(group, 0), hash(5)), ReadEnd::Good);
            assert_eq!(rig.bytes(block(group, 0)), read[usize::from(group)]);
        }
        drop(rig);
        // Though it lies there: records of both encodings of a byte are of one size.
        for folder in &config.folders {
            std::fs::remove_dir_all(home_in(folder, other)).or_else(may_be_missing).expect("it can be removed");
            std::fs::rename(home_in(folder, encoding), home_in(folder, other)).expect("it can be called so");
        }
        let (mut rig, records) = open_in(&config, other).expect("it opens");
        assert_eq!(records, [], "of {encoding}, found by {other}");
        assert_eq!(rig.read(slot(0, 3), block(0, 0), hash(5)), ReadEnd::Wrong);
        assert!(rig.bytes(block(0, 0)).iter().all(|&byte| byte == 0), "what is wrong got into a block");
    }
}

fn may_be_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Any bit of a record or its header.
#[test]
fn a_flipped_bit_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    // One folder, so that the place of a slot in the file is known.
    let config = DiskConfig { folders: vec![folder.path().join("one")], ..config(&folder) };
    let (mut rig, _) = open(&config).expect("it opens");
    rig.bytes(block(0, 1)).fill(9);
    assert!(rig.write(slot(0, 0), block(0, 1), hash(1)));
    let file =
        File::options().read(true).write(true).open(home(&config.folders[0]).join("records")).expect("it is there");
    let len = layout().record_bytes(0) as u64;
    for at in (0..HEADER as u64).chain([FILE_ALIGN, FILE_ALIGN + 1, FILE_ALIGN + len / 2, FILE_ALIGN + len - 1]) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("it is inside");
        file.write_all_at(&[byte[0] ^ 0x40], at).expect("it is inside");
        assert_eq!(rig.read(slot(0, 0), block(0, 2), hash(1)), ReadEnd::Wrong, "byte {at}");
        file.write_all_at(&byte, at).expect("it is inside");
    }
    assert_eq!(rig.read(slot(0, 0), block(0, 2), hash(1)), ReadEnd::Good);
}

#[test]
fn a_folder_is_one_tiers_alone_and_too_little_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&folder);
    let rig = open(&config).expect("it opens");
    assert!(matches!(open(&config), Err(DiskError::InUse { .. })));
    drop(rig);
    assert!(open(&config).is_ok());
    let small = DiskConfig { bytes: 4096, ..config };
    assert!(matches!(open(&small), Err(DiskError::TooSmall { .. })));
}

/// Files that were cut short behind its back: every move fails, and after a few the tier says that it is off, once.
#[test]
fn its_files_are_its_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&folder);
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    for loosened in [false, true] {
        if loosened {
            for folder in &config.folders {
                std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).expect("it is ours");
                std::fs::set_permissions(home(folder).join("records"), PermissionsExt::from_mode(0o644))
                    .expect("it is ours");
            }
        }
        let _open = open(&config).expect("it opens");
        for (at, folder) in config.folders.iter().enumerate() {
            assert_eq!((mode(folder), mode(&home(folder)), mode(&folder.join("lock"))), (0o700, 0o700, 0o600));
            let of_first: &[&str] = if at == 0 { &["log", "log.new"] } else { &[] };
            for file in ["records"].iter().chain(of_first) {
                assert_eq!(mode(&home(folder).join(file)), 0o600, "{file}");
            }
        }
    }
    // A link is not followed, wherever it leads.
    let log = home(&config.folders[0]).join("log");
    std::fs::remove_file(&log).expect("it is there");
    std::os::unix::fs::symlink("/dev/null", log).expect("links can be made");
    let refused = open(&config).map(drop).expect_err("it is a link").to_string();
    assert!(refused.contains("log: it is a link"), "{refused}");
}

#[test]
fn a_disk_that_fails_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&folder);
    let (mut rig, _) = open(&config).expect("it opens");
    for path in &config.folders {
        File::options()
            .write(true)
            .open(home(path).join("records"))
            .and_then(|file| file.set_len(0))
            .expect("it can be cut");
    }
    let (mut off, mut failed) = (0, 0);
    for _ in 0..20 {
        rig.ask(slot(0, 1), block(0, 0), hash(1), 0);
        loop {
            match rig.ended() {
                TierEvent::Off { .. } => off += 1,
                TierEvent::Read { end: ReadEnd::Failed, .. } => break failed += 1,
                TierEvent::Read { end, .. } => break assert_eq!((end, off), (ReadEnd::Unread, 1)),
                end => panic!("{end:?}"),
            }
        }
    }
    assert_eq!((off, failed), (1, Files::FAILURES_MAX - 1), "the last is the disk's fault, and no record's");
}

#[test]
fn reads_that_are_cancelled_end_each_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut rig, _) = open(&config(&folder)).expect("it opens");
    assert!(rig.write(slot(0, 0), block(0, 1), hash(1)));
    for number in 0..500 {
        rig.ask(slot(0, 0), block(0, 2), hash(1), number);
    }
    rig.mover.cancel(key());
    let (mut numbers, mut abandoned, mut settled) = (BTreeSet::new(), 0, 0);
    while numbers.len() < 500 {
        match rig.ended() {
            TierEvent::Read { read, end, .. } => {
                assert!(numbers.insert(read.number), "it ended twice");
                abandoned += usize::from(end == ReadEnd::Abandoned);
                assert!(matches!(end, ReadEnd::Good | ReadEnd::Unread | ReadEnd::Abandoned), "{end:?}");
            }
            TierEvent::Settled { .. } => settled += 1,
            end => panic!("{end:?}"),
        }
    }
    while settled < abandoned {
        assert!(matches!(rig.ended(), TierEvent::Settled { .. }), "something ended twice");
        settled += 1;
    }
    assert!(rig.ends.try_recv().is_err(), "something ended twice");
}

/// What lies in the files is of the folders that it was written to, in their order: with others every record would
/// be read from elsewhere.
#[test]
fn folders_that_are_others_or_in_another_order_hold_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = config(&folder);
    let (mut rig, _) = open(&written).expect("it opens");
    assert!(rig.write(slot(0, 0), block(0, 1), hash(1)));
    drop(rig);
    let (first, second) = (written.folders[0].clone(), written.folders[1].clone());
    // A slot has the same number in all of them, for the size is the same.
    for folders in [vec![first.clone(), second.clone(), folder.path().join("three")], vec![first.clone()]] {
        let log = std::fs::read(home(&first).join("log")).expect("it is there");
        let (_, records) = open(&DiskConfig { folders: folders.clone(), ..written.clone() }).expect("it opens");
        assert_eq!(records, [], "{folders:?}");
        std::fs::write(home(&first).join("log"), log).expect("it is written");
        assert_eq!(open(&written).expect("it opens").1.len(), 1, "with the folders that it was written to");
    }
    std::fs::copy(home(&first).join("log"), home(&second).join("log")).expect("it is copied");
    let (_, records) = open(&DiskConfig { folders: vec![second, first], ..written }).expect("it opens");
    assert_eq!(records, [], "in another order");
}

/// Of the same layout: nobody would ask for a record of theirs, for identities are of a model.
#[test]
fn what_was_written_with_other_weights_is_not_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = config(&folder);
    let (mut rig, _) = open(&written).expect("it opens");
    assert!(rig.write(slot(0, 0), block(0, 1), hash(1)));
    drop(rig);
    assert_eq!(open(&written).expect("it opens").1.len(), 1);
    let other = DiskConfig { weights: [2; 32], ..written.clone() };
    assert_eq!(open(&other).expect("it opens").1, []);
    assert_eq!(open(&written).expect("it opens").1.len(), 1, "the other one left it alone");
}

/// Returns all files below a folder, with their bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.insert(path.clone(), std::fs::read(path).expect("it can be read"));
        }
    }
    all
}

/// What an earlier version, another model and another encoding wrote stays as it is, is found with its bytes, and is
/// gone after the command that is told. What is nobody's stays, too.
#[test]
fn what_is_of_others_is_left_alone_until_the_command_that_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&folder);
    let (own, first) = (ModelKey::of(&layout(), &[1; 32]).joined('-'), &config.folders[0]);
    drop(open_in(&config, Encoding::Int8).expect("it opens"));
    for (name, bytes) in [("records", 70_000), ("log", 5000), ("log.new", 1), ("it's mine.txt", 9)] {
        std::fs::write(first.join(name), vec![7; bytes]).expect("it is written");
    }
    let before = files(folder.path());
    let (mut rig, records) = open(&config).expect("it opens");
    assert_eq!(records, []);
    rig.check_what_is_written_comes_back();
    drop(rig);
    let mut after = files(folder.path());
    after.retain(|path, _| !path.starts_with(home(first)) && !path.starts_with(home(&config.folders[1])));
    assert_eq!(before, after, "byte for byte");

    let found = leftovers::find(&config.folders, &own);
    let told = |at: usize| (found[at].paths.clone(), found[at].bytes);
    let version_1 = ["log", "log.new", "records"].map(|name| first.join(name)).to_vec();
    assert_eq!(found.len(), 3);
    assert_eq!(told(0).0, [home_in(first, Encoding::Int8)]);
    assert_eq!(told(1).0, version_1);
    assert!((75_001..200_000).contains(&told(1).1), "{} bytes", told(1).1);
    assert!(told(2).1 >= 1 << 19, "half of the records are in the second folder");
    for leftover in found {
        let removal = leftover.removal();
        let ran = std::process::Command::new("sh").args(["-c", &removal]).status().expect("it runs");
        assert!(ran.success(), "{removal}");
    }
    assert_eq!(leftovers::find(&config.folders, &own), []);
    assert!(first.join("it's mine.txt").exists());
    assert_eq!(open(&config).expect("it opens").1.len(), 2, "the tier's own records are still there");
}

#[test]
fn what_a_device_does_wrong_is_told_from_what_settings_do() {
    let system = |source| DiskError::System { path: PathBuf::from("one"), source };
    for errno in [Errno::IO, Errno::NOSPC, Errno::ROFS, Errno::NODEV] {
        assert!(system(errno.into()).is_of_a_device(), "{errno}");
    }
    let told = |errno: Errno| io::Error::new(io::Error::from(errno).kind(), "one/records: told with its path");
    for errno in [Errno::IO, Errno::ROFS] {
        assert!(system(told(errno)).is_of_a_device(), "{errno}, told");
    }
    for error in [Errno::NOENT.into(), Errno::ACCESS.into(), Errno::INVAL.into(), told(Errno::NOSPC)] {
        let error = system(error);
        assert!(!error.is_of_a_device(), "{error}");
    }
    let folder = PathBuf::from("one");
    assert!(!DiskError::InUse { folder }.is_of_a_device());
    assert!(!DiskError::TooSmall { bytes: 1, slots: 0, each: 2 }.is_of_a_device());
}
