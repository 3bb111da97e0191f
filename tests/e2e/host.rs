//! The host tier, alone, above a disk, and shared by the workers of a host: what left the device comes back from
//! memory, and the text is always that of a server without tiers.

use crate::asks::{Ask, Said, check_all};
use crate::disk::{ASKS, BLOCK_TOKENS, LOADED_MIN, SMALL, TOKENS, asks, expected, fill, round};
use crate::models::Folder;
use crate::server::{Server, baton, drained, ended, until};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What comes of a prompt whose blocks are all there.
const WHOLE: u64 = (TOKENS / BLOCK_TOKENS * BLOCK_TOKENS) as u64;

fn tokens(server: &Server, tier: &str) -> f64 {
    server.metrics().sum("baton_prompt_source_tokens_sum", &[("source", tier)])
}

/// Asks each twice, the second time when another has pushed it out.
fn in_pairs(server: &Server, expected: &[Said]) {
    let asks = asks();
    for n in 0..ASKS as usize {
        for at in [n, n.saturating_sub(1)] {
            let (said, _) = asks[at].whole(server);
            assert_eq!(said, expected[at], "{:?}", asks[at]);
        }
    }
}

#[test]
fn what_left_the_device_comes_back_from_memory() {
    for (flags, write) in [(&["--prefill", "0"][..], "back"), (&["--prefill", "1", "--decode", "1"], "through")] {
        let expected = expected(flags);
        let environment = [
            SMALL,
            ("BATON_HOST__BYTES", "64MiB"),
            ("BATON_HOST__WRITE", write),
            // Each prompt alone is above the one, and goes down as a whole.
            ("BATON_KV__HIGH_PERCENT", "40"),
            ("BATON_KV__LOW_PERCENT", "0"),
            ("BATON_PLACEMENT__HANDOFF", "always"),
        ];
        let server = Server::start_with(flags, &environment);
        round(&server, &expected);
        let cached = round(&server, &expected);
        assert!(cached >= LOADED_MIN, "{cached} prompt tokens were cached");
        until("tokens from the host tier", || (tokens(&server, "host") > 0.0).then_some(()));
        let metrics = server.settled();
        assert!(metrics.sum("baton_tier_lookups_total", &[("tier", "host"), ("result", "hit")]) > 0.0);
        assert!(metrics.sum("baton_tier_bytes", &[("tier", "host")]) > 0.0);
        assert_eq!(metrics.sum("baton_tier_moves_total", &[("tier", "host"), ("result", "corrupt")]), 0.0);
    }
}

#[test]
fn an_idle_conversation_is_parked_and_goes_on_later() {
    let flags = ["--prefill", "0"];
    let expected = expected(&flags);
    let environment =
        [("BATON_HOST__BYTES", "64MiB"), ("BATON_HOST__WRITE", "back"), ("BATON_KV__PARK_IDLE_MS", "300")];
    let server = Server::start_with(&flags, &environment);
    round(&server, &expected);
    let on_device = |server: &Server| server.metrics().sum("baton_kv_blocks", &[("state", "cached")]);
    until("the device to be empty", || (on_device(&server) == 0.0).then_some(()));
    let metrics = server.metrics();
    let written = metrics.sum("baton_tier_moves_total", &[("tier", "host"), ("result", "written")]);
    assert_eq!(metrics.sum("baton_kv_parked_total", &[]), written, "all of it is in memory");
    assert_eq!(metrics.sum("baton_kv_evictions_total", &[]), 0.0);
    let cached = round(&server, &expected);
    assert!(cached >= LOADED_MIN, "{cached} prompt tokens were cached");
    until("tokens from the host tier", || (tokens(&server, "host") > 0.0).then_some(()));
    server.settled();
}

#[test]
fn memory_and_disk_serve_one_worker_together() {
    let flags = ["--prefill", "0"];
    let (expected, folder) = (expected(&flags), Folder::new("host-disk"));
    let folders = folder.path("tier");
    std::fs::create_dir(&folders).expect("a folder for the tier");
    let environment = [
        SMALL,
        // Room for a few of the prompts: the others are on disk alone.
        ("BATON_HOST__BYTES", "4MiB"),
        ("BATON_DISK__FOLDERS", folders.as_str()),
        ("BATON_DISK__BYTES", "64MiB"),
        ("BATON_DISK__WRITE", "through"),
    ];
    let server = Server::start_with(&flags, &environment);
    in_pairs(&server, &expected);
    in_pairs(&server, &expected);
    until("tokens from both", || ["host", "disk"].iter().all(|tier| tokens(&server, tier) > 0.0).then_some(()));
    let evicted = server.metrics().sum("baton_tier_moves_total", &[("tier", "host"), ("result", "evicted")]);
    assert!(evicted > 0.0, "everything fitted the host tier: this shows nothing of the disk");
    server.settled();
}

/// Prompts that wait for room on the device find in memory what was on disk alone when they came.
#[test]
fn what_prompts_that_wait_will_need_is_lifted_from_disk_to_memory() {
    let flags = ["--prefill", "0"];
    let (expected, folder) = (expected(&flags), Folder::new("host-lifts"));
    let folders = folder.path("tier");
    std::fs::create_dir(&folders).expect("a folder for the tier");
    let environment = [
        SMALL,
        ("BATON_HOST__BYTES", "64MiB"),
        // No pool is ever fuller than that: whatever lies in memory was lifted.
        ("BATON_HOST__WRITE", "back"),
        ("BATON_KV__HIGH_PERCENT", "100"),
        ("BATON_DISK__FOLDERS", folders.as_str()),
        ("BATON_DISK__BYTES", "64MiB"),
        ("BATON_DISK__WRITE", "through"),
    ];
    let moved = |server: &Server, tier, result| {
        server.metrics().sum("baton_tier_moves_total", &[("tier", tier), ("result", result)])
    };
    let server = Server::start_with(&flags, &environment);
    fill(&server, &expected);
    assert_eq!(moved(&server, "host", "written"), 0.0);
    drop(server);

    let server = Server::start_with(&flags, &environment);
    let asked: Vec<_> = asks().into_iter().zip(expected).collect();
    check_all(&server, &asked, asked.len(), false);
    until("lifts", || (moved(&server, "host", "lifted") > 0.0).then_some(()));
    until("tokens from the host tier", || (tokens(&server, "host") > 0.0).then_some(()));
    let metrics = server.settled();
    assert!(metrics.sum("baton_tier_moved_bytes_total", &[("tier", "host"), ("direction", "lift")]) > 0.0);
    assert_eq!(moved(&server, "host", "written") + moved(&server, "host", "corrupt"), 0.0);
}

/// A server of one worker whose memory is shared in the folder.
fn neighbour(folder: &str) -> Server {
    let environment = [SMALL, ("BATON_HOST__BYTES", "64MiB"), ("BATON_HOST__FOLDER", folder)];
    Server::start_with(&["--prefill", "0"], &environment)
}

fn slabs_of(server: &Server, kind: &str) -> f64 {
    server.metrics().sum("baton_host_slabs", &[("kind", kind)])
}

/// Waits until the server knows of all blocks of the prompts in others' slabs.
fn until_known(server: &Server) {
    let held = || server.metrics().sum("baton_tier_records", &[("tier", "neighbours"), ("state", "held")]);
    let blocks = f64::from(ASKS) * WHOLE as f64 / f64::from(BLOCK_TOKENS);
    until("others' blocks to be known", || (held() >= blocks).then_some(()));
}

/// Asks for all prompts as [`round`] does, each when all blocks of those before it are held in the worker's own
/// slab: what is given up before it is written is written no more.
fn fill_memory(server: &Server, expected: &[Said]) -> u64 {
    let held = || server.metrics().sum("baton_tier_records", &[("tier", "host"), ("state", "held")]);
    let blocks = WHOLE as f64 / f64::from(BLOCK_TOKENS);
    let ask = |(number, (ask, expected)): (u32, (&Ask, &Said))| {
        let (said, cached) = ask.whole(server);
        assert_eq!(&said, expected, "{ask:?}");
        until("its blocks to be written", || (held() >= f64::from(number) * blocks).then_some(()));
        cached
    };
    (1..).zip(asks().iter().zip(expected)).map(ask).sum()
}

fn slabs(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(folder)).expect("the folder is there");
    entries.map(|entry| entry.expect("it can be read").path()).collect()
}

fn moved(server: &Server, result: &str) -> f64 {
    server.metrics().sum("baton_tier_moves_total", &[("tier", "neighbours"), ("result", result)])
}

#[test]
fn workers_of_a_host_read_each_other_dead_or_alive() {
    let (expected, folder) = (expected(&["--prefill", "0"]), Folder::in_memory("slabs"));
    let folder = folder.path("slabs");
    let first = neighbour(&folder);
    assert_eq!(fill_memory(&first, &expected), 0);
    let (mut second, mut third) = (neighbour(&folder), neighbour(&folder));
    until_known(&second);
    until_known(&third);
    let asks = asks();
    let asked = |server: &Server, at: usize| {
        let (said, cached) = asks[at].whole(server);
        assert_eq!(said, expected[at], "{:?}", asks[at]);
        cached
    };
    assert_eq!(asked(&second, 0), WHOLE, "prompt tokens came from the other worker's memory");
    until("reads", || (moved(&second, "read") > 0.0).then_some(()));
    assert!(tokens(&second, "neighbours") > 0.0);
    until("both slabs", || ((slabs_of(&second, "live"), slabs_of(&second, "adopted")) == (2.0, 0.0)).then_some(()));
    let index = |kind| second.metrics().sum("baton_index_bytes", &[("index", "slabs"), ("kind", kind)]);
    assert!(0.0 < index("used") && index("used") < index("budget"));

    // Killed, it is one of the others' who read it.
    drop(first);
    let adopted = || slabs_of(&second, "adopted") + slabs_of(&third, "adopted");
    until("an heir", || (adopted() > 0.0).then_some(()));
    assert_eq!(asked(&third, 1), WHOLE, "prompt tokens came from the dead worker's memory");
    until("reads", || (moved(&third, "read") > 0.0).then_some(()));
    round(&second, &expected);
    round(&third, &expected);
    assert_eq!((adopted(), slabs(&folder).len()), (1.0, 3));
    assert_eq!(moved(&second, "corrupt") + moved(&third, "corrupt"), 0.0);

    // Who ends takes along what it had and what it had adopted.
    for server in [&mut second, &mut third] {
        server.settled();
        server.signal("TERM");
        assert!(server.ended().success());
    }
    assert!(slabs(&folder).is_empty());
}

#[test]
fn a_restart_finds_what_it_held_and_flipped_bytes_are_not_used() {
    let (expected, folder) = (expected(&["--prefill", "0"]), Folder::in_memory("restart"));
    let folder = folder.path("slabs");
    let server = neighbour(&folder);
    fill_memory(&server, &expected);
    drop(server);
    let server = neighbour(&folder);
    until_known(&server);
    assert_eq!(slabs_of(&server, "adopted"), 1.0);
    assert!(fill_memory(&server, &expected) >= LOADED_MIN, "a restart lost what was in memory");
    drop(server);

    // A bit in every page behind the heads is another: nothing of it is used.
    assert_eq!(slabs(&folder).len(), 2, "its own, and what it had adopted");
    for path in slabs(&folder) {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is there");
        let file = fs::File::options().read(true).write(true).open(&path).expect("it is there");
        let len = file.metadata().expect("it is there").len();
        for at in (4096..len).step_by(4096) {
            let (at, mut byte) = ((at + at / 4096 * 37 % 4096).min(len - 1), [0]);
            file.read_exact_at(&mut byte, at).expect("it is inside");
            file.write_all_at(&[byte[0] ^ 0x10], at).expect("it is inside");
        }
    }
    let mut server = neighbour(&folder);
    let held = || server.metrics().sum("baton_tier_records", &[("tier", "neighbours"), ("state", "held")]);
    until("records of the dead", || (held() >= f64::from(ASKS)).then_some(()));
    let cached = round(&server, &expected);
    until("wrong records", || (moved(&server, "corrupt") > 0.0).then_some(()));
    assert_eq!(cached, 0, "prompt tokens came from records that are wrong");
    server.settled();
    server.signal("TERM");
    assert!(server.ended().success());
}

#[test]
fn a_folder_that_is_not_in_memory_is_refused() {
    let mut command = baton(&["serve", "--listen", "127.0.0.1:0", "--set", "host.bytes=64MiB"]);
    let mut child = command.env("BATON_HOST__FOLDER", "/proc").spawn().expect("it starts");
    assert_eq!(ended(&mut child).code(), Some(1));
    let said = drained(child.stderr.take());
    assert!(said.contains("host.folder") && said.contains("/proc is no tmpfs"), "{said}");
}
