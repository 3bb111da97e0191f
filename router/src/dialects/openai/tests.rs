//! From bodies to requests.

use super::{Chat, Completion};
use crate::ModelCard;
use crate::api::{Limits, ParsedRequest};
use crate::dialects::{Dialect, ask, is_quick};
use crate::error::ApiError;
use crate::sessions::Service;
use crate::tests::world::{CONTEXT, EOS, LIMITS, SERVICE, card, tokens};
use domain::SamplingParams;
use domain::session::ModelShape;
use engine::text::{ChatTemplate, SpecialTokens};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

fn parse(dialect: &dyn Dialect, body: &str) -> Result<ParsedRequest, ApiError> {
    ask(dialect, body.as_bytes(), &card(), &Limits::of(&LIMITS, &SERVICE))
}

fn completion(more: &Value) -> ParsedRequest {
    let mut body = json!({ "model": "tiny-rust", "prompt": "Ownership is" });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    parse(&Completion, &body.to_string()).expect("it is valid")
}

/// Checks the sampling that the fields `more` of a completion ask for.
fn check(more: &Value, wanted: SamplingParams) {
    assert_eq!(*completion(more).prompts[0].params, wanted, "{more}");
}

#[test]
fn a_completion_that_says_nothing_gets_the_defaults() {
    let ask = completion(&json!({}));
    let wanted = SamplingParams { max_tokens: 16, stop_tokens: vec![EOS], ..Default::default() };
    assert_eq!(*ask.prompts[0].params, wanted);
    assert_eq!((ask.options.choices, ask.options.stream, ask.options.seed), (1, false, None));
}

#[test]
fn every_field_of_sampling_arrives() {
    check(
        &json!({
            "temperature": 0.5, "top_p": 0.25, "top_k": 40, "min_p": 0.125, "presence_penalty": -1.5,
            "frequency_penalty": 1.5, "repetition_penalty": 1.25, "logit_bias": { "70": -100, "5": 2.5 },
            "logprobs": 3, "stop_token_ids": [9, 7, 9], "min_tokens": 2, "max_tokens": 8, "ignore_eos": true,
        }),
        SamplingParams {
            temperature: 0.5,
            top_p: 0.25,
            top_k: 40,
            min_p: 0.125,
            presence_penalty: -1.5,
            frequency_penalty: 1.5,
            repetition_penalty: 1.25,
            logit_bias: vec![(5, 2.5), (70, -100.0)],
            logprobs: Some(3),
            stop_tokens: vec![7, 9],
            min_tokens: 2,
            max_tokens: 8,
            grammar: None,
        },
    );
}

#[test]
fn zero_top_p_means_the_most_probable_token() {
    assert!(completion(&json!({ "top_p": 0 })).prompts[0].params.top_p > 0.0);
}

#[test]
fn seeds_and_stops_arrive() {
    let ask = completion(&json!({ "seed": -1, "stop": "a", "n": 3, "best_of": 3 }));
    assert_eq!((ask.options.seed, ask.options.stops, ask.options.choices), (Some(u64::MAX), vec!["a".to_owned()], 3));
    assert_eq!(completion(&json!({ "stop": ["a", "b"] })).options.stops, ["a", "b"]);
}

#[test]
fn special_tokens_are_hidden_unless_the_client_asks_for_them() {
    let special = |more: &Value| completion(more).options.special_tokens;
    assert_eq!(special(&json!({})), SpecialTokens::Hidden);
    assert_eq!(special(&json!({ "skip_special_tokens": true })), SpecialTokens::Hidden);
    assert_eq!(special(&json!({ "skip_special_tokens": false })), SpecialTokens::Shown);
}

#[test]
fn a_developer_speaks_as_the_system() {
    let said = |role: &str| {
        let body = json!({ "model": "tiny-rust", "messages": [
            { "role": role, "content": "Be brief." }, { "role": "user", "content": "Hi" },
        ] });
        parse(&Chat, &body.to_string()).expect("it is valid").prompts
    };
    assert_eq!(said("developer"), said("system"));
}

#[test]
fn others_wait_for_no_long_text_and_for_tokens() {
    let quick =
        |dialect: &dyn Dialect, prompt: Value| is_quick(dialect, json!({ "prompt": prompt }).to_string().as_bytes());
    let (text, tokens) = ("12345 ".repeat(2000), vec![12345_u32; 2000]);
    assert!(quick(&Completion, json!("short")) && quick(&Completion, json!(tokens)));
    assert!(quick(&Completion, json!([tokens, tokens])));
    assert!(!quick(&Completion, json!(text)) && !quick(&Completion, json!([text])));
    assert!(!quick(&Chat, json!(tokens)), "a chat has texts");
    assert!(!quick(&Completion, json!(vec![12345_u32; 100_000])), "too many of them");
}

#[test]
fn what_a_client_has_read_of_an_answer_may_come_back() {
    let call =
        |more: &str| format!(r#"{{"id":"a","type":"function","function":{{"name":"f","arguments":"{{}}"{more}}}}}"#);
    let chat = |parsed: &str, call: &str| {
        let turn = format!(r#"{{"role":"assistant","content":"x"{parsed},"tool_calls":[{call}]}}"#);
        let result = r#"{"role":"tool","tool_call_id":"a","content":"y"}"#;
        format!(r#"{{"model":"tiny-rust","messages":[{{"role":"user","content":"Hi"}},{turn},{result}]}}"#)
    };
    let plain = parse(&Chat, &chat("", &call(""))).expect("it is valid");
    let read = chat(r#","parsed":{"a":1}"#, &call(r#","parsed_arguments":{}"#));
    assert_eq!(parse(&Chat, &read).expect("it is valid").prompts[0].tokens, plain.prompts[0].tokens);
}

#[test]
fn a_model_without_a_template_takes_no_chat() {
    let card = ModelCard { template: None, ..card() };
    let body = json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": "Hi" }] }).to_string();
    let error = ask(&Chat, body.as_bytes(), &card, &Limits::of(&LIMITS, &SERVICE)).expect_err("no template");
    let json = String::from_utf8(super::error(&error)).expect("UTF-8");
    assert!(json.contains("no chat template") && json.contains(r#""param":"messages""#), "{json}");
}

/// Returns what is wrong with a body, as the client reads it.
fn refusal(dialect: &dyn Dialect, body: &Value, card: &ModelCard) -> String {
    let error = ask(dialect, body.to_string().as_bytes(), card, &Limits::of(&LIMITS, &SERVICE)).expect_err("refused");
    String::from_utf8(super::error(&error)).expect("UTF-8")
}

#[test]
fn a_token_that_only_the_tokenizer_has_is_refused_wherever_it_comes_from() {
    // A model with fewer tokens than its tokenizer: as where a tokenizer has tokens of pictures and the model has not.
    let last = *tokens("Ownership").iter().max().expect("tokens");
    let card = ModelCard { shape: ModelShape { vocab: last, ..card().shape }, ..card() };
    let chat = json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": "Ownership" }] });
    let completion = json!({ "model": "tiny-rust", "prompt": "Ownership" });
    let cases: [(&dyn Dialect, _, _); 2] = [(&Chat, "messages", chat), (&Completion, "prompt", completion)];
    for (dialect, field, body) in cases {
        let error = refusal(dialect, &body, &card);
        let named = format!("'{field}' has the token {last}; the model's tokens are below {last}.");
        assert!(error.contains(&named) && error.contains("invalid_request_error"), "{error}");
    }
}

/// Returns a model with this chat template.
fn card_with(template: &str) -> ModelCard {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("baton-router-template-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("chat_template.jinja"), template).expect("a file");
    let template = ChatTemplate::open(&dir).expect("it is valid");
    std::fs::remove_dir_all(dir).expect("removed");
    ModelCard { template, ..card() }
}

/// Returns a chat with these further fields.
fn chat(more: &Value) -> Value {
    let mut body = json!({ "model": "tiny-rust", "messages": [
        { "role": "user", "content": "Hi" }, { "role": "assistant", "content": "It is " },
    ] });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

/// A template that shows what it is given.
const SHOWING: &str = "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}\
    {% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}{{ style.name if style is defined }}";

/// The prompt of a chat with these further fields, as text, and whether the answer goes on with it.
fn prompt(more: &Value) -> (String, bool) {
    let card = card_with(SHOWING);
    let body = chat(more).to_string();
    let ask = ask(&Chat, body.as_bytes(), &card, &Limits::of(&LIMITS, &SERVICE)).expect("it is valid");
    (card.tokenizer.decode(&ask.prompts[0].tokens, SpecialTokens::Hidden), ask.options.goes_on)
}

#[test]
fn variables_of_a_chat_reach_its_template() {
    assert_eq!(prompt(&json!({})).0, "[Hi][It is ]>");
    let variables = json!({ "enable_thinking": false, "style": { "name": "brief" } });
    assert_eq!(prompt(&json!({ "chat_template_kwargs": variables })).0, "[Hi][It is ]>Falsebrief");
    assert_eq!(prompt(&json!({ "chat_template_kwargs": null })).0, "[Hi][It is ]>");
}

#[test]
fn the_client_says_how_its_chat_ends() {
    assert_eq!(prompt(&json!({ "add_generation_prompt": true })), ("[Hi][It is ]>".to_owned(), false));
    assert_eq!(prompt(&json!({ "add_generation_prompt": false })), ("[Hi][It is ]".to_owned(), false));
    let open = ("[Hi][It is ".to_owned(), true);
    assert_eq!(prompt(&json!({ "continue_final_message": true })), open);
    assert_eq!(prompt(&json!({ "continue_final_message": true, "add_generation_prompt": false })), open);
}

#[test]
fn what_a_template_cannot_be_given_is_the_clients_mistake() {
    let card = card_with(SHOWING);
    let refused = |more: Value, words: &[&str]| {
        let error = refusal(&Chat, &chat(&more), &card);
        assert!(error.contains("invalid_request_error"), "{error}");
        words.iter().for_each(|word| assert!(error.contains(word), "{error}"));
    };
    for name in ["messages", "bos_token", "add_generation_prompt", "tools"] {
        let field = format!("chat_template_kwargs.{name}");
        refused(json!({ "chat_template_kwargs": { name: 1 } }), &[&field, "cannot be set"]);
    }
    refused(json!({ "chat_template_kwargs": [1] }), &["'chat_template_kwargs' must be an object"]);
    refused(json!({ "chat_template_kwargs": { "a": "x".repeat(16 << 10) } }), &["chat_template_kwargs", "16384"]);
    // The template fails on it: `1.name.x`.
    let strict = card_with("{{ style.name.x }}");
    let error = refusal(&Chat, &chat(&json!({ "chat_template_kwargs": { "style": 1 } })), &strict);
    assert!(error.contains("invalid_request_error") && error.contains("cannot render"), "{error}");
    refused(
        json!({ "continue_final_message": true, "add_generation_prompt": true }),
        &["continue_final_message", "add_generation_prompt"],
    );
    let user = json!([{ "role": "user", "content": "Hi" }]);
    refused(json!({ "continue_final_message": true, "messages": user }), &["continue_final_message", "assistant"]);
}

proptest! {
    /// Whatever the bytes, the answer is a request or an error, and an accepted request keeps to the limits.
    #[test]
    fn no_body_breaks_the_parser(
        field in "messages|prompt|n|stop|logit_bias|stream_options|temperature|seed|tools|max_tokens|[a-z]{0,3}",
        value in r#"(\[|\]|\{|\}|"|:|,|-?[0-9]{1,20}(\.[0-9]{1,3})?|true|null|[a-z]| |\\u[0-9a-f]{4}){0,8}"#,
        chat in any::<bool>(),
    ) {
        let (dialect, prompt): (&dyn Dialect, _) = if chat {
            (&Chat, r#""messages":[{"role":"user","content":"x"}]"#)
        } else {
            (&Completion, r#""prompt":"x""#)
        };
        let body = format!(r#"{{"model":"tiny-rust",{prompt},"{field}":{value}}}"#);
        if let Ok(ask) = parse(dialect, &body) {
            for prompt in &ask.prompts {
                prop_assert!(!prompt.tokens.is_empty() && prompt.params.max_tokens >= 1);
                prop_assert!(prompt.tokens.len() as u32 + prompt.params.max_tokens <= CONTEXT);
            }
        }
    }
}

#[test]
fn an_answer_that_nobody_bounds_is_as_long_as_every_worker_takes() {
    let service = Service { common_context: CONTEXT / 2, ..SERVICE };
    let made = |prompt: u32, more: &Value| {
        let mut body =
            json!({ "model": "tiny-rust", "messages": [{ "role": "user", "content": "a ".repeat(prompt as usize) }] });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let limits = Limits::of(&LIMITS, &service);
        let ask = ask(&Chat, body.to_string().as_bytes(), &card(), &limits).expect("it is valid");
        let [prompt] = &ask.prompts[..] else { panic!("one prompt") };
        (prompt.tokens.len() as u32, prompt.params.max_tokens)
    };
    let (prompt, most) = made(4, &json!({}));
    assert_eq!(prompt + most, CONTEXT / 2);
    // Whoever asks for more, or says more, goes where there is room for it.
    assert_eq!(made(4, &json!({ "max_tokens": CONTEXT / 2 })).1, CONTEXT / 2);
    let (prompt, most) = made(CONTEXT / 2 + 8, &json!({}));
    assert!(prompt > CONTEXT / 2 && prompt + most == CONTEXT, "{prompt} and {most}");
}
