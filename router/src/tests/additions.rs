//! What completions and chats can be asked for beyond OpenAI's usual fields.

use super::world::{EOS, World, row, tokens};
use domain::End;
use domain::plan::TokenLogprobs;
use domain::session::Submit;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETION: &str = "/v1/completions";

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn completion(more: Value) -> Value {
    with(json!({ "model": "tiny-rust", "prompt": "Ownership is", "max_tokens": 4 }), more)
}

fn chat(more: Value) -> Value {
    with(json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": "Hi" }] }), more)
}

/// Asks, and plays a worker that answers each choice with `text`. Returns what it was told, and the answer.
async fn whole(world: &mut World, path: &str, body: &Value, text: &str) -> (Submit, Value) {
    let mut http = world.client().await;
    http.post(path, body).await;
    let submit = world.workers[0].submit().await;
    for choice in 0..submit.choices.len() as u16 {
        world.workers[0].make(&submit, choice, &tokens(text), End::stop()).await;
    }
    let (head, answer) = http.json().await;
    assert_eq!(head.status, 200, "{answer}");
    (submit, answer)
}

/// Does the same with a stream. Returns its chunks.
async fn chunks(world: &mut World, path: &str, body: Value, text: &[u32]) -> (Submit, Vec<Value>) {
    let mut http = world.client().await;
    http.post(path, &with(body, json!({ "stream": true }))).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].make(&submit, 0, text, End::stop()).await;
    assert_eq!(http.head().await.status, 200);
    let mut events = http.events().await;
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    (submit, events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect())
}

fn joined(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect()
}

#[tokio::test]
async fn an_echo_begins_the_text_of_every_choice_once() {
    let mut world = World::new().await;
    let body = completion(json!({ "echo": true, "n": 2 }));
    let (_, answer) = whole(&mut world, COMPLETION, &body, " a rule").await;
    for choice in 0..2 {
        assert_eq!(answer["choices"][choice]["text"], "Ownership is a rule");
    }
    let prompt = tokens("<|bos|>Ownership");
    let body = completion(json!({ "echo": true, "prompt": prompt }));
    let (_, answer) = whole(&mut world, COMPLETION, &body, " is").await;
    assert_eq!(answer["choices"][0]["text"], "<|bos|>Ownership is", "tokens are told by their names");
    let (_, chunks) = chunks(&mut world, COMPLETION, completion(json!({ "echo": true })), &tokens(" a rule")).await;
    assert_eq!(joined(&chunks), "Ownership is a rule");
    assert!(chunks[0]["choices"][0]["text"].as_str().is_some_and(|text| text.starts_with("Ownership is")));
}

#[tokio::test]
async fn an_echo_with_no_token_is_the_prompt_alone() {
    let mut world = World::new().await;
    let body = completion(json!({ "echo": true, "max_tokens": 0 }));
    let (submit, answer) = whole(&mut world, COMPLETION, &body, " a").await;
    assert_eq!(submit.params.max_tokens, 1, "workers compute no prompt without a token behind it");
    let choice = &answer["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("Ownership is"), &json!("length")));
    assert_eq!(answer["usage"]["completion_tokens"], 0);
    let (_, chunks) = chunks(&mut world, COMPLETION, body, &tokens(" a")).await;
    assert_eq!(joined(&chunks), "Ownership is");
    assert_eq!(chunks.last().expect("a chunk")["choices"][0]["finish_reason"], "length");
    world.idle().await;
}

#[tokio::test]
async fn the_most_probable_of_several_sequences_are_told() {
    let mut world = World::new().await;
    let mut http = world.client().await;
    http.post(COMPLETION, &completion(json!({ "n": 2, "best_of": 3, "prompt": ["a", "b"] }))).await;
    for prompt in ["a", "b"] {
        let submit = world.workers[0].submit().await;
        assert_eq!((submit.choices.len(), submit.params.logprobs), (3, Some(0)));
        // The second is the best by the mean of its tokens, though not by their sum.
        for (choice, (text, logprob)) in [(" is", -0.75), (" a rule", -0.5), (" no", -2.0)].into_iter().enumerate() {
            let all = tokens(&format!("{prompt}{text}"));
            for (at, &token) in all.iter().enumerate() {
                let mut row = row(&submit, choice as u16, at as u32, token);
                row.logprobs = Some(TokenLogprobs { logprob, top: Vec::new() });
                world.workers[0].row(row).await;
            }
            world.workers[0].end(&submit, choice as u16, all.len() as u32, End::stop()).await;
        }
    }
    let (_, answer) = http.json().await;
    let told = |field: &str| -> Vec<Value> {
        answer["choices"].as_array().expect("choices").iter().map(|choice| choice[field].clone()).collect()
    };
    assert_eq!(told("text"), ["a a rule", "a is", "b a rule", "b is"]);
    assert_eq!(told("index"), [0, 1, 2, 3]);
    assert_eq!(told("logprobs"), vec![Value::Null; 4], "the client asked for none");
    let made: usize =
        ["a", "b"].iter().flat_map(|it| [" is", " a rule", " no"].map(|end| tokens(&format!("{it}{end}")).len())).sum();
    assert_eq!(answer["usage"]["completion_tokens"], made, "all of them were made");
}

#[tokio::test]
async fn ids_of_tokens_are_told_next_to_the_text() {
    let mut world = World::new().await;
    let ask = json!({ "return_token_ids": true });
    let text = tokens("A rule");
    let (submit, answer) = whole(&mut world, COMPLETION, &completion(ask.clone()), "A rule").await;
    let choice = &answer["choices"][0];
    assert_eq!((&choice["token_ids"], &choice["prompt_token_ids"]), (&json!(text), &json!(submit.prompt[..])));
    let (submit, answer) = whole(&mut world, CHAT, &chat(ask.clone()), "A rule").await;
    assert_eq!(answer["choices"][0]["token_ids"], json!(text));
    assert_eq!(answer["prompt_token_ids"], json!(submit.prompt[..]));

    // The token that ends the answer has no text, and is told, too.
    let all = [&text[..], &[EOS]].concat();
    for (path, body) in [(COMPLETION, completion(ask.clone())), (CHAT, chat(ask.clone()))] {
        let (submit, chunks) = chunks(&mut world, path, body, &all).await;
        let ids = chunks.iter().filter_map(|chunk| chunk["choices"][0]["token_ids"].as_array()).flatten();
        assert_eq!(ids.cloned().collect::<Vec<_>>(), all);
        let prompts = |chunk: &&Value| chunk["prompt_token_ids"].is_array();
        let in_choice = |chunk: &&Value| chunk["choices"][0]["prompt_token_ids"].is_array();
        assert_eq!(chunks.iter().filter(prompts).count() + chunks.iter().filter(in_choice).count(), 1, "told once");
        let first = if path == CHAT { &chunks[0] } else { &chunks[0]["choices"][0] };
        assert_eq!(first["prompt_token_ids"], json!(submit.prompt[..]));
    }
    let (_, answer) = whole(&mut world, COMPLETION, &completion(json!({})), "A rule").await;
    assert!(answer["choices"][0].get("token_ids").is_none());
}

#[tokio::test]
async fn the_stop_string_ends_the_text_that_asks_for_it() {
    let mut world = World::new().await;
    for (more, wanted) in [(json!({}), "A"), (json!({ "include_stop_str_in_output": true }), "A rule")] {
        let mut http = world.client().await;
        http.post(CHAT, &chat(with(more, json!({ "stop": " rule" })))).await;
        let submit = world.workers[0].submit().await;
        world.workers[0].write(&submit, 0, 0, &tokens("A rule")).await;
        world.workers[0].next().await;
        world.workers[0].end(&submit, 0, 2, End::stop()).await;
        let (_, answer) = http.json().await;
        assert_eq!(answer["choices"][0]["message"]["content"], wanted);
    }
}

#[tokio::test]
async fn prompts_share_a_cache_with_those_of_their_salt() {
    let mut world = World::new().await;
    let mut tenants = Vec::new();
    for more in [json!({}), json!({ "cache_salt": "a" }), json!({ "cache_salt": "b" }), json!({ "cache_salt": "a" })] {
        tenants.push(whole(&mut world, CHAT, &chat(more), "A").await.0.tenant);
    }
    assert_eq!(tenants[1], tenants[3]);
    assert!(tenants[0] != tenants[1] && tenants[1] != tenants[2] && tenants[0] != tenants[2], "{tenants:?}");
}

#[tokio::test]
async fn a_prompt_begins_with_the_special_tokens_that_are_asked_for() {
    let mut world = World::new().await;
    let body = completion(json!({ "add_special_tokens": false }));
    assert_eq!(whole(&mut world, COMPLETION, &body, "A").await.0.prompt[..], tokens("Ownership is"));
}
