//! What operators see of a cluster on cards: what computes, which card it is, and how KV moves.

use super::card::{EMULATED, TestCard, model};
use super::paths::{FAMILY, FLAGS};
use crate::address::own_place;
use crate::admin::{admin, done};
use crate::asks::Ask;
use crate::cluster::Cluster;
use crate::models::Folder;
use crate::server::until;
use serde_json::json;

/// A prompt that is worth handing over.
fn ask() -> Ask {
    let prompt: Vec<u32> = (0..80).map(|i| (i * i + 7) % 250).collect();
    Ask::completion(FAMILY, json!(prompt), json!({ "max_tokens": 8, "ignore_eos": true, "temperature": 0 }))
}

#[test]
fn operators_see_the_card_and_the_lane() {
    let Some(card) = TestCard::find() else { return };
    let folder = Folder::new("cuda-operators");
    let dir = model(&folder, FAMILY);
    // How fast lanes are in an emulator says nothing: only one may be taken.
    let settings = ["--model", &dir, "--set", "kv.device_bytes=16MiB", "--require-lane", "nvlink"];
    let flags = [&FLAGS[..], &settings].concat();
    let mut cluster = Cluster::new("hush, says this test");
    cluster.set_environment(&card.with(&[]));
    let prefill = cluster.prefill(&[&flags[..], &["--name", "p"]].concat());
    let decode = cluster.decode(&[&flags[..], &["--name", "d"]].concat());
    let ops = own_place();
    let ops_setting = format!("router.ops_listen={ops}");
    cluster.route(&["--model", &dir, "--set", "placement.handoff=always", "--set", &ops_setting]);
    cluster.until_ready(1, 1);
    ask().whole(cluster.router());

    for at in [prefill, decode] {
        let worker = cluster.worker(at);
        // The first line of all that concerns the card.
        let log = worker.log();
        assert!(log.contains(&card.description), "{log}");
        assert_eq!(log.contains(EMULATED), card.is_emulated(), "{log}");
        let welcome = until("the welcome", || {
            let welcome = worker.welcome();
            welcome.contains("ready").then_some(welcome)
        });
        for words in ["engine   cuda: ", &card.description, "KV is read over `nvlink` by workers of this host"] {
            assert!(welcome.contains(words), "{words}: {welcome}");
        }
    }
    let lanes = until("the decode worker has said which lane it took", || {
        let lanes = done(ops, &["lanes"]);
        lanes["lanes"].as_array().is_some_and(|lanes| lanes.iter().any(|it| it["worker_name"] == "d")).then_some(lanes)
    });
    for lane in lanes["lanes"].as_array().expect("a list") {
        assert_eq!((&lane["lane"], &lane["staged"]), (&json!("nvlink"), &json!("")), "{lane:#}");
        assert!(lane["bytes_per_s"].as_f64().is_some_and(|speed| speed > 0.0), "{lane:#}");
    }
    assert!(admin(ops, &["lanes"]).1.contains("nvlink"));
    cluster.end();
}

/// Memory of a card is not read over a slower lane where `nvlink` is required.
#[test]
fn a_required_nvlink_is_not_replaced_by_a_slower_lane() {
    let Some(card) = TestCard::find() else { return };
    let folder = Folder::new("cuda-required");
    let dir = model(&folder, FAMILY);
    let flags = ["--model", &dir, "--set", "engine.block_tokens=16", "--set", "kv.device_bytes=16MiB"];
    let mut cluster = Cluster::new("hush, says this test");
    cluster.set_environment(&card.with(&[]));
    // Its pool is in memory of the host.
    cluster.prefill(&[&flags[..], &["--name", "p"]].concat());
    let decode = cluster.decode(&[&flags[..], &["--device", "cuda", "--require-lane", "nvlink"]].concat());
    cluster.route(&["--model", &dir, "--set", "placement.handoff=always"]);
    cluster.until_ready(1, 1);
    let answer = cluster.router().post("/v1/completions", &ask().body);
    assert_eq!(answer.json()["error"]["code"], "worker_failed", "{}", answer.text());
    let log = cluster.worker(decode).log();
    let reason = "nvlink: the peer's pool is in host memory";
    assert!(log.lines().any(|line| line.contains("transport.require") && line.contains(reason)), "{log}");
    let metrics = crate::metrics::Metrics::at(cluster.worker(decode).operations());
    assert_eq!(metrics.sum("baton_transfer_bytes_total", &[]), 0.0);
    cluster.end();
}
