//! What took time in a request, as an operator sees it: chunks of its prompt, each layer that was handed over and its
//! lane, and what came from tiers.

use crate::address::own_place;
use crate::admin::{admin, done};
use crate::asks::Ask;
use crate::cluster::Cluster;
use crate::server::until;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Tokens of a chunk.
const CHUNK: u64 = 64;

/// A prompt of a few chunks.
fn ask() -> Ask {
    let more = json!({ "max_tokens": 8, "ignore_eos": true, "temperature": 0 });
    Ask::completion("tiny-rust", "ownership ".repeat(250).as_str(), more)
}

/// Asks, and explains the request when its decoding is told.
fn explained(cluster: &Cluster, ops: SocketAddr) -> (String, Value) {
    let answer = cluster.router().post("/v1/completions", &ask().body);
    let id = answer.head.header("x-request-id").expect("every answer has one").to_owned();
    let explained = until("all of it is told", || {
        let explained = done(ops, &["explain", &id]);
        (explained["request"]["state"] == "ended" && !of(&explained, "decode").is_empty()).then_some(explained)
    });
    (id, explained)
}

/// The phases of a kind.
fn of<'a>(explained: &'a Value, kind: &str) -> Vec<&'a Value> {
    let phases = explained["phases"].as_array().expect("a list");
    phases.iter().filter(|phase| phase["kind"] == kind).collect()
}

fn number(phase: &Value, field: &str) -> u64 {
    phase[field].as_u64().unwrap_or_else(|| panic!("{field}: {phase:#}"))
}

#[test]
fn a_handoff_is_told_by_chunks_by_layers_with_their_lane_and_by_tiers() {
    let ops = own_place();
    let chunk = format!("engine.chunk_tokens={CHUNK}");
    let flags = ["--set", "transport.lanes=tcp", "--set", &chunk, "--set", "worker.ops_listen="];
    let tier = ["--set", "host.bytes=64MiB", "--set", "host.write=through"];
    let mut cluster = Cluster::new("hush, says this test");
    cluster.prefill(&[&flags[..], &tier, &["--name", "p"]].concat());
    cluster.decode(&[&flags[..], &["--name", "d"]].concat());
    cluster.route(&["--set", "placement.handoff=always", "--set", &format!("router.ops_listen={ops}")]);
    cluster.until_ready(1, 1);

    let (id, told) = explained(&cluster, ops);
    let total_ms = told["total_ms"].as_f64().expect("it ended");
    let mut last_ms = 0.0;
    for phase in told["phases"].as_array().expect("a list") {
        let (begin, ms) = (phase["begin_ms"].as_f64().expect("a number"), phase["ms"].as_f64().expect("a number"));
        assert!(begin >= last_ms && ms >= 0.0 && begin + ms <= total_ms + 1.0, "{phase:#} of {total_ms} ms");
        last_ms = begin;
    }
    for (kind, workers) in
        [("tokenize", &[""][..]), ("queue", &["", "p"]), ("first-token", &[""]), ("decode", &["d"]), ("end", &[""])]
    {
        let at: Vec<_> = of(&told, kind).iter().map(|phase| phase["worker_name"].as_str().expect("a name")).collect();
        assert_eq!(at, workers, "{kind}: {told:#}");
    }
    let chunks = of(&told, "chunk");
    let prompt = number(&told["request"], "prompt_tokens");
    assert!(chunks.len() as u64 == prompt.div_ceil(CHUNK) && chunks.len() > 1, "{prompt} tokens: {chunks:#?}");
    let end = chunks.iter().fold(0, |next, chunk| {
        assert_eq!((&chunk["worker_name"], number(chunk, "start")), (&Value::from("p"), next), "{chunk:#}");
        next + number(chunk, "tokens")
    });
    assert_eq!(end, prompt);
    let transfers = of(&told, "transfer");
    let model = &done(ops, &["models"])["models"][0];
    let bytes: u64 = transfers.iter().map(|transfer| number(transfer, "bytes")).sum();
    assert!(bytes >= prompt * number(model, "token_bytes"), "{bytes} bytes: {transfers:#?}");
    for transfer in &transfers {
        assert_eq!((&transfer["worker_name"], &transfer["peer_name"]), (&"d".into(), &"p".into()), "{transfer:#}");
        assert_eq!((&transfer["lane"], &transfer["tier"]), (&"tcp".into(), &"".into()), "{transfer:#}");
    }
    let layers: u64 = transfers.iter().map(|transfer| number(transfer, "layers")).sum();
    // What was written before it was asked for comes as whole records.
    let most = number(model, "layers") * chunks.len() as u64;
    assert!((1..=most).contains(&layers), "{layers} layers of {most}: {transfers:#?}");
    let text = admin(ops, &["explain", &id]).1;
    assert!(text.contains("prefill chunk  ") && text.contains("over tcp from p"), "{text}");

    // What left the device comes from the tier.
    until("it is loaded", || {
        done(ops, &["flush", "p"]);
        let (_, told) = explained(&cluster, ops);
        let loads = of(&told, "load");
        let load = loads.first()?;
        assert_eq!((&load["tier"], &load["worker_name"]), (&"host".into(), &"p".into()), "{load:#}");
        assert!(number(load, "tokens") > 0 && number(load, "bytes") > 0, "{load:#}");
        Some(())
    });

    // A router that keeps no request asks workers for nothing.
    done(ops, &["limits", "admin.explained_max=0"]);
    assert_eq!(cluster.router().post("/v1/completions", &ask().body).head.status, 200);
}
