//! The host tier, alone and above a disk: what left the device comes back from memory, and the text is always that of a server
//! without tiers.

use crate::asks::Said;
use crate::disk::{ASKS, LOADED_MIN, SMALL, asks, expected, round};
use crate::models::Folder;
use crate::server::{Server, until};

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
    for flags in [&["--prefill", "0"][..], &["--prefill", "1", "--decode", "1"]] {
        let expected = expected(flags);
        let environment = [SMALL, ("BATON_HOST__BYTES", "64MiB"), ("BATON_PLACEMENT__HANDOFF", "always")];
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
