//! What is wanted of any row: logits, scores, hidden states; and masks that come late.

use super::rig::{Rig, files, key, model, sample, tokens};
use crate::cpu::Isa;
use crate::device::{Device, MaskError};
use domain::plan::{HiddenRows, HiddenSum, Input, Mask, Sample, Score, Span, TokenSet};
use domain::{Dtype, SamplingParams, Token};
use std::sync::Arc;

const VOCAB: usize = 512;

fn rig() -> Rig {
    Rig::new(model("mistral", "tiny-window", Dtype::F32), 16, 2, Isa::best())
}

/// Returns the span without its sample.
fn silent(span: Span) -> Span {
    Span { samples: Vec::new(), ..span }
}

#[test]
fn the_logits_of_any_row_are_those_of_a_span_that_ends_there() {
    // Beyond a micro-batch.
    let all = tokens(0, 310);
    let rows = [0, 1, 100, 288, 309];
    let mut span = rig().span(0, 0, &all);
    span.samples = rows.map(|row| Sample { row, ..sample(0, 0.0, 0) }).to_vec();
    let (output, found) = rig().run(vec![span]);
    for ((at, row), sampled) in rows.iter().enumerate().zip(output.sampled.expect("the step succeeds")) {
        let mut alone = rig();
        let span = alone.span(0, 0, &all[..*row as usize + 1]);
        let (expected, logits) = alone.run(vec![span]);
        assert!(found[at] == logits[0], "row {row}");
        assert_eq!(sampled.token, expected.sampled.expect("it succeeds")[0].token);
    }
}

#[test]
fn a_score_is_the_logarithm_of_the_probability() {
    let all = tokens(0, 40);
    let scores: Vec<_> = [0, 5, 38].map(|row| Score { row, token: all[row as usize + 1], top: 3 }).to_vec();
    let mut rig = rig();
    let span = Span { scores: scores.clone(), ..rig.span(0, 0, &all) };
    let (output, logits) = rig.run(vec![silent(rig.span(1, 0, &all)), span, rig.span(2, 0, &all)]);
    assert_eq!((output.scored.len(), logits.len()), (3, 3 + 2));
    for ((score, scored), (_, row)) in scores.iter().zip(&output.scored).zip(&logits) {
        let total: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        let expected = |token: Token| f64::from(row[token as usize]) - total.ln();
        assert!((f64::from(scored.logprob) - expected(score.token)).abs() < 1e-4);
        assert_eq!(scored.top.len(), 3);
        let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(row[scored.top[0].0 as usize], best);
        scored.top.iter().for_each(|&(token, it)| assert!((f64::from(it) - expected(token)).abs() < 1e-4));
    }
}

/// Computes a prompt in chunks of these lengths, and returns the sum of the hidden states of all rows.
fn sum_in_chunks(rig: &mut Rig, all: &[Token], chunks: &[usize]) -> HiddenSum {
    let mut sum = HiddenSum::new(64);
    let mut start = 0;
    for &chunk in chunks {
        let span = rig.span(0, start, &all[start as usize..][..chunk]);
        let wants = if start == 0 { silent(span) } else { span };
        let (output, _) = rig.run(vec![Span { hidden: Some(HiddenRows::All), ..wants }]);
        sum.add(&output.hidden[0]);
        start += chunk as u32;
    }
    assert_eq!(sum.rows as usize, all.len());
    sum
}

#[test]
fn hidden_states_are_the_same_however_a_prompt_is_cut() {
    let all = tokens(0, 300);
    let whole = sum_in_chunks(&mut rig(), &all, &[300]);
    assert_eq!(sum_in_chunks(&mut rig(), &all, &[1, 99, 200]), whole);
    let mut three_threads = Rig::new(model("mistral", "tiny-window", Dtype::F32), 16, 3, Isa::best());
    assert_eq!(sum_in_chunks(&mut three_threads, &all, &[128, 172]), whole);
    // The sum is that of the rows: the state of each one is the last of a span that ends there.
    let mut rows = HiddenSum::new(64);
    let mut rig = rig();
    for (at, token) in (0..).zip(&all) {
        let wanted = if at % 2 == 0 { HiddenRows::Last } else { HiddenRows::First };
        let span = rig.span(0, at, &[*token]);
        let span = if at % 3 == 0 { span } else { silent(span) };
        rows.add(&rig.run(vec![Span { hidden: Some(wanted), ..span }]).0.hidden[0]);
    }
    assert_eq!(rows, whole);
    // The rows of a norm are about one long.
    let mean = rows.mean(false);
    assert!(mean.iter().any(|x| x.abs() > 1e-3) && mean.iter().all(|x| x.is_finite() && x.abs() < 64.0), "{mean:?}");
}

#[test]
fn the_output_projection_makes_the_logits_of_a_hidden_state() {
    let head = files("llama", "tiny", Dtype::F32);
    let head = head.checkpoint.tensor("lm_head.weight").expect("it is not tied");
    let mut rig = Rig::new(model("llama", "tiny", Dtype::F32), 16, 2, Isa::best());
    let span = rig.span(0, 0, &tokens(0, 50));
    let (output, logits) = rig.run(vec![Span { hidden: Some(HiddenRows::Last), ..span }]);
    let hidden = output.hidden[0].mean(false);
    for (row, logit) in head.widened(0..head.height()).chunks(hidden.len()).zip(&logits[0].1) {
        let product: f64 = row.iter().zip(&hidden).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
        assert!((product - f64::from(*logit)).abs() < 1e-4, "{product} and {logit}");
    }
}

#[test]
fn one_of_several_rows_is_the_first_or_the_last() {
    let all = tokens(0, 20);
    let mut rig = rig();
    let mut wanted = |n: u32, inputs: &[Token], rows| {
        let span = silent(rig.span(n, 0, inputs));
        rig.run(vec![Span { hidden: Some(rows), ..span }]).0.hidden.remove(0)
    };
    let first = wanted(0, &all, HiddenRows::First);
    assert_eq!((first.rows, &first), (1, &wanted(1, &all[..1], HiddenRows::All)));
    let last = wanted(2, &all, HiddenRows::Last);
    let but_last = wanted(3, &all[..19], HiddenRows::All);
    let mut sum = last.clone();
    sum.add(&but_last);
    assert_eq!(sum, wanted(4, &all, HiddenRows::All));
    assert_ne!(first, last);
}

#[test]
fn drafts_give_the_text_that_a_run_without_them_gives() {
    let prompt = tokens(0, 20);
    let params = Arc::new(SamplingParams { temperature: 0.8, ..SamplingParams::default() });
    let sample = |row: usize, index: usize| Sample {
        row: row as u32,
        index: index as u32,
        params: params.clone(),
        ..sample(0, 0.0, 9)
    };
    let text_of = |rig: &mut Rig, drafts: &mut dyn FnMut(&[Token]) -> Vec<Token>| {
        let mut all = prompt.clone();
        let mut steps = 0;
        let mut known = 0;
        while all.len() < 60 {
            let drafted = if known == 0 { Vec::new() } else { drafts(&all) };
            let inputs = [&all[known..], &drafted].concat();
            let (first, index) = (inputs.len() - drafted.len() - 1, all.len() - prompt.len());
            let mut span = rig.span(0, known as u32, &inputs);
            span.samples = (0..=drafted.len()).map(|i| sample(first + i, index + i)).collect();
            let sampled = rig.run(vec![span.clone()]).0.sampled.expect("the step succeeds");
            let sampled: Vec<_> = sampled.iter().map(|sampled| sampled.token).collect();
            let accepted = Span { inputs: span.inputs[first..].to_vec(), ..span }.accepted(&sampled);
            known = all.len() + accepted;
            all.extend(&sampled[..=accepted]);
            steps += 1;
        }
        all.truncate(60);
        (all, steps)
    };
    let (plain, steps) = text_of(&mut rig(), &mut |_| Vec::new());
    assert_eq!(steps, 40);
    // Of four drafts each, one in three places is wrong.
    let mut guess = |all: &[Token]| {
        let next = (all.len()..all.len() + 4).filter_map(|at| plain.get(at).map(|&token| (at, token)));
        next.map(|(at, token)| if at % 3 == 0 { (token + 1) % 512 } else { token }).collect()
    };
    let (drafted, fewer) = text_of(&mut rig(), &mut guess);
    assert_eq!(drafted, plain);
    assert!(fewer < steps, "{fewer} steps");
}

fn mask(sample: u32, allowed: &[Token]) -> Mask {
    Mask { sample, allowed: Arc::new(TokenSet::of(VOCAB, allowed.iter().copied())) }
}

fn masked(rig: &Rig, n: u32, start: u32, inputs: &[Token]) -> Span {
    let span = rig.span(n, start, inputs);
    let samples = span.samples.iter().map(|sample| Sample { masked: true, ..sample.clone() }).collect();
    Span { samples, ..span }
}

#[test]
fn a_mask_may_come_when_the_step_before_has_ended() {
    let mut rig = rig();
    let (one, two) = (masked(&rig, 0, 0, &tokens(0, 9)), rig.span(1, 0, &tokens(1, 9)));
    let mut next = vec![rig.span(1, 9, &[0]), masked(&rig, 0, 9, &[0])];
    (next[0].inputs[0], next[1].inputs[0]) = (Input::Sampled(1), Input::Sampled(0));
    let (first, second) = (rig.plan(vec![one, two]), rig.plan(next));
    let steps = [first.step, second.step];
    rig.submit(first);
    rig.submit(second);
    assert_eq!(rig.device.poll(), None);
    assert!(matches!(rig.device.masks(steps[0], vec![mask(1, &[3])]), Err(MaskError::UnknownSample { .. })));
    assert_eq!(rig.device.masks(steps[0], vec![mask(0, &[7, 300])]), Ok(()));
    let token = rig.output().sampled.expect("the step succeeds")[0].token;
    assert!([7, 300].contains(&token), "{token}");
    // Of the second step, the mask follows from the token.
    let only = token + 1;
    assert_eq!(rig.device.masks(steps[1], vec![mask(1, &[only])]), Ok(()));
    let sampled = rig.output().sampled.expect("the step succeeds");
    assert_eq!((sampled[0].key, sampled[1].key, sampled[1].token), (key(1), key(0), only));
    assert_eq!(rig.device.masks(steps[1], Vec::new()), Err(MaskError::NotExpected { step: steps[1] }));
    // A greedy sample takes the best of the allowed tokens.
    let logits = rig.logits.lock().unwrap()[0].1.clone();
    assert_eq!(token, if logits[7] >= logits[300] { 7 } else { 300 });
}

#[test]
fn a_mask_that_allows_nothing_fails_its_sequence_alone() {
    let mut rig = rig();
    let plan = rig.plan(vec![masked(&rig, 0, 0, &[1, 2]), rig.span(1, 0, &[3])]);
    let step = plan.step;
    rig.submit(plan);
    assert_eq!(rig.device.masks(step, vec![mask(0, &[])]), Ok(()));
    let output = rig.output();
    assert_eq!((output.sampled.map(|it| it[0].key), output.failed[0].span), (Ok(key(1)), 0));
    assert!(output.failed[0].reason.contains("allows no token"), "{}", output.failed[0].reason);
}

#[test]
fn a_device_that_is_dropped_waits_for_no_mask() {
    let mut rig = rig();
    let plan = rig.plan(vec![masked(&rig, 0, 0, &[1, 2])]);
    rig.submit(plan);
    let Rig { device, .. } = rig;
    drop(device);
}
