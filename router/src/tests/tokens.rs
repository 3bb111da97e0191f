//! Tokens in, tokens out: vLLM's form of it, and chats that are rendered to it.

use super::structure::{body as chat_body, model};
use super::world::{EOS, World, row, tokens};
use domain::End;
use domain::session::Submit;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const RENDER: &str = "/v1/chat/completions/render";
const GENERATE: &str = "/inference/v1/generate";

fn body(more: &Value) -> Value {
    let mut body = json!({ "token_ids": tokens("Ownership is"), "sampling_params": { "max_tokens": 8 } });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

/// Returns what a worker gets of a request, and the whole answer of two tokens.
async fn submitted(world: &mut World, path: &str, body: &Value) -> (Submit, Value) {
    let mut http = world.client().await;
    http.post(path, body).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].write(&submit, 0, 0, &[tokens("A rule")[0], EOS]).await;
    world.workers[0].end(&submit, 0, 2, End::stop()).await;
    let (head, answer) = http.json().await;
    assert_eq!(head.status, 200, "{answer}");
    (submit, answer)
}

#[tokio::test]
async fn tokens_are_answered_with_tokens() {
    let mut world = World::new().await;
    let sampling = json!({ "max_tokens": 8, "temperature": 0.5, "top_k": -1, "logprobs": 0, "detokenize": false });
    let more = json!({ "request_id": "mine", "model": "tiny-rust", "sampling_params": sampling, "priority": 0 });
    let (submit, answer) = submitted(&mut world, GENERATE, &body(&more)).await;
    assert_eq!(&submit.prompt[..], tokens("Ownership is"));
    assert_eq!((submit.params.temperature, submit.params.max_tokens, submit.params.logprobs), (0.5, 8, Some(0)));
    let id = format!("gen-{:016x}", submit.request.0);
    assert_eq!((&answer["request_id"], &answer["id"]), (&json!("mine"), &json!(id)));
    let choice = &answer["choices"][0];
    assert_eq!(choice["token_ids"], json!([tokens("A rule")[0], EOS]));
    assert_eq!((&choice["index"], &choice["finish_reason"]), (&json!(0), &json!("stop")));
    let usage = &answer["usage"];
    let prompt = tokens("Ownership is").len();
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(prompt), &json!(2)));
    assert!(choice.get("text").is_none(), "{choice}");
}

#[tokio::test]
async fn a_stream_of_tokens_ends_with_its_usage() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    let more = json!({ "stream": true, "stream_options": { "include_usage": true } });
    http.post(GENERATE, &body(&more)).await;
    let submit = world.workers[0].submit().await;
    let text = tokens("A rule");
    world.workers[0].row(row(&submit, 0, 0, text[0])).await;
    world.workers[0].write(&submit, 0, 1, &[text[1], EOS]).await;
    world.workers[0].end(&submit, 0, 3, End::stop()).await;
    assert_eq!(http.head().await.status, 200);
    let events = http.events().await;
    let (done, chunks) = events.split_last().expect("events");
    assert_eq!(done, "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
    let came = chunks.iter().filter_map(|chunk| chunk["choices"][0]["token_ids"].as_array()).flatten();
    assert_eq!(came.map(|token| token.as_u64().expect("a token") as u32).collect::<Vec<_>>(), [text[0], text[1], EOS]);
    assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "stop");
    assert_eq!(chunks[chunks.len() - 1]["usage"]["completion_tokens"], 3);
    let id = format!("gen-{:016x}", submit.request.0);
    assert!(chunks.iter().all(|chunk| chunk["request_id"] == id.as_str()), "{chunks:?}");
}

#[tokio::test]
async fn a_chat_that_is_rendered_asks_for_the_same() {
    let mut world = World::of_model(model()).await;
    let all = json!({
        "temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "presence_penalty": 0.5, "frequency_penalty": -0.5,
        "repetition_penalty": 1.5, "seed": -3, "stop": ["x"], "stop_token_ids": [7], "min_tokens": 1, "max_tokens": 9,
        "logit_bias": { "5": -1.0 }, "logprobs": true, "top_logprobs": 2, "cache_salt": "s",
    });
    for more in [json!({}), json!({ "max_tokens": null }), json!({ "ignore_eos": true }), all] {
        let chat = chat_body(CHAT, &more);
        let (asked, _) = submitted(&mut world, CHAT, &chat).await;
        let mut http = world.client().await;
        http.post(RENDER, &chat).await;
        let (head, mut rendered) = http.json().await;
        assert_eq!(head.status, 200, "{rendered}");
        // A seed that the client does not give is drawn.
        if rendered["sampling_params"]["seed"].is_null() {
            rendered["sampling_params"]["seed"] = json!(asked.seed as i64);
        }
        let (again, _) = submitted(&mut world, GENERATE, &rendered).await;
        assert_eq!((&again.prompt, &again.params, again.seed), (&asked.prompt, &asked.params, asked.seed), "{more}");
        assert_eq!(again.tenant, asked.tenant, "{more}");
    }
}

#[tokio::test]
async fn a_chat_that_is_rendered_keeps_its_form() {
    let mut world = World::of_model(model()).await;
    let schema = json!({ "type": "object", "properties": { "zoo": { "type": "integer" } }, "required": ["zoo"] });
    let chat = chat_body(CHAT, &json!({ "structured_outputs": { "json": schema } }));
    let mut http = world.client().await;
    http.post(RENDER, &chat).await;
    let (_, rendered) = http.json().await;
    let (submit, _) = submitted(&mut world, GENERATE, &rendered).await;
    let grammar = submit.params.grammar.as_ref().expect("a grammar").text();
    assert!(grammar.contains("%lark") && grammar.contains("zoo"), "{grammar}");
}

#[tokio::test]
async fn what_is_no_request_of_tokens_is_refused_by_name() {
    let world = World::new().await;
    for (more, param) in [
        (json!({ "token_ids": [] }), "token_ids"),
        (json!({ "token_ids": "Hi" }), "token_ids"),
        (json!({ "token_ids": [1_000_000] }), "token_ids"),
        (json!({ "token_ids": null }), "token_ids"),
        (json!({ "sampling_params": null }), "sampling_params"),
        (json!({ "sampling_params": { "temperature": 3 } }), "sampling_params.temperature"),
        (json!({ "sampling_params": { "prompt_logprobs": 1 } }), "sampling_params.prompt_logprobs"),
        (json!({ "sampling_params": { "frobnicate": 1 } }), "sampling_params.frobnicate"),
        (json!({ "features": {} }), "features"),
        (json!({ "kv_transfer_params": {} }), "kv_transfer_params"),
        (json!({ "priority": 1 }), "priority"),
        (json!({ "request_id": "" }), "request_id"),
        (json!({ "model": "other" }), "model"),
        (json!({ "prompt": "Hi" }), "prompt"),
    ] {
        let (status, error) = world.refused(GENERATE, &body(&more)).await;
        assert_eq!(error["error"]["param"], param, "{more}: {error}");
        assert!(status == 400 || status == 404, "{status}");
    }
    let (status, error) = world.refused(RENDER, &json!({ "model": "tiny-rust", "messages": [] })).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("messages")));
}
