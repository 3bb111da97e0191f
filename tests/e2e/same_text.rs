//! Correctness is tokens: whatever the workers, chunks, threads, memory and company of a request, its answer is the one
//! that a single decode worker on one thread gives when it has nothing else to do, log probabilities included.

use crate::asks::{Ask, CHAT, Said, check_all};
use crate::models::Folder;
use crate::server::Server;
use serde_json::{Value, json};

/// Rounds after which memory that is short must have made a sequence give way.
const ROUNDS_MAX: usize = 10;

/// A way to serve.
struct Variant {
    name: &'static str,
    flags: &'static [&'static str],
    /// `BATON_PLACEMENT__HANDOFF`.
    handoff: &'static str,
    /// How many workers may compute a prompt: each finds nothing cached of a conversation once.
    places: usize,
    /// Memory for KV is so short that running sequences must make room for each other.
    small: bool,
}

const VARIANTS: [Variant; 9] = [
    Variant {
        name: "monolithic, small chunks",
        flags: &["--prefill", "0", "--threads", "2", "--set", "engine.chunk_tokens=64"],
        handoff: "auto",
        places: 1,
        small: false,
    },
    Variant {
        name: "handed off, small chunks",
        flags: &["--threads", "1", "--set", "engine.chunk_tokens=64"],
        handoff: "always",
        places: 1,
        small: false,
    },
    Variant {
        name: "handed off, three threads",
        flags: &["--threads", "3", "--set", "engine.chunk_tokens=512"],
        handoff: "always",
        places: 1,
        small: false,
    },
    Variant {
        name: "handed off, pools that nobody but their engine and copier may touch",
        flags: &["--threads", "2", "--set", "engine.guarded_pools=true"],
        handoff: "always",
        places: 1,
        small: false,
    },
    Variant {
        name: "handed off, one step in flight",
        flags: &["--threads", "2", "--set", "engine.steps_in_flight=1"],
        handoff: "always",
        places: 1,
        small: false,
    },
    Variant {
        name: "two of each",
        flags: &["--prefill", "2", "--decode", "2", "--threads", "1", "--set", "engine.chunk_tokens=64"],
        handoff: "always",
        places: 2,
        small: false,
    },
    Variant {
        name: "two of each as placement likes it",
        flags: &["--prefill", "2", "--decode", "2", "--threads", "2"],
        handoff: "auto",
        places: 4,
        small: false,
    },
    Variant {
        name: "monolithic, little memory",
        flags: &["--prefill", "0", "--threads", "2", "--set", "engine.chunk_tokens=64"],
        handoff: "auto",
        places: 1,
        small: true,
    },
    Variant {
        name: "handed off, little memory",
        flags: &["--threads", "1", "--set", "engine.chunk_tokens=512"],
        handoff: "always",
        places: 1,
        small: true,
    },
];

/// A model and what it is asked.
struct Subject {
    /// Flags that name it.
    model: Vec<String>,
    /// Memory for KV in which not all of `asks` fit at once.
    small_bytes: &'static str,
    asks: Vec<Ask>,
    /// What a conversation goes on with after the answers.
    turns: Vec<&'static str>,
    /// The conversation after these turns, and what was answered.
    conversation: fn(turns: &[(&str, String)], next: &str) -> Ask,
}

impl Subject {
    fn serve(&self, variant: &Variant) -> Server {
        let mut flags: Vec<&str> = self.model.iter().map(String::as_str).collect();
        flags.extend(["--set", "engine.block_tokens=16"]);
        flags.extend(variant.flags);
        let memory = format!("kv.device_bytes={}", if variant.small { self.small_bytes } else { "64MiB" });
        flags.extend(["--set", &memory]);
        Server::start_with(&flags, &[("BATON_PLACEMENT__HANDOFF", variant.handoff)])
    }

    /// What is said in a conversation, turn by turn. Whoever computes a turn finds in its cache what it computed
    /// before.
    fn converse(&self, server: &Server, places: usize) -> Vec<Said> {
        let mut turns: Vec<(&str, String)> = Vec::new();
        let mut answers: Vec<Said> = Vec::new();
        let mut misses = 0;
        for next in &self.turns {
            let ask = (self.conversation)(&turns, next);
            let (said, cached) = if turns.len().is_multiple_of(2) { ask.whole(server) } else { ask.streamed(server) };
            misses += usize::from(cached == 0);
            turns.push((next, said.choices[&0].text.clone()));
            answers.push(said);
        }
        assert!(misses <= places, "{misses} turns find nothing cached");
        answers
    }

    fn check(&self) {
        let plain = Variant {
            name: "plain",
            flags: &["--prefill", "0", "--threads", "1", "--set", "engine.chunk_tokens=512"],
            handoff: "auto",
            places: 1,
            small: false,
        };
        let server = self.serve(&plain);
        let told: Vec<(Ask, Said)> = self.asks.iter().map(|ask| (ask.clone(), ask.whole(&server).0)).collect();
        told.iter().for_each(|(ask, said)| said.check_form(ask));
        let conversation = self.converse(&server, plain.places);
        check_all(&server, &told, 16, true);
        assert_eq!(server.settled().sum("baton_handoffs_total", &[]), 0.0, "nobody is there to hand over");

        for variant in &VARIANTS {
            println!("{}", variant.name);
            let server = self.serve(variant);
            assert_eq!(self.converse(&server, variant.places), conversation, "{}", variant.name);
            check_all(&server, &told, 16, false);
            check_all(&server, &told, 2, true);
            check_all(&server, &told, 1, false);
            check_all(&server, &told, 16, true);
            let metrics = server.settled();
            let handed_over = metrics.sum("baton_handoffs_total", &[("result", "taken")]);
            assert!(variant.handoff != "always" || handed_over > 0.0, "{}: nothing was handed over", variant.name);
            let preemptions = |server: &Server| server.settled().sum("baton_preemptions_total", &[]);
            if variant.small {
                // How many run at once is up to the machine.
                let preempted = (0..ROUNDS_MAX).any(|_| {
                    check_all(&server, &told, 16, true);
                    preemptions(&server) > 0.0
                });
                assert!(preempted, "{}: memory was never short", variant.name);
            } else {
                assert_eq!(preemptions(&server), 0.0, "{}: memory was short", variant.name);
            }
        }
    }
}

#[test]
fn the_bundled_model_says_the_same_on_every_path() {
    let chapters =
        "Ownership is Rust's most unique feature. A trait tells the compiler what a type can do. ".repeat(28);
    let tokens: Vec<u32> = (0..150).map(|i| 300 + i * 37 % 3000).collect();
    let greedy = |most: u32| json!({ "temperature": 0, "max_tokens": most });
    let sampled = |seed: u64, more: Value| {
        let mut fields = json!({ "seed": seed, "temperature": 0.9, "top_p": 0.95, "max_tokens": 48 });
        fields.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        fields
    };
    let complete = |prompt: Value, more: Value| Ask::completion("tiny-rust", prompt, more);
    let asks = vec![
        Ask::chat("What is ownership?", greedy(64)),
        Ask::chat("What is a trait?", sampled(1, json!({ "n": 3, "temperature": 1.5, "top_p": 1 }))),
        Ask::chat("What is a lifetime?", sampled(2, json!({ "logprobs": true, "top_logprobs": 3 }))),
        Ask::chat("How do I handle errors?", json!({ "temperature": 0, "max_tokens": 64, "stop": "the" })),
        Ask::chat("What is unsafe Rust?", sampled(3, json!({ "stop": [". ", "\n"], "n": 3, "logprobs": true }))),
        Ask::chat("Hello! \u{1f980} \u{e9}\u{4e16}\u{754c}", sampled(4, json!({ "top_k": 40, "min_p": 0.01 }))),
        Ask::chat(&chapters[..1800], greedy(48)),
        Ask::chat(&chapters, sampled(5, json!({ "frequency_penalty": 0.4, "presence_penalty": 0.3 }))),
        complete(json!("Ownership is"), greedy(64)),
        complete(json!("fn main() {\n    let"), sampled(6, json!({ "n": 3, "logprobs": 2, "ignore_eos": true }))),
        complete(json!(&chapters[100..1500]), json!({ "temperature": 0, "max_tokens": 40, "logprobs": 0 })),
        complete(json!(["A trait", "A struct", &chapters[..700]]), sampled(7, json!({}))),
        complete(json!(tokens), sampled(8, json!({ "repetition_penalty": 1.2, "logit_bias": { "20": -100 } }))),
        complete(json!([&tokens[..33], &tokens[..16]]), json!({ "temperature": 0, "max_tokens": 1, "n": 2 })),
        complete(json!("A vector"), sampled(9, json!({ "min_tokens": 30, "stop_token_ids": [13, 14, 15] }))),
        complete(json!(&chapters[..900]), sampled(10, json!({ "n": 3, "max_tokens": 70, "ignore_eos": true }))),
    ];
    let conversation = |turns: &[(&str, String)], next: &str| {
        let said = turns.iter().flat_map(|(user, assistant)| {
            [json!({ "role": "user", "content": user }), json!({ "role": "assistant", "content": assistant })]
        });
        let messages: Vec<Value> = said.chain([json!({ "role": "user", "content": next })]).collect();
        let body = json!({ "model": "tiny-rust", "messages": messages, "temperature": 0, "max_tokens": 60 });
        Ask { path: CHAT, body }
    };
    let turns = vec![
        "What is ownership? I have read that each value has an owner, and that there can be only one at a time.",
        "What is a trait?",
        "How do I create a new project with cargo?",
        "What is a lifetime?",
        "Hello!",
    ];
    Subject { model: Vec::new(), small_bytes: "4MiB", asks, turns, conversation }.check();
}

#[test]
fn a_model_with_a_sliding_window_says_the_same_on_every_path() {
    const MODEL: &str = "window";
    let folder = Folder::new("same-text");
    let dir = folder.window_model();
    // Shorter and longer than the window of 24 tokens, than blocks and than chunks, and multiples of none.
    let prompt = |tokens: u32, salt: u32| -> Value { (0..tokens).map(|i| (i * i + salt * 71 + i) % 250).collect() };
    let ask = |at: u32, tokens: u32| {
        let mut more =
            json!({ "max_tokens": 60 + at % 3 * 20, "ignore_eos": at.is_multiple_of(2), "n": 1 + at % 4 / 3 * 2 });
        let fields = more.as_object_mut().expect("an object");
        match at % 3 {
            0 => fields.extend([("temperature".to_owned(), json!(0)), ("logprobs".to_owned(), json!(1))]),
            1 => fields.extend([("seed".to_owned(), json!(at)), ("top_p".to_owned(), json!(0.9))]),
            _ => fields.extend([("seed".to_owned(), json!(-7)), ("repetition_penalty".to_owned(), json!(1.1))]),
        }
        Ask::completion(MODEL, prompt(tokens, at), more)
    };
    let lengths = [1, 15, 16, 17, 23, 25, 40, 63, 65, 100, 129, 200, 311, 400, 513, 600];
    let asks = (0..).zip(lengths).map(|(at, tokens)| ask(at, tokens)).collect();
    let conversation = |turns: &[(&str, String)], next: &str| {
        let text: String = turns.iter().map(|(user, _)| *user).chain([next]).collect();
        Ask::completion(MODEL, text, json!({ "temperature": 0, "max_tokens": 30, "ignore_eos": true }))
    };
    let turns = vec![
        "Once upon a time there was a block of sixteen tokens that nobody had cached. ",
        "Then it was sealed, and all that came after began with it. ",
        "A third of them went on ",
        "and on, ",
        "and on.",
    ];
    Subject { model: vec!["--model".to_owned(), dir], small_bytes: "400KiB", asks, turns, conversation }.check();
}
