//! Whole runs from random jobs, memories and limits, checked at every step.

use super::toy::{ToyKv, key};
use crate::{Added, Job, Schedule, Scheduler, SchedulerConfig};
use domain::{SeqKey, Time};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A job and how its sequence goes on.
#[derive(Clone, Debug)]
struct Story {
    /// Step at which it arrives.
    at: u32,
    prompt: u32,
    /// Tokens to make.
    out: u32,
    /// Step at which its client leaves.
    gone: Option<u32>,
    /// It was prefilled elsewhere, where memory and room allow it on arrival.
    handed_off: bool,
}

#[derive(Clone, Debug)]
struct Run {
    config: SchedulerConfig,
    blocks: u32,
    cached_tokens: u32,
    /// Blocks under lease at each step, in a cycle.
    leases: Vec<u32>,
    /// What comes to prompts from elsewhere; see [`ToyKv::comes`].
    comes: Vec<(u32, u32)>,
    stories: Vec<Story>,
}

fn runs() -> impl Strategy<Value = Run> {
    let config = (1u32..6, 1u32..4, 1u32..6, 0u32..30).prop_map(|(block_tokens, chunk_blocks, running_max, more)| {
        SchedulerConfig {
            step_tokens_max: running_max + block_tokens - 1 + more,
            chunk_tokens: block_tokens * chunk_blocks,
            running_max,
            waiting_max: 8,
            block_tokens,
            samples_max: running_max,
        }
    });
    let story = (0u32..60, 1u32..40, 1u32..30, prop::option::weighted(0.15, 0u32..120), prop::bool::weighted(0.2))
        .prop_map(|(at, prompt, out, gone, handed_off)| Story { at, prompt, out, gone, handed_off });
    let comes =
        prop::collection::vec((prop_oneof![4 => Just(0), 1 => 1u32..5], prop_oneof![Just(u32::MAX), 0u32..4]), 1..5);
    let leases = prop::collection::vec(0u32..6, 1..8);
    (config, 2u32..40, 0u32..20, leases, comes, prop::collection::vec(story, 1..14)).prop_map(
        |(config, blocks, cached_tokens, leases, comes, stories)| Run {
            config,
            blocks,
            cached_tokens,
            leases,
            comes,
            stories,
        },
    )
}

/// What the test knows of a sequence.
#[derive(Clone, Copy, Debug)]
struct Seq {
    known: u32,
    made: u32,
    out: u32,
    /// Next position to compute in this incarnation; `None`: waits.
    next: Option<u32>,
}

struct Checker {
    run: Run,
    seqs: BTreeMap<SeqKey, Seq>,
    /// New jobs in the order in which they were taken.
    order: VecDeque<SeqKey>,
    /// Sequences that were preempted and wait.
    preempted: BTreeSet<(Time, SeqKey)>,
    decoding: BTreeSet<SeqKey>,
}

impl Checker {
    /// Checks a schedule against every rule; the state is the one before the step.
    fn check(&mut self, schedule: &Schedule, kv: &ToyKv) {
        let config = self.run.config;
        for &preempted in &schedule.preempted {
            assert!(self.decoding.remove(&preempted), "{preempted} was preempted but did not decode");
            self.seqs.get_mut(&preempted).unwrap().next = None;
            self.preempted.insert((Time(preempted.request.0), preempted));
            let oldest = self.decoding.iter().all(|&other| other.request < preempted.request);
            assert!(oldest, "{preempted} was preempted before a younger one");
        }
        // FIFO: preempted ones by age, then new ones as they came; the impossible leave the same way.
        let left: Vec<SeqKey> = schedule.admitted.iter().map(|&(key, _)| key).collect();
        assert!(schedule.preempted.is_empty() || left.is_empty(), "admitted in a step that preempted");
        let mut leaving: BTreeSet<SeqKey> = left.iter().chain(&schedule.impossible).copied().collect();
        let mut begun = Vec::new();
        while !leaving.is_empty() {
            let head = self.preempted.pop_first().map(|(_, key)| key).or_else(|| self.order.pop_front()).unwrap();
            assert!(leaving.remove(&head), "{leaving:?} overtook {head}");
            begun.push(head);
        }
        begun.retain(|key| left.contains(key));
        assert_eq!(begun, left, "admitted out of order");
        for &(key, cached) in &schedule.admitted {
            assert_eq!(cached % config.block_tokens, 0);
            self.seqs.get_mut(&key).unwrap().next = Some(cached);
        }
        self.check_work(schedule, kv);
    }

    fn check_work(&mut self, schedule: &Schedule, kv: &ToyKv) {
        let config = self.run.config;
        let mut waits = BTreeSet::new();
        for (&key, seq) in &mut self.seqs {
            // What came from elsewhere is not computed.
            if let (Some(next), Some((_, reach)), false) =
                (&mut seq.next, kv.prompts.get(&key), self.decoding.contains(&key))
            {
                *next = reach.computed.max(*next);
                if reach.until <= *next {
                    waits.insert(key);
                }
            }
        }
        let tokens: u32 = schedule.work.iter().map(|work| work.count).sum();
        let samples: u32 = schedule.work.iter().map(|work| u32::from(work.samples)).sum();
        assert!(tokens <= config.step_tokens_max && samples <= config.samples_max);
        let mut seen = BTreeSet::new();
        for work in &schedule.work {
            assert!(seen.insert(work.key), "{} twice in a step", work.key);
            let seq = &self.seqs[&work.key];
            let end = work.start + work.count;
            assert!(work.count > 0 && end <= seq.known);
            assert_eq!(Some(work.start), seq.next, "{}: a token left out or computed twice", work.key);
            assert_eq!(work.samples > 0, end == seq.known, "samples where the known tokens end, only there");
            if self.decoding.contains(&work.key) {
                assert_eq!(work.count, 1);
            } else {
                assert!(work.count <= config.chunk_tokens);
                assert!(end <= kv.prompts[&work.key].1.until, "{} goes further than it may", work.key);
                assert!(end == seq.known || end % config.block_tokens == 0, "a chunk ends inside a block");
            }
        }
        assert!(self.decoding.is_subset(&seen), "a decoding sequence was left out");
        let prompts = self
            .seqs
            .iter()
            .filter(|(key, seq)| seq.next.is_some() && !self.decoding.contains(*key) && !waits.contains(*key));
        assert!(prompts.count() == 0 || seen.len() > self.decoding.len(), "no prompt advanced");
    }
}

fn check(run: Run) {
    let mut scheduler = Scheduler::new(run.config);
    let mut kv = ToyKv::new(run.blocks, run.config.block_tokens);
    kv.cached_tokens = run.cached_tokens / run.config.block_tokens * run.config.block_tokens;
    let mut checker = Checker {
        run: run.clone(),
        seqs: BTreeMap::new(),
        order: VecDeque::new(),
        preempted: BTreeSet::new(),
        decoding: BTreeSet::new(),
    };
    // Each step computes or samples something, unless leases hold the memory for a cycle; so a run ends in about as
    // many steps as it has tokens, times how often they are computed again.
    let steps_max = 300 + 40 * run.stories.iter().map(|story| story.prompt + story.out).sum::<u32>();
    for step in 0..steps_max {
        let used: u32 = kv.open.values().sum();
        // Leases end for good after a while.
        let wanted = if step < 200 { run.leases[step as usize % run.leases.len()] } else { 0 };
        kv.leased = wanted.min(run.blocks - used);
        kv.comes = if step < 200 { run.comes.clone() } else { vec![(0, u32::MAX)] };
        for (number, story) in run.stories.iter().enumerate() {
            let key = key(number as u64);
            let gone = story.gone.is_some_and(|gone| gone.max(story.at) == step);
            if story.at == step {
                arrive(&mut scheduler, &mut kv, &mut checker, key, story);
            }
            if gone && scheduler.remove(key) {
                forget(&mut checker, &mut kv, key);
            }
        }
        let schedule = scheduler.schedule(&mut kv);
        checker.check(&schedule, &kv);
        for key in &schedule.impossible {
            let known = checker.seqs[key].known;
            assert!(known.div_ceil(run.config.block_tokens) > run.blocks, "{key} would have fit");
            forget(&mut checker, &mut kv, *key);
        }
        scheduler.computed(&schedule.work);
        for work in &schedule.work {
            let seq = checker.seqs.get_mut(&work.key).unwrap();
            seq.next = Some(work.start + work.count);
            if work.samples > 0 {
                seq.known += 1;
                seq.made += 1;
                checker.decoding.insert(work.key);
                if seq.made == seq.out {
                    assert!(scheduler.remove(work.key));
                    forget(&mut checker, &mut kv, work.key);
                }
            }
        }
        let running = checker.seqs.values().filter(|seq| seq.next.is_some()).count();
        assert_eq!((scheduler.running_len(), scheduler.waiting_len()), (running, checker.seqs.len() - running));
        assert!(running <= run.config.running_max as usize);
        assert_eq!(kv.open.len(), running, "who runs has memory, who waits has none");
        let left = checker.seqs.iter().filter(|(key, _)| !checker.decoding.contains(key));
        let tokens: u64 = left.map(|(_, seq)| u64::from(seq.known - seq.next.unwrap_or(0))).sum();
        assert_eq!(scheduler.waiting_tokens(), tokens);
        if step > 60 && checker.seqs.is_empty() {
            return;
        }
    }
    panic!("not everything ended: {:?}", checker.seqs);
}

fn arrive(scheduler: &mut Scheduler, kv: &mut ToyKv, checker: &mut Checker, key: SeqKey, story: &Story) {
    let arrived = Time(key.request.0);
    let seq = Seq { known: story.prompt, made: 0, out: story.out, next: None };
    let blocks = story.prompt.div_ceil(kv.block_tokens);
    if story.handed_off && scheduler.room_to_run(arrived) > 0 && !scheduler.memory_short() && blocks <= kv.free() {
        kv.open.insert(key, blocks);
        scheduler.add_running(key, story.prompt + 1, arrived);
        checker.decoding.insert(key);
        checker.seqs.insert(key, Seq { known: story.prompt + 1, next: Some(story.prompt), ..seq });
    } else if scheduler.add(Job { key, tokens: story.prompt, samples: 1, arrived }) == Added::Queued {
        checker.order.push_back(key);
        checker.seqs.insert(key, seq);
    }
}

fn forget(checker: &mut Checker, kv: &mut ToyKv, key: SeqKey) {
    checker.seqs.remove(&key);
    checker.decoding.remove(&key);
    checker.order.retain(|&other| other != key);
    checker.preempted.retain(|&(_, other)| other != key);
    kv.open.remove(&key);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 2))]

    #[test]
    fn every_run_keeps_the_rules_and_ends(run in runs()) {
        check(run);
    }
}
