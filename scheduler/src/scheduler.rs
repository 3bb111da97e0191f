//! The scheduler: one call plans a step, one call says that it succeeded.

use crate::queue::{Age, Queue};
use crate::{Added, Job, KvSpace, Opened, Reach, Schedule, SchedulerConfig, Work};
use domain::planted::{self, Bug};
use domain::{SeqKey, Time};
use std::collections::{BTreeMap, HashMap};

/// A prompt in progress. It is never preempted: its blocks may be under a lease, and what it holds is all it needs.
#[derive(Clone, Copy, Debug)]
struct Prompt {
    job: Job,
    /// Leading tokens whose KV is there.
    computed: u32,
}

/// What a step may still take.
#[derive(Clone, Copy, Debug)]
struct Budget {
    tokens: u32,
    samples: u32,
}

/// Decides what each step computes.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    waiting: Queue,
    /// In order of admission.
    prompts: Vec<Prompt>,
    /// Tokens that each decoding sequence knows; the KV of all but the last is there.
    decoding: BTreeMap<Age, u32>,
    /// Every sequence that waits or runs.
    arrivals: HashMap<SeqKey, Time>,
    memory_short: bool,
    /// Sequences that will be added running, and have their memory already.
    reserved: u32,
}

impl Scheduler {
    /// A scheduler without work.
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
            arrivals: HashMap::new(),
            memory_short: false,
            reserved: 0,
        }
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
        Added::Queued
    }

    /// Adds a sequence that decodes at once, one that was handed off or forked: it knows `tokens` tokens, the KV of
    /// all but the last is there, and its memory is open. Takes running room without asking; a caller that is about to
    /// take memory for such a sequence looks at [`Scheduler::room_to_run`] before.
    ///
    /// # Panics
    /// If the sequence is here already, or knows no token.
    pub fn add_running(&mut self, key: SeqKey, tokens: u32, arrived: Time) {
        assert!(tokens > 0, "{key}: a decoding sequence knows a token");
        self.arrive(key, arrived);
        self.decoding.insert((arrived, key), tokens);
    }

    /// Keeps running room for so many sequences that will be added by [`Scheduler::add_running`], so that no job is admitted
    /// in their place.
    pub fn reserve(&mut self, sequences: u32) {
        self.reserved += sequences;
    }

    /// Gives reserved room back: the sequences are about to be added, or never will be.
    ///
    /// # Panics
    /// If less is reserved.
    pub fn unreserve(&mut self, sequences: u32) {
        self.reserved = self.reserved.checked_sub(sequences).expect("what is given back was reserved");
    }

    /// Running room that is kept.
    pub fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Forgets a sequence, waiting or running; `false`: it was not here. The caller closes its memory.
    pub fn remove(&mut self, key: SeqKey) -> bool {
        let Some(arrived) = self.arrivals.remove(&key) else { return false };
        let age = (arrived, key);
        if self.decoding.remove(&age).is_none() && !self.waiting.remove(age) {
            self.prompts.retain(|prompt| prompt.job.key != key);
        }
        true
    }

    /// Plans the next step. Nothing advances before [`Scheduler::computed`], which has to be told of this step's work
    /// (or has to have its sequences removed, where the step failed) before the next call.
    pub fn schedule(&mut self, kv: &mut dyn KvSpace) -> Schedule {
        let mut schedule = Schedule::default();
        let mut budget = Budget { tokens: self.config.step_tokens_max, samples: self.config.samples_max };
        self.decode(kv, &mut budget, &mut schedule);
        self.continue_prompts(kv, &mut budget, &mut schedule);
        self.admit(kv, &mut budget, &mut schedule);
        schedule
    }

    /// A step succeeded: its spans are computed. A span that sampled knows one token more and decodes from now on.
    /// Sequences that were removed meanwhile are skipped.
    pub fn computed<'a>(&mut self, work: impl IntoIterator<Item = &'a Work>) {
        for span in work {
            let Some(&arrived) = self.arrivals.get(&span.key) else { continue };
            let age = (arrived, span.key);
            if let Some(known) = self.decoding.get_mut(&age) {
                *known += 1;
            } else if let Some(at) = self.prompts.iter().position(|prompt| prompt.job.key == span.key) {
                self.prompts[at].computed = span.start + span.count;
                if span.samples > 0 {
                    let known = self.prompts.remove(at).job.tokens + 1;
                    self.decoding.insert(age, known);
                }
            }
        }
    }

    /// Whether the sequence waits or runs here.
    pub fn contains(&self, key: SeqKey) -> bool {
        self.arrivals.contains_key(&key)
    }

    /// Whether the sequence decodes: its prompt is computed and its memory is open.
    pub fn decodes(&self, key: SeqKey) -> bool {
        self.arrivals.get(&key).is_some_and(|&arrived| self.decoding.contains_key(&(arrived, key)))
    }

    /// Sequences that wait, preempted ones included.
    pub fn waiting_len(&self) -> usize {
        self.waiting.new_len() + self.waiting.preempted_len()
    }

    /// Sequences that wait and never ran.
    pub fn queued_len(&self) -> usize {
        self.waiting.new_len()
    }

    /// Sequences that run: prompts in progress and decoding ones.
    pub fn running_len(&self) -> usize {
        self.prompts.len() + self.decoding.len()
    }

    /// Prompt tokens that waiting and running sequences still have to compute.
    pub fn waiting_tokens(&self) -> u64 {
        let begun: u64 = self.prompts.iter().map(|prompt| u64::from(prompt.job.tokens - prompt.computed)).sum();
        self.waiting.tokens() + begun
    }

    /// Prompt tokens of sequences that wait, preempted ones included: what they will take room for.
    pub fn queued_tokens(&self) -> u64 {
        self.waiting.tokens()
    }

    /// How many more sequences of a request that came at `arrived` may run: `running_max`, less those that decode, less what the prompts
    /// in progress will become, less what is reserved, less those that were preempted and come first, less what the next new job
    /// will become if it came before.
    pub fn room_to_run(&self, arrived: Time) -> u32 {
        let next = self.waiting.next_new().filter(|job| job.arrived < arrived);
        let ahead = self.waiting.preempted_len() as u32 + next.map_or(0, |job| u32::from(job.samples));
        self.room().saturating_sub(ahead)
    }

    /// Whether the job at the head of the queue found no memory when last tried. Whoever else takes memory (handoffs)
    /// stands back meanwhile, or the head could starve.
    pub fn memory_short(&self) -> bool {
        self.memory_short
    }

    /// Gives each decoding sequence its token, the oldest first. Where memory is short, the youngest yields; as it is
    /// never older than the one that needs room, no work already planned is lost.
    fn decode(&mut self, kv: &mut dyn KvSpace, budget: &mut Budget, schedule: &mut Schedule) {
        let mut next = self.decoding.first_key_value().map(|(&age, &known)| (age, known));
        while let Some((age, known)) = next {
            if budget.tokens == 0 || budget.samples == 0 {
                return;
            }
            if planted::is(Bug::YoungestStarve) && schedule.work.len() >= 2 {
                return;
            }
            if self.make_room(kv, age, known, schedule) {
                *budget = Budget { tokens: budget.tokens - 1, samples: budget.samples - 1 };
                schedule.work.push(Work { key: age.1, start: known - 1, count: 1, samples: 1 });
            }
            let after = (std::ops::Bound::Excluded(age), std::ops::Bound::Unbounded);
            next = self.decoding.range(after).next().map(|(&age, &known)| (age, known));
        }
    }

    /// Grows a sequence to `known` slots, preempting from the youngest on; `false`: it had to yield itself.
    fn make_room(&mut self, kv: &mut dyn KvSpace, age: Age, known: u32, schedule: &mut Schedule) -> bool {
        while !kv.grow(age.1, known) {
            let (victim, tokens) = self.decoding.pop_last().expect("the sequence that grows is decoding");
            let (arrived, key) = victim;
            kv.close(key);
            self.waiting.push_preempted(Job { key, tokens, samples: 1, arrived });
            schedule.preempted.push(key);
            if victim == age {
                return false;
            }
        }
        true
    }

    fn continue_prompts(&mut self, kv: &mut dyn KvSpace, budget: &mut Budget, schedule: &mut Schedule) {
        for at in 0..self.prompts.len() {
            if !self.advance(at, kv, budget, schedule) {
                return;
            }
        }
    }

    /// Gives a prompt its next chunk, unless it waits for what others compute or load. `false`: the budget does not reach
    /// the prompt's next block boundary or its end, and nobody behind it may overtake.
    fn advance(&mut self, at: usize, kv: &mut dyn KvSpace, budget: &mut Budget, schedule: &mut Schedule) -> bool {
        let Prompt { job, computed } = self.prompts[at];
        let reach = kv.reach(job.key, computed, &schedule.work);
        assert!((computed..job.tokens).contains(&reach.computed), "{}: {reach:?} of {}", job.key, job.tokens);
        self.prompts[at].computed = reach.computed;
        if reach.until <= reach.computed {
            return true;
        }
        let work = self.chunk(&job, reach, budget);
        schedule.work.extend(work);
        work.is_some()
    }

    /// Admits from the head of the queue. Not in a step that preempted: what was just taken away would go to the one
    /// that lost it, and be taken away again.
    fn admit(&mut self, kv: &mut dyn KvSpace, budget: &mut Budget, schedule: &mut Schedule) {
        self.memory_short &= self.waiting.head().is_some();
        if !schedule.preempted.is_empty() {
            self.memory_short = true;
            return;
        }
        while budget.tokens >= self.config.block_tokens
            && let Some(job) = self.waiting.head()
        {
            let possible = u32::from(job.samples) <= self.config.running_max;
            if possible && u32::from(job.samples) > self.room() {
                return;
            }
            let opened = if possible { kv.open(job.key, job.tokens) } else { Opened::Never };
            self.memory_short = opened == Opened::NoRoom;
            match opened {
                Opened::NoRoom => return,
                Opened::Never => {
                    self.waiting.pop();
                    self.arrivals.remove(&job.key);
                    schedule.impossible.push(job.key);
                }
                Opened::Ready { cached_tokens } => {
                    assert!(cached_tokens < job.tokens, "{}: the last token of a prompt is always computed", job.key);
                    self.waiting.pop();
                    self.prompts.push(Prompt { job, computed: cached_tokens });
                    schedule.admitted.push((job.key, cached_tokens));
                    if !self.advance(self.prompts.len() - 1, kv, budget, schedule) {
                        return;
                    }
                }
            }
        }
    }

    /// The next chunk of a prompt, taken from the budget, if that reaches its next block boundary or its end.
    fn chunk(&self, job: &Job, Reach { computed, until }: Reach, budget: &mut Budget) -> Option<Work> {
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
        budget.tokens -= end - computed;
        budget.samples -= u32::from(samples);
        Some(Work { key: job.key, start: computed, count: end - computed, samples })
    }

    /// Running room, not regarding who waits.
    fn room(&self) -> u32 {
        let prompts: u32 = self.prompts.iter().map(|prompt| u32::from(prompt.job.samples)).sum();
        self.config.running_max.saturating_sub(self.decoding.len() as u32 + prompts + self.reserved)
    }

    fn arrive(&mut self, key: SeqKey, arrived: Time) {
        assert!(self.arrivals.insert(key, arrived).is_none(), "{key}: added twice");
    }
}
