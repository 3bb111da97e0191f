//! What operators and their tools read: `/live`, `/ready`, `/v1/models`, `/metrics`.

use crate::address::own_place;
use crate::asks::Ask;
use crate::cluster::Cluster;
use crate::http::{Connection, request};
use crate::metrics::Metrics;
use crate::server::Server;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use telemetry::metrics::{DECLARED, Kind};
use telemetry::{ALIASES, Alias};

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
    assert_eq!(model["batch_invariant"], true, "the devices cpu and sim are");
    assert_eq!(models["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.get("/v1/models/org/name").json(), *model);
    assert_eq!(server.get("/v1/models/tiny-rust").head.status, 404);
}

#[test]
fn operators_ask_a_listener_of_their_own() {
    let (router, worker) = (own_place(), own_place());
    let mut cluster = Cluster::new("hush, says this test");
    cluster.decode(&["--set", &format!("worker.ops_listen={worker}")]);
    let ops = format!("router.ops_listen={router}");
    let set = ["--set", &ops, "--set", "router.metrics_on_api=false", "--set", "metrics.vllm_aliases=false"];
    cluster.route(&set);
    cluster.until_ready(0, 1);
    let get = |address, path| {
        let mut connection = Connection::open(address).expect("the process listens");
        connection.send(&request("GET", path, "text/plain", b"")).expect("the process reads");
        connection.answer().expect("the process answers")
    };
    for address in [router, worker] {
        assert_eq!(get(address, "/live").text(), "live\n");
        assert_eq!(get(address, "/ready").head.status, 200);
        let metrics = get(address, "/metrics").text().to_owned();
        assert!(metrics.contains("# TYPE baton_") && !metrics.contains("vllm:"), "{address}: {metrics}");
        check_declared(&Metrics::parse(&metrics), &metrics);
        assert_eq!(get(address, "/v1/completions").head.status, 404);
    }
    assert_eq!(cluster.router().get("/metrics").head.status, 404);
    assert_eq!(cluster.router().get("/live").head.status, 200);
}

#[test]
fn metrics_count_what_happens() {
    let block = ("BATON_ENGINE__BLOCK_TOKENS", "16");
    let server = Server::start_with(&[], &[("BATON_PLACEMENT__HANDOFF", "always"), block]);
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
    check_declared(&Metrics::parse(&text), &text);
    for alias in ALIASES {
        assert!(text.contains(&format!("# TYPE {} ", alias.name)), "{} is not served:\n{text}", alias.name);
    }
    let blocks: Vec<f64> = after.pools().into_values().collect();
    let info = after.samples.iter().find(|sample| sample.name == "vllm:cache_config_info").expect("it is there");
    assert_eq!(info.labels["model_name"], "tiny-rust");
    assert_eq!(info.labels["block_size"], "16");
    let told = info.labels["num_gpu_blocks"].parse().expect("a number");
    assert!(blocks.contains(&told), "{told} is the pool of the decode worker: {blocks:?}");
    assert_eq!(after.sum("vllm:e2e_request_latency_seconds_count", &[]), after.sum("baton_request_seconds_count", &[]));
}

/// Checks that what is served is what is declared: each name with its kind and exactly its labels.
fn check_declared(served: &Metrics, text: &str) {
    let mut declared: BTreeMap<_, _> = DECLARED.iter().map(|it| (it.name, (it.kind, it.labels.to_vec()))).collect();
    for Alias { name, of, labels } in ALIASES {
        let (kind, mut its_labels) = declared[of].clone();
        for (from, to) in *labels {
            its_labels.iter_mut().filter(|label| *label == from).for_each(|label| *label = *to);
        }
        its_labels.push("model_name");
        declared.insert(name, (kind, its_labels));
    }
    for sample in &served.samples {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| sample.name.strip_suffix(end));
        let is_histogram =
            |name: &&str| declared.get(*name).is_some_and(|(kind, _)| matches!(kind, Kind::Histogram(_)));
        let name = family.filter(is_histogram).unwrap_or(&sample.name);
        let (kind, labels) = declared.get(name).unwrap_or_else(|| panic!("{name} is not declared"));
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} is a {kind}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name} says what it is");
        let has: BTreeSet<_> = sample.labels.keys().map(String::as_str).filter(|label| *label != "le").collect();
        assert_eq!(has, labels.iter().copied().collect(), "the labels of {name}");
    }
}
