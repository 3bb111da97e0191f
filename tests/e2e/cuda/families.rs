//! Every family of dense models as `baton serve --device cuda` answers it, next to what `--device cpu` answers.

use super::card::{TestCard, model};
use crate::asks::{Ask, CHAT};
use crate::models::Folder;
use crate::process::Process;
use crate::server::Server;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Every family of dense models.
const FAMILIES: [&str; 10] =
    ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "olmo2", "granite", "ministral3"];

/// How far a log probability may be from the one of the CPU, which computes in f32 where the card rounds to bf16.
const NEAR: f64 = 0.5;
/// Most probable tokens that are compared.
const TOP: usize = 5;
/// Prompts of a family.
const PROMPTS: u32 = 2;
/// Tokens of an answer.
const TOKENS: usize = 16;

/// One token of an answer: the token that was taken, and the most probable ones with their log probabilities.
struct Taken {
    token: String,
    top: BTreeMap<String, f64>,
}

impl Taken {
    /// Returns how much more probable its first token is than the second, as a difference of log probabilities.
    fn margin(&self) -> f64 {
        let mut top: Vec<f64> = self.top.values().copied().collect();
        top.sort_by(f64::total_cmp);
        let [.., second, first] = top[..] else { return 0.0 };
        first - second
    }
}

/// Asks, and returns what was said token by token. Tokens are told apart by their bytes, too: many of them are no text.
fn said(server: &Process, ask: &Ask) -> Vec<Taken> {
    let answer = server.post(CHAT, &ask.body).json();
    let name = |token: &Value| format!("{} {}", token["token"], token["bytes"]);
    let taken = |taken: &Value| {
        let top = taken["top_logprobs"].as_array().unwrap_or_else(|| panic!("top_logprobs in {taken}")).iter();
        let top = top.map(|token| (name(token), token["logprob"].as_f64().expect("a number")));
        Taken { token: name(taken), top: top.collect() }
    };
    let content = &answer["choices"][0]["logprobs"]["content"];
    content.as_array().unwrap_or_else(|| panic!("logprobs in {answer}")).iter().map(taken).collect()
}

/// Checks one answer up to where texts part, which they may where two tokens are about as probable. Returns how many
/// tokens were compared, and how far log probabilities are apart.
fn check(family: &str, found: &[Taken], wanted: &[Taken]) -> (usize, f64) {
    let mut farthest: f64 = 0.0;
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        for (token, logprob) in &wanted.top {
            if let Some(other) = found.top.get(token) {
                farthest = farthest.max((logprob - other).abs());
            }
        }
        assert!(farthest <= NEAR, "{family}: token {at} is {farthest} apart: {:?}, not {:?}", found.top, wanted.top);
        if found.token != wanted.token {
            let margin = wanted.margin();
            let parted = format!("{family}: token {at} is {:?} of {:?}", found.token, found.top);
            assert!(margin <= 2.0 * NEAR, "{parted}, not {:?} of {:?}", wanted.token, wanted.top);
            return (at + 1, farthest);
        }
    }
    (wanted.len(), farthest)
}

#[test]
fn every_family_answers_on_a_card_what_it_answers_on_the_processor() {
    let Some(card) = TestCard::find() else { return };
    let folder = Folder::new("cuda-families");
    for family in FAMILIES {
        let dir = model(&folder, family);
        let flags = ["--model", &dir, "--prefill", "0", "--threads", "1", "--set", "kv.device_bytes=8MiB"];
        let there = Server::start_with(&[&flags[..], &["--device", "cuda"]].concat(), &card.with(&[]));
        let here = Server::start(&flags);
        let ask = |salt: u32| {
            let content = format!("Question {salt}: {}", "what is it that a card computes? ".repeat(1 + salt as usize));
            let body = json!({
                "model": family, "messages": [{ "role": "user", "content": content }], "max_tokens": TOKENS,
                "ignore_eos": true, "logprobs": true, "top_logprobs": TOP, "temperature": 0,
            });
            Ask { path: CHAT, body }
        };
        let (mut compared, mut farthest): (usize, f64) = (0, 0.0);
        for salt in 0..PROMPTS {
            let [found, wanted] = [&there, &here].map(|server| said(server, &ask(salt)));
            assert_eq!((found.len(), wanted.len()), (TOKENS, TOKENS), "{family}");
            let (tokens, apart) = check(family, &found, &wanted);
            (compared, farthest) = (compared + tokens, farthest.max(apart));
        }
        println!("{family}: {compared} tokens, whose log probabilities are at most {farthest} apart");
    }
}
