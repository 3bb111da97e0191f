//! The handoff between a real prefill worker and a real decode worker of one process, with a device whose text shows
//! every misplaced byte. The router's part is played by the test.

mod admission;
mod commands;
mod device;
mod faults;
mod loads;
mod looks;
mod migration;
mod operator;
mod peer;
mod prefix;
mod pressure;
mod protocol;
mod retry;
mod role;
mod slow;
mod standstill;
#[path = "../../transport/tests/objects/store.rs"]
mod store;
mod tenants;
mod timed;

use device::{Knobs, VOCABULARY, device, expected};
use domain::session::{Assignment, Failure, ToWorker};
use domain::{
    Choice, Dtype, Encoding, End, Epoch, KvGroup, KvKind, KvLayout, ModelLayout, RequestId, SamplingParams, Token,
};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tests::cluster::{Asked, DECODE, Options, PREFILL, prompt};

/// The workers, with the knobs of their devices.
struct Cluster {
    workers: tests::cluster::Cluster,
    prefill_knobs: Arc<Knobs>,
    decode_knobs: Arc<Knobs>,
}

impl Cluster {
    fn new(options: &Options) -> Self {
        let (prefill_knobs, decode_knobs) = (Arc::<Knobs>::default(), Arc::<Knobs>::default());
        let workers = tests::cluster::Cluster::new(options, |id| {
            let knobs = if id.0.is_multiple_of(2) { &prefill_knobs } else { &decode_knobs };
            device(options.layout.clone(), options.limits(id), knobs.clone())
        });
        Self { workers, prefill_knobs, decode_knobs }
    }

    fn expected(&self, request: &Asked, choice: u16) -> Vec<Token> {
        expected(&self.layout, request, choice)
    }
}

impl Deref for Cluster {
    type Target = tests::cluster::Cluster;
    fn deref(&self) -> &Self::Target {
        &self.workers
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.workers
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let torn = [&self.prefill_knobs, &self.decode_knobs].map(|knobs| knobs.torn.load(Ordering::Relaxed));
        if !std::thread::panicking() {
            assert_eq!(torn, [0; 2], "a device computed with slots that were torn or foreign");
        }
    }
}

/// Three layers; with a window, the middle one has it, so that two KV groups are handed off.
fn options(window: Option<u32>) -> Options {
    let group = |layers: Vec<u16>, window| KvGroup { layers, kind: KvKind::of_heads(1, 2), window };
    let groups = match window {
        None => vec![group(vec![0, 1, 2], None)],
        window => vec![group(vec![0, 2], None), group(vec![1], window)],
    };
    Options::roomy(KvLayout::whole(ModelLayout {
        block_tokens: 4,
        dtype: Dtype::F32,
        encoding: Encoding::Exact,
        groups,
    }))
}

/// Five layers of three groups: heads whose values are wider than their keys, latents, and states.
fn of_all_kinds() -> Options {
    let group = |layers: Vec<u16>, kind| KvGroup { layers, kind, window: None };
    Options::roomy(KvLayout::whole(ModelLayout {
        block_tokens: 4,
        dtype: Dtype::F32,
        encoding: Encoding::Exact,
        groups: vec![
            group(vec![0, 3], KvKind::Heads { heads: 1, k_dim: 2, v_dim: 4 }),
            group(vec![1], KvKind::Latent { width: 6, rope: 2 }),
            group(vec![2, 4], KvKind::State { bytes: 40 }),
        ],
    }))
}

/// A request that ends at this token too.
fn stopping_at(token: Token, request: Asked) -> Asked {
    Asked { params: SamplingParams { stop_tokens: vec![token], ..request.params }, ..request }
}

/// Runs requests at once and checks their texts, and that every block is given back.
fn check(cluster: &mut Cluster, requests: &[Asked]) {
    requests.iter().for_each(|request| cluster.hand_off(request));
    finish(cluster, requests);
}

/// Waits until all that was cancelled is given back.
fn settle_cancelled(cluster: &mut Cluster) {
    cluster.wait_idle();
    // A withdrawal may reach the reader before the router's cancel does.
    assert!(cluster.failures.drain(..).all(|(_, _, why, _)| why == Failure::HandoffLapsed));
}

fn finish(cluster: &mut Cluster, requests: &[Asked]) {
    for request in requests {
        cluster.wait_end(request);
        assert!(cluster.failures.is_empty(), "{:?}", cluster.failures);
        for choice in 0..request.choices {
            let expected = cluster.expected(request, choice);
            assert_eq!(cluster.text(request, choice), expected, "request {} choice {choice}", request.id);
            let end = if expected.last().is_some_and(|token| request.params.stop_tokens.contains(token)) {
                End::stop()
            } else {
                End::length()
            };
            let tokens = (request.committed.len() + expected.len()) as u32;
            assert_eq!(cluster.ends[&request.key(choice)], (tokens, end));
        }
    }
    cluster.wait_idle();
}

#[test]
fn a_prompt_is_handed_off_and_decoded_on() {
    let mut cluster = Cluster::new(&options(None));
    let request = Asked::new(1, prompt(50, 1), 20);
    check(&mut cluster, std::slice::from_ref(&request));
    let rows = &cluster.rows[&request.key(0)];
    let by = |worker| rows.iter().filter(|(from, _)| *from == worker).count();
    assert_eq!((by(PREFILL), by(DECODE)), (1, 19), "the first token comes straight from the prefill worker");
}

#[test]
fn any_length_survives_the_handoff() {
    let mut cluster = Cluster::new(&Options { chunk: 8, ..options(None) });
    let lengths = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100];
    let requests: Vec<_> =
        lengths.iter().enumerate().map(|(i, &len)| Asked::new(i as u64, prompt(len, 50 + len), 9)).collect();
    check(&mut cluster, &requests);
}

#[test]
fn layers_are_read_while_later_ones_compute() {
    let mut cluster = Cluster::new(&Options { chunk: 8, ..options(None) });
    cluster.prefill_knobs.layer_us.store(3_000, Ordering::Relaxed);
    let requests: Vec<_> = (0..6).map(|i| Asked::new(i, prompt(40 + i as u32, i as u32), 12)).collect();
    check(&mut cluster, &requests);
}

#[test]
fn windows_hand_off_what_a_later_query_needs() {
    for window in [3, 4, 9, 16] {
        let mut cluster = Cluster::new(&Options { chunk: 8, ..options(Some(window)) });
        let requests: Vec<_> = (0..5).map(|i| Asked::new(i, prompt(5 + 13 * i as u32, i as u32), 25)).collect();
        check(&mut cluster, &requests);
    }
}

#[test]
fn whatever_layers_keep_is_handed_off() {
    let mut cluster = Cluster::new(&Options { chunk: 8, ..of_all_kinds() });
    let lengths = [1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 100];
    let requests: Vec<_> = (0..).zip(lengths).map(|(i, len)| Asked::new(i, prompt(len, 50 + len), 9)).collect();
    check(&mut cluster, &requests);
    let forked = Asked { choices: 4, ..Asked::new(100, prompt(22, 1), 15) };
    check(&mut cluster, std::slice::from_ref(&forked));
    let mut cluster = Cluster::new(&Options { blocks: [40; 2], reserve: 2, chunk: 16, ..of_all_kinds() });
    let requests: Vec<_> = (0..8).map(|i| Asked::new(i, prompt(17, i as u32), 40)).collect();
    requests.iter().for_each(|request| cluster.submit(DECODE, request, Assignment::Whole));
    finish(&mut cluster, &requests);
}

#[test]
fn prefix_hits_change_nothing() {
    prefix_hits(&options(None));
}

#[test]
fn prompts_continue_from_a_state_at_the_end_of_a_block() {
    prefix_hits(&of_all_kinds());
}

fn prefix_hits(options: &Options) {
    let mut cluster = Cluster::new(options);
    let first = Asked::new(1, prompt(61, 1), 10);
    check(&mut cluster, std::slice::from_ref(&first));
    // The same prompt again: cached on both sides.
    let again = Asked { id: 2, ..first.clone() };
    check(&mut cluster, std::slice::from_ref(&again));
    assert_eq!(cluster.rows[&again.key(0)][0].1.cached_tokens, 60, "P had all full blocks");
    // A prompt that D knows from a whole run of its own, and P does not.
    let other = Asked::new(3, prompt(37, 9), 10);
    cluster.submit(DECODE, &other, Assignment::Whole);
    finish(&mut cluster, std::slice::from_ref(&other));
    let longer = Asked { id: 4, prompt: [other.prompt.clone(), prompt(30, 5)].concat(), ..other.clone() };
    check(&mut cluster, std::slice::from_ref(&longer));
    // The next turn: prompt and answer of the first, which D has and P has only in part.
    let turn = [first.prompt.clone(), cluster.expected(&first, 0), prompt(11, 3)].concat();
    check(&mut cluster, &[Asked::new(6, turn, 10)]);
}

#[test]
fn prompts_with_one_prefix_that_come_together_compute_it_once() {
    for window in [None, Some(6)] {
        let mut cluster = Cluster::new(&Options { chunk: 8, ..options(window) });
        cluster.prefill_knobs.layer_us.store(500, Ordering::Relaxed);
        let shared = prompt(160, 3);
        let asked = |i: u64| Asked::new(i, [shared.clone(), prompt(9, 20 + i as u32)].concat(), 6);
        check(&mut cluster, &(0..4).map(asked).collect::<Vec<_>>());
        assert_eq!(cluster.prefill_knobs.rows.load(Ordering::Relaxed), 160 + 4 * 9, "rows that P computed");
    }
}

#[test]
fn choices_fork_from_one_prompt() {
    for window in [None, Some(6)] {
        let mut cluster = Cluster::new(&options(window));
        let handed_off = Asked { choices: 4, ..Asked::new(1, prompt(22, 1), 15) };
        check(&mut cluster, std::slice::from_ref(&handed_off));
        let whole = Asked { choices: 3, ..Asked::new(2, prompt(26, 2), 15) };
        cluster.submit(DECODE, &whole, Assignment::Whole);
        finish(&mut cluster, std::slice::from_ref(&whole));
    }
}

#[test]
fn stop_tokens_and_single_tokens_end_where_they_should() {
    let mut cluster = Cluster::new(&options(None));
    let probe = Asked::new(1, prompt(20, 1), 12);
    let text = cluster.expected(&probe, 0);
    let stops = |id: u64, at: usize| stopping_at(text[at], Asked { id, ..probe.clone() });
    // The first token ends one request on P; a later one ends another on D; a third may have one token only.
    check(&mut cluster, &[stops(2, 0), stops(3, 5), Asked::new(4, probe.prompt.clone(), 1)]);
}

#[test]
fn a_replay_continues_after_the_committed_tokens() {
    let mut cluster = Cluster::new(&options(None));
    let plain = Asked::new(1, prompt(30, 4), 16);
    let text = cluster.expected(&plain, 0);
    let replay = Asked { epoch: Epoch(2), committed: text[..7].to_vec(), ..plain };
    check(&mut cluster, std::slice::from_ref(&replay));
}

#[test]
fn running_sequences_that_run_out_of_blocks_are_preempted() {
    let mut cluster = Cluster::new(&Options { blocks: [40; 2], reserve: 2, chunk: 16, ..options(None) });
    let requests: Vec<_> = (0..8).map(|i| Asked::new(i, prompt(17, i as u32), 40)).collect();
    requests.iter().for_each(|request| cluster.submit(DECODE, request, Assignment::Whole));
    finish(&mut cluster, &requests);
}

#[test]
fn a_decode_worker_without_room_lets_the_handoff_wait() {
    let mut cluster =
        Cluster::new(&Options { blocks: [48; 2], reserve: 4, running_max: 3, chunk: 16, ..options(None) });
    cluster.decode_knobs.layer_us.store(200, Ordering::Relaxed);
    let requests: Vec<_> = (0..12).map(|i| Asked::new(i, prompt(40, i as u32), 12)).collect();
    check(&mut cluster, &requests);
    assert!(cluster.decode_knobs.spans_seen.load(Ordering::Relaxed) <= 3);
}

#[test]
fn a_cancel_at_any_moment_leaks_nothing() {
    let mut cluster = Cluster::new(&Options { chunk: 8, ..options(None) });
    cluster.prefill_knobs.layer_us.store(300, Ordering::Relaxed);
    cluster.decode_knobs.layer_us.store(100, Ordering::Relaxed);
    for i in 0..60 {
        let request =
            Asked { choices: 1 + (i % 2) as u16, ..Asked::new(i, prompt(20 + (i % 7) as u32 * 9, i as u32), 500) };
        cluster.hand_off(&request);
        cluster.during(Duration::from_micros(i * 397 % 17_000));
        cluster.cancel(&request);
    }
    settle_cancelled(&mut cluster);
    // And everything still works.
    check(&mut cluster, &[Asked::new(1000, prompt(50, 1), 20)]);
}

#[test]
fn one_choice_can_be_cancelled_alone() {
    let mut cluster = Cluster::new(&options(None));
    cluster.decode_knobs.layer_us.store(500, Ordering::Relaxed);
    const TOKENS: u32 = 400;
    let request = Asked { choices: 2, ..Asked::new(1, prompt(22, 1), TOKENS) };
    cluster.hand_off(&request);
    cluster.until("some tokens", |cluster| cluster.rows.get(&request.key(1)).is_some_and(|rows| rows.len() > 3));
    for to in [PREFILL, DECODE] {
        cluster.tell(to, &ToWorker::Cancel { request: RequestId(1), epoch: Epoch(1), choice: Some(Choice(1)) });
    }
    cluster.until("the other's end", |cluster| cluster.ends.contains_key(&request.key(0)));
    assert_eq!(cluster.text(&request, 0), cluster.expected(&request, 0));
    let cut = cluster.text(&request, 1);
    assert!(cut.len() < TOKENS as usize && cluster.expected(&request, 1).starts_with(&cut));
    assert!(!cluster.ends.contains_key(&request.key(1)), "the router ended it, the worker says nothing");
    cluster.wait_idle();
}

#[test]
fn a_failed_step_fails_the_attempt_and_nothing_else() {
    let mut cluster = Cluster::new(&Options { chunk: 8, ..options(None) });
    cluster.prefill_knobs.layer_us.store(1000, Ordering::Relaxed);
    cluster.prefill_knobs.failing_step.store(3, Ordering::Relaxed);
    let request = Asked::new(1, prompt(64, 1), 10);
    cluster.hand_off(&request);
    cluster.until("both workers to fail it", |cluster| cluster.failures.len() == 2);
    let mut kinds: Vec<_> = cluster.failures.drain(..).map(|(_, _, why, _)| why).collect();
    kinds.sort_by_key(|why| *why != Failure::Engine);
    assert_eq!(kinds, [Failure::Engine, Failure::HandoffLapsed]);
    assert!(cluster.rows.is_empty());
    cluster.wait_idle();
    check(&mut cluster, &[Asked { epoch: Epoch(2), ..request }]);
}

#[test]
fn a_sequence_that_fails_alone_fails_its_attempt_and_no_other_of_its_steps() {
    // In a prompt or decoding; while the step runs, or already when it is submitted.
    for (in_prompts, refused) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut cluster = Cluster::new(&Options { chunk: 8, ..options(None) });
        cluster.prefill_knobs.layer_us.store(1000, Ordering::Relaxed);
        cluster.decode_knobs.layer_us.store(1000, Ordering::Relaxed);
        // Chunks of 8 leave prompts of 5 and 13 in common steps.
        let requests: Vec<_> = (1..=4).map(|i| Asked::new(i, prompt(5 + 8 * (i as u32 % 2), i as u32), 60)).collect();
        let knobs = if in_prompts { &cluster.prefill_knobs } else { &cluster.decode_knobs };
        let knob = if refused { &knobs.one_refused } else { &knobs.one_fails };
        knob.store(true, Ordering::Relaxed);
        requests.iter().for_each(|request| cluster.hand_off(request));
        cluster.until("a sequence to fail", |cluster| {
            cluster.failures.iter().any(|(_, _, why, _)| *why == Failure::Engine)
        });
        let failed = cluster.failures.iter().find(|(_, _, why, _)| *why == Failure::Engine).map(|failure| failure.0);
        let failed = failed.expect("one just did");
        let (lost, others): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|request| domain::RequestId(request.id) == failed);
        for request in &others {
            cluster.wait_end(request);
            assert_eq!(cluster.text(request, 0), cluster.expected(request, 0));
        }
        assert!(cluster.failures.iter().all(|(request, ..)| *request == failed), "{:?}", cluster.failures);
        cluster.wait_idle();
        cluster.failures.clear();
        // What it had written does not serve anybody.
        let again: Vec<_> = lost.into_iter().map(|request| Asked { epoch: Epoch(2), ..request }).collect();
        assert_eq!(again.len(), 1);
        check(&mut cluster, &again);
    }
}

#[test]
fn a_token_that_the_model_does_not_have_fails_its_attempt_alone() {
    let mut cluster = Cluster::new(&options(None));
    cluster.prefill_knobs.layer_us.store(1000, Ordering::Relaxed);
    let good: Vec<_> = (1..=4).map(|i| Asked::new(i, prompt(20, i as u32), 20)).collect();
    let in_prompt = Asked { prompt: [1, VOCABULARY, 2].into(), ..Asked::new(5, prompt(3, 5), 20) };
    let committed = Asked { committed: vec![Token::MAX], ..Asked::new(6, prompt(3, 6), 20) };
    good.iter().for_each(|request| cluster.hand_off(request));
    for bad in [&in_prompt, &committed] {
        cluster.submit(DECODE, bad, Assignment::Whole);
    }
    cluster.until("the refusals", |cluster| cluster.failures.len() == 2);
    for (_, _, why, detail) in std::mem::take(&mut cluster.failures) {
        assert_eq!(why, Failure::Invalid);
        assert!(detail.contains("token 1000 ") || detail.contains(&format!("token {} ", Token::MAX)), "{detail}");
    }
    finish(&mut cluster, &good);
}

#[test]
fn a_lease_that_lapses_gives_no_wrong_tokens() {
    let mut cluster = Cluster::new(&Options { chunk: 8, ..options(None) });
    cluster.prefill_knobs.layer_us.store(2_000, Ordering::Relaxed);
    let mut ends = (0, 0);
    for i in 0..10 {
        // Leases of a few milliseconds: some are renewed in time, some lapse.
        let request = Asked { lease: Duration::from_micros(200 + 400 * i), ..Asked::new(i, prompt(40, i as u32), 8) };
        cluster.hand_off(&request);
        cluster.wait_end(&request);
        match cluster.failures.pop() {
            None => {
                assert_eq!(cluster.text(&request, 0), cluster.expected(&request, 0));
                ends.0 += 1;
            }
            Some((_, _, why, _)) => {
                assert_eq!(why, Failure::HandoffLapsed);
                ends.1 += 1;
            }
        }
        cluster.failures.clear();
    }
    assert_eq!(ends.0 + ends.1, 10);
    cluster.wait_idle();
}

#[test]
fn a_prompt_beyond_the_pool_is_refused() {
    let mut cluster = Cluster::new(&Options { blocks: [16; 2], ..options(None) });
    let request = Asked::new(1, prompt(100, 1), 10);
    cluster.submit(DECODE, &request, Assignment::Whole);
    cluster.until("the refusal", |cluster| !cluster.failures.is_empty());
    assert_eq!(cluster.failures.pop().map(|(_, _, why, _)| why), Some(Failure::TooLarge));
    cluster.wait_idle();
}

#[test]
fn more_choices_than_run_at_once_are_refused_as_such() {
    let mut cluster = Cluster::new(&Options { running_max: 2, ..options(None) });
    let request = Asked { choices: 3, ..Asked::new(1, prompt(20, 1), 10) };
    for (at, assignment) in [(DECODE, Assignment::Whole), (DECODE, Assignment::Decode { prefill: PREFILL })] {
        cluster.submit(at, &request, assignment);
        cluster.until("the refusal", |cluster| !cluster.failures.is_empty());
        let (_, _, why, detail) = cluster.failures.pop().unwrap();
        assert_eq!((why, detail.contains("3 choices")), (Failure::TooLarge, true), "{detail}");
    }
    cluster.wait_idle();
}

#[test]
fn a_sequence_beyond_the_context_fails_alone() {
    let mut cluster = Cluster::new(&options(None));
    let (fits, long) = (Asked::new(1, prompt(48, 1), 2000), Asked::new(2, prompt(49, 2), 2000));
    [&fits, &long].into_iter().for_each(|request| cluster.hand_off(request));
    cluster.until("the refusal", |cluster| !cluster.failures.is_empty());
    assert_eq!(cluster.failures.pop().map(|(_, _, why, _)| why), Some(Failure::TooLarge));
    cluster.wait_end(&fits);
    assert_eq!(cluster.text(&fits, 0), cluster.expected(&fits, 0));
    cluster.cancel(&long);
    cluster.wait_idle();
}

#[test]
fn a_deadline_ends_the_attempt() {
    let mut cluster = Cluster::new(&options(None));
    cluster.decode_knobs.layer_us.store(2_000, Ordering::Relaxed);
    let request = Asked { deadline: Duration::from_secs(4), ..Asked::new(1, prompt(30, 1), 2000) };
    cluster.hand_off(&request);
    cluster.until("the end", |cluster| cluster.failures.iter().any(|(_, _, why, _)| *why == Failure::Deadline));
    let text = cluster.text(&request, 0);
    assert!(!text.is_empty() && expected_prefix(&cluster, &request, &text));
    cluster.wait_idle();
}

fn expected_prefix(cluster: &Cluster, request: &Asked, text: &[Token]) -> bool {
    let shorter = Asked::new(request.id, request.prompt.clone(), text.len() as u32);
    cluster.expected(&shorter, 0) == text
}
