//! From bodies to prompts, and errors.

use super::{Messages, count_tokens};
use crate::api::Limits;
use crate::dialects::{Dialect, ask, openai};
use crate::error::ApiError;
use crate::tests::world::{LIMITS, SERVICE, card};
use domain::{RequestId, Token};
use serde_json::{Value, json};

fn tokens(dialect: &dyn Dialect, body: &Value) -> Result<Vec<Token>, ApiError> {
    let asked = ask(dialect, body.to_string().as_bytes(), &card(), &Limits::of(&LIMITS, &SERVICE))?;
    Ok(asked.prompts[0].tokens.to_vec())
}

fn body(more: Value) -> Value {
    let mut body = json!({ "model": "tiny-rust", "max_tokens": 8, "messages": [{ "role": "user", "content": "Hi" }] });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn refusal(more: Value) -> Value {
    let error = tokens(&Messages, &body(more)).expect_err("it is refused");
    serde_json::from_slice(&super::error(&error, RequestId(7))).expect("JSON")
}

#[test]
fn a_conversation_has_the_prompt_that_openais_api_makes_of_it() {
    let mine = body(json!({
        "system": [{ "type": "text", "text": "Be ", "cache_control": { "type": "ephemeral", "ttl": "1h" } },
                   { "type": "text", "text": "brief." }],
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hi" }] }],
    }));
    let theirs = json!({ "model": "tiny-rust", "messages": [
        { "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hi" },
    ] });
    let expected = tokens(&openai::Chat, &theirs).expect("it is valid");
    assert_eq!(tokens(&Messages, &mine).expect("it is valid"), expected);
    let counted = json!({ "model": "tiny-rust", "system": "Be brief.", "messages": mine["messages"] });
    let counted = count_tokens(counted.to_string().as_bytes(), &card()).expect("it is valid");
    assert_eq!(counted, json!({ "input_tokens": expected.len() }));
}

#[test]
fn an_answer_goes_on_where_the_last_message_is_its_beginning() {
    let turns = json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "It is " }]);
    let theirs = json!({ "model": "tiny-rust", "messages": turns, "continue_final_message": true });
    let expected = tokens(&openai::Chat, &theirs).expect("it is valid");
    assert_eq!(tokens(&Messages, &body(json!({ "messages": turns }))).expect("it is valid"), expected);
}

#[test]
fn what_clients_send_without_asking_changes_nothing() {
    let plain = tokens(&Messages, &body(json!({}))).expect("it is valid");
    let hidden = json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": [
        { "type": "redacted_thinking", "data": "x" }, { "type": "text", "text": "It is " },
    ] }]);
    let open = json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "It is " }]);
    for (more, expected) in [
        (json!({ "speed": "standard" }), &plain),
        (json!({ "context_management": { "edits": [] } }), &plain),
        (json!({ "output_config": { "effort": "medium" } }), &plain),
        (json!({ "anything": null }), &plain),
        (json!({ "messages": hidden }), &tokens(&Messages, &body(json!({ "messages": open }))).expect("it is valid")),
    ] {
        assert_eq!(&tokens(&Messages, &body(more.clone())).expect("it is valid"), expected, "{more}");
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name_in_anthropics_form() {
    let picture = json!([{ "role": "user", "content": [{ "type": "image", "source": {} }] }]);
    for (more, named) in [
        (json!({ "max_tokens": null }), "max_tokens"),
        (json!({ "messages": picture }), "messages[0].content[0]"),
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": [{ "role": "tool", "content": "x" }] }), "messages[0].role"),
        (json!({ "tools": [{ "name": "f" }] }), "tools"),
        (json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } }), "thinking"),
        (json!({ "temperature": 1.5 }), "temperature"),
        (json!({ "cache_control": { "type": "ephemeral", "ttl": "1d" } }), "cache_control.ttl"),
        (json!({ "stop_sequences": [""] }), "stop_sequences"),
        (json!({ "surprise": 1 }), "surprise"),
        (json!({ "speed": "fast" }), "speed"),
        (json!({ "thread": { "type": "create" } }), "thread"),
        (json!({ "output_config": { "effort": "some" } }), "output_config.effort"),
        (json!({ "output_config": { "format": {} } }), "output_config.format"),
    ] {
        let error = refusal(more);
        let message = error["error"]["message"].as_str().expect("a message");
        assert!(message.contains(named), "{message}");
        let id = RequestId(7).to_string();
        assert_eq!((&error["type"], &error["request_id"]), (&json!("error"), &json!(id)));
        assert_eq!(error["error"]["type"], "invalid_request_error");
    }
    assert_eq!(refusal(json!({ "model": "other" }))["error"]["type"], "not_found_error");
}
