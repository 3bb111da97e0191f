//! How a service ends: by a signal, with what is open brought to its end first.

use crate::asks::{Ask, CHAT};
use crate::http::{Connection, post, request};
use crate::server::{Server, until};
use serde_json::{Value, json};
use std::io;

/// Tokens of a stream that is still under way when the next request comes.
const LONG_TOKENS: u64 = 3000;

/// A request that takes a while.
fn long(sequences: u64) -> Ask {
    let more = json!({ "n": sequences, "max_tokens": LONG_TOKENS, "ignore_eos": true, "seed": 1 });
    Ask::completion("tiny-rust", "Ownership is", more)
}

/// Begins it and reads its first event.
fn begin(server: &Server, sequences: u64) -> Connection {
    let mut stream = long(sequences).begin_stream(server);
    stream.event().expect("the stream goes on").expect("there is a first event");
    stream
}

/// The answer on a connection of its own; errors where the service takes none any more.
fn ask(server: &Server, bytes: &[u8]) -> io::Result<(u16, String)> {
    let mut connection = Connection::open(server.address)?;
    connection.send(bytes)?;
    let answer = connection.answer()?;
    Ok((answer.head.status, answer.text().to_owned()))
}

fn check_drain(signal: &str) {
    let mut server = Server::start(&[]);
    let mut idle = server.connect();
    let mut stream = begin(&server, 1);
    server.signal(signal);
    let refusal =
        until("the refusal of new work", || match ask(&server, &request("GET", "/ready", "application/json", b"")) {
            Ok((200, _)) => None,
            answer => Some(answer),
        });
    // Where the listener is closed already, that is the refusal; else it is said in words, on `/ready` as for work.
    if let Ok((status, text)) = refusal {
        assert_eq!((status, text.contains("shutting down")), (503, true), "{text}");
        let chat = Ask::chat("Hi", json!({ "max_tokens": 4 })).body;
        if let Ok((status, text)) = ask(&server, &post(CHAT, &chat)) {
            assert_eq!((status, text.contains("shutting_down")), (503, true), "{text}");
        }
    }
    let mut last = String::new();
    let mut events = Vec::new();
    while let Some(event) = stream.event().expect("an open stream comes to its end") {
        events.push(std::mem::replace(&mut last, event));
    }
    assert_eq!(last, "[DONE]");
    let usage: Value = serde_json::from_str(events.last().expect("usage was asked for")).expect("events are JSON");
    assert_eq!(usage["usage"]["completion_tokens"], LONG_TOKENS, "{usage}");
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    assert_eq!(idle.byte().unwrap_or(None), None, "an idle connection is closed");
    assert!(Connection::open(server.address).is_err(), "nobody listens any more");
}

#[test]
fn ctrl_c_lets_open_requests_end() {
    check_drain("INT");
}

#[test]
fn sigterm_lets_open_requests_end() {
    check_drain("TERM");
}

#[test]
fn an_idle_service_ends_at_once() {
    let mut server = Server::start(&["--prefill", "2", "--decode", "2", "--set", "router.drain_s=100000"]);
    server.signal("TERM");
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
}

#[test]
fn what_does_not_end_in_time_is_ended() {
    let mut server = Server::start(&["--set", "router.drain_s=1"]);
    let mut streams = [begin(&server, 16), begin(&server, 16)];
    let mut waiting = server.connect();
    waiting.send(&post("/v1/completions", &long(16).body)).expect("the service reads");
    until("three open requests", || (server.metrics().sum("baton_requests_open", &[]) == 3.0).then_some(()));
    server.signal("INT");
    for stream in &mut streams {
        let mut last = String::new();
        while let Some(event) = stream.event().expect("the body ends as it should") {
            last = event;
        }
        let error: Value = serde_json::from_str(&last).expect("the last event is an error");
        assert_eq!(error["error"]["code"], "ended_by_service", "{last}");
    }
    let answer = waiting.answer().expect("who waits is told");
    assert_eq!(answer.head.status, 503, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "ended_by_service");
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
}

#[test]
fn a_second_ctrl_c_waits_for_nothing() {
    let mut server = Server::start(&["--set", "router.drain_s=100000"]);
    let mut stream = begin(&server, 16);
    server.signal("INT");
    until("the begin of the drain", || server.log().contains("draining").then_some(()));
    server.signal("INT");
    assert_eq!(server.ended().code(), Some(130), "{}", server.log());
    while let Ok(Some(event)) = stream.event() {
        assert_ne!(event, "[DONE]", "the stream was cut off");
    }
}
