//! `baton admin` and its service, on clusters of processes: every call, and its undo.

use crate::address::own_place;
use crate::clients::{ask, failed, under_load};
use crate::cluster::Cluster;
use crate::http::Connection;
use crate::server::{Server, baton, drained, ended, until};
use serde_json::{Value, json};
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Flags of workers that compute in no time.
const SIM: [&str; 4] = ["--device", "sim", "--set", "sim.speed_percent=0"];
/// Of workers whose tokens take a while.
pub(crate) const SLOW: [&str; 4] = ["--device", "sim", "--set", "sim.speed_percent=100"];

/// Runs `baton admin`: exit status, standard output, standard error.
pub(crate) fn admin(server: SocketAddr, arguments: &[&str]) -> (Option<i32>, String, String) {
    let server = format!("http://{server}");
    let arguments: Vec<&str> = ["admin", "--server", &server].iter().chain(arguments).copied().collect();
    let mut child = baton(&arguments).spawn().expect("the binary runs");
    let status = ended(&mut child);
    (status.code(), drained(child.stdout.take()), drained(child.stderr.take()))
}

/// Runs it, and reads the JSON that it prints.
#[track_caller]
pub(crate) fn done(server: SocketAddr, arguments: &[&str]) -> Value {
    let (status, out, error) = admin(server, &[&["--json"], arguments].concat());
    assert_eq!(status, Some(0), "{arguments:?}: {error}");
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("it is JSON: {out}"))
}

/// Runs it in vain, and returns what it says.
#[track_caller]
pub(crate) fn refused(server: SocketAddr, arguments: &[&str], wanted: i32) -> String {
    let (status, out, error) = admin(server, arguments);
    assert_eq!((status, out.as_str()), (Some(wanted), ""), "{arguments:?}: {error}");
    error
}

/// Makes a call in JSON, as pages do: status of HTTP, and what is answered.
fn in_json(server: SocketAddr, call: &str, body: &Value, headers: &[(&str, &str)]) -> (u16, Value) {
    let body = body.to_string();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "POST /admin/v1/{call} HTTP/1.1\r\nHost: {server}\r\nContent-Type: application/json\r\n{headers}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = Connection::open(server).expect("it listens");
    connection.send(head.as_bytes()).expect("it is read");
    let answer = connection.answer().expect("it is answered");
    (answer.head.status, answer.json())
}

/// Two workers of each role, `p1`, `p2`, `d1` and `d2`, and where operators reach the router and `d1`.
fn cluster(flags: &[&str]) -> (Cluster, SocketAddr, SocketAddr) {
    let (router, decode) = (own_place(), own_place());
    let mut cluster = Cluster::new("hush, says this test");
    let ops = format!("worker.ops_listen={decode}");
    let none = "worker.ops_listen=".to_owned();
    for (name, ops) in [("p1", &none), ("p2", &none), ("d1", &ops), ("d2", &none)] {
        let flags = [flags, &["--set", "kv.device_bytes=16MiB", "--name", name, "--set", ops.as_str()]].concat();
        if name.starts_with('p') {
            cluster.prefill(&flags)
        } else {
            cluster.decode(&flags)
        };
    }
    let ops = format!("router.ops_listen={router}");
    cluster.route(&["--set", "placement.handoff=always", "--set", &ops]);
    cluster.until_ready(2, 2);
    (cluster, router, decode)
}

pub(crate) fn worker<'a>(workers: &'a Value, name: &str) -> &'a Value {
    let all = workers["workers"].as_array().expect("a list");
    all.iter().find(|worker| worker["name"] == name).unwrap_or_else(|| panic!("{name} in {workers:#}"))
}

/// Pools are as in memory of devices: what is read of one is fetched by the other, or goes through host memory over a
/// lane that says so.
#[test]
fn a_lane_to_memory_of_a_device_is_listed_with_what_it_takes() {
    let staged = "from the peer's device 0 to this worker's device 0";
    check_guarded(&[], "nvlink", "");
    check_guarded(&["--set", "transport.lanes=shm,tcp"], "tcp", staged);
}

/// Checks the lanes between workers with guarded pools and these settings, and that their texts are those of others.
#[track_caller]
fn check_guarded(settings: &[&'static str], taken: &str, staged: &str) {
    let guarded = [&SIM[..], &["--set", "engine.guarded_pools=true"], settings].concat();
    let (cluster, router, _) = cluster(&guarded);
    let text = |answer: &Value| answer["choices"][0]["text"].as_str().expect("a text").to_owned();
    let said = text(&cluster.router().post("/v1/completions", &ask(0, 8).body).json());
    let plain = Server::start_with(&SIM, &[("BATON_PLACEMENT__HANDOFF", "never")]);
    assert_eq!(said, text(&plain.post("/v1/completions", &ask(0, 8).body).json()));

    let lanes = until("a decode worker has said which lane it took", || {
        let lanes = done(router, &["lanes"]);
        lanes["lanes"].as_array().is_some_and(|lanes| !lanes.is_empty()).then_some(lanes)
    });
    for lane in lanes["lanes"].as_array().expect("a list") {
        assert_eq!((&lane["lane"], &lane["staged"]), (&json!(taken), &json!(staged)), "{lane:#}");
        if !staged.is_empty() {
            let reason = "the peer's pool is in memory of device 0, which processes cannot map";
            let passed_over = lane["passed_over"].as_array().expect("a list");
            assert!(passed_over.contains(&json!({ "lane": "shm", "reason": reason })), "{lane:#}");
        }
    }
    let table = admin(router, &["lanes"]).1;
    assert!(table.contains(taken), "{table}");
    for said in ["tcp+staged", "staged from the peer's device 0"] {
        assert_eq!(table.contains(said), !staged.is_empty(), "{table}");
    }
}

#[test]
fn everything_is_listed_and_explained() {
    let (cluster, router, decode) = cluster(&SIM);
    let answer = cluster.router().post("/v1/completions", &ask(0, 8).body);
    let id = answer.head.header("x-request-id").expect("every answer has one").to_owned();
    let workers = done(router, &["workers"]);
    for (name, role) in [("p1", "prefill"), ("p2", "prefill"), ("d1", "decode"), ("d2", "decode")] {
        let worker = worker(&workers, name);
        assert_eq!((&worker["role"], &worker["state"]), (&json!(role), &json!("serving")), "{worker:#}");
        assert_eq!((&worker["model"], &worker["tiers"]), (&json!("tiny-rust"), &json!(["device"])), "{worker:#}");
        assert!(worker["blocks_total"].as_u64().is_some_and(|blocks| blocks > 0), "{worker:#}");
        assert!(worker["protocol"].as_u64().is_some_and(|protocol| protocol > 0), "{worker:#}");
    }
    let addresses: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    assert_eq!(worker(&workers, "d1")["address"], json!(addresses[2]));
    let (status, table, _) = admin(router, &["workers"]);
    assert_eq!((status, table.lines().count()), (Some(0), 5), "{table}");

    let explained = until("its end is known", || {
        let explained = done(router, &["explain", &id]);
        (explained["request"]["state"] == "ended").then_some(explained)
    });
    for part in ["queue_ms", "prefill_ms", "handoff_ms", "decode_ms", "first_token_ms", "total_ms"] {
        assert!(explained[part].as_f64().is_some_and(|ms| ms >= 0.0), "{part}: {explained:#}");
    }
    let candidates = explained["placements"][0]["candidates"].as_array().expect("a list");
    assert_eq!(candidates.len(), 6, "two of each kind: {explained:#}");
    assert_eq!(candidates.iter().filter(|it| it["chosen"] == true).count(), 2, "{explained:#}");
    assert!(admin(router, &["explain", &id]).1.contains(" first token"), "it is a text, too");
    let error = refused(router, &["explain", "req_0000000000000001"], 3);
    assert!(error.contains("admin.explained_max"), "{error}");
    assert_eq!(admin(router, &["explain", "nonsense"]).0, Some(2));

    let lanes = until("both ends have said which lanes they took", || {
        let lanes = done(router, &["lanes"]);
        lanes["lanes"].as_array().is_some_and(|lanes| lanes.len() >= 2).then_some(lanes)
    });
    let lane = &lanes["lanes"][0];
    assert!(lane["bytes_per_s"].as_f64().is_some_and(|speed| speed > 0.0), "{lane:#}");
    assert!(lane["passed_over"].as_array().is_some_and(|lanes| !lanes.is_empty()), "{lane:#}");
    let tiers = done(router, &["tiers", "d1"]);
    assert_eq!((&tiers["tiers"][0]["tier"], tiers["tiers"].as_array().map(Vec::len)), (&json!("device"), Some(1)));
    let model = &done(router, &["models"])["models"][0];
    assert_eq!((&model["name"], &model["batch_invariant"]), (&json!("tiny-rust"), &json!(true)));
    until("no request is open", || (done(router, &["requests"])["requests"] == json!([])).then_some(()));

    // A worker answers for itself, at its own port.
    let own = done(decode, &["workers"]);
    assert_eq!((own["workers"].as_array().map(Vec::len), &own["workers"][0]["name"]), (Some(1), &json!("d1")));
    assert_eq!(done(decode, &["dump"])["worker"]["worker_name"], "d1");
    let error = refused(decode, &["explain", &id], 4);
    assert!(error.contains("ask the router"), "{error}");
    // In JSON as well, by the same rules as at the router's.
    for (place, wanted) in [(decode, 1), (router, 4)] {
        let call = |headers: &[(&str, &str)]| in_json(place, "ListWorkers", &json!({}), headers);
        let (status, workers) = call(&[]);
        assert_eq!((status, workers["workers"].as_array().map(Vec::len)), (200, Some(wanted)), "{workers:#}");
        assert_eq!(call(&[("origin", "http://elsewhere.example")]).0, 403);
        assert_eq!(call(&[("x-forwarded-for", "10.0.0.1")]).0, 403);
    }
    let (status, drains) = in_json(decode, "DrainWorker", &json!({ "worker": "d1" }), &[]);
    assert_eq!((status, &drains["name"]), (200, &json!("d1")), "{drains:#}");
    assert_eq!(in_json(decode, "UndrainWorker", &json!({ "worker": "d1" }), &[]).0, 200);
    let (status, refusal) = in_json(decode, "ExplainRequest", &json!({ "id": id }), &[]);
    assert_eq!((status, &refusal["code"]), (409, &json!("FailedPrecondition")), "{refusal:#}");

    let error = refused(router, &["drain", "nobody"], 3);
    assert!(["there are ", "p1", "p2", "d1", "d2"].iter().all(|name| error.contains(name)), "{error}");
    let nobody = own_place();
    let error = refused(nobody, &["workers"], 1);
    assert!(error.contains(&nobody.to_string()) && error.contains("router.ops_listen"), "{error}");
    for elsewhere in [cluster.router().address, cluster.addresses()[0]] {
        let error = refused(elsewhere, &["workers"], 1);
        assert!(error.contains("no admin service") && error.contains("router.ops_listen"), "{error}");
    }
    assert_eq!(admin(router, &["role", "d1", "boss"]).0, Some(2));
    cluster.end();
}

#[test]
fn a_drain_under_load_and_its_undo_fail_no_request() {
    let (cluster, router, decode) = cluster(&SLOW);
    under_load(&[cluster.router().address], 100, || {
        for name in ["d1", "p1"] {
            let drained = done(router, &["drain", name]);
            assert!(["draining", "drained"].contains(&drained["state"].as_str().expect("a state")), "{drained:#}");
            until("nothing is needed of it any more", || {
                (worker(&done(router, &["workers"]), name)["state"] == "drained").then_some(())
            });
            if name == "d1" {
                // Its own probe says so, and it stays.
                let error = refused(router, &["drain", "d2"], 4);
                assert!(error.contains("last decode worker"), "{error}");
                assert_eq!(done(decode, &["workers"])["workers"][0]["state"], "drained");
            }
            assert_eq!(done(router, &["undrain", name])["state"], "serving");
        }
        until("it gets work again", || {
            let workers = done(router, &["workers"]);
            let runs = |name| worker(&workers, name)["running"].as_u64().is_some_and(|running| running > 0);
            runs("d1").then_some(())
        });
    });
    assert_eq!(failed(cluster.router()), 0.0);
    cluster.end();
}

#[test]
fn a_role_flips_under_load_and_back() {
    let (cluster, router, _) = cluster(&SLOW);
    under_load(&[cluster.router().address], 40, || {
        for (name, role, back) in [("d1", "prefill", "decode"), ("p1", "decode", "prefill")] {
            assert_eq!(done(router, &["role", name, role])["role"], role);
            let works = || {
                let requests = done(router, &["requests"]);
                let part = if role == "prefill" { "prefill_name" } else { "decode_name" };
                requests["requests"].as_array().expect("a list").iter().any(|request| request[part] == name)
            };
            until("it does the work of its new role", || works().then_some(()));
            assert_eq!(done(router, &["role", name, back])["role"], back);
        }
    });
    let error = {
        done(router, &["drain", "d2"]);
        refused(router, &["role", "d1", "prefill"], 4)
    };
    assert!(error.contains("last decode worker"), "{error}");
    assert_eq!(done(router, &["role", "d1", "prefill", "--force"])["role"], "prefill");
    assert_eq!(cluster.router().post("/v1/completions", &ask(0, 4).body).head.status, 503);
    assert_eq!(done(router, &["role", "d1", "decode"])["role"], "decode");
    assert_eq!(cluster.router().post("/v1/completions", &ask(0, 4).body).head.status, 200);
    cluster.end();
}

#[test]
fn what_is_cached_is_dropped_and_what_runs_is_watched() {
    let server = Server::start(&[&SLOW[..], &["--set", "router.ops_listen=127.0.0.1:0"]].concat());
    let ops = server.operations();
    let (_, cached) = ask(1, 4).whole(&server);
    assert_eq!(cached, 0);
    assert!(ask(1, 4).whole(&server).1 > 0, "it is cached");
    server.settled();
    for name in ["prefill-1", "decode-1"] {
        assert!(done(ops, &["flush", name])["blocks"].as_u64().is_some_and(|blocks| blocks > 0), "{name}");
    }
    assert_eq!(ask(1, 4).whole(&server).1, 0, "nothing is left of it");

    let stream = ask(2, 400).begin_stream(&server);
    let request = until("it decodes", || {
        let requests = done(ops, &["requests"]);
        let request = requests["requests"][0].clone();
        (request["state"] == "decoding").then_some(request)
    });
    assert!(request["waits_for"].as_str().is_some_and(|what| what.contains("decode-1")), "{request:#}");
    let dump = done(ops, &["dump", "decode-1"]);
    let attempts = dump["worker"]["attempts"].as_array().expect("a list");
    assert!(attempts.iter().any(|attempt| attempt["request"] == request["id"]), "{dump:#}");
    let (status, out, error) = admin(ops, &["--json", "watch", "--every-ms", "100", "--count", "2"]);
    let seen: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert_eq!((status, seen.len()), (Some(0), 2), "{error}");
    assert!(seen.iter().all(|seen| seen["workers"].as_array().map(Vec::len) == Some(2)), "{out}");
    watched_on_a_terminal(ops);
    drop(stream);

    let before = done(ops, &["log"])["filter"].clone();
    assert_eq!(done(ops, &["log", "info,router=debug"])["before"], before);
    ask(3, 4).whole(&server);
    drop(ask(4, 400).begin_stream(&server));
    until("what is logged has changed", || server.log().contains("the client hung up").then_some(()));
    assert_eq!(done(ops, &["log", before.as_str().expect("a text")])["filter"], before);
    assert!(refused(ops, &["log", "loud"], 2).contains("neither a level"));
}

/// On a terminal each look replaces the one before.
fn watched_on_a_terminal(ops: SocketAddr) {
    let watch = format!("--server http://{ops} watch --every-ms 100 --count 3 --show workers,lanes,models");
    let command = format!("{} admin {watch}", env!("CARGO_BIN_EXE_baton"));
    // It gives the command a terminal (util-linux).
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]).stdin(Stdio::null());
    let shown = match script.output() {
        Ok(shown) => shown,
        Err(error) => return eprintln!("skipped: script does not run ({error})"),
    };
    let text = String::from_utf8(shown.stdout).expect("UTF-8");
    assert!(shown.status.success(), "{text}");
    let looks: Vec<&str> = text.split("\x1b[H\x1b[J").collect();
    assert_eq!((looks.len(), looks[0]), (4, ""), "{text:?}");
    for look in &looks[1..] {
        assert!(["BLOCKS USED", "READS FROM", "KV/TOKEN"].iter().all(|head| look.contains(head)), "{look}");
        assert!(!look.contains("HIT RATE") && !look.contains("WAITS FOR"), "{look}");
    }
}

#[test]
fn callers_of_other_hosts_are_refused_without_the_key_of_an_operator() {
    let Some(address) = own_address() else {
        eprintln!("skipped: this host has no address but loopback");
        return;
    };
    let listen = format!("router.ops_listen={}", SocketAddr::new(address, 0));
    let server = Server::start(&[&SIM[..], &["--set", &listen]].concat());
    let place = server.operations();
    let error = refused(place, &["workers"], 4);
    assert!(error.contains("admin.beyond_loopback") && error.contains(&place.to_string()), "{error}");
    drop(server);

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys.json").to_str().expect("UTF-8").to_owned();
    let beyond = ["--set", "admin.beyond_loopback=true"];
    let mut child = baton(&[&["decode-worker", "--listen", "127.0.0.1:0"], &beyond[..]].concat()).spawn();
    let child = child.as_mut().expect("the binary runs");
    assert_eq!(ended(child).code(), Some(2), "nobody would be refused");
    let error = drained(child.stderr.take());
    assert!(error.contains("admin.keys_file") && error.contains("baton keys add"), "{error}");

    let add = |arguments: &[&str]| {
        let mut child = baton(&[&["keys", "add", "--tenant", "ops", "--file", &file], arguments].concat())
            .spawn()
            .expect("the binary runs");
        assert_eq!(ended(&mut child).code(), Some(0), "{}", drained(child.stderr.take()));
        drained(child.stdout.take()).trim_end().to_owned()
    };
    let (operator, client) = (add(&["--admin"]), add(&[]));
    let keys = format!("admin.keys_file={file}");
    let beyond = ["--set", "admin.beyond_loopback=true", "--set", &keys];
    let mut cluster = Cluster::new("hush, says this test");
    let ops = format!("worker.ops_listen={}", SocketAddr::new(address, 0));
    let worker = cluster.decode(&[&SIM[..], &beyond, &["--set", &ops]].concat());
    cluster.route(&[&beyond[..], &["--set", &listen]].concat());
    cluster.until_ready(0, 1);
    for place in [cluster.worker(worker).operations(), cluster.router().operations()] {
        assert_eq!(place.ip(), address);
        let error = refused(place, &["workers"], 4);
        assert!(error.contains("no key is shown") && error.contains("BATON_KEY"), "{error}");
        assert!(refused(place, &["--key", &client, "workers"], 4).contains("not that of an operator"));
        assert!(refused(place, &["--key", &operator[1..], "workers"], 4).contains("not known here"));
        assert_eq!(done(place, &["--key", &operator, "workers"])["workers"].as_array().map(Vec::len), Some(1));
        let server = format!("http://{place}");
        let mut by_environment = baton(&["admin", "--server", &server, "workers"]);
        let mut child = by_environment.env("BATON_KEY", &operator).spawn().expect("the binary runs");
        assert_eq!(ended(&mut child).code(), Some(0), "{}", drained(child.stderr.take()));
    }
    // The key that is revoked is no operator's any more, on every process, and what is watched by it ends.
    let places = [cluster.worker(worker).operations(), cluster.router().operations()];
    let watches = places.map(|place| {
        let server = format!("http://{place}");
        let mut watch = baton(&["admin", "--server", &server, "--key", &operator, "watch"]).spawn().expect("it runs");
        let mut first = [0];
        watch.stdout.as_mut().expect("it is piped").read_exact(&mut first).expect("it begins");
        watch
    });
    let mut child = baton(&["keys", "list", "--file", &file]).spawn().expect("the binary runs");
    ended(&mut child);
    let listed = drained(child.stdout.take());
    let row = listed.lines().find(|row| row.ends_with("yes")).expect("the operator's key");
    let id = row.split_whitespace().next().expect("a name");
    assert!(ended(&mut baton(&["keys", "revoke", id, "--file", &file]).spawn().expect("the binary runs")).success());
    for (place, mut watch) in places.into_iter().zip(watches) {
        until("its end", || (admin(place, &["--key", &operator, "workers"]).0 == Some(4)).then_some(()));
        assert_eq!(ended(&mut watch).code(), Some(4), "{}", drained(watch.stderr.take()));
    }
    cluster.end();
}

/// Returns an address of this host that is not loopback: what it would send from.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the system only chooses a way.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}
