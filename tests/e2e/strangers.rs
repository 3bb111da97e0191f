//! Clients that have proven nothing, in numbers and at a pace that fill every place there is. Others are served
//! meanwhile, from the attackers' own address too.
//!
//! Attacks are bounded in count and end with the test.

use crate::address::own_place;
use crate::asks::{Ask, CHAT, COMPLETION, Said, check_all};
use crate::cluster::Cluster;
use crate::http::{Connection, request};
use crate::models::{Folder, binary};
use crate::server::{Server, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::scope;
use std::time::Duration;

/// What the processes of these clusters share.
const SECRET: &str = "known to the processes of this test";
/// More connections than any port has places for.
const CROWD: usize = 4_200;
/// More bodies than requests may be open.
const BODIES: usize = 1_100;
/// Prompts that are asked for during an attack.
const PROMPTS: usize = 5;
/// Connections that a thread of an attacker keeps open while it opens more.
const HELD: usize = 1_500;
/// Connections that such a thread opens, one after the other, before it gives up.
const REOPENED_MAX: usize = 200_000;

/// A request whose answer is the same each time.
fn ask(number: usize) -> Ask {
    Ask::completion(
        "tiny-rust",
        format!("Question {number}: what is ownership?"),
        json!({ "temperature": 0, "max_tokens": 8 }),
    )
}

/// Lets this process have as many connections as the system allows: most shells allow 1,024.
fn take_all_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("the limit can be raised");
}

/// Connections that were opened and say `bytes` and nothing more. Fewer where the other end closed some already.
fn crowd(address: SocketAddr, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    take_all_descriptors();
    let open = |_| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(bytes).ok()?;
        Some(stream)
    };
    (0..count).filter_map(open).collect()
}

/// Pause between looks at what came.
const GLANCE: Duration = Duration::from_millis(50);

/// Opens connections at full pace until `over`, each of which says `bytes`. Keeps the newest [`HELD`] of
/// those that the other end has not closed. Counts those that it opened.
fn attack(address: SocketAddr, bytes: &[u8], over: &AtomicBool, opened: &AtomicUsize) {
    take_all_descriptors();
    let is_open = |stream: &TcpStream| {
        stream.set_nonblocking(true).is_ok()
            && stream.peek(&mut [0]).map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |heard| heard > 0)
    };
    let mut open = VecDeque::new();
    for _ in 0..REOPENED_MAX {
        if over.load(Ordering::Relaxed) {
            break;
        }
        if open.len() == HELD {
            open.pop_front();
        }
        if let Ok(mut stream) = TcpStream::connect(address) {
            // It may be closed already.
            let _ = stream.write_all(bytes);
            open.push_back(stream);
            opened.fetch_add(1, Ordering::Relaxed);
        }
        let oldest = open.pop_front().filter(is_open);
        open.extend(oldest);
    }
}

/// A session that never begins: HTTP/2's preface, settings that say nothing, and a request for a path that there
/// is not.
fn no_session() -> Vec<u8> {
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // HEADERS, with END_STREAM and END_HEADERS, on stream 1: POST http /
    let headers = [0, 0, 3, 1, 5, 0, 0, 0, 1, 0x83, 0x86, 0x84];
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings, &headers].concat()
}

/// Answers the pings of HTTP/2 on all these connections until `over`, so that each seems to be alive.
fn answer_pings(streams: &mut [TcpStream], over: &AtomicBool) {
    const PING: u8 = 6;
    const ACK: u8 = 1;
    let mut heard = [0; 1024];
    while !over.load(Ordering::Relaxed) {
        for stream in &mut *streams {
            stream.set_nonblocking(true).expect("a socket can be told so");
            let read = match stream.read(&mut heard) {
                Ok(read) => read,
                // Nothing came, or it is closed.
                Err(_) => continue,
            };
            let mut rest = &heard[..read];
            while let [a, b, c, kind, flags, body @ ..] = rest {
                let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
                if *kind == PING && flags & ACK == 0 && body.len() >= 4 + length {
                    let answer = [&[*a, *b, *c, PING, ACK], &body[..4 + length]].concat();
                    // It may be closed already.
                    let _ = stream.write_all(&answer);
                }
                rest = body.get(4 + length..).unwrap_or_default();
            }
        }
        std::thread::sleep(GLANCE);
    }
}

#[test]
fn idle_clients_take_nobodys_place() {
    let ops = own_place();
    let server = Server::start(&["--set", &format!("router.ops_listen={ops}")]);
    let (said, _) = ask(0).whole(&server);
    let mut before = server.connect();
    let idle = crowd(server.address, CROWD, b"");
    let half = crowd(server.address, CROWD / 4, b"GET /live HTTP/1.1\r\nHost: te");
    for path in ["/live", "/ready", "/metrics"] {
        assert_eq!(server.get(path).head.status, 200, "{path}");
        let mut connection = Connection::open(ops).expect("the operator's port listens");
        connection.send(&request("GET", path, "application/json", b"")).expect("it reads");
        assert_eq!(connection.answer().expect("it answers").head.status, 200, "{path} for operators");
    }
    assert_eq!(ask(0).whole(&server).0, said);
    drop((idle, half));
    // It was idle the longest, so it may be closed; it is not left without an answer.
    let _ = before.send(&request("GET", "/live", "application/json", b""));
    assert!(before.answer().map_or(true, |answer| answer.head.status == 200));
    server.settled();
}

#[test]
fn half_sent_bodies_take_nobodys_place() {
    let server = Server::start(&[]);
    let (said, _) = ask(0).whole(&server);
    let half = format!(
        "POST {COMPLETION} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n{{\"mo"
    );
    let bodies = crowd(server.address, BODIES, half.as_bytes());
    assert_eq!(bodies.len(), BODIES, "all of them are taken in");
    for _ in 0..PROMPTS {
        assert_eq!(ask(0).whole(&server).0, said);
    }
    drop(bodies);
    server.settled();
}

/// A cluster of one worker of each role whose agents listen at known addresses, and those of its sessions and agents.
fn cluster() -> (Cluster, [SocketAddr; 2]) {
    let agents = [own_place(), own_place()];
    let listen = agents.map(|at| format!("transport.listen={at}"));
    let mut cluster = Cluster::new(SECRET);
    cluster.prefill(&["--set", &listen[0], "--set", "transport.lanes=tcp"]);
    cluster.decode(&["--set", &listen[1], "--set", "transport.lanes=tcp"]);
    (cluster, agents)
}

/// What a service that nobody attacks answers.
fn undisturbed() -> Vec<Said> {
    let server = Server::start(&["--prefill", "0"]);
    (0..PROMPTS).map(|number| ask(number).whole(&server).0).collect()
}

/// Starts the router, and checks that each answer comes over a handoff as if nobody attacked.
fn serves(cluster: &mut Cluster, wanted: &[Said]) {
    cluster.route(&["--set", "placement.handoff=always"]);
    cluster.until_ready(1, 1);
    for (number, wanted) in wanted.iter().enumerate() {
        assert_eq!(ask(number).whole(cluster.router()).0, *wanted);
    }
}

#[test]
fn routers_reach_workers_through_a_crowd_without_sessions() {
    let wanted = undisturbed();
    let (mut cluster, _) = cluster();
    let addresses = cluster.addresses();
    let mut crowd: Vec<_> = addresses.into_iter().flat_map(|address| crowd(address, CROWD, &no_session())).collect();
    let over = AtomicBool::new(false);
    scope(|scope| {
        let over = Over(&over);
        scope.spawn(|| answer_pings(&mut crowd, over.0));
        serves(&mut cluster, &wanted);
    });
    let ends = cluster.end();
    assert!(ends.iter().all(|code| *code == Some(0)), "{ends:?}");
}

#[test]
fn workers_reach_each_other_while_strangers_connect_at_full_pace() {
    let wanted = undisturbed();
    let (mut cluster, agents) = cluster();
    let over = AtomicBool::new(false);
    let opened = AtomicUsize::new(0);
    let (over, opened) = (&over, &opened);
    scope(|scope| {
        let _over = Over(over);
        let targets: Vec<_> = cluster.addresses().into_iter().chain(agents).collect();
        for &target in &targets {
            scope.spawn(move || attack(target, b"", over, opened));
        }
        let all = 4 * targets.len() * HELD;
        until("the attack is at its height", || (opened.load(Ordering::Relaxed) > all).then_some(()));
        // Its workers connect to each other once it has introduced them, which is now.
        serves(&mut cluster, &wanted);
    });
    let ends = cluster.end();
    assert!(ends.iter().all(|code| *code == Some(0)), "{ends:?}");
}

/// Ends an attack, also where the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_refusal_reaches_a_client_that_still_sends() {
    let server = Server::start(&["--set", "router.body_bytes_max=32KiB"]);
    let cases = [
        ("POST", "/v1/nothing", "application/json", 404),
        ("PUT", CHAT, "application/json", 405),
        ("POST", CHAT, "application/json", 413),
        ("POST", CHAT, "text/plain", 415),
    ];
    for (method, path, kind, status) in cases {
        for _ in 0..15 {
            let body = vec![b' '; 60_000];
            let bytes = request(method, path, kind, &body);
            let (head, body) = bytes.split_at(bytes.len() - body.len());
            let mut connection = server.connect();
            connection.send(head).expect("the service reads");
            for piece in body.chunks(8_000) {
                connection.send(piece).unwrap_or_else(|error| panic!("{status}: the body cannot be sent: {error}"));
            }
            let answer = connection.answer().unwrap_or_else(|error| panic!("{status}: no answer: {error}"));
            assert_eq!(answer.head.status, status, "{}", answer.text());
        }
    }
}

#[test]
fn a_stream_begins_before_its_first_token() {
    // A prompt that takes seconds at this pace.
    let slow = ["--device", "sim", "--set", "sim.speed_percent=1", "--set", "router.keepalive_s=1"];
    let server = Server::start(&slow);
    let prompt: Vec<u32> = (0..1_500).map(|n| 300 + n).collect();
    let mut stream = Ask::completion("tiny-rust", json!(prompt), json!({ "max_tokens": 4 })).begin_stream(&server);
    assert_eq!(server.metrics().sum("baton_output_tokens_total", &[]), 0.0, "the head came before any token");
    let mut comment = [0; 128];
    let read = stream.read_raw(&mut comment).expect("a sign of life comes");
    let comment = String::from_utf8_lossy(&comment[..read]);
    assert!(comment.contains(": keepalive") && !comment.contains("data:"), "it is a comment: {comment:?}");
    drop(stream);
    server.settled();
}

#[test]
fn a_worker_beyond_the_host_wants_a_secret() {
    for listen in ["--listen 0.0.0.0:0", "--listen 127.0.0.1:0 --set transport.listen=0.0.0.0:0"] {
        let arguments: Vec<&str> = ["decode-worker", "--device", "sim"].into_iter().chain(listen.split(' ')).collect();
        let mut child = crate::server::baton(&arguments).spawn().expect("the binary runs");
        assert_ne!(crate::server::ended(&mut child).code(), Some(0), "{listen}");
        let error = crate::server::drained(child.stderr.take());
        for word in ["cluster.secret", "cluster.insecure"] {
            assert!(error.contains(word), "{listen}: {error}");
        }
    }
}

/// A model with random weights whose tokenizer has one token more than the weights have rows; that token's text.
fn with_a_token_too_many(folder: &Folder) -> (String, &'static str) {
    const TEXT: &str = "<too-far>";
    let dir = folder.path("model");
    let arguments = ["model", "random", "--shape", "tiny", "--seed", "1", &dir];
    let output = Command::new(binary()).args(arguments).env_clear().output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| -> Value {
        let bytes = std::fs::read(format!("{dir}/{name}")).expect("it was written");
        serde_json::from_slice(&bytes).expect("it is JSON")
    };
    let vocab = read("config.json")["vocab_size"].as_u64().expect("a number");
    let mut tokenizer = read("tokenizer.json");
    let added = json!({
        "id": vocab, "content": TEXT, "special": true,
        "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
    });
    let tokens = tokenizer["added_tokens"].as_array_mut().expect("a list");
    tokens.retain(|token| token["id"].as_u64() < Some(vocab));
    // Ids of added tokens follow each other.
    let model = tokenizer["model"]["vocab"].as_object_mut().expect("a map");
    let known = model.len() as u64;
    model.extend((known..vocab).map(|id| (format!("<filler {id}>"), json!(id))));
    tokenizer["added_tokens"].as_array_mut().expect("a list").push(added);
    std::fs::write(format!("{dir}/tokenizer.json"), tokenizer.to_string()).expect("it can be written");
    (dir, TEXT)
}

#[test]
fn a_token_beyond_the_vocabulary_is_refused_and_costs_nobody_else() {
    let folder = Folder::new("token-too-many");
    let (model, text) = with_a_token_too_many(&folder);
    // Else the chat has the text of the token, and not the token.
    let server = Server::start(&["--model", &model, "--set", "router.special_tokens=allow"]);
    let fine = |number: u64| {
        Ask::completion("model", format!("{number} is fine"), json!({ "temperature": 0, "max_tokens": 8 }))
    };
    let told: Vec<_> = (0..40).map(|number| (fine(number), fine(number).whole(&server).0)).collect();
    let chat = json!({ "model": "model", "messages": [{ "role": "user", "content": format!("Say {text} now") }] });
    let completion = Ask::completion("model", format!("Say {text} now"), json!({})).body;
    std::thread::scope(|scope| {
        scope.spawn(|| check_all(&server, &told, 4, true));
        for _ in 0..10 {
            for (path, body) in [(CHAT, &chat), (COMPLETION, &completion)] {
                let answer = server.post(path, body);
                assert_eq!(answer.head.status, 400, "{}", answer.text());
            }
        }
    });
    let metrics = server.settled();
    assert_eq!(metrics.sum("baton_sequences_failed_total", &[]), 0.0);
}
