//! Clients that leave or dawdle, workers that fail, limits that are reached.

use super::http::Http;
use super::world::{LIMITS, Played, World, limited, tokens};
use crate::RouterLimits;
use domain::session::{Failure, FromWorker, Report, ToWorker};
use domain::{End, Ender, Epoch, Incarnation};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::watch;

const CHAT: &str = "/v1/chat/completions";

fn chat(stream: bool) -> Value {
    json!({ "model": "tiny-rust", "stream": stream, "messages": [{ "role": "user", "content": "Hi" }] })
}

fn code(event: &str) -> String {
    let value: Value = serde_json::from_str(event).expect("JSON");
    value["error"]["code"].as_str().expect("an error").to_owned()
}

#[tokio::test]
async fn a_client_may_hang_up_at_any_moment() {
    let mut world = World::new().await;
    let before = world.ended("client").await;
    for stream in [false, true] {
        for tokens_before in [0, 1, 5] {
            let mut http = world.client().await;
            http.post(CHAT, &chat(stream)).await;
            let submit = world.workers[0].submit().await;
            world.workers[0].write(&submit, 0, 0, &vec![70; tokens_before]).await;
            if stream && tokens_before > 0 {
                assert_eq!(http.head().await.status, 200);
                http.event().await.expect("the role");
            }
            drop(http);
            world.workers[0].cancelled(&submit).await;
            world.idle().await;
        }
    }
    // In the middle of a body, and before an answer to a batch.
    let mut http = world.client().await;
    http.write(
        format!("POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{{")
            .as_bytes(),
    )
    .await;
    drop(http);
    let mut http = world.client().await;
    http.post("/v1/completions", &json!({ "model": "tiny-rust", "prompt": ["a", "b"], "n": 2 })).await;
    let submits = [world.workers[0].submit().await, world.workers[0].submit().await];
    world.workers[0].make(&submits[0], 0, &[70], End::stop()).await;
    drop(http);
    let mut cancelled =
        [world.workers[0].next().await, world.workers[0].next().await].map(|message| format!("{message:?}"));
    let mut wanted =
        submits.map(|it| format!("Cancel {{ request: {:?}, epoch: {:?}, choice: None }}", it.request, it.epoch));
    cancelled.sort();
    wanted.sort();
    assert_eq!(cancelled, wanted);
    world.idle().await;
    world.until_ended("client", before + 8).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_fills_its_own_buffer_and_is_ended() {
    let mut world = World::new().await;
    let before = world.ended("us").await;
    let mut slow = asked_for_much(&mut world).await;
    let cancel = world.workers[0].next().await;
    assert!(matches!(cancel, ToWorker::Cancel { choice: None, .. }), "{cancel:?}");
    // Another client is served as ever.
    let mut http = world.client().await;
    http.post(CHAT, &chat(false)).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].make(&submit, 0, &tokens("A rule"), End::stop()).await;
    assert_eq!(http.json().await.1["choices"][0]["message"]["content"], "A rule");
    world.until_ended("us", before + 1).await;
    // What it reads at last ends without [DONE].
    slow.head().await;
    let events = tokio::time::timeout(super::http::PATIENCE, async {
        let mut events = 0;
        while let Some(event) = slow.event().await {
            assert_ne!(event, "[DONE]");
            events += 1;
        }
        events
    });
    assert!(events.await.is_ok_and(|events| events < ROWS));
}

#[tokio::test]
async fn a_client_that_takes_nothing_for_too_long_is_cut_off() {
    let mut world = World::with(1, |config| {
        (config.write_wait, config.stream_buffer) = (Duration::from_millis(50), ROWS as usize + 1);
    })
    .await;
    let mut slow = asked_for_much(&mut world).await;
    let cancel = world.workers[0].next().await;
    assert!(matches!(cancel, ToWorker::Cancel { choice: None, .. }), "{cancel:?}");
    // Nothing tells it of an end.
    let read = slow.rest().await;
    assert!(read.len() > 1 << 16);
    assert!(
        !["data: [DONE]", "data: {\"error\""]
            .iter()
            .any(|end| read.windows(end.len()).any(|window| window == end.as_bytes()))
    );
}

/// Rows of an answer that is more than the buffers of the kernel hold.
const ROWS: u32 = 400;

/// A client that asked, and to which an answer is sent of which it reads nothing yet.
async fn asked_for_much(world: &mut World) -> Http {
    let mut slow = world.client().await;
    slow.post(
        CHAT,
        &json!({
            "model": "tiny-rust", "stream": true, "max_tokens": ROWS, "logprobs": true, "top_logprobs": 20,
            "messages": [{ "role": "user", "content": "Hi" }],
        }),
    )
    .await;
    let submit = world.workers[0].submit().await;
    // Each makes an event of some kilobytes.
    for index in 0..ROWS {
        let mut row = super::world::row(&submit, 0, index, 70);
        let top = (0..2000).map(|token| (token, -1.0)).collect();
        row.logprobs = Some(domain::plan::TokenLogprobs { logprob: -1.0, top });
        world.workers[0].row(row).await;
    }
    slow
}

#[tokio::test]
async fn an_answer_told_whole_is_no_matter_of_how_fast_it_is_taken() {
    let mut world = World::with(1, |config| config.stream_buffer = 4).await;
    let mut http = world.client().await;
    http.post(CHAT, &json!({ "model": "tiny-rust", "n": 2, "messages": [{ "role": "user", "content": "Hi" }] })).await;
    let submit = world.workers[0].submit().await;
    // Tokens that come at once, before anybody can have taken one.
    let text = tokens("A rule of Rust that keeps every value with one owner");
    assert!(text.len() > 4, "{text:?}");
    let rows = |choice| (0..).zip(&text).map(move |(at, &token)| (choice, at, token));
    let rows = rows(0).chain(rows(1)).map(|(choice, at, token)| super::world::row(&submit, choice, at, token));
    world.workers[0].say(&FromWorker::Tokens(rows.collect())).await;
    for choice in 0..2 {
        world.workers[0].end(&submit, choice, text.len() as u32, End::stop()).await;
    }
    let (head, answer) = http.json().await;
    assert_eq!(head.status, 200, "{answer}");
    for choice in 0..2 {
        assert_eq!(
            answer["choices"][choice]["message"]["content"],
            "A rule of Rust that keeps every value with one owner"
        );
    }
}

#[tokio::test]
async fn a_stream_has_its_buffer_for_each_sequence() {
    let mut world = World::with(1, |config| config.stream_buffer = 4).await;
    let mut http = world.client().await;
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    http.post(CHAT, &json!({ "model": "tiny-rust", "n": 3, "stream": true, "messages": messages })).await;
    let submit = world.workers[0].submit().await;
    // At once, before anybody can have taken one.
    let rows = (0..3).flat_map(|at| (0..3).map(move |choice| (choice, at)));
    let rows = rows.map(|(choice, at)| super::world::row(&submit, choice, at, 70)).collect();
    world.workers[0].say(&FromWorker::Tokens(rows)).await;
    for choice in 0..3 {
        world.workers[0].end(&submit, choice, 3, End::stop()).await;
    }
    assert_eq!(http.head().await.status, 200);
    assert!(http.events().await.last().is_some_and(|last| last == "[DONE]"));
}

#[tokio::test]
async fn a_worker_that_dies_is_replaced_without_the_client_noticing() {
    let mut world = World::with(2, |_| {}).await;
    let mut http = world.client().await;
    http.post(CHAT, &chat(true)).await;
    let mut first = world.workers.remove(0);
    let mut second = world.workers.remove(0);
    let submit = tokio::select! {
        submit = first.submit() => submit,
        submit = second.submit() => { std::mem::swap(&mut first, &mut second); submit }
    };
    let text = tokens("A rule of Rust");
    first.write(&submit, 0, 0, &text[..2]).await;
    assert_eq!(http.head().await.status, 200);
    for _ in 0..3 {
        http.event().await.expect("the role and two tokens");
    }
    first.die();
    let replay = second.submit().await;
    assert_eq!(replay.request, submit.request);
    assert!(replay.epoch > submit.epoch);
    assert_eq!(replay.choices[0].1[..], text[..2]);
    second.write(&replay, 0, 2, &text[2..]).await;
    second.end(&replay, 0, text.len() as u32, End::stop()).await;
    let events = http.events().await;
    assert_eq!(events.len(), text.len() - 2 + 2, "the rest, the end, [DONE]: {events:?}");
    world.idle().await;
}

#[tokio::test]
async fn a_request_that_no_worker_can_finish_ends_with_an_error() {
    let mut world = World::new().await;
    for stream in [false, true] {
        let mut http = world.client().await;
        http.post(CHAT, &chat(stream)).await;
        for attempt in 0..3 {
            let submit = world.workers[0].submit().await;
            if stream && attempt == 0 {
                world.workers[0].write(&submit, 0, 0, &[70]).await;
                assert_eq!(http.head().await.status, 200);
            }
            let (request, epoch) = (submit.request, submit.epoch);
            let detail = "the step failed".to_owned();
            world.workers[0]
                .say(&FromWorker::Failed { request, epoch, why: Failure::Engine, fault: None, detail })
                .await;
            world.workers[0].cancelled(&submit).await;
        }
        if stream {
            let events = http.events().await;
            assert_eq!(code(events.last().expect("an error")), "worker_failed", "and no [DONE]");
        } else {
            let (head, body) = http.json().await;
            assert_eq!((head.status, body["error"]["code"].as_str()), (500, Some("worker_failed")), "{body}");
            assert!(body["error"]["message"].as_str().is_some_and(|it| it.contains("the step failed")), "{body}");
        }
        world.idle().await;
    }
}

#[tokio::test]
async fn a_deadline_is_a_clear_end() {
    let mut world = World::with(1, |config| {
        config.limits = watch::channel(RouterLimits { deadline: Duration::from_millis(300), ..LIMITS }).1
    })
    .await;
    let mut http = world.client().await;
    http.post(CHAT, &chat(false)).await;
    let submit = world.workers[0].submit().await;
    assert!(submit.deadline <= Duration::from_millis(300));
    let (head, body) = http.json().await;
    assert_eq!((head.status, body["error"]["code"].as_str()), (504, Some("deadline_exceeded")), "{body}");
    world.workers[0].cancelled(&submit).await;
    world.idle().await;
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_with_a_time_to_come_back() {
    let mut world = World::with(1, |config| config.limits = limited(2)).await;
    let mut open = world.client().await;
    open.post("/v1/completions", &json!({ "model": "tiny-rust", "prompt": ["a", "b"] })).await;
    let submits = [world.workers[0].submit().await, world.workers[0].submit().await];
    let mut http = world.client().await;
    http.post(CHAT, &chat(true)).await;
    let (head, body) = http.json().await;
    assert_eq!((head.status, body["error"]["code"].as_str()), (429, Some("overloaded")), "{body}");
    assert_eq!(head.header("retry-after"), Some("2"), "after half of 128 tokens of 20 ms");
    for submit in &submits {
        world.workers[0].make(submit, 0, &[70], End::stop()).await;
    }
    assert_eq!(open.json().await.0.status, 200);

    // A batch that can never be open as a whole.
    let (status, body) =
        world.refused("/v1/completions", &json!({ "model": "tiny-rust", "prompt": ["a", "b", "c"] })).await;
    assert_eq!((status, body["error"]["code"].as_str()), (429, Some("overloaded")), "{body}");

    world.workers.remove(0).die();
    world.until("no worker is up", "/ready", |status, _| status == 503).await;
    let (status, body) = world.refused(CHAT, &chat(true)).await;
    assert_eq!((status, body["error"]["code"].as_str()), (503, Some("no_workers")), "{body}");
    world.idle().await;
}

/// The worker says that it has no place for anybody, and the router has heard it.
async fn busy(world: &mut World) {
    // A report is missing before it, of which the router tells.
    let report = Report { incarnation: Incarnation(1), number: 2, running_max: 1, open: 8, ..Report::default() };
    world.workers[0].say(&FromWorker::Report(report)).await;
    while world.workers[0].next().await != ToWorker::Snapshot {}
}

#[tokio::test]
async fn who_waits_for_a_worker_is_told_by_the_status_that_its_time_is_over() {
    let mut world = World::with(1, |config| {
        config.limits = watch::channel(RouterLimits { deadline: Duration::from_millis(300), ..LIMITS }).1
    })
    .await;
    busy(&mut world).await;
    for stream in [false, true] {
        let mut http = world.client().await;
        http.post(CHAT, &chat(stream)).await;
        let (head, body) = http.json().await;
        assert_eq!((head.status, body["error"]["code"].as_str()), (504, Some("deadline_exceeded")), "{body}");
    }
}

#[tokio::test]
async fn who_waits_for_a_worker_is_told_by_the_status_that_it_is_placed_or_refused() {
    let mut world = World::new().await;
    busy(&mut world).await;
    let mut placed = world.client().await;
    placed.post(CHAT, &chat(true)).await;
    let idle = Report { incarnation: Incarnation(1), number: 3, running_max: 1, ..Report::default() };
    world.workers[0].say(&FromWorker::Report(idle.clone())).await;
    let submit = world.workers[0].submit().await;
    assert_eq!(placed.head().await.status, 200);
    world.workers[0].make(&submit, 0, &tokens("A rule"), End::stop()).await;
    assert!(placed.events().await.last().is_some_and(|last| last == "[DONE]"));
    let mut refused = world.client().await;
    let long = Report { number: 4, submits: 1, open: 8, ..idle };
    world.workers[0].say(&FromWorker::Report(long.clone())).await;
    refused.post(CHAT, &chat(true)).await;
    // Its first token would be years away.
    let years = Report { number: 5, open: 0, waiting_tokens: 1 << 40, prefill_tokens_per_s: 1.0, ..long };
    world.workers[0].say(&FromWorker::Report(years)).await;
    let (head, body) = refused.json().await;
    assert_eq!((head.status, body["error"]["code"].as_str()), (429, Some("overloaded")), "{body}");
    assert!(head.header("retry-after").is_some());
}

#[tokio::test]
async fn a_client_is_asked_back_when_the_queue_is_over() {
    let mut world = World::with(1, |config| config.limits = limited(1)).await;
    let mut open = world.client().await;
    open.post(CHAT, &chat(true)).await;
    let submit = world.workers[0].submit().await;
    let report = Report {
        incarnation: Incarnation(1),
        number: 1,
        submits: 1,
        waiting_tokens: 24_000,
        prefill_tokens_per_s: 2_000.0,
        ..Report::default()
    };
    world.workers[0].say(&FromWorker::Report(report)).await;
    // The token comes after the report.
    world.workers[0].write(&submit, 0, 0, &[70]).await;
    open.head().await;
    open.event().await.expect("the role");
    let mut http = world.client().await;
    http.post(CHAT, &chat(false)).await;
    let (head, body) = http.json().await;
    assert_eq!((head.status, head.header("retry-after")), (429, Some("12")), "{body}");
}

#[tokio::test]
async fn a_worker_that_speaks_nonsense_loses_its_session() {
    let mut world = World::with(1, |_| {}).await;
    world.workers[0].nonsense().await;
    world.workers[0].closed().await;
    world.until("no worker is up", "/ready", |status, _| status == 503).await;
}

/// Asks until the worker, which takes nothing, is full; those who asked before.
async fn filled(world: &World) -> Vec<Http> {
    let mut served = Vec::new();
    loop {
        let mut http = world.client().await;
        http.post(CHAT, &chat(true)).await;
        let head = http.head().await;
        if head.status != 200 {
            let length = head.header("content-length").and_then(|length| length.parse().ok()).expect("a length");
            let body = http.exactly(length).await;
            assert_eq!((head.status, code(std::str::from_utf8(&body).expect("UTF-8")).as_str()), (429, "overloaded"));
            return served;
        }
        served.push(http);
        assert!(served.len() < 200, "somebody keeps all of it");
    }
}

#[tokio::test]
async fn a_worker_that_takes_nothing_for_a_while_is_full_and_loses_nothing() {
    let mut world = World::with(1, |config| config.limits = limited(1000)).await;
    world.workers[0].report().await;
    let mut clients = filled(&world).await;
    // What is small has room all the same.
    let before = world.ended("client").await;
    drop(clients.remove(0));
    world.until_ended("client", before + 1).await;
    let worker = &mut world.workers[0];
    let first = worker.submit().await;
    let mut submits = Vec::new();
    for _ in &clients {
        submits.push(worker.submit().await);
    }
    worker.cancelled(&first).await;
    for (submit, http) in submits.iter().zip(&mut clients) {
        worker.make(submit, 0, &tokens("A rule"), End::stop()).await;
        assert_eq!(submit.epoch, Epoch(1), "it is the first attempt");
        assert!(http.events().await.last().is_some_and(|last| last == "[DONE]"));
    }
    // There is room again.
    let mut http = world.client().await;
    http.post(CHAT, &chat(true)).await;
    assert_eq!(http.head().await.status, 200);
    let submit = world.workers[0].submit().await;
    world.workers[0].make(&submit, 0, &tokens("A rule"), End::stop()).await;
    assert!(http.events().await.last().is_some_and(|last| last == "[DONE]"));
    world.idle().await;
}

#[tokio::test]
async fn a_full_worker_does_not_stop_another_one() {
    let mut world = World::with(2, |config| config.limits = limited(1000)).await;
    let (other, full) = (world.workers.remove(1), world.workers.remove(0));
    other.report().await;
    full.report().await;
    // Makes what it is asked for, until its session ends. How many that were.
    let serve = async |mut worker: Played| {
        let mut made = 0;
        while let Some(submit) = worker.submit_or_end().await {
            worker.make(&submit, 0, &tokens("A rule"), End::stop()).await;
            made += 1;
        }
        made
    };
    let other = tokio::spawn(serve(other));
    let asked = 150;
    let mut waiting = Vec::new();
    for _ in 0..asked {
        let mut http = world.client().await;
        http.post(CHAT, &chat(true)).await;
        assert_eq!(http.head().await.status, 200, "one of them has room");
        waiting.push(http);
    }
    let full = tokio::spawn(serve(full));
    for mut http in waiting {
        assert!(http.events().await.last().is_some_and(|last| last == "[DONE]"));
    }
    world.idle().await;
    world.shut_down();
    world.over().await;
    let (other, full) = (other.await.expect("no panic"), full.await.expect("no panic"));
    assert!(full > 0 && other > 0 && full + other == asked, "{full} and {other}: nothing was tried twice");
}

#[tokio::test]
async fn a_worker_that_takes_not_even_what_is_small_loses_its_session() {
    let mut world = World::with(1, |config| config.limits = limited(1000)).await;
    world.workers[0].report().await;
    // More attempts end than it has room to be told of.
    drop(filled(&world).await);
    world.idle().await;
    world.until("no worker is up", "/ready", |status, _| status == 503).await;
    world.workers[0].closed().await;
}

#[tokio::test]
async fn an_end_by_a_worker_is_not_a_regular_one() {
    let end = End::error(Ender::Worker, "out of luck");
    let error = crate::error::ApiError::ended(&end);
    assert_eq!(error.code(), Some("worker_failed"));
}

#[tokio::test]
async fn a_limit_changes_for_what_comes_and_what_is_open_goes_on() {
    let (limits, receiver) = watch::channel(LIMITS);
    let mut world = World::with(1, |config| config.limits = receiver).await;
    let mut first = world.client().await;
    first.post(CHAT, &chat(false)).await;
    let open = world.workers[0].submit().await;
    limits.send_replace(*limited(1).borrow());
    let mut second = world.client().await;
    second.post(CHAT, &chat(false)).await;
    let (head, body) = second.json().await;
    assert_eq!(head.status, 429, "{body}");
    assert!(body.to_string().contains("1 prompts are open"), "{body}");
    // The request that comes next is judged by the change before it.
    limits.send_replace(*limited(2).borrow());
    second.post(CHAT, &chat(false)).await;
    let also_open = world.workers[0].submit().await;
    assert_ne!(open.request, also_open.request);
    drop((first, second));
    world.idle().await;
}
