//! Routers and workers that find each other in a real etcd, without any list of addresses.

use crate::address::own_place;
use crate::admin::done;
use crate::asks::Ask;
use crate::etcd::EtcdServer;
use crate::process::Process;
use crate::server::{Server, baton, drained, ended, until};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Of a worker's registration. A machine that stands still for seconds loses none.
const LEASE_S: u64 = 6;
/// How long etcd is away: ten leases.
const AWAY: Duration = Duration::from_secs(LEASE_S * 10);

/// Processes of one cluster, which know where etcd is.
struct Found {
    settings: Vec<String>,
}

impl Found {
    fn new(etcd: &EtcdServer) -> Self {
        let endpoints = format!("discovery.etcd.endpoints={}", etcd.endpoint());
        let lease = format!("discovery.etcd.lease_s={LEASE_S}");
        let settings = ["discovery.kind=etcd".to_owned(), endpoints, lease];
        Self { settings: settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]).collect() }
    }

    fn start(&self, arguments: &[&str]) -> Process {
        let settings = self.settings.iter().map(String::as_str);
        let arguments: Vec<&str> =
            arguments.iter().copied().chain(["--listen", "127.0.0.1:0"]).chain(settings).collect();
        Process::start(&arguments, &[("BATON_CLUSTER__SECRET", "hush, says this test")])
    }

    fn worker(&self, command: &str, name: &str) -> Process {
        self.operated(command, name, "")
    }

    /// A worker that listens for its operators there.
    fn operated(&self, command: &str, name: &str, ops: &str) -> Process {
        let ops = format!("worker.ops_listen={ops}");
        self.start(&[command, "--threads", "1", "--name", name, "--set", "topology.rack=r7", "--set", &ops])
    }

    fn router(&self) -> Process {
        self.start(&["router", "--set", "placement.handoff=always"])
    }
}

/// Waits until the router counts so many workers.
fn until_ready(router: &Process, prefill: usize, decode: usize) {
    let wanted = json!({ "prefill": prefill, "decode": decode });
    until("the workers are counted", || (router.get("/ready").json()["workers"] == wanted).then_some(()));
}

/// How many workers are registered.
fn registered(etcd: &EtcdServer) -> usize {
    // Of /baton/ up to /baton0.
    let range = r#"{"key":"L2JhdG9uLw==","range_end":"L2JhdG9uMA==","keys_only":true}"#;
    etcd.ask("", "/v3/kv/range", range).map_or(0, |answer| answer.matches(r#""key""#).count())
}

fn ask(prompt: &str) -> Ask {
    Ask::completion("tiny-rust", prompt, json!({ "max_tokens": 60, "ignore_eos": true, "temperature": 0 }))
}

fn undisturbed(prompts: &[&str]) -> Vec<String> {
    let server = Server::start(&["--prefill", "0"]);
    prompts.iter().map(|prompt| text(&server, prompt)).collect()
}

fn text(by: &Process, prompt: &str) -> String {
    ask(prompt).whole(by).0.choices[&0].text.clone()
}

/// How often the log of a process says something.
fn said(process: &Process, what: &str) -> usize {
    process.log().lines().filter(|line| line.contains(what)).count()
}

#[test]
fn processes_find_each_other_and_forget_who_is_gone() {
    let Some(mut etcd) = EtcdServer::start(own_place(), &[]) else { return };
    let cluster = Found::new(&etcd);
    // A router comes before all others.
    let router = cluster.router();
    let mut prefill = cluster.worker("prefill-worker", "p-1");
    let mut first = cluster.worker("decode-worker", "d-1");
    until_ready(&router, 1, 1);
    let prompts = ["Ownership is", "A trait is"];
    for (prompt, wanted) in prompts.iter().zip(undisturbed(&prompts)) {
        assert_eq!(text(&router, prompt), wanted, "after {prompt:?}");
    }
    assert!(router.log().contains("rack=r7"), "labels are told");
    let ops = own_place();
    let second = cluster.operated("decode-worker", "d-2", &ops.to_string());
    until_ready(&router, 1, 2);
    assert_eq!(registered(&etcd), 3);
    // Its role is listed as it is now.
    for (role, listed, prefill, decode) in [("prefill", "role=Prefill", 2, 1), ("decode", "role=Decode", 1, 2)] {
        let log = router.log().len();
        assert_eq!(done(ops, &["role", "d-2", role])["role"], role);
        until_ready(&router, prefill, decode);
        until("it is listed so", || {
            let log = router.log().split_off(log);
            let is_it = |line: &str| line.contains("discovery lists a worker worker=\"d-2\"") && line.contains(listed);
            log.lines().any(is_it).then_some(())
        });
    }
    // One that dies is gone with its session, and from etcd with its lease.
    second.signal("KILL");
    until_ready(&router, 1, 1);
    until("its lease to lapse", || (registered(&etcd) == 2).then_some(()));
    assert_eq!(router.metrics().workers(), 2);
    // One that is asked to end is gone from etcd at once, and returns as another life.
    first.signal("TERM");
    assert_eq!(first.ended().code(), Some(0));
    assert_eq!(registered(&etcd), 1);
    until_ready(&router, 1, 0);
    until("its peer to forget it", || (said(&prefill, "it left, and is forgotten") == 1).then_some(()));
    let _first = cluster.worker("decode-worker", "d-1");
    until_ready(&router, 1, 1);
    text(&router, "Lifetimes are");
    for process in [&router, &prefill] {
        assert_eq!(said(process, "WARN discovery"), 0, "etcd was there: {}", process.log());
    }
    // What a worker cannot take back, it says.
    etcd.stop();
    prefill.signal("TERM");
    assert_eq!(prefill.ended().code(), Some(0));
    assert_eq!(said(&prefill, "the worker stays registered until its lease lapses"), 1, "{}", prefill.log());
}

#[test]
fn no_request_is_lost_while_etcd_is_away() {
    let Some(mut etcd) = EtcdServer::start(own_place(), &[]) else { return };
    let cluster = Found::new(&etcd);
    let workers = [("prefill-worker", "p-1"), ("decode-worker", "d-1"), ("decode-worker", "d-2")];
    let workers = workers.map(|(command, name)| cluster.worker(command, name));
    let router = cluster.router();
    until_ready(&router, 1, 2);
    let prompts = ["Ownership is", "A trait is", "Lifetimes are"];
    let (wanted, over) = (undisturbed(&prompts), AtomicBool::new(false));
    let answered: usize = std::thread::scope(|scope| {
        let clients = prompts.iter().zip(&wanted).map(|(prompt, wanted)| {
            let (router, over) = (&router, &over);
            scope.spawn(move || {
                let asks = std::iter::from_fn(|| (!over.load(Ordering::Relaxed)).then(|| text(router, prompt)));
                asks.inspect(|text| assert_eq!(text, wanted, "after {prompt:?}")).count()
            })
        });
        let clients: Vec<_> = clients.collect();
        etcd.stop();
        sleep(AWAY);
        // A worker that comes meanwhile waits.
        let late = cluster.worker("decode-worker", "d-3");
        assert_eq!(router.get("/ready").json()["workers"], json!({ "prefill": 1, "decode": 2 }));
        etcd.start_again();
        until_ready(&router, 1, 3);
        over.store(true, Ordering::Relaxed);
        drop(late);
        clients.into_iter().map(|client| client.join().expect("its answers are right")).sum()
    });
    assert!(answered > prompts.len(), "there was load: {answered}");
    for process in workers.iter().chain([&router]) {
        // Each notices at its next beat.
        until("etcd to be back for it", || (said(process, "etcd answers again") > 0).then_some(()));
        assert_eq!(said(process, "does not answer") + said(process, "ended the connection"), 1, "{}", process.log());
        assert_eq!(said(process, "etcd answers again"), 1, "{}", process.log());
    }
    let metrics = router.metrics();
    for outcome in ["worker", "deadline", "us", "rejected"] {
        assert_eq!(metrics.sum("baton_requests_total", &[("outcome", outcome)]), 0.0, "{outcome}");
    }
    for worker in &workers {
        assert_eq!(said(worker, "this worker is registered"), 1, "it was registered once: {}", worker.log());
    }
}

#[test]
fn a_process_that_etcd_refuses_says_so_and_ends() {
    let Some(etcd) = EtcdServer::start(own_place(), &[]) else { return };
    for (path, question) in [
        ("/v3/auth/role/add", r#"{"name":"root"}"#),
        ("/v3/auth/user/add", r#"{"name":"root","password":"right"}"#),
        ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("/v3/auth/enable", "{}"),
    ] {
        etcd.ask("", path, question).expect(path);
    }
    let cluster = Found::new(&etcd);
    let refused = |command: &str, user: &[&str], wanted: &str| {
        let settings: Vec<&str> = cluster.settings.iter().map(String::as_str).collect();
        let arguments = [&[command, "--listen", "127.0.0.1:0"], settings.as_slice(), user].concat();
        let mut command = baton(&arguments);
        command.env("BATON_CLUSTER__SECRET", "hush, says this test");
        command.env("BATON_DISCOVERY__ETCD__PASSWORD", if user.is_empty() { "" } else { "wrong" });
        let mut child = command.spawn().expect("the binary runs");
        assert_eq!(ended(&mut child).code(), Some(1));
        let error = drained(child.stderr.take());
        assert!(error.contains(wanted), "{error}");
    };
    refused("router", &[], "etcd requires a user: set discovery.etcd.username");
    let user = ["--set", "discovery.etcd.username=root"];
    refused("decode-worker", &user, "etcd refuses the user \"root\" with this password");
}
