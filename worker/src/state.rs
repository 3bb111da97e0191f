//! The state that all parts of a worker share, and what they do with it: attempts, sequences, messages.

use crate::acquaintance::{Acquaintance, Parting};
use crate::attempts::{Attempt, Attempts};
use crate::config::{ANSWERS_MAX, LEASES_MAX, MIGRATION_LEAD_TOKENS, WorkerConfig};
use crate::grammars::GrammarDesk;
use crate::kv_space::Space;
use crate::loading::{Lifts, Loader, Loads, Pace, predicted_load_s};
use crate::measured_rates::Rates;
use crate::meters::Meters;
use crate::prompt_sources::{Share, Source, Sources};
use crate::sequence::{PROMPT, Sequence};
use crate::sessions::{SessionId, Sessions};
use crate::slots::Slots;
use crate::steps_in_flight::InSteps;
use crate::timed::Timed;
use crate::transport::Transport;
use domain::handoff::{PeerBody, PeerMessage};
use domain::plan::{BlockCopy, Sampled};
use domain::planted_bugs::{self, Bug};
use domain::session::{Assignment, Failure, FromWorker, PeerInfo, Role, Submit, TokenRow};
use domain::{
    Adapter, BlockHash, Choice, Claim, End, Epoch, KvGroup, RequestId, SeqKey, Time, Token, Tokens, WorkerId,
};
use engine::device::Device;
use engine::grammar::{CompiledGrammar, Guide};
use kv_manager::tiers::Tier;
use kv_manager::{GroupConfig, Grow, Heard, Incarnations, KvConfig, KvManager};
use scheduler::{Added, Job, Kind, Scheduler, SchedulerConfig, Work};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use telemetry::failpoint::{self, FailPoint};
use telemetry::traces;
use tiers::TierHandle;

pub(crate) const QUEUE_FULL: &str = "the worker's queue is full";

/// Everything that the thread of a worker owns, except for its device, role, fetches and offers.
pub struct WorkerState {
    /// Settings.
    pub config: WorkerConfig,
    /// What the device computes with, beside the model alone.
    pub(crate) adapters: Vec<Adapter>,
    /// Block pools, leases, prefix index.
    pub kv: KvManager,
    /// Which slot of the device each sequence has.
    pub(crate) slots: Slots,
    /// Reads peers' blocks and carries messages.
    pub(crate) transport: Box<dyn Transport>,
    /// The tiers below the device.
    pub(crate) tiers: BTreeMap<Tier, TierHandle>,
    pub(crate) loads: Loads,
    pub(crate) lifts: Lifts,
    pub(crate) meters: Meters,
    pub(crate) scheduler: Scheduler,
    pub(crate) sequences: HashMap<SeqKey, Sequence>,
    pub(crate) attempts: Attempts,
    /// Submits whose grammars are being compiled.
    pub(crate) grammars: GrammarDesk,
    pub(crate) rates: Rates,
    /// Rounds of the step loop.
    pub(crate) ticks: u64,
    /// Sequences that the steps in flight contain. Their blocks must not be freed before these have ended.
    pub(crate) in_steps: InSteps,
    /// Copies on write of sequences that grew between steps. The next step that contains the sequence begins with them.
    pub(crate) copies: Vec<(SeqKey, BlockCopy)>,
    /// Tokens of the step whose output is being applied, by session.
    rows: BTreeMap<SessionId, Vec<TokenRow>>,
    pub(crate) lives: Incarnations,
    pub(crate) peers: Acquaintance,
    pub(crate) sessions: Sessions,
    /// The time of the event or turn that is being handled.
    pub(crate) now: Time,
    /// The worker is about to end: it takes nothing new, and opens no session.
    pub(crate) draining: bool,
    /// An operator drains it: it takes nothing new, and its sessions stay.
    pub(crate) paused: bool,
    /// What it is there for since an operator changed that.
    pub(crate) role: Option<Role>,
}

impl WorkerState {
    pub(crate) fn new(config: WorkerConfig, device: &dyn Device, transport: Box<dyn Transport>) -> Self {
        let group = |((&blocks, &reserve_blocks), group): ((&u32, &u32), &KvGroup)| GroupConfig {
            blocks,
            reserve_blocks,
            window: group.reach(),
        };
        let groups = config.blocks.iter().zip(&config.reserve_blocks).zip(&config.layout.groups).map(group).collect();
        let kv = KvManager::new(KvConfig {
            block_tokens: config.layout.block_tokens,
            chunk_tokens: config.scheduler.chunk_tokens,
            groups,
            eviction: config.eviction,
            watermarks: config.watermarks,
            pinned_percent: config.pinned_percent,
            quotas: config.quotas,
            park_after: config.park_after,
            answers_max: ANSWERS_MAX,
            leases_max: LEASES_MAX,
        });
        Self {
            adapters: device.adapters().to_vec(),
            kv,
            slots: Slots::new(device.limits().slots_max),
            lives: Incarnations::new(config.incarnation),
            peers: Acquaintance::default(),
            transport,
            tiers: BTreeMap::new(),
            loads: Loads::default(),
            lifts: Lifts::default(),
            meters: Meters::new(config.id, &config.name, config.blocks.len()),
            scheduler: Scheduler::new(config.scheduler),
            config,
            sequences: HashMap::new(),
            attempts: Attempts::default(),
            grammars: GrammarDesk::default(),
            rates: Rates::default(),
            ticks: 0,
            in_steps: InSteps::default(),
            copies: Vec::new(),
            rows: BTreeMap::new(),
            sessions: Sessions::default(),
            now: Time::ZERO,
            draining: false,
            paused: false,
            role: None,
        }
    }

    /// Takes other limits for what is decided from now on.
    pub(crate) fn change_limits(&mut self, limits: SchedulerConfig) {
        self.scheduler.change_limits(limits);
        self.config.scheduler = limits;
    }

    /// Returns the attempt, if it is open.
    pub fn attempt(&self, request: RequestId, epoch: Epoch) -> Option<&Attempt> {
        self.attempts.get(request, epoch)
    }

    /// Returns the sequence, if it is here.
    pub fn sequence(&self, key: SeqKey) -> Option<&Sequence> {
        self.sequences.get(&key)
    }

    /// Returns all open attempts.
    pub fn attempts(&self) -> impl Iterator<Item = (RequestId, Epoch, &Attempt)> {
        self.attempts.iter()
    }

    /// Returns whether the sequence decodes.
    pub fn decodes(&self, key: SeqKey) -> bool {
        self.scheduler.decodes(key)
    }

    /// Returns whether the outbox of the sequence's router is full, so that the sequence makes no tokens.
    pub fn is_held(&self, key: SeqKey) -> bool {
        self.attempts.is_held(&self.sessions, key)
    }

    /// Returns whether the worker takes nothing new.
    pub fn is_draining(&self) -> bool {
        self.draining || self.paused
    }

    /// Returns the sizes of all lists that attempts and steps fill, by name. All are empty once no attempt is open.
    pub fn sizes(&self) -> [(&'static str, usize); 12] {
        [
            ("attempts", self.attempts.len()),
            ("submits that wait for a grammar", self.grammars.len()),
            ("sequences", self.sequences.len()),
            ("sequences in a step", self.in_steps.len()),
            ("copies", self.copies.len()),
            ("frames of tokens", self.rows.len()),
            ("scheduled sequences", self.scheduler.waiting_len() + self.scheduler.running_len()),
            ("sequences taken over", self.scheduler.taking_over_len()),
            ("open sequences", self.kv.sequences_open()),
            ("live leases", self.kv.leases_live()),
            ("loads from tiers", self.loads.in_progress()),
            ("lifts between tiers", self.lifts.len()),
        ]
    }

    /// Returns how many sequences wait, and how many prompt tokens are still to be computed.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        (self.scheduler.waiting_len(), self.scheduler.waiting_tokens())
    }

    /// Returns whether there is room for `tokens` of a prompt with this chain, in addition to what is cached of it and
    /// to the room of all jobs that wait. A caller that does not wait in the queue asks this before it takes room.
    pub(crate) fn has_room_beside(&self, chain: &[BlockHash], tokens: u32) -> bool {
        self.kv.has_room(chain, tokens, self.queued())
    }

    /// Returns the room that the waiting jobs will take.
    pub(crate) fn queued(&self) -> Claim {
        self.scheduler.queued(|key| self.is_held(key))
    }

    /// Returns how many blocks are missing for sequences without memory that will decode here: those that wait, and
    /// those that other workers still compute. A sequence that was preempted and is held needs none. Routers let only a
    /// few of these wait here, and any number of prompts that are handed off.
    pub(crate) fn blocks_wanted(&self) -> u32 {
        let size = self.config.layout.block_tokens;
        let rests = |key: SeqKey, sequence: &Sequence| !sequence.tokens.output().is_empty() && self.is_held(key);
        let hands_off = |key: SeqKey| {
            let attempt = self.attempts.get(key.request, key.epoch);
            attempt.is_some_and(|attempt| matches!(attempt.submit.assignment, Assignment::Prefill { .. }))
        };
        let is_outside = |key: SeqKey| !self.kv.is_open(key) && !hands_off(key);
        let outside = self.sequences.iter().filter(|&(&key, sequence)| is_outside(key) && !rests(key, sequence));
        let lacks = |tokens: u32, chain| tokens.saturating_sub(self.kv.cached_tokens(chain)).div_ceil(size);
        outside.map(|(_, sequence)| lacks(sequence.tokens.len() as u32, &sequence.chain)).sum()
    }

    /// Returns how many bytes wait to be taken by sessions.
    pub fn backlog(&self) -> usize {
        self.sessions.backlog()
    }

    /// Returns how many sessions are open.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns how many turns the machine has taken. A growing number shows that it is alive.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Records how fast a fetch was.
    pub(crate) fn fetched(&mut self, report: &transport::TransferReport) {
        self.rates.fetch(report.bytes, report.wire);
        telemetry::metrics::transfer_bytes(report.lane.name()).increment(report.bytes);
        telemetry::metrics::transfer_wire_bytes(report.lane.name()).increment(report.wire_bytes);
        telemetry::metrics::fetch_time(report.lane.name()).record((report.elapsed - report.queued).as_secs_f64());
    }

    // -- attempts

    /// Opens an attempt that is not open.
    pub(crate) fn open(
        &mut self,
        now: Time,
        session: SessionId,
        submit: Submit,
        grammar: Option<Arc<CompiledGrammar>>,
    ) {
        let (request, epoch) = (submit.request, submit.epoch);
        let scope = self.config.scope(&submit.tenant, submit.adapter.as_ref());
        let part = match submit.assignment {
            Assignment::Prefill { .. } => "prefill",
            Assignment::Decode { .. } => "decode",
            Assignment::TakeOver { .. } => "take over",
            Assignment::Whole => "prefill and decode",
        };
        let span = traces::attempt(&self.config.name, submit.request, submit.epoch, part, submit.trace);
        let timed = Timed::new(now, &submit, span);
        self.attempts.open(now, session, submit, scope, self.config.layout.block_tokens, timed);
        grammar.into_iter().for_each(|grammar| self.attempts.keep_to(request, epoch, grammar));
    }

    /// Returns whether the worker may end: it drains, no attempt is open, no lease is live, and all routers have closed
    /// their sessions.
    pub fn is_drained(&self) -> bool {
        self.draining
            && self.attempts.is_empty()
            && self.grammars.len() == 0
            && self.kv.leases_live() == 0
            && self.sessions.len() == 0
    }

    /// Queues the prompt of an open attempt: once for all choices if they share it, otherwise once per choice.
    pub(crate) fn queue(&mut self, request: RequestId, epoch: Epoch) {
        let Some(attempt) = self.attempts.get(request, epoch) else { return };
        // The time of arrival decides the place in the queue, however long a prefix was fetched first.
        let (submit, arrived) = (attempt.submit.clone(), attempt.arrived);
        let jobs: Vec<(SeqKey, Vec<Choice>)> = if shares_prompt(&submit) {
            let choices = submit.choices.iter().map(|&(choice, _)| choice).collect();
            vec![(SeqKey { request, epoch, choice: PROMPT }, choices)]
        } else {
            submit.choices.iter().map(|&(choice, _)| (SeqKey { request, epoch, choice }, vec![choice])).collect()
        };
        for (key, choices) in jobs {
            let samples = choices.len() as u16;
            let Some(sequence) = self.sequence_of(arrived, request, epoch, choices) else { return };
            let kind = if self.tiers.is_empty() { Kind::Compute } else { Kind::Load };
            let job = Job { key, kind, tokens: sequence.tokens.len() as u32, samples, arrived };
            self.sequences.insert(key, sequence);
            if self.scheduler.add(job) == Added::QueueFull {
                return self.fail(request, epoch, Failure::QueueFull, QUEUE_FULL);
            }
            self.loader().on_prompt_queued(key);
        }
    }

    /// Notes that these blocks of the prompt were fetched from another worker, `took` after the prompt arrived.
    pub(crate) fn brought(&mut self, key: SeqKey, blocks: Range<u32>, took: Duration) {
        if let Some(sequence) = self.sequences.get_mut(&key) {
            blocks.for_each(|number| sequence.sources.brought(number, Source::Peer, took));
        }
    }

    /// Makes the sequence into which the prompt of an open attempt will be fetched. It is not queued.
    pub(crate) fn expect(&mut self, now: Time, submit: &Submit) -> SeqKey {
        let (request, epoch) = (submit.request, submit.epoch);
        let key = SeqKey { request, epoch, choice: PROMPT };
        let choices = submit.choices.iter().map(|&(choice, _)| choice).collect();
        if let Some(sequence) = self.sequence_of(now, request, epoch, choices) {
            self.sequences.insert(key, Sequence { fetching: true, ..sequence });
        }
        key
    }

    /// Makes a sequence of an open attempt: the prompt with its identities, which are shared and not copied, and the
    /// committed tokens of the first of these choices.
    fn sequence_of(&self, now: Time, request: RequestId, epoch: Epoch, choices: Vec<Choice>) -> Option<Sequence> {
        let Attempt { submit, scope, chain, grammar, .. } = self.attempts.get(request, epoch)?;
        let committed = submit.choices.iter().find(|(choice, _)| *choice == choices[0]);
        let mut sequence = Sequence {
            tokens: Tokens::new(submit.prompt.clone(), committed.map_or(&[], |(_, tokens)| tokens)),
            chain: chain.clone(),
            scope: scope.clone(),
            adapter: submit.adapter.clone(),
            params: submit.params.clone(),
            seed: submit.seed,
            choices,
            guide: grammar.clone().map(|grammar| Box::new(Guide::new(grammar))),
            arrived: now,
            cached_tokens: 0,
            loadable_tokens: 0,
            sources: Sources::default(),
            fetching: false,
            closing: false,
        };
        sequence.identify(self.config.layout.block_tokens);
        Some(sequence)
    }

    /// Closes an attempt irregularly, with its sequences, and tells its router why.
    pub(crate) fn fail(&mut self, request: RequestId, epoch: Epoch, why: Failure, detail: impl Into<String>) {
        self.fail_by(None, request, epoch, why, detail);
    }

    /// Does the same, and names the peer that did not do its part, if one did not.
    pub(crate) fn fail_by(
        &mut self,
        fault: Option<WorkerId>,
        request: RequestId,
        epoch: Epoch,
        why: Failure,
        detail: impl Into<String>,
    ) {
        if let Some(timed) = self.attempts.timed(request, epoch) {
            timed.fails(format!("{why:?}"));
        }
        if let Some(attempt) = self.forget(request, epoch) {
            let detail = detail.into();
            tracing::debug!(worker = self.config.name, %request, %epoch, ?why, detail, "the attempt failed");
            self.tell(attempt.session, &FromWorker::Failed { request, epoch, why, fault, detail });
        }
    }

    /// Closes an attempt and its sequences, and tells no router.
    pub(crate) fn forget(&mut self, request: RequestId, epoch: Epoch) -> Option<Attempt> {
        self.end_phases(request, epoch);
        let attempt = self.attempts.close(request, epoch)?;
        self.close(SeqKey { request, epoch, choice: PROMPT });
        for &(choice, _) in &attempt.submit.choices {
            self.close(SeqKey { request, epoch, choice });
        }
        Some(attempt)
    }

    /// Closes one sequence of an attempt. Returns whether it was the last one.
    pub(crate) fn choice_ended(&mut self, key: SeqKey) -> bool {
        self.close(key);
        self.attempts.choice_ended(key.request, key.epoch, key.choice).unwrap_or(false)
    }

    /// Lends loading the state that it works with.
    pub(crate) fn loader(&mut self) -> Loader<'_> {
        let Self { config, kv, tiers, loads, lifts, rates, scheduler, sequences, meters, attempts, sessions, .. } =
            self;
        let meters = &mut meters.tiers;
        Loader { config, kv, tiers, loads, lifts, rates, scheduler, sequences, meters, attempts, sessions }
    }

    /// Predicts how many seconds it takes to load what the device lacks of the first `tokens` positions of `chain`.
    pub(crate) fn load_s(&self, chain: &[BlockHash], tokens: u32) -> f32 {
        predicted_load_s(&self.kv, &self.rates, &self.config.layout, chain, tokens)
    }

    /// Returns the scheduler, and the memory as the scheduler sees it. `ahead`: the work of the newest step in flight.
    pub(crate) fn scheduler_and_space<'a>(
        &'a mut self,
        now: Time,
        ahead: &'a [Work],
    ) -> (&'a mut Scheduler, Space<'a>) {
        let pace = Pace {
            block_tokens: self.config.layout.block_tokens,
            chunk_tokens: self.config.scheduler.chunk_tokens,
            cost: self.rates.cost(),
        };
        let Self { kv, sequences, copies, loads, scheduler, sessions, attempts, .. } = self;
        let (full, turns) = (sessions.any_full().then_some((&*sessions, &*attempts)), sessions.turns());
        let caught_up = Vec::new();
        (scheduler, Space { kv, sequences, pace, copies, caught_up, loads, ahead, full, turns, now })
    }

    // -- sequences

    /// Closes a sequence: no later step contains it. Its blocks are freed at once, or when the last step in flight ends
    /// that contains the sequence. Blocks that a fetch still fills belong to the fetch, under the same key.
    pub(crate) fn close(&mut self, key: SeqKey) {
        self.scheduler.remove(key);
        self.loader().drop_load(key);
        self.copies.retain(|&(copies_for, _)| copies_for != key);
        if self.in_steps.contains(key) && !planted_bugs::is(Bug::FreedInFlight) {
            if let Some(sequence) = self.sequences.get_mut(&key) {
                sequence.closing = true;
            }
        } else if self.sequences.remove(&key).is_some_and(|sequence| !sequence.fetching) {
            self.kv.close(key);
        }
    }

    /// Gives the blocks of a fetched prompt to its sequence, after the owner answered that they are valid. `missing`:
    /// output tokens of the prompt that this worker had not received yet.
    pub(crate) fn fetched_prompt(&mut self, key: SeqKey, missing: &[Token]) {
        if let Some(sequence) = self.sequences.get_mut(&key) {
            sequence.fetching = false;
            missing.iter().for_each(|&token| sequence.push(token, self.config.layout.block_tokens));
            self.kv.written(key, sequence.tokens.len() as u32, &sequence.chain);
        }
    }

    /// Splits a prompt whose KV is complete into running sequences: one for each choice that is still wanted and has a
    /// first token, which the router has already. The prompt's sequence is closed.
    pub(crate) fn start(&mut self, key: SeqKey, first: &[(Choice, Token)]) {
        let Some(prompt) = self.sequences.get(&key).cloned() else { return };
        let wanted = self.attempts.go_on(key.request, key.epoch, first);
        if wanted.is_empty() {
            self.end_phases(key.request, key.epoch);
            self.attempts.close(key.request, key.epoch);
        } else {
            self.decodes_from_now(key.request, key.epoch);
        }
        for (choice, token) in wanted {
            let child = SeqKey { choice, ..key };
            // The row of the first token has reported what was cached.
            let mut sequence = Sequence { choices: vec![choice], cached_tokens: 0, ..prompt.clone() };
            sequence.push(token, self.config.layout.block_tokens);
            self.kv.fork(key, child);
            self.scheduler.add_running(child, sequence.tokens.len() as u32, sequence.arrived);
            self.sequences.insert(child, sequence);
        }
        self.close(key);
    }

    /// Makes room for a running sequence to be offered up to a position a little ahead of where it is. Returns that
    /// position: the sequence does not have its token yet. `None`: the sequence does not decode.
    pub(crate) fn lead(&mut self, key: SeqKey) -> Option<u32> {
        let sequence = self.sequences.get(&key)?;
        let running = key.choice != PROMPT && sequence.outputs() > 0 && self.kv.is_open(key);
        if !running || sequence.closing || !self.scheduler.decodes(key) {
            return None;
        }
        let known = sequence.tokens.len() as u32;
        let Grow::Ready(copies) = self.kv.grow(key, known + MIGRATION_LEAD_TOKENS) else {
            // The pool has no room for the lead, so the sequence moves at the very next token.
            let Grow::Ready(copies) = self.kv.grow(key, known) else { return None };
            self.copies.extend(copies.into_iter().map(|copy| (key, copy)));
            return Some(known);
        };
        self.copies.extend(copies.into_iter().map(|copy| (key, copy)));
        Some(known + MIGRATION_LEAD_TOKENS)
    }

    /// Closes the attempt of a sequence that goes on elsewhere, after its tokens so far were sent to the router.
    pub(crate) fn hand_over(&mut self, key: SeqKey) {
        self.flush_rows();
        self.forget(key.request, key.epoch);
    }

    /// Appends a token that was sampled for a running sequence, and ends the sequence if that was its last.
    pub(crate) fn append(&mut self, key: SeqKey, sampled: Sampled) {
        let Some(sequence) = self.sequences.get_mut(&key) else { return };
        let index = sequence.outputs();
        let cached_tokens = std::mem::take(&mut sequence.cached_tokens);
        let is_late = planted_bugs::is(Bug::OvershootTold) && self.in_steps.contains(key);
        sequence.push(sampled.token, self.config.layout.block_tokens);
        let stops = sequence.stops();
        let end = end_of(sequence, index, stops).filter(|_| !is_late);
        self.row(TokenRow { key, index, token: sampled.token, logprobs: sampled.logprobs, cached_tokens });
        if let Some(end) = end {
            self.ended(key, index + 1, end);
        }
    }

    /// Adds a token to the frames of this step.
    fn row(&mut self, row: TokenRow) {
        if let Some(attempt) = self.attempts.get(row.key.request, row.key.epoch) {
            self.rows.entry(attempt.session).or_default().push(row);
        }
    }

    /// Reports where the tokens of a prompt came from, when its first token was sampled.
    pub(crate) fn tell_sources(&mut self, now: Time, key: SeqKey) {
        let Some(sequence) = self.sequences.get_mut(&key).filter(|sequence| sequence.sources.is_open()) else { return };
        let shares = sequence.sources.end(now, sequence.tokens.len() as u32);
        shares.iter().for_each(|(source, share)| self.meters.source(*source, *share));
        if let Some(timed) = self.attempts.timed(key.request, key.epoch) {
            shares.iter().for_each(|(source, share)| timed.tokens(source.name(), share.tokens));
        }
        let [device, peer, host, neighbours, disk, object, computed] =
            Source::ALL.map(|source| shares.get(&source).copied().unwrap_or_default());
        let (worker, request) = (&self.config.name, key.request);
        let ns = |share: Share| share.took.map(|took| took.as_nanos() as u64);
        tracing::trace!(
            target: "timeline",
            worker,
            %request,
            device = device.tokens,
            peer = peer.tokens,
            peer_ns = ns(peer),
            host = host.tokens,
            host_ns = ns(host),
            neighbours = neighbours.tokens,
            neighbours_ns = ns(neighbours),
            disk = disk.tokens,
            disk_ns = ns(disk),
            object = object.tokens,
            object_ns = ns(object),
            computed = computed.tokens,
            computed_ns = ns(computed),
            "prompt there"
        );
    }

    /// Adds the first tokens of a prompt's choices to the frames of this step. Returns those of choices that go on.
    pub(crate) fn first_tokens(&mut self, prompt: SeqKey, sampled: Vec<Sampled>) -> Vec<(Choice, Token)> {
        let mut first = Vec::with_capacity(sampled.len());
        for sampled in sampled {
            let key = SeqKey { choice: sampled.key.choice, ..prompt };
            let live = self.attempts.get(key.request, key.epoch).is_some_and(|a| a.live.contains(&key.choice));
            let Some(sequence) = self.sequences.get(&prompt).filter(|_| live) else { continue };
            let (index, cached_tokens) = (sequence.outputs(), sequence.cached_tokens);
            let end = end_of(sequence, index, sequence.stops_with(sampled.token));
            self.row(TokenRow { key, index, token: sampled.token, logprobs: sampled.logprobs, cached_tokens });
            match end {
                Some(end) => self.ended(key, index + 1, end),
                None => first.push((key.choice, sampled.token)),
            }
        }
        first
    }

    /// Ends a sequence regularly, after its last token was sent.
    fn ended(&mut self, key: SeqKey, tokens: u32, end: End) {
        self.flush_rows();
        if self.attempts.get(key.request, key.epoch).is_some_and(|attempt| attempt.live == [key.choice]) {
            self.end_phases(key.request, key.epoch);
        }
        if let Some(session) = self.attempts.get(key.request, key.epoch).map(|attempt| attempt.session) {
            self.tell(session, &FromWorker::Ended { key, tokens, end });
        }
        if self.choice_ended(key) {
            self.attempts.close(key.request, key.epoch);
        }
    }

    // -- messages

    /// Sends the tokens of the step, as one frame to each router.
    pub(crate) fn flush_rows(&mut self) {
        while let Some((session, rows)) = self.rows.pop_first() {
            for TokenRow { key, index, .. } in &rows {
                let (worker, request) = (&self.config.name, key.request);
                tracing::trace!(target: "timeline", worker, %request, index, "token sent");
            }
            self.tell(session, &FromWorker::Tokens(rows));
        }
    }

    /// Sends a message to a router. A message of a session that is closed is dropped and counted.
    pub(crate) fn tell(&mut self, session: SessionId, message: &FromWorker) {
        if !self.sessions.tell(session, message) {
            self.meters.session_dropped.increment(1);
        }
        failpoint::pass(FailPoint::SessionSent, message.name());
    }

    /// Sends a message to a peer. A message that cannot be sent is lost, which the deadlines of the protocol cover.
    pub(crate) fn send(&mut self, to: WorkerId, body: PeerBody) {
        let message = PeerMessage {
            from: self.config.id,
            from_incarnation: self.config.incarnation,
            to_incarnation: self.lives.of(to),
            body,
        };
        self.peers.used(self.now, to);
        let sent = self.transport.send(to, proto::handoff::encode(&message));
        failpoint::pass(FailPoint::PeerSent, message.body.name());
        if let Err(error) = sent {
            tracing::warn!(worker = self.config.name, %to, %error, "a message to a peer was lost");
            self.meters.peer_dropped.increment(1);
        }
    }

    /// Notes where a peer is, as a router says. Returns whether the peer came back as a new incarnation.
    pub(crate) fn introduced(&mut self, session: SessionId, peer: PeerInfo) -> bool {
        let heard = self.lives.learn(peer.id, peer.incarnation);
        if heard == Heard::Stale {
            return false;
        }
        self.peers.introduced(session, peer.id);
        self.transport.introduce(peer);
        heard == Heard::Restarted
    }

    /// Closes connections that neither `is_needed` nor an open attempt needs, and forgets peers that have left.
    pub(crate) fn part(&mut self, now: Time, is_needed: impl Fn(WorkerId) -> bool) {
        let names = |peer| self.attempts.iter().any(|(.., attempt)| attempt.submit.assignment.peer() == Some(peer));
        for parting in self.peers.partings(now, |peer| is_needed(peer) || names(peer)) {
            match parting {
                Parting::Disconnect(peer) => {
                    tracing::info!(worker = self.config.name, %peer, "disconnected: nothing needed it for long");
                    self.meters.lanes.forget(peer);
                    self.transport.disconnect(peer);
                }
                Parting::Forget(peer, life) if self.lives.forget(peer, life) => {
                    tracing::info!(worker = self.config.name, %peer, "it left, and is forgotten");
                    self.transport.forget(peer);
                }
                // The peer came back, and said so before a router did.
                Parting::Forget(..) => {}
            }
        }
    }
}

/// Returns whether all choices continue the same tokens, so that one prompt serves them.
pub(crate) fn shares_prompt(submit: &Submit) -> bool {
    submit.choices.len() == 1 || submit.choices.iter().all(|(_, committed)| committed.is_empty())
}

/// Returns how the sequence ends with its output token `index`, if it does. `stops`: that token says so.
fn end_of(sequence: &Sequence, index: u32, stops: bool) -> Option<End> {
    if stops {
        Some(End::stop())
    } else if index + 1 >= sequence.params.max_tokens {
        Some(End::length())
    } else {
        None
    }
}
