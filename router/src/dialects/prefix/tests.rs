use super::*;
use crate::dialects::{ask, openai};
use crate::tests::world::{CONTEXT, LIMITS, SERVICE, card, tokens};
use serde_json::{Value, json};
use tonic::Code;

fn limits() -> Limits {
    Limits::of(&LIMITS, &SERVICE)
}

fn read(body: &Value) -> Result<Vec<Token>, String> {
    let tokens = prefix(body.to_string().as_bytes(), &card(), &limits()).map(|tokens| tokens.to_vec());
    tokens.map_err(|error| error.to_admin().message().to_owned())
}

/// The prompt of a chat as clients send it.
fn prompt(messages: &Value) -> Vec<Token> {
    let body = json!({ "model": "tiny-rust", "messages": messages }).to_string();
    let asked = ask(&openai::Chat, body.as_bytes(), &card(), &limits()).expect("it is a chat");
    asked.prompts[0].tokens.to_vec()
}

#[test]
fn the_prompt_of_every_chat_that_goes_on_begins_with_the_prefix() {
    let system = json!({ "role": "system", "content": "Be short." });
    let user = json!({ "role": "user", "content": "What is ownership?" });
    for messages in [json!([system]), json!([system, user])] {
        let named = read(&json!({ "messages": messages })).expect("it is a chat");
        let mut longer = messages.as_array().expect("a list").clone();
        longer.push(json!({ "role": "user", "content": "And borrowing?" }));
        let prompt = prompt(&longer.into());
        assert!(prompt.starts_with(&named), "{named:?} {prompt:?}");
    }
    // What clients send can be given as it is.
    let body = json!({ "model": "tiny-rust", "messages": [system, user], "temperature": 0.5, "stream": true });
    assert_eq!(read(&body), read(&json!({ "messages": [system, user] })));
    let answer = json!({ "messages": [system, user], "add_generation_prompt": true });
    assert_eq!(read(&answer), Ok(prompt(&json!([system, user]))));
    let open = json!({ "messages": [user, { "role": "assistant", "content": "It" }], "continue_final_message": true });
    assert!(read(&open).is_ok(), "the prefix may end within a message");
}

#[test]
fn a_completion_is_a_text_or_tokens() {
    assert_eq!(read(&json!({ "prompt": "Ownership is" })), Ok(tokens("Ownership is")));
    assert_eq!(read(&json!({ "prompt": [5, 6, 7] })), Ok(vec![5, 6, 7]));
}

#[test]
fn what_is_no_prefix_is_named() {
    let refused = |body: Value, why: &str| {
        let error = read(&body).expect_err("it is none");
        assert!(error.contains(why), "{body}: {error}");
    };
    refused(json!({ "model": "tiny-rust" }), "'messages', or a completion with 'prompt'");
    refused(json!({ "prompt": "a", "messages": [] }), "'messages', or a completion with 'prompt'");
    refused(json!({ "prompt": ["a", "b"] }), "2 prompts; a prefix is one");
    refused(json!({ "prompt": "a", "model": "another" }), "'another' does not exist");
    refused(json!({ "prompt": "a", "colour": 1 }), "Unknown parameter: 'colour'");
    refused(json!({ "prompt": vec![5; CONTEXT as usize] }), "maximum context length");
    let error = prefix(b"You are helpful.", &card(), &limits()).expect_err("it is no JSON");
    assert_eq!(error.to_admin().code(), Code::InvalidArgument);
}
