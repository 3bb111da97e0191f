//! Answers, byte for byte.

use super::world::{EOS, World, row, tokens};
use domain::plan::TokenLogprobs;
use domain::session::{Submit, ToWorker};
use domain::{Choice, End};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETION: &str = "/v1/completions";

fn chat(more: Value) -> Value {
    with(json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": "What is ownership?" }] }), more)
}

fn completion(more: Value) -> Value {
    with(json!({ "model": "tiny-rust", "prompt": "Ownership is" }), more)
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

/// The answer with its id, time and fingerprint, which differ from run to run or with the version, named.
fn named(text: &str) -> String {
    let value: Value = serde_json::from_str(text).expect("JSON");
    let id = value["id"].as_str().expect("an id");
    assert!(id.starts_with("chatcmpl-") || id.starts_with("cmpl-"), "{id}");
    let created = value["created"].as_u64().expect("a time");
    let fingerprint = value["system_fingerprint"].as_str().expect("a fingerprint");
    assert!(fingerprint.starts_with("fp_0000000000_"), "{fingerprint} is of the weights");
    text.replace(id, "ID").replace(fingerprint, "FP").replace(&format!("\"created\":{created}"), "\"created\":0")
}

fn named_all(events: &[String]) -> String {
    let named = events.iter().map(|event| if event == "[DONE]" { event.clone() } else { named(event) });
    named.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_chat_streams_as_openai_has_it() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    http.post(CHAT, &chat(json!({ "stream": true, "stream_options": { "include_usage": true }, "seed": 7 }))).await;
    let submit = world.workers[0].submit().await;
    assert_eq!(submit.seed, 7);
    assert_eq!(&submit.prompt[..], tokens("<|bos|><|user|>What is ownership?<|end|><|assistant|>"));
    let text = tokens("A rule");
    assert_eq!(text.len(), 2, "the goldens below show two pieces");
    let mut first = row(&submit, 0, 0, text[0]);
    first.cached_tokens = 4;
    world.workers[0].row(first).await;
    let head = http.head().await;
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(
        head.header("x-request-id"),
        Some(&*submit.request.to_string()),
        "logs of workers name it as clients do"
    );
    world.workers[0].write(&submit, 0, 1, &[text[1], EOS]).await;
    world.workers[0].end(&submit, 0, 3, End::stop()).await;
    let head = r#"{"id":"ID","object":"chat.completion.chunk","created":0,"model":"tiny-rust","service_tier":"default","system_fingerprint":"FP","choices":"#;
    let prompt = submit.prompt.len();
    let golden = [
        format!(
            r#"{head}[{{"index":0,"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}],"usage":null}}"#
        ),
        format!(
            r#"{head}[{{"index":0,"delta":{{"content":"A"}},"logprobs":null,"finish_reason":null}}],"usage":null}}"#
        ),
        format!(
            r#"{head}[{{"index":0,"delta":{{"content":" rule"}},"logprobs":null,"finish_reason":null}}],"usage":null}}"#
        ),
        format!(r#"{head}[{{"index":0,"delta":{{}},"logprobs":null,"finish_reason":"stop"}}],"usage":null}}"#),
        format!(
            r#"{head}[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":3,"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":4,"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}}}"#,
            prompt + 3
        ),
        "[DONE]".to_owned(),
    ];
    assert_eq!(named_all(&http.events().await), golden.join("\n"));
    world.idle().await;
}

#[tokio::test]
async fn a_completion_streams_as_openai_has_it() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    http.post(COMPLETION, &completion(json!({ "stream": true, "max_tokens": 2 }))).await;
    let submit = world.workers[0].submit().await;
    assert_eq!(submit.params.max_tokens, 2);
    world.workers[0].make(&submit, 0, &tokens(" a rule"), End::length()).await;
    http.head().await;
    let head = r#"{"id":"ID","object":"text_completion","created":0,"model":"tiny-rust","service_tier":"default","system_fingerprint":"FP","choices":"#;
    let golden = [
        format!(r#"{head}[{{"index":0,"text":" a","logprobs":null,"finish_reason":null}}]}}"#),
        format!(r#"{head}[{{"index":0,"text":" rule","logprobs":null,"finish_reason":null}}]}}"#),
        format!(r#"{head}[{{"index":0,"text":"","logprobs":null,"finish_reason":"length"}}]}}"#),
        "[DONE]".to_owned(),
    ];
    assert_eq!(named_all(&http.events().await), golden.join("\n"));
}

#[tokio::test]
async fn a_chat_is_answered_whole_on_a_connection_that_lives_on() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    for _ in 0..2 {
        http.post(CHAT, &chat(json!({ "max_completion_tokens": 5 }))).await;
        let submit = world.workers[0].submit().await;
        world.workers[0].make(&submit, 0, &tokens("A rule"), End::length()).await;
        let (head, body) = http.answer().await;
        assert_eq!(head.status, 200);
        let prompt = submit.prompt.len();
        assert_eq!(
            named(std::str::from_utf8(&body).expect("UTF-8")),
            format!(
                r#"{{"id":"ID","object":"chat.completion","created":0,"model":"tiny-rust","service_tier":"default","system_fingerprint":"FP","choices":[{{"index":0,"message":{{"role":"assistant","content":"A rule","refusal":null,"annotations":[]}},"logprobs":null,"finish_reason":"length"}}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":2,"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":0,"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}}}"#,
                prompt + 2
            )
        );
    }
}

#[tokio::test]
async fn prompts_and_choices_come_in_order_and_usage_is_their_sum() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    let prompts = json!(["Ownership is", "Borrowing"]);
    http.post(COMPLETION, &completion(json!({ "prompt": prompts, "n": 2, "max_tokens": 8 }))).await;
    let submits = [world.workers[0].submit().await, world.workers[0].submit().await];
    assert_eq!(submits[0].choices.len(), 2);
    // Later ones end first.
    for (prompt, submit) in submits.iter().enumerate().rev() {
        for choice in [1, 0] {
            let text = tokens(&format!("{prompt}{choice}"));
            world.workers[0].make(submit, choice, &text, End::length()).await;
        }
    }
    let (_, body) = http.json().await;
    let texts: Vec<&str> =
        body["choices"].as_array().expect("choices").iter().filter_map(|it| it["text"].as_str()).collect();
    assert_eq!(texts, ["00", "01", "10", "11"]);
    let prompt_tokens: usize = submits.iter().map(|submit| submit.prompt.len()).sum();
    let output: usize = texts.iter().map(|text| tokens(text).len()).sum();
    assert_eq!(body["usage"]["prompt_tokens"], prompt_tokens);
    assert_eq!(body["usage"]["completion_tokens"], output);
    world.idle().await;
}

#[tokio::test]
async fn token_ids_are_a_prompt() {
    let mut world = World::new().await;
    for (prompt, wanted) in [(json!([5, 6, 7]), vec![vec![5, 6, 7]]), (json!([[5], [6, 7]]), vec![vec![5], vec![6, 7]])]
    {
        let mut http = world.client().await;
        http.post(COMPLETION, &completion(json!({ "prompt": prompt, "max_tokens": 1 }))).await;
        for tokens in wanted {
            let submit = world.workers[0].submit().await;
            assert_eq!(submit.prompt[..], tokens);
            world.workers[0].make(&submit, 0, &[70], End::length()).await;
        }
        assert_eq!(http.json().await.0.status, 200);
    }
}

/// Plays a sequence until a stop string ends it: the tokens of `text`, and then the cancellation.
async fn play_until_stopped(world: &mut World, submit: &Submit, text: &str) {
    world.workers[0].write(submit, 0, 0, &tokens(text)).await;
    let stopped = ToWorker::Cancel { request: submit.request, epoch: submit.epoch, choice: Some(Choice(0)) };
    let all = ToWorker::Cancel { request: submit.request, epoch: submit.epoch, choice: None };
    let message = world.workers[0].next().await;
    assert!(message == stopped || message == all, "{message:?}");
}

#[tokio::test]
async fn a_stop_string_over_several_tokens_ends_the_sequence_on_the_workers_too() {
    let mut world = World::new().await;
    for stream in [false, true] {
        let mut http = world.client().await;
        http.post(CHAT, &chat(json!({ "stream": stream, "stop": ["borrow checker", "zzz"] }))).await;
        let submit = world.workers[0].submit().await;
        play_until_stopped(&mut world, &submit, "Ask the borrow checker about it").await;
        let (text, finish) = if stream {
            http.head().await;
            let events = http.events().await;
            assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
            let chunks = events[..events.len() - 1].iter().map(|it| serde_json::from_str::<Value>(it).expect("JSON"));
            let mut text = String::new();
            let mut finish = Value::Null;
            for chunk in chunks {
                text.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
                finish = chunk["choices"][0]["finish_reason"].clone();
            }
            (text, finish)
        } else {
            let (_, body) = http.json().await;
            let choice = &body["choices"][0];
            (choice["message"]["content"].as_str().expect("text").to_owned(), choice["finish_reason"].clone())
        };
        assert_eq!(text, "Ask the ");
        assert_eq!(finish, "stop");
        world.idle().await;
    }
}

#[tokio::test]
async fn log_probabilities_have_the_form_of_each_api() {
    let mut world = World::new().await;
    let text = tokens("A rule");
    let logged = |token, logprob, other| {
        Some(TokenLogprobs { logprob, top: vec![(token, logprob), (other, f32::NEG_INFINITY)] })
    };
    let rows = |submit: &Submit| {
        let mut rows = [row(submit, 0, 0, text[0]), row(submit, 0, 1, text[1])];
        rows[0].logprobs = logged(text[0], -0.5, text[1]);
        rows[1].logprobs = logged(text[1], -0.25, text[0]);
        rows
    };

    let mut http = world.client().await;
    http.post(CHAT, &chat(json!({ "logprobs": true, "top_logprobs": 2, "max_tokens": 2 }))).await;
    let submit = world.workers[0].submit().await;
    assert_eq!(submit.params.logprobs, Some(2));
    for row in rows(&submit) {
        world.workers[0].row(row).await;
    }
    world.workers[0].end(&submit, 0, 2, End::length()).await;
    let (_, body) = http.json().await;
    assert_eq!(
        body["choices"][0]["logprobs"],
        json!({
            "content": [
                { "token": "A", "logprob": -0.5, "bytes": b"A", "top_logprobs": [
                    { "token": "A", "logprob": -0.5, "bytes": b"A" },
                    { "token": " rule", "logprob": -9999.0, "bytes": b" rule" },
                ] },
                { "token": " rule", "logprob": -0.25, "bytes": b" rule", "top_logprobs": [
                    { "token": " rule", "logprob": -0.25, "bytes": b" rule" },
                    { "token": "A", "logprob": -9999.0, "bytes": b"A" },
                ] },
            ],
            "refusal": null,
        })
    );

    http.post(COMPLETION, &completion(json!({ "logprobs": 2, "max_tokens": 2 }))).await;
    let submit = world.workers[0].submit().await;
    for row in rows(&submit) {
        world.workers[0].row(row).await;
    }
    world.workers[0].end(&submit, 0, 2, End::length()).await;
    let (_, body) = http.json().await;
    assert_eq!(
        body["choices"][0]["logprobs"],
        json!({
            "tokens": ["A", " rule"],
            "token_logprobs": [-0.5, -0.25],
            "top_logprobs": [{ "A": -0.5, " rule": -9999.0 }, { " rule": -0.25, "A": -9999.0 }],
            "text_offset": [0, 1],
        })
    );
}

#[tokio::test]
async fn a_stream_begins_when_its_prompts_are_placed() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    http.post(COMPLETION, &completion(json!({ "stream": true, "prompt": ["a", "b"], "max_tokens": 1 }))).await;
    // No worker has said anything yet.
    assert_eq!(http.head().await.status, 200);
    let submits = [world.workers[0].submit().await, world.workers[0].submit().await];
    for submit in &submits {
        world.workers[0].make(submit, 0, &[70], End::length()).await;
    }
    assert_eq!(http.events().await.last().map(String::as_str), Some("[DONE]"));
    world.idle().await;
}
