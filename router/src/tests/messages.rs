//! Anthropic's API, byte for byte, and the paths that make tokens of prompts.

use super::world::{EOS, World, row, tokens};
use domain::End;
use serde_json::{Value, json};

const PATH: &str = "/v1/messages";

fn body(more: &Value) -> Value {
    let mut body = json!({
        "model": "tiny-rust", "max_tokens": 8, "messages": [{ "role": "user", "content": "What is ownership?" }],
    });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

#[tokio::test]
async fn a_message_streams_as_anthropic_has_it() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    http.post(PATH, &body(&json!({ "stream": true }))).await;
    let submit = world.workers[0].submit().await;
    assert_eq!(&submit.prompt[..], tokens("<|bos|><|user|>What is ownership?<|end|><|assistant|>"));
    let text = tokens("A rule");
    let mut first = row(&submit, 0, 0, text[0]);
    first.cached_tokens = 4;
    world.workers[0].row(first).await;
    let head = http.head().await;
    assert_eq!(head.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(head.header("request-id"), Some(&*submit.request.to_string()));
    world.workers[0].write(&submit, 0, 1, &[text[1], EOS]).await;
    world.workers[0].end(&submit, 0, 3, End::stop()).await;
    let prompt = submit.prompt.len();
    let usage = |output: usize| {
        json!({
            "input_tokens": prompt - 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
            "output_tokens": output,
        })
    };
    let id = format!("msg_{:016x}", submit.request.0);
    let message = json!({
        "id": id, "type": "message", "role": "assistant", "model": "tiny-rust", "content": [], "stop_reason": null,
        "stop_sequence": null, "usage": usage(0),
    });
    let delta = |text: &str| json!({ "index": 0, "delta": { "type": "text_delta", "text": text } });
    let mut expected = vec![
        ("message_start", json!({ "message": message })),
        ("content_block_start", json!({ "index": 0, "content_block": { "type": "text", "text": "" } })),
        ("content_block_delta", delta("A")),
        ("content_block_delta", delta(" rule")),
        ("content_block_stop", json!({ "index": 0 })),
        ("message_delta", json!({ "delta": { "stop_reason": "end_turn", "stop_sequence": null }, "usage": usage(3) })),
        ("message_stop", json!({})),
    ];
    for (kind, fields) in &mut expected {
        fields["type"] = Value::from(*kind);
    }
    let named = http.named_events().await;
    let named: Vec<(&str, Value)> =
        named.iter().map(|(kind, data)| (kind.as_str(), serde_json::from_str(data).expect("JSON"))).collect();
    assert_eq!(named, expected);
    world.idle().await;
}

#[tokio::test]
async fn a_message_is_answered_whole_and_names_the_string_that_ended_it() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    http.post(PATH, &body(&json!({ "stop_sequences": ["never", " rule"] }))).await;
    let submit = world.workers[0].submit().await;
    assert_eq!(submit.params.max_tokens, 8);
    world.workers[0].write(&submit, 0, 0, &tokens("A rule")).await;
    world.workers[0].next().await;
    world.workers[0].end(&submit, 0, 2, End::stop()).await;
    let (head, answer) = http.json().await;
    assert_eq!(head.status, 200);
    let told = |field: &str| &answer[field];
    assert_eq!(told("content"), &json!([{ "type": "text", "text": "A" }]));
    assert_eq!((told("stop_reason"), told("stop_sequence")), (&json!("stop_sequence"), &json!(" rule")));
    world.idle().await;
}

#[tokio::test]
async fn errors_of_its_paths_have_anthropics_form() {
    let world = World::new().await;
    let mut http = world.client().await;
    for (path, body, status, kind) in [
        (PATH, body(&json!({ "model": "other" })), 404, "not_found_error"),
        (PATH, json!([]), 400, "invalid_request_error"),
        ("/v1/messages/batches", json!({}), 404, "not_found_error"),
        ("/v1/messages/count_tokens", json!({ "model": "tiny-rust" }), 400, "invalid_request_error"),
    ] {
        http.post(path, &body).await;
        let (head, error) = http.json().await;
        assert_eq!((head.status, &error["error"]["type"]), (status, &json!(kind)), "{error}");
        assert_eq!(error["request_id"].as_str(), head.header("request-id"));
    }
}

#[tokio::test]
async fn prompts_are_counted_and_made_tokens_of_without_a_worker() {
    let world = World::new().await;
    let mut http = world.client().await;
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let prompt = tokens("<|bos|><|user|>Hi<|end|><|assistant|>");
    http.post("/v1/messages/count_tokens", &json!({ "model": "tiny-rust", "messages": messages })).await;
    assert_eq!(http.json().await.1, json!({ "input_tokens": prompt.len() }));
    http.post("/tokenize", &json!({ "messages": messages, "return_token_strs": true })).await;
    let answer = http.json().await.1;
    assert_eq!((&answer["count"], &answer["tokens"]), (&json!(prompt.len()), &json!(prompt)));
    assert_eq!(answer["token_strs"][0], "<|bos|>");
    http.post("/tokenize", &json!({ "prompt": "Hi", "add_special_tokens": false })).await;
    let answer = http.json().await.1;
    assert_eq!((&answer["tokens"], &answer["token_strs"]), (&json!(tokens("Hi")), &Value::Null));
    http.post("/detokenize", &json!({ "model": "tiny-rust", "tokens": prompt })).await;
    assert_eq!(http.json().await.1, json!({ "prompt": "<|bos|><|user|>Hi<|end|><|assistant|>" }));
    http.post("/detokenize", &json!({ "tokens": [1_000_000] })).await;
    assert_eq!(http.json().await.0.status, 400);
}
