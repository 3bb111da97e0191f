//! The simulated device, served: what a client gets is a text of the model's tokens, the same on every path.

use crate::asks::{Ask, check_all};
use crate::server::Server;
use serde_json::json;

fn serve(flags: &[&str], handoff: &str) -> Server {
    // Without waiting, so that the test is as fast as the host; at a card's speed, layers come one after the other.
    let all: Vec<&str> = ["--device", "sim", "--set", "kv.device_bytes=64MiB"].iter().chain(flags).copied().collect();
    Server::start_with(&all, &[("BATON_PLACEMENT__HANDOFF", handoff)])
}

#[test]
fn a_simulated_model_says_the_same_monolithic_and_handed_off() {
    let words = "every block was the right one, and so was its owner; ".repeat(40);
    let asks: Vec<Ask> = (0..12)
        .map(|at: u32| {
            let more = json!({ "seed": at, "max_tokens": 20 + at * 7, "n": 1 + at % 3, "min_tokens": at });
            match at % 2 {
                0 => Ask::chat(&words[..(40 + 150 * at) as usize], more),
                _ => Ask::completion("tiny-rust", &words[..(1 + 150 * at) as usize], more),
            }
        })
        .collect();
    let server = serve(&["--prefill", "0", "--set", "sim.speed_percent=0"], "auto");
    let told: Vec<_> = asks.iter().map(|ask| (ask.clone(), ask.whole(&server).0)).collect();
    for ((ask, said), at) in told.iter().zip(0..) {
        said.check_form(ask);
        assert_eq!(said.completion_tokens, (20 + at * 7) * (1 + at % 3), "nothing but the limit ends a text");
    }
    assert!(told[0].1 != told[2].1, "texts depend on prompts");
    server.settled();

    let paths: [&[&str]; 3] = [
        &["--set", "sim.speed_percent=0"],
        &["--prefill", "2", "--decode", "2", "--set", "engine.chunk_tokens=64", "--set", "sim.speed_percent=0"],
        &["--set", "sim.preset=h200-8b", "--set", "engine.chunk_tokens=64"],
    ];
    for flags in paths {
        let server = serve(flags, "always");
        check_all(&server, &told, 12, true);
        check_all(&server, &told, 3, false);
        let metrics = server.settled();
        assert!(metrics.sum("baton_handoffs_total", &[("result", "taken")]) > 0.0, "nothing was handed over");
    }
}
