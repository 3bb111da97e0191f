//! `baton topo`: what it says of this host, of one process with all workers, and of a cluster.

use crate::address::own_place;
use crate::asks::Ask;
use crate::cluster::Cluster;
use crate::server::{Server, baton, drained, ended, until};
use serde_json::{Value, json};

/// Columns of a terminal.
const WIDTH: usize = 80;

/// Runs `baton topo`: exit status, standard output, standard error.
fn topo(arguments: &[&str]) -> (Option<i32>, String, String) {
    let arguments: Vec<&str> = ["topo"].into_iter().chain(arguments.iter().copied()).collect();
    let mut child = baton(&arguments).spawn().expect("the binary runs");
    let status = ended(&mut child);
    let (out, error) = (drained(child.stdout.take()), drained(child.stderr.take()));
    assert!(out.lines().all(|line| line.chars().count() <= WIDTH || line.contains('"')), "{out}");
    (status.code(), out, error)
}

fn topo_json(arguments: &[&str]) -> Value {
    let (status, out, error) = topo(&[&["--json"], arguments].concat());
    assert_eq!(status, Some(0), "{error}");
    serde_json::from_str(&out).expect("it is JSON")
}

/// Checks one pair of a cluster, and gives why faster lanes were not taken.
#[track_caller]
fn check(topology: &Value, reader: &str, owner: &str, lane: &str) -> Vec<(String, String)> {
    let reads = topology["reads"].as_array().expect("a list");
    let of_both = |it: &&Value| it["reader"] == reader && it["owner"] == owner;
    let found = reads.iter().find(of_both).unwrap_or_else(|| panic!("{reader} from {owner} in {topology:#}"));
    assert_eq!(found["lane"], lane, "{topology:#}");
    let above_0 = |field: &str| found[field].as_f64().is_some_and(|number| number > 0.0);
    assert!(above_0("gb_per_s") && above_0("latency_us"), "{topology:#}");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let passed_over = found["passed_over"].as_array().expect("a list");
    passed_over.iter().map(|it| (text(&it["lane"]), text(&it["reason"]))).collect()
}

#[test]
fn the_lanes_of_this_host_are_measured() {
    let (status, out, error) = topo(&[]);
    assert_eq!(status, Some(0), "{error}");
    for lane in ["local", "nvlink", "shm", "rdma", "tcp"] {
        assert!(out.lines().any(|line| line.trim_start().starts_with(lane)), "{lane}: {out}");
    }
    let host = topo_json(&[]);
    let cards = host["cuda"]["cards"].as_array().expect("a list").len();
    assert!((cards > 0) != host["cuda"]["reason"].is_string(), "{host:#}");
    assert!(out.contains("\nCards for the device cuda\n"), "{out}");
    let lanes = host["host"].as_array().expect("a list");
    assert_eq!(lanes.iter().filter(|lane| lane["taken"] == true).count(), 1, "{host:#}");
    for lane in lanes {
        let works = ["local", "shm", "tcp"].contains(&lane["lane"].as_str().expect("a name"));
        assert!(!works || lane["gb_per_s"].as_f64().is_some_and(|speed| speed > 0.0), "{host:#}");
        assert!(lane["gb_per_s"].is_number() != lane["reason"].is_string(), "{host:#}");
    }
}

#[test]
fn one_process_says_what_its_workers_read_over() {
    let server =
        Server::start(&["--device", "sim", "--set", "sim.speed_percent=0", "--set", "placement.handoff=always"]);
    let url = format!("http://{}", server.address);
    // Workers connect when they hand something over.
    Ask::completion("tiny-rust", "ownership ".repeat(40).as_str(), json!({ "max_tokens": 4 })).whole(&server);
    let topology = until("both have connected", || {
        let topology = topo_json(&[&url]);
        (topology["reads"].as_array().map(Vec::len) == Some(2)).then_some(topology)
    });
    assert_eq!(topology["workers"], json!(["decode-1", "prefill-1"]));
    assert_eq!(check(&topology, "decode-1", "prefill-1", "local"), []);
    assert_eq!(check(&topology, "prefill-1", "decode-1", "local"), []);
    let (status, out, _) = topo(&[&url]);
    assert_eq!(status, Some(0));
    assert!(out.contains("decode-1 reads from prefill-1: local, "), "{out}");
}

#[test]
fn a_cluster_says_which_lanes_and_why_no_faster_ones() {
    let places = [own_place(), own_place()];
    let metrics = places.map(|place| format!("worker.ops_listen={place}"));
    let sim = ["--device", "sim", "--set", "sim.speed_percent=0", "--set"];
    let flags = |more: [&'static str; 4]| sim.into_iter().chain(more).collect::<Vec<_>>();
    let mut cluster = Cluster::new("hush, says this test");
    let prefill = flags(["kv.device_bytes=16MiB", "--name", "p", "--set"]);
    cluster.prefill(&[prefill.as_slice(), &[metrics[0].as_str()]].concat());
    // It may read over `tcp` alone, whatever the other may.
    let decode = flags(["kv.device_bytes=16MiB", "--name", "d", "--set"]);
    let only = ["transport.lanes=tcp", "--set", metrics[1].as_str()];
    cluster.decode(&[decode.as_slice(), &only].concat());
    cluster.route(&["--set", "placement.handoff=always"]);
    cluster.until_ready(1, 1);
    let ask = Ask::completion("tiny-rust", "ownership ".repeat(40).as_str(), json!({ "max_tokens": 4 }));
    ask.whole(cluster.router());

    let urls = places.map(|place| format!("http://{place}/metrics"));
    let urls = urls.each_ref().map(String::as_str);
    // Both say it, as soon as they have published it.
    let topology = until("both have said which lanes they took", || {
        let topology = topo_json(&urls);
        let reads = topology["reads"].as_array().is_some_and(|reads| reads.iter().any(|it| it["reader"] == "d"));
        reads.then_some(topology)
    });
    assert_eq!(topology["workers"], json!(["d", "p"]));
    let passed_over = check(&topology, "d", "p", "tcp");
    let reason = |lane: &str| passed_over.iter().find(|(passed, _)| passed == lane).map(|(_, reason)| reason.as_str());
    assert_eq!(reason("local"), Some("forbidden by transport.lanes"));
    assert_eq!(reason("nvlink"), Some("forbidden by transport.lanes"));
    assert_eq!(reason("shm"), Some("forbidden by transport.lanes"));
    assert!(reason("rdma").is_some() && reason("tcp").is_none(), "{passed_over:?}");

    let nobody = format!("http://{}", own_place());
    let (status, out, error) = topo(&[urls[0], urls[1], &nobody]);
    assert_eq!(status, Some(1), "{error}");
    assert!(out.contains("d reads from p: tcp, ") && out.contains("    not shm"), "{out}");
    assert!(out.contains(&format!("{nobody} was asked in vain")), "{out}");
    assert!(error.contains("1 of 3 processes"), "{error}");
    assert_eq!(topo(&["nowhere"]).0, Some(2));
    cluster.end();
}
