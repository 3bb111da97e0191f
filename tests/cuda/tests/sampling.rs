//! Sampling against the sampler of the engine: the same tokens and the same log probabilities, bit for bit.

use cuda::kernels::{
    Bias, History, HistoryArgs, HistoryRun, NO_REPORT, PARTS_MAX, SampleKind, SampleRequest, SampleResult, Sampling,
    SamplingArgs, TOP_MAX,
};
use domain::plan::{Sample, Score, TokenLogprobs, TokenSet};
use domain::{Choice, Epoch, RequestId, SamplingParams, SeqKey, Token};
use engine::sampling::{DrawNumbers, SampleContext, SampleError, Sampler};
use proptest::prelude::*;
use std::sync::Arc;
use tests_cuda::{Buffer, Draw, Gpu};

const KEY: SeqKey = SeqKey { request: RequestId(7), epoch: Epoch(1), choice: Choice(0) };

/// What a test asks for of a row.
#[derive(Clone, Debug)]
struct Wanted {
    row: usize,
    params: SamplingParams,
    seed: u64,
    index: u32,
    /// Words of a mask.
    mask: Option<Vec<u32>>,
    prompt: Vec<Token>,
    output: Vec<Token>,
    pending: Vec<Token>,
    /// A token that is scored, and the number of most probable ones beside it. The rest does not matter then.
    score: Option<(Token, u16)>,
}

impl Wanted {
    fn new(params: SamplingParams) -> Self {
        let (prompt, output, pending) = (Vec::new(), Vec::new(), Vec::new());
        Self { row: 0, params, seed: 1234, index: 0, mask: None, prompt, output, pending, score: None }
    }

    fn sample(&self) -> Sample {
        let masked = self.mask.is_some();
        Sample { key: KEY, row: 0, params: Arc::new(self.params.clone()), seed: self.seed, index: self.index, masked }
    }

    /// Returns whether anything but a mask changes its row.
    fn is_adjusted(&self) -> bool {
        let Self { params, .. } = self;
        let masks = self.index < params.min_tokens && !params.stop_tokens.is_empty();
        self.score.is_none() && (masks || !params.logit_bias.is_empty() || params.needs_history())
    }

    /// Returns what its row is with mask, biases, stop tokens and penalties, token by token.
    fn adjusted(&self, row: &[f32]) -> Vec<f32> {
        let params = &self.params;
        let sane = |logit: f32| if logit.is_nan() { f32::NEG_INFINITY } else { logit.min(f32::MAX) };
        let times = |tokens: &[Token], token| tokens.iter().filter(|&&other| other == token).count();
        let adjusted = |(token, &logit): (Token, &f32)| {
            let is_allowed = self.mask.as_ref().is_none_or(|words| words[token as usize / 32] >> (token % 32) & 1 == 1);
            let mut logit = if is_allowed { logit } else { f32::NEG_INFINITY };
            let biases = params.logit_bias.iter().filter(|bias| bias.0 == token);
            biases.for_each(|bias| logit = sane(logit + bias.1));
            if self.index < params.min_tokens && params.stop_tokens.contains(&token) {
                logit = f32::NEG_INFINITY;
            }
            let count = times(&self.output, token) + times(&self.pending, token);
            if !params.needs_history() || count + times(&self.prompt, token) == 0 {
                return logit;
            }
            if params.repetition_penalty != 1.0 {
                let penalty = params.repetition_penalty;
                logit = if logit > 0.0 { logit / penalty } else { logit * penalty };
            }
            if count > 0 {
                logit -= count as f32 * params.frequency_penalty + params.presence_penalty;
            }
            sane(logit)
        };
        (0..).zip(row).map(adjusted).collect()
    }

    /// Returns what the engine makes of it: the token where it is sampled, and log probabilities.
    fn expected(&self, sampler: &mut Sampler, row: &[f32]) -> Result<(Token, Option<TokenLogprobs>), SampleError> {
        if let Some((token, top)) = self.score {
            return Ok((token, Some(sampler.score(row, KEY, &Score { row: 0, token, top })?)));
        }
        let allowed = self.mask.clone().map(|words| TokenSet::from_words(row.len(), words).expect("enough words"));
        let (prompt, output, pending) = (&*self.prompt, &*self.output, &*self.pending);
        let context = SampleContext { prompt, output, pending, allowed: allowed.as_ref() };
        let sampled = sampler.sample(row, &self.sample(), context)?;
        Ok((sampled.token, sampled.logprobs))
    }
}

/// Rows of logits, what is wanted of them, and how the device shares the work.
struct Run<'a> {
    rows: &'a [Vec<f32>],
    wanted: &'a [Wanted],
    parts: u32,
    /// Requests that there is room for.
    slots: usize,
}

/// The device memory that requests refer to, which lives as long as they run.
#[derive(Default)]
struct Held<'a> {
    words: Vec<Buffer<'a, u32>>,
    bytes: Vec<Buffer<'a, u8>>,
    numbers: Vec<Buffer<'a, f32>>,
}

impl<'a> Held<'a> {
    fn words(&mut self, gpu: &'a Gpu, values: &[u32]) -> u64 {
        self.words.push(gpu.upload(values));
        self.words.last().expect("just pushed").address()
    }

    fn empty_row(&mut self, gpu: &'a Gpu, len: usize) -> u64 {
        self.numbers.push(gpu.empty(len));
        self.numbers.last().expect("just pushed").address()
    }

    /// Returns the bits of the rows of numbers, and their order.
    fn rows(&self) -> impl Iterator<Item = (usize, Vec<u32>)> {
        self.numbers.iter().map(|row| row.read().into_iter().map(bits_of).collect()).enumerate()
    }

    fn biases(&mut self, gpu: &'a Gpu, biases: &[(Token, f32)]) -> u64 {
        let mut sorted = biases.to_vec();
        sorted.sort_by_key(|&(token, _)| token);
        let biases = sorted.into_iter().map(|(token, bias)| Bias { token, bias });
        let bytes = biases.flat_map(|Bias { token, bias }| [token, bias.to_bits()]).flat_map(u32::to_le_bytes);
        self.bytes.push(gpu.upload(&bytes.collect::<Vec<u8>>()));
        self.bytes.last().expect("just pushed").address()
    }

    /// Makes the marks of a history, in two launches: all but the last tokens of the output, then those.
    fn counts(&mut self, gpu: &'a Gpu, prompt: &[Token], output: &[Token], vocab: usize) -> u64 {
        let counts = self.words(gpu, &vec![77; vocab]);
        let (first, second) = output.split_at(output.len() / 2);
        for (tokens, prompt, clears) in [([prompt, first].concat(), prompt.len(), 1), (second.to_vec(), 0, 0)] {
            let (len, prompt) = (tokens.len() as u32, prompt as u32);
            let tokens = self.words(gpu, &tokens);
            add_runs(gpu, &[HistoryRun { counts, tokens, len, prompt, clears, unused: 0 }], vocab);
        }
        counts
    }
}

/// Adds tokens to marks.
fn add_runs(gpu: &Gpu, runs: &[HistoryRun], vocab: usize) {
    let (on_runs, count) = (gpu.upload(HistoryRun::bytes(runs)), gpu.upload(&[runs.len() as u32]));
    let clears = runs.iter().any(|run| run.clears != 0);
    let (runs, count) = (on_runs.address(), count.address());
    let args = HistoryArgs { runs, count, vocab: vocab as u32, slots: 2, parts: 3, clears };
    // SAFETY: the runs and what they refer to are in device memory, and the stream is waited for.
    unsafe { History::load(&gpu.loader).expect("the kernels").launch(&gpu.stream, &args) }.expect("a launch");
    gpu.stream.synchronize().expect("a launch");
}

impl Run<'_> {
    fn vocab(&self) -> usize {
        self.rows[0].len()
    }

    /// Runs the kernels twice in the same scratch, which has no value at first, and returns the results. What is behind
    /// the last request, and the rows, stay as they are.
    fn results(&self, gpu: &Gpu) -> Vec<SampleResult> {
        let (vocab, count) = (self.vocab(), self.wanted.len());
        let flat = self.rows.concat();
        let logits = gpu.upload(&flat);
        let mut held = Held::default();
        let (mut inputs, mut before) = (vec![0_i32], Vec::new());
        let requests: Vec<SampleRequest> = (self.wanted.iter())
            .map(|wanted| {
                let first = inputs.len() as u32;
                // Every other input is one that the step before sampled.
                inputs.extend(wanted.pending.iter().enumerate().map(|(i, &token)| match i % 2 {
                    0 => token as i32,
                    _ => {
                        before.push(token);
                        -(before.len() as i32)
                    }
                }));
                let logits = logits.address() + (wanted.row * vocab * size_of::<f32>()) as u64;
                request(gpu, &mut held, wanted, logits, vocab, first)
            })
            .collect();
        let (tokens, before) = (gpu.upload(&inputs), gpu.upload(&before));
        let (on_requests, on_count) = (gpu.upload(SampleRequest::bytes(&requests)), gpu.upload(&[count as u32]));
        let scratch = gpu.empty::<u8>(Sampling::scratch_bytes(self.slots));
        let (results, sampled) =
            (gpu.empty::<u8>(self.slots * size_of::<SampleResult>()), gpu.empty::<u32>(self.slots));
        let args = SamplingArgs {
            requests: on_requests.address(),
            count: on_count.address(),
            scratch: scratch.address(),
            results: results.address(),
            tokens: tokens.address(),
            sampled_before: before.address(),
            sampled: sampled.address(),
            vocab: vocab as u32,
            slots: self.slots as u32,
            parts: self.parts,
            weighs: requests.iter().any(|request| request.is_weighed(vocab as u32)),
        };
        let sampling = Sampling::load(&gpu.loader).expect("the kernels");
        let run = || {
            // SAFETY: the buffers are as the arguments say.
            unsafe { sampling.launch(&gpu.stream, &args) }.expect("a launch");
            results.read()
        };
        let found = run();
        assert!(run() == found, "what the scratch had before does not matter");
        let (own, behind) = found.split_at(count * size_of::<SampleResult>());
        assert!(behind.iter().all(|&byte| byte == 0xFF), "results behind the last request");
        assert!(logits.read().iter().map(|x| x.to_bits()).eq(flat.iter().map(|x| x.to_bits())), "logits changed");
        for (wanted, (at, adjusted)) in self.wanted.iter().filter(|wanted| wanted.is_adjusted()).zip(held.rows()) {
            let exact: Vec<u32> = wanted.adjusted(&self.rows[wanted.row]).into_iter().map(bits_of).collect();
            assert_eq!(adjusted, exact, "adjusted row {at}: {wanted:?}");
        }
        let results = SampleResult::read(own);
        for (slot, token) in sampled.read().into_iter().enumerate() {
            let is_sampled = self.wanted.get(slot).is_some_and(|wanted| wanted.score.is_none());
            assert_eq!(token, if is_sampled { results[slot].token } else { u32::MAX }, "sampled token {slot}");
        }
        results
    }

    /// Fails unless the results are those of the engine.
    fn check(&self, gpu: &Gpu) -> Vec<SampleResult> {
        let results = self.results(gpu);
        let mut sampler = Sampler::new(self.vocab());
        for (wanted, result) in self.wanted.iter().zip(&results) {
            let row = &self.rows[wanted.row];
            let what = format!("{wanted:?} of {} blocks, found {result:?}", self.parts);
            assert_eq!(result.is_broken != 0, row.iter().any(|x| !x.is_finite()), "{what}");
            match wanted.expected(&mut sampler, row) {
                Ok((token, logprobs)) => {
                    assert_eq!((result.status, result.token), (SampleResult::DONE, token), "{what}");
                    check_logprobs(result, logprobs.as_ref(), &what);
                }
                Err(SampleError::Maximum { max, .. }) => {
                    assert_eq!((result.status, result.max), (SampleResult::NO_MAXIMUM, max), "{what}");
                }
                Err(SampleError::NothingAllowed { .. }) => {
                    assert_eq!((result.status, result.token), (SampleResult::NOTHING_ALLOWED, 0), "{what}");
                }
                Err(error) => panic!("{error}: {what}"),
            }
        }
        results
    }
}

/// Fails unless a result has these log probabilities, bit for bit.
fn check_logprobs(result: &SampleResult, logprobs: Option<&TokenLogprobs>, what: &str) {
    let Some(TokenLogprobs { logprob, top }) = logprobs else {
        assert_eq!(result.top_len, 0, "{what}");
        return;
    };
    let found = (0..result.top_len as usize).map(|i| (result.top_tokens[i], result.top_logprobs[i].to_bits()));
    let top: Vec<_> = top.iter().map(|&(token, logprob)| (token, logprob.to_bits())).collect();
    assert_eq!(found.collect::<Vec<_>>(), top, "{what}");
    assert_eq!(result.logprob.to_bits(), logprob.to_bits(), "{logprob}: {what}");
}

/// Returns the bits of a number; all that are none have the same.
fn bits_of(number: f32) -> u32 {
    if number.is_nan() { f32::NAN.to_bits() } else { number.to_bits() }
}

/// What a result is to the last bit.
fn bits(result: &SampleResult) -> ([u32; 6], [u32; TOP_MAX], [u32; TOP_MAX]) {
    let &SampleResult { token, status, is_broken, max, logprob, top_len, top_tokens, top_logprobs, .. } = result;
    let own = [token, status, is_broken, max.to_bits(), logprob.to_bits(), top_len];
    (own, top_tokens, top_logprobs.map(f32::to_bits))
}

/// Makes a request as the host does.
fn request<'a>(
    gpu: &'a Gpu,
    held: &mut Held<'a>,
    wanted: &Wanted,
    logits: u64,
    vocab: usize,
    pending_first: u32,
) -> SampleRequest {
    if let Some((token, top)) = wanted.score {
        return SampleRequest {
            logits,
            kind: SampleKind::Score,
            token,
            report: top.into(),
            ..SampleRequest::default()
        };
    }
    let Wanted { params, index, .. } = wanted;
    let numbers = DrawNumbers::of(&wanted.sample());
    let mut stops = if *index < params.min_tokens { params.stop_tokens.clone() } else { Vec::new() };
    stops.sort_unstable();
    stops.dedup();
    SampleRequest {
        logits,
        adjusted: if wanted.is_adjusted() { held.empty_row(gpu, vocab) } else { 0 },
        mask: wanted.mask.as_ref().map_or(0, |words| held.words(gpu, words)),
        counts: if params.needs_history() { held.counts(gpu, &wanted.prompt, &wanted.output, vocab) } else { 0 },
        biases: held.biases(gpu, &params.logit_bias),
        stops: held.words(gpu, &stops),
        uniform: numbers.uniform,
        nucleus: numbers.nucleus,
        least: numbers.least,
        bias_count: params.logit_bias.len() as u32,
        stop_count: stops.len() as u32,
        kind: if numbers.scale.is_some() { SampleKind::Draw } else { SampleKind::Greedy },
        scale: numbers.scale.unwrap_or(0.0),
        top_k: params.top_k,
        report: params.logprobs.unwrap_or(NO_REPORT),
        token: 0,
        repetition: params.repetition_penalty,
        frequency: params.frequency_penalty,
        presence: params.presence_penalty,
        pending_first,
        pending_end: pending_first + wanted.pending.len() as u32,
        unused: 0,
    }
}

/// Draws one of some.
fn one<T: Copy>(draw: &mut Draw, of: &[T]) -> T {
    of[draw.below(of.len())]
}

/// Draws a number in `0 .. 1`.
fn unit(draw: &mut Draw) -> f32 {
    (draw.bits() >> 40) as f32 / (1_u32 << 24) as f32
}

/// Draws a row: continuous, of few levels that tie, or of anything that a float can be.
fn row(draw: &mut Draw, vocab: usize) -> Vec<f32> {
    let wide = one(draw, &[0.01, 1.0, 6.0, 60.0]);
    let kind = draw.below(6);
    let strange = [f32::NAN, f32::NEG_INFINITY, 0.0, -0.0, 1e-40, -1e-40, 1e30, -1e30, f32::MIN];
    let logit = |draw: &mut Draw| match kind {
        0..=2 => draw.normal() * wide,
        3 => (draw.normal() * 2.0).round() * wide,
        4 => one(draw, &[f32::NAN, f32::NEG_INFINITY, -0.0, 0.0, draw.clone().normal(), -40.0]),
        _ => one(draw, &strange),
    };
    let mut row: Vec<f32> = (0..vocab).map(|_| logit(draw)).collect();
    match draw.below(12) {
        0 => row.fill(f32::NEG_INFINITY),
        1 => row[draw.below(vocab)] = f32::INFINITY,
        2 => row[draw.below(vocab)] = f32::NAN,
        _ => {}
    }
    row
}

/// Draws tokens, some outside of the vocabulary and some more than once.
fn tokens(draw: &mut Draw, vocab: usize, most: usize) -> Vec<Token> {
    let (count, span) = (draw.below(most + 1), one(draw, &[3, vocab, vocab + 9]));
    (0..count).map(|_| draw.below(span) as Token).collect()
}

/// Draws what is asked for.
fn params(draw: &mut Draw, vocab: usize) -> SamplingParams {
    let mut params = SamplingParams { logprobs: None, ..SamplingParams::default() };
    let (some, small) = (unit(draw), draw.below(vocab + 2) as u32);
    params.temperature = one(draw, &[0.0, 1.0, 1.0, 0.3, 2.0, some * 3.0, -1.0, f32::NAN, 1e-40, 1e30, f32::INFINITY]);
    params.top_p = one(draw, &[1.0, 1.0, 0.9, some, some * 0.01, 0.0, -1.0, 1e-30, f32::NAN, 0.999_999_9]);
    params.top_k = one(draw, &[0, 0, 1, 2, 50, small, vocab as u32, u32::MAX]);
    params.min_p = one(draw, &[0.0, 0.0, 0.05, some, 1.0, f32::NAN, 1e-30]);
    if draw.below(3) == 0 {
        params.repetition_penalty = one(draw, &[1.0, 1.3, 0.5, 0.0, -2.0]);
        params.frequency_penalty = one(draw, &[0.0, 0.7, -0.3, some, 1e38, f32::INFINITY]);
        params.presence_penalty = one(draw, &[0.0, 0.1, -1.0, some]);
    }
    if draw.below(3) == 0 {
        let tokens = tokens(draw, vocab, 40);
        let numbers = [5.0, -3.0, some, 100.0, -100.0, f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 3e38];
        params.logit_bias = tokens.into_iter().map(|token| (token, one(draw, &numbers))).collect();
    }
    if draw.below(4) == 0 {
        params.stop_tokens = if draw.below(4) == 0 { (0..vocab as Token).collect() } else { tokens(draw, vocab, 9) };
        params.min_tokens = 5;
    }
    if draw.below(2) == 0 {
        params.logprobs = Some(draw.below(TOP_MAX + 1) as u32);
    }
    params
}

/// Draws all that is asked for of one of so many rows.
fn wanted(draw: &mut Draw, vocab: usize, rows: usize) -> Wanted {
    let mut wanted = Wanted::new(params(draw, vocab));
    wanted.row = draw.below(rows);
    (wanted.seed, wanted.index) = (draw.bits(), draw.below(9) as u32);
    if wanted.params.needs_history() {
        wanted.prompt = tokens(draw, vocab, 60);
        wanted.output = tokens(draw, vocab, 30);
        let most = one(draw, &[0, 1, 9, 100]);
        wanted.pending = tokens(draw, vocab, most);
    }
    if draw.below(4) == 0 {
        let (sparse, all) = (draw.below(3), draw.below(9) > 0);
        let mut word =
            |_| if all { (0..sparse).fold(draw.bits() as u32, |word, _| word & draw.bits() as u32) } else { 0 };
        wanted.mask = Some((0..vocab.div_ceil(32)).map(&mut word).collect());
    }
    if draw.below(6) == 0 {
        wanted.score = Some((draw.below(vocab) as Token, draw.below(TOP_MAX + 1) as u16));
    }
    wanted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn tokens_and_log_probabilities_are_those_of_the_engine(seed: u64, short: bool, parts in 0u32..5) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let mut draw = Draw::new(seed);
        let vocab = if short { 1 + draw.below(80) } else { 7 + draw.below(3000) };
        let rows: Vec<Vec<f32>> = (0..2).map(|_| row(&mut draw, vocab)).collect();
        let wanted: Vec<Wanted> = (0..6).map(|_| wanted(&mut draw, vocab, rows.len())).collect();
        Run { rows: &rows, wanted: &wanted, parts: 1 << parts, slots: 7 }.check(gpu);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]
    #[test]
    fn any_number_of_blocks_gives_the_same_bits(seed: u64, is_flat: bool) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let mut draw = Draw::new(seed);
        let vocab = 1000 + draw.below(4000);
        // Ties lie in all parts of a flat row, and more of them than a list has room for.
        let rows = [if is_flat { vec![draw.normal(); vocab] } else { row(&mut draw, vocab) }];
        let wanted: Vec<Wanted> = (0..4).map(|_| wanted(&mut draw, vocab, 1)).collect();
        let results = |parts| {
            let run = Run { rows: &rows, wanted: &wanted, parts, slots: 4 };
            run.results(gpu).iter().map(bits).collect::<Vec<_>>()
        };
        let one = results(1);
        for parts in [2, 4, 8, PARTS_MAX] {
            prop_assert_eq!(results(parts), one.clone(), "{} blocks a row", parts);
        }
    }
}

/// What each of these changes makes of the defaults, with the most probable tokens reported.
fn each(changes: &[fn(&mut SamplingParams)]) -> Vec<Wanted> {
    let change = |change: &fn(&mut SamplingParams)| {
        let mut params = SamplingParams { logprobs: Some(5), ..SamplingParams::default() };
        change(&mut params);
        Wanted::new(params)
    };
    changes.iter().map(change).collect()
}

#[test]
fn the_vocabulary_of_a_large_model_is_sampled() {
    let Some(gpu) = Gpu::open() else { return };
    const VOCAB: usize = 151_936;
    let mut draw = Draw::new(3);
    let rows = [(0..VOCAB).map(|_| draw.normal() * 3.0).collect(), (0..VOCAB).map(|_| draw.normal()).collect()];
    let mut wanted = each(&[
        |_| (),
        |p| p.temperature = 0.0,
        |p| (p.top_p, p.logprobs) = (0.9, Some(20)),
        |p| (p.top_k, p.logprobs) = (50, None),
        // More candidates than a list has room for.
        |p| (p.top_k, p.top_p, p.logprobs) = (90_000, 0.8, None),
        |p| (p.top_k, p.top_p, p.min_p, p.temperature) = (64, 0.95, 0.02, 0.7),
        |p| (p.repetition_penalty, p.frequency_penalty) = (1.1, 0.2),
    ]);
    let many: Vec<Token> = (0..3000).map(|_| draw.below(VOCAB) as Token).collect();
    wanted.iter_mut().enumerate().for_each(|(i, wanted)| {
        (wanted.row, wanted.index) = (usize::from(i == 2 || i == 4), i as u32);
        (wanted.prompt, wanted.output) = (many[..2000].to_vec(), many[2000..].to_vec());
    });
    Run { rows: &rows, wanted: &wanted, parts: 8, slots: 7 }.check(gpu);
}

#[test]
fn segments_may_be_longer_than_a_block_looks_at_once() {
    let Some(gpu) = Gpu::open() else { return };
    let mut draw = Draw::new(5);
    let rows = [(0..600_001).map(|_| draw.normal()).collect::<Vec<f32>>()];
    let mut wanted = each(&[|_| (), |p| p.min_p = 0.01, |p| p.top_k = 300, |p| p.logprobs = None]);
    wanted.iter_mut().zip(0..).for_each(|(wanted, index)| wanted.index = index);
    Run { rows: &rows, wanted: &wanted, parts: 2, slots: 4 }.check(gpu);
}

#[test]
fn few_tokens_are_possible_of_many() {
    let Some(gpu) = Gpu::open() else { return };
    // Three tokens have a weight; all others are impossible, or possible and weigh nothing.
    let mut rows = [f32::NEG_INFINITY, f32::NAN, -1e30, f32::NEG_INFINITY].map(|logit| vec![logit; 6000]);
    rows[3][2000..2010].fill(-1e30);
    rows.iter_mut().for_each(|row| (row[3], row[700], row[5999]) = (1.0, 0.0, 0.5));
    let mut wanted = each(&[|_| (), |p| p.top_k = 5, |p| p.top_p = 0.999_999, |p| p.logprobs = Some(20)]);
    wanted = (0..4).flat_map(|row| wanted.clone().into_iter().map(move |own| Wanted { row, ..own })).collect();
    let results = Run { rows: &rows, wanted: &wanted, parts: 4, slots: 16 }.check(gpu);
    assert_eq!([0, 4, 8, 11, 12, 15].map(|i: usize| results[i].top_len), [3, 3, 5, 20, 5, 13]);
}

#[test]
fn ties_fall_by_token_in_lists_and_without() {
    let Some(gpu) = Gpu::open() else { return };
    for vocab in [300, 6000] {
        let mut rows = [vec![2.5; vocab], (0..vocab).map(|token| (token % 3) as f32).collect()];
        // Minus zero ties with zero.
        (rows[1][0], rows[1][3]) = (-0.0, 0.0);
        let mut wanted = each(&[
            |_| (),
            |p| p.temperature = 0.0,
            |p| p.top_k = 1,
            |p| p.top_k = 257,
            |p| p.top_p = 0.25,
            // Among the second largest of the second row.
            |p| p.top_p = 0.75,
            |p| p.top_p = 0.8,
            |p| (p.top_k, p.top_p) = (200, 0.5),
            |p| (p.top_k, p.top_p) = (250, 1e-30),
            |p| (p.top_p, p.min_p, p.logprobs) = (0.0, 1.0, Some(20)),
            |p| (p.temperature, p.top_p) = (f32::INFINITY, 0.9),
        ]);
        wanted.iter_mut().zip(0..).for_each(|(wanted, index)| wanted.index = index);
        let mut other = wanted.clone();
        other.iter_mut().for_each(|wanted| wanted.row = 1);
        wanted.append(&mut other);
        let results = Run { rows: &rows, wanted: &wanted, parts: 8, slots: 22 }.check(gpu);
        assert_eq!([1, 2, 8, 9].map(|i: usize| results[i].token), [0; 4], "the first of all");
        assert_eq!(results[0].top_tokens[..5], [0, 1, 2, 3, 4]);
        assert_eq!([12, 13, 19].map(|i: usize| results[i].token), [2; 3], "the first of the largest");
    }
}

#[test]
fn rows_without_tokens_are_told() {
    let Some(gpu) = Gpu::open() else { return };
    const VOCAB: usize = 70;
    let mut rows: Vec<Vec<f32>> = [f32::NEG_INFINITY, f32::NAN, 1.0].map(|logit| vec![logit; VOCAB]).into();
    rows[2][69] = f32::NEG_INFINITY;
    let mut wanted = each(&[|_| (), |p| p.temperature = 0.0, |p| (p.top_k, p.logprobs) = (1, None)]);
    wanted.iter_mut().zip(0..).for_each(|(wanted, row)| wanted.row = row);
    // No token is allowed, or none that is possible; biases and stop tokens make none so.
    let masks = [vec![0; 3], vec![0, 0, 1 << 5 | 1 << 6], vec![0, 1, 0], vec![0, 1, 0], vec![u32::MAX; 3]];
    for mask in masks {
        let mut masked = Wanted::new(SamplingParams { min_tokens: 1, ..SamplingParams::default() });
        (masked.row, masked.mask) = (2, Some(mask));
        if wanted.len() == 6 {
            masked.params.stop_tokens = vec![32];
        }
        wanted.push(masked);
    }
    wanted.push(Wanted { row: 0, score: Some((3, 2)), ..Wanted::new(SamplingParams::default()) });
    let results = Run { rows: &rows, wanted: &wanted, parts: 4, slots: 9 }.check(gpu);
    let (done, maximum, nothing) = (SampleResult::DONE, SampleResult::NO_MAXIMUM, SampleResult::NOTHING_ALLOWED);
    let status: Vec<u32> = results.iter().map(|result| result.status).collect();
    assert_eq!(status, [maximum, maximum, done, nothing, nothing, done, done, done, maximum]);
    assert_eq!([2, 5, 6].map(|i: usize| results[i].token), [0, 32, 32], "a mask is not void, a stop token is");
}

#[test]
fn a_step_may_sample_nothing_and_may_have_its_tokens_where_the_last_step_left_them() {
    let Some(gpu) = Gpu::open() else { return };
    let rows = [vec![0.5_f32, 0.25, 0.75, 0.0]];
    assert!(Run { rows: &rows, wanted: &[], parts: 2, slots: 2 }.results(gpu).is_empty());
    // The input is the token that the step before sampled as its second: token 2.
    let (logits, sampled, tokens) = (gpu.upload(&rows[0]), gpu.upload(&[1_u32, 2]), gpu.upload(&[-2_i32]));
    let (counts, adjusted) = (gpu.upload(&[0_u32; 4]), gpu.empty::<f32>(8));
    let request = SampleRequest {
        logits: logits.address(),
        adjusted: adjusted.address(),
        counts: counts.address(),
        repetition: 1.0,
        presence: 0.5,
        pending_end: 1,
        report: NO_REPORT,
        ..SampleRequest::default()
    };
    let second = SampleRequest { adjusted: adjusted.address() + 16, ..request };
    let (requests, count) = (gpu.upload(SampleRequest::bytes(&[request, second])), gpu.upload(&[2_u32]));
    let (scratch, results) =
        (gpu.empty::<u8>(Sampling::scratch_bytes(2)), gpu.empty::<u8>(2 * size_of::<SampleResult>()));
    let args = SamplingArgs {
        requests: requests.address(),
        count: count.address(),
        scratch: scratch.address(),
        results: results.address(),
        tokens: tokens.address(),
        sampled_before: sampled.address(),
        sampled: sampled.address(),
        vocab: 4,
        slots: 2,
        parts: 1,
        weighs: false,
    };
    let sampling = Sampling::load(&gpu.loader).expect("the kernels");
    // Token 2 is penalized, so token 0 is sampled; then that is.
    for token in [0, 2, 0] {
        // SAFETY: the buffers are as the arguments say.
        unsafe { sampling.launch(&gpu.stream, &args) }.expect("a launch");
        assert_eq!(sampled.read(), [token; 2]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn marks_are_those_of_the_tokens(seed: u64, vocab in 1usize..3000, count in 0usize..6) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        const SEEN: u32 = 1 << 31;
        let mut draw = Draw::new(seed);
        let mut held = Held::default();
        let rows: Vec<u64> = (0..3).map(|_| held.words(gpu, &vec![SEEN | 5; vocab])).collect();
        let mut exact = vec![vec![SEEN | 5; vocab]; 3];
        // A row is forgotten by the first of its runs or by none.
        let mut runs = Vec::new();
        for i in 0..count {
            let (row, clears) = (i % 3, i < 3 && draw.below(2) == 0);
            if clears {
                exact[row].fill(0);
            }
            let tokens = tokens(&mut draw, vocab, 900);
            let prompt = draw.below(tokens.len() + 1);
            for (at, &token) in tokens.iter().enumerate() {
                if let Some(mark) = exact[row].get_mut(token as usize) {
                    *mark = (*mark | SEEN) + u32::from(at >= prompt);
                }
            }
            let (len, prompt) = (tokens.len() as u32, prompt as u32);
            let tokens = held.words(gpu, &tokens);
            runs.push(HistoryRun { counts: rows[row], tokens, len, prompt, clears: clears.into(), unused: 0 });
        }
        add_runs(gpu, &runs, vocab);
        for (row, exact) in exact.iter().enumerate() {
            prop_assert_eq!(&held.words[row].read(), exact, "row {}", row);
        }
    }
}

#[test]
fn no_token_behind_the_vocabulary_is_penalised_into_it() {
    let Some(gpu) = Gpu::open() else { return };
    let params = SamplingParams { temperature: 0.0, repetition_penalty: -2.0, ..SamplingParams::default() };
    let wanted = Wanted { pending: vec![1, 5, 6, 7], ..Wanted::new(params) };
    let rows = [vec![3.0, -1.0, 2.0, 1.0, 0.5]];
    Run { rows: &rows, wanted: &[wanted], parts: 1, slots: 1 }.check(gpu);
}
