//! Calls of tools and reasoning, in both dialects that have them.

use super::world::{Played, World, card, tokens};
use crate::ModelCard;
use crate::output::OutputForms;
use domain::End;
use domain::session::{Submit, ToWorker};
use engine::text::ChatTemplate;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

/// What a template of Hermes makes of a chat, in short.
const TEMPLATE: &str = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}|{{ m.content }}\
    {% if m.reasoning_content %}|{{ m.reasoning_content }}{% endif %}{% for call in m.tool_calls %}|{{ call.function.name }} \
    {{ call.function.arguments.city }}{% endfor %}{% if m.tool_call_id %}|{{ m.tool_call_id }}{% endif %}]{% endfor %}\
    {% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}>";

/// A call, as Hermes writes it.
pub(super) const WEATHER: &str =
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
pub(super) const TIME: &str = "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";

/// A model whose calls have the form of Hermes, and whose reasoning is between special tokens.
pub(super) fn model() -> ModelCard {
    let folder = tempfile::TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("chat_template.jinja"), TEMPLATE).expect("a file");
    let template = ChatTemplate::open(folder.path()).expect("it is valid");
    let forms = OutputForms::of("hermes", "<|pad|> <|bos|>", template.as_ref()).expect("they are known");
    ModelCard { template, forms, ..card() }
}

fn parameters() -> Value {
    json!({ "type": "object", "properties": { "city": { "type": "string" } } })
}

pub(super) fn tools() -> Value {
    let tool = |name: &str, more: Value| {
        let mut function = json!({ "name": name, "description": name });
        function.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({ "type": "function", "function": function })
    };
    json!([tool("weather", json!({ "parameters": parameters() })), tool("time", json!({}))])
}

fn with(mut body: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("it is an object") };
    body.as_object_mut().expect("an object").extend(more);
    body
}

fn chat(more: Value) -> Value {
    let said = json!([{ "role": "user", "content": "Hi" }]);
    with(json!({ "model": "tiny-rust", "messages": said, "tools": tools(), "max_tokens": 200 }), more)
}

fn message(more: Value) -> Value {
    let tool = |name: &str| json!({ "name": name, "description": name, "input_schema": parameters() });
    let said = json!([{ "role": "user", "content": "Hi" }]);
    let tools = json!([tool("weather"), tool("time")]);
    with(json!({ "model": "tiny-rust", "messages": said, "tools": tools, "max_tokens": 200 }), more)
}

/// Plays a worker that says `text` for each of `choices`.
pub(super) async fn say(worker: &mut Played, text: &str, choices: u16) -> Submit {
    let submit = worker.submit().await;
    for choice in 0..choices {
        worker.make(&submit, choice, &tokens(text), End::stop()).await;
    }
    submit
}

/// Returns the prompt that a chat or a message makes.
async fn prompt(world: &mut World, path: &str, body: &Value) -> String {
    let mut http = world.client().await;
    http.post(path, body).await;
    let submit = say(&mut world.workers[0], "Yes", 1).await;
    assert_eq!(http.json().await.0.status, 200);
    super::world::tokenizer().decode(&submit.prompt, engine::text::SpecialTokens::Shown)
}

async fn whole(world: &mut World, path: &str, body: &Value, text: &str, choices: u16) -> Value {
    let mut http = world.client().await;
    http.post(path, body).await;
    say(&mut world.workers[0], text, choices).await;
    let (head, answer) = http.json().await;
    assert_eq!(head.status, 200, "{answer}");
    answer
}

/// Returns the chunks of a chat that streams.
async fn chunks(world: &mut World, body: Value, text: &str, choices: u16) -> Vec<Value> {
    let mut http = world.client().await;
    http.post(CHAT, &with(body, json!({ "stream": true }))).await;
    say(&mut world.workers[0], text, choices).await;
    assert_eq!(http.head().await.status, 200);
    let mut events = http.events().await;
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    events.iter().map(|event| serde_json::from_str(event).expect("a chunk is JSON")).collect()
}

/// Joins the chunks of the choice `index` to a message, and returns it with its `finish_reason`.
fn joined(chunks: &[Value], index: usize) -> (Value, Value) {
    let mut message = json!({ "content": "", "tool_calls": [] });
    let mut finish = Value::Null;
    let choices = chunks.iter().map(|chunk| &chunk["choices"][0]).filter(|choice| choice["index"] == index);
    for choice in choices {
        assert_eq!(finish, Value::Null, "nothing comes behind the end");
        finish = choice["finish_reason"].clone();
        let delta = &choice["delta"];
        for field in ["content", "reasoning", "reasoning_content"] {
            if let Some(more) = delta[field].as_str() {
                let text = message[field].as_str().unwrap_or_default().to_owned() + more;
                message[field] = Value::from(text);
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let at = call["index"].as_u64().expect("an index") as usize;
            let calls = message["tool_calls"].as_array_mut().expect("a list");
            if at == calls.len() {
                assert_eq!((&call["type"], &call["function"]["arguments"]), (&json!("function"), &json!("")));
                calls.push(call.clone());
                calls[at].as_object_mut().expect("an object").remove("index");
            } else {
                assert!(call.get("id").is_none() && call["function"].get("name").is_none(), "once: {call}");
                let more = call["function"]["arguments"].as_str().expect("a string");
                let all = calls[at]["function"]["arguments"].as_str().expect("a string").to_owned() + more;
                calls[at]["function"]["arguments"] = Value::from(all);
            }
        }
    }
    (message, finish)
}

#[tokio::test]
async fn a_chat_calls_tools_whole_and_streaming() {
    let mut world = World::of_model(model()).await;
    let text = format!("Let me see.\n{WEATHER}\n{TIME}");
    let answer = whole(&mut world, CHAT, &chat(json!({})), &text, 1).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let message = &choice["message"];
    assert_eq!(message["content"], "Let me see.");
    let calls = message["tool_calls"].as_array().expect("calls");
    let called = |call: &Value| (call["function"]["name"].clone(), call["function"]["arguments"].clone());
    assert_eq!(called(&calls[0]), (json!("weather"), json!("{\"city\": \"Paris\"}")));
    assert_eq!(called(&calls[1]), (json!("time"), json!("{}")));
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert!(calls[0]["id"].as_str().is_some_and(|id| id.starts_with("call_")));

    let chunks = chunks(&mut world, chat(json!({ "n": 2 })), &text, 2).await;
    let arguments = chunks.iter().filter(|chunk| chunk["choices"][0]["delta"]["tool_calls"][0]["index"] == 0);
    assert!(arguments.count() > 6, "arguments come in several deltas, for each of two choices");
    for index in 0..2 {
        let (streamed, finish) = joined(&chunks, index);
        assert_eq!(finish, "tool_calls");
        assert_eq!(streamed["content"], message["content"]);
        let streamed = streamed["tool_calls"].as_array().expect("calls");
        assert_eq!(streamed.iter().map(called).collect::<Vec<_>>(), calls.iter().map(called).collect::<Vec<_>>());
    }
    assert_ne!(joined(&chunks, 0).0["tool_calls"][0]["id"], joined(&chunks, 1).0["tool_calls"][0]["id"]);

    let alone = whole(&mut world, CHAT, &chat(json!({})), TIME, 1).await;
    assert_eq!(alone["choices"][0]["message"]["content"], Value::Null, "it says nothing but a call");
    let cut = whole(&mut world, CHAT, &chat(json!({})), &WEATHER[..WEATHER.len() - 18], 1).await;
    let cut = &cut["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!((&cut["name"], &cut["arguments"]), (&json!("weather"), &json!("{\"city\": \"Par")));
    world.idle().await;
}

#[tokio::test]
async fn what_no_tool_may_be_called_for_is_text() {
    let mut world = World::of_model(model()).await;
    let without = with(chat(json!({})), json!({ "tools": [] }));
    for body in [without, chat(json!({ "tool_choice": "none" }))] {
        let answer = whole(&mut world, CHAT, &body, TIME, 1).await;
        let choice = &answer["choices"][0];
        assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(TIME), &json!("stop")));
        assert!(!prompt(&mut world, CHAT, &body).await.contains("weather"), "the template knows of none");
    }
    world.idle().await;
}

#[tokio::test]
async fn one_call_ends_the_answer_where_no_more_are_wanted() {
    let mut world = World::of_model(model()).await;
    for (path, body) in [
        (CHAT, chat(json!({ "parallel_tool_calls": false }))),
        (MESSAGES, message(json!({ "tool_choice": { "type": "auto", "disable_parallel_tool_use": true } }))),
    ] {
        let mut http = world.client().await;
        http.post(path, &body).await;
        let worker = &mut world.workers[0];
        let submit = worker.submit().await;
        let all = tokens(&format!("{TIME}\n{WEATHER}"));
        worker.write(&submit, 0, 0, &all).await;
        let told = worker.next().await;
        assert!(matches!(told, ToWorker::Cancel { .. }), "the worker is told: {told:?}");
        worker.end(&submit, 0, all.len() as u32, End::stop()).await;
        let answer = http.json().await.1;
        let (called, why) = match path {
            CHAT => (&answer["choices"][0]["message"]["tool_calls"], &answer["choices"][0]["finish_reason"]),
            _ => (&answer["content"], &answer["stop_reason"]),
        };
        assert_eq!(called.as_array().map(Vec::len), Some(1), "{answer}");
        assert_eq!(*why, if path == CHAT { "tool_calls" } else { "tool_use" });
    }
    world.idle().await;
}

#[tokio::test]
async fn reasoning_between_special_tokens_has_fields_of_its_own() {
    let mut world = World::of_model(model()).await;
    let text = "<|pad|>It is easy.<|bos|>\nNo. <|user|>";
    let answer = whole(&mut world, CHAT, &with(chat(json!({})), json!({ "tools": null })), text, 1).await;
    let told = &answer["choices"][0]["message"];
    assert_eq!((&told["reasoning"], &told["reasoning_content"]), (&json!("It is easy."), &json!("It is easy.")));
    assert_eq!(told["content"], "No. ", "the other special token is not shown");
    let reasoned = tokens("<|pad|>It is easy.<|bos|>\n").len();
    assert_eq!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], json!(reasoned));
    let chunks = chunks(&mut world, chat(json!({})), text, 1).await;
    let (streamed, finish) = joined(&chunks, 0);
    assert_eq!((&streamed["reasoning_content"], &streamed["content"]), (&json!("It is easy."), &json!("No. ")));
    assert_eq!(finish, "stop");
    world.idle().await;
}

#[tokio::test]
async fn turns_with_tools_reach_the_template_the_same_from_both_dialects() {
    let mut world = World::of_model(model()).await;
    let call = json!({ "id": "a1", "type": "function", "function": { "name": "weather", "arguments": "{\"city\":\"Oslo\"}" } });
    let said = json!([
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "a1", "content": [{ "type": "text", "text": "Rain" }] },
    ]);
    let of_chat = prompt(&mut world, CHAT, &chat(json!({ "messages": said }))).await;
    assert!(of_chat.ends_with("[user|Hi][assistant||Hm.|weather Oslo][tool|Rain|a1]>"), "{of_chat}");
    let blocks = json!([
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "Hm.", "signature": "" },
            { "type": "tool_use", "id": "a1", "name": "weather", "input": { "city": "Oslo" } },
        ] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a1", "content": "Rain" }] },
    ]);
    let tool = json!([{ "name": "weather", "description": "weather", "input_schema": parameters() }]);
    let of_message = prompt(&mut world, MESSAGES, &message(json!({ "messages": blocks, "tools": tool }))).await;
    let function = json!([tools()[0]]);
    let of_chat = prompt(&mut world, CHAT, &chat(json!({ "messages": said, "tools": function }))).await;
    assert_eq!(of_message, of_chat);
    // Whether to think is a variable of the template, however it is spelled.
    for (path, body) in [
        (CHAT, chat(json!({ "reasoning_effort": "none" }))),
        (MESSAGES, message(json!({ "thinking": { "type": "disabled" } }))),
    ] {
        assert!(prompt(&mut world, path, &body).await.ends_with("]False>"), "{path}");
    }
    let thinks = message(json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } }));
    assert!(prompt(&mut world, MESSAGES, &thinks).await.ends_with("]True>"));
    world.idle().await;
}

#[tokio::test]
async fn a_message_thinks_speaks_and_calls_in_blocks() {
    let mut world = World::of_model(model()).await;
    let text = format!("<|pad|>Hm.<|bos|>Let me see.\n{WEATHER}\n{TIME}");
    let answer = whole(&mut world, MESSAGES, &message(json!({})), &text, 1).await;
    assert_eq!(answer["stop_reason"], "tool_use");
    let kinds = |blocks: &[Value]| blocks.iter().map(|block| block["type"].clone()).collect::<Vec<_>>();
    let blocks = answer["content"].as_array().expect("blocks").clone();
    assert_eq!(kinds(&blocks), ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!((&blocks[0]["thinking"], &blocks[1]["text"]), (&json!("Hm."), &json!("Let me see.")));
    assert_eq!((&blocks[2]["name"], &blocks[2]["input"]), (&json!("weather"), &json!({ "city": "Paris" })));
    assert_eq!(blocks[3]["input"], json!({}));

    let mut http = world.client().await;
    http.post(MESSAGES, &message(json!({ "stream": true }))).await;
    say(&mut world.workers[0], &text, 1).await;
    http.head().await;
    let mut streamed: Vec<Value> = Vec::new();
    let mut arguments = String::new();
    let mut open = None;
    for (kind, data) in http.named_events().await {
        let data: Value = serde_json::from_str(&data).expect("JSON");
        let index = data["index"].as_u64().map(|index| index as usize);
        match kind.as_str() {
            "content_block_start" => {
                assert_eq!((open, index), (None, Some(streamed.len())));
                open = index;
                streamed.push(data["content_block"].clone());
            }
            "content_block_delta" => {
                assert_eq!(index, open);
                let block = streamed.last_mut().expect("a block has begun");
                let delta = &data["delta"];
                let field = match delta["type"].as_str().expect("a type") {
                    "text_delta" => "text",
                    "thinking_delta" => "thinking",
                    "input_json_delta" => {
                        arguments += delta["partial_json"].as_str().expect("a string");
                        continue;
                    }
                    other => panic!("{other}"),
                };
                let all =
                    block[field].as_str().expect("a string").to_owned() + delta[field].as_str().expect("a string");
                block[field] = Value::from(all);
            }
            "content_block_stop" => {
                assert_eq!(index, open.take());
                let block = streamed.last_mut().expect("a block has begun");
                if block["type"] == "tool_use" {
                    block["input"] = serde_json::from_str(&std::mem::take(&mut arguments)).expect("arguments are JSON");
                    block.as_object_mut().expect("an object").remove("id");
                }
            }
            "message_delta" => assert_eq!(data["delta"]["stop_reason"], "tool_use"),
            _ => {}
        }
    }
    let mut whole = blocks;
    for block in &mut whole[2..] {
        assert!(block["id"].as_str().is_some_and(|id| id.starts_with("toolu_")));
        block.as_object_mut().expect("an object").remove("id");
    }
    assert_eq!(streamed, whole);
    world.idle().await;
}

#[tokio::test]
async fn what_cannot_be_promised_is_refused_by_name() {
    let world = World::of_model(model()).await;
    let twice = json!([tools()[0], tools()[0]]);
    let named = json!([{ "type": "function", "function": { "name": "a b" } }]);
    let server = json!([{ "type": "web_search_20250305", "name": "web_search" }]);
    for (path, body, part) in [
        (CHAT, chat(json!({ "tools": twice })), "'weather' twice"),
        (CHAT, chat(json!({ "tools": named })), "'a b'"),
        (CHAT, chat(json!({ "tool_choice": { "type": "function", "function": { "name": "x" } } })), "'tool_choice'"),
        (MESSAGES, message(json!({ "tool_choice": { "type": "all" } })), "'tool_choice.type' is 'all'"),
        (MESSAGES, message(json!({ "tools": server })), "'tools[0].type'"),
        (MESSAGES, message(json!({ "thinking": { "type": "enabled" } })), "thinking.budget_tokens"),
        (
            MESSAGES,
            message(json!({ "messages": [{ "role": "user", "content": [{ "type": "tool_use" }] }] })),
            "'tool_use'",
        ),
    ] {
        let (status, error) = world.refused(path, &body).await;
        let why = error["error"]["message"].as_str().expect("a message");
        assert!(status == 400 && why.contains(part), "{why} does not say {part}");
    }
}
