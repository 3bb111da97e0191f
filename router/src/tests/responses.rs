//! Responses of OpenAI's API: events, what is kept, and who may go on from it.

use super::http::Http;
use super::tools::{WEATHER, model};
use super::world::{CONTEXT, EOS, World, row, tokenizer, tokens};
use crate::{ResponsesConfig, RouterConfig};
use domain::End;
use domain::session::{PROTOCOL, Submit};
use engine::text::SpecialTokens;
use keys::{KeyEntry, KeyFile, KeyHash, Keys};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const PATH: &str = "/v1/responses";
/// Bytes that all tests but one may keep.
const BYTES_MAX: u64 = 1 << 20;

fn store(folder: &Path, bytes_max: u64) -> ResponsesConfig {
    let store = LocalFileSystem::new_with_prefix(folder).expect("a folder");
    ResponsesConfig {
        store: Arc::new(store) as Arc<dyn ObjectStore>,
        place: folder.display().to_string(),
        bytes_max,
        age_max: Duration::from_secs(3600),
    }
}

async fn world(folder: &TempDir, change: impl FnOnce(&mut RouterConfig)) -> World {
    let responses = store(folder.path(), BYTES_MAX);
    let change = |config: &mut RouterConfig| {
        config.responses = Some(responses);
        change(config);
    };
    World::with(1, change).await
}

/// The same with a model whose template tells all roles and calls, and whose reasoning is between special tokens.
async fn telling_world(folder: &TempDir) -> World {
    let responses = store(folder.path(), BYTES_MAX);
    World::begin((PROTOCOL.newest, 1), model(), |config| config.responses = Some(responses)).await
}

fn prompt(submit: &Submit) -> String {
    tokenizer().decode(&submit.prompt, SpecialTokens::Shown)
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn body(more: &Value) -> Value {
    let mut body = json!({ "model": "tiny-rust", "input": "What is ownership?", "max_output_tokens": 8 });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

/// Asks, has the worker answer `text`, and returns what it was given and the response.
async fn answered(world: &mut World, http: &mut Http, more: &Value, text: &str) -> (Submit, Value) {
    http.post(PATH, &body(more)).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].make(&submit, 0, &[tokens(text), vec![EOS]].concat(), End::stop()).await;
    let (head, response) = http.json().await;
    assert_eq!(head.status, 200, "{response}");
    (submit, response)
}

async fn ask(http: &mut Http, method: &str, path: &str) -> (u16, Value) {
    http.send(method, path, "application/json", b"").await;
    let (head, body) = http.json().await;
    (head.status, body)
}

fn id(response: &Value) -> String {
    response["id"].as_str().expect("an id").to_owned()
}

/// The fields of a response that has just begun.
fn begun(id: &str, created: &Value) -> Value {
    json!({
        "id": id, "object": "response", "created_at": created, "completed_at": null, "status": "in_progress",
        "background": false, "conversation": null, "error": null, "incomplete_details": null, "instructions": null,
        "max_output_tokens": 8, "max_tool_calls": null, "metadata": {}, "model": "tiny-rust", "output": [],
        "parallel_tool_calls": true, "previous_response_id": null, "prompt": null, "prompt_cache_key": null,
        "prompt_cache_retention": null, "reasoning": { "effort": null, "summary": null }, "safety_identifier": null,
        "service_tier": "default", "store": true, "temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0,
        "frequency_penalty": 0.0, "text": { "format": { "type": "text" }, "verbosity": "medium" },
        "tool_choice": "auto", "tools": [], "top_logprobs": 0, "truncation": "disabled", "usage": null, "user": null,
    })
}

#[tokio::test]
async fn a_response_streams_with_every_event_and_is_kept_when_it_ends() {
    let folder = folder();
    let mut world = world(&folder, |_| {}).await;
    let mut http = world.client().await;
    http.post(PATH, &body(&json!({ "stream": true }))).await;
    let submit = world.workers[0].submit().await;
    assert_eq!(&submit.prompt[..], tokens("<|bos|><|user|>What is ownership?<|end|><|assistant|>"));
    let text = tokens("A rule");
    let mut first = row(&submit, 0, 0, text[0]);
    first.cached_tokens = 4;
    world.workers[0].row(first).await;
    world.workers[0].write(&submit, 0, 1, &[text[1], EOS]).await;
    world.workers[0].end(&submit, 0, 3, End::stop()).await;
    assert_eq!(http.head().await.status, 200);
    let named = http.named_events().await;
    let named: Vec<(&str, Value)> =
        named.iter().map(|(kind, data)| (kind.as_str(), serde_json::from_str(data).expect("JSON"))).collect();
    let first = &named[0].1["response"];
    let (id, created) = (id(first), &first["created_at"]);
    let message = format!("msg_{}00", id.strip_prefix("resp_").expect("its form"));
    let part = |text: &str| json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
    let item = |status: &str, content: Value| json!({ "type": "message", "id": message, "status": status, "role": "assistant", "content": content });
    let at = |mut fields: Value| {
        fields["item_id"] = Value::from(message.as_str());
        fields["output_index"] = Value::from(0);
        fields["content_index"] = Value::from(0);
        fields
    };
    let done = item("completed", json!([part("A rule")]));
    let mut over = begun(&id, created);
    over["status"] = json!("completed");
    over["completed_at"] = named[named.len() - 1].1["response"]["completed_at"].clone();
    assert!(over["completed_at"].as_u64() >= created.as_u64());
    over["output"] = json!([done]);
    let prompt = submit.prompt.len();
    over["usage"] = json!({
        "input_tokens": prompt, "input_tokens_details": { "cached_tokens": 4, "cache_write_tokens": 0 },
        "output_tokens": 3, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": prompt + 3,
    });
    let mut expected = vec![
        ("response.created", json!({ "response": begun(&id, created) })),
        ("response.in_progress", json!({ "response": begun(&id, created) })),
        ("response.output_item.added", json!({ "output_index": 0, "item": item("in_progress", json!([])) })),
        ("response.content_part.added", at(json!({ "part": part("") }))),
        ("response.output_text.delta", at(json!({ "delta": "A", "logprobs": [] }))),
        ("response.output_text.delta", at(json!({ "delta": " rule", "logprobs": [] }))),
        ("response.output_text.done", at(json!({ "text": "A rule", "logprobs": [] }))),
        ("response.content_part.done", at(json!({ "part": part("A rule") }))),
        ("response.output_item.done", json!({ "output_index": 0, "item": done })),
        ("response.completed", json!({ "response": over })),
    ];
    for (number, (kind, fields)) in expected.iter_mut().enumerate() {
        fields["type"] = Value::from(*kind);
        fields["sequence_number"] = Value::from(number);
    }
    assert_eq!(named, expected);
    // Whoever has the last event can read the response.
    let mut http = world.client().await;
    assert_eq!(ask(&mut http, "GET", &format!("{PATH}/{id}")).await, (200, over));
    world.idle().await;
}

#[tokio::test]
async fn a_response_that_is_cut_is_incomplete_whole_and_streaming() {
    let folder = folder();
    let mut world = world(&folder, |_| {}).await;
    let mut http = world.client().await;
    let cut = End { finish: domain::Finish::Length, ..End::stop() };
    http.post(PATH, &body(&json!({ "max_output_tokens": 2, "metadata": { "a": "b" } }))).await;
    let submit = world.workers[0].submit().await;
    assert_eq!(submit.params.max_tokens, 2);
    world.workers[0].make(&submit, 0, &tokens("A rule"), cut.clone()).await;
    let response = http.json().await.1;
    assert_eq!((&response["status"], &response["metadata"]), (&json!("incomplete"), &json!({ "a": "b" })));
    assert_eq!(response["incomplete_details"], json!({ "reason": "max_output_tokens" }));
    assert_eq!(response["output"][0]["status"], "incomplete");
    assert_eq!(response["output"][0]["content"][0]["text"], "A rule");
    http.post(PATH, &body(&json!({ "max_output_tokens": 2, "stream": true }))).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].make(&submit, 0, &tokens("A rule"), cut).await;
    http.head().await;
    let events = http.named_events().await;
    assert_eq!(events.last().expect("events").0, "response.incomplete");
}

#[tokio::test]
async fn a_response_that_fails_says_so_in_its_last_event() {
    let folder = folder();
    let mut world = world(&folder, |config| config.placement.attempts_max = 1).await;
    let mut http = world.client().await;
    http.post(PATH, &body(&json!({ "stream": true }))).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].write(&submit, 0, 0, &tokens("A")).await;
    assert_eq!(http.head().await.status, 200);
    world.workers.remove(0).die();
    let events = http.named_events().await;
    let (kind, data) = events.last().expect("events");
    let failed: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(kind, "response.failed");
    assert_eq!(failed["sequence_number"], events.len() - 1);
    let response = &failed["response"];
    assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!("server_error")));
}

#[tokio::test]
async fn a_chain_of_responses_has_the_prompt_of_the_chat_with_the_same_messages() {
    let folder = folder();
    let mut world = telling_world(&folder).await;
    let mut http = world.client().await;
    let asked = json!({ "instructions": "Be brief.", "input": [{ "role": "user", "content": "Hi" }] });
    let (submit, first) = answered(&mut world, &mut http, &asked, "Yes").await;
    assert_eq!(prompt(&submit), "[system|Be brief.][user|Hi]>");
    // Instructions are not inherited.
    let next = json!({ "previous_response_id": first["id"], "input": "And why?" });
    let (submit, second) = answered(&mut world, &mut http, &next, "No").await;
    let parts = json!([{ "type": "input_text", "text": "So " }, { "type": "input_text", "text": "what?" }]);
    let input =
        json!([{ "type": "message", "role": "developer", "content": "Short." }, { "role": "user", "content": parts }]);
    let last = json!({ "previous_response_id": second["id"], "input": input });
    let (third, response) = answered(&mut world, &mut http, &last, "Ok").await;
    assert_eq!(response["previous_response_id"], second["id"]);
    let message = |role: &str, content: &str| json!({ "role": role, "content": content });
    let mut messages = vec![message("user", "Hi"), message("assistant", "Yes"), message("user", "And why?")];
    for (prompt, more) in [
        (submit.prompt, vec![]),
        (third.prompt, vec![message("assistant", "No"), message("developer", "Short."), message("user", "So what?")]),
    ] {
        messages.extend(more);
        http.post("/v1/chat/completions", &json!({ "model": "tiny-rust", "messages": messages })).await;
        let chat = world.workers[0].submit().await;
        world.workers[0].make(&chat, 0, &tokens("Yes"), End::stop()).await;
        assert_eq!(http.json().await.0.status, 200);
        assert_eq!(chat.prompt, prompt);
    }
    // The chain does not need its links.
    let path = format!("{PATH}/{}", id(&second));
    assert_eq!(ask(&mut http, "DELETE", &path).await.1["deleted"], true);
    assert_eq!(ask(&mut http, "GET", &path).await.0, 404);
    let (_, items) = ask(&mut http, "GET", &format!("{PATH}/{}/input_items?order=asc", id(&response))).await;
    let texts: Vec<&Value> =
        items["data"].as_array().expect("items").iter().map(|it| &it["content"][0]["text"]).collect();
    assert_eq!(texts, ["Hi", "Yes", "And why?", "No", "Short.", "So "]);
}

#[tokio::test]
async fn input_items_come_in_pages() {
    let folder = folder();
    let mut world = world(&folder, |_| {}).await;
    let mut http = world.client().await;
    let items: Vec<Value> =
        (0..3).map(|at| json!({ "id": format!("i{at}"), "role": "user", "content": "a" })).collect();
    let (_, response) = answered(&mut world, &mut http, &json!({ "input": items }), "Yes").await;
    let path = format!("{PATH}/{}/input_items", id(&response));
    for (query, ids, has_more) in [
        ("", vec!["i2", "i1", "i0"], false),
        ("?limit=2", vec!["i2", "i1"], true),
        ("?limit=2&after=i1&include[]=reasoning.encrypted_content", vec!["i0"], false),
        ("?limit=2&after=i0&order=asc", vec!["i1", "i2"], false),
    ] {
        let (status, page) = ask(&mut http, "GET", &format!("{path}{query}")).await;
        let found: Vec<&Value> = page["data"].as_array().expect("items").iter().map(|item| &item["id"]).collect();
        assert_eq!(
            (status, found, &page["has_more"]),
            (200, ids.iter().map(|id| json!(id)).collect::<Vec<_>>().iter().collect(), &json!(has_more)),
            "{query}"
        );
        assert_eq!((&page["first_id"], &page["last_id"]), (&json!(ids[0]), &json!(ids[ids.len() - 1])));
    }
    for query in ["?limit=0", "?limit=101", "?order=up", "?after=i9", "?before=i1"] {
        assert_eq!(ask(&mut http, "GET", &format!("{path}{query}")).await.0, 400, "{query}");
    }
    // Items that the client gave no id have one, so that every page has a next one.
    let next = json!({ "previous_response_id": response["id"] });
    let (_, next) = answered(&mut world, &mut http, &next, "No").await;
    let path = format!("{PATH}/{}/input_items?limit=2", id(&next));
    let (_, page) = ask(&mut http, "GET", &path).await;
    let last = page["last_id"].as_str().expect("an id");
    assert_eq!((last, &page["data"][0]["role"]), (&*id(&response["output"][0]), &json!("user")));
    let (_, page) = ask(&mut http, "GET", &format!("{path}&after={last}&include%5B%5D=file_search_call.results")).await;
    let found: Vec<String> = page["data"].as_array().expect("items").iter().map(id).collect();
    assert_eq!(found, ["i2", "i1"]);
}

#[tokio::test]
async fn an_id_names_no_other_object_than_a_response() {
    let folder = folder();
    let place = folder.path().join("responses");
    std::fs::create_dir(&place).expect("a folder");
    let config = store(&place, BYTES_MAX);
    let mut world = World::with(1, |router| router.responses = Some(config)).await;
    let mut http = world.client().await;
    let (_, response) = answered(&mut world, &mut http, &json!({}), "Yes").await;
    let file = place.join(format!("{}.json", id(&response)));
    for copy in ["other.json", "../other.json", "resp_.json", "probe.json"] {
        std::fs::copy(&file, place.join(copy)).expect("it is copied");
    }
    let upper = id(&response).replace("resp_", "").to_uppercase();
    std::fs::copy(&file, place.join(format!("resp_{upper}.json"))).expect("it is copied");
    let ids = ["other", "..%2Fother", "resp_", "probe", "%2E%2E%2Fother", &*format!("resp_{upper}")];
    for id in ids {
        for (method, more) in [("GET", ""), ("DELETE", ""), ("GET", "/input_items")] {
            assert_eq!(ask(&mut http, method, &format!("{PATH}/{id}{more}")).await.0, 404, "{method} {id}{more}");
        }
    }
    for id in ["other", "../other", "resp_/../other"] {
        http.post(PATH, &body(&json!({ "previous_response_id": id }))).await;
        let (head, error) = http.json().await;
        assert_eq!((head.status, &error["error"]["code"]), (400, &json!("previous_response_not_found")));
    }
    assert_eq!(ask(&mut http, "GET", &format!("{PATH}/{}", id(&response))).await.0, 200);
}

#[tokio::test]
async fn a_response_whose_client_hangs_up_is_not_kept() {
    let folder = folder();
    let mut world = world(&folder, |_| {}).await;
    let mut http = world.client().await;
    http.post(PATH, &body(&json!({ "stream": true }))).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].write(&submit, 0, 0, &tokens("A")).await;
    assert_eq!(http.head().await.status, 200);
    let begun = http.named_event().await.expect("an event").1;
    let begun: Value = serde_json::from_str(&begun).expect("JSON");
    let path = format!("{PATH}/{}", id(&begun["response"]));
    // It is not over: there is nothing to read, to go on from or to delete.
    let mut other = world.client().await;
    for method in ["GET", "DELETE"] {
        assert_eq!(ask(&mut other, method, &path).await.0, 404, "{method}");
    }
    drop(http);
    world.workers[0].cancelled(&submit).await;
    world.idle().await;
    assert_eq!(ask(&mut other, "GET", &path).await.0, 404);
    let files = std::fs::read_dir(folder.path()).expect("a folder");
    assert!(files.filter_map(Result::ok).all(|file| !file.file_name().to_string_lossy().starts_with("resp_")));
}

#[tokio::test]
async fn a_conversation_has_the_bounds_of_bodies() {
    let folder = folder();
    let mut world = world(&folder, |config| {
        config.body_bytes_max = 4096;
        config.bodies_bytes_max = 8192;
    })
    .await;
    let mut http = world.client().await;
    // All of them together are more than is held at once.
    let metadata = json!({ "metadata": { "a": "b".repeat(500) } });
    let mut responses = Vec::new();
    for _ in 0..8 {
        responses.push(answered(&mut world, &mut http, &metadata, "Yes").await.1);
    }
    let next = json!({ "previous_response_id": responses[0]["id"] });
    answered(&mut world, &mut http, &next, "No").await;
    let long = json!({ "previous_response_id": responses[0]["id"], "user": "c".repeat(3000) });
    let (status, error) = world.refused(PATH, &body(&long)).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("previous_response_id")), "{error}");
    // What open ones are to be kept with is held until they end.
    let held = json!({ "user": "c".repeat(2500) });
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut http = world.client().await;
        http.post(PATH, &body(&held)).await;
        open.push((world.workers[0].submit().await, http));
    }
    let mut refused = world.client().await;
    refused.post(PATH, &body(&held)).await;
    assert_eq!(refused.json().await.0.status, 429);
    for (submit, mut http) in open {
        world.workers[0].make(&submit, 0, &[EOS], End::stop()).await;
        assert_eq!(http.json().await.0.status, 200);
    }
    answered(&mut world, &mut http, &held, "Yes").await;
}

#[tokio::test]
async fn only_its_owner_reads_continues_or_deletes_a_response() {
    let (folder, keys) = (folder(), folder());
    let path = keys.path().join("keys.json");
    let entry = |key: &str, tenant: &str| KeyEntry::new(KeyHash::of(key), tenant.to_owned());
    let entries = [entry("one", "acme"), entry("sister", "acme"), entry("two", "other"), entry("three", "")];
    KeyFile::change(&path, |file| file.keys.extend(entries)).expect("it is written");
    let keys = Keys::open(&path).expect("it is read");
    let mut world = world(&folder, |config| config.keys = keys).await;
    let mut http = world.client().await;
    http.key = Some("one".into());
    let (_, response) = answered(&mut world, &mut http, &json!({}), "Yes").await;
    let (id, path) = (id(&response), format!("{PATH}/{}", id(&response)));
    for stranger in ["two", "three"] {
        http.key = Some(stranger.into());
        let none = format!("resp_{}", "0".repeat(48));
        for (method, more) in [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")] {
            let (status, said) = ask(&mut http, method, &format!("{path}{more}")).await;
            let (same, of_none) = ask(&mut http, method, &format!("{PATH}/{none}{more}")).await;
            assert_eq!((status, same), (404, 404));
            assert_eq!(said.to_string().replace(&id, "ID"), of_none.to_string().replace(&none, "ID"));
        }
        http.post(PATH, &body(&json!({ "previous_response_id": id }))).await;
        let (head, error) = http.json().await;
        assert_eq!((head.status, &error["error"]["code"]), (400, &json!("previous_response_not_found")));
        assert_eq!(error["error"]["param"], "previous_response_id");
    }
    http.key = None;
    assert_eq!(ask(&mut http, "GET", &path).await.0, 401);
    http.key = Some("sister".into());
    assert_eq!(ask(&mut http, "GET", &path).await, (200, response));
    assert_eq!(ask(&mut http, "POST", &format!("{path}/cancel")).await.0, 400);
    let deleted = json!({ "id": id, "object": "response", "deleted": true });
    assert_eq!(ask(&mut http, "DELETE", &path).await, (200, deleted));
    assert_eq!(ask(&mut http, "DELETE", &path).await.0, 404);
}

#[tokio::test]
async fn a_response_survives_the_router_and_is_not_kept_if_not_wanted() {
    let folder = folder();
    let mut first = world(&folder, |_| {}).await;
    let mut http = first.client().await;
    let (_, kept) = answered(&mut first, &mut http, &json!({}), "Yes").await;
    let (_, unkept) = answered(&mut first, &mut http, &json!({ "store": false }), "Yes").await;
    assert_eq!(unkept["store"], false);
    assert_eq!(ask(&mut http, "GET", &format!("{PATH}/{}", id(&unkept))).await.0, 404);
    drop(http);
    first.shut_down();
    first.over().await;
    let second = world(&folder, |_| {}).await;
    let mut http = second.client().await;
    assert_eq!(ask(&mut http, "GET", &format!("{PATH}/{}", id(&kept))).await, (200, kept));
}

#[tokio::test]
async fn the_oldest_leave_where_there_are_too_many_and_those_that_are_too_old() {
    let folder = folder();
    // Each counts 4 KiB.
    let few = store(folder.path(), 3 * 4096);
    let mut world = World::with(1, |config| config.responses = Some(few)).await;
    let mut http = world.client().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(id(&answered(&mut world, &mut http, &json!({}), "Yes").await.1));
    }
    let mut found = Vec::new();
    for id in &ids {
        found.push(ask(&mut http, "GET", &format!("{PATH}/{id}")).await.0);
    }
    // Before the fifth was made, the fourth was one too many, and a sixteenth is made free at once.
    assert_eq!(found, [404, 404, 200, 200, 200]);
    drop(http);
    world.shut_down();
    world.over().await;
    // The last one says that it is old; the file of the other one is.
    let file = |at: usize| folder.path().join(format!("{}.json", ids[at]));
    let mut record: Value = serde_json::from_slice(&std::fs::read(file(3)).expect("a file")).expect("JSON");
    record["response"]["created_at"] = json!(1000);
    std::fs::write(file(3), record.to_string()).expect("a file");
    let opened = std::fs::File::options().write(true).open(file(2)).expect("a file");
    opened.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1000)).expect("a time");
    let aged = store(folder.path(), BYTES_MAX);
    let world = World::with(1, |config| config.responses = Some(aged)).await;
    let mut http = world.client().await;
    assert_eq!(ask(&mut http, "GET", &format!("{PATH}/{}", ids[3])).await.0, 404);
    let path = format!("{PATH}/{}", ids[2]);
    world.until("the old one is deleted", &path, |status, _| status == 404).await;
    assert!(!file(2).exists() && file(3).exists());
}

#[tokio::test]
async fn a_broken_store_costs_one_response_its_place_and_no_other_its_tokens() {
    let folder = folder();
    let place = folder.path().join("responses");
    std::fs::create_dir(&place).expect("a folder");
    let config = store(&place, BYTES_MAX);
    let mut world = World::with(1, |router| router.responses = Some(config)).await;
    let mut http = world.client().await;
    answered(&mut world, &mut http, &json!({}), "Yes").await;
    std::fs::remove_dir_all(&place).expect("it is there");
    std::fs::write(&place, "in the way").expect("a file");
    // The router does not know yet: the answer is given.
    let (_, lost) = answered(&mut world, &mut http, &json!({}), "Yes").await;
    // Now it does.
    http.post(PATH, &body(&json!({}))).await;
    let (head, error) = http.json().await;
    assert_eq!((head.status, &error["error"]["code"]), (503, &json!("store_unavailable")), "{error}");
    answered(&mut world, &mut http, &json!({ "store": false }), "Yes").await;
    std::fs::remove_file(&place).expect("it is there");
    std::fs::create_dir(&place).expect("a folder");
    let (_, kept) = answered(&mut world, &mut http, &json!({}), "Yes").await;
    assert_eq!(ask(&mut http, "GET", &format!("{PATH}/{}", id(&lost))).await.0, 404);
    assert_eq!(ask(&mut http, "GET", &format!("{PATH}/{}", id(&kept))).await.0, 200);
}

#[tokio::test]
async fn truncation_leaves_out_the_oldest_items_and_no_more() {
    let folder = folder();
    let mut world = telling_world(&folder).await;
    let mut http = world.client().await;
    let long = "ownership ".repeat(100);
    let turn = |at: usize| {
        [json!({ "role": "user", "content": format!("{at} {long}") }), json!({ "role": "assistant", "content": "Yes" })]
    };
    let mut items: Vec<Value> = (0..8).flat_map(turn).collect();
    items.push(json!({ "role": "user", "content": "And?" }));
    let asked = json!({ "instructions": "Be brief.", "input": items });
    http.post(PATH, &body(&asked)).await;
    let (head, error) = http.json().await;
    assert_eq!((head.status, &error["error"]["code"]), (400, &json!("context_length_exceeded")), "{error}");
    let mut cut = asked;
    cut["truncation"] = json!("auto");
    let (submit, response) = answered(&mut world, &mut http, &cut, "Yes").await;
    assert_eq!(response["truncation"], "auto");
    let said = prompt(&submit);
    assert!(said.starts_with("[system|Be brief.][user|") && said.ends_with("[user|And?]>"), "{said}");
    let turns = said.matches("[assistant|Yes]").count();
    assert!(turns > 0 && turns < 8, "{turns} turns are left");
    let turn_tokens = tokens(&format!("[user|{} {long}][assistant|Yes]", 7 - turns)).len();
    assert!(submit.prompt.len() + turn_tokens + 8 > CONTEXT as usize, "one more would fit");
}

#[tokio::test]
async fn reasoning_and_calls_are_items_which_the_next_response_goes_on_from() {
    let folder = folder();
    let mut world = telling_world(&folder).await;
    let mut http = world.client().await;
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let tools = json!([{ "type": "function", "name": "weather", "description": null, "parameters": parameters }]);
    let asked = json!({ "input": "Hi", "tools": tools, "max_output_tokens": 200 });
    let text = format!("<|pad|>Hmm.<|bos|>I look.{WEATHER}");
    let (_, whole) = answered(&mut world, &mut http, &asked, &text).await;
    let mut streaming = asked.clone();
    streaming["stream"] = json!(true);
    http.post(PATH, &body(&streaming)).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].make(&submit, 0, &tokens(&text), End::stop()).await;
    assert_eq!(http.head().await.status, 200);
    let events = http.named_events().await;
    let events: Vec<Value> = events.iter().map(|(_, data)| serde_json::from_str(data).expect("JSON")).collect();
    let mut kinds: Vec<&str> = Vec::new();
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], at);
        kinds.push(event["type"].as_str().expect("a type").strip_prefix("response.").expect("its form"));
    }
    kinds.dedup();
    let expected = [
        &["created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.delta"][..],
        &["reasoning_text.done", "content_part.done", "output_item.done"],
        &["output_item.added", "content_part.added", "output_text.delta"],
        &["output_text.done", "content_part.done", "output_item.done"],
        &["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"],
        &["completed"],
    ];
    assert_eq!(kinds, expected.concat());
    // But for the ids, whole and streaming are the same.
    let told = |response: &Value| {
        let items = response["output"].as_array().expect("items").iter();
        let told = |item: &Value| json!([item["type"], item["content"][0]["text"], item["name"], item["arguments"]]);
        Value::from(items.map(told).collect::<Vec<_>>())
    };
    let call = json!(["function_call", null, "weather", "{\"city\": \"Paris\"}"]);
    let items = json!([["reasoning", "Hmm.", null, null], ["message", "I look.", null, null], call]);
    assert_eq!(told(&whole), items);
    assert_eq!(told(&events[events.len() - 1]["response"]), items);
    assert!(whole["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64() > Some(0), "{whole}");
    let call = whole["output"][2]["call_id"].as_str().expect("an id");
    let output = json!({ "type": "function_call_output", "call_id": call, "output": "Sunny" });
    let next = json!({ "previous_response_id": whole["id"], "input": [output] });
    let (submit, _) = answered(&mut world, &mut http, &next, "Yes").await;
    let wanted = format!("[user|Hi][assistant|I look.|Hmm.|weather Paris][tool|Sunny|{call}]>");
    assert_eq!(prompt(&submit), wanted);
    // The same from items that the client sends again.
    let mut input = vec![json!({ "role": "user", "content": "Hi" })];
    input.extend(whole["output"].as_array().expect("items").iter().cloned());
    input.push(output);
    let (submit, _) = answered(&mut world, &mut http, &json!({ "input": input }), "Yes").await;
    assert_eq!(prompt(&submit), wanted);
}

#[tokio::test]
async fn what_is_not_there_is_refused_by_name() {
    let folder = folder();
    let world = world(&folder, |_| {}).await;
    for (more, param) in [
        (json!({ "background": true }), "background"),
        (json!({ "conversation": "conv_1" }), "conversation"),
        (json!({ "include": ["message.thoughts"] }), "include"),
        (json!({ "text": { "format": { "type": "yaml" } } }), "text.format.type"),
        (json!({ "reasoning": { "effort": "low" } }), "reasoning.effort"),
        (json!({ "reasoning": { "summary": "auto" } }), "reasoning.summary"),
        (json!({ "tools": [{ "type": "web_search" }] }), "tools[0].type"),
        (json!({ "tool_choice": "required" }), "tool_choice"),
        (json!({ "truncation": "some" }), "truncation"),
        (json!({ "metadata": { "a": 1 } }), "metadata"),
        (json!({ "top_logprobs": 2 }), "top_logprobs"),
        (json!({ "input": [] }), "input"),
        (json!({ "input": [{ "type": "item_reference", "id": "x" }] }), "input[0].type"),
        (json!({ "input": [{ "role": "user", "content": [{ "type": "input_image" }] }] }), "input[0].content[0].type"),
        (json!({ "stream_options": { "include_obfuscation": false } }), "stream_options"),
        (json!({ "messages": [] }), "messages"),
    ] {
        let (status, error) = world.refused(PATH, &body(&more)).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!(param)), "{error}");
    }
    let without = World::new().await;
    let (status, error) = without.refused(PATH, &body(&json!({ "store": true }))).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("store")), "{error}");
}
