//! The serving path over RDMA: the same tokens as in one process. It takes a device and a build with the lane, so it is run by
//! `tests/rdma/run` alone.

use crate::address::own_place;
use crate::asks::{Ask, check_all};
use crate::bench::{FEW_TRANSFERS, transfer};
use crate::cluster::Cluster;
use crate::metrics::Metrics;
use crate::server::Server;
use serde_json::json;

/// What `local` says is what `rdma` must say, and no other lane may help.
fn check(flags: &[&str], asks: &[Ask]) {
    let all: Vec<&str> = flags.iter().copied().chain(["--set", "kv.device_bytes=16MiB"]).collect();
    let one_thread: Vec<&str> = all.iter().copied().chain(["--threads", "1"]).collect();
    let local = Server::start_with(&one_thread, &[("BATON_PLACEMENT__HANDOFF", "always")]);
    let told: Vec<_> = asks.iter().map(|ask| (ask.clone(), ask.whole(&local).0)).collect();
    assert!(local.settled().sum("baton_handoffs_total", &[("lane", "local"), ("result", "taken")]) > 0.0);
    drop(local);

    let free = own_place();
    let metrics = format!("worker.ops_listen={free}");
    let over_rdma: Vec<&str> = all.iter().copied().chain(["--require-lane", "rdma"]).collect();
    let reader: Vec<&str> =
        over_rdma.iter().copied().chain(["--set", "transport.lanes=rdma", "--set", &metrics]).collect();
    let mut cluster = Cluster::new("hush, says this test");
    cluster.prefill(&over_rdma);
    cluster.decode(&reader);
    cluster.route(&["--set", "placement.handoff=always"]);
    cluster.until_ready(1, 1);
    check_all(cluster.router(), &told, 4, true);
    check_all(cluster.router(), &told, 1, false);

    let metrics = Metrics::at(free);
    assert!(metrics.sum("baton_handoffs_total", &[("lane", "rdma"), ("result", "taken")]) > 0.0);
    assert!(metrics.sum("baton_transfer_bytes_total", &[("lane", "rdma")]) > 0.0);
    let ends = cluster.end();
    assert!(ends.iter().all(|code| *code == Some(0)), "{ends:?}");
}

#[test]
fn a_simulated_model_says_the_same_over_rdma() {
    let words = "every block was the right one, and so was its owner; ".repeat(30);
    let ask = |at: u32| {
        let more = json!({ "seed": at, "max_tokens": 10 + at * 5, "n": 1 + at % 2, "ignore_eos": true });
        Ask::completion("tiny-rust", &words[..(1 + 200 * at) as usize], more)
    };
    let asks: Vec<Ask> = (0..6).map(ask).collect();
    check(&["--device", "sim", "--set", "sim.speed_percent=0", "--set", "engine.chunk_tokens=64"], &asks);
}

#[test]
fn the_bundled_model_says_the_same_over_rdma() {
    let more = json!({ "temperature": 0, "max_tokens": 12, "logprobs": 1 });
    let asks = [Ask::completion("tiny-rust", "Ownership is Rust's most unique feature. It", more)];
    // Ends of reads are looked for before they are slept for.
    check(&["--set", "transport.rdma_poll_us=200"], &asks);
}

#[test]
fn reads_over_rdma_are_measured_and_compared() {
    let outcome = transfer(&[&FEW_TRANSFERS[..], &["--lanes", "rdma"]].concat());
    assert_eq!(outcome.status, Some(0), "{}{}", outcome.out, outcome.error);
    assert_eq!(outcome.out.lines().filter(|line| line.starts_with("rdma ")).count(), 4, "{}", outcome.out);
}
