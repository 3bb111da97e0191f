//! A row's bits do not depend on what else runs, how, and on how many threads.

use super::effort::cases;
use super::rig::{Rig, model, tokens};
use crate::cpu::kernels::STRETCH;
use crate::cpu::{CpuModel, Isa};
use domain::Dtype;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Tokens of each sequence: together more than a micro-batch has rows.
const LENGTHS: [usize; 3] = [150, 90, 48];

/// Instruction sets that a CPU has, at most.
const ISAS_MAX: usize = 8;

/// The models: windows, head norms with odd sizes, biases; in all number formats.
const MODELS: [(&str, &str, Dtype); 4] = [
    ("llama", "tiny", Dtype::Bf16),
    ("mistral", "tiny-window", Dtype::F32),
    ("qwen2", "tiny-tied", Dtype::F16),
    ("qwen3", "tiny-wide", Dtype::Bf16),
];

/// Bits of the logits after each position of each sequence.
type Expected = HashMap<(u32, u32), Vec<u32>>;

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// A model, and what it says on an instruction set when every token of every sequence is a step of its own, on one
/// thread.
fn expected(index: usize, isa: usize) -> &'static (Arc<CpuModel>, Expected) {
    type Case = OnceLock<(Arc<CpuModel>, Expected)>;
    static CASES: [[Case; ISAS_MAX]; MODELS.len()] = [const { [const { OnceLock::new() }; ISAS_MAX] }; MODELS.len()];
    CASES[index][isa].get_or_init(|| {
        let (family, shape, dtype) = MODELS[index];
        let model = model(family, shape, dtype);
        let mut rig = Rig::new(model.clone(), 16, 1, Isa::available()[isa]);
        let mut expected = Expected::new();
        for (n, length) in (0..).zip(LENGTHS) {
            for (position, token) in (0..).zip(tokens(n, length)) {
                let (output, logits) = rig.run(vec![rig.span(n, position, &[token])]);
                output.sampled.expect("the step succeeds");
                expected.insert((n, position), bits(&logits[0].1));
            }
        }
        (model, expected)
    })
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn a_row_depends_on_its_own_sequence_alone(
        case in 0..MODELS.len(),
        threads in 1usize..4,
        isa in 0..Isa::available().len(),
        block_tokens in prop::sample::select(vec![5u32, 8, 16, 32, 48]),
        // Of each step: how many tokens of each sequence at most.
        steps in prop::collection::vec([0usize..100, 0usize..60, 0usize..40], 0..8),
    ) {
        let (model, expected) = expected(case, isa);
        let mut rig = Rig::new(model.clone(), block_tokens, threads, Isa::available()[isa]);
        let mut done = [0usize; LENGTHS.len()];
        // The last step takes all that is left.
        for step in steps.into_iter().chain([[usize::MAX; 3]]) {
            let mut spans = Vec::new();
            let mut last = Vec::new();
            for (n, length) in LENGTHS.into_iter().enumerate() {
                let count = step[n].min(length - done[n]);
                if count > 0 {
                    let inputs = &tokens(n as u32, length)[done[n]..done[n] + count];
                    spans.push(rig.span(n as u32, done[n] as u32, inputs));
                    done[n] += count;
                    last.push((n as u32, done[n] as u32 - 1));
                }
            }
            if spans.is_empty() {
                continue;
            }
            let (output, logits) = rig.run(spans);
            prop_assert!(output.sampled.is_ok());
            prop_assert_eq!(logits.len(), last.len());
            for (place, (_, logits)) in last.iter().zip(&logits) {
                prop_assert!(bits(logits) == expected[place], "sequence {}, position {}", place.0, place.1);
            }
        }
    }
}

/// Tokens of sequences that decode together: two go on behind the first stretch of their context. That kernels on
/// all instruction sets give the same bits in pieces is tested with them.
const LONG: [usize; 3] = [STRETCH + 40, 70, STRETCH + 20];
/// How many of them are steps of their own, at most.
const DECODED: usize = 12;

/// Bits of the logits after the last tokens of each sequence: so many are steps of their own, those before chunks.
fn long(model: &Arc<CpuModel>, block_tokens: u32, threads: usize, isa: Isa, chunk: usize, decoded: usize) -> Expected {
    let mut rig = Rig::new(model.clone(), block_tokens, threads, isa);
    let mut done = [0usize; LONG.len()];
    let mut found = Expected::new();
    while done != LONG {
        let mut spans = Vec::new();
        let mut last = Vec::new();
        for (n, length) in LONG.into_iter().enumerate() {
            let prompt = (length - decoded).saturating_sub(done[n]);
            let count = if prompt > 0 { prompt.min(chunk) } else { (length - done[n]).min(1) };
            if count > 0 {
                spans.push(rig.span(n as u32, done[n] as u32, &tokens(n as u32, length)[done[n]..done[n] + count]));
                done[n] += count;
                last.push((n as u32, done[n] as u32 - 1));
            }
        }
        let (output, logits) = rig.run(spans);
        output.sampled.expect("the step succeeds");
        let places = last.into_iter().zip(logits).filter(|((n, at), _)| *at as usize + DECODED >= LONG[*n as usize]);
        found.extend(places.map(|(place, (_, logits))| (place, bits(&logits))));
    }
    found
}

#[test]
fn threads_that_share_a_context_leave_no_trace() {
    let isa = Isa::best();
    for (family, shape, dtype) in [("llama", "tiny", Dtype::Bf16), ("mistral", "tiny-window", Dtype::F32)] {
        let model = model(family, shape, dtype);
        let expected = long(&model, 48, 1, isa, 100, DECODED);
        for (block_tokens, threads, chunk, decoded) in [(40, 2, 64, DECODED), (48, 5, 100, 4), (64, 2, 90, 0)] {
            let found = long(&model, block_tokens, threads, isa, chunk, decoded);
            assert!(found.len() >= LONG.len());
            for (place, found) in found {
                assert!(found == expected[&place], "{family} on {isa}, {threads} threads: {place:?}");
            }
        }
    }
}
