//! Limits and policies that change while processes serve: by a call, and by a configuration that is read again.

use crate::address::own_place;
use crate::admin::{SLOW, done, refused, worker};
use crate::asks::{Ask, CHAT};
use crate::clients::ask;
use crate::cluster::Cluster;
use crate::models::Folder;
use crate::process::Process;
use crate::server::{Server, until};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;

/// Returns a setting as it is listed.
fn setting(server: SocketAddr, name: &str) -> Value {
    let all = done(server, &["limits"]);
    let all = all["settings"].as_array().expect("a list");
    all.iter().find(|setting| setting["name"] == name).unwrap_or_else(|| panic!("{name} in {all:#?}")).clone()
}

/// Changes a setting, and returns what it was before.
fn change(server: SocketAddr, name: &str, value: &str) -> String {
    let changed = done(server, &["limits", &format!("{name}={value}")]);
    assert_eq!((changed["changes"].as_array().map(Vec::len), &changed["changes"][0]["name"]), (Some(1), &json!(name)));
    changed["changes"][0]["before"].as_str().expect("a text").to_owned()
}

/// Returns the status of a request, and its id.
fn asked(router: &Process, number: usize) -> (u16, String) {
    let answer = router.post("/v1/completions", &ask(number, 4).body);
    (answer.head.status, answer.head.header("x-request-id").expect("every answer has one").to_owned())
}

#[test]
fn limits_and_policies_change_by_a_call_and_back() {
    let (router, decode) = (own_place(), own_place());
    let mut cluster = Cluster::new("hush, says this test");
    let memory = ["--set", "kv.device_bytes=16MiB"];
    cluster.prefill(&[&SLOW[..], &memory, &["--name", "p1"]].concat());
    let ops = format!("worker.ops_listen={decode}");
    cluster.decode(&[&SLOW[..], &memory, &["--name", "d1", "--set", &ops]].concat());
    cluster.decode(&[&SLOW[..], &memory, &["--name", "d2"]].concat());
    let addresses: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let (few, all) = (format!("cluster.workers={}", addresses[..2].join(",")), addresses.join(","));
    let ops = format!("router.ops_listen={router}");
    let collector = format!("traces.endpoint=http://{}", own_place());
    let traces = ["--set", collector.as_str(), "--set", "traces.sample=0"];
    cluster.route(&[&["--set", "placement.handoff=always", "--set", &ops, "--set", &few], &traces[..]].concat());
    cluster.until_ready(1, 1);
    let api = cluster.router();

    // A limit: what is open goes on, what is new is refused.
    let listed = setting(router, "router.requests_max");
    assert_eq!((&listed["value"], &listed["from"]), (&json!("1024"), &json!("default")), "{listed:#}");
    let stream = ask(2, 400).begin_stream(api);
    let before = change(router, "router.requests_max", "1");
    assert_eq!(setting(router, "router.requests_max")["from"], "admin call");
    assert_eq!(asked(api, 3).0, 429);
    assert_eq!(change(router, "router.requests_max", &before), "1");
    assert_eq!(asked(api, 3).0, 200);
    assert_eq!(setting(router, "router.requests_max")["from"], "default");
    drop(stream);

    // A policy.
    let uses_prefill = |number| {
        let (status, id) = asked(api, number);
        assert_eq!(status, 200);
        done(router, &["explain", &id])["request"]["prefill_name"] == "p1"
    };
    assert!(uses_prefill(4));
    let before = change(router, "placement.handoff", "never");
    assert!(!uses_prefill(5));
    assert_eq!(change(router, "placement.handoff", &before), "\"never\"");
    assert!(uses_prefill(6));

    // The share of requests that is traced, to a collector that is away.
    let is_traced = || api.post("/v1/completions", &ask(7, 4).body).head.header("traceparent").is_some();
    assert!(!is_traced());
    let before = change(router, "traces.sample", "1");
    assert!(is_traced());
    change(router, "traces.sample", &before);
    assert!(!is_traced());

    // What ended is listed, as many as are kept.
    let ended = || done(router, &["requests", "--ended", "50"])["requests"].as_array().expect("a list").clone();
    until("the last one has ended", || ended().iter().all(|request| request["state"] == "ended").then_some(()));
    assert!(ended().len() >= 5, "{:#?}", ended());
    assert_eq!(done(router, &["requests", "--ended", "2"])["requests"].as_array().map(Vec::len), Some(2));
    let before = change(router, "admin.explained_max", "1");
    assert_eq!(ended().len(), 1);
    change(router, "admin.explained_max", &before);

    // Workers of a list.
    let before = change(router, "cluster.workers", &all);
    cluster.until_ready(1, 2);
    change(router, "cluster.workers", &before);

    // A limit of a worker, which says so to its router.
    let running_max = |wanted: u64| {
        let known = || worker(&done(router, &["workers"]), "d1")["running_max"].as_u64();
        until("the router knows it", || (known() == Some(wanted)).then_some(()));
    };
    running_max(64);
    let before = change(decode, "engine.running_max", "20");
    running_max(20);
    change(decode, "engine.running_max", &before);
    running_max(64);

    for (server, assignment, status, said) in [
        (router, "router.request_max=1", 3, "did you mean router.requests_max?"),
        (router, "router.requests_max=0", 2, "at least 1"),
        (router, "router.requests_max=9999", 2, "router.connections_max: 4096 is not above"),
        (router, "kv.device_bytes=1GiB", 4, "cannot change without a restart"),
        (router, "engine.running_max=8", 4, "engine.running_max is of workers"),
        (router, "cluster.workers=", 2, "cluster.workers is empty"),
        (decode, "router.requests_max=1", 4, "is of routers"),
        (decode, "engine.running_max=100", 2, "is above 80"),
        (router, "router.requests_max", 2, "NAME=VALUE"),
    ] {
        let good = if server == router { "router.deadline_s=5" } else { "log.level=warn" };
        let error = refused(server, &["limits", good, assignment], status);
        assert!(error.contains(said), "{assignment}: {error}");
    }
    // Nothing of it was taken up.
    assert_eq!(setting(router, "router.deadline_s")["value"], "600");
    assert_eq!(setting(decode, "log.level")["value"], "\"info\"");
    assert!(api.log().contains("an operator changed a setting"), "{}", api.log());
    cluster.end();
}

#[test]
fn a_configuration_is_read_again_by_a_call() {
    let folder = Folder::new("settings");
    let file = folder.path("baton.toml");
    let write = |text: &str| fs::write(&file, text).expect("the folder is there");
    write("[router]\nops_listen = \"127.0.0.1:0\"\nchoices_max = 4\n");
    let server = Server::start(&["--config", &file]);
    let ops = server.operations();
    let status = |choices: u32| {
        let ask = Ask::chat("Hi", json!({ "max_tokens": 1, "n": choices }));
        server.post(CHAT, &ask.body).head.status
    };
    assert_eq!((status(4), done(ops, &["reload"])), (200, json!({ "changes": [] })));

    write("[router]\nops_listen = \"127.0.0.1:0\"\nchoices_max = 2\ndeadline_s = 60\n");
    let changed = done(ops, &["reload"]);
    let changes = |name: &str, before: &str, after: &str| json!({ "name": name, "before": before, "after": after });
    let wanted = [changes("router.choices_max", "4", "2"), changes("router.deadline_s", "600", "60")];
    assert_eq!((&changed["changes"], status(3)), (&json!(wanted), 400));
    let from = setting(ops, "router.choices_max")["from"].clone();
    assert!(from.as_str().is_some_and(|from| from.ends_with("baton.toml")), "{from}");

    // A call wins until the file says something else than before.
    assert_eq!(change(ops, "router.choices_max", "3"), "2");
    write("[router]\nops_listen = \"127.0.0.1:0\"\nchoices_max = 2\ndeadline_s = 30\n");
    assert_eq!(done(ops, &["reload"])["changes"], json!([changes("router.deadline_s", "60", "30")]));
    assert_eq!(status(3), 200);
    write("[router]\nops_listen = \"127.0.0.1:0\"\nchoices_max = 1\ndeadline_s = 30\n");
    assert_eq!(done(ops, &["reload"])["changes"], json!([changes("router.choices_max", "3", "1")]));
    assert_eq!(status(2), 400);

    for (wrong, said) in [
        ("choices_max = 4\n[kv]\nreserve_percent = 9", "cannot change without a restart: kv.reserve_percent (5 -> 9)"),
        ("choices_max = 9999", "engine.running_max"),
        ("choice_max = 4", "did you mean router.choices_max?"),
        ("[", "is not TOML"),
    ] {
        write(&format!("[router]\nops_listen = \"127.0.0.1:0\"\n{wrong}\n"));
        let error = refused(ops, &["reload"], 4);
        assert!(error.contains(said), "{wrong}: {error}");
        assert_eq!(status(2), 400, "{wrong}: nothing of it was taken up");
    }
}
