//! Whole runs against a server that does what it is told: what is sent, what is noted, what is counted.

mod mock;

use bench_serve::{Api, Arrivals, BenchError, Failure, Record, Report, Run, Settings, Shape, Spread, TokenIds, Trace};
use mock::Reply;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

const NOW: Duration = Duration::ZERO;

/// Bodies in the order in which they came; those of the first questions, which find out what the server takes,
/// left out.
type Asked = Arc<Mutex<Vec<Value>>>;

fn settings(requests: u64) -> Settings {
    Settings {
        url: String::new(),
        ca: None,
        model: None,
        api: Api::Completions,
        arrivals: Arrivals::Closed { concurrency: 3 },
        shape: Shape {
            input: Spread::constant(6.0),
            output: Spread::constant(4.0),
            shared_prefix: 0,
            prefixes: 1,
            turns: 1,
            think: Spread::constant(0.0),
        },
        requests: Some(requests),
        duration: None,
        warmup: 0,
        seed: 1,
        token_ids: TokenIds { low: 10, high: 99 },
        timeout: Duration::from_secs(20),
        extra: Default::default(),
        headers: Vec::new(),
        slo: None,
    }
}

/// The right answer to a body.
fn right(body: &Value) -> Reply {
    let words = |text: &Value| text.as_str().map(|text| text.split_whitespace().count());
    let messages = body["messages"].as_array().map(|all| all.iter().filter_map(|it| words(&it["content"])).sum());
    let input = body["prompt"].as_array().map(Vec::len).or(words(&body["prompt"])).or(messages);
    Reply::completion(input.unwrap_or(0), body["max_tokens"].as_u64().unwrap_or(1) as usize, NOW)
}

/// A server whose answers `reply` gives: to the body, and how many with the same `max_tokens` came before it. The first
/// questions ask for one token; everything else here asks for more.
async fn prepared(
    settings: Settings,
    reply: impl Fn(&Value, usize) -> Reply + Send + Sync + 'static,
) -> (Result<Run, BenchError>, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
    let url = format!("http://{}", listener.local_addr().expect("it has an address"));
    let asked = Asked::default();
    let (all, firsts) = (asked.clone(), Mutex::new(0));
    let behaviour = move |path: &str, body: &[u8]| {
        if path == "/v1/models" {
            return Reply::models();
        }
        let body: Value = serde_json::from_slice(body).expect("bodies are JSON");
        let mut firsts = firsts.lock().expect("nobody panics with it");
        let mut all = all.lock().expect("nobody panics with it");
        let count = if body["max_tokens"] == 1 { &mut *firsts } else { &mut all.len() };
        let before = *count;
        *count += 1;
        let answer = reply(&body, before);
        if body["max_tokens"] != 1 {
            all.push(body);
        }
        answer
    };
    tokio::spawn(mock::serve(listener, Arc::new(behaviour)));
    (Run::prepare(Settings { url, ..settings }).await, asked)
}

async fn run(
    settings: Settings,
    reply: impl Fn(&Value, usize) -> Reply + Send + Sync + 'static,
) -> (Report, Vec<Record>, Vec<Value>) {
    let (run, asked) = prepared(settings, reply).await;
    let (report, records) = run.unwrap_or_else(|error| panic!("{error}")).measure().await;
    let asked = asked.lock().expect("nobody panics with it").clone();
    (report, records, asked)
}

#[tokio::test]
async fn a_closed_loop_sends_what_it_should() {
    let mut extra = serde_json::Map::new();
    extra.insert("temperature".to_owned(), 0.5.into());
    let shape = Shape { shared_prefix: 5, ..settings(1).shape };
    let (report, records, asked) =
        run(Settings { shape, extra, warmup: 2, ..settings(20) }, |body, _| right(body)).await;
    assert_eq!((report.done, report.failed, report.abandoned, report.unsent), (20, 0, 0, 0));
    assert_eq!((records.len(), asked.len()), (20, 22), "requests to warm up are sent, and not counted");
    let mut prompts = Vec::new();
    for body in &asked {
        let ids: Vec<u64> = body["prompt"].as_array().expect("ids").iter().filter_map(Value::as_u64).collect();
        assert!(ids.len() == 11 && ids.iter().all(|id| (10..=99).contains(id)), "{body}");
        assert_eq!(ids[..5], asked[0]["prompt"].as_array().expect("ids")[..5], "the prefix is shared");
        assert_eq!(
            (&body["model"], &body["max_tokens"], &body["ignore_eos"]),
            (&"mock".into(), &4.into(), &true.into())
        );
        assert_eq!((&body["temperature"], &body["stream"]), (&0.5.into(), &true.into()));
        prompts.push(ids);
    }
    prompts.sort();
    prompts.dedup();
    assert_eq!(prompts.len(), 22, "no prompt is asked twice");
    for record in &records {
        assert_eq!((record.input_tokens, record.output_tokens, record.cached_tokens), (Some(11), Some(4), Some(1)));
        assert_eq!((record.events(), record.gaps_us.len()), (4, 3));
        let first = record.first_us.expect("a token came");
        assert!(record.due_us <= record.sent_us && record.sent_us <= first && first <= record.end_us);
    }
    assert_eq!(report.figures.itl_ms.map(|itl| itl.count), Some(60));
    assert_eq!(report.server.as_deref(), Some("mock"));
    let json = serde_json::to_value(&report).expect("a report is JSON");
    assert_eq!(json["figures"]["output_tokens"]["p50"], 4.0);
    assert_eq!(json["settings"]["shape"]["input"], "6");
}

#[tokio::test]
async fn the_same_seed_asks_the_same() {
    let prompts = async || {
        let arrivals = Arrivals::Rate { per_second: 2000.0, concurrency_max: 2 };
        let shape = Shape { output: "2-9".parse().expect("a range"), ..settings(1).shape };
        let (report, _, asked) = run(Settings { arrivals, shape, ..settings(30) }, |body, _| right(body)).await;
        assert_eq!(report.done, 30);
        let mut bodies: Vec<String> = asked.iter().map(Value::to_string).collect();
        bodies.sort();
        bodies
    };
    assert_eq!(prompts().await, prompts().await);
}

#[tokio::test]
async fn waiting_for_others_counts() {
    let arrivals = Arrivals::Rate { per_second: 1000.0, concurrency_max: 1 };
    let slow = |body: &Value, _| match body["max_tokens"].as_u64() {
        Some(1) => right(body),
        _ => Reply::completion(6, 4, Duration::from_millis(10)),
    };
    let (report, records, _) = run(Settings { arrivals, ..settings(8) }, slow).await;
    assert_eq!(report.done, 8);
    let mut spans: Vec<_> = records.iter().map(|record| (record.sent_us, record.end_us)).collect();
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "one at a time: {spans:?}");
    // Eight answers of 40 ms end one after the other; the last of them was due within moments of the first.
    let due = report.figures.e2e_ms.expect("samples");
    assert!(due.max > 250.0, "{due:?}");
}

#[tokio::test]
async fn failures_are_told_apart() {
    let reply = |body: &Value, before| {
        let token = r#"{"choices":[{"text":"a"}]}"#.to_owned();
        match (body["max_tokens"].as_u64(), before) {
            (Some(1), _) => right(body),
            (_, 0) => Reply::plain("429 Too Many Requests", r#"{"error":{"message":"slow down"}}"#),
            (_, 1) => Reply::stream([(NOW, token)]),
            (_, 2) => Reply::stream([(NOW, token), (NOW, r#"{"error":{"message":"lost"}}"#.to_owned())]),
            (_, 3) => Reply::completion(6, 2, NOW),
            (_, 4) => Reply { keep: false, ..Reply::completion(6, 4, NOW) },
            (_, 5) => Reply::plain("200 OK", "{}"),
            (_, 6) => Reply::completion(6, 4, Duration::from_secs(3600)),
            (_, 7) => {
                let mut reply = Reply::stream([(NOW, token)]);
                reply.pieces[0].1.truncate(120);
                Reply { keep: false, ..reply }
            }
            _ => right(body),
        }
    };
    let settings =
        Settings { arrivals: Arrivals::Closed { concurrency: 1 }, timeout: Duration::from_secs(6), ..settings(10) };
    let (report, records, _) = run(settings, reply).await;
    let kinds: Vec<String> =
        records.iter().map(|record| record.failure.as_ref().map_or("none".to_owned(), Failure::kind)).collect();
    let broken = "broken stream";
    assert_eq!(
        kinds,
        ["http 429", broken, "error in the stream", "wrong length", "none", broken, "timeout", broken, "none", "none"]
    );
    assert_eq!((report.done, report.failed), (3, 7));
    let told: Vec<_> = report.failures.iter().map(|failure| (failure.kind.as_str(), failure.count)).collect();
    assert_eq!(told[0], (broken, 3));
    assert_eq!(records[0].failure, Some(Failure::Status(429, "slow down".to_owned())));
    assert_eq!(records[1].events(), 1, "what came before a failure is noted");
    assert!(report.to_string().contains("failed: 1 x http 429 (slow down)"), "{report}");
}

#[tokio::test]
async fn a_connection_that_is_closed_without_an_answer_is_tried_once_more() {
    let silent = || Reply { pieces: Vec::new(), keep: false };
    let one_user = || Settings { arrivals: Arrivals::Closed { concurrency: 1 }, ..settings(4) };
    let (report, _, asked) =
        run(one_user(), move |body: &Value, before| if before == 2 { silent() } else { right(body) }).await;
    assert_eq!((report.done, report.failed, asked.len()), (4, 0, 5));
    assert!(report.to_string().contains("note: requests sent again: 1"), "{report}");
    let deaf = move |body: &Value, _| if body["max_tokens"] == 1 { right(body) } else { silent() };
    let (report, _, asked) = run(one_user(), deaf).await;
    assert_eq!((report.done, report.failed, asked.len()), (0, 4, 8), "once, and no more");
}

#[tokio::test]
async fn a_conversation_carries_the_answers() {
    for api in [Api::Completions, Api::Chat] {
        let shape = Shape { turns: 3, ..settings(1).shape };
        let arrivals = Arrivals::Closed { concurrency: 1 };
        let (report, records, asked) = run(Settings { api, shape, arrivals, ..settings(5) }, move |body, _| {
            let mut reply = right(body);
            if api == Api::Chat && body["max_tokens"] != 1 {
                let text = String::from_utf8(reply.pieces[0].1.clone()).expect("text");
                let text = text.replace(r#""text":" a""#, r#""delta":{"content":"a"}"#);
                reply =
                    Reply::stream(text.lines().filter_map(|line| Some((NOW, line.strip_prefix("data: ")?.to_owned()))));
            }
            reply
        })
        .await;
        assert_eq!(report.done, 5, "{report}");
        let turns: Vec<_> = records.iter().map(|record| (record.conversation, record.turn)).collect();
        assert_eq!(turns, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]);
        let text = |body: &Value| match api {
            Api::Completions => body["prompt"].as_str().expect("a text").to_owned(),
            Api::Chat => {
                let all = body["messages"].as_array().expect("messages").iter();
                let roles: Vec<_> = all.clone().map(|it| it["role"].as_str().expect("a role")).collect();
                assert!(roles.iter().enumerate().all(|(at, role)| *role == ["user", "assistant"][at % 2]), "{roles:?}");
                all.map(|it| it["content"].as_str().expect("a text").trim()).collect::<Vec<_>>().join(" ")
            }
        };
        let (first, second, third) = (text(&asked[0]), text(&asked[1]), text(&asked[2]));
        let answer = if api == Api::Chat { " aaaa " } else { "  a a a a " };
        assert!(second.starts_with(&(first.clone() + answer)), "{first:?} {second:?}");
        assert!(third.starts_with(&(second + answer)));
        assert!(!text(&asked[3]).starts_with(&first), "another conversation begins anew");
    }
}

#[tokio::test]
async fn a_trace_is_played() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sample-trace.jsonl");
    let trace = Trace::read(path.as_ref()).expect("the sample is a trace");
    let count = trace.entries.len();
    let lengths: Vec<u32> = trace.entries.iter().map(|entry| entry.input_tokens).collect();
    let file = PathBuf::from(path);
    let arrivals = Arrivals::Trace { file, trace, speed: 1000.0, block_tokens: 512, concurrency_max: 100 };
    let settings = Settings { arrivals, requests: None, ..settings(1) };
    let (report, mut records, _) = run(settings, |body, _| right(body)).await;
    assert_eq!(report.done, count, "{report}");
    records.sort_by_key(|record| record.conversation);
    assert_eq!(records.iter().map(|record| record.input_asked).collect::<Vec<_>>(), lengths);
    assert!(records.iter().all(|record| record.input_tokens == Some(record.input_asked.into())));
}

#[tokio::test]
async fn what_a_server_does_not_take_is_left_out() {
    let (report, _, asked) = run(settings(4), |body, _| {
        if body.get("ignore_eos").is_some() {
            return Reply::plain("400 Bad Request", r#"{"error":{"message":"unknown field ignore_eos"}}"#);
        }
        if body["prompt"].is_array() {
            return Reply::plain("422 Unprocessable", r#"{"detail":"prompt must be a string"}"#);
        }
        right(body)
    })
    .await;
    assert_eq!(report.done, 4);
    assert!(asked.iter().all(|body| body["prompt"].is_string()));
    assert!(report.notes.iter().any(|note| note.contains("prompt must be a string")), "{:?}", report.notes);
    assert!(report.notes.iter().any(|note| note.contains("ignore_eos")), "{:?}", report.notes);

    let (refused, _) =
        prepared(settings(4), |_, _| Reply::plain("401 Unauthorized", r#"{"error":"who are you"}"#)).await;
    let error = refused.err().expect("it is refused").to_string();
    assert!(error.contains("401") && error.contains("who are you"), "{error}");
}

#[tokio::test]
async fn words_have_the_length_that_was_asked_for() {
    let settings = Settings { api: Api::Chat, ..settings(4) };
    let settings = Settings { shape: Shape { input: Spread::constant(300.0), ..settings.shape }, ..settings };
    // Three tokens a word, and twelve for the template.
    let count = |body: &Value| {
        let content = body["messages"][0]["content"].as_str().expect("a text");
        12 + 3 * content.split(' ').count()
    };
    let (report, records, _) = run(settings, move |body, _| {
        Reply::completion(count(body), body["max_tokens"].as_u64().unwrap_or(1) as usize, NOW)
    })
    .await;
    assert!(records.iter().all(|record| record.input_tokens == Some(300)), "{report}");
}

#[tokio::test]
async fn time_and_users_end_a_run() {
    let slow = |body: &Value, _| match body["max_tokens"].as_u64() {
        Some(1) => right(body),
        _ => Reply::completion(6, 4, Duration::from_millis(50)),
    };
    let timed = Settings { requests: None, duration: Some(Duration::from_millis(300)), ..settings(1) };
    let (report, _, asked) = run(timed, slow).await;
    assert!(report.done == asked.len() && report.done >= 3 && report.abandoned == 0, "{report}");

    let (run, asked) = prepared(settings(1000), slow).await;
    let run = run.unwrap_or_else(|error| panic!("{error}"));
    let stop = async {
        while asked.lock().expect("nobody panics with it").is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        run.stop("enough");
        run.stop("really");
    };
    let ((report, records), ()) = tokio::join!(run.measure(), stop);
    assert!(report.abandoned >= 1 && report.abandoned == records.len(), "{report}");
    assert_eq!((report.done, report.failed, report.stopped.as_deref()), (0, 0, Some("enough")));
}

#[tokio::test]
async fn a_page_shows_the_run() {
    let slo = Some("ttft=100s,e2e=100s".parse().expect("limits"));
    let (report, records, _) = run(Settings { slo, ..settings(30) }, |body, _| right(body)).await;
    assert_eq!(report.goodput.as_ref().map(|goodput| goodput.share), Some(1.0));
    let page = bench_serve::page::html(&report, &records);
    assert_eq!(page.matches("<svg").count(), 6, "two distributions, latencies, output, requests in flight and ended");
    assert!(!page.contains("NaN") && !page.contains("inf\""));
    well_formed(&page);
}

/// Every element that is opened is closed, in order.
fn well_formed(page: &str) {
    let mut open = Vec::new();
    for (at, _) in page.match_indices('<') {
        let end = at + page[at..].find('>').expect("a tag ends");
        let tag = &page[at + 1..end];
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "at {at}");
        } else if !tag.ends_with('/') && !["!DOCTYPE", "meta"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[tokio::test]
async fn prompts_that_the_server_knows_are_pointed_out() {
    let (report, _, _) = run(settings(4), |body, _| right(body)).await;
    let told = |report: &Report| report.notes.iter().any(|note| note.contains("17% of the input was cached"));
    assert!(told(&report), "one token in six: {:?}", report.notes);
    let shape = Shape { shared_prefix: 1, ..settings(1).shape };
    let (report, _, _) = run(Settings { shape, ..settings(4) }, |body, _| right(body)).await;
    assert!(!told(&report), "{:?}", report.notes);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
    let url = format!("http://{}", listener.local_addr().expect("it has an address"));
    drop(listener);
    let error = Run::prepare(Settings { url: url.clone(), ..settings(1) }).await.err().expect("nobody listens");
    assert!(matches!(error, BenchError::Unreachable { .. }) && error.to_string().contains(&url), "{error}");
}
