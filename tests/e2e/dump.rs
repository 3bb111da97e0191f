//! What a dump says when something hangs: of real processes, whose step loop a test stops.

use crate::admin::{SLOW, admin, done, refused};
use crate::clients::ask;
use crate::cluster::Cluster;
use crate::server::{Server, until};
use serde_json::Value;
use std::collections::BTreeSet;

/// What a step loop says that has nothing to do.
const AT_REST: &str = "waits for an event";

/// A thread of another process that a debugger keeps from running, until this is dropped by the thread that made it.
struct Stopped(libc::pid_t);

impl Stopped {
    /// Stops a thread. `None`: this process may not.
    fn new(thread: u64) -> Option<Self> {
        let thread = libc::pid_t::try_from(thread).expect("the system called it so");
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the call changes nothing in this process.
        if unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) } != 0 {
            return None;
        }
        // SAFETY: as above.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) }, 0, "it is seized");
        let mut status = 0;
        // SAFETY: the status is this function's.
        assert_eq!(unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) }, thread, "it stops");
        Some(Self(thread))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the call changes nothing in this process.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
    }
}

fn thread<'a>(dump: &'a Value, name: &str) -> &'a Value {
    let all = dump["threads"].as_array().expect("a list");
    all.iter().find(|thread| thread["name"] == name).unwrap_or_else(|| panic!("{name} in {dump:#}"))
}

fn says(dump: &Value, name: &str, words: &str) -> bool {
    thread(dump, name)["doing"].as_str().is_some_and(|doing| doing.starts_with(words))
}

#[test]
fn at_rest_each_thread_says_what_it_waits_for() {
    let mut cluster = Cluster::new("hush, says this test");
    let at = cluster.decode(&["--name", "d1", "--set", "engine.threads=2", "--set", "transport.listen=127.0.0.1:0"]);
    let ops = cluster.worker(at).operations();
    let rests = [
        ("d1", AT_REST),
        ("d1-control", "waits for messages of peers"),
        ("d1-copy-0", "waits for memory to be written"),
        ("d1-tcp", "waits for bytes from peers"),
        ("baton-cpu-0", "waits for a step to be submitted"),
        ("baton-cpu-1", "waits for a part of a step"),
        ("baton", "takes connections"),
    ];
    let dump = until("all threads rest", || {
        let dump = done(ops, &["dump"]);
        rests.iter().all(|(name, words)| says(&dump, name, words)).then_some(dump)
    });
    assert_eq!((&dump["unanswered"], &dump["worker"]["worker_name"]), (&Value::Array(Vec::new()), &"d1".into()));
    for (name, _) in rests {
        let thread = thread(&dump, name);
        assert!(thread["doing_ms"].as_f64().is_some_and(|ms| ms >= 0.0), "{thread:#}");
        assert!(thread["cpu_s"].as_f64().is_some_and(|s| s >= 0.0), "{thread:#}");
    }
    assert_eq!(thread(&dump, "baton-cpu-0")["state"], "sleeping");
    // One of the runtime's threads answers right now.
    let threads = dump["threads"].as_array().expect("a list");
    assert!(threads.iter().any(|it| it["name"] == "baton-io" && it["doing"] == "runs tasks"), "{dump:#}");
    // Each thread that the system knows is there, those of libraries as well.
    let listed: BTreeSet<u64> = threads.iter().filter_map(|thread| thread["id"].as_u64()).collect();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", dump["process"])).expect("it runs");
    let known = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    let mut missing: BTreeSet<u64> = known.collect();
    // What has begun since then is listed by a later one.
    until("all are listed", || {
        let later = done(ops, &["dump"]);
        let later = later["threads"].as_array().expect("a list").iter().filter_map(|thread| thread["id"].as_u64());
        let later: BTreeSet<u64> = later.collect();
        missing.retain(|id| !listed.contains(id) && !later.contains(id));
        missing.is_empty().then_some(())
    });
    let (status, text, error) = admin(ops, &["dump"]);
    assert_eq!(status, Some(0), "{error}");
    for words in ["no request is open", "\nthreads of process ", "IN THE KERNEL", "waits for a step to be submitted"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    cluster.end();
}

#[test]
fn a_dump_comes_though_the_step_loop_stands_still() {
    let mut cluster = Cluster::new("hush, says this test");
    let at = cluster.decode(&[&SLOW[..], &["--name", "d1"]].concat());
    cluster.route(&["--set", "router.ops_listen=127.0.0.1:0"]);
    cluster.until_ready(0, 1);
    let (worker, router) = (cluster.worker(at).operations(), cluster.router().operations());
    let id = thread(&done(worker, &["dump"]), "d1")["id"].as_u64().expect("a number");
    assert!(refused(router, &["dump", "d2"], 3).contains("d1"), "there is no such worker");
    let Some(stopped) = Stopped::new(id) else {
        eprintln!("this process may not stop a thread of another one: nothing to see");
        return;
    };
    let dump = done(worker, &["dump"]);
    let unanswered = "the step loop did not answer for 2000 ms";
    assert_eq!(dump["unanswered"], serde_json::json!([unanswered]), "{dump:#}");
    assert!(dump["worker"].is_null() && dump["requests"] == serde_json::json!([]), "{dump:#}");
    let step_loop = thread(&dump, "d1");
    assert_eq!(step_loop["state"], "traced", "{step_loop:#}");
    assert!(says(&dump, "baton-sim", "waits for a step"), "the others are seen as well: {dump:#}");
    let (status, text, error) = admin(worker, &["dump"]);
    assert_eq!(status, Some(0), "{error}");
    assert!(text.starts_with(unanswered) && text.contains("traced"), "{text}");
    assert!(!text.contains("no request is open"), "this is not known: {text}");
    // A router says it of the worker, and still knows the requests.
    let dump = done(router, &["dump", "d1"]);
    let unanswered = dump["unanswered"][0].as_str().expect("a text");
    // After a while it ends their session.
    assert!(unanswered.starts_with("the step loop of d1 did not answer"), "{dump:#}");
    assert!(dump["threads"].as_array().is_some_and(|threads| threads.iter().all(|it| it["name"] != "d1")), "{dump:#}");
    assert!(says(&dump, "baton", "takes connections"), "{dump:#}");
    drop(stopped);
    until("it goes on", || (done(worker, &["dump"])["worker"]["worker_name"] == "d1").then_some(()));
    cluster.end();
}

#[test]
fn nothing_of_a_prompt_is_in_a_dump() {
    let server = Server::start(&[&SLOW[..], &["--set", "router.ops_listen=127.0.0.1:0"]].concat());
    let ops = server.operations();
    let stream = ask(5, 400).begin_stream(&server);
    let dump = until("it decodes", || {
        let dump = done(ops, &["dump", "decode-1"]);
        dump["requests"].as_array().is_some_and(|requests| !requests.is_empty()).then_some(dump)
    });
    let prompt = ask(5, 400).body["prompt"].as_str().expect("a text").to_owned();
    assert!(!prompt.is_empty() && !dump.to_string().contains(&prompt), "{dump:#}");
    // Router and workers are one process here.
    for name in ["prefill-1", "decode-1", "baton-sim", "baton-io", "baton"] {
        assert!(!thread(&dump, name)["doing"].as_str().expect("a text").is_empty(), "{name}: {dump:#}");
    }
    drop(stream);
    // A client that sends half of its body: no worker has the request, and it is in a dump all the same.
    let mut half = server.connect();
    half.send(
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{",
    )
    .expect("it is read");
    until("it waits for its body", || {
        let dump = done(ops, &["dump"]);
        let requests = dump["requests"].as_array().expect("a list");
        let waits = |request: &Value| request["waits_for"] == "its body, which the client sends";
        requests.iter().any(waits).then_some(())
    });
    drop(half);
    until("it is over", || (done(ops, &["dump"])["requests"] == serde_json::json!([])).then_some(()));
}
