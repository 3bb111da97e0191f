//! Every process of a cluster is changed, drained and replaced while clients are served. They notice nothing.

use crate::address::own_place;
use crate::admin::{SLOW, done, worker};
use crate::clients::{ask, failed, is_ready, under_load};
use crate::cluster::{Cluster, WorkerAt};
use crate::metrics::Metrics;
use crate::process::Process;
use crate::server::until;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The workers, by name.
const WORKERS: [&str; 4] = ["p1", "p2", "d1", "d2"];
/// Tokens of an answer: it takes longer than its worker needs to move it.
const TOKENS: u32 = 100;
/// Tokens of an answer that is under way when its router is asked to end.
const LONG_TOKENS: u32 = 400;

/// Memory of a worker.
const ENOUGH: &str = "kv.device_bytes=16MiB";
/// Too little for the longest context of the model.
const LITTLE: &str = "kv.device_bytes=1MiB";

/// Two workers of each role. `d1` has enough memory, the others have so much.
fn workers(flags: &[&str], memory: &str) -> (Cluster, [WorkerAt; 4]) {
    let mut cluster = Cluster::new("hush, says this test");
    let all = WORKERS.map(|name| {
        let memory = if name == "d1" { ENOUGH } else { memory };
        let flags = [flags, &["--name", name, "--set", memory]].concat();
        if name.starts_with('p') { cluster.prefill(&flags) } else { cluster.decode(&flags) }
    });
    (cluster, all)
}

/// Starts a router that listens for clients and for operators there.
fn router(cluster: &Cluster, [clients, operators]: [SocketAddr; 2]) -> Process {
    let ops = format!("router.ops_listen={operators}");
    cluster.router_at(&clients.to_string(), &["--set", "placement.handoff=always", "--set", &ops])
}

/// Waits until the router counts so many workers.
fn until_ready(router: &Process, prefill: usize, decode: usize) {
    let wanted = json!({ "prefill": prefill, "decode": decode });
    until("the workers are counted", || (router.get("/ready").json()["workers"] == wanted).then_some(()));
}

/// Asks a process to end, and waits until it has.
fn ended(mut process: Process) {
    process.signal("TERM");
    assert_eq!(process.ended().code(), Some(0), "{}", process.log());
}

#[test]
fn workers_change_drain_and_restart_under_load() {
    let (mut cluster, all) = workers(&SLOW, ENOUGH);
    let places = [own_place(), own_place()];
    let (router, operators) = (router(&cluster, places), places[1]);
    until_ready(&router, 2, 2);
    under_load(&[router.address], TOKENS, || {
        for (name, role, back) in
            [("d1", "prefill", "decode"), ("p1", "decode", "prefill"), ("d2", "prefill", "decode")]
        {
            for role in [role, back] {
                assert_eq!(done(operators, &["role", name, role])["role"], role);
            }
        }
        for name in WORKERS {
            done(operators, &["drain", name]);
            until("nothing is needed of it", || {
                (worker(&done(operators, &["workers"]), name)["state"] == "drained").then_some(())
            });
            assert_eq!(done(operators, &["undrain", name])["state"], "serving");
        }
        for at in all {
            cluster.worker(at).signal("TERM");
            assert_eq!(cluster.ended(at), Some(0));
            cluster.restart(at);
            until_ready(&router, 2, 2);
        }
    });
    assert_eq!(failed(&router), 0.0);
    assert!(router.metrics().sum("baton_moves_total", &[]) > 0.0, "running sequences moved");
}

#[test]
fn a_router_warns_of_a_worker_that_is_lost_and_not_of_one_that_left() {
    let (mut cluster, all) = workers(&["--device", "sim", "--set", "sim.speed_percent=0"], ENOUGH);
    let router = router(&cluster, [own_place(), own_place()]);
    until_ready(&router, 2, 2);
    let warnings = || router.log().lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect::<Vec<_>>();
    let left = || router.log().matches("the worker has left; it is used again if it returns").count();
    for (times, at) in [(1, all[0]), (2, all[2])] {
        cluster.worker(at).signal("TERM");
        assert_eq!(cluster.ended(at), Some(0));
        until("the router says so", || (left() == times).then_some(()));
        cluster.restart(at);
        until_ready(&router, 2, 2);
    }
    assert_eq!((left(), warnings()), (2, Vec::new()), "each left once");
    cluster.worker(all[2]).signal("KILL");
    cluster.ended(all[2]);
    until("the router warns", || warnings().iter().any(|line| line.contains("is not reached")).then_some(()));
    assert_eq!(left(), 2);
}

#[test]
fn routers_restart_under_load_while_another_one_serves() {
    let (cluster, _workers) = workers(&SLOW, ENOUGH);
    let places = [[own_place(), own_place()], [own_place(), own_place()]];
    let mut routers = places.map(|places| router(&cluster, places));
    routers.iter().for_each(|router| until_ready(router, 2, 2));
    let long = ask(9, LONG_TOKENS);
    let calm = long.whole(&routers[0]).0;
    under_load(&places.map(|[clients, _]| clients), TOKENS, || {
        for (at, places) in places.into_iter().enumerate() {
            let stream = long.begin_stream(&routers[at]);
            routers[at].signal("TERM");
            until("it is not ready", || (!is_ready(places[0])).then_some(()));
            assert!(!is_ready(places[1]), "its operators are told as well");
            assert!(is_ready(routers[1 - at].address));
            assert_eq!(long.rest_of(stream).0, calm);
            assert_eq!(routers[at].ended().code(), Some(0), "{}", routers[at].log());
            assert!(!routers[at].log().contains("the time for draining is over"), "{}", routers[at].log());
            routers[at] = router(&cluster, places);
            until_ready(&routers[at], 2, 2);
        }
    });
    routers.iter().for_each(|router| assert_eq!(failed(router), 0.0));
}

/// The longest sequence that a router takes.
fn context(router: &Process) -> u64 {
    let models = router.get("/v1/models").json();
    models["data"][0]["max_model_len"].as_u64().unwrap_or_else(|| panic!("{models}"))
}

/// The role that a router has of a worker.
fn role(operators: SocketAddr, name: &str) -> Value {
    worker(&done(operators, &["workers"]), name)["role"].clone()
}

#[test]
fn a_router_that_comes_later_learns_the_role_of_now() {
    let (cluster, _workers) = workers(&["--device", "sim", "--set", "sim.speed_percent=0"], LITTLE);
    let places = [[own_place(), own_place()], [own_place(), own_place()]];
    let first = router(&cluster, places[0]);
    until_ready(&first, 2, 2);
    let longest = context(&first);
    assert_eq!(done(places[0][1], &["role", "d1", "prefill"])["role"], "prefill");
    let shorter = until("contexts are those of the workers that decode", || {
        Some(context(&first)).filter(|&context| context < longest)
    });
    let second = router(&cluster, places[1]);
    until_ready(&second, 3, 1);
    assert_eq!((role(places[1][1], "d1"), context(&second)), (json!("prefill"), shorter));
    let line = "a session began worker=\"d1\" role=Prefill";
    assert!(second.log().contains(line), "{}", second.log());
    assert_eq!(second.metrics().sum("baton_worker_up", &[("role", "prefill")]), 3.0);
    ended(first);
    let again = router(&cluster, places[0]);
    until_ready(&again, 3, 1);
    assert_eq!((role(places[0][1], "d1"), context(&again)), (json!("prefill"), shorter));
    // One router changes it back, and the other one learns that, too.
    assert_eq!(done(places[0][1], &["role", "d1", "decode"])["role"], "decode");
    for router in [&again, &second] {
        until_ready(router, 2, 2);
        until("contexts are as before", || (context(router) == longest).then_some(()));
    }
    assert_eq!(ask(0, 8).whole(&again).0, ask(0, 8).whole(&second).0);
}

/// The lines of a process's metrics that name a worker.
fn named(operators: SocketAddr, worker: &str) -> Vec<String> {
    let samples = Metrics::at(operators).samples;
    samples.iter().filter(|sample| sample.names(worker)).map(|sample| format!("{sample:?}")).collect()
}

#[test]
fn of_a_worker_that_left_no_metric_is_left() {
    let (mut cluster, places) = (Cluster::new("hush, says this test"), [(); 4].map(|()| own_place()));
    let ops = places.map(|place| format!("worker.ops_listen={place}"));
    let flags = |name, ops| ["--device", "sim", "--set", "sim.speed_percent=0", "--name", name, "--set", ops];
    cluster.prefill(&flags("p1", &ops[0]));
    cluster.decode(&flags("d1", &ops[1]));
    let [leaves, killed] = [("d2", &ops[2]), ("d3", &ops[3])].map(|(name, ops)| cluster.decode(&flags(name, ops)));
    let operators = own_place();
    let router = router(&cluster, [own_place(), operators]);
    until_ready(&router, 1, 3);
    let workers = done(operators, &["workers"]);
    let id = |name: &str| format!("w{}", worker(&workers, name)["id"]);
    let all = [operators, places[0], places[1]];
    // A worker shows those that it is connected with.
    let mut numbers = 0..;
    for name in ["d2", "d3"] {
        until("it is connected", || {
            ask(numbers.next()?, 4).whole(&router);
            (!named(places[0], &id(name)).is_empty()).then_some(())
        });
    }
    cluster.worker(leaves).signal("TERM");
    assert_eq!(cluster.ended(leaves), Some(0));
    cluster.worker(killed).signal("KILL");
    until_ready(&router, 1, 1);
    for (name, operators) in ["d2", "d3"].into_iter().flat_map(|name| all.map(|operators| (name, operators))) {
        until("it is forgotten", || named(operators, &id(name)).is_empty().then_some(()));
    }
    for (operators, name) in [(operators, "p1"), (operators, "d1"), (places[0], "p1"), (places[1], "d1")] {
        assert!(!named(operators, &id(name)).is_empty(), "{name} is there");
    }
}
