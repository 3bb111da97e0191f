//! A real chat model in a quantised file: its answers are the same on every path, bit for bit.
//!
//! Skipped where the model was not fetched.

use crate::asks::{Ask, CHAT, Said, check_all};
use crate::chat_model::{GOLDENS, fetched};
use crate::server::{Server, until};
use serde::Deserialize;
use serde_json::{Value, json};

/// Chats of the goldens: a fact, code, several turns, and a long prompt.
pub(crate) const ASKED: [&str; 4] = ["capital", "python", "turns", "passage"];
/// Tokens of an answer, at most.
pub(crate) const ANSWER_MAX: u32 = 48;
/// The second turn of each.
const NEXT: &str = "Say that again in other words.";
/// What every server here is told.
const FLAGS: [&str; 4] = ["--threads", "1", "--set", "engine.block_tokens=16"];
/// A device that is too small for the chats together: a block has 360 KiB.
const SMALL: &str = "12MiB";

/// A chat.
#[derive(Debug, Deserialize)]
pub(crate) struct Chat {
    name: String,
    messages: Vec<Value>,
    /// The tokens that transformers makes of them.
    pub(crate) prompt: Vec<u32>,
}

/// The chats that are asked here.
pub(crate) fn chats() -> Vec<Chat> {
    #[derive(Deserialize)]
    struct Chats {
        chats: Vec<Chat>,
    }
    let Chats { chats } = serde_json::from_str(GOLDENS).expect("make_chats.py made it");
    let asked: Vec<Chat> = chats.into_iter().filter(|chat| ASKED.contains(&chat.name.as_str())).collect();
    assert_eq!(asked.len(), ASKED.len());
    asked
}

fn ask(messages: &[Value]) -> Ask {
    let body = json!({
        "model": "chat", "messages": messages, "temperature": 0, "max_tokens": ANSWER_MAX, "logprobs": true,
    });
    Ask { path: CHAT, body }
}

/// Asks for both turns of each chat; the second repeats what was answered to the first. Returns what was said, turn by
/// turn, with the prompt tokens that a cache had.
fn converse(server: &Server) -> Vec<[(Ask, Said, u64); 2]> {
    let turns = |chat: &Chat| {
        let first = ask(&chat.messages);
        let (said, cached) = first.whole(server);
        assert_eq!(said.prompt_tokens, chat.prompt.len() as u64, "{}", chat.name);
        let answer = json!({ "role": "assistant", "content": said.choices[&0].text });
        let second = ask(&[&chat.messages[..], &[answer, json!({ "role": "user", "content": NEXT })]].concat());
        let (then_said, then_cached) = second.streamed(server);
        [(first, said, cached), (second, then_said, then_cached)]
    };
    chats().iter().map(turns).collect()
}

/// A server of the model at the path, with these flags and settings.
fn serve(path: &str, flags: &[&str], environment: &[(&str, &str)]) -> Server {
    let all = [&["--model", path, "--set", "model.name=chat"], &FLAGS[..], flags].concat();
    Server::start_with(&all, environment)
}

#[test]
fn a_fetched_model_says_the_same_on_every_path() {
    let Some(path) = fetched() else { return };
    let path = path.to_str().expect("it has a UTF-8 name");
    let server = serve(path, &["--prefill", "0"], &[]);
    // What the README lets a newcomer ask. Its answer is the most probable one by far, so no rounding changes it.
    let first = ask(&[json!({ "role": "user", "content": "What is the capital of France? Answer in one sentence." })]);
    assert_eq!(first.whole(&server).0.choices[&0].text, "The capital of France is Paris.");
    let plain = converse(&server);
    drop(server);
    let said: Vec<(Ask, Said)> = plain.iter().flatten().map(|(ask, said, _)| (ask.clone(), said.clone())).collect();

    println!("handed off, and the second turns with a cached prefix");
    let server = serve(path, &[], &[("BATON_PLACEMENT__HANDOFF", "always")]);
    let (handed_off, mut cached) = (converse(&server), 0);
    for (turns, expected) in handed_off.iter().zip(&plain) {
        assert_eq!([&turns[0].1, &turns[1].1], [&expected[0].1, &expected[1].1], "{:?}", turns[0].0);
        cached += turns[1].2;
    }
    assert!(cached > 0, "no second turn finds its prefix cached");
    check_all(&server, &said, said.len(), true);
    let taken = server.settled().sum("baton_handoffs_total", &[("result", "taken")]);
    assert!(taken >= said.len() as f64, "{taken} of {} were handed off", said.len());
    drop(server);

    println!("offloaded to memory and loaded back");
    let environment = [
        ("BATON_KV__DEVICE_BYTES", SMALL),
        ("BATON_HOST__BYTES", "128MiB"),
        ("BATON_HOST__WRITE", "through"),
        ("BATON_KV__HIGH_PERCENT", "40"),
        ("BATON_KV__LOW_PERCENT", "0"),
    ];
    let server = serve(path, &["--prefill", "0"], &environment);
    check_all(&server, &said, 1, false);
    check_all(&server, &said, 1, true);
    let loaded = || server.metrics().sum("baton_prompt_source_tokens_sum", &[("source", "host")]);
    until("tokens from the host tier", || (loaded() > 0.0).then_some(()));
    server.settled();
}
