//! One role per process: routers and workers that come, go and die while requests run.

use crate::address::own_place;
use crate::asks::Ask;
use crate::cluster::Cluster;
use crate::http::Connection;
use crate::metrics::Metrics;
use crate::models::Folder;
use crate::process::Process;
use crate::server::{Server, baton, drained, ended, until};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Tokens of a stream that is still under way when something happens to its worker.
const LONG_TOKENS: u64 = 800;

/// A request that takes a while, and says the same each time.
fn long(prompt: &str) -> Ask {
    Ask::completion("tiny-rust", prompt, json!({ "max_tokens": LONG_TOKENS, "ignore_eos": true, "temperature": 0 }))
}

/// What a service that nothing happens to says.
fn undisturbed(asks: &[Ask]) -> Vec<String> {
    let server = Server::start(&["--prefill", "0"]);
    asks.iter().map(|ask| ask.whole(&server).0.choices[&0].text.clone()).collect()
}

/// The text of a stream from here to its end. Errors: it broke.
fn rest(stream: &mut Connection) -> io::Result<String> {
    let mut text = String::new();
    while let Some(event) = stream.event()? {
        if event == "[DONE]" {
            return Ok(text);
        }
        let event: Value = serde_json::from_str(&event).expect("events are JSON");
        assert!(event["error"].is_null(), "{event}");
        text += event["choices"][0]["text"].as_str().unwrap_or_default();
    }
    Err(io::Error::other("the stream ended before [DONE]"))
}

/// Begins all of them, lets `happen` once each has its first tokens, and checks what they say.
fn check(cluster: &Cluster, prompts: &[&str], happen: impl FnOnce()) {
    let asks: Vec<Ask> = prompts.iter().map(|prompt| long(prompt)).collect();
    let wanted = undisturbed(&asks);
    let router = cluster.router();
    let mut streams: Vec<_> = asks
        .iter()
        .map(|ask| {
            let mut stream = ask.begin_stream(router);
            let event = stream.event().expect("the stream goes on").expect("there is a first event");
            let event: Value = serde_json::from_str(&event).expect("events are JSON");
            (event["choices"][0]["text"].as_str().unwrap_or_default().to_owned(), stream)
        })
        .collect();
    happen();
    for (((begun, stream), wanted), prompt) in streams.iter_mut().zip(&wanted).zip(prompts) {
        let text = std::mem::take(begun) + &rest(stream).expect("the stream comes to its end");
        assert_eq!(text, *wanted, "after {prompt:?}");
    }
}

#[test]
fn three_processes_say_what_one_says() {
    let mut cluster = Cluster::new("hush, says this test");
    cluster.prefill(&[]);
    cluster.decode(&[]);
    cluster.route(&["--set", "placement.handoff=always"]);
    cluster.until_ready(1, 1);
    check(&cluster, &["Ownership is", "A trait is", "Lifetimes are"], || {});
    let metrics = cluster.router().metrics();
    assert_eq!(metrics.sum("baton_replays_total", &[]), 0.0);
    let ends = cluster.end();
    assert!(ends.iter().all(|code| *code == Some(0)), "{ends:?}");
}

/// Tokens that the worker with its metrics here fetched from others before it computed prompts, and those of them
/// that prompts are said to have come from.
fn fetched(worker: SocketAddr) -> [f64; 2] {
    let metrics = Metrics::at(worker);
    let fetched = metrics.sum("baton_prefix_fetch_tokens_total", &[("result", "fetched")]);
    [fetched, metrics.sum("baton_prompt_source_tokens_sum", &[("source", "peer")])]
}

#[test]
fn the_next_turn_takes_what_was_generated_from_where_it_was() {
    let free = own_place();
    let mut cluster = Cluster::new("hush, says this test");
    cluster.prefill(&["--set", "engine.block_tokens=16", "--set", &format!("worker.ops_listen={free}")]);
    cluster.decode(&["--set", "engine.block_tokens=16"]);
    cluster.route(&["--set", "placement.handoff=always", "--set", "placement.fetch=always"]);
    cluster.until_ready(1, 1);
    let undisturbed = Server::start(&["--prefill", "0"]);
    let mut questions = 0..;
    // The router may not have heard yet of what was cached last; then there is another conversation.
    until("the prefill worker fetches from the decode worker", || {
        let mut said = format!("Question {}: what is ownership?", questions.next()?);
        for _turn in 0..3 {
            let more = json!({ "max_tokens": 100, "ignore_eos": true, "temperature": 0 });
            let ask = Ask::completion("tiny-rust", said.as_str(), more);
            let [text, wanted] = [cluster.router(), &*undisturbed].map(|by| ask.whole(by).0.choices[&0].text.clone());
            assert_eq!(text, wanted, "after {said:?}");
            said = format!("{said}{text} And what");
        }
        // It has every prompt itself: what it lacked was generated.
        (fetched(free)[0] > 0.0).then_some(())
    });
    let [came, told] = fetched(free);
    assert_eq!(came, told, "what was fetched is not told from what was there");
    assert_eq!(cluster.router().metrics().sum("baton_replays_total", &[]), 0.0);
    let ends = cluster.end();
    assert!(ends.iter().all(|code| *code == Some(0)), "{ends:?}");
}

/// Conversations of which each worker has some, at least one.
const CONVERSATIONS: u32 = 8;
/// The router hears a little later than the workers know where a conversation is; then there are others.
const TRIES: u32 = 5;

/// What workers computed lies on a disk of each, and nothing on their devices.
#[test]
fn the_next_turn_goes_where_the_last_one_is_on_disk() {
    let metrics = [(); 2].map(|()| own_place());
    let (mut cluster, folder) = (Cluster::new("hush, says this test"), Folder::new("placed-by-disk"));
    for (number, metrics) in metrics.iter().enumerate() {
        let tier = folder.path(&number.to_string());
        fs::create_dir(&tier).expect("a folder for the tier");
        let settings = [
            // Computing takes long, so that loading is worth it.
            "sim.speed_percent=10".to_owned(),
            "kv.device_bytes=64MiB".to_owned(),
            "kv.park_idle_ms=200".to_owned(),
            format!("disk.folders={tier}"),
            "disk.bytes=64MiB".to_owned(),
            "disk.write=back".to_owned(),
            format!("worker.ops_listen={metrics}"),
        ];
        let flags = settings.iter().flat_map(|setting| ["--set", setting.as_str()]);
        cluster.decode(&["--device", "sim"].into_iter().chain(flags).collect::<Vec<_>>());
    }
    cluster.route(&[]);
    cluster.until_ready(0, 2);
    let ask = |number: u32| {
        let prompt: Vec<u32> = (0..300).map(|n| 300 + (n * (number + 3)) % 1500).collect();
        Ask::completion("tiny-rust", json!(prompt), json!({ "seed": 1, "max_tokens": 4 }))
    };
    let on_devices =
        || metrics.iter().map(|&at| Metrics::at(at).sum("baton_kv_blocks", &[("state", "cached")])).sum::<f64>();
    let came = || metrics.map(|at| Metrics::at(at).sum("baton_prompt_source_tokens_sum", &[("source", "disk")]));
    for first in (0..TRIES).map(|number| number * CONVERSATIONS) {
        let asks: Vec<Ask> = (first..first + CONVERSATIONS).map(ask).collect();
        let said: Vec<_> = std::thread::scope(|scope| {
            let turns: Vec<_> = asks.iter().map(|ask| scope.spawn(|| ask.whole(cluster.router()).0)).collect();
            turns.into_iter().map(|turn| turn.join().expect("it is answered")).collect()
        });
        until("the devices to be empty", || (on_devices() == 0.0).then_some(()));
        let before = came();
        let again: Vec<_> = asks.iter().map(|ask| ask.whole(cluster.router())).collect();
        for ((ask, said), (again, _)) in asks.iter().zip(&said).zip(&again) {
            assert_eq!(again, said, "{ask:?}");
        }
        let of_each = came();
        if again.iter().all(|(_, cached)| *cached > 0)
            && before.iter().zip(of_each).all(|(before, after)| after > *before)
        {
            let ends = cluster.end();
            assert!(ends.iter().all(|code| *code == Some(0)), "{ends:?}");
            return;
        }
    }
    panic!("turns go where their conversations are not: {:?} tokens came from each disk", came());
}

#[test]
fn a_worker_that_is_killed_is_replaced() {
    let mut cluster = Cluster::new("hush, says this test");
    cluster.prefill(&[]);
    let [first, second] = [cluster.decode(&[]), cluster.decode(&[])];
    cluster.route(&["--set", "placement.handoff=always"]);
    cluster.until_ready(1, 2);
    check(&cluster, &["Ownership is", "A trait is", "Lifetimes are", "Rust is"], || {
        cluster.worker(first).signal("KILL")
    });
    assert!(cluster.router().metrics().sum("baton_replays_total", &[]) > 0.0, "somebody was on it");
    // It returns at its address, and is used when the other is gone.
    cluster.restart(first);
    cluster.until_ready(1, 2);
    cluster.worker(second).signal("KILL");
    cluster.until_ready(1, 1);
    check(&cluster, &["Ownership is"], || {});
}

#[test]
fn a_draining_worker_hands_its_sequences_over() {
    let mut cluster = Cluster::new("hush, says this test");
    cluster.prefill(&[]);
    let [first, second] = [cluster.decode(&[]), cluster.decode(&[])];
    cluster.route(&["--set", "placement.handoff=always"]);
    cluster.until_ready(1, 2);
    check(&cluster, &["Ownership is", "A trait is", "Lifetimes are", "Rust is"], || {
        cluster.worker(first).signal("TERM")
    });
    assert_eq!(cluster.ended(first), Some(0));
    let metrics = cluster.router().metrics();
    assert!(metrics.sum("baton_moves_total", &[]) > 0.0, "somebody was on it");
    assert_eq!(metrics.sum("baton_replays_total", &[]), 0.0);
    cluster.restart(first);
    cluster.until_ready(1, 2);
    check(&cluster, &["Ownership is", "A trait is"], || cluster.worker(second).signal("TERM"));
}

#[test]
fn a_worker_may_come_later_and_a_router_before_all() {
    let mut cluster = Cluster::new("hush, says this test");
    let late = cluster.reserve("decode-worker", "hush, says this test", &[]);
    cluster.route(&[]);
    let router = cluster.router();
    let answer = router.post("/v1/completions", &long("Ownership is").body);
    assert_eq!((answer.head.status, answer.json()["error"]["code"].as_str()), (503, Some("no_workers")));
    let ready = router.get("/ready");
    assert_eq!((ready.head.status, ready.json()["why"].as_str()), (503, Some("no decode worker is up")));
    let model = router.get("/v1/models").json()["data"][0].take();
    assert_eq!((&model["max_model_len"], &model["batch_invariant"]), (&Value::Null, &Value::Null));
    cluster.restart(late);
    cluster.until_ready(0, 1);
    check(&cluster, &["Ownership is"], || {});
}

#[test]
fn routers_share_workers_and_come_back() {
    let mut cluster = Cluster::new("hush, says this test");
    cluster.prefill(&[]);
    cluster.decode(&[]);
    cluster.route(&["--set", "placement.handoff=always"]);
    cluster.until_ready(1, 1);
    let other = cluster.another_router(&[]);
    until("the other router is ready", || (other.get("/ready").head.status == 200).then_some(()));
    let wanted = undisturbed(&[long("A trait is")]);
    check(&cluster, &["Ownership is"], || {
        assert_eq!(long("A trait is").whole(&other).0.choices[&0].text, wanted[0]);
        // What it asked for is given up; nobody else notices.
        drop(long("Lifetimes are").begin_stream(&other));
        other.signal("KILL");
    });
    drop(other);
    let again = cluster.another_router(&[]);
    until("the router is ready", || (again.get("/ready").head.status == 200).then_some(()));
    assert_eq!(long("A trait is").whole(&again).0.choices[&0].text, wanted[0]);
}

#[test]
fn a_router_needs_the_small_files_of_its_model_alone() {
    let folder = Folder::new("small-files");
    let (model, bundled) = (folder.path(""), Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-rust"));
    for file in ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(bundled.join(file), folder.path(file)).expect("it can be copied");
    }
    let flags = ["--model", &model, "--set", "model.name=tiny-rust"];
    let mut cluster = Cluster::new("hush, says this test");
    cluster.decode(&[]);
    cluster.route(&flags);
    cluster.until_ready(0, 1);
    let other = cluster.another_router(&[]);
    until("the router is ready", || (other.get("/ready").head.status == 200).then_some(()));
    let ask = Ask::chat("What is ownership?", json!({ "temperature": 0, "max_tokens": 8 }));
    assert_eq!(ask.whole(cluster.router()).0, ask.whole(&other).0);
    drop(cluster);

    // A worker needs more, and what either lacks is said.
    let ended_with = |command: &[&str], parts: [&str; 2]| {
        let arguments = [command, &flags, &["--listen", "127.0.0.1:0", "--set", "cluster.insecure=true"]].concat();
        let mut child = baton(&arguments).spawn().expect("the binary runs");
        assert_eq!(ended(&mut child).code(), Some(1));
        let error = drained(child.stderr.take());
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    ended_with(&["decode-worker"], ["model.safetensors", &model]);
    let router = ["router", "--workers", "127.0.0.1:1"];
    fs::remove_file(folder.path("tokenizer.json")).expect("it is there");
    ended_with(&router, ["tokenizer.json", "which says what the tokens of a text are"]);
    fs::remove_file(folder.path("config.json")).expect("it is there");
    ended_with(&router, ["config.json", "which says what the model is"]);
}

/// What the log of a worker says that a router does without.
const REFUSES: &str = "a router refuses this worker";

/// What a router says of a worker that does not belong to it, and what that one says of it.
#[track_caller]
fn check_refused(secret: &str, flags: &[&str], wanted: &str, worker_says: [&str; 2]) {
    let mut cluster = Cluster::new("hush, says this test");
    let first = cluster.decode(&[]);
    let other = cluster.start("decode-worker", secret, flags);
    cluster.route(&[]);
    let said = |router: &Process| router.log().lines().find(|line| line.contains(wanted)).map(str::to_owned);
    until("the refusal", || said(cluster.router()));
    // Where both know the secret, the first that is reached belongs.
    until("its reason", || {
        [first, other]
            .into_iter()
            .any(|worker| {
                let log = cluster.worker(worker).log();
                let lines: Vec<&str> = log.lines().filter(|line| line.contains(worker_says[0])).collect();
                assert!(lines.len() <= 1, "what is the same each time is told once: {lines:?}");
                lines.first().is_some_and(|line| line.contains(worker_says[1]))
            })
            .then_some(())
    });
    cluster.until_ready(0, 1);
}

#[test]
fn who_does_not_know_the_secret_is_refused() {
    let wanted = "has not proven that it knows the secret of the worker's cluster: set the same cluster.secret on both";
    check_refused("other, says this test", &[], wanted, ["a router is refused", "set the same cluster.secret on both"]);
}

#[test]
fn a_worker_with_another_layout_is_refused() {
    check_refused(
        "hush, says this test",
        &["--set", "engine.block_tokens=16"],
        "other KV",
        [REFUSES, "blocks of 16 tokens"],
    );
}

#[test]
fn a_worker_of_another_model_is_refused() {
    check_refused("hush, says this test", &["--device", "sim"], "other weights", [REFUSES, "digest"]);
}

#[test]
fn a_worker_of_the_same_name_is_refused() {
    let mut cluster = Cluster::new("hush, says this test");
    let twins = [(); 2].map(|()| cluster.decode(&["--name", "twin"]));
    cluster.route(&[]);
    let is_told = |log: String| log.contains("give one another name");
    until("the refusal", || is_told(cluster.router().log()).then_some(()));
    until("its reason", || twins.iter().any(|&twin| is_told(cluster.worker(twin).log())).then_some(()));
}

#[test]
fn processes_of_one_user_need_no_secret() {
    let folder = Folder::new("secret-of-a-user");
    let place = format!("cluster.runtime_folder={}", folder.path(""));
    let mut cluster = Cluster::new("");
    cluster.decode(&["--set", &place]);
    cluster.route(&["--set", &place]);
    cluster.until_ready(0, 1);
}

#[test]
fn other_hosts_are_not_spoken_to_without_a_secret() {
    let transport = ["decode-worker", "--listen", "127.0.0.1:0", "--set", "transport.listen=0.0.0.0:0"];
    for (arguments, key) in [
        (&["decode-worker", "--listen", "0.0.0.0:0"][..], "worker.listen: 0.0.0.0:0"),
        (&transport, "transport.listen: 0.0.0.0:0"),
        (&["router", "--workers", "127.0.0.1:1,worker-2:9001"], "cluster.workers: worker-2:9001"),
    ] {
        let mut child = baton(arguments).spawn().expect("the binary runs");
        assert_eq!(ended(&mut child).code(), Some(1));
        let error = drained(child.stderr.take());
        for part in [key, "cluster.secret_file", "127.0.0.1", "cluster.insecure = true"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
