//! From bodies to prompts and options, and the times of answers.

use super::{Chat, Generate, show};
use crate::ModelCard;
use crate::api::{Limits, ParsedRequest};
use crate::dialects::time::rfc3339;
use crate::dialects::{Dialect, ask, openai};
use crate::error::ApiError;
use crate::output::OutputForms;
use crate::tests::world::{CONTEXT, EOS, LIMITS, SERVICE, card, tokens};
use domain::{SamplingParams, Token};
use engine::text::{ChatTemplate, SpecialTokens};
use serde_json::{Value, json};

fn parse(dialect: &dyn Dialect, body: &Value, card: &ModelCard) -> Result<ParsedRequest, ApiError> {
    ask(dialect, body.to_string().as_bytes(), card, &Limits::of(&LIMITS, &SERVICE))
}

fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn chat(more: &Value) -> Value {
    with(json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": "Hi" }] }), more)
}

fn completion(more: &Value) -> Value {
    with(json!({ "model": "tiny-rust", "prompt": "Hi" }), more)
}

fn prompt(dialect: &dyn Dialect, body: &Value) -> Vec<Token> {
    parse(dialect, body, &card()).expect("it is valid").prompts[0].tokens.to_vec()
}

/// A model whose template shows what it is given, and which calls tools and thinks.
fn showing() -> ModelCard {
    const TEMPLATE: &str = "{% if tools %}{{ tools[0].function.name }}{% endif %}{% for m in messages %}[{{ m.role }}|\
        {{ m.content }}{% if m.reasoning_content %}|{{ m.reasoning_content }}{% endif %}{% for call in m.tool_calls %}|\
        {{ call.id }} {{ call.function.arguments.city }}{% endfor %}{% if m.tool_call_id %}|{{ m.name }} \
        {{ m.tool_call_id }}{% endif %}]{% endfor %}{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}\
        {% if reasoning_effort %}{{ reasoning_effort }}{% endif %}";
    let folder = tempfile::TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("chat_template.jinja"), TEMPLATE).expect("a file");
    let template = ChatTemplate::open(folder.path()).expect("it is valid");
    let forms = OutputForms::of("hermes", "<|pad|> <|bos|>", template.as_ref()).expect("they are known");
    ModelCard { template, forms, ..card() }
}

/// Returns the prompt that this model gets, as text.
fn shown(dialect: &dyn Dialect, body: &Value) -> String {
    let card = showing();
    let ask = parse(dialect, body, &card).expect("it is valid");
    card.tokenizer.decode(&ask.prompts[0].tokens, SpecialTokens::Hidden)
}

#[test]
fn a_prompt_is_that_of_openais_api() {
    let messages = json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hi" }]);
    let wanted = prompt(&openai::Chat, &json!({ "model": "tiny-rust", "messages": messages }));
    assert_eq!(prompt(&Chat, &chat(&json!({ "messages": messages }))), wanted);
    assert_eq!(prompt(&Generate, &completion(&json!({ "system": "Be brief." }))), wanted);
    assert_eq!(prompt(&Chat, &chat(&json!({ "model": "tiny-rust:latest", "messages": messages }))), wanted);

    let raw = parse(&Generate, &completion(&json!({ "raw": true })), &card()).expect("it is valid");
    let wanted = prompt(&openai::Completion, &json!({ "model": "tiny-rust", "prompt": "Hi" }));
    assert_eq!((&raw.prompts[0].tokens[..], raw.options.goes_on), (&wanted[..], true));
    assert!(raw.options.output.is_none(), "all of the answer is text");
}

#[test]
fn an_answer_goes_on_where_the_last_message_is_its_beginning() {
    let turns = json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "It is " }]);
    let theirs = json!({ "model": "tiny-rust", "messages": turns, "continue_final_message": true });
    let mine = parse(&Chat, &chat(&json!({ "messages": turns })), &card()).expect("it is valid");
    assert_eq!(mine.prompts[0].tokens[..], prompt(&openai::Chat, &theirs));
    assert!(mine.options.goes_on);
}

#[test]
fn options_arrive() {
    let options = json!({
        "temperature": 0.5, "top_p": 0.25, "top_k": 40, "min_p": 0.125, "presence_penalty": -1.5,
        "frequency_penalty": 1.5, "repeat_penalty": 1.25, "num_predict": 8, "seed": 7, "stop": ["a", "b"],
        // Without effect.
        "num_ctx": 2048, "num_gpu": 1, "num_thread": 8, "num_batch": 2, "main_gpu": 0, "num_keep": 5, "use_mmap": true,
        "low_vram": false, "mirostat": 0, "mirostat_tau": 0.8, "typical_p": 1.0, "repeat_last_n": -1,
    });
    let more = json!({ "options": options, "stream": false, "keep_alive": "5m", "format": "" });
    for (dialect, body) in [(&Chat as &dyn Dialect, chat(&more)), (&Generate, completion(&more))] {
        let ask = parse(dialect, &body, &card()).expect("it is valid");
        let wanted = SamplingParams {
            temperature: 0.5,
            top_p: 0.25,
            top_k: 40,
            min_p: 0.125,
            presence_penalty: -1.5,
            frequency_penalty: 1.5,
            repetition_penalty: 1.25,
            stop_tokens: vec![EOS],
            max_tokens: 8,
            ..SamplingParams::default()
        };
        assert_eq!(*ask.prompts[0].params, wanted);
        let told = (ask.options.seed, &ask.options.stops[..], ask.options.stream);
        assert_eq!(told, (Some(7), &["a".to_owned(), "b".to_owned()][..], false));
    }
}

#[test]
fn what_is_not_said_is_the_models_and_the_answer_streams() {
    for more in [json!({}), json!({ "options": { "num_predict": -1, "seed": -1, "top_k": 0 } })] {
        let ask = parse(&Chat, &chat(&more), &card()).expect("it is valid");
        let prompt = &ask.prompts[0];
        let room = CONTEXT - prompt.tokens.len() as u32;
        let wanted = SamplingParams { stop_tokens: vec![EOS], max_tokens: room, ..SamplingParams::default() };
        assert_eq!((&*prompt.params, ask.options.stream, ask.options.seed), (&wanted, true, None));
    }
}

#[test]
fn calls_of_earlier_turns_and_their_answers_find_each_other() {
    let call = |name: &str, city: &str| json!({ "function": { "name": name, "arguments": { "city": city } } });
    let messages = json!([
        { "role": "assistant", "content": "", "thinking": "Hm", "tool_calls": [call("a", "Rome"), call("b", "Bonn")] },
        { "role": "tool", "tool_name": "b", "content": "2" },
        { "role": "tool", "tool_name": "a", "content": "1" },
        { "role": "assistant", "tool_calls": [{ "id": "x", "function": { "name": "c", "arguments": {} } }] },
        { "role": "tool", "tool_call_id": "x", "tool_name": "c", "content": "3" },
    ]);
    let wanted = "[assistant||Hm|call00000 Rome|call00001 Bonn][tool|2|b call00001][tool|1|a call00000][assistant||x ]\
        [tool|3|c x]";
    assert_eq!(shown(&Chat, &chat(&json!({ "messages": messages }))), wanted);
}

#[test]
fn templates_are_told_of_tools_and_whether_to_think() {
    let tools = json!([{ "type": "function", "function": { "name": "weather", "parameters": {} } }]);
    assert_eq!(shown(&Chat, &chat(&json!({ "tools": tools }))), "weather[user|Hi]");
    for (think, wanted) in [(json!(true), "True"), (json!(false), "False"), (json!("high"), "Truehigh")] {
        let more = json!({ "think": think });
        assert_eq!(shown(&Chat, &chat(&more)), format!("[user|Hi]{wanted}"));
        assert_eq!(shown(&Generate, &completion(&more)), format!("[user|Hi]{wanted}"));
    }
    assert!(parse(&Chat, &chat(&json!({ "think": false })), &card()).is_ok(), "a model that never thinks does not");
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let picture = json!([{ "role": "user", "content": "Hi", "images": ["aGk="] }]);
    let said = |message: Value| json!({ "messages": [message] });
    let chats = [
        (json!({ "model": null }), "'model'"),
        (json!({ "model": "other" }), "'other' does not exist"),
        (json!({ "model": "other:latest" }), "'other:latest' does not exist"),
        (json!({ "messages": picture }), "'messages[0].images' is not supported"),
        (said(json!({ "content": "x" })), "'messages[0].role'"),
        (said(json!({ "role": "developer", "content": "x" })), "'messages[0].role' is 'developer'"),
        (said(json!({ "role": "user", "content": ["x"] })), "'messages[0].content' must be a string"),
        (said(json!({ "role": "user", "content": "x", "thinking": "y" })), "'messages[0].thinking'"),
        (said(json!({ "role": "user", "content": "x", "surprise": 1 })), "'messages[0].surprise'"),
        (
            said(json!({ "role": "assistant", "tool_calls": [{ "function": { "name": "f", "arguments": "{}" } }] })),
            "'messages[0].tool_calls[0].function.arguments' must be an object",
        ),
        (json!({ "tools": [{ "type": "function", "function": { "name": "f" } }] }), "'tools'"),
        (json!({ "think": true }), "'think'"),
        (json!({ "think": "high" }), "'think'"),
        (json!({ "think": "some" }), "'think' must be a boolean or one of low, medium, high, max"),
        (json!({ "prompt": "x" }), "'prompt'"),
    ];
    let completions = [
        (json!({ "images": ["aGk="] }), "'images' is not supported"),
        (json!({ "suffix": "x" }), "'suffix' is not supported"),
        (json!({ "template": "x" }), "'template' is not supported"),
        (json!({ "context": [1] }), "'context' is not supported"),
        (json!({ "raw": true, "system": "x" }), "'system'"),
        (json!({ "raw": true, "think": true }), "'think' is not supported"),
        (json!({ "tools": [] }), "'tools'"),
    ];
    let both = [
        (json!({ "format": "yaml" }), "'format' is a string that is no JSON"),
        (json!({ "format": [] }), "'format' must be an object"),
        (json!({ "logprobs": true }), "'logprobs' is not supported"),
        (json!({ "truncate": true }), "'truncate' is not supported"),
        (json!({ "keep_alive": true }), "'keep_alive' must be a number"),
        (json!({ "stream": 1 }), "'stream' must be a boolean"),
        (json!({ "surprise": 1 }), "'surprise'"),
        (json!({ "options": [] }), "'options' must be an object"),
        (json!({ "options": { "temperature": 3 } }), "'options.temperature' must be between 0 and 2"),
        (json!({ "options": { "num_predict": 0 } }), "'options.num_predict' must be at least 1"),
        (json!({ "options": { "num_predict": -3 } }), "'options.num_predict' must be at least -2"),
        (json!({ "options": { "num_ctx": "big" } }), "'options.num_ctx' must be a number"),
        (json!({ "options": { "mirostat": 1 } }), "'options.mirostat' is not supported by this service, except as 0"),
        (json!({ "options": { "repeat_last_n": 64 } }), "'options.repeat_last_n' is not supported"),
        (json!({ "options": { "typical_p": 0.7 } }), "'options.typical_p' is not supported"),
        (json!({ "options": { "stop": [""] } }), "'options.stop' has an empty string"),
        (json!({ "options": { "surprise": 1 } }), "'options.surprise'"),
    ];
    let check = |dialect: &dyn Dialect, body: &Value, named: &str| {
        let error = parse(dialect, body, &card()).expect_err("it is refused");
        let body: Value = serde_json::from_slice(&dialect.error(&error, domain::RequestId(7))).expect("JSON");
        let message = body["error"].as_str().expect("a message");
        assert!(message.contains(named), "{message} does not say {named}");
        assert_eq!(body.as_object().expect("an object").len(), 1);
    };
    for (more, named) in chats.iter().chain(&both) {
        check(&Chat, &chat(more), named);
    }
    for (more, named) in completions.iter().chain(&both) {
        check(&Generate, &completion(more), named);
    }
}

#[test]
fn who_asks_nothing_asks_for_the_model_to_be_there() {
    for (dialect, body) in [
        (&Chat as &dyn Dialect, json!({ "model": "tiny-rust" })),
        (&Chat, json!({ "model": "tiny-rust", "messages": [], "keep_alive": 0 })),
        (&Generate, json!({ "model": "tiny-rust" })),
        (&Generate, json!({ "model": "tiny-rust", "prompt": "", "keep_alive": -1 })),
    ] {
        assert!(parse(dialect, &body, &card()).expect("it is valid").prompts.is_empty());
    }
}

#[test]
fn a_model_is_shown_with_what_it_can_do() {
    let shown = |body: Value, card: &ModelCard| show(body.to_string().as_bytes(), card, Some(&SERVICE.served));
    let told = shown(json!({ "model": "tiny-rust", "verbose": true }), &card()).expect("it is valid");
    assert_eq!(told["capabilities"], json!(["completion"]));
    let info = &told["model_info"];
    let context = format!("{}.context_length", info["general.architecture"].as_str().expect("a name"));
    assert_eq!(info[&context], json!(CONTEXT));
    assert!(told["parameters"].as_str().is_some_and(|lines| lines.contains("temperature")));
    let told = shown(json!({ "name": "tiny-rust:latest" }), &showing()).expect("older clients call it so");
    assert_eq!(told["capabilities"], json!(["completion", "tools", "thinking"]));
    for body in [json!({}), json!({ "model": "other" }), json!({ "model": "tiny-rust", "surprise": 1 })] {
        assert!(shown(body, &card()).is_err());
    }
}

#[test]
fn times_are_those_of_rfc_3339() {
    assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000000Z");
    assert_eq!(rfc3339(951_827_696_000_000_007), "2000-02-29T12:34:56.000000007Z");
}

#[test]
fn raw_prompts_name_special_tokens() {
    let body = completion(&json!({ "raw": true, "prompt": "<|user|>Hi<|end|>" }));
    assert!(prompt(&Generate, &body).ends_with(&tokens("<|user|>Hi<|end|>")));
    let body = completion(&json!({ "prompt": "<|end|>" }));
    let end = tokens("<|end|>")[0];
    let ends = prompt(&Generate, &body).iter().filter(|&&token| token == end).count();
    assert_eq!(ends, 1, "what a user says ends no turn");
}
