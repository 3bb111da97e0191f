//! Requests that run at once, what they are answered, and what an undisturbed service says to them.

use crate::http::{Connection, post};
use crate::server::Server;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

/// A request, and its answer in the undisturbed run.
#[derive(Clone, Debug)]
pub(super) struct Question {
    body: Value,
    told: Answer,
}

/// An answer: the text of each choice and how it ended, and how many tokens that are.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Answer {
    choices: BTreeMap<u64, (String, String)>,
    tokens: u64,
}

/// How a request ended.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Outcome {
    /// As it should.
    Answer(Answer),
    /// With an error, whose code this is.
    Error(String),
    /// The connection broke, or nothing came for too long.
    Broken(String),
}

/// Questions of different lengths, answered by an undisturbed monolithic service on `device`.
pub(super) fn questions(device: &str) -> Vec<Question> {
    let lengths = [1, 17, 40, 64, 100, 150, 200, 300, 400, 513];
    ask_undisturbed(device, (0..).zip(lengths).map(|(at, length)| (at, length, 30 + at * 7, 1 + at % 4 / 3)))
}

/// Questions whose answers take a while, with one choice each, so that they can move.
pub(super) fn long_questions(device: &str) -> Vec<Question> {
    // A step of the CPU engine takes far less time than one of the simulated device.
    let tokens = if device == "cpu" { 900 } else { 150 };
    ask_undisturbed(device, (0..8).map(|at| (at + 100, 20 + at * 30, tokens + at * 10, 1)))
}

/// Conversations, answered by an undisturbed monolithic service: for each turn a question of each of them, which
/// repeats all that was said before.
pub(super) fn conversations(count: usize, turns: usize) -> Vec<Vec<Question>> {
    let server = Server::start(&["--prefill", "0", "--threads", "1", "--set", "engine.block_tokens=16"]);
    let begin =
        |at| (0..12).map(|n| format!("Point {n} of conversation {at}: who owns value {}? ", n * at + n)).collect();
    let mut said: Vec<String> = (0..count).map(begin).collect();
    let mut turn = |turn| -> Vec<Question> {
        let ask = |(at, said): (usize, &mut String)| {
            *said += &format!(" Then, in turn {turn}, what about the borrow?");
            let body = json!({
                "model": "tiny-rust", "prompt": said, "max_tokens": 30, "seed": at, "temperature": at % 2,
                "ignore_eos": true, "stream": true, "stream_options": { "include_usage": true },
            });
            let Outcome::Answer(told) = ask(server.address, &body) else { panic!("no answer to {body}") };
            *said += &told.choices[&0].0;
            Question { body, told }
        };
        said.iter_mut().enumerate().map(ask).collect()
    };
    (0..turns).map(&mut turn).collect()
}

/// `shapes`: number, tokens of the prompt, tokens and choices of the answer.
fn ask_undisturbed(device: &str, shapes: impl Iterator<Item = (u32, u32, u32, u32)>) -> Vec<Question> {
    let body = |(at, length, tokens, choices): (u32, u32, u32, u32)| {
        let prompt: Vec<u32> = (0..length).map(|i| 300 + (i * 37 + at * 101) % 3000).collect();
        json!({
            "model": "tiny-rust", "prompt": prompt, "max_tokens": tokens, "n": choices, "seed": at, "temperature": at % 2,
            "ignore_eos": true, "stream": true, "stream_options": { "include_usage": true },
        })
    };
    let questions = said_undisturbed(&["--device", device, "--set", "sim.speed_percent=0"], shapes.map(body));
    for Question { body, told } in &questions {
        let tokens = body["max_tokens"].as_u64().zip(body["n"].as_u64()).map(|(tokens, choices)| tokens * choices);
        assert_eq!(Some(told.tokens), tokens, "nothing but the limit ends a text");
    }
    questions
}

/// Questions with these bodies, answered by an undisturbed monolithic service with these flags.
pub(super) fn said_undisturbed(flags: &[&str], bodies: impl Iterator<Item = Value>) -> Vec<Question> {
    let settings = ["--set", "kv.device_bytes=64MiB", "--set", "engine.block_tokens=16"];
    let server = Server::start(&[&["--prefill", "0", "--threads", "1"], &settings[..], flags].concat());
    let question = |body: Value| {
        let Outcome::Answer(told) = ask(server.address, &body) else { panic!("no answer to {body}") };
        Question { body, told }
    };
    bodies.map(question).collect()
}

/// Asks all questions at once; `begun` is called when every one of them has its first token or has ended.
pub(super) fn ask_all(address: SocketAddr, questions: &[Question], begun: impl FnOnce()) -> Vec<Outcome> {
    let (first, firsts) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let asked: Vec<_> = questions
            .iter()
            .map(|question| {
                let mut first = Some(first.clone());
                scope.spawn(move || {
                    let outcome = asked(address, &question.body, || drop(first.take()));
                    outcome.unwrap_or_else(|error| Outcome::Broken(error.to_string()))
                })
            })
            .collect();
        drop(first);
        // Nobody sends anything: it ends when all have dropped their end.
        let _ = firsts.recv();
        begun();
        asked.into_iter().map(|asked| asked.join().expect("a client does not panic")).collect()
    })
}

/// Asks all questions at once, and panics unless every answer is that of the undisturbed run.
pub(super) fn check_all(address: SocketAddr, questions: &[Question]) {
    check_answers(questions, &ask_all(address, questions, || ()));
}

/// Panics unless every outcome is the answer of the undisturbed run.
pub(super) fn check_answers(questions: &[Question], outcomes: &[Outcome]) {
    for (question, outcome) in questions.iter().zip(outcomes) {
        assert_eq!(*outcome, Outcome::Answer(question.told.clone()), "{}", question.body);
    }
}

/// Panics unless every outcome is the answer of the undisturbed run or `excused`; how many are the latter.
pub(super) fn check_excused(questions: &[Question], outcomes: &[Outcome], excused: impl Fn(&Outcome) -> bool) -> usize {
    let (lost, answered): (Vec<_>, Vec<_>) = questions.iter().zip(outcomes).partition(|(_, outcome)| excused(outcome));
    for (question, outcome) in answered {
        assert_eq!(*outcome, Outcome::Answer(question.told.clone()), "{}", question.body);
    }
    lost.len()
}

fn ask(address: SocketAddr, body: &Value) -> Outcome {
    asked(address, body, || ()).unwrap_or_else(|error| Outcome::Broken(error.to_string()))
}

/// Asks; `first` is called with every piece of text. Errors: the connection broke.
fn asked(address: SocketAddr, body: &Value, mut first: impl FnMut()) -> io::Result<Outcome> {
    let mut connection = Connection::open(address)?;
    connection.send(&post("/v1/completions", body))?;
    let head = connection.head()?;
    if head.status != 200 {
        let length = head.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let bytes: io::Result<Vec<u8>> = (0..length).map(|_| Ok(connection.byte()?.unwrap_or(b' '))).collect();
        let error: Value = serde_json::from_slice(&bytes?).expect("errors are JSON");
        return Ok(error_of(&error));
    }
    let mut answer = Answer::default();
    while let Some(event) = connection.event()? {
        if event == "[DONE]" {
            return Ok(Outcome::Answer(answer));
        }
        let chunk: Value = serde_json::from_str(&event).expect("events are JSON");
        if !chunk["error"].is_null() {
            return Ok(error_of(&chunk));
        }
        first();
        answer.tokens = chunk["usage"]["completion_tokens"].as_u64().unwrap_or(answer.tokens);
        for choice in chunk["choices"].as_array().into_iter().flatten() {
            let (text, finish) = answer.choices.entry(choice["index"].as_u64().expect("an index")).or_default();
            assert_eq!(finish, "", "nothing follows the end of a sequence");
            *text += choice["text"].as_str().unwrap_or_default();
            *finish += choice["finish_reason"].as_str().unwrap_or_default();
        }
    }
    Ok(Outcome::Broken("the stream ends without [DONE]".to_owned()))
}

fn error_of(body: &Value) -> Outcome {
    let error = &body["error"];
    assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "a client is told why: {body}");
    Outcome::Error(error["code"].as_str().unwrap_or_else(|| panic!("no code in {body}")).to_owned())
}
