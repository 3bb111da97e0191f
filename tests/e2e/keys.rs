//! Keys of the API, as an operator makes and revokes them.

use crate::asks::CHAT;
use crate::http::{Answer, request};
use crate::server::{Server, baton, drained, ended, until};
use serde_json::{Value, json};
use std::path::Path;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust");

/// What `baton keys` prints, and its exit code.
fn keys(file: &Path, arguments: &[&str]) -> (String, Option<i32>) {
    let file = file.to_str().expect("UTF-8");
    let mut child = baton(&[&["keys"], arguments, &["--file", file]].concat()).spawn().expect("the binary runs");
    let status = ended(&mut child);
    (drained(child.stdout.take()).trim_end().to_owned(), status.code())
}

/// Asks for two tokens with this key.
fn ask(server: &Server, key: &str, more: Value) -> Answer {
    let mut body = json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 2 });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let plain = request("POST", CHAT, "application/json", body.to_string().as_bytes());
    let plain = String::from_utf8(plain).expect("ASCII");
    server.exchange(plain.replacen("\r\n", &format!("\r\nAuthorization: Bearer {key}\r\n"), 1).as_bytes())
}

#[test]
fn a_key_is_made_used_limited_and_revoked() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys.json");
    let (one, code) = keys(&file, &["add", "--tenant", "acme", "--requests-per-minute", "1"]);
    assert_eq!((one.starts_with("baton-"), code), (true, Some(0)), "{one}");
    let setting = format!("router.keys_file={}", file.display());
    let mut server = Server::start(&["--model", MODEL, "--set", &setting]);

    let without = server.post(CHAT, &json!({}));
    assert_eq!((without.head.status, &without.json()["error"]["code"]), (401, &json!("missing_api_key")));
    let answer = ask(&server, &one, json!({}));
    assert_eq!((answer.head.status, answer.head.header("x-ratelimit-remaining-requests")), (200, Some("0")));
    let second = ask(&server, &one, json!({}));
    assert_eq!((second.head.status, &second.json()["error"]["code"]), (429, &json!("rate_limit_exceeded")));

    let refused = |outcome| server.metrics().sum("baton_requests_total", &[("outcome", outcome)]);
    assert_eq!((refused("limited"), refused("rejected")), (1.0, 0.0), "what a key may not take is no overload");

    // A tenant's cached prefix is nobody else's.
    let (two, _) = keys(&file, &["add", "--tenant", "other"]);
    let (three, _) = keys(&file, &["add", "--tenant", "other"]);
    until("the new keys", || (ask(&server, &three, json!({})).head.status == 200).then_some(()));
    let long = json!({ "messages": [{ "role": "user", "content": "What is ownership? ".repeat(20) }] });
    let cached = |key: &str| {
        let usage = ask(&server, key, long.clone()).json()["usage"].clone();
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
    };
    let (four, _) = keys(&file, &["add", "--tenant", "third"]);
    until("the fourth key", || (ask(&server, &four, json!({})).head.status == 200).then_some(()));
    let first = cached(&four);
    assert!(cached(&four) > first, "its own prompt is cached");
    assert_eq!(cached(&two), first, "another tenant computes as much as the first did");
    assert!(cached(&three) > first, "a key of the same tenant does not");

    let (listed, _) = keys(&file, &["list"]);
    assert!(listed.contains("acme") && !listed.contains(&one), "{listed}");
    let id = listed.lines().nth(1).and_then(|line| line.split_whitespace().next()).expect("the first key");
    assert_eq!(keys(&file, &["revoke", id]).1, Some(0));
    until("the end of the key", || (ask(&server, &one, json!({})).head.status == 401).then_some(()));
    assert_eq!(keys(&file, &["revoke", "000000000000"]).1, Some(2));
    server.signal("TERM");
    server.ended();
    assert!(!server.log().contains(&one[6..]), "no key is logged");
}

/// What is cached for a tenant saves no other one any work, and costs it none: it computes as many tokens as if that
/// were not there.
#[test]
fn a_tenant_computes_as_much_whatever_another_one_has_cached() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys.json");
    let [first, second] = ["first", "second"].map(|tenant| keys(&file, &["add", "--tenant", tenant]).0);
    let setting = format!("router.keys_file={}", file.display());
    let server = Server::start(&["--model", MODEL, "--set", &setting]);
    let asked = |key: &str, prompt: &str| {
        server.settled();
        let before = server.metrics().sum("baton_prefill_tokens_total", &[]);
        let answer = ask(&server, key, json!({ "messages": [{ "role": "user", "content": prompt.repeat(20) }] }));
        assert_eq!(answer.head.status, 200, "{}", answer.json());
        server.settled();
        (server.metrics().sum("baton_prefill_tokens_total", &[]) - before, answer.json()["usage"].clone())
    };
    // Each has asked before, so that all differ by the prompt alone.
    for key in [&first, &second] {
        asked(key, "Hello. ");
    }
    let [cached, other] = ["What is ownership? ", "What is borrowing? "];
    let (alone, _) = asked(&second, other);
    let (computed, usage) = asked(&first, cached);
    let (again, _) = asked(&first, cached);
    assert!(again < computed, "{again} of {computed}: the first tenant's prompt is cached");
    assert_eq!(asked(&second, cached), (computed, usage), "the second one computes it as the first one did");
    let (besides, _) = asked(&first, other);
    assert_eq!(besides, alone, "and the other way round");
}

#[test]
fn a_file_that_is_none_keeps_the_service_from_starting() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys.json");
    std::fs::write(&file, "not JSON").expect("it is written");
    let setting = format!("router.keys_file={}", file.display());
    let mut child = baton(&["serve", "--listen", "127.0.0.1:0", "--set", &setting]).spawn().expect("the binary runs");
    assert_eq!(ended(&mut child).code(), Some(1));
    let said = drained(child.stderr.take());
    assert!(said.contains("keys.json is no file of keys"), "{said}");
}
