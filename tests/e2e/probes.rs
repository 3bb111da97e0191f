//! What operators and their tools read: `/live`, `/ready`, `/v1/models`, `/metrics`.

use crate::address::own_place;
use crate::asks::Ask;
use crate::cluster::Cluster;
use crate::http::{Connection, request};
use crate::server::Server;
use serde_json::json;

#[test]
fn probes_and_models_tell_what_is_there() {
    let server = Server::start(&["--prefill", "2", "--decode", "1", "--set", "model.name=org/name"]);
    let live = server.get("/live");
    assert_eq!((live.head.status, live.text()), (200, "live\n"));
    let ready = server.get("/ready");
    assert_eq!(ready.head.status, 200);
    assert_eq!(ready.json(), json!({ "ready": true, "why": null, "workers": { "prefill": 2, "decode": 1 } }));
    let models = server.get("/v1/models").json();
    let model = &models["data"][0];
    assert_eq!(
        (&models["object"], &model["object"], &model["id"]),
        (&json!("list"), &json!("model"), &json!("org/name"))
    );
    assert_eq!(models["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.get("/v1/models/org/name").json(), *model);
    assert_eq!(server.get("/v1/models/tiny-rust").head.status, 404);
}

#[test]
fn operators_ask_a_listener_of_their_own() {
    let (router, worker) = (own_place(), own_place());
    let mut cluster = Cluster::new("hush, says this test");
    cluster.decode(&["--set", &format!("worker.ops_listen={worker}")]);
    cluster.route(&["--set", &format!("router.ops_listen={router}"), "--set", "router.metrics_on_api=false"]);
    cluster.until_ready(0, 1);
    let get = |address, path| {
        let mut connection = Connection::open(address).expect("the process listens");
        connection.send(&request("GET", path, "text/plain", b"")).expect("the process reads");
        connection.answer().expect("the process answers")
    };
    for address in [router, worker] {
        assert_eq!(get(address, "/live").text(), "live\n");
        assert_eq!(get(address, "/ready").head.status, 200);
        assert!(get(address, "/metrics").text().contains("# TYPE baton_"), "{address}");
        assert_eq!(get(address, "/v1/completions").head.status, 404);
    }
    assert_eq!(cluster.router().get("/metrics").head.status, 404);
    assert_eq!(cluster.router().get("/live").head.status, 200);
}

#[test]
fn metrics_count_what_happens() {
    let server = Server::start_with(&[], &[("BATON_PLACEMENT__HANDOFF", "always")]);
    let answer = server.get("/metrics");
    assert_eq!(answer.head.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let before = server.metrics();
    assert_eq!(before.workers(), 2);
    assert_eq!(before.pools().len(), 2, "one KV group on each of two workers");

    let (said, _) = Ask::chat("What is ownership?", json!({ "temperature": 0, "max_tokens": 20 })).whole(&server);
    let after = server.settled();
    let grown = |name: &str, labels: &[(&str, &str)]| after.sum(name, labels) - before.sum(name, labels);
    assert_eq!(grown("baton_requests_total", &[]), 1.0);
    assert_eq!(grown("baton_requests_total", &[("outcome", "length")]), 1.0);
    assert_eq!(grown("baton_output_tokens_total", &[]), said.completion_tokens as f64);
    assert_eq!(grown("baton_prompt_tokens_total", &[]), 8.0);
    assert_eq!(grown("baton_prefill_tokens_total", &[]), 8.0);
    assert_eq!(grown("baton_time_to_first_token_seconds_count", &[]), 1.0);
    assert_eq!(grown("baton_inter_token_seconds_count", &[]), said.completion_tokens as f64 - 1.0);
    assert_eq!(grown("baton_handoffs_total", &[("lane", "local"), ("result", "taken")]), 1.0);
    assert!(grown("baton_transfer_bytes_total", &[("lane", "local")]) > 0.0);
    assert_eq!(after.pools(), before.pools(), "the states of a pool's blocks sum to the pool");

    let text = server.get("/metrics").text().to_owned();
    for sample in &after.samples {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| sample.name.strip_suffix(end));
        let declared = |name: &str| {
            let kind = text.contains(&format!("# TYPE {name} "));
            kind && text.contains(&format!("# HELP {name} "))
        };
        let known = declared(&sample.name) || family.is_some_and(declared);
        assert!(known && sample.name.starts_with("baton_"), "{} says what it is", sample.name);
    }
}
