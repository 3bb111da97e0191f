//! `baton bench`: what `serve` sends is answered, and what it and `transfer` report is what happened.

use crate::models::Folder;
use crate::server::{PATIENCE, Server, baton, drained, ended};
use crate::store::{BUCKET, Store};
use serde_json::Value;
use std::io::{BufRead, BufReader};

/// A trace that the documentation shows.
const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/sample-trace.jsonl");

/// What a run left behind.
pub(crate) struct Outcome {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) error: String,
}

fn run(arguments: &[&str]) -> Outcome {
    let mut child = baton(&["bench", "serve"]).args(arguments).spawn().expect("the binary runs");
    let status = ended(&mut child);
    Outcome { status: status.code(), out: drained(child.stdout.take()), error: drained(child.stderr.take()) }
}

/// Runs it against `server` and returns the report, and the records.
fn report(server: &Server, folder: &Folder, arguments: &[&str]) -> (Value, Vec<Value>, Outcome) {
    let url = format!("http://{}", server.address);
    let (json, records) = (folder.path("report.json"), folder.path("records.jsonl"));
    let files = ["--url", &url, "--json", &json, "--records", &records];
    let outcome = run(&[&files[..], arguments].concat());
    let read = |path: &str| std::fs::read_to_string(path).expect("the file was written");
    let parse = |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (parse(&read(&json)), read(&records).lines().map(parse).collect(), outcome)
}

#[test]
fn every_way_to_send_is_answered_and_counted() {
    let server = Server::start(&[]);
    let folder = Folder::new("bench");
    let page = folder.path("report.html");
    let check = |arguments: &[&str], requests: usize, output: u64| {
        let (report, records, outcome) = report(&server, &folder, arguments);
        assert_eq!(outcome.status, Some(0), "{}{}", outcome.out, outcome.error);
        assert_eq!((&report["done"], &report["failed"]), (&requests.into(), &0.into()), "{}", outcome.out);
        assert_eq!(records.len(), requests);
        let sum = |field: &str| records.iter().map(|record| record[field].as_u64().expect(field)).sum::<u64>();
        assert_eq!(sum("output_tokens"), output, "{}", outcome.out);
        for record in &records {
            let time = |field: &str| record[field].as_u64().expect(field);
            assert!(time("due_us") <= time("ready_us") && time("ready_us") <= time("sent_us"), "{record}");
            assert!(time("sent_us") <= time("first_us") && time("first_us") <= time("end_us"), "{record}");
        }
        let figures = &report["figures"];
        assert_eq!(figures["ttft_ms"]["count"], requests);
        assert!(outcome.out.contains(&format!("{requests} done, 0 failed")), "{}", outcome.out);
        (report, records)
    };

    let closed = ["--concurrency", "4", "--requests", "12", "--warmup", "2", "--input", "40-60", "--output", "8"];
    let (report, records) = check(&[&closed[..], &["--slo", "e2e=60s", "--html", &page]].concat(), 12, 96);
    assert_eq!((&report["model"], &report["goodput"]["share"]), (&"tiny-rust".into(), &1.0.into()));
    assert!(
        records.iter().all(|record| record["input_tokens"] == record["input_asked"]),
        "token ids have exact lengths"
    );
    let html = std::fs::read_to_string(&page).expect("the page was written");
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert!(html.contains("<svg") && !html.contains("<script") && !html.contains("NaN"));

    // Three prefix groups of two blocks: what the first of a group computed the others find.
    let rate = ["--rate", "50", "--requests", "12", "--input", "20", "--output", "4", "--shared-prefix", "64"];
    let (report, _) = check(&[&rate[..], &["--prefixes", "3", "--concurrency-max", "1"]].concat(), 12, 48);
    let cached = &report["figures"]["cached_tokens"];
    assert_eq!((&cached["p50"], &cached["max"]), (&64.0.into(), &64.0.into()));

    // Whether a prompt finds what the one before it shares depends on the speed of the machine. The second time all do.
    let trace = ["--trace", TRACE, "--trace-speed", "10"];
    check(&trace, 8, 224);
    let (report, records) = check(&trace, 8, 224);
    assert_eq!(report["settings"]["arrivals"]["kind"], "trace");
    assert!(records.iter().any(|record| record["cached_tokens"].as_u64() >= Some(1024)), "blocks are shared");

    let chat =
        ["--api", "chat", "--turns", "3", "--requests", "7", "--concurrency", "2", "--input", "40", "--output", "8"];
    let (_, records) = check(&chat, 7, 56);
    for record in &records {
        let (turn, input) =
            (record["turn"].as_u64().expect("a turn"), record["input_tokens"].as_u64().expect("tokens"));
        // Words are about as many tokens as was measured, and answers add theirs.
        assert!(input >= 30 * (turn + 1) + 4 * turn, "{record}");
    }
    server.settled();
}

#[test]
fn what_the_server_refuses_is_counted() {
    let server = Server::start(&["--set", "router.requests_max=1"]);
    let folder = Folder::new("bench-refused");
    let (some, records, outcome) =
        report(&server, &folder, &["--concurrency", "8", "--requests", "24", "--input", "400", "--output", "32"]);
    let (done, failed) = (some["done"].as_u64(), some["failed"].as_u64());
    assert_eq!(done.zip(failed).map(|(done, failed)| done + failed), Some(24), "{}", outcome.out);
    assert!(done >= Some(1) && failed >= Some(1) && outcome.status == Some(0), "{}", outcome.out);
    assert_eq!(some["failures"][0]["kind"], "http 429");
    let told = records.iter().filter(|record| record["failure"].as_str().is_some_and(|it| it.starts_with("http 429")));
    assert_eq!(Some(told.count() as u64), failed);

    let (none, _, outcome) = report(&server, &folder, &["--requests", "3", "--input", "5000"]);
    assert_eq!((&none["done"], &none["failures"][0]["kind"]), (&0.into(), &"http 400".into()));
    assert_eq!(outcome.status, Some(1));
    assert!(outcome.error.contains("all requests failed"), "{}", outcome.error);
    // The figures of nothing are no figures.
    assert!(none["figures"]["ttft_ms"].is_null() && outcome.out.contains("0 done, 3 failed"), "{}", outcome.out);
}

#[test]
fn an_interrupted_run_reports_what_there_is() {
    let server = Server::start(&[]);
    let url = format!("http://{}", server.address);
    let arguments = ["bench", "serve", "--url", &url, "--duration", &PATIENCE.as_secs().to_string(), "--timeout", "20"];
    let mut child = baton(&arguments).spawn().expect("the binary runs");
    let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    // Its first words come when it has reached the server, and is about to listen for signals.
    while !line.contains(" done, ") {
        line.clear();
        assert!(stderr.read_line(&mut line).expect("it writes text") > 0, "it ended early");
    }
    let signal = format!("kill -INT {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &signal]).status().expect("there is a shell").success());
    let status = ended(&mut child);
    let out = drained(child.stdout.take());
    assert_eq!(status.code(), Some(0), "{out}");
    assert!(out.contains("stopped: interrupted") && out.contains("time to first token"), "{out}");
}

#[test]
fn what_cannot_be_run_is_refused() {
    let folder = Folder::new("bench-command-line");
    let check = |arguments: &[&str], status: i32, words: &[&str]| {
        let outcome = run(arguments);
        assert_eq!(outcome.status, Some(status), "{arguments:?}: {}", outcome.error);
        for word in words {
            assert!(outcome.error.contains(word), "{arguments:?}: {}", outcome.error);
        }
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nobody = format!("http://{}", taken.local_addr().expect("it has an address"));
    drop(taken);
    check(&["--url", &nobody], 1, &["cannot reach", &nobody, "--url"]);
    check(&["--url", "https://127.0.0.1", "--ca", "/nowhere/ca.pem"], 2, &["--ca /nowhere/ca.pem: "]);
    check(&["--rate", "0"], 2, &["--rate", "more than 0"]);
    check(&["--rate", "1", "--concurrency", "1"], 2, &["--rate", "--concurrency"]);
    check(&["--concurrency", "0"], 2, &["from 1 to"]);
    check(&["--input", "5-1"], 2, &["--input", "5-1"]);
    check(&["--duration", "-1"], 2, &["--duration"]);
    check(&["--extra", "[]"], 2, &["--extra"]);
    check(&["--slo", "ttft=5"], 2, &["--slo", "500ms"]);
    check(&["--json", &folder.path("no/report.json")], 2, &["report.json"]);
    let trace = folder.path("trace.jsonl");
    check(&["--trace", &trace], 2, &["trace.jsonl", "No such file"]);
    std::fs::write(&trace, "{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n{}\n")
        .expect("it can be written");
    check(&["--trace", &trace], 2, &["trace.jsonl, line 2", "timestamp"]);
    check(&["--trace", &trace, "--input", "5"], 2, &["--trace", "--input"]);
}

/// Four cells a lane.
pub(crate) const FEW_TRANSFERS: [&str; 10] =
    ["--sizes", "4KiB,64KiB", "--batches", "1,4", "--in-flight", "2", "--pool", "1MiB", "--passes", "1"];

/// Measures transfers.
pub(crate) fn transfer(arguments: &[&str]) -> Outcome {
    let mut child = baton(&["bench", "transfer"]).args(arguments).spawn().expect("the binary runs");
    let status = ended(&mut child);
    Outcome { status: status.code(), out: drained(child.stdout.take()), error: drained(child.stderr.take()) }
}

#[test]
fn reads_between_processes_are_measured_and_compared() {
    let folder = Folder::new("transfer");
    let (json, html) = (folder.path("report.json"), folder.path("report.html"));
    let lanes = ["--lanes", "local,shm,tcp,tcp+checksums,tcp+int8+checksums"];
    let outcome = transfer(&[&FEW_TRANSFERS[..], &lanes, &["--json", &json, "--html", &html]].concat());
    assert_eq!(outcome.status, Some(0), "{}{}", outcome.out, outcome.error);
    let read = |path: &str| std::fs::read_to_string(path).expect("the file was written");
    let report: Value = serde_json::from_str(&read(&json)).expect("it is JSON");
    let rows = report["rows"].as_array().expect("rows");
    for lane in ["local", "shm", "tcp", "tcp, checksums", "tcp, int8, checksums"] {
        let of_lane: Vec<_> = rows.iter().filter(|row| row["lane"] == lane).collect();
        assert_eq!(of_lane.len(), 4, "{lane}: {rows:?}");
        for row in of_lane {
            let time = |field: &str| row[field].as_f64().expect(field);
            assert!(time("p50_us") <= time("p99_us") && time("gb_per_s") > 0.0, "{row}");
        }
    }
    assert!(read(&html).contains("<svg"), "it is drawn");

    let disk = folder.path("disk");
    std::fs::create_dir(&disk).expect("it can be made");
    let files = ["--lanes", "file", "--folder", &disk, "--folder", &disk, "--set", "disk.depth=2", "--json", &json];
    let outcome = transfer(&[&FEW_TRANSFERS[..], &files].concat());
    assert_eq!(outcome.status, Some(0), "{}{}", outcome.out, outcome.error);
    assert!(outcome.out.contains(&format!("in {disk} and {disk}, at most 2 reads or writes")), "{}", outcome.out);
    let report: Value = serde_json::from_str(&read(&json)).expect("it is JSON");
    let rows = report["rows"].as_array().expect("rows");
    for operation in ["write", "read"] {
        assert_eq!(rows.iter().filter(|row| row["operation"] == operation).count(), 4, "{rows:?}");
    }
    assert_eq!(rows.len(), 8, "no other process, no limits of memory");
    assert_eq!(std::fs::read_dir(&disk).expect("it is there").count(), 0, "the files are gone");

    let wrong = |arguments: &[&str], status: i32, part: &str| {
        let outcome = transfer(arguments);
        assert_eq!(outcome.status, Some(status), "{}", outcome.error);
        assert!(outcome.error.contains(part), "{}", outcome.error);
    };
    wrong(&["--lanes", "pigeon"], 2, "there is no lane `pigeon`");
    wrong(&["--lanes", "shm+checksums"], 2, "only tcp carries checksums");
    wrong(&["--lanes", "shm+int8"], 2, "only tcp brings KV encoded");
    wrong(&["--sizes", "100"], 2, "--sizes 100");
    wrong(&["--lanes", "file", "--sizes", "1KiB"], 2, "blocks of files are multiples of 4096");
    wrong(&["--lanes", "file", "--folder", "/nowhere"], 2, "--folder /nowhere: there is no such folder");
    wrong(&["--lanes", "object"], 2, "--set object.endpoint=");
    wrong(&["--lanes", "object", "--set", "object.endpoint=http://x"], 2, "object.bucket");
    wrong(&["--keep"], 2, "of --lanes file and object");
    wrong(&["--peer", "somewhere"], 2, "0123456789abcdef@10.0.0.2:7000");
    wrong(&["--peer", "0123456789abcdef@127.0.0.1:1", "--lanes", "tcp"], 1, "not reached over tcp");
}

#[test]
fn objects_are_measured_and_none_is_left() {
    let (store, folder) = (Store::start(), Folder::new("transfer-objects"));
    let json = folder.path("report.json");
    let endpoint = format!("object.endpoint=http://{}", store.address);
    let transfer = |more: &[&str]| {
        let bucket = format!("object.bucket={BUCKET}");
        let small = ["--sizes", "64KiB", "--batches", "1,4", "--in-flight", "2", "--pool", "512KiB", "--passes", "1"];
        let mut child = baton(&["bench", "transfer", "--lanes", "object", "--set", &endpoint, "--set", &bucket])
            .args([&small[..], more].concat())
            .envs([("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")])
            .spawn()
            .expect("the binary runs");
        let status = ended(&mut child);
        let (out, error) = (drained(child.stdout.take()), drained(child.stderr.take()));
        assert_eq!(status.code(), Some(0), "{out}{error}");
    };
    let left = || store.ask("GET", "?list-type=2").matches("<Key>baton-bench/transfer/65536/").count();
    transfer(&["--json", &json]);
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("it was written")).expect("it is JSON");
    let rows = report["rows"].as_array().expect("rows");
    let operations: Vec<_> = rows.iter().map(|row| (&row["operation"], &row["batch"])).collect();
    assert_eq!(operations, [(&"write".into(), &1.into()), (&"read".into(), &1.into())], "an object is one block");
    assert_eq!(left(), 0);
    transfer(&["--keep"]);
    assert_eq!(left(), 8);
}
