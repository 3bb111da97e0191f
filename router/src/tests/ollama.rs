//! Ollama's API, line for line, and what it says of the model.

use super::http::Http;
use super::tools::{TIME, WEATHER, model, say, tools};
use super::world::{CONTEXT, EOS, World, tokens};
use domain::End;
use serde_json::{Value, json};
use std::time::Duration;

const CHAT: &str = "/api/chat";
const GENERATE: &str = "/api/generate";

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn chat(more: Value) -> Value {
    with(json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": "Hi" }] }), more)
}

fn completion(more: Value) -> Value {
    with(json!({ "model": "tiny-rust", "prompt": "Ownership is" }), more)
}

/// Takes the measured times and the time of day out of a line, and checks them where `ends`.
fn timed(mut line: Value, ends: bool) -> Value {
    let fields = line.as_object_mut().expect("an object");
    let created = fields.remove("created_at").expect("a time");
    let created = created.as_str().expect("a string");
    assert!(created.starts_with("20") && created.ends_with('Z') && created.len() == 30, "{created}");
    if ends {
        let mut ns = |field: &str| fields.remove(field).and_then(|ns| ns.as_u64()).expect("nanoseconds");
        let (total, load) = (ns("total_duration"), ns("load_duration"));
        let (prompt, eval) = (ns("prompt_eval_duration"), ns("eval_duration"));
        assert!(prompt > 0 && eval > 0, "both are measured");
        assert_eq!((load, prompt + eval), (0, total));
    }
    line
}

/// Returns the lines of a stream.
async fn lines(http: &mut Http) -> Vec<Value> {
    let head = http.head().await;
    assert_eq!((head.status, head.header("content-type")), (200, Some("application/x-ndjson")));
    let body = http.chunks().await;
    assert!(body.ends_with('\n'), "{body}");
    body.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[tokio::test]
async fn answers_stream_as_ollama_has_them() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    let text = [&tokens("A rule")[..], &[EOS]].concat();
    let piece = |said: Value| with(json!({ "model": "tiny-rust", "done": false }), said);
    let message = |text: &str| json!({ "message": { "role": "assistant", "content": text } });
    let response = |text: &str| json!({ "response": text });
    type Said<'a> = &'a dyn Fn(&str) -> Value;
    let cases: [(&str, Value, Said<'_>); 2] =
        [(CHAT, chat(json!({})), &message), (GENERATE, completion(json!({ "stream": true })), &response)];
    for (path, body, said) in cases {
        http.post(path, &body).await;
        let submit = world.workers[0].submit().await;
        world.workers[0].make(&submit, 0, &text, End::stop()).await;
        let lines = lines(&mut http).await;
        let end = lines.len() - 1;
        let told: Vec<Value> = lines.into_iter().enumerate().map(|(at, line)| timed(line, at == end)).collect();
        let counts = json!({
            "done": true, "done_reason": "stop", "prompt_eval_count": submit.prompt.len(), "eval_count": text.len(),
        });
        assert_eq!(told, [piece(said("A")), piece(said(" rule")), with(piece(said("")), counts)]);
    }
    world.idle().await;
}

#[tokio::test]
async fn answers_are_whole_where_they_are_asked_for() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    let more = json!({ "stream": false, "options": { "num_predict": 2 } });
    for (path, body, said) in [
        (CHAT, chat(more.clone()), json!({ "message": { "role": "assistant", "content": "A rule" } })),
        (GENERATE, completion(more.clone()), json!({ "response": "A rule" })),
    ] {
        http.post(path, &body).await;
        let submit = world.workers[0].submit().await;
        assert_eq!(submit.params.max_tokens, 2);
        world.workers[0].make(&submit, 0, &tokens("A rule"), End::length()).await;
        let (head, answer) = http.json().await;
        let counts = json!({
            "model": "tiny-rust", "done": true, "done_reason": "length", "prompt_eval_count": submit.prompt.len(),
            "eval_count": 2,
        });
        assert_eq!((head.status, timed(answer, true)), (200, with(said, counts)));
    }
}

#[tokio::test]
async fn thoughts_and_calls_are_told_from_text() {
    let mut world = World::of_model(model()).await;
    let text = format!("<|pad|>Hm<|bos|>Let me see.\n{WEATHER}\n{TIME}");
    let function = |call: &Value| (call["function"]["name"].clone(), call["function"]["arguments"].clone());
    let wanted = [(json!("weather"), json!({ "city": "Paris" })), (json!("time"), json!({}))];
    let ask = |stream: bool| {
        chat(json!({ "tools": tools(), "think": true, "stream": stream, "options": { "num_predict": 200 } }))
    };

    let mut http = world.client().await;
    http.post(CHAT, &ask(false)).await;
    say(&mut world.workers[0], &text, 1).await;
    let (_, answer) = http.json().await;
    let message = &answer["message"];
    assert_eq!((&message["thinking"], &message["content"]), (&json!("Hm"), &json!("Let me see.")));
    let calls = message["tool_calls"].as_array().expect("calls");
    assert_eq!(calls.iter().map(function).collect::<Vec<_>>(), wanted);
    assert_eq!(answer["done_reason"], "stop");

    http.post(CHAT, &ask(true)).await;
    say(&mut world.workers[0], &text, 1).await;
    let lines = lines(&mut http).await;
    let joined = |field: &str| -> String { lines.iter().filter_map(|line| line["message"][field].as_str()).collect() };
    assert_eq!((joined("thinking"), joined("content").trim_end().to_owned()), ("Hm".into(), "Let me see.".into()));
    let streamed: Vec<&Value> =
        lines.iter().filter_map(|line| line["message"]["tool_calls"].as_array()).flatten().collect();
    assert_eq!(streamed.iter().map(|call| function(call)).collect::<Vec<_>>(), wanted);
    assert_ne!(streamed[0]["id"], streamed[1]["id"]);

    http.post(GENERATE, &completion(json!({ "stream": false, "think": false }))).await;
    say(&mut world.workers[0], "<|pad|>Hm<|bos|>Yes", 1).await;
    let (_, answer) = http.json().await;
    assert_eq!((&answer["thinking"], &answer["response"]), (&json!("Hm"), &json!("Yes")));
}

#[tokio::test]
async fn a_stream_that_fails_ends_with_an_error() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    http.post(CHAT, &chat(json!({}))).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].write(&submit, 0, 0, &tokens("A")).await;
    assert_eq!(http.head().await.status, 200);
    let failed = End::error(domain::Ender::Limit, "too late");
    world.workers[0].end(&submit, 0, 1, failed).await;
    let body = http.chunks().await;
    let last: Value = serde_json::from_str(body.lines().last().expect("a line")).expect("JSON");
    assert!(last["error"].as_str().is_some_and(|error| error.contains("too late")), "{body}");
}

#[tokio::test]
async fn a_stream_that_has_nothing_to_say_sends_what_json_skips() {
    let mut world = World::with(1, |config| config.keepalive = Some(Duration::from_millis(10))).await;
    let mut http = world.client().await;
    http.post(GENERATE, &completion(json!({}))).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].write(&submit, 0, 0, &tokens("A")).await;
    assert_eq!(http.head().await.status, 200);
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.workers[0].make(&submit, 0, &[], End::stop()).await;
    let body = http.chunks().await;
    assert!(body.contains("\n "), "{body}");
    let lines: Vec<Value> = body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.last().expect("a line")["done"], true);
}

#[tokio::test]
async fn a_request_without_a_prompt_finds_the_model_loaded() {
    let world = World::new().await;
    for (path, said) in
        [(CHAT, json!({ "message": { "role": "assistant", "content": "" } })), (GENERATE, json!({ "response": "" }))]
    {
        let (status, answer) = world.refused(path, &json!({ "model": "tiny-rust", "keep_alive": "5m" })).await;
        let wanted = with(json!({ "model": "tiny-rust", "done": true, "done_reason": "load" }), said);
        assert_eq!((status, timed(answer, false)), (200, wanted));
    }
    world.idle().await;
}

#[tokio::test]
async fn errors_below_api_have_ollamas_form() {
    let world = World::new().await;
    for (path, body, status, part) in [
        (CHAT, chat(json!({ "model": "other" })), 404, "'other' does not exist"),
        (CHAT, json!([]), 400, "must be a JSON object"),
        (GENERATE, completion(json!({ "format": "yaml" })), 400, "'format'"),
        ("/api/show", json!({ "model": "other" }), 404, "'other' does not exist"),
        ("/api/pull", json!({ "model": "tiny-rust" }), 404, "POST /api/pull"),
        ("/api/tags", json!({}), 405, "does not take POST"),
    ] {
        let (found, error) = world.refused(path, &body).await;
        assert_eq!((found, error.as_object().map(|fields| fields.len())), (status, Some(1)), "{error}");
        assert!(error["error"].as_str().is_some_and(|message| message.contains(part)), "{error}");
    }
}

#[tokio::test]
async fn the_model_is_listed_shown_and_running() {
    let world = World::new().await;
    let get = async |path: &str| -> Value { serde_json::from_str(&world.get(path).await.1).expect("JSON") };
    let listed = get("/api/tags").await;
    let [listed] = &listed["models"].as_array().expect("models")[..] else { panic!("one model") };
    assert_eq!((&listed["name"], &listed["model"]), (&json!("tiny-rust"), &json!("tiny-rust")));
    assert_eq!(
        (&listed["modified_at"], &listed["digest"]),
        (&json!("2023-11-14T22:13:20.000000000Z"), &json!("0".repeat(64)))
    );
    let running = get("/api/ps").await;
    assert_eq!(running["models"][0]["context_length"], CONTEXT);
    assert_eq!(get("/api/version").await, json!({ "version": env!("CARGO_PKG_VERSION") }));
    let (status, shown) = world.refused("/api/show", &json!({ "model": "tiny-rust" })).await;
    assert_eq!((status, &shown["model_info"]["baton.context_length"]), (200, &json!(CONTEXT)));
    let empty = World::with(0, |_| {}).await;
    let none: Value = serde_json::from_str(&empty.get("/api/ps").await.1).expect("JSON");
    assert_eq!(none, json!({ "models": [] }), "no worker was up");
}
