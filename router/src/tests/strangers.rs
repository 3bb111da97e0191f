//! Clients that hold what they do not use, and what others notice of it: nothing.

use super::http::Http;
use super::world::{World, limited};
use domain::End;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

const CHAT: &str = "/v1/chat/completions";

fn chat() -> Value {
    json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": "Hi" }] })
}

/// Returns a request's head and no more than the beginning of its body.
async fn half_sent(world: &World) -> Http {
    let mut http = world.client().await;
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{{");
    http.write(head.as_bytes()).await;
    http
}

/// Checks that somebody who comes now is served, by the probes too.
async fn check_serves(world: &mut World) {
    assert_eq!(world.get("/live").await.0, 200);
    assert_eq!(world.get("/ready").await.0, 200);
    let mut http = world.client().await;
    http.post(CHAT, &chat()).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].make(&submit, 0, &[70], End::stop()).await;
    assert_eq!(http.json().await.0.status, 200);
}

#[tokio::test]
async fn idle_connections_give_way() {
    let mut world = World::with(1, |config| config.connections_max = 20).await;
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(world.client().await);
    }
    check_serves(&mut world).await;
    assert!(idle[0].closed().await, "the one that waited longest was closed");
    let (_, metrics) = world.get("/metrics").await;
    let count = metrics.lines().find_map(|line| line.strip_prefix("baton_connections_evicted_total "));
    assert!(count.is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count >= 30)), "{metrics}");
}

#[tokio::test]
async fn half_sent_bodies_take_no_places_and_give_way() {
    let mut world = World::with(1, |config| (config.connections_max, config.limits) = (20, limited(1))).await;
    let mut half = Vec::new();
    for _ in 0..50 {
        half.push(half_sent(&world).await);
    }
    check_serves(&mut world).await;
    assert!(half[0].closed().await, "the one that waited longest was closed");
}

#[tokio::test]
async fn an_open_request_keeps_its_connection() {
    let mut world = World::with(1, |config| (config.connections_max, config.limits) = (4, limited(2))).await;
    let mut http = world.client().await;
    http.post(CHAT, &chat()).await;
    let submit = world.workers[0].submit().await;
    for _ in 0..20 {
        half_sent(&world).await;
        assert_eq!(world.get("/live").await.0, 200);
    }
    world.workers[0].make(&submit, 0, &[70], End::stop()).await;
    assert_eq!(http.json().await.0.status, 200);
}

#[tokio::test]
async fn a_head_is_bounded() {
    let world = World::new().await;
    let long = format!("X-Long: {}\r\n", "x".repeat(40 << 10));
    let many: String = (0..200).map(|number| format!("X-{number}: x\r\n")).collect();
    for headers in [long, many] {
        let mut http = world.client().await;
        // The server may close before it has read everything.
        let _ = http.stream.write_all(format!("GET /live HTTP/1.1\r\nHost: t\r\n{headers}\r\n").as_bytes()).await;
        assert_eq!(http.head().await.status, 431);
    }
}

#[tokio::test]
async fn operators_have_a_listener_of_their_own() {
    let world = World::with(1, |config| config.metrics_on_api = false).await;
    // More than it takes at once.
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(Http::connect(world.ops).await);
    }
    assert_eq!(World::get_at(world.ops, "/live").await, (200, "live\n".to_owned()));
    let (status, ready) = World::get_at(world.ops, "/ready").await;
    assert_eq!((status, ready.contains("\"decode\":1")), (200, true), "{ready}");
    let (status, metrics) = World::get_at(world.ops, "/metrics").await;
    assert_eq!((status, metrics.contains("# TYPE baton_requests_open gauge")), (200, true), "{metrics}");
    // Its port is not the API's, and the API's shows no metrics then.
    let mut ops = Http::connect(world.ops).await;
    ops.send("POST", "/v1/completions", "text/plain", b"").await;
    assert_eq!(ops.head().await.status, 404);
    assert_eq!(world.get("/metrics").await.0, 404);
    assert_eq!((world.get("/live").await.0, world.get("/ready").await.0), (200, 200));
}

/// Bytes of a body that no packet holds.
const BODY_BYTES: usize = 60 << 10;

/// Sends a head, waits for the answer, sends the body in pieces nevertheless, and only then reads: the answer is there,
/// with this status, and the connection serves the next request.
async fn check_arrives(world: &World, request: &str, kind: &str, status: u16) {
    let mut http = world.client().await;
    let head = format!("{request} HTTP/1.1\r\nHost: t\r\nContent-Type: {kind}\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    http.write(head.as_bytes()).await;
    http.stream.readable().await.expect("the connection lives");
    for _ in 0..BODY_BYTES / (4 << 10) {
        http.write(&[b' '; 4 << 10]).await;
        tokio::task::yield_now().await;
    }
    let (head, body) = http.answer().await;
    assert_eq!(head.status, status, "{request}: {}", String::from_utf8_lossy(&body));
    http.send("GET", "/live", "text/plain", b"").await;
    assert_eq!(http.answer().await.0.status, 200, "{request}");
}

#[tokio::test]
async fn a_refusal_arrives_before_its_request_does() {
    const JSON: &str = "application/json";
    let world = World::with(1, |config| config.body_bytes_max = BODY_BYTES - 1).await;
    check_arrives(&world, "POST /v1/nothing", JSON, 404).await;
    check_arrives(&world, "PUT /v1/models", JSON, 405).await;
    check_arrives(&world, &format!("POST {CHAT}"), JSON, 413).await;
    check_arrives(&world, &format!("POST {CHAT}"), "text/plain", 415).await;
    let full = World::with(1, |config| config.limits = limited(0)).await;
    check_arrives(&full, &format!("POST {CHAT}"), JSON, 429).await;
    let nobody = World::with(0, |_| {}).await;
    check_arrives(&nobody, &format!("POST {CHAT}"), JSON, 503).await;
}

#[tokio::test]
async fn who_asks_before_sending_a_body_is_told_not_to() {
    let world = World::new().await;
    let mut http = world.client().await;
    let head = "POST /v1/nothing HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
    http.write(head.as_bytes()).await;
    let (head, _) = http.answer().await;
    assert_eq!((head.status, head.header("connection")), (404, Some("close")));
    // What follows is the body, if the client sends one; it is no request.
    http.write(b"GET /live HTTP/1.1\r\n\r\n").await;
    assert!(http.closed().await);
}
