//! Tiers that keep KV smaller than the device has it: what is computed is what a server without tiers says, what
//! comes back from a tier is about that, and nobody takes it who was not told of the encoding. The same of what
//! travels encoded between workers.

use crate::address::own_place;
use crate::asks::Said;
use crate::cluster::Cluster;
use crate::disk::{ASKS, LOADED_MIN, SMALL, asks, expected, fill, round};
use crate::metrics::Metrics;
use crate::models::Folder;
use crate::process::Process;
use crate::server::{Server, until};

/// Bytes of a record of the bundled model: 8 layers, keys and values of 2 heads of 64 numbers, 32 tokens; in two
/// bytes a number, or in one and a scale for every four tokens.
const EXACT_BYTES: f64 = (8 * 2 * 2 * 32 * 64 * 2) as f64;
const SMALL_BYTES: f64 = (8 * 2 * 2 * (32 * 64 + 8 * 4)) as f64;
/// Of the answers to prompts that came back from a tier: as many at least are the ones that were computed. What
/// comes back wrong makes none of them.
const SAME_MIN: usize = ASKS as usize / 3;

fn start(flags: &[&str], folder: &Folder, encoding: &str) -> Server {
    let folders = folder.path("tier");
    std::fs::create_dir_all(&folders).expect("a folder for the tier");
    let environment = [
        SMALL,
        ("BATON_KV__ENCODING", encoding),
        // Room for a few of the prompts: the others are on disk alone.
        ("BATON_HOST__BYTES", "2MiB"),
        ("BATON_DISK__FOLDERS", folders.as_str()),
        ("BATON_DISK__BYTES", "64MiB"),
        ("BATON_DISK__WRITE", "through"),
        ("BATON_PLACEMENT__HANDOFF", "always"),
    ];
    Server::start_with(flags, &environment)
}

/// Asks everything; the prompt tokens that were in a cache, and how many answers are the expected ones.
fn round_near(server: &Process, expected: &[Said]) -> (u64, usize) {
    let heard = asks().into_iter().zip(expected).map(|(ask, expected)| {
        let (said, cached) = ask.whole(server);
        said.check_form(&ask);
        (cached, said == *expected)
    });
    heard.fold((0, 0), |(tokens, same), (cached, is_same)| (tokens + cached, same + usize::from(is_same)))
}

fn of_disk(server: &Server, name: &str, labels: &[(&str, &str)]) -> f64 {
    server.metrics().sum(name, &[&[("tier", "disk")], labels].concat())
}

/// Bytes that the disk tier has for each record.
fn record_bytes(server: &Server) -> f64 {
    of_disk(server, "baton_tier_bytes", &[]) / of_disk(server, "baton_tier_records", &[("state", "held")])
}

fn check(flags: &[&str], encoding: &str, other: &str) {
    let (expected, folder) = (expected(flags), Folder::new(&format!("encoded-{encoding}")));
    let server = start(flags, &folder, encoding);
    // What is computed has no encoding.
    fill(&server, &expected);
    let (cached, same) = round_near(&server, &expected);
    assert!(cached >= LOADED_MIN, "{cached} prompt tokens were cached");
    assert!(same >= SAME_MIN, "{encoding}: {same} of {ASKS} answers are the same");
    until("reads from disk", || {
        (of_disk(&server, "baton_tier_moves_total", &[("result", "read")]) > 0.0).then_some(())
    });
    assert_eq!(of_disk(&server, "baton_tier_moves_total", &[("result", "corrupt")]), 0.0);
    server.settled();
    assert_eq!(record_bytes(&server), SMALL_BYTES);

    // Over a kill: they are found by whoever has the same encoding.
    drop(server);
    let server = start(flags, &folder, encoding);
    let (cached, same) = round_near(&server, &expected);
    assert!(cached >= LOADED_MIN, "{cached} prompt tokens were cached after a restart");
    assert!(same >= SAME_MIN, "{encoding}: {same} of {ASKS} answers are the same after a restart");
    server.settled();
    drop(server);

    // By nobody else.
    for (other, bytes) in [(other, SMALL_BYTES), ("exact", EXACT_BYTES)] {
        let server = start(flags, &folder, other);
        until("a word about it", || {
            server.log().contains("records of another model, encoding or version").then_some(())
        });
        assert_eq!(round(&server, &expected), 0, "{other} took what another encoding left");
        server.settled();
        assert_eq!(record_bytes(&server), bytes);
    }
}

#[test]
fn a_worker_that_keeps_whole_numbers_of_a_byte() {
    check(&["--prefill", "0"], "int8", "fp8");
}

#[test]
fn workers_that_keep_floats_of_a_byte() {
    check(&["--prefill", "1", "--decode", "1"], "fp8", "int8");
}

/// Has a prefill and a decode worker of two processes answer everything, with an encoding of KV, in which it also
/// travels or not. How many answers are the expected ones, and the bytes that were read and that came over the
/// wire for them.
fn over_the_wire(expected: &[Said], encode: &str) -> (usize, [f64; 2]) {
    let free = own_place();
    let (encode, metrics) = (format!("transport.encode_kv={encode}"), format!("worker.ops_listen={free}"));
    let set = ["transport.lanes=tcp", "kv.encoding=int8", encode.as_str(), metrics.as_str()].map(|it| ["--set", it]);
    let mut cluster = Cluster::new("hush, says this test");
    cluster.prefill(&set[..3].concat());
    cluster.decode(&set.concat());
    cluster.route(&["--set", "placement.handoff=always"]);
    cluster.until_ready(1, 1);
    let (_, same) = round_near(cluster.router(), expected);
    let moved = until("the worker has published what it took over", || {
        let metrics = Metrics::at(free);
        let taken = metrics.sum("baton_handoffs_total", &[("lane", "tcp"), ("result", "taken")]);
        let bytes = |name| metrics.sum(name, &[("lane", "tcp")]);
        let moved = ["baton_transfer_bytes_total", "baton_transfer_wire_bytes_total"].map(bytes);
        (taken >= f64::from(ASKS)).then_some(moved)
    });
    let metrics = cluster.router().metrics();
    assert_eq!(metrics.sum("baton_replays_total", &[]), 0.0);
    let ends = cluster.end();
    assert!(ends.iter().all(|code| *code == Some(0)), "{ends:?}");
    (same, moved)
}

#[test]
fn what_is_handed_off_over_tcp_is_encoded_where_the_reader_is_told_to() {
    let expected = expected(&["--prefill", "0"]);
    let (same, [bytes, wire_bytes]) = over_the_wire(&expected, "off");
    assert_eq!((same, wire_bytes), (ASKS as usize, bytes), "an encoding of tiers is none of the wire");
    let (same, [bytes, wire_bytes]) = over_the_wire(&expected, "tcp");
    assert!(same >= SAME_MIN, "{same} of {ASKS} answers are the same");
    assert!(bytes > 0.0);
    assert_eq!(wire_bytes * EXACT_BYTES, bytes * SMALL_BYTES);
}
