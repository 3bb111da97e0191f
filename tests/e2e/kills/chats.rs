//! A decode worker that is killed while it answers chats with a real chat model: the other one ends them, and nobody
//! notices.
//!
//! Skipped where the model was not fetched.

use super::fleet::{Action, Fleet, Step};
use super::load::{check_all, said_undisturbed};
use crate::chat_model::fetched;
use crate::chats::{ANSWER_MAX, chats};
use serde_json::{Value, json};

/// Rounds of all chats until the worker has been killed.
const ROUNDS_MAX: usize = 8;

#[test]
fn chats_go_on_when_a_decode_worker_is_killed() {
    let Some(path) = fetched() else { return };
    let path = path.to_str().expect("it has a UTF-8 name");
    let body = |prompt: Vec<u32>| -> Value {
        json!({
            "model": "chat", "prompt": prompt, "max_tokens": ANSWER_MAX, "temperature": 0,
            "stream": true, "stream_options": { "include_usage": true },
        })
    };
    let bodies = chats().into_iter().map(|chat| body(chat.prompt));
    let questions = said_undisturbed(&["--model", path, "--set", "model.name=chat"], bodies);

    let settings = [&format!("model.path={path}"), "model.name=chat", Action::Kill.silence()];
    let armed = ("decode-1", Step("SessionSent", "tokens", 10), Action::Kill);
    let mut fleet = Fleet::start([1, 1, 2], &settings, Some(armed));
    let router = fleet.routers[0].seat.http;
    let fell = (0..ROUNDS_MAX).any(|_| {
        check_all(router, &questions);
        fleet.process("decode-1").has_fallen()
    });
    assert!(fell, "decode-1 sent fewer tokens");
    fleet.process("decode-1").restart();
    fleet.complete();
    check_all(router, &questions);
    fleet.at_rest("");
}
