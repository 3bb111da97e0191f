//! How much of a card KV takes, and what is said of a host's cards.

use super::card::{TestCard, model};
use crate::models::Folder;
use crate::process::Process;
use crate::server::{baton, until};
use std::process::Output;

/// A device that is small enough for a small card: rows of a step, sequences at once, and choices of a prompt.
const SMALL: [&str; 6] =
    ["--set", "engine.step_tokens_max=640", "--set", "engine.running_max=8", "--set", "router.choices_max=8"];

/// Runs the binary to its end with the emulator's card, of so much memory.
fn run(card: &TestCard, memory: &str, arguments: &[&str]) -> Output {
    let environment = card.with(&[("SIMT_MEMORY", memory)]);
    baton(arguments).envs(environment).output().expect("the binary runs")
}

#[test]
fn kv_takes_what_the_card_has_left() {
    let Some(card) = TestCard::find().filter(|card| card.is_emulated()) else { return };
    let folder = Folder::new("cuda-memory");
    let path = model(&folder, "llama");
    let serve = [&["serve", "--listen", "127.0.0.1:0", "--device", "cuda", "--model", &path][..], &SMALL].concat();
    // Both workers start: what was planned fits.
    let process = Process::start(&serve, &card.with(&[("SIMT_MEMORY", "1G")]));
    let line = until("it says what KV takes", || {
        process.log().lines().find(|line| line.contains("kv.device_bytes = \"auto\"")).map(str::to_owned)
    });
    for part in [
        "the card has 1 GiB, of which",
        " of weights; ",
        "reserved for steps",
        "2 workers",
        "the KV of each takes",
        " tokens",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn a_card_that_is_too_small_names_its_figures() {
    let Some(card) = TestCard::find().filter(|card| card.is_emulated()) else { return };
    let folder = Folder::new("cuda-small");
    let path = model(&folder, "llama");
    let serve = [&["serve", "--listen", "127.0.0.1:0", "--device", "cuda", "--model", &path][..], &SMALL].concat();
    let output = run(card, "256M", &serve);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    for part in ["the card has 256 MiB, of which", "that leaves 0 B for the KV of each", "engine.card", "serve.decode"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn doctor_names_the_card_and_its_libraries() {
    let Some(card) = TestCard::find().filter(|card| card.is_emulated()) else { return };
    let output = run(card, "2G", &["doctor", "--all"]);
    let report = String::from_utf8_lossy(&output.stdout);
    for part in [
        "good  gpu driver: libcuda.so.1 implements CUDA ",
        "(no GPU), 2 GiB, compute capability 9.0",
        "good  nvrtc: libnvrtc ",
        "good  cublaslt: libcublasLt ",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let topo = run(card, "2G", &["topo"]);
    assert!(String::from_utf8_lossy(&topo.stdout).contains("(no GPU), 2 GiB, compute capability 9.0"), "{topo:?}");
}
