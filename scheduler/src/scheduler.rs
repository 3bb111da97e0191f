//! The scheduler: one call plans a step, one call says that it succeeded. Between them, the next step may be planned.
//!
//! A sequence has two positions: where it will be when all steps in flight have ended, and where it is for sure. Steps
//! are planned from the first. Of the second, all that matters here is whether the two are equal: a sequence in flight
//! is not preempted, since its blocks are still written.

#[cfg(feature = "explore")]
mod explore;

use crate::queue::{Age, Position, Queue};
use crate::{Added, Admitted, Headway, Job, Kind, KvSpace, Opened, Schedule, SchedulerConfig, Work};
use domain::planted_bugs::{self, Bug};
use domain::{Claim, SeqKey, Time};
use std::collections::{BTreeMap, HashMap};

/// A prompt in progress. It is never preempted: its blocks may be under a lease, and what it holds is all it needs.
#[derive(Clone, Copy, Debug)]
struct Prompt {
    job: Job,
    /// Leading tokens whose KV is there when the steps in flight have ended. All of them: the prompt only waits for its
    /// last step to end.
    computed: u32,
}

impl Prompt {
    fn is_planned(&self) -> bool {
        self.computed == self.job.tokens
    }
}

/// What became of a sequence that needed room to grow.
enum Growth {
    Ready,
    /// It had to yield itself.
    Yielded,
    /// The sequence that would have to yield is in a step in flight.
    Blocked,
}

/// What a step may still take.
#[derive(Clone, Copy, Debug)]
struct Budget {
    tokens: u32,
    samples: u32,
}

/// What jobs will have that stand before another one in the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    claim: Claim,
    samples: u32,
}

impl Before {
    fn add(&mut self, job: &Job, block_tokens: u32) {
        self.claim += job.claim(block_tokens);
        // What waits for a load does not run next.
        if !matches!(job.kind, Kind::Loading { .. }) {
            self.samples += u32::from(job.samples);
        }
    }
}

/// Decides what each step computes, and which job gets memory.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    waiting: Queue,
    /// In order of admission.
    prompts: Vec<Prompt>,
    /// Tokens that each decoding sequence knows when the steps in flight have ended; the KV of all but the last is
    /// there then.
    decoding: BTreeMap<Age, u32>,
    /// The sequences in the steps in flight, each with the number of these steps.
    in_flight: HashMap<SeqKey, u32>,
    /// Sequences that are fetched, with how many will decode from there: they have their memory, and will be added
    /// running.
    taking_over: HashMap<SeqKey, u16>,
    /// Every sequence that waits, is taken over or runs.
    arrivals: HashMap<SeqKey, Time>,
    /// The job that found no memory, and the count of what was given back until then. No job behind it gets any before
    /// that count has changed.
    short: Option<(Position, u64)>,
    /// The count at which there was nothing to admit between steps; `None` since anything else changed.
    settled: Option<u64>,
}

impl Scheduler {
    /// Makes a scheduler without work.
    ///
    /// # Panics
    /// If [`SchedulerConfig::check`] refuses the limits.
    pub fn new(config: SchedulerConfig) -> Self {
        if let Err(broken) = config.check() {
            panic!("scheduler limits: {broken}");
        }
        Self {
            config,
            waiting: Queue::default(),
            prompts: Vec::new(),
            decoding: BTreeMap::new(),
            in_flight: HashMap::new(),
            taking_over: HashMap::new(),
            arrivals: HashMap::new(),
            short: None,
            settled: None,
        }
    }

    /// Takes other limits for what is decided from now on. What runs goes on, also where it is more than may run now.
    ///
    /// # Panics
    /// If [`SchedulerConfig::check`] refuses the limits, or blocks would have another size.
    pub fn change_limits(&mut self, config: SchedulerConfig) {
        if let Err(broken) = config.check() {
            panic!("scheduler limits: {broken}");
        }
        assert_eq!(config.block_tokens, self.config.block_tokens, "the size of blocks is that of the memory");
        self.config = config;
        // What had no room may have some.
        (self.short, self.settled) = (None, None);
    }

    /// Queues a job.
    ///
    /// # Panics
    /// If the sequence is here already, or the job has no tokens or samples.
    pub fn add(&mut self, job: Job) -> Added {
        assert!(job.tokens > 0 && job.samples > 0, "{}: a job computes and samples something", job.key);
        if self.waiting.new_len() >= self.config.waiting_max as usize {
            return Added::QueueFull;
        }
        self.arrive(job.key, job.arrived);
        self.waiting.push(job);
        self.settled = None;
        Added::Queued
    }

    /// Returns what a job waits for. `None`: it does not wait.
    pub fn waits_for(&self, key: SeqKey) -> Option<Kind> {
        let &arrived = self.arrivals.get(&key)?;
        self.waiting.job(self.waiting.place((arrived, key))?).map(|job| job.kind)
    }

    /// Says what a job waits for from now on; one that does not wait is left alone.
    pub fn wait_for(&mut self, key: SeqKey, kind: Kind) {
        let place = self.arrivals.get(&key).and_then(|&arrived| self.waiting.place((arrived, key)));
        if let Some(before) = place.and_then(|place| self.waiting.kind_mut(place)) {
            *before = kind;
            (self.short, self.settled) = (None, None);
        }
    }

    /// Adds a sequence that decodes at once, one that was handed off or forked: it knows `tokens` tokens, the KV of
    /// all but the last is there, and its memory is open. Takes running room without asking: what it comes from has it.
    ///
    /// # Panics
    /// If the sequence is here already, or knows no token.
    pub fn add_running(&mut self, key: SeqKey, tokens: u32, arrived: Time) {
        assert!(tokens > 0, "{key}: a decoding sequence knows a token");
        self.arrive(key, arrived);
        self.decoding.insert((arrived, key), tokens);
    }

    /// Forgets a sequence, waiting, taken over or running; `false`: it was not here. The caller closes its memory.
    pub fn remove(&mut self, key: SeqKey) -> bool {
        let Some(arrived) = self.arrivals.remove(&key) else { return false };
        let age = (arrived, key);
        self.settled = None;
        self.in_flight.remove(&key);
        if let Some(place) = self.waiting.place(age) {
            self.leave(place);
        } else if self.decoding.remove(&age).is_none() && !self.end_taking_over(key) {
            self.prompts.retain(|prompt| prompt.job.key != key);
        }
        true
    }

    /// Admits the first job that needs no step and has room beside all that stand before it. `None`: there is
    /// none, or one before it has no memory. To be called until then.
    pub fn admit(&mut self, kv: &mut dyn KvSpace) -> Option<Admitted> {
        if self.settled == Some(kv.given_back()) {
            return None;
        }
        let mut before = Before::default();
        let mut next = self.waiting.behind(None);
        while let Some((place, job)) = next
            && !self.is_short(kv, place)
        {
            next = self.waiting.behind(Some(place));
            if place.is_preempted() && kv.is_held(job.key) {
                continue;
            }
            match job.kind {
                Kind::Load if kv.has_room(job.key, job.tokens, before.claim) => {
                    return Some(Admitted::Load { job, before: before.claim });
                }
                Kind::Load => {
                    self.short = Some((place, kv.given_back()));
                    break;
                }
                Kind::TakeOver if !self.is_possible(&job) || self.has_running_room(&job, before) => {
                    let before = if planted_bugs::is(Bug::HandoffFirst) { Before::default() } else { before };
                    match self.open(kv, place, &job, before) {
                        Opened::NoRoom => break,
                        Opened::Never => return Some(Admitted::Impossible(job.key)),
                        Opened::Ready { cached_tokens } => {
                            self.taking_over.insert(job.key, job.samples);
                            return Some(Admitted::TakeOver { key: job.key, cached_tokens });
                        }
                    }
                }
                Kind::TakeOver | Kind::Compute | Kind::Loading { .. } => {}
            }
            before.add(&job, self.config.block_tokens);
        }
        self.settled = Some(kv.given_back());
        None
    }

    /// Plans the next step, as if the steps in flight had succeeded. Its work is in flight until
    /// [`Scheduler::computed`] is told of it, or until its sequences are removed, where it failed for good.
    ///
    /// A prompt whose last step is in flight waits for the end of that step. Where a sequence in flight would have to
    /// be preempted, the plan is empty: call again when no step is in flight.
    pub fn schedule(&mut self, kv: &mut dyn KvSpace) -> Schedule {
        let mut schedule = Schedule::default();
        let mut budget = Budget { tokens: self.config.step_tokens_max, samples: self.config.samples_max };
        if self.decode(kv, &mut budget, &mut schedule) {
            self.continue_prompts(kv, &mut budget, &mut schedule);
            self.admit_prompts(kv, &mut budget, &mut schedule);
        } else {
            schedule.work.clear();
        }
        schedule.work.iter().for_each(|work| self.take_off(work));
        schedule
    }

    /// Counts the work as in flight, and moves its sequence to where the work ends.
    fn take_off(&mut self, work: &Work) {
        *self.in_flight.entry(work.key).or_default() += 1;
        let age = (self.arrivals[&work.key], work.key);
        if let Some(known) = self.decoding.get_mut(&age) {
            *known += 1;
        } else if let Some(prompt) = self.prompts.iter_mut().find(|prompt| prompt.job.key == work.key) {
            prompt.computed = work.start + work.count;
        }
    }

    /// Notes that a step succeeded and its spans are computed. A prompt that sampled decodes from now on. Sequences
    /// that were removed meanwhile are skipped.
    pub fn computed<'a>(&mut self, work: impl IntoIterator<Item = &'a Work>) {
        for span in work {
            let Some(&arrived) = self.arrivals.get(&span.key) else { continue };
            if let Some(steps) = self.in_flight.get_mut(&span.key) {
                *steps -= 1;
                if *steps == 0 {
                    self.in_flight.remove(&span.key);
                }
            }
            let age = (arrived, span.key);
            if span.samples > 0
                && !self.decoding.contains_key(&age)
                && let Some(at) = self.prompts.iter().position(|prompt| prompt.job.key == span.key)
            {
                self.settled = None;
                let known = self.prompts.remove(at).job.tokens + 1;
                self.decoding.insert(age, known);
            }
        }
    }

    /// Returns whether the sequence waits, is taken over or runs here.
    pub fn contains(&self, key: SeqKey) -> bool {
        self.arrivals.contains_key(&key)
    }

    /// Returns whether the sequence decodes: its prompt is computed and its memory is open.
    pub fn decodes(&self, key: SeqKey) -> bool {
        self.arrivals.get(&key).is_some_and(|&arrived| self.decoding.contains_key(&(arrived, key)))
    }

    /// Jobs that wait, preempted ones included.
    pub fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of sequences that have their memory and are still fetched.
    pub fn taking_over_len(&self) -> usize {
        self.taking_over.len()
    }

    /// Returns the number of sequences that run: prompts in progress and decoding ones.
    pub fn running_len(&self) -> usize {
        self.prompts.len() + self.decoding.len()
    }

    /// Returns the prompt tokens that waiting and running sequences still have to compute.
    pub fn waiting_tokens(&self) -> u64 {
        let begun: u64 = self.prompts.iter().map(|prompt| u64::from(prompt.job.tokens - prompt.computed)).sum();
        let computed = self.waiting.iter().filter(|(_, job)| job.kind != Kind::TakeOver);
        computed.map(|(_, job)| u64::from(job.roomless_tokens())).sum::<u64>() + begun
    }

    /// Returns the room that the waiting jobs will take. Preempted sequences that are held wait for none.
    pub fn queued(&self, is_held: impl Fn(SeqKey) -> bool) -> Claim {
        self.claim(self.waiting.iter(), is_held)
    }

    /// Returns the room that the jobs before this one will take, those that are held aside.
    pub fn claim_before(&self, key: SeqKey, is_held: impl Fn(SeqKey) -> bool) -> Claim {
        self.claim(self.waiting.iter().take_while(|(_, job)| job.key != key), is_held)
    }

    fn claim<'a>(&self, jobs: impl Iterator<Item = (Position, &'a Job)>, is_held: impl Fn(SeqKey) -> bool) -> Claim {
        let wants = jobs.filter(|&(place, job)| !(place.is_preempted() && is_held(job.key)));
        wants.map(|(_, job)| job.claim(self.config.block_tokens)).sum()
    }

    /// Gives each decoding sequence its token, the oldest first. Where memory is short, those that are held yield,
    /// which get none, and then the youngest; as that is never older than the one that needs room, no work already
    /// planned is lost. `false`: a sequence in flight would have to yield.
    fn decode(&mut self, kv: &mut dyn KvSpace, budget: &mut Budget, schedule: &mut Schedule) -> bool {
        let mut next = self.decoding.first_key_value().map(|(&age, &known)| (age, known));
        while let Some((age, known)) = next {
            if budget.tokens == 0 || budget.samples == 0 {
                return true;
            }
            if planted_bugs::is(Bug::YoungestStarve) && schedule.work.len() >= 2 {
                return true;
            }
            if !kv.is_held(age.1) && !kv.is_over(age.1, known) {
                match self.make_room(kv, age, known, schedule) {
                    Growth::Ready => {
                        *budget = Budget { tokens: budget.tokens - 1, samples: budget.samples - 1 };
                        schedule.work.push(Work { key: age.1, start: known - 1, count: 1, samples: 1 });
                    }
                    Growth::Yielded => {}
                    Growth::Blocked => return false,
                }
            }
            let after = (std::ops::Bound::Excluded(age), std::ops::Bound::Unbounded);
            next = self.decoding.range(after).next().map(|(&age, &known)| (age, known));
        }
        true
    }

    /// Grows a sequence to `known` slots, preempting from the youngest on, first of those that are held.
    fn make_room(&mut self, kv: &mut dyn KvSpace, age: Age, known: u32, schedule: &mut Schedule) -> Growth {
        while !kv.grow(age.1, known) {
            let held = self.decoding.keys().rev().find(|age| kv.is_held(age.1));
            let victim = *held.or(self.decoding.keys().next_back()).expect("the sequence that grows is decoding");
            let (arrived, key) = victim;
            if self.in_flight.contains_key(&key) && !planted_bugs::is(Bug::PreemptedInFlight) {
                return Growth::Blocked;
            }
            let tokens = self.decoding.remove(&victim).expect("it was just found");
            kv.close(key);
            self.waiting.push_preempted(Job { key, kind: Kind::Compute, tokens, samples: 1, arrived });
            self.settled = None;
            schedule.preempted.push(key);
            if victim == age {
                return Growth::Yielded;
            }
        }
        Growth::Ready
    }

    fn continue_prompts(&mut self, kv: &mut dyn KvSpace, budget: &mut Budget, schedule: &mut Schedule) {
        for at in 0..self.prompts.len() {
            if !self.prompts[at].is_planned() && !self.advance(at, kv, budget, schedule) {
                return;
            }
        }
    }

    /// Gives a prompt its next chunk, unless it waits for what others compute, load or are about to leave. `false`: the
    /// budget does not reach the prompt's next block boundary or its end, and no job behind it may overtake.
    fn advance(&mut self, at: usize, kv: &mut dyn KvSpace, budget: &mut Budget, schedule: &mut Schedule) -> bool {
        let Prompt { job, computed } = self.prompts[at];
        let reach = kv.reach(job.key, computed, &schedule.work);
        assert!((computed..job.tokens).contains(&reach.computed), "{}: {reach:?} of {}", job.key, job.tokens);
        self.prompts[at].computed = reach.computed;
        if reach.until <= reach.computed {
            return true;
        }
        let Some(work) = self.chunk(&job, reach, *budget) else { return false };
        if kv.grow(job.key, work.start + work.count) {
            budget.tokens -= work.count;
            budget.samples -= u32::from(work.samples);
            schedule.work.push(work);
        }
        true
    }

    /// Admits prompts in the order of the queue. Not in a step that preempted: what was just taken away would go
    /// to the one that lost it, and be taken away again.
    fn admit_prompts(&mut self, kv: &mut dyn KvSpace, budget: &mut Budget, schedule: &mut Schedule) {
        let mut before = Before::default();
        let mut next = if schedule.preempted.is_empty() { self.waiting.behind(None) } else { None };
        while budget.tokens >= self.config.block_tokens
            && let Some((place, job)) = next
            && !self.is_short(kv, place)
        {
            next = self.waiting.behind(Some(place));
            if place.is_preempted() && kv.is_held(job.key) {
                continue;
            }
            if job.kind != Kind::Compute {
                before.add(&job, self.config.block_tokens);
                continue;
            }
            if self.is_possible(&job) && !self.has_running_room(&job, before) {
                return;
            }
            match self.open(kv, place, &job, before) {
                Opened::NoRoom => return,
                Opened::Never => schedule.impossible.push(job.key),
                Opened::Ready { cached_tokens } => {
                    assert!(cached_tokens < job.tokens, "{}: the last token of a prompt is always computed", job.key);
                    self.prompts.push(Prompt { job, computed: cached_tokens });
                    schedule.admitted.push((job.key, cached_tokens));
                    if !self.advance(self.prompts.len() - 1, kv, budget, schedule) {
                        return;
                    }
                }
            }
        }
    }

    /// Opens the sequence of a job, which leaves the queue then, or for good if it can never run.
    fn open(&mut self, kv: &mut dyn KvSpace, place: Position, job: &Job, before: Before) -> Opened {
        let possible = self.is_possible(job);
        let opened = if possible { kv.open(job.key, job.tokens, before.claim) } else { Opened::Never };
        match opened {
            Opened::NoRoom => self.short = Some((place, kv.given_back())),
            Opened::Ready { .. } => self.leave(place),
            Opened::Never => {
                self.leave(place);
                self.arrivals.remove(&job.key);
            }
        }
        opened
    }

    /// Removes the job. Jobs behind it may find that they lack less.
    fn leave(&mut self, place: Position) {
        self.waiting.take(place);
        (self.short, self.settled) = (None, None);
    }

    /// Returns whether the job there found no memory, and nothing was given back since.
    fn is_short(&self, kv: &mut dyn KvSpace, place: Position) -> bool {
        self.short == Some((place, kv.given_back()))
    }

    /// Returns whether all that the job is to become may run at once.
    fn is_possible(&self, job: &Job) -> bool {
        u32::from(job.samples) <= self.config.running_max
    }

    /// Returns whether all that the job is to become may run next to what runs, and to what those before it will
    /// become.
    fn has_running_room(&self, job: &Job, before: Before) -> bool {
        let prompts = self.prompts.iter().map(|prompt| prompt.job.samples);
        let samples: u32 = prompts.chain(self.taking_over.values().copied()).map(u32::from).sum();
        self.decoding.len() as u32 + samples + before.samples + u32::from(job.samples) <= self.config.running_max
    }

    /// Returns the next chunk of a prompt, if the budget reaches the prompt's next block boundary or its end.
    fn chunk(&self, job: &Job, Headway { computed, until }: Headway, budget: Budget) -> Option<Work> {
        let left = job.tokens.min(until) - computed;
        let reach = computed + left.min(self.config.chunk_tokens).min(budget.tokens);
        let ends = reach == job.tokens && u32::from(job.samples) <= budget.samples;
        let end = if ends {
            job.tokens
        } else {
            // Short of the end also where only the samples are missing.
            let below = reach.min(job.tokens - 1);
            below - below % self.config.block_tokens
        };
        if end <= computed {
            return None;
        }
        let samples = if ends { job.samples } else { 0 };
        Some(Work { key: job.key, start: computed, count: end - computed, samples })
    }

    /// Ends the taking over of the sequence. `false`: it was not being taken over.
    fn end_taking_over(&mut self, key: SeqKey) -> bool {
        if planted_bugs::is(Bug::RoomKeptForNobody) {
            return self.taking_over.contains_key(&key);
        }
        self.taking_over.remove(&key).is_some()
    }

    fn arrive(&mut self, key: SeqKey, arrived: Time) {
        assert!(self.arrivals.insert(key, arrived).is_none(), "{key}: added twice");
    }
}
