//! The serving path over RDMA: the same tokens as in one process, which takes a device, such as that of
//! `tests/rdma/run`. And what is said where libibverbs cannot be used, which takes none.

use crate::address::own_place;
use crate::asks::{Ask, check_all};
use crate::bench::{FEW_TRANSFERS, transfer};
use crate::cluster::Cluster;
use crate::metrics::Metrics;
use crate::server::{Server, baton, drained, ended};
use serde_json::json;
use std::process::Command;

/// Whether there is a device; else a line says that the test is skipped.
fn has_device() -> bool {
    let has_one = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().next().is_some();
    if !has_one {
        println!("skipped: it takes an RDMA device; see tests/rdma/run");
    }
    has_one
}

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
    if !has_device() {
        return;
    }
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
    if !has_device() {
        return;
    }
    let more = json!({ "temperature": 0, "max_tokens": 12, "logprobs": 1 });
    let asks = [Ask::completion("tiny-rust", "Ownership is Rust's most unique feature. It", more)];
    // Ends of reads are looked for before they are slept for.
    check(&["--set", "transport.rdma_poll_us=200"], &asks);
}

#[test]
fn reads_over_rdma_are_measured_and_compared() {
    if !has_device() {
        return;
    }
    let outcome = transfer(&[&FEW_TRANSFERS[..], &["--lanes", "rdma"]].concat());
    assert_eq!(outcome.status, Some(0), "{}{}", outcome.out, outcome.error);
    assert_eq!(outcome.out.lines().filter(|line| line.starts_with("rdma ")).count(), 4, "{}", outcome.out);
}

/// What `baton topo` says of the lane where the loader finds this in place of libibverbs. The process that it
/// starts as a peer does as well.
fn said_with(library: &std::path::Path) -> String {
    let mut command = baton(&["topo"]);
    command.env("LD_LIBRARY_PATH", library.parent().expect("it is in a folder"));
    let mut child = command.spawn().expect("the binary runs");
    let status = ended(&mut child);
    let (out, error) = (drained(child.stdout.take()), drained(child.stderr.take()));
    assert_eq!(status.code(), Some(0), "{error}");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let rdma = out.split("\n  rdma ").nth(1).and_then(|rest| rest.split("\n  tcp ").next());
    words(rdma.unwrap_or_else(|| panic!("nothing of rdma in {out}")))
}

#[test]
fn without_a_libibverbs_of_use_everything_starts_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("libibverbs.so.1");
    std::fs::write(&library, "no library at all").expect("it can be written");
    let said = said_with(&library);
    assert!(said.contains("libibverbs cannot be loaded") && said.contains("libibverbs.so.1"), "{said}");

    let source = folder.path().join("old.c");
    std::fs::write(&source, "void ibv_get_device_list(void) {}\nvoid ibv_free_device_list(void) {}\n")
        .expect("it can be written");
    match Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status() {
        Ok(status) => assert!(status.success(), "two functions that do nothing"),
        Err(error) => return println!("skipped: it takes a C compiler: cc: {error}"),
    }
    let said = said_with(&library);
    assert!(said.contains("lacks ibv_get_device_name"), "{said}");
}

#[test]
fn the_binary_needs_no_libibverbs() {
    let binary = baton(&[]).get_program().to_owned();
    match Command::new("readelf").arg("-d").arg(binary).output() {
        Err(error) => println!("skipped: it takes readelf (binutils): {error}"),
        Ok(output) => {
            let needed = String::from_utf8_lossy(&output.stdout);
            assert!(needed.contains("libc.so"), "{needed}");
            assert!(!needed.contains("ibverbs"), "{needed}");
        }
    }
}
