//! The state of a worker and what every role does with it.

use crate::attempts::{Attempt, Attempts};
use crate::config::{ANSWERS_MAX, LEASES_MAX, WorkerConfig};
use crate::meters::Meters;
use crate::outbox::Outbox;
use crate::rates::Rates;
use crate::sequence::{PROMPT, Sequence};
use domain::handoff::{PeerBody, PeerMessage};
use domain::plan::Sampled;
use domain::session::{Failure, FromWorker, Submit, TokenRow};
use domain::{Choice, End, Epoch, Incarnation, RequestId, SeqKey, Time, Token, WorkerId};
use kv_manager::{GroupConfig, KvConfig, KvManager};
use scheduler::{Added, Job, Scheduler};
use std::collections::{HashMap, HashSet};
use transport::Agent;

/// Everything a worker's thread owns besides its device and its role.
pub struct Core {
    /// Settings.
    pub config: WorkerConfig,
    /// Block pools, leases, prefix index.
    pub kv: KvManager,
    /// Reads peers' blocks and carries messages.
    pub agent: Agent,
    pub(crate) meters: Meters,
    pub(crate) scheduler: Scheduler,
    pub(crate) sequences: HashMap<SeqKey, Sequence>,
    pub(crate) attempts: Attempts,
    pub(crate) rates: Rates,
    /// Rounds of the step loop.
    pub(crate) ticks: u64,
    /// Sequences that the step in flight computes with; their blocks must not be given back before it ends.
    pub(crate) in_step: HashSet<SeqKey>,
    /// Tokens of the step that is being applied.
    rows: Vec<TokenRow>,
    peers: HashMap<WorkerId, Incarnation>,
    pub(crate) outbox: Outbox,
}

impl Core {
    pub(crate) fn new(config: WorkerConfig, agent: Agent, outbox: Outbox) -> Self {
        let windows = config.layout.groups.iter().map(|group| group.window);
        let groups =
            config.blocks.iter().zip(windows).map(|(&blocks, window)| GroupConfig { blocks, window }).collect();
        let kv = KvManager::new(KvConfig {
            block_tokens: config.layout.block_tokens,
            groups,
            reserve_blocks: config.reserve_blocks,
            answers_max: ANSWERS_MAX,
            leases_max: LEASES_MAX,
        });
        Self {
            kv,
            agent,
            meters: Meters::new(config.id, config.blocks.len()),
            scheduler: Scheduler::new(config.scheduler),
            config,
            sequences: HashMap::new(),
            attempts: Attempts::default(),
            rates: Rates::default(),
            ticks: 0,
            in_step: HashSet::new(),
            rows: Vec::new(),
            peers: HashMap::new(),
            outbox,
        }
    }

    /// The open attempt.
    pub fn attempt(&self, request: RequestId, epoch: Epoch) -> Option<&Attempt> {
        self.attempts.get(request, epoch)
    }

    /// The sequence.
    pub fn sequence(&self, key: SeqKey) -> Option<&Sequence> {
        self.sequences.get(&key)
    }

    /// Rounds of the step loop so far: shows that it is alive.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// A fetch ended: what it says of the lane's speed.
    pub fn fetched(&mut self, report: &transport::TransferReport) {
        self.rates.fetch(report.bytes, report.wire);
        telemetry::metrics::transfer_bytes(report.lane.name()).increment(report.bytes);
        telemetry::metrics::fetch_time(report.lane.name()).record((report.elapsed - report.queued).as_secs_f64());
    }

    // -- attempts

    /// Opens an attempt; `false` if it is open already (a duplicate is ignored).
    pub fn open(&mut self, now: Time, submit: Submit) -> bool {
        self.attempts.open(now, submit)
    }

    /// Queues the prompt of an open attempt: once for all its choices where they share it, else once each.
    pub fn queue(&mut self, now: Time, request: RequestId, epoch: Epoch) {
        let Some(attempt) = self.attempts.get(request, epoch) else { return };
        let submit = attempt.submit.clone();
        let jobs: Vec<(SeqKey, Vec<Choice>)> = if shares_prompt(&submit) {
            let choices = submit.choices.iter().map(|&(choice, _)| choice).collect();
            vec![(SeqKey { request, epoch, choice: PROMPT }, choices)]
        } else {
            submit.choices.iter().map(|&(choice, _)| (SeqKey { request, epoch, choice }, vec![choice])).collect()
        };
        for (key, choices) in jobs {
            let samples = choices.len() as u16;
            let sequence = self.sequence_of(now, &submit, choices);
            let job = Job { key, tokens: sequence.tokens.len() as u32, samples, arrived: now };
            self.sequences.insert(key, sequence);
            if let Added::QueueFull = self.scheduler.add(job) {
                self.fail(request, epoch, Failure::QueueFull, "the worker's queue is full");
                return;
            }
        }
    }

    /// The sequence that an attempt's prompt will be fetched into; it is not queued.
    pub fn expect(&mut self, now: Time, submit: &Submit) -> SeqKey {
        let key = SeqKey { request: submit.request, epoch: submit.epoch, choice: PROMPT };
        let choices = submit.choices.iter().map(|&(choice, _)| choice).collect();
        let sequence = Sequence { fetching: true, ..self.sequence_of(now, submit, choices) };
        self.sequences.insert(key, sequence);
        key
    }

    fn sequence_of(&self, now: Time, submit: &Submit, choices: Vec<Choice>) -> Sequence {
        let committed =
            submit.choices.iter().find(|(choice, _)| *choice == choices[0]).map(|(_, tokens)| tokens.clone());
        let mut tokens = submit.prompt.to_vec();
        tokens.extend(committed.iter().flat_map(|tokens| tokens.iter()));
        let scope = self.config.scope(&submit.tenant);
        let mut chain = Vec::new();
        scope.extend_chain(&mut chain, &tokens, self.config.layout.block_tokens);
        Sequence {
            tokens,
            prompt_tokens: submit.prompt.len() as u32,
            chain,
            scope,
            params: submit.params.clone(),
            seed: submit.seed,
            choices,
            arrived: now,
            cached_tokens: 0,
            fetching: false,
            closing: false,
        }
    }

    /// Ends an attempt irregularly: closes its sequences and tells the router.
    pub fn fail(&mut self, request: RequestId, epoch: Epoch, why: Failure, detail: impl Into<String>) {
        if self.forget(request, epoch).is_some() {
            let detail = detail.into();
            tracing::debug!(worker = self.config.name, %request, %epoch, ?why, detail, "the attempt failed");
            self.tell(&FromWorker::Failed { request, epoch, why, detail });
        }
    }

    /// Closes an attempt and its sequences without telling anybody.
    pub fn forget(&mut self, request: RequestId, epoch: Epoch) -> Option<Attempt> {
        let attempt = self.attempts.close(request, epoch)?;
        self.close(SeqKey { request, epoch, choice: PROMPT });
        for &(choice, _) in &attempt.submit.choices {
            self.close(SeqKey { request, epoch, choice });
        }
        Some(attempt)
    }

    /// Takes a sequence off the attempt. Whether it was the last.
    pub(crate) fn choice_ended(&mut self, key: SeqKey) -> bool {
        self.close(key);
        self.attempts.choice_ended(key.request, key.epoch, key.choice).unwrap_or(false)
    }

    // -- sequences

    /// Closes a sequence: no later step contains it, and its blocks are given back, at once or when the step that
    /// computes with it ends. Blocks that a fetch still fills belong to the fetch, which knows them by the same key.
    pub fn close(&mut self, key: SeqKey) {
        self.scheduler.remove(key);
        if self.in_step.contains(&key) {
            if let Some(sequence) = self.sequences.get_mut(&key) {
                sequence.closing = true;
            }
        } else if self.sequences.remove(&key).is_some_and(|sequence| !sequence.fetching) {
            self.kv.close(key);
        }
    }

    /// The KV of a fetched prompt is validated: its blocks belong to the sequence from now on.
    pub fn fetched_prompt(&mut self, key: SeqKey) {
        if let Some(sequence) = self.sequences.get_mut(&key) {
            sequence.fetching = false;
            self.kv.written(key, sequence.tokens.len() as u32, &sequence.chain);
        }
    }

    /// Splits a prompt whose KV is complete into running sequences, one per choice that is still wanted and has a first
    /// token, which the router has already. The prompt's key is gone afterwards.
    pub fn start(&mut self, key: SeqKey, first: &[(Choice, Token)]) {
        let Some(prompt) = self.sequences.get(&key).cloned() else { return };
        for (choice, token) in self.attempts.go_on(key.request, key.epoch, first) {
            let child = SeqKey { choice, ..key };
            // The row of the first token said already what was cached.
            let mut sequence = Sequence { choices: vec![choice], cached_tokens: 0, ..prompt.clone() };
            sequence.push(token, self.config.layout.block_tokens);
            self.kv.fork(key, child);
            self.scheduler.add_running(child, sequence.tokens.len() as u32, sequence.arrived);
            self.sequences.insert(child, sequence);
        }
        self.close(key);
    }

    /// A token was sampled for a running sequence.
    pub(crate) fn append(&mut self, key: SeqKey, sampled: Sampled) {
        let Some(sequence) = self.sequences.get_mut(&key) else { return };
        let index = sequence.outputs();
        let cached_tokens = std::mem::take(&mut sequence.cached_tokens);
        let end = end_of(sequence, index, sampled.token);
        sequence.push(sampled.token, self.config.layout.block_tokens);
        self.rows.push(TokenRow { key, index, token: sampled.token, logprobs: sampled.logprobs, cached_tokens });
        if let Some(end) = end {
            self.ended(key, index + 1, end);
        }
    }

    /// First tokens were sampled for the choices of a prompt. Those that go on.
    pub(crate) fn first_tokens(&mut self, prompt: SeqKey, sampled: Vec<Sampled>) -> Vec<(Choice, Token)> {
        let mut first = Vec::with_capacity(sampled.len());
        for sampled in sampled {
            let key = SeqKey { choice: sampled.key.choice, ..prompt };
            let live = self.attempts.get(key.request, key.epoch).is_some_and(|a| a.live.contains(&key.choice));
            let Some(sequence) = self.sequences.get(&prompt).filter(|_| live) else { continue };
            let (index, cached_tokens) = (sequence.outputs(), sequence.cached_tokens);
            let end = end_of(sequence, index, sampled.token);
            self.rows.push(TokenRow { key, index, token: sampled.token, logprobs: sampled.logprobs, cached_tokens });
            match end {
                Some(end) => self.ended(key, index + 1, end),
                None => first.push((key.choice, sampled.token)),
            }
        }
        first
    }

    /// A sequence ended regularly. Its last token goes out first.
    fn ended(&mut self, key: SeqKey, tokens: u32, end: End) {
        self.flush_rows();
        self.tell(&FromWorker::Ended { key, tokens, end });
        if self.choice_ended(key) {
            self.attempts.close(key.request, key.epoch);
        }
    }

    // -- messages

    /// Sends the tokens of the step as one frame.
    pub(crate) fn flush_rows(&mut self) {
        if !self.rows.is_empty() {
            let rows = std::mem::take(&mut self.rows);
            self.tell(&FromWorker::Tokens(rows));
        }
    }

    /// Tells the router. Without a session there is nobody to tell.
    pub fn tell(&mut self, message: &FromWorker) {
        let was_open = self.outbox.is_open();
        if !self.outbox.push(proto::session::encode_from_worker(message)) {
            self.meters.session_dropped.increment(1);
            if was_open {
                tracing::error!(worker = self.config.name, "the router takes no messages; the session is closed");
            }
        }
    }

    /// Tells a peer. A message that cannot be sent is lost, which the deadlines of the protocol cover.
    pub fn send(&mut self, to: WorkerId, body: PeerBody) {
        if !self.ensure_connected(to) {
            return;
        }
        let message = PeerMessage {
            from: self.config.id,
            from_incarnation: self.config.incarnation,
            to_incarnation: self.peers.get(&to).copied(),
            body,
        };
        if let Err(error) = self.agent.send(to, proto::handoff::encode(&message)) {
            tracing::warn!(worker = self.config.name, %to, %error, "a message to a peer was lost");
            self.meters.peer_dropped.increment(1);
        }
    }

    /// Connects a peer unless it is connected.
    pub(crate) fn ensure_connected(&mut self, peer: WorkerId) -> bool {
        self.agent.is_connected(peer) || self.connect(peer)
    }

    /// Connects a peer, choosing the lane; `false` (and a log line) where it cannot be reached.
    pub fn connect(&mut self, peer: WorkerId) -> bool {
        match self.agent.connect(peer) {
            Ok(status) => {
                let gigabytes = status.probe.bytes_per_s / 1e9;
                tracing::info!(
                    worker = self.config.name,
                    peer = status.peer,
                    lane = %status.lane,
                    "connected; the lane reads {gigabytes:.1} GB/s"
                );
                true
            }
            Err(error) => {
                tracing::warn!(worker = self.config.name, %peer, %error, "a peer is not reached");
                false
            }
        }
    }

    /// Checks the lives that a message names. `None`: it is stale. `Some(true)`: the peer came back since its last one.
    pub(crate) fn check_lives(&mut self, message: &PeerMessage) -> Option<bool> {
        if message.to_incarnation.is_some_and(|life| life != self.config.incarnation) {
            return None;
        }
        match self.peers.insert(message.from, message.from_incarnation) {
            Some(known) if message.from_incarnation < known => {
                self.peers.insert(message.from, known);
                None
            }
            Some(known) => Some(message.from_incarnation > known),
            None => Some(false),
        }
    }
}

/// Whether all choices continue the same tokens, so that one prompt serves them.
pub fn shares_prompt(submit: &Submit) -> bool {
    submit.choices.len() == 1 || submit.choices.iter().all(|(_, committed)| committed.is_empty())
}

/// How the sequence ends with `token` as its output token `index`, if it does.
fn end_of(sequence: &Sequence, index: u32, token: Token) -> Option<End> {
    if sequence.params.stop_tokens.contains(&token) {
        Some(End::stop())
    } else if index + 1 >= sequence.params.max_tokens {
        Some(End::length())
    } else {
        None
    }
}
