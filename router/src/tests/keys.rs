//! Keys of the API: who is refused, in which words, and what ends when a key is revoked.

use super::http::{Head, Http};
use super::world::{World, tokens};
use domain::End;
use keys::{KeyEntry, KeyFile, KeyHash, Keys};
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

const COMPLETION: &str = "/v1/completions";

/// A router that knows keys, and their file.
struct Guarded {
    world: World,
    path: PathBuf,
    _folder: TempDir,
}

impl Guarded {
    /// The key `"one"`, changed by `change`.
    async fn new(change: impl FnOnce(&mut KeyEntry)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys.json");
        let mut entry = KeyEntry::new(KeyHash::of("one"), "acme".to_owned());
        change(&mut entry);
        KeyFile::change(&path, |file| file.keys.push(entry)).expect("it is written");
        let keys = Keys::open(&path).expect("it is read");
        let world = World::with(1, |config| config.keys = keys).await;
        Self { world, path, _folder: folder }
    }

    async fn client(&self, key: Option<&str>) -> Http {
        let mut http = self.world.client().await;
        http.key = key.map(str::to_owned);
        http
    }

    /// Returns the answer to a request that no worker sees.
    async fn refused(&self, key: Option<&str>) -> (Head, Value) {
        let mut http = self.client(key).await;
        http.post(COMPLETION, &ask()).await;
        http.json().await
    }

    /// Has a request answered with `text`, and returns its head.
    async fn answered(&mut self, text: &str) -> Head {
        let mut http = self.client(Some("one")).await;
        http.post(COMPLETION, &ask()).await;
        let submit = self.world.workers[0].submit().await;
        assert_eq!(submit.tenant, "acme", "workers keep its KV apart from others'");
        self.world.workers[0].make(&submit, 0, &tokens(text), End::stop()).await;
        let (head, _) = http.json().await;
        assert_eq!(head.status, 200);
        head
    }
}

fn ask() -> Value {
    json!({ "model": "tiny-rust", "prompt": "Ownership is" })
}

fn code(body: &Value) -> &str {
    body["error"]["code"].as_str().expect("a code")
}

#[tokio::test]
async fn who_shows_no_known_key_is_refused() {
    let mut guarded = Guarded::new(|_| {}).await;
    for (key, wanted) in [(None, "missing_api_key"), (Some("two"), "invalid_api_key")] {
        let (head, body) = guarded.refused(key).await;
        assert_eq!((head.status, code(&body), head.header("www-authenticate")), (401, wanted, Some("Bearer")));
        let mut http = guarded.client(key).await;
        http.send("GET", "/v1/models", "text/plain", b"").await;
        assert_eq!(http.json().await.0.status, 401);
    }
    let head = guarded.answered("A rule").await;
    assert_eq!(head.header("x-ratelimit-limit-requests"), None, "there is no limit");
    assert_eq!(guarded.world.get("/ready").await.0, 200, "probes have no keys");
    guarded.world.idle().await;
}

#[tokio::test]
async fn a_key_sees_and_asks_its_models_alone() {
    let guarded = Guarded::new(|entry| entry.models = vec!["other".into()]).await;
    let (head, body) = guarded.refused(Some("one")).await;
    assert_eq!((head.status, code(&body)), (403, "model_not_allowed"));
    let mut http = guarded.client(Some("one")).await;
    http.send("GET", "/v1/models", "text/plain", b"").await;
    assert_eq!(http.json().await.1["data"], json!([]));
    http.send("GET", "/v1/models/tiny-rust", "text/plain", b"").await;
    assert_eq!(http.json().await.0.status, 403);
}

#[tokio::test]
async fn limits_are_told_before_and_after_they_are_reached() {
    let mut guarded = Guarded::new(|entry| entry.requests_per_minute = 1).await;
    let head = guarded.answered("A rule").await;
    assert_eq!(head.header("x-ratelimit-limit-requests"), Some("1"));
    assert_eq!(head.header("x-ratelimit-remaining-requests"), Some("0"));
    let (head, body) = guarded.refused(Some("one")).await;
    assert_eq!((head.status, code(&body)), (429, "rate_limit_exceeded"));
    let wait: u64 = head.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(head.header("x-ratelimit-remaining-requests"), Some("0"));
    let (_, metrics) = guarded.world.get("/metrics").await;
    assert!(metrics.contains("baton_requests_total{outcome=\"limited\"}"), "it is no overload: {metrics}");
    guarded.world.idle().await;
}

#[tokio::test]
async fn tokens_of_prompts_and_answers_are_taken() {
    let mut guarded = Guarded::new(|entry| entry.tokens_per_minute = 1000).await;
    let text = "A rule";
    guarded.answered(text).await;
    let taken = tokens("Ownership is").len() + tokens(text).len();
    let mut http = guarded.client(Some("one")).await;
    http.post(COMPLETION, &json!({ "model": "tiny-rust", "prompt": "" })).await;
    let (head, _) = http.json().await;
    let left: usize = head.header("x-ratelimit-remaining-tokens").expect("it is told").parse().expect("a number");
    // Seventeen a second come back meanwhile.
    assert!(left >= 1000 - taken && left < 1000, "{left} of 1000 after {taken}");
}

#[tokio::test]
async fn a_key_without_tokens_waits_until_some_come_back() {
    let per_minute = 6;
    let mut guarded = Guarded::new(|entry| entry.tokens_per_minute = per_minute).await;
    let text = "A rule, and another one";
    let head = guarded.answered(text).await;
    assert_eq!(head.header("x-ratelimit-limit-tokens"), Some("6"));
    let taken = tokens("Ownership is").len() + tokens(text).len();
    let missing = u64::try_from(taken).expect("it is small").checked_sub(per_minute.into()).expect("all are taken");
    let (head, body) = guarded.refused(Some("one")).await;
    assert_eq!((head.status, code(&body)), (429, "rate_limit_exceeded"));
    assert!(body["error"]["message"].as_str().is_some_and(|message| message.contains("tokens")), "{body}");
    assert_eq!(head.header("x-ratelimit-remaining-tokens"), Some("0"));
    // A token comes back every ten seconds.
    let wait: u64 = head.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((1..=missing * 10 + 1).contains(&wait), "{wait} s for {missing} tokens");
    let (_, metrics) = guarded.world.get("/metrics").await;
    assert!(metrics.contains("baton_requests_total{outcome=\"limited\"}"), "it is no overload: {metrics}");
    guarded.world.idle().await;
}

#[tokio::test]
async fn requests_at_once_are_limited_until_one_ends() {
    let mut guarded = Guarded::new(|entry| entry.concurrent = 1).await;
    let mut http = guarded.client(Some("one")).await;
    http.post(COMPLETION, &ask()).await;
    let submit = guarded.world.workers[0].submit().await;
    let (head, body) = guarded.refused(Some("one")).await;
    assert_eq!((head.status, code(&body), head.header("retry-after")), (429, "rate_limit_exceeded", Some("1")));
    guarded.world.workers[0].make(&submit, 0, &tokens("A rule"), End::stop()).await;
    assert_eq!(http.json().await.0.status, 200);
    guarded.world.idle().await;
    guarded.answered("A rule").await;
}

#[tokio::test]
async fn a_revoked_key_ends_its_stream_and_a_new_one_works() {
    let mut guarded = Guarded::new(|_| {}).await;
    let mut http = guarded.client(Some("one")).await;
    http.post(COMPLETION, &json!({ "model": "tiny-rust", "prompt": "Ownership is", "stream": true })).await;
    let submit = guarded.world.workers[0].submit().await;
    guarded.world.workers[0].write(&submit, 0, 0, &tokens("A")).await;
    assert_eq!(http.head().await.status, 200);
    KeyFile::change(&guarded.path, |file| file.keys[0].hash = KeyHash::of("two")).expect("it is written");
    let events = http.events().await;
    let last: Value = serde_json::from_str(events.last().expect("an error")).expect("JSON");
    assert_eq!(code(&last), "invalid_api_key");
    guarded.world.workers[0].cancelled(&submit).await;
    guarded.world.idle().await;
    assert_eq!(guarded.refused(Some("one")).await.0.status, 401);
    let mut http = guarded.client(Some("two")).await;
    http.send("GET", "/v1/models", "text/plain", b"").await;
    assert_eq!(http.json().await.0.status, 200);
}
