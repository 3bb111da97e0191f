//! What is refused, and in which words.

use super::http::Http;
use super::world::{CONTEXT, World};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETION: &str = "/v1/completions";

/// Status, `param` and `code`.
type Wanted<'a> = (u16, Option<&'a str>, Option<&'a str>);

/// Checks an error: its status, form, field, code, and that the message says `part`.
fn check(status: u16, body: &Value, wanted: Wanted<'_>, part: &str) {
    let error = &body["error"];
    let mut keys: Vec<&str> = error.as_object().expect("an error").keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["code", "message", "param", "type"], "{body}");
    assert_eq!((status, error["param"].as_str(), error["code"].as_str()), wanted, "{body}");
    assert!(error["message"].as_str().is_some_and(|message| message.contains(part)), "{body} does not say {part:?}");
}

#[tokio::test]
async fn fields_are_refused_by_name() {
    let world = World::new().await;
    let user = json!([{ "role": "user", "content": "Hi" }]);
    // Long enough to be parsed on a thread of its own.
    let long = "word ".repeat(4 * CONTEXT as usize);
    let bad = |param, code| (400, Some(param), code);
    let cases: Vec<(&str, Value, Wanted<'_>, &str)> = vec![
        (CHAT, json!({ "messages": user }), bad("model", Some("missing_required_parameter")), "'model'"),
        (
            CHAT,
            json!({ "model": 5, "messages": user }),
            bad("model", Some("invalid_type")),
            "a string, not the number 5",
        ),
        (
            CHAT,
            json!({ "model": "gpt-4", "messages": user }),
            (404, Some("model"), Some("model_not_found")),
            "This service has: 'tiny-rust'",
        ),
        (CHAT, json!({}), bad("messages", Some("missing_required_parameter")), "'messages'"),
        (CHAT, json!({ "messages": [] }), bad("messages", None), "empty"),
        (CHAT, json!({ "messages": "Hi" }), bad("messages", Some("invalid_type")), "an array"),
        (CHAT, json!({ "messages": ["Hi"] }), bad("messages[0]", Some("invalid_type")), "an object"),
        (
            CHAT,
            json!({ "messages": [{ "content": "Hi" }] }),
            bad("messages[0].role", Some("missing_required_parameter")),
            "role",
        ),
        (
            CHAT,
            json!({ "messages": [{ "role": "user" }] }),
            bad("messages[0].content", Some("missing_required_parameter")),
            "",
        ),
        (
            CHAT,
            json!({ "messages": [{ "role": "function", "content": "x", "name": "y" }] }),
            bad("messages[0].role", Some("unsupported_parameter")),
            "'function'",
        ),
        (
            CHAT,
            json!({ "messages": [{ "role": "tool", "content": "x" }] }),
            bad("messages[0].tool_call_id", Some("missing_required_parameter")),
            "",
        ),
        (
            CHAT,
            json!({ "messages": [{ "role": "assistant", "tool_calls": [{ "id": "a", "type": "custom" }] }] }),
            bad("messages[0].tool_calls[0].type", Some("unsupported_parameter")),
            "\"function\"",
        ),
        (CHAT, json!({ "messages": [{ "role": "boss", "content": "x" }] }), bad("messages[0].role", None), "assistant"),
        (
            CHAT,
            json!({ "messages": [{ "role": "user", "content": "x", "mood": 1 }] }),
            bad("messages[0].mood", Some("unknown_parameter")),
            "mood",
        ),
        (
            CHAT,
            json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "x" } }] }] }),
            bad("messages[0].content[0]", Some("unsupported_parameter")),
            "image_url",
        ),
        (CHAT, json!({ "messages": user, "colour": "red" }), bad("colour", Some("unknown_parameter")), "colour"),
        (CHAT, json!({ "messages": user, "temperature": "hot" }), bad("temperature", Some("invalid_type")), "a number"),
        (CHAT, json!({ "messages": user, "temperature": 2.5 }), bad("temperature", None), "between 0 and 2"),
        (CHAT, json!({ "messages": user, "top_p": -0.1 }), bad("top_p", None), "between 0 and 1"),
        (CHAT, json!({ "messages": user, "n": 9 }), bad("n", None), "between 1 and 8"),
        (CHAT, json!({ "messages": user, "n": 1.5 }), bad("n", Some("invalid_type")), "an integer"),
        (CHAT, json!({ "messages": user, "max_tokens": 0 }), bad("max_tokens", None), "at least 1"),
        (
            CHAT,
            json!({ "messages": user, "max_tokens": 2, "max_completion_tokens": 3 }),
            bad("max_tokens", None),
            "contradict",
        ),
        (CHAT, json!({ "messages": user, "max_tokens": 2, "min_tokens": 3 }), bad("min_tokens", None), "above"),
        (CHAT, json!({ "messages": user, "top_logprobs": 2 }), bad("top_logprobs", None), "'logprobs'"),
        (CHAT, json!({ "messages": user, "logprobs": true, "top_logprobs": 21 }), bad("top_logprobs", None), "20"),
        (CHAT, json!({ "messages": user, "stop": vec!["a"; 17] }), bad("stop", None), "16"),
        (CHAT, json!({ "messages": user, "stop": [""] }), bad("stop", None), "empty"),
        (CHAT, json!({ "messages": user, "stop": 5 }), bad("stop", Some("invalid_type")), "a string or an array"),
        (CHAT, json!({ "messages": user, "stop_token_ids": [4096] }), bad("stop_token_ids", None), "below 4096"),
        (CHAT, json!({ "messages": user, "logit_bias": { "x": 1 } }), bad("logit_bias", None), "'x'"),
        (CHAT, json!({ "messages": user, "logit_bias": { "5": 101 } }), bad("logit_bias", None), "100"),
        (CHAT, json!({ "messages": user, "stream_options": {} }), bad("stream_options", None), "'stream'"),
        (
            CHAT,
            json!({ "messages": user, "stream": true, "stream_options": { "x": 1 } }),
            bad("stream_options.x", Some("unknown_parameter")),
            "x",
        ),
        (
            CHAT,
            json!({ "messages": user, "tools": [{}] }),
            bad("tools[0].type", Some("missing_required_parameter")),
            "",
        ),
        (
            CHAT,
            json!({ "messages": user, "tools": [{ "type": "function", "function": { "name": "f" } }] }),
            bad("tools", Some("unsupported_parameter")),
            "'router.tool_parser'",
        ),
        (CHAT, json!({ "messages": user, "tool_choice": "auto" }), bad("tool_choice", None), "'tools'"),
        (CHAT, json!({ "messages": user, "tool_choice": "required" }), bad("tool_choice", None), "'tools'"),
        (
            CHAT,
            json!({ "messages": user, "reasoning_effort": "low" }),
            bad("reasoning_effort", Some("unsupported_parameter")),
            "does not ask how much",
        ),
        (CHAT, json!({ "messages": user, "reasoning_effort": "some" }), bad("reasoning_effort", None), "minimal"),
        (
            CHAT,
            json!({ "messages": user, "response_format": { "type": "xml" } }),
            bad("response_format.type", None),
            "json_schema",
        ),
        (CHAT, json!({ "messages": user, "store": "yes" }), bad("store", Some("invalid_type")), "a boolean"),
        (
            CHAT,
            json!({ "messages": [{ "role": "user", "content": long }] }),
            bad("messages", Some("context_length_exceeded")),
            "maximum context length is 512 tokens",
        ),
        (
            CHAT,
            json!({ "messages": user, "max_tokens": 512 }),
            bad("messages", Some("context_length_exceeded")),
            "512 in the completion",
        ),
        (COMPLETION, json!({}), bad("prompt", Some("missing_required_parameter")), "'prompt'"),
        (COMPLETION, json!({ "prompt": "" }), bad("prompt", None), "empty"),
        (COMPLETION, json!({ "prompt": [] }), bad("prompt", None), "empty"),
        (COMPLETION, json!({ "prompt": [[]] }), bad("prompt", None), "empty"),
        (COMPLETION, json!({ "prompt": [1, "a"] }), bad("prompt", Some("invalid_type")), "array of token ids"),
        (COMPLETION, json!({ "prompt": [-1] }), bad("prompt", Some("invalid_type")), "array of token ids"),
        (COMPLETION, json!({ "prompt": [4096] }), bad("prompt", None), "below 4096"),
        (COMPLETION, json!({ "prompt": { "a": 1 } }), bad("prompt", Some("invalid_type")), "an object"),
        (COMPLETION, json!({ "prompt": ["a", "b", "c", "d", "e"] }), bad("prompt", None), "4 are allowed"),
        (COMPLETION, json!({ "prompt": "a", "echo": 1 }), bad("echo", Some("invalid_type")), "a boolean"),
        (
            COMPLETION,
            json!({ "prompt": "a", "echo": true, "logprobs": 0 }),
            bad("logprobs", Some("unsupported_parameter")),
            "'echo'",
        ),
        (COMPLETION, json!({ "prompt": "a", "max_tokens": 0 }), bad("max_tokens", None), "at least 1"),
        (
            COMPLETION,
            json!({ "prompt": vec![5; CONTEXT as usize], "max_tokens": 0, "echo": true }),
            bad("prompt", Some("context_length_exceeded")),
            "1 in the completion",
        ),
        (COMPLETION, json!({ "prompt": "a", "suffix": "b" }), bad("suffix", Some("unsupported_parameter")), "suffix"),
        (
            COMPLETION,
            json!({ "prompt": "a", "best_of": 3, "stream": true }),
            bad("best_of", None),
            "cannot be streamed",
        ),
        (COMPLETION, json!({ "prompt": "a", "best_of": 1, "n": 2 }), bad("best_of", None), "below 'n'"),
        (COMPLETION, json!({ "prompt": "a", "best_of": 9 }), bad("best_of", None), "between 1 and 8"),
        (CHAT, json!({ "messages": user, "best_of": 2 }), bad("best_of", Some("unsupported_parameter")), "except as 1"),
        (COMPLETION, json!({ "prompt": "a", "cache_salt": "" }), bad("cache_salt", None), "1 to 1024 bytes"),
        (COMPLETION, json!({ "prompt": "a", "cache_salt": "x".repeat(1025) }), bad("cache_salt", None), "not 1025"),
        (
            COMPLETION,
            json!({ "prompt": "a", "prompt_logprobs": 1 }),
            bad("prompt_logprobs", Some("unsupported_parameter")),
            "not supported",
        ),
        (
            COMPLETION,
            json!({ "prompt": "a", "use_beam_search": true }),
            bad("use_beam_search", Some("unsupported_parameter")),
            "except as false",
        ),
        (
            CHAT,
            json!({ "messages": user, "add_special_tokens": true }),
            bad("add_special_tokens", Some("unsupported_parameter")),
            "except as false",
        ),
        (COMPLETION, json!({ "prompt": "a", "logprobs": 6 }), bad("logprobs", None), "5"),
        (COMPLETION, json!({ "prompt": "a", "messages": [] }), bad("messages", Some("unknown_parameter")), "messages"),
    ];
    for (path, mut body, wanted, part) in cases {
        if wanted.1 != Some("model") {
            body["model"] = json!("tiny-rust");
        }
        let (status, answer) = world.refused(path, &body).await;
        check(status, &answer, wanted, part);
    }
    world.idle().await;
}

/// Sends a body as it is and checks the error.
async fn check_raw(world: &World, kind: &str, body: &[u8], wanted: Wanted<'_>, part: &str) {
    let mut http = world.client().await;
    http.send("POST", CHAT, kind, body).await;
    let (head, answer) = http.json().await;
    check(head.status, &answer, wanted, part);
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused() {
    let world = World::new().await;
    const JSON: &str = "application/json";
    let none = (400, None, None);
    check_raw(&world, JSON, b"", none, "not valid JSON").await;
    check_raw(&world, JSON, b"{\"model\": \"tiny-rust\",", none, "line 1 column 22").await;
    check_raw(&world, JSON, b"[]", none, "must be a JSON object, not an array").await;
    check_raw(&world, JSON, b"{\"model\": \"tiny\xff\"}", none, "not valid UTF-8: byte 15").await;
    // A lone surrogate is a character that has no encoding.
    check_raw(&world, JSON, b"{\"model\": \"\\ud800\"}", (404, Some("model"), Some("model_not_found")), "'\u{fffd}'")
        .await;
    check_raw(&world, JSON, b"{\"n\": 1, \"n\": 1}", (400, Some("n"), None), "given twice").await;
    let deep = [b"{\"tools\":".as_slice(), &[b'['; 20_000], &[b']'; 20_000], b"}"].concat();
    check_raw(&world, JSON, &deep, (400, Some("model"), Some("missing_required_parameter")), "model").await;
    let deep = [
        b"{\"model\":\"tiny-rust\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":".as_slice(),
        &[b'['; 20_000],
        &[b']'; 20_000],
        b"}",
    ]
    .concat();
    check_raw(&world, JSON, &deep, (400, Some("tools[0]"), Some("invalid_type")), "an object").await;
    check_raw(&world, "text/plain", b"{}", (415, None, Some("unsupported_media_type")), "'text/plain'").await;
    check_raw(&world, JSON, &[b' '; 65 << 10], (413, None, Some("body_too_large")), "65536 bytes").await;
}

#[tokio::test]
async fn a_chunked_body_is_bounded_too() {
    let world = World::new().await;
    let mut http = world.client().await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    http.write(head.as_bytes()).await;
    for _ in 0..65 {
        http.write(&[b"400\r\n".as_slice(), &[b' '; 0x400], b"\r\n"].concat()).await;
    }
    http.write(b"0\r\n\r\n").await;
    let (head, answer) = http.json().await;
    check(head.status, &answer, (413, None, Some("body_too_large")), "65536 bytes");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    let world = World::with(1, |config| config.body_wait = std::time::Duration::from_millis(50)).await;
    let mut http = world.client().await;
    http.write(
        format!("POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{{")
            .as_bytes(),
    )
    .await;
    let (head, answer) = http.json().await;
    check(head.status, &answer, (408, None, Some("body_timeout")), "within 0.05 s");
}

async fn ask(http: &mut Http, method: &str, path: &str) -> (super::http::Head, Value) {
    http.send(method, path, "application/json", b"").await;
    http.json().await
}

#[tokio::test]
async fn paths_methods_and_models() {
    let world = World::new().await;
    let mut http = world.client().await;
    let (head, body) = ask(&mut http, "GET", "/v1/nothing").await;
    check(head.status, &body, (404, None, Some("unknown_url")), "GET /v1/nothing");
    let (head, body) = ask(&mut http, "GET", CHAT).await;
    check(head.status, &body, (405, None, Some("method_not_allowed")), "does not take GET");
    assert_eq!(head.header("allow"), Some("POST"));
    assert!(head.header("x-request-id").is_some());

    let described = json!({
        "id": "tiny-rust", "object": "model", "created": 1_700_000_000, "owned_by": "baton", "max_model_len": CONTEXT,
        "batch_invariant": true,
    });
    let (_, body) = ask(&mut http, "GET", "/v1/models").await;
    assert_eq!(body, json!({ "object": "list", "data": [described] }));
    let (_, body) = ask(&mut http, "GET", "/v1/models/tiny-rust").await;
    assert_eq!(body, described);
    let (head, body) = ask(&mut http, "GET", "/v1/models/meta/llama").await;
    check(head.status, &body, (404, Some("model"), Some("model_not_found")), "'meta/llama'");
    assert_eq!(world.get("/live").await, (200, "live\n".to_owned()));
    assert!(world.get("/metrics").await.1.contains("# TYPE baton_requests_open gauge"));
}

#[tokio::test]
async fn neutral_values_and_nulls_change_nothing() {
    let mut world = World::new().await;
    let plain = json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": "Hi" }] });
    let neutral = json!({
        "model": "tiny-rust",
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "H" }, { "type": "text", "text": "i" }], "name": null }],
        "tools": [], "tool_choice": "none", "parallel_tool_calls": true, "logit_bias": null, "n": 1, "store": false,
        "metadata": {}, "service_tier": "auto", "user": "someone", "response_format": { "type": "text" }, "stop": null,
        "temperature": null, "logprobs": false, "top_logprobs": 0, "stream": false, "stream_options": null, "top_k": -1,
    });
    let mut prompts = Vec::new();
    for body in [plain, neutral] {
        let mut http = world.client().await;
        http.post(CHAT, &body).await;
        let submit = world.workers[0].submit().await;
        world.workers[0].make(&submit, 0, &[70], domain::End::stop()).await;
        assert_eq!(http.json().await.0.status, 200);
        prompts.push((submit.prompt, submit.params));
    }
    assert_eq!(prompts[0], prompts[1]);
}
