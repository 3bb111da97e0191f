//! Clients that vanish at any moment: before their body ends, while they wait, in the middle of a stream. Whatever they
//! leave behind is gone soon after, and the caches that they filled serve others right.

use crate::asks::{Ask, COMPLETION, check_all};
use crate::http::post;
use crate::models::Folder;
use crate::server::Server;
use serde_json::{Value, json};
use std::io;
use std::thread::sleep;
use std::time::Duration;

/// Where the moments come from; change it for other ones.
const SEED: u64 = 1;
/// Clients that vanish, per way to serve.
const CLIENTS: u64 = 240;
/// Clients that are there at once.
const AT_ONCE: u64 = 12;
/// The longest that a client waits before it vanishes, in microseconds.
const STAY_US_MAX: u64 = 40_000;
/// Tokens of the longest prompt.
const PROMPT_TOKENS_MAX: u64 = 600;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

/// The first `length` tokens of one of a few texts: prompts share what they begin with, and so do their caches.
fn prompt(text: u64, length: u64) -> Value {
    (0..length).map(|i| (i * 7 + text * 31 + i * i % 11) % 240).collect()
}

/// A client that vanishes. Errors: the connection broke, which is as good.
fn vanish(server: &Server, model: &str, client: u64) -> io::Result<()> {
    let mut dice = Dice(SEED << 32 | client);
    let prompts: Value = match dice.roll(5) {
        0 => (0..3).map(|text| prompt(text, 1 + dice.roll(PROMPT_TOKENS_MAX))).collect(),
        _ => prompt(dice.roll(3), 1 + dice.roll(PROMPT_TOKENS_MAX)),
    };
    let more = json!({
        "n": 1 + dice.roll(3), "max_tokens": 1 + dice.roll(300), "ignore_eos": true, "seed": client,
        "stream": dice.roll(2) == 0, "temperature": dice.roll(2), "stop": if dice.roll(4) == 0 { json!("a") } else { json!(null) },
    });
    let bytes = post(COMPLETION, &Ask::completion(model, prompts, more).body);
    let stay = Duration::from_micros(dice.roll(STAY_US_MAX));
    let mut connection = server.connect();
    match dice.roll(8) {
        0 => connection.send(&bytes[..dice.roll(bytes.len() as u64) as usize])?,
        1 => connection.send(&bytes)?,
        2 => {
            // Half of it, and the rest later.
            let (first, rest) = bytes.split_at(bytes.len() / 2);
            connection.send(first)?;
            sleep(stay);
            connection.send(rest)?;
        }
        3 => {
            connection.send(&bytes)?;
            connection.finish_sending()?;
            // Who sends nothing more may still listen, or not.
            while connection.byte()?.is_some() {}
        }
        4 => {
            connection.send(&[&bytes[..], &bytes[..]].concat())?;
            sleep(stay);
        }
        5 => {
            connection.send(&bytes)?;
            connection.head()?;
        }
        _ => {
            connection.send(&bytes)?;
            sleep(stay);
        }
    }
    Ok(())
}

fn check(model: &str, flags: &[&str], handoff: &str) {
    let server = Server::start_with(flags, &[("BATON_PLACEMENT__HANDOFF", handoff)]);
    let more = |seed: u64| json!({ "max_tokens": 30, "seed": seed, "temperature": seed % 2, "ignore_eos": true });
    let asks = (0..6).map(|at| Ask::completion(model, prompt(at % 3, 40 + 100 * at), more(at)));
    let told: Vec<_> = asks.map(|ask| (ask.clone(), ask.whole(&server).0)).collect();
    std::thread::scope(|scope| {
        for first in 0..AT_ONCE {
            let server = &server;
            // Whether the connection broke before the client left does not matter.
            scope.spawn(move || {
                (first..CLIENTS).step_by(AT_ONCE as usize).for_each(|client| {
                    let _ = vanish(server, model, client);
                })
            });
        }
        // Somebody who stays is served meanwhile.
        check_all(&server, &told, 2, true);
    });
    let metrics = server.settled();
    assert!(metrics.sum("baton_requests_total", &[("outcome", "client")]) > 0.0, "some were gone before their end");
    for outcome in ["worker", "deadline", "us", "rejected"] {
        assert_eq!(metrics.sum("baton_requests_total", &[("outcome", outcome)]), 0.0, "{outcome}");
    }
    check_all(&server, &told, 1, false);
    check_all(&server, &told, 6, true);
    server.settled();
}

#[test]
fn nothing_is_left_of_clients_that_vanish() {
    let base = ["--threads", "1", "--set", "engine.block_tokens=16", "--set", "engine.chunk_tokens=64"];
    check("tiny-rust", &base, "always");
}

#[test]
fn nothing_is_left_where_memory_is_short() {
    let folder = Folder::new("gone");
    let dir = folder.window_model();
    let flags = [
        "--model",
        &dir,
        "--threads",
        "1",
        "--prefill",
        "2",
        "--decode",
        "2",
        "--set",
        "engine.block_tokens=16",
        "--set",
        "kv.device_bytes=1MiB",
    ];
    check("window", &flags, "always");
}

#[test]
fn nothing_is_left_on_a_worker_that_does_it_all() {
    let folder = Folder::new("gone-monolithic");
    let dir = folder.window_model();
    check("window", &["--model", &dir, "--prefill", "0", "--set", "kv.device_bytes=1MiB"], "auto");
}
