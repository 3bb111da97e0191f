//! Whole runs from random jobs, memories and limits, checked at every step.

use super::toy::{ToyKv, key};
use crate::{Added, Admitted, Job, Kind, Schedule, Scheduler, SchedulerConfig};
use domain::{Choice, Claim, SeqKey, Time};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

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
    comes: Comes,
}

/// How a prompt is had.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Comes {
    Computed,
    /// In so many steps after it has room; what is loaded leaves a block to compute.
    Loaded {
        steps: u32,
    },
    /// It is offered so many steps after it arrived and fetched in as many, to go on with so many choices.
    Fetched {
        steps: u32,
        choices: u16,
    },
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
    let how = prop_oneof![
        3 => Just(Comes::Computed),
        1 => (0u32..9).prop_map(|steps| Comes::Loaded { steps }),
        1 => (0u32..9, 1u16..6).prop_map(|(steps, choices)| Comes::Fetched { steps, choices }),
    ];
    let story = (0u32..60, 1u32..40, 1u32..30, prop::option::weighted(0.15, 0u32..120), how)
        .prop_map(|(at, prompt, out, gone, comes)| Story { at, prompt, out, gone, comes });
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

/// Where a job stands: preempted ones first, by age, then the others as their requests arrived.
type Place = (bool, Time, SeqKey);

/// What will be over.
#[derive(Clone, Copy, Debug)]
enum End {
    Load,
    /// The sequences that go on are so many.
    Fetch(u16),
}

struct Checker {
    run: Run,
    scheduler: Scheduler,
    kv: ToyKv,
    /// Sequences that are computed, and what they wait for, some of them before that.
    seqs: BTreeMap<SeqKey, Seq>,
    waiting: BTreeMap<Place, Job>,
    decoding: BTreeSet<SeqKey>,
    /// What is loaded or fetched, and until when.
    moving: BTreeMap<SeqKey, (u32, End)>,
}

/// The blocks that a load of a prompt fills are another sequence.
fn load_key(key: SeqKey) -> SeqKey {
    SeqKey { choice: Choice(u16::MAX), ..key }
}

fn arrived(key: SeqKey) -> Time {
    Time(key.request.0)
}

impl Checker {
    fn story(&self, key: SeqKey) -> Story {
        self.run.stories[key.request.0 as usize].clone()
    }

    fn add(&mut self, key: SeqKey, kind: Kind, samples: u16) {
        let Story { prompt: tokens, out, .. } = self.story(key);
        let job = Job { key, kind, tokens, samples, arrived: arrived(key) };
        if self.scheduler.add(job) == Added::Queued {
            self.waiting.insert((true, job.arrived, key), job);
            if kind != Kind::TakeOver {
                self.seqs.insert(key, Seq { known: tokens, made: 0, out, next: None });
            }
        }
    }

    fn wait_for(&mut self, key: SeqKey, kind: Kind) {
        self.scheduler.wait_for(key, kind);
        if let Some(job) = self.waiting.get_mut(&(true, arrived(key), key)) {
            job.kind = kind;
        }
    }

    /// The client left: all that is here of its request goes.
    fn leave(&mut self, key: SeqKey) {
        let of_it = |other: &SeqKey| other.request == key.request;
        let all: BTreeSet<SeqKey> = self.seqs.keys().chain(self.kv.open.keys()).chain([&key]).copied().collect();
        for key in all.into_iter().filter(of_it) {
            self.scheduler.remove(key);
            self.forget(key);
        }
        self.moving.retain(|key, _| !of_it(key));
    }

    fn forget(&mut self, key: SeqKey) {
        self.seqs.remove(&key);
        self.decoding.remove(&key);
        self.waiting.retain(|_, job| job.key != key);
        self.kv.open.remove(&key);
    }

    /// Takes an admitted job out of the queue. Nobody before it has less room for that than it needs.
    fn admitted(&mut self, key: SeqKey) -> Job {
        let (&place, &job) = self.waiting.iter().find(|(_, job)| job.key == key).expect("it waited");
        let before: Vec<Job> = self.waiting.range(..place).map(|(_, &job)| job).collect();
        self.waiting.remove(&place);
        let blocks: u32 = before.iter().map(|job| job.roomless_tokens().div_ceil(self.kv.block_tokens)).sum();
        assert!(blocks <= self.kv.free(), "{key} took the memory of {before:?}");
        if job.kind == Kind::Load {
            return job;
        }
        let overtaken = before.iter().find(|before| job.kind == Kind::Compute && before.kind == Kind::Compute);
        assert_eq!(overtaken, None, "{key} overtook it");
        let run_next = before.iter().filter(|before| !matches!(before.kind, Kind::Loading { .. }));
        let samples: u32 = run_next.map(|before| u32::from(before.samples)).sum();
        let room = self.run.config.running_max - self.running() - u32::from(job.samples);
        assert!(samples <= room, "{key} took the running room of {before:?}");
        job
    }

    /// Returns what runs and will.
    fn running(&self) -> u32 {
        let choices =
            self.moving.values().map(|(_, end)| if let End::Fetch(choices) = *end { choices.into() } else { 0 });
        self.seqs.values().filter(|seq| seq.next.is_some()).count() as u32 + choices.sum::<u32>()
    }

    fn impossible(&mut self, key: SeqKey) {
        let (_, job) = self.waiting.iter().find(|(_, job)| job.key == key).expect("it waited");
        let fits = self.seqs.get(&key).map_or(job.tokens, |seq| seq.known).div_ceil(self.run.config.block_tokens);
        let possible = fits <= self.run.blocks && u32::from(job.samples) <= self.run.config.running_max;
        assert!(!possible, "{key} would have fit");
        self.forget(key);
    }

    /// Gives room to those that need no step.
    fn admit(&mut self, step: u32) {
        while let Some(admitted) = self.scheduler.admit(&mut self.kv) {
            match admitted {
                Admitted::Load { job, before } => {
                    let of_those_before = self.waiting.range(..(true, job.arrived, job.key));
                    assert_eq!(before, of_those_before.map(|(_, job)| job.claim(self.kv.block_tokens)).sum::<Claim>());
                    let blocks = job.tokens.div_ceil(self.kv.block_tokens) - 1;
                    let Comes::Loaded { steps } = self.story(job.key).comes else { panic!("{job:?} is computed") };
                    if blocks == 0 || blocks >= self.kv.free() {
                        self.wait_for(job.key, Kind::Compute);
                        continue;
                    }
                    self.kv.open.insert(load_key(job.key), blocks);
                    let loading = Job { kind: Kind::Loading { tokens: self.kv.block_tokens }, ..job };
                    let job = self.admitted(job.key);
                    self.waiting.insert((true, job.arrived, job.key), job);
                    self.wait_for(job.key, loading.kind);
                    self.moving.insert(load_key(job.key), (step + steps, End::Load));
                }
                Admitted::TakeOver { key, .. } => {
                    let job = self.admitted(key);
                    let Comes::Fetched { steps, choices } = self.story(key).comes else { panic!("{job:?}") };
                    self.moving.insert(key, (step + steps, End::Fetch(choices)));
                }
                Admitted::Impossible(key) => self.impossible(key),
            }
        }
    }

    /// Ends what was moved for long enough.
    fn end_moves(&mut self, step: u32) {
        for (key, (_, end)) in self.moving.extract_if(.., |_, (until, _)| *until <= step).collect::<Vec<_>>() {
            let blocks = self.kv.open.remove(&key).expect("it was open");
            match end {
                End::Load => self.wait_for(SeqKey { choice: Choice(0), ..key }, Kind::Compute),
                End::Fetch(choices) => {
                    let Story { prompt, out, .. } = self.story(key);
                    for choice in 1..=choices {
                        let child = SeqKey { choice: Choice(choice), ..key };
                        // One goes on in the blocks that came, and the others, who share no block here, in their own.
                        self.kv.open.insert(child, if choice == 1 { blocks } else { 0 });
                        self.scheduler.add_running(child, prompt + 1, arrived(key));
                        self.seqs.insert(child, Seq { known: prompt + 1, made: 0, out, next: Some(prompt) });
                        self.decoding.insert(child);
                    }
                    self.scheduler.remove(key);
                }
            }
        }
    }

    /// Checks a schedule against every rule; the state is the one before the step.
    fn check(&mut self, schedule: &Schedule) {
        for &preempted in &schedule.preempted {
            assert!(self.decoding.remove(&preempted), "{preempted} was preempted but did not decode");
            let seq = self.seqs.get_mut(&preempted).unwrap();
            seq.next = None;
            let (tokens, arrived) = (seq.known, arrived(preempted));
            let job = Job { key: preempted, kind: Kind::Compute, tokens, samples: 1, arrived };
            self.waiting.insert((false, arrived, preempted), job);
            let oldest = self.decoding.iter().all(|&other| other < preempted);
            assert!(oldest, "{preempted} was preempted before a younger one");
        }
        assert!(schedule.preempted.is_empty() || schedule.admitted.is_empty(), "admitted in a step that preempted");
        schedule.impossible.iter().for_each(|&key| self.impossible(key));
        for &(key, cached) in &schedule.admitted {
            assert_eq!(self.admitted(key).kind, Kind::Compute);
            assert_eq!(cached % self.run.config.block_tokens, 0);
            self.seqs.get_mut(&key).unwrap().next = Some(cached);
        }
        self.check_work(schedule);
    }

    fn check_work(&mut self, schedule: &Schedule) {
        let (config, kv) = (self.run.config, &self.kv);
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
    let mut kv = ToyKv::new(run.blocks, run.config.block_tokens);
    kv.cached_tokens = run.cached_tokens / run.config.block_tokens * run.config.block_tokens;
    let mut checker = Checker {
        run: run.clone(),
        scheduler: Scheduler::new(run.config),
        kv,
        seqs: BTreeMap::new(),
        waiting: BTreeMap::new(),
        decoding: BTreeSet::new(),
        moving: BTreeMap::new(),
    };
    // Each step computes or samples something, unless leases hold the memory for a cycle; so a run ends in about as
    // many steps as it has tokens, times how often they are computed again.
    let choices = |story: &Story| if let Comes::Fetched { choices, .. } = story.comes { choices.into() } else { 1 };
    let steps_max = 300 + 40 * run.stories.iter().map(|story| (story.prompt + story.out) * choices(story)).sum::<u32>();
    for step in 0..steps_max {
        let used: u32 = checker.kv.open.values().sum();
        // Leases end for good after a while.
        let wanted = if step < 200 { run.leases[step as usize % run.leases.len()] } else { 0 };
        checker.kv.leased = wanted.min(run.blocks - used);
        checker.kv.comes = if step < 200 { run.comes.clone() } else { vec![(0, u32::MAX)] };
        for (number, story) in run.stories.iter().enumerate() {
            let key = key(number as u64);
            match story.comes {
                Comes::Computed if story.at == step => checker.add(key, Kind::Compute, 1),
                Comes::Loaded { .. } if story.at == step => checker.add(key, Kind::Load, 1),
                Comes::Fetched { steps, choices } if story.at + steps == step => {
                    checker.add(key, Kind::TakeOver, choices);
                }
                _ => {}
            }
            if story.gone.is_some_and(|gone| gone.max(story.at) == step) {
                checker.leave(key);
            }
        }
        checker.end_moves(step);
        checker.admit(step);
        let schedule = checker.scheduler.schedule(&mut checker.kv);
        checker.check(&schedule);
        checker.scheduler.computed(&schedule.work);
        for work in &schedule.work {
            let seq = checker.seqs.get_mut(&work.key).unwrap();
            seq.next = Some(work.start + work.count);
            if work.samples > 0 {
                seq.known += 1;
                seq.made += 1;
                checker.decoding.insert(work.key);
                if seq.made == seq.out {
                    assert!(checker.scheduler.remove(work.key));
                    checker.forget(work.key);
                }
            }
        }
        let Checker { scheduler, kv, seqs, waiting, moving, .. } = &checker;
        let running = seqs.values().filter(|seq| seq.next.is_some()).count();
        assert_eq!((scheduler.running_len(), scheduler.waiting_len()), (running, waiting.len()));
        assert!(checker.running() <= run.config.running_max);
        assert_eq!(kv.open.len(), running + moving.len(), "who runs has memory, who waits has none");
        let left = seqs.iter().filter(|(key, seq)| seq.next.is_some() && !checker.decoding.contains(key));
        let left: u64 = left.map(|(_, seq)| u64::from(seq.known - seq.next.unwrap_or(0))).sum();
        let queued = waiting.values().filter(|job| job.kind != Kind::TakeOver);
        let queued: u64 = queued.map(|job| u64::from(job.roomless_tokens())).sum();
        assert_eq!(scheduler.waiting_tokens(), left + queued);
        if step > 70 && seqs.is_empty() && waiting.is_empty() && moving.is_empty() {
            return;
        }
    }
    panic!("not everything ended: {:?}, {:?}", checker.seqs, checker.waiting);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 2))]

    #[test]
    fn every_run_keeps_the_rules_and_ends(run in runs()) {
        check(run);
    }
}
