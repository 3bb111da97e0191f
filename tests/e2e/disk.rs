//! The disk tier: what left the device comes back from disk, over kills and restarts, and never wrong. The text is
//! always that of a server without one.

use crate::asks::{Ask, Said};
use crate::models::Folder;
use crate::server::{Server, baton, drained, until};
use serde_json::json;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Conversations, together several times what the device holds.
pub(crate) const ASKS: u32 = 12;
pub(crate) const TOKENS: u32 = 300;
/// Tokens of a block of the bundled model.
pub(crate) const BLOCK_TOKENS: u32 = 32;
/// Prompt tokens that at least one of them loads: where the disk turns out to be slower than computing, the others
/// do not.
pub(crate) const LOADED_MIN: u64 = 256;

/// A device with too few blocks for two of the prompts together.
pub(crate) const SMALL: (&str, &str) = ("BATON_KV__DEVICE_BYTES", "2MiB");

pub(crate) fn asks() -> Vec<Ask> {
    let prompt = |ask: u32| (0..TOKENS).map(|n| 300 + (n * (ask + 3)) % 1500).collect::<Vec<_>>();
    let ask = |n| Ask::completion("tiny-rust", json!(prompt(n)), json!({ "temperature": 0, "max_tokens": 12 }));
    (0..ASKS).map(ask).collect()
}

/// What a server without a disk tier says.
pub(crate) fn expected(flags: &[&str]) -> Vec<Said> {
    let server = Server::start(flags);
    asks().iter().map(|ask| ask.whole(&server).0).collect()
}

fn start(flags: &[&str], folder: &Folder, write: &str) -> Server {
    let folders = folder.path("tier");
    std::fs::create_dir_all(&folders).expect("a folder for the tier");
    let environment = [
        SMALL,
        ("BATON_DISK__FOLDERS", folders.as_str()),
        ("BATON_DISK__BYTES", "64MiB"),
        ("BATON_DISK__WRITE", write),
        ("BATON_PLACEMENT__HANDOFF", "always"),
    ];
    Server::start_with(flags, &environment)
}

/// Asks everything and compares; the prompt tokens that were in a cache.
pub(crate) fn round(server: &Server, expected: &[Said]) -> u64 {
    let heard = |(ask, expected): (Ask, &Said)| {
        let (said, cached) = ask.whole(server);
        assert_eq!(&said, expected, "{ask:?}");
        cached
    };
    asks().into_iter().zip(expected).map(heard).sum()
}

/// Asks everything for the first time, and compares; each prompt once the disk, which is given all that is
/// computed, has the one before it. What is not written when the device needs its room is given up.
pub(crate) fn fill(server: &Server, expected: &[Said]) {
    for (before, (ask, expected)) in (0..).zip(asks().iter().zip(expected)) {
        let (said, cached) = ask.whole(server);
        assert_eq!((&said, cached), (expected, 0), "{ask:?}");
        let blocks = f64::from((before + 1) * (TOKENS / BLOCK_TOKENS));
        until("its blocks to be written", || (moved(server, "written") >= blocks).then_some(()));
    }
}

fn moved(server: &Server, result: &str) -> f64 {
    server.metrics().sum("baton_tier_moves_total", &[("tier", "disk"), ("result", result)])
}

/// The files with the records of all workers.
fn records(folder: &Folder) -> Vec<PathBuf> {
    let tier = folder.path("tier");
    let inside = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("it can be read").path());
        entries.filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let workers = inside(Path::new(&tier));
    workers.iter().flat_map(|worker| inside(worker)).map(|home| home.join("records")).collect()
}

#[test]
fn what_left_the_device_comes_back_over_kills_and_flipped_bits() {
    let flags = ["--prefill", "0"];
    let (expected, folder) = (expected(&flags), Folder::new("disk"));
    let server = start(&flags, &folder, "through");
    fill(&server, &expected);
    // All records have one size.
    let wear = || server.metrics().sum("baton_tier_wear_ratio", &[("tier", "disk")]);
    until("wear though nothing was read", || {
        (moved(&server, "read") == 0.0 && wear() == moved(&server, "written")).then_some(())
    });
    let cached = round(&server, &expected);
    assert!(cached >= LOADED_MIN, "{cached} prompt tokens were cached");
    until("reads from disk", || (moved(&server, "read") > 0.0).then_some(()));
    let evicted = server.metrics().sum("baton_kv_evictions_total", &[]);
    assert!(evicted > 0.0, "everything fitted the device: this shows nothing");
    let mover = |state| server.metrics().sum("baton_tier_mover", &[("tier", "disk"), ("state", state)]);
    assert_eq!(mover("io_uring") + mover("threads"), 1.0, "the worker says by which way it moves files");
    assert_eq!(mover("broken"), 0.0);
    let metrics = server.settled();
    let router = ["baton_router_index_blocks", "baton_router_index_bytes"].map(|name| (name, None));
    let worker = ["device", "disk", "log"].map(|index| ("baton_index_bytes", Some(("index", index))));
    for (name, index) in router.into_iter().chain(worker) {
        let of = |kind| metrics.sum(name, &index.into_iter().chain([("kind", kind)]).collect::<Vec<_>>());
        let (used, budget) = (of("used"), of("budget"));
        assert!(0.0 < used && used <= budget, "{name} {index:?}: {used} of {budget}");
    }

    // What was written is there after a kill.
    drop(server);
    let server = start(&flags, &folder, "through");
    let cached = round(&server, &expected);
    assert!(cached >= LOADED_MIN, "{cached} prompt tokens were cached after a restart");
    server.settled();

    // A bit in every page is another: nothing of it is used.
    drop(server);
    for path in records(&folder) {
        let file = fs::File::options().read(true).write(true).open(&path).expect("it is there");
        let len = file.metadata().expect("it is there").len();
        for at in (0..len).step_by(4096) {
            let (at, mut byte) = (at + at / 4096 * 37 % 4096, [0]);
            file.read_exact_at(&mut byte, at).expect("it is inside");
            file.write_all_at(&[byte[0] ^ 0x10], at).expect("it is inside");
        }
    }
    let server = start(&flags, &folder, "through");
    let cached = round(&server, &expected);
    until("wrong records", || (moved(&server, "corrupt") >= f64::from(ASKS)).then_some(()));
    assert_eq!(cached, 0, "prompt tokens came from records that are wrong");
    server.settled();
}

#[test]
fn a_second_use_is_written_and_prefill_workers_load_as_well() {
    let flags = ["--prefill", "1", "--decode", "1"];
    let (expected, folder) = (expected(&flags), Folder::new("disk-second"));
    let server = start(&flags, &folder, "second-use");
    assert_eq!(round(&server, &expected), 0);
    server.settled();
    assert_eq!(moved(&server, "written"), 0.0, "what was used once is written");
    // They are computed again, which is their second use, and then they are there.
    round(&server, &expected);
    until("writes", || (moved(&server, "written") > 0.0).then_some(()));
    server.settled();
    let cached = round(&server, &expected);
    assert!(cached > 0, "nothing came back from disk");
    until("reads from disk", || (moved(&server, "read") > 0.0).then_some(()));
    server.settled();
}

fn is_open(server: &Server) -> bool {
    server.metrics().sum("baton_tier_open", &[("tier", "disk")]) > 0.0
}

/// Its files are cut again and again behind its back, while it is asked: reads fail, or bring what was never written.
#[test]
fn a_disk_that_fails_under_load_costs_no_answer() {
    let flags = ["--prefill", "0"];
    let (expected, folder) = (expected(&flags), Folder::new("disk-fails"));
    let server = start(&flags, &folder, "through");
    round(&server, &expected);
    until("writes", || (moved(&server, "written") >= f64::from(ASKS)).then_some(()));
    let wrong = || ["corrupt", "failed"].iter().map(|result| moved(&server, result)).sum::<f64>() > 0.0;
    until("the disk to fail", || {
        for path in records(&folder) {
            let file = fs::File::options().write(true).open(&path).expect("it is there");
            file.set_len(0).expect("it can be cut");
        }
        round(&server, &expected);
        (!is_open(&server) || wrong()).then_some(())
    });
    round(&server, &expected);
    server.settled();
}

/// A device that fails when the service starts is as one that fails later: the service goes on without it, and says so.
#[test]
fn a_service_starts_without_a_disk_that_fails() {
    let flags = ["--prefill", "0"];
    let (expected, folder) = (expected(&flags), Folder::new("disk-dead"));
    let server = start(&flags, &folder, "through");
    round(&server, &expected);
    assert!(is_open(&server));
    drop(server);
    for path in records(&folder) {
        // The next log cannot be opened there: of a socket the system says that there is no such device.
        fs::remove_file(path.with_file_name("log.new")).expect("it is there");
        let folder = fs::File::open(path.parent().expect("it is in a folder")).expect("it is there");
        // Names of sockets are short.
        let next = format!("/proc/self/fd/{}/log.new", folder.as_raw_fd());
        drop(UnixListener::bind(next).expect("it can be made"));
    }
    let server = start(&flags, &folder, "through");
    assert!(!is_open(&server), "a tier is relied on that could not be opened");
    assert!(server.log().contains("a tier is off"), "{}", server.log());
    assert_eq!(round(&server, &expected), 0);
    round(&server, &expected);
    server.settled();
}

/// A folder that release 0.2.0 wrote: it stays as it is, is told with its bytes, and the command that is told removes
/// it.
#[test]
fn what_an_earlier_version_wrote_is_left_alone_and_told() {
    let flags = ["--prefill", "0"];
    let (expected, folder) = (expected(&flags), Folder::new("disk-version-1"));
    drop(start(&flags, &folder, "through"));
    let home = records(&folder).pop().expect("a worker has made its folder");
    let home = home.parent().expect("they are in a folder");
    let worker = home.parent().expect("that is in a worker's");
    fs::remove_dir_all(home).expect("it is there");
    // As that release writes them: they begin so, and what follows is its own.
    let files = [("records", b"BTNKVREC".as_slice(), 1 << 20), ("log", b"BTNKVLOG", 32), ("log.new", b"", 0)];
    let content = |begin: &[u8], len: usize| [begin, &vec![0x5A; len - begin.len()]].concat();
    for (name, begin, len) in files {
        fs::write(worker.join(name), content(begin, len)).expect("it is written");
    }
    let taken = |name: &str| fs::metadata(worker.join(name)).expect("it is there").blocks() * 512;
    let bytes: u64 = files.iter().map(|(name, ..)| taken(name)).sum();
    let left = |server: &Server| server.metrics().sum("baton_tier_leftover_bytes", &[("tier", "disk")]);

    let server = start(&flags, &folder, "through");
    round(&server, &expected);
    for (name, begin, len) in files {
        assert!(fs::read(worker.join(name)).expect("it is there") == content(begin, len), "{name} is another");
    }
    assert_eq!(left(&server), bytes as f64);
    let log = server.log();
    let told = log.lines().find(|line| line.contains("records of another model")).expect("it is told");
    assert!(told.contains(&format!(" bytes={bytes} ")), "{told}");
    let (_, command) = told.split_once(" command=").expect("with a command");
    drop(server);
    let ran = Command::new("sh").args(["-c", command]).status().expect("it runs");
    assert!(ran.success(), "{command}");
    assert!(files.iter().all(|(name, ..)| !worker.join(name).exists()), "{command}");

    let server = start(&flags, &folder, "through");
    assert_eq!(left(&server), 0.0);
    assert!(!server.log().contains("records of another model"));
    server.settled();
}

#[test]
fn a_tier_is_one_workers_alone_and_wrong_settings_are_told() {
    let folder = Folder::new("disk-alone");
    let _first = start(&["--prefill", "0"], &folder, "through");
    let tier = folder.path("tier");
    let refused = |settings: &[(&str, &str)]| {
        let mut command = baton(&["serve", "--prefill", "0", "--listen", "127.0.0.1:0"]);
        let mut child = command.envs(settings.iter().copied()).spawn().expect("it starts");
        assert_eq!(crate::server::ended(&mut child).code(), Some(1));
        drained(child.stderr.take())
    };
    let (folders, bytes) = ("BATON_DISK__FOLDERS", "BATON_DISK__BYTES");
    let said = refused(&[(folders, &tier), (bytes, "64MiB")]);
    assert!(said.contains("disk.folders") && said.contains("used by another process"), "{said}");
    let other = folder.path("other");
    let said = refused(&[(folders, &other), (bytes, "64MiB")]);
    assert!(said.contains("disk.folders: there is no folder"), "{said}");
    std::fs::create_dir(&other).expect("a folder");
    let said = refused(&[(folders, &other), (bytes, "50TiB")]);
    assert!(said.contains("disk.bytes") && said.contains("free"), "{said}");
    let said = refused(&[(folders, &other), (bytes, "1KiB")]);
    assert!(said.contains("disk.bytes") && said.contains("give it"), "{said}");
    let said = refused(&[(folders, "/proc/none"), (bytes, "64MiB")]);
    assert!(said.contains("disk.folders") && said.contains("/proc/none"), "{said}");
}
