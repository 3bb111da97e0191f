//! Shutdown.

use super::world::{World, tokens};
use domain::End;
use serde_json::{Value, json};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

fn chat(stream: bool) -> Value {
    json!({ "model": "tiny-rust", "stream": stream, "messages": [{ "role": "user", "content": "Hi" }] })
}

#[tokio::test]
async fn a_drain_lets_open_requests_end_and_refuses_new_ones() {
    let mut world = World::new().await;
    let mut idle = world.client().await;
    idle.send("GET", "/live", "text/plain", b"").await;
    idle.answer().await;
    let mut http = world.client().await;
    http.post(CHAT, &chat(true)).await;
    let submit = world.workers[0].submit().await;
    let text = tokens("A rule");
    world.workers[0].write(&submit, 0, 0, &text[..1]).await;
    http.head().await;
    world.shut_down();
    world.until("it drains", "/ready", |status, body| status == 503 && body.contains("shutting down")).await;
    assert_eq!(world.get("/live").await.0, 200);
    let (status, body) = world.refused(CHAT, &chat(false)).await;
    assert_eq!((status, body["error"]["code"].as_str()), (503, Some("shutting_down")), "{body}");
    world.workers[0].write(&submit, 0, 1, &text[1..]).await;
    world.workers[0].end(&submit, 0, 2, End::stop()).await;
    let events = http.events().await;
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    world.workers[0].closed().await;
    world.over().await;
    assert!(http.closed().await && idle.closed().await);
}

#[tokio::test]
async fn what_does_not_end_in_time_is_ended() {
    let mut world = World::with(1, |config| config.drain = Duration::from_millis(100)).await;
    let mut streaming = world.client().await;
    streaming.post(CHAT, &chat(true)).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].write(&submit, 0, 0, &tokens("A")).await;
    streaming.head().await;
    let mut waiting = world.client().await;
    waiting.post(CHAT, &chat(false)).await;
    world.workers[0].submit().await;
    world.shut_down();
    let events = streaming.events().await;
    let last: Value = serde_json::from_str(events.last().expect("an error")).expect("JSON, and no [DONE]");
    assert_eq!(last["error"]["code"], "ended_by_service");
    let (head, body) = waiting.json().await;
    assert_eq!((head.status, body["error"]["code"].as_str()), (503, Some("ended_by_service")), "{body}");
    world.workers[0].cancelled(&submit).await;
    world.workers[0].closed().await;
    world.over().await;
}

#[tokio::test]
async fn an_idle_router_ends_at_once() {
    let mut world = World::with(0, |config| config.drain = Duration::from_secs(3600)).await;
    assert_eq!(world.get("/ready").await.0, 503);
    world.shut_down();
    world.over().await;
}
