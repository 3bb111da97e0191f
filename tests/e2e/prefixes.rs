//! Prefixes that an operator pins, parks and brings back, on a cluster of processes. No text changes because of it.

use crate::address::own_place;
use crate::admin::{admin, done, refused, worker};
use crate::asks::{Ask, CHAT};
use crate::cluster::Cluster;
use crate::server::{Server, baton, drained, ended, until};
use serde_json::{Value, json};
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;

/// Long enough for blocks of its own; and nothing that a log would say by itself.
const RULES: &str = "Answer every question about ownership in Rust as if a xylophone asked it. Be short. Say what moves, \
                      what is borrowed, and for how long. Give one example at most, and never more than three lines. \
                      Where you are not sure, say so. Do not apologise. Do not repeat the question.";

/// What every conversation begins with. The template of the bundled model has no system messages.
fn beginning() -> [Value; 2] {
    [json!({ "role": "user", "content": RULES }), json!({ "role": "assistant", "content": "I will." })]
}

fn chat(question: &str) -> Ask {
    let messages = [&beginning()[..], &[json!({ "role": "user", "content": question })]].concat();
    let body = json!({ "model": "tiny-rust", "messages": messages, "temperature": 0, "max_tokens": 12 });
    Ask { path: CHAT, body }
}

/// Writes a request to a file of this folder, and returns its path.
fn file(folder: &Path, name: &str, request: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, request).expect("it is written");
    path.to_str().expect("UTF-8").to_owned()
}

/// What one worker said of the prefix.
fn of<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let all = answer["workers"].as_array().expect("a list");
    all.iter().find(|worker| worker["worker_name"] == name).unwrap_or_else(|| panic!("{name} in {answer:#}"))
}

/// Blocks of a worker's device that pins keep there.
fn pinned(router: SocketAddr, name: &str) -> u64 {
    let tiers = done(router, &["tiers", name]);
    let device = tiers["tiers"].as_array().expect("a list").iter().find(|tier| tier["tier"] == "device");
    device.expect("every worker has one")["pinned"].as_u64().expect("a count")
}

#[test]
fn a_prefix_is_pinned_parked_and_brought_back_and_no_text_changes() {
    let questions = ["What is ownership?", "What is borrowing?"];
    let undisturbed = Server::start(&["--threads", "1"]);
    let expected = questions.map(|question| chat(question).whole(&undisturbed).0);
    drop(undisturbed);

    let (router, decode) = (own_place(), own_place());
    let mut cluster = Cluster::new("hush, says this test");
    let settings = ["--set", "kv.device_bytes=16MiB", "--set", "kv.pinned_percent=15", "--set", "host.bytes=16MiB"];
    let ops = format!("worker.ops_listen={decode}");
    let p1 = cluster.prefill(&[&settings[..], &["--name", "p1", "--set", "worker.ops_listen="]].concat());
    let d1 = cluster.decode(&[&settings[..], &["--name", "d1", "--set", &ops]].concat());
    cluster.route(&["--set", "placement.handoff=always", "--set", &format!("router.ops_listen={router}")]);
    cluster.until_ready(1, 1);
    let folder = tempfile::tempdir().expect("a folder");
    let prompt = file(folder.path(), "beginning.json", &json!({ "messages": beginning() }).to_string());
    let ask = |at: usize| {
        let (said, cached) = chat(questions[at]).whole(cluster.router());
        assert_eq!(said, expected[at], "{}", questions[at]);
        cached
    };

    // It is pinned before it is there, and stays when the rest goes.
    let answer = done(router, &["pin", &prompt, "--for", "2h"]);
    let tokens = of(&answer, "p1")["tokens"].as_u64().expect("a count");
    assert!(tokens >= 32 && answer["prompt_tokens"].as_u64().is_some_and(|all| all >= tokens), "{answer:#}");
    for name in ["p1", "d1"] {
        let worker = of(&answer, name);
        assert_eq!((&worker["outcome"], &worker["pinned"]), (&json!("done"), &json!(true)), "{answer:#}");
        assert_eq!((&worker["device_tokens"], &worker["tokens"]), (&json!(0), &json!(tokens)), "{answer:#}");
        assert_eq!(pinned(router, name), 0, "nothing is computed for it");
    }
    assert_eq!(ask(0), 0);
    for name in ["p1", "d1"] {
        until("its blocks are there", || (pinned(router, name) == tokens / 32).then_some(()));
        until("nothing else is", || {
            done(router, &["flush", name]);
            let tiers = done(router, &["tiers", name]);
            (tiers["tiers"][0]["blocks"] == json!(tokens / 32)).then_some(())
        });
        assert_eq!(of(&done(router, &["pin", &prompt, "--worker", name]), name)["device_tokens"], tokens);
    }
    assert!(ask(1) >= tokens);

    // What is pinned cannot be parked. It is let go once.
    let answer = done(router, &["park", &prompt]);
    assert_eq!(of(&answer, "p1")["outcome"], "unchanged", "{answer:#}");
    let unpinned = done(router, &["unpin", &prompt]);
    assert_eq!((&of(&unpinned, "d1")["outcome"], &of(&unpinned, "d1")["pinned"]), (&json!("done"), &json!(false)));
    assert_eq!(of(&done(router, &["unpin", &prompt]), "d1")["outcome"], "unchanged");
    assert_eq!(pinned(router, "p1"), 0);

    // It leaves the devices, and comes back before anything asks for it.
    until("it left the devices", || {
        let answer = done(router, &["park", &prompt]);
        let gone = |name| of(&answer, name)["outcome"] == "unchanged" && of(&answer, name)["device_tokens"] == 0;
        ["p1", "d1"].into_iter().all(gone).then_some(())
    });
    let answer = done(router, &["unpark", &prompt]);
    assert!(of(&answer, "p1")["blocks"].as_u64().is_some_and(|blocks| blocks > 0), "{answer:#}");
    until("it is on the devices", || {
        let answer = done(router, &["unpark", &prompt]);
        ["p1", "d1"].into_iter().all(|name| of(&answer, name)["device_tokens"] == tokens).then_some(())
    });
    assert!(ask(0) >= tokens);

    // A request may come by the standard input.
    let mut command = baton(&["admin", "--server", &format!("http://{router}"), "pin", "-"]);
    let mut child = command.stdin(File::open(&prompt).expect("it is there")).spawn().expect("the binary runs");
    assert_eq!(ended(&mut child).code(), Some(0), "{}", drained(child.stderr.take()));
    let table = drained(child.stdout.take());
    assert!(table.starts_with("WORKER  RESULT") && table.lines().count() == 3, "{table}");

    // What cannot be is refused with the reason, and the exit status says which.
    let many = file(folder.path(), "many.json", &json!({ "prompt": vec![300; 1000] }).to_string());
    let (status, table, error) = admin(router, &["pin", &many]);
    assert_eq!(status, Some(4), "{table} {error}");
    assert!(table.contains("15% of its blocks (kv.pinned_percent)"), "{table}");
    assert!(error.contains("of 2 workers 2 refuse"), "{error}");
    assert!(refused(router, &["pin", &prompt, "--worker", "nobody"], 3).contains("there are "));
    assert!(refused(router, &["park", "/nowhere/x.json"], 2).contains("/nowhere/x.json"));
    let text = file(folder.path(), "text.json", RULES);
    assert!(refused(router, &["park", &text], 2).contains("not valid JSON"));
    assert!(refused(router, &["pin", &prompt, "--for", "1 year"], 2).contains("such as 24h"));
    assert!(refused(decode, &["pin", &prompt], 4).contains("ask the router"));

    // A restart forgets.
    let logs = [cluster.router().log(), cluster.worker(p1).log(), cluster.worker(d1).log()];
    assert!(logs[1].contains("an operator pins a prefix"), "{}", logs[1]);
    assert!(logs.iter().all(|log| !log.contains("xylophone")), "prompts are not logged");
    let before = worker(&done(router, &["workers"]), "d1")["incarnation"].clone();
    cluster.restart(d1);
    until("its next life is up", || {
        let workers = done(router, &["workers"]);
        let all = workers["workers"].as_array().expect("a list");
        all.iter().any(|it| it["name"] == "d1" && it["incarnation"] != before && it["state"] == "serving").then_some(())
    });
    let answer = done(router, &["unpin", &prompt]);
    let outcomes = ["p1", "d1"].map(|name| of(&answer, name)["outcome"].clone());
    assert_eq!(outcomes, ["done", "unchanged"]);
    cluster.end();
}
