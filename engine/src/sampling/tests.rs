//! The sampler against a plain one in f64 that sorts the whole vocabulary.

mod any_order;
mod edges;

use super::*;
use domain::{Choice, Epoch, Request, RequestId, SeqKey};
use proptest::prelude::*;
use std::sync::Arc;

const VOCAB: usize = 300;

fn sample_of(params: SamplingParams) -> Sample {
    Sample {
        key: SeqKey { request: RequestId(7), epoch: Epoch(1), choice: Choice(0) },
        row: 0,
        params: Arc::new(params),
        seed: 1234,
        index: 0,
        masked: false,
    }
}

/// Returns a random number in `0 .. 1`.
fn uniform(seed: u64, index: u32) -> f64 {
    (random::uniform(seed, index) >> 11) as f64 / (1u64 << 53) as f64
}

fn row(vocab: usize, seed: u64) -> Vec<f32> {
    (0..vocab as u32).map(|i| (uniform(seed, i) as f32 - 0.5) * 12.0).collect()
}

/// Returns what the parameters make of a row, in f64: the probability of each token.
fn reference(logits: &[f32], sample: &Sample, context: SampleContext<'_>) -> Vec<f64> {
    let params = &*sample.params;
    let mut row: Vec<f64> = logits.iter().map(|&x| if x.is_nan() { f64::NEG_INFINITY } else { f64::from(x) }).collect();
    for &(token, bias) in &params.logit_bias {
        row[token as usize] += f64::from(bias);
    }
    if sample.index < params.min_tokens {
        params.stop_tokens.iter().for_each(|&token| row[token as usize] = f64::NEG_INFINITY);
    }
    let output = [context.output, context.pending].concat();
    let all = [context.prompt, &output].concat();
    let occurrences = |tokens: &[Token], token: usize| tokens.iter().filter(|&&t| t as usize == token).count();
    for (token, logit) in row.iter_mut().enumerate() {
        if occurrences(&all, token) > 0 {
            let penalty = f64::from(params.repetition_penalty);
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
        let count = occurrences(&output, token);
        *logit -= count as f64 * f64::from(params.frequency_penalty);
        *logit -= if count > 0 { f64::from(params.presence_penalty) } else { 0.0 };
    }
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| row[b].partial_cmp(&row[a]).expect("numbers").then(a.cmp(&b)));
    let mut probabilities = vec![0.0; row.len()];
    if params.temperature == 0.0 {
        probabilities[order[0]] = 1.0;
        return probabilities;
    }
    let max = row[order[0]];
    let weight = |token: usize| ((row[token] - max) / f64::from(params.temperature)).exp();
    if params.top_k > 0 {
        order.truncate(params.top_k as usize);
    }
    if params.top_p < 1.0 {
        let total: f64 = order.iter().map(|&token| weight(token)).sum();
        let mut sum = 0.0;
        let kept = order.iter().take_while(|&&token| {
            let before = sum;
            sum += weight(token);
            before < f64::from(params.top_p) * total
        });
        let kept = kept.count().max(1);
        order.truncate(kept);
    }
    order.retain(|&token| weight(token) >= f64::from(params.min_p));
    let total: f64 = order.iter().map(|&token| weight(token)).sum();
    order.iter().for_each(|&token| probabilities[token] = weight(token) / total);
    probabilities
}

/// The reference's token at the sampler's own random point, and how far the point is from another token.
fn reference_draw(probabilities: &[f64], sample: &Sample) -> (Token, f64) {
    let point = uniform(sample.seed, sample.index);
    let mut below = 0.0;
    for (token, p) in probabilities.iter().enumerate() {
        if *p > 0.0 && point < below + p {
            return (token as Token, (point - below).min(below + p - point));
        }
        below += p;
    }
    (0, 0.0)
}

/// The sampler agrees with the reference over many indexes, where the point is not within rounding of a border.
fn check(logits: &[f32], sample: &Sample, context: SampleContext<'_>) {
    let mut sampler = Sampler::new(logits.len());
    let mut compared = 0;
    for index in 0..200 {
        let sample = Sample { index, ..sample.clone() };
        let probabilities = reference(logits, &sample, context);
        let (expected, margin) = reference_draw(&probabilities, &sample);
        let token = sampler.sample(logits, &sample, context).expect("the row is sound").token;
        assert!(probabilities[token as usize] > 0.0, "index {index}: token {token} is cut");
        if margin > 1e-5 {
            assert_eq!(token, expected, "index {index}");
            compared += 1;
        }
    }
    assert!(compared > 150, "only {compared} of 200 points were clear");
}

fn params(change: impl FnOnce(&mut SamplingParams)) -> SamplingParams {
    let mut params = SamplingParams::default();
    change(&mut params);
    params
}

#[test]
fn each_parameter_alone() {
    let logits = row(VOCAB, 1);
    let top = (0..VOCAB as Token).max_by(|&a, &b| logits[a as usize].total_cmp(&logits[b as usize])).expect("tokens");
    for params in [
        params(|_| ()),
        params(|p| p.temperature = 0.3),
        params(|p| p.temperature = 2.0),
        params(|p| p.top_k = 1),
        params(|p| p.top_k = 7),
        params(|p| p.top_k = 100_000),
        params(|p| p.top_p = 0.0),
        params(|p| p.top_p = 0.5),
        params(|p| p.top_p = 0.999),
        params(|p| p.min_p = 0.2),
        params(|p| (p.min_tokens, p.stop_tokens) = (100, vec![top, 3])),
        params(|p| p.logit_bias = vec![(5, 100.0)]),
        params(|p| p.logit_bias = vec![(top, -100.0), (9, 4.0)]),
        params(|p| (p.top_k, p.top_p, p.min_p, p.temperature) = (40, 0.9, 0.02, 1.3)),
    ] {
        check(&logits, &sample_of(params), SampleContext::default());
    }
}

#[test]
fn penalties_look_at_prompt_and_output() {
    let logits = row(VOCAB, 2);
    for params in [
        params(|p| p.presence_penalty = 1.5),
        params(|p| p.frequency_penalty = 0.7),
        params(|p| p.frequency_penalty = -0.7),
        params(|p| p.repetition_penalty = 1.8),
        params(|p| p.repetition_penalty = 0.6),
        params(|p| (p.presence_penalty, p.frequency_penalty, p.repetition_penalty) = (0.5, 0.25, 1.2)),
    ] {
        let history: Vec<_> = (0..200).map(|i| (uniform(3, i) * 60.0) as Token).collect();
        let (prompt, output) = history.split_at(120);
        check(&logits, &sample_of(params), SampleContext { prompt, output, ..SampleContext::default() });
    }
}

#[test]
fn a_token_that_the_host_does_not_know_yet_counts_as_one_of_the_history() {
    let logits = row(VOCAB, 5);
    let mut sampler = Sampler::new(VOCAB);
    let penalize = |p: &mut SamplingParams| {
        (p.temperature, p.frequency_penalty, p.presence_penalty, p.repetition_penalty) = (0.0, 2.0, 1.0, 1.5);
    };
    let best = sampler
        .sample(&logits, &sample_of(params(|p| p.temperature = 0.0)), SampleContext::default())
        .expect("sound")
        .token;
    let mut choose = |output: &[Token], pending: &[Token]| {
        let context = SampleContext { prompt: &[7], output, pending, allowed: None };
        sampler.sample(&logits, &sample_of(params(penalize)), context).expect("sound").token
    };
    for output in [&[][..], &[3, best], &[best, best]] {
        let known = choose(&[output, &[best]].concat(), &[]);
        assert_eq!(choose(output, &[best]), known);
    }
    assert_ne!(choose(&[], &[]), choose(&[], &[best]), "it is penalized");
}

#[test]
fn marks_do_not_leak_into_the_next_call() {
    let logits = row(VOCAB, 4);
    let mut sampler = Sampler::new(VOCAB);
    let penalized = sample_of(params(|p| (p.temperature, p.frequency_penalty) = (0.0, 2.0)));
    let context = SampleContext { prompt: &[1], output: &[2, 1, 299, 5_000], ..SampleContext::default() };
    let first = sampler.sample(&logits, &penalized, context);
    assert_eq!(first, sampler.sample(&logits, &penalized, context));
    assert!(sampler.marks.iter().all(|&mark| mark == 0));
}

#[test]
fn frequencies_follow_the_probabilities() {
    let logits = [2.0, 1.0, 0.0, -1.0, f32::NEG_INFINITY, f32::NAN];
    let sample = sample_of(params(|_| ()));
    let probabilities = reference(&logits, &sample, SampleContext::default());
    let mut sampler = Sampler::new(logits.len());
    let draws = 100_000;
    for choice in 0..3 {
        let mut counts = [0u32; 6];
        for index in 0..draws {
            let sample = Sample { seed: Request::seed(42, choice), index, ..sample.clone() };
            counts[sampler.sample(&logits, &sample, SampleContext::default()).expect("sound").token as usize] += 1;
        }
        assert_eq!(counts[4..], [0, 0]);
        let expected = probabilities.iter().map(|p| p * f64::from(draws));
        let terms = expected.zip(counts).take(4).map(|(e, c)| (f64::from(c) - e).powi(2) / e);
        let chi_square: f64 = terms.sum();
        // The 99.9th percentile for three degrees of freedom.
        assert!(chi_square < 16.27, "choice {choice}: {chi_square}, {counts:?}");
    }
}

#[test]
fn choices_of_a_request_have_streams_of_their_own() {
    let stream = |choice| (0..64).map(move |index| random::uniform(Request::seed(9, choice), index));
    let first: Vec<u64> = stream(0).collect();
    for choice in 1..8 {
        assert!(stream(choice).all(|bits| !first.contains(&bits)), "choice {choice} repeats choice 0");
    }
}

#[test]
fn the_random_numbers_are_fixed_for_ever() {
    // A worker of another version that takes a sequence over must go on with the same numbers.
    let bits = [(0, 0), (0, 1), (1, 0), (u64::MAX, u32::MAX)].map(|(seed, index)| random::uniform(seed, index));
    assert_eq!(bits, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0xbfef_8030_ddc2_d772, 0xfdf4_5018_1812_0832]);
}

#[test]
fn the_tokens_are_fixed_for_ever() {
    // Workers of two versions, and devices of two kinds, sample one text of the same logits.
    let logits = row(VOCAB, 11);
    let tokens = [
        params(|_| ()),
        params(|p| p.temperature = 0.7),
        params(|p| p.top_k = 5),
        params(|p| p.top_p = 0.3),
        params(|p| p.min_p = 0.5),
        params(|p| (p.top_k, p.top_p, p.min_p, p.temperature) = (40, 0.9, 0.02, 1.3)),
    ]
    .map(|params| {
        let sample = |index| Sample { index, ..sample_of(params.clone()) };
        [0, 1, 2, 3].map(|index| {
            Sampler::new(VOCAB).sample(&logits, &sample(index), SampleContext::default()).expect("sound").token
        })
    });
    assert_eq!(
        tokens,
        [
            [147, 166, 11, 196],
            [147, 163, 22, 196],
            [162, 162, 25, 196],
            [157, 162, 25, 196],
            [147, 162, 11, 180],
            [145, 162, 11, 196],
        ]
    );
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let greedy = sample_of(params(|p| p.temperature = 0.0));
    let mut sampler = Sampler::new(40);
    let mut logits = vec![-1.0; 40];
    (logits[0], logits[17], logits[33]) = (f32::NAN, -0.0, 0.0);
    assert_eq!(sampler.sample(&logits, &greedy, SampleContext::default()).expect("sound").token, 17);
}

#[test]
fn rows_that_cannot_be_sampled_are_errors_and_parameters_never_are() {
    let mut sampler = Sampler::new(3);
    let plain = sample_of(params(|_| ()));
    assert!(sampler.sample(&[f32::NAN, f32::NEG_INFINITY, f32::NAN], &plain, SampleContext::default()).is_err());
    assert!(sampler.sample(&[0.0, f32::INFINITY, 0.0], &plain, SampleContext::default()).is_err());
    assert!(sampler.sample(&[0.0], &plain, SampleContext::default()).is_err());
    // Every token masked: the mask is void.
    let masked = sample_of(params(|p| (p.min_tokens, p.stop_tokens, p.temperature) = (9, vec![0, 1, 2, 3], 0.0)));
    assert_eq!(sampler.sample(&[0.0, 5.0, 1.0], &masked, SampleContext::default()).expect("sound").token, 1);
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0, 1e-40, 3e38] {
        let set = |p: &mut SamplingParams| {
            (p.temperature, p.top_p, p.min_p, p.top_k) = (odd, odd, odd, 2);
            (p.presence_penalty, p.frequency_penalty, p.repetition_penalty) = (odd, odd, odd);
            p.logit_bias = vec![(0, odd), (77, odd)];
        };
        let (sample, context) =
            (sample_of(params(set)), SampleContext { output: &[0, 1, 2, 88], ..Default::default() });
        let token = sampler.sample(&[-1.0, 5.0, f32::NAN], &sample, context).expect("sound").token;
        assert!(token < 3, "{odd}");
    }
}

#[test]
fn logprobs_are_of_the_row_as_it_is() {
    let logits = row(VOCAB, 5);
    let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
    let exact = |token: Token| f64::from(logits[token as usize]) - total.ln();
    let change = |p: &mut SamplingParams| {
        (p.logprobs, p.temperature, p.top_k) = (Some(5), 0.2, 3);
        p.logit_bias = vec![(8, 90.0)];
    };
    let sampled =
        Sampler::new(VOCAB).sample(&logits, &sample_of(params(change)), SampleContext::default()).expect("sound");
    assert_eq!(sampled.token, 8);
    let logprobs = sampled.logprobs.expect("asked for");
    let mut order: Vec<Token> = (0..VOCAB as Token).collect();
    order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
    assert_eq!(logprobs.top.iter().map(|top| top.0).collect::<Vec<_>>(), order[..5]);
    for (token, logprob) in logprobs.top.into_iter().chain([(8, logprobs.logprob)]) {
        assert!((f64::from(logprob) - exact(token)).abs() < 1e-5, "{token}: {logprob}, not {}", exact(token));
    }
}

#[test]
fn logprobs_list_ties_by_token_and_nothing_impossible() {
    let logits = [1.0, f32::NEG_INFINITY, 1.0, 3.0, f32::NAN];
    let sample = sample_of(params(|p| (p.logprobs, p.temperature) = (Some(20), 0.0)));
    let logprobs =
        Sampler::new(5).sample(&logits, &sample, SampleContext::default()).expect("sound").logprobs.expect("asked for");
    assert_eq!(logprobs.top.iter().map(|top| top.0).collect::<Vec<_>>(), [3, 0, 2]);
    assert_eq!(logprobs.logprob, logprobs.top[0].1);
}

proptest! {
    #[test]
    fn weights_are_the_probabilities(vocab in 1usize..400, row_seed: u64, temperature in 0.05f32..3.0) {
        let logits = row(vocab, row_seed);
        let probabilities = reference(&logits, &sample_of(params(|p| p.temperature = temperature)), SampleContext::default());
        let mut weights = Vec::new();
        weights::fill(&mut weights, &logits, weights::max(&logits), fixed::scale(temperature));
        let total: u64 = weights.iter().sum();
        for (weight, exact) in weights.iter().zip(probabilities) {
            let found = *weight as f64 / total as f64;
            // No token that counts is more than 39 halvings below the most probable one, so both the weight and the
            // total are within 119 * 2^-24; the total lacks less than one for each token.
            let allowed = exact * 2.0 * 119.0 * 2f64.powi(-24) + vocab as f64 * 2f64.powi(-39);
            prop_assert!((found - exact).abs() <= allowed, "{} instead of {}", found, exact);
        }
    }

    #[test]
    fn the_sampler_is_the_reference(
        vocab in 1usize..400,
        row_seed: u64,
        seed: u64,
        levels in prop_oneof![Just(2.0f32), Just(16.0), Just(1e6)],
        temperature in prop_oneof![Just(0.0f32), 0.05f32..3.0],
        top_k in prop_oneof![Just(0u32), 1u32..80],
        top_p in prop_oneof![Just(1.0f32), 0.01f32..1.0],
        min_p in prop_oneof![Just(0.0f32), 0.0f32..1.0],
    ) {
        // Few levels make many ties.
        let logits: Vec<f32> = row(vocab, row_seed).iter().map(|x| (x * levels / 12.0).round() * 12.0 / levels).collect();
        let params = params(|p| (p.temperature, p.top_k, p.top_p, p.min_p) = (temperature, top_k, top_p, min_p));
        let sample = Sample { seed, ..sample_of(params) };
        let probabilities = reference(&logits, &sample, SampleContext::default());
        let (expected, margin) = reference_draw(&probabilities, &sample);
        let token = Sampler::new(vocab).sample(&logits, &sample, SampleContext::default()).expect("sound").token;
        // A border of a cut that lies within rounding of the parameter may fall either way.
        let kept = |factor: f32| {
            let moved = SamplingParams { top_p: top_p * factor, min_p: min_p * factor, ..(*sample.params).clone() };
            let moved = Sample { params: Arc::new(moved), ..sample.clone() };
            reference(&logits, &moved, SampleContext::default()).iter().filter(|&&p| p > 0.0).count()
        };
        let near_cut = kept(1.0 - 1e-5) != kept(1.0 + 1e-5);
        if margin > 1e-5 && !near_cut {
            prop_assert_eq!(token, expected);
        }
    }
}
