//! What no client should send: every request of it gets a 4xx in OpenAI's form or has its connection closed, and
//! nothing of it stays.

use crate::asks::{Ask, CHAT, COMPLETION};
use crate::http::{Answer, post, request};
use crate::server::Server;
use serde_json::{Value, json};
use std::thread::sleep;
use std::time::Duration;

const JSON: &str = "application/json";

/// Checks an error in OpenAI's form and returns it.
#[track_caller]
fn error_of(answer: &Answer, status: u16, what: &str) -> Value {
    assert_eq!(answer.head.status, status, "{what}: {}", answer.text());
    let body = answer.json();
    let error = &body["error"];
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{what}: {body}");
    assert_eq!(error["type"], "invalid_request_error", "{what}: {body}");
    for field in ["param", "code"] {
        assert!(error.get(field).is_some_and(|value| value.is_null() || value.is_string()), "{what}: {body}");
    }
    assert!(answer.head.header("x-request-id").is_some(), "{what}: a request has its id");
    error.clone()
}

/// A service with small limits, and an answer that it must still give after all.
struct Victim {
    server: Server,
    ask: Ask,
}

impl Victim {
    fn new(flags: &[&str]) -> Self {
        let ask = Ask::chat("What is ownership?", json!({ "temperature": 0, "max_tokens": 24 }));
        Self { server: Server::start(flags), ask }
    }

    /// Runs `attack`, and checks that nothing of it is left.
    fn survives(&self, attack: impl FnOnce(&Server)) {
        let (said, _) = self.ask.whole(&self.server);
        attack(&self.server);
        self.server.settled();
        assert_eq!(self.ask.whole(&self.server).0, said);
    }
}

#[test]
fn wrong_fields_are_refused_by_name() {
    let chat = |more: Value| Ask::chat("Hi", more).body;
    let complete = |more: Value| Ask::completion("tiny-rust", "Hi", more).body;
    let user = |content: Value| json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": content }] });
    let long = "ownership and borrowing ".repeat(3000);
    let cases = [
        (CHAT, chat(json!({ "model": "gpt-9" })), 404, json!("model")),
        (CHAT, chat(json!({ "model": 7 })), 400, json!("model")),
        (CHAT, json!({ "messages": [{ "role": "user", "content": "Hi" }] }), 400, json!("model")),
        (CHAT, json!({ "model": "tiny-rust" }), 400, json!("messages")),
        (CHAT, json!({ "model": "tiny-rust", "messages": [] }), 400, json!("messages")),
        (CHAT, json!({ "model": "tiny-rust", "messages": "Hi" }), 400, json!("messages")),
        (CHAT, json!({ "model": "tiny-rust", "messages": ["Hi"] }), 400, json!("messages[0]")),
        (CHAT, json!({ "model": "tiny-rust", "messages": [{}] }), 400, json!("messages[0].role")),
        (CHAT, user(Value::Null), 400, json!("messages[0].content")),
        (CHAT, user(json!(7)), 400, json!("messages[0].content")),
        (CHAT, user(json!([{ "type": "image_url", "image_url": {} }])), 400, json!("messages[0].content[0]")),
        (CHAT, user(json!(long)), 400, json!("messages")),
        (CHAT, chat(json!({ "frobnicate": 1 })), 400, json!("frobnicate")),
        (CHAT, chat(json!({ "tools": [{ "type": "function" }] })), 400, json!("tools[0].function")),
        (CHAT, chat(json!({ "temperature": "hot" })), 400, json!("temperature")),
        (CHAT, chat(json!({ "temperature": -0.1 })), 400, json!("temperature")),
        (CHAT, chat(json!({ "max_tokens": -1 })), 400, json!("max_tokens")),
        (CHAT, chat(json!({ "max_tokens": 1.5 })), 400, json!("max_tokens")),
        (CHAT, chat(json!({ "max_tokens": 1u64 << 40 })), 400, json!("max_tokens")),
        (CHAT, chat(json!({ "max_tokens": 1_000_000 })), 400, json!("messages")),
        (CHAT, chat(json!({ "n": 0 })), 400, json!("n")),
        (CHAT, chat(json!({ "n": 1000 })), 400, json!("n")),
        (CHAT, chat(json!({ "stop": "" })), 400, json!("stop")),
        (CHAT, chat(json!({ "stop": [1] })), 400, json!("stop")),
        (CHAT, chat(json!({ "stream": "yes" })), 400, json!("stream")),
        (CHAT, chat(json!({ "stream_options": {} })), 400, json!("stream_options")),
        (CHAT, chat(json!({ "top_logprobs": 21, "logprobs": true })), 400, json!("top_logprobs")),
        (CHAT, chat(json!({ "logit_bias": { "99999999": 1 } })), 400, json!("logit_bias")),
        (CHAT, chat(json!({ "seed": 1.5 })), 400, json!("seed")),
        (COMPLETION, complete(json!({ "prompt": "" })), 400, json!("prompt")),
        (COMPLETION, complete(json!({ "prompt": [] })), 400, json!("prompt")),
        (COMPLETION, complete(json!({ "prompt": [[]] })), 400, json!("prompt")),
        (COMPLETION, complete(json!({ "prompt": [1, "a"] })), 400, json!("prompt")),
        (COMPLETION, complete(json!({ "prompt": [-1] })), 400, json!("prompt")),
        (COMPLETION, complete(json!({ "prompt": [4_000_000_000u32] })), 400, json!("prompt")),
        (COMPLETION, complete(json!({ "prompt": vec!["a"; 65] })), 400, json!("prompt")),
        (COMPLETION, complete(json!({ "prompt": long })), 400, json!("prompt")),
        (COMPLETION, complete(json!({ "logprobs": 6 })), 400, json!("logprobs")),
        (COMPLETION, complete(json!({ "echo": "yes" })), 400, json!("echo")),
        (COMPLETION, complete(json!({ "messages": [] })), 400, json!("messages")),
    ];
    Victim::new(&[]).survives(|server| {
        let mut connection = server.connect();
        for (path, body, status, param) in &cases {
            // All on one connection: a refusal leaves it as good as new.
            connection.send(&post(path, body)).expect("the service reads");
            let what: String = body.to_string().chars().take(200).collect();
            let error = error_of(&connection.answer().expect("the service answers"), *status, &what);
            assert_eq!(error["param"], *param, "{what}: {error}");
        }
        let refused = server.metrics().sum("baton_requests_total", &[("outcome", "invalid")]);
        assert_eq!(refused, cases.len() as f64, "every refusal is counted once");
    });
}

#[test]
fn what_is_no_request_is_refused() {
    let deep = format!(r#"{{"model":"tiny-rust","messages":{}"#, "[".repeat(100_000));
    let twice = r#"{"model":"tiny-rust","model":"tiny-rust","prompt":"Hi"}"#;
    let bodies: [(&str, &[u8]); 11] = [
        ("nothing", b""),
        ("no JSON", b"hello"),
        ("half of it", br#"{"model": "tiny-rust", "mess"#),
        ("two objects", b"{} {}"),
        ("a list", b"[]"),
        ("null", b"null"),
        ("a number beyond all", br#"{"model":"tiny-rust","prompt":"Hi","seed":1e999}"#),
        ("invalid UTF-8", b"{\"model\": \"tiny-rust\", \"prompt\": \"\xff\xfe\"}"),
        ("zeros", &[0; 64]),
        ("a deep list", deep.as_bytes()),
        ("a field twice", twice.as_bytes()),
    ];
    let fine = br#"{"model":"tiny-rust","prompt":"Hi","max_tokens":1}"#;
    let others: [(&str, &str, &str, u16); 10] = [
        ("GET", CHAT, JSON, 405),
        ("PUT", COMPLETION, JSON, 405),
        ("DELETE", "/v1/models", JSON, 405),
        ("POST", "/metrics", JSON, 405),
        ("POST", "/", JSON, 405),
        ("POST", "/v1/chat/completions/", JSON, 404),
        ("GET", "/v1/models/gpt-9", JSON, 404),
        ("GET", "/v1/models/%ff", JSON, 404),
        ("POST", COMPLETION, "text/plain", 415),
        ("POST", COMPLETION, "application/x-www-form-urlencoded", 415),
    ];
    Victim::new(&["--set", "router.body_bytes_max=256KiB"]).survives(|server| {
        for (what, body) in bodies {
            for path in [CHAT, COMPLETION] {
                error_of(&server.exchange(&request("POST", path, JSON, body)), 400, what);
            }
        }
        for (method, path, kind, status) in others {
            error_of(&server.exchange(&request(method, path, kind, fine)), status, path);
        }
        let untyped = format!("POST {COMPLETION} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", fine.len());
        error_of(&server.exchange(&[untyped.as_bytes(), fine].concat()), 415, "no content type");

        let huge = vec![b' '; (256 << 10) + 1];
        error_of(&server.exchange(&request("POST", CHAT, JSON, &huge)), 413, "a huge body");
        let mut chunked = chunked_head();
        chunked.extend_from_slice(format!("{:x}\r\n", huge.len()).as_bytes());
        chunked.extend_from_slice(&huge);
        chunked.extend_from_slice(b"\r\n0\r\n\r\n");
        error_of(&server.exchange(&chunked), 413, "a huge body in chunks");

        // As large as allowed and no larger: it is read, and is no JSON.
        error_of(&server.exchange(&request("POST", CHAT, JSON, &huge[1..])), 400, "as much as may be");
    });
}

#[test]
fn what_is_no_http_ends_the_connection() {
    let heads: [&[u8]; 9] = [
        b"hello\r\n\r\n",
        b"GET /live HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: nonsense\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost : test\r\n\r\n",
        b"GET /live HTTP/1.1\r\n\x00: x\r\n\r\n",
    ];
    let long_head = format!("GET /live HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let many_headers = format!("GET /live HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(10_000));
    let long_path = format!("GET /{} HTTP/1.1\r\nHost: test\r\n\r\n", "x".repeat(1 << 20));
    Victim::new(&[]).survives(|server| {
        let long = [long_head, many_headers, long_path];
        for bytes in heads.into_iter().chain(long.iter().map(String::as_bytes)) {
            let what = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
            let mut connection = server.connect();
            // The service may close while the rest is still on its way.
            let _ = connection.send(bytes);
            let _ = connection.finish_sending();
            if let Ok(head) = connection.head() {
                assert!((400..500).contains(&head.status), "{what}: {}", head.status);
            }
        }
        for garbage in ["zzz\r\n", "5\r\nhello", "5\r\nhelloX\r\n", "-1\r\n", "ffffffffffffffffff\r\n", "5;\r\n\0\r\n"]
        {
            let mut connection = server.connect();
            connection.send(&chunked_head()).expect("the service reads");
            let _ = connection.send(garbage.as_bytes());
            let _ = connection.finish_sending();
            if let Ok(answer) = connection.answer() {
                error_of(&answer, 400, garbage);
            }
        }
        assert_eq!(server.get("/live").head.status, 200);
    });
}

#[test]
fn slow_clients_are_bounded() {
    let patient = ["router.body_wait_s=1", "router.write_wait_s=1", "router.stream_buffer=16"];
    let flags: Vec<&str> = patient.iter().flat_map(|setting| ["--set", setting]).collect();
    Victim::new(&flags).survives(|server| {
        // A body that comes byte by byte.
        let mut connection = server.connect();
        let head =
            format!("POST {CHAT} HTTP/1.1\r\nHost: test\r\nContent-Type: {JSON}\r\nContent-Length: 9999\r\n\r\n");
        connection.send(head.as_bytes()).expect("the service reads");
        for _ in 0..30 {
            if connection.send(b" ").is_err() {
                break;
            }
            sleep(Duration::from_millis(50));
        }
        error_of(&connection.answer().expect("the service answers"), 408, "a slow body");
        assert_eq!(connection.byte().unwrap_or(None), None, "and the rest is not waited for");

        // An answer that nobody reads: more than sockets hold, from every sequence at once.
        let more = json!({ "n": 16, "max_tokens": 2000, "logprobs": 5, "ignore_eos": true, "stream": true });
        let mut connection = server.connect();
        let body = Ask::completion("tiny-rust", "Hi", more).body;
        connection.send(&post(COMPLETION, &body)).expect("the service reads");
        crate::server::until("the end of what nobody reads", || {
            (server.metrics().sum("baton_requests_total", &[("outcome", "us")]) == 1.0).then_some(())
        });
        server.settled();
        drop(connection);
    });
}

#[test]
fn the_connection_that_was_idle_longest_gives_way() {
    Victim::new(&["--set", "router.connections_max=2", "--set", "router.requests_max=1"]).survives(|server| {
        let [mut first, mut second] = [server.connect(), server.connect()];
        // They are accepted in their order, so the third finds both places taken.
        let mut third = server.connect();
        for connection in [&mut third, &mut second] {
            connection.send(&request("GET", "/live", JSON, b"")).expect("the service reads");
            assert_eq!(connection.answer().expect("it was not closed").head.status, 200);
        }
        assert_eq!(first.byte().expect("it is closed in order"), None);
    });
}

fn chunked_head() -> Vec<u8> {
    format!("POST {CHAT} HTTP/1.1\r\nHost: test\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n").into()
}
