//! The workers that are up: what they reported, and what was given to them since.

use crate::config::Rates;
use crate::index::{BlockTier, Held, PrefixIndex};
use crate::overload::Load;
use domain::session::{PeerInfo, Report, Role};
use domain::{Adapter, BlockHash, Incarnation, Time, WorkerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Add;

/// A worker as seen from here, for health checks and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerView {
    /// The worker.
    pub id: WorkerId,
    /// What it is there for.
    pub role: Role,
    /// For people.
    pub name: String,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// It takes no new requests.
    pub draining: bool,
    /// A request that is open takes something of it.
    pub needed: bool,
    /// It has said nothing for so long that work goes to others.
    pub silent: bool,
    /// Sequences that wait, as last reported.
    pub waiting: u32,
    /// Prompt tokens that it still has to compute, as last reported.
    pub waiting_tokens: u64,
    /// Sequences that run, as last reported.
    pub running: u32,
    /// Sequences that run there at once; 0: not said.
    pub running_max: u32,
    /// The longest sequence that it takes.
    pub context_tokens: u32,
    /// As measured; 0: not known.
    pub prefill_tokens_per_s: f32,
    /// As measured; 0: not known.
    pub decode_step_s: f32,
    /// Blocks free or evictable, as last reported.
    pub blocks_available: u32,
    /// Blocks of its pool, as last reported; 0 before the first report.
    pub blocks_total: u32,
}

/// A worker that is up.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) role: Role,
    /// Which life, and where its peers find it.
    pub(crate) peer: PeerInfo,
    /// The longest sequence that it takes.
    pub(crate) context_tokens: u32,
    /// When it last said something.
    pub(crate) last_heard: Time,
    /// It did not for so long that work goes to others, if there are any.
    pub(crate) silent: bool,
    /// When something was last said to it.
    pub(crate) last_sent: Time,
    /// Nothing new goes to it: it leaves, or an operator drains it.
    pub(crate) draining: bool,
    /// It said that it is about to end: its session is closed when nothing needs it.
    leaves: bool,
    /// The newest report, without its lists.
    load: Report,
    /// Number of the report that continues the index.
    report_next: u64,
    snapshot_asked: bool,
    /// What was given to it that its newest report does not know of, and the sum of that.
    unseen: VecDeque<(u64, Given)>,
    given: Given,
    /// Requests that ended there since its newest report.
    ended: u32,
    /// Submits that were sent over its session.
    submits: u64,
}

/// Running sequences, and blocks of the pool, per one that may wait at a decode worker. It is enough that no place
/// stays empty until the next report. More would wait there for long, already computed, and hold the memory of others.
const RUNNING_PER_WAITING: u32 = 4;

/// Sequences that are sent to a worker before its first report.
const SEQUENCES_BEFORE_REPORT_MAX: u32 = 16;

/// Submits that a worker's reports do not know of yet and that are counted each for itself; further ones count with
/// the last one.
pub(crate) const UNSEEN_SUBMITS_MAX: usize = 256;

/// What went to a worker that its newest report does not know of, so that a burst does not all go to one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    /// Prompt tokens to compute.
    pub(crate) tokens: u64,
    /// Sequences.
    pub(crate) sequences: u32,
    /// Blocks to hold.
    pub(crate) blocks: u32,
}

impl Add for Given {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            sequences: self.sequences.saturating_add(other.sequences),
            blocks: self.blocks.saturating_add(other.blocks),
        }
    }
}

/// What a report came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    /// It was taken.
    Taken,
    /// Reports are missing before it; ask for a snapshot.
    Gap,
    /// Reports are missing, and a snapshot was asked for already.
    Awaited,
    /// It is a repetition, or of another life.
    Stale,
}

impl Worker {
    fn new(now: Time, peer: PeerInfo, context_tokens: u32) -> Self {
        Self {
            id: peer.id,
            role: peer.role,
            peer,
            context_tokens,
            last_heard: now,
            silent: false,
            last_sent: now,
            draining: false,
            leaves: false,
            load: Report::default(),
            report_next: 1,
            snapshot_asked: false,
            unseen: VecDeque::new(),
            given: Given::default(),
            ended: 0,
            submits: 0,
        }
    }

    /// Work is sent to it.
    fn give(&mut self, given: Given) {
        self.submits += 1;
        self.given = self.given + given;
        let full = self.unseen.len() == UNSEEN_SUBMITS_MAX;
        match self.unseen.back_mut().filter(|_| full) {
            // It counts until the newest one is seen.
            Some((number, last)) => (*number, *last) = (self.submits, *last + given),
            None => self.unseen.push_back((self.submits, given)),
        }
    }

    /// What was given last, or before, was not sent after all: reports will not know of it.
    fn unsent(&mut self) {
        self.submits = self.submits.saturating_sub(1);
        let before = self.unseen.iter().rev().nth(1).map_or(0, |&(number, _)| number);
        match self.unseen.back_mut() {
            Some((number, _)) if *number > before + 1 => *number -= 1,
            Some(_) => drop(self.unseen.pop_back()),
            None => {}
        }
        self.given = self.unseen.iter().fold(Given::default(), |sum, &(_, given)| sum + given);
    }

    /// A report knows of so many of the submits.
    fn saw(&mut self, submits: u64) {
        while self.unseen.front().is_some_and(|&(number, _)| number <= submits) {
            self.unseen.pop_front();
        }
        self.given = self.unseen.iter().fold(Given::default(), |sum, &(_, given)| sum + given);
    }

    /// Prompt tokens it still has to compute.
    pub(crate) fn queued_tokens(&self) -> u64 {
        self.load.waiting_tokens + self.given.tokens
    }

    /// Sequences that run, or will as soon as they arrive.
    pub(crate) fn running(&self) -> u32 {
        self.load.running + self.given.sequences
    }

    /// Sequences that run or wait.
    pub(crate) fn sequences(&self) -> u32 {
        self.running() + self.load.waiting
    }

    /// Returns whether `blocks` more fit without waiting; unknown counts as yes.
    pub(crate) fn fits(&self, blocks: u32) -> bool {
        self.load.blocks_total == 0 || self.given.blocks.saturating_add(blocks) <= self.load.blocks_available
    }

    /// Returns whether so many more sequences, which need these blocks, would soon run there; what is not known counts
    /// as yes, and so does an idle worker. A request of many sequences goes as soon as a smaller one would.
    pub(crate) fn takes(&self, sequences: u32, blocks: u32) -> bool {
        let Report { running_max, blocks_available, blocks_total, blocks_wanted, .. } = self.load;
        if self.load.number == 0 {
            // Its first report comes at once, and says more.
            return self.given.sequences < SEQUENCES_BEFORE_REPORT_MAX;
        }
        // Of many choices some may have ended before the report, so a request that ended since counts as one sequence.
        let open = self.load.open.saturating_add(self.given.sequences).saturating_sub(self.ended);
        let blocks = blocks.saturating_add(self.given.blocks).saturating_add(blocks_wanted);
        let (ahead, ahead_blocks) = ((running_max / RUNNING_PER_WAITING).max(1), blocks_total / RUNNING_PER_WAITING);
        let has_place =
            running_max == 0 || open.saturating_add(sequences.min(ahead)) <= running_max.saturating_add(ahead);
        let has_memory = blocks_total == 0 || blocks <= blocks_available.saturating_add(ahead_blocks);
        open == 0 || has_place && has_memory
    }

    /// Returns whether it computes with this adapter; what is not known counts as yes.
    pub(crate) fn has(&self, adapter: Option<&Adapter>) -> bool {
        // Its first report comes at once, and says more.
        self.load.number == 0 || adapter.is_none_or(|adapter| self.load.adapters.contains(adapter))
    }

    /// Returns whether its prefill speed was measured.
    pub(crate) fn measured(&self) -> bool {
        known(self.load.prefill_tokens_per_s).is_some()
    }

    /// Its speeds, with `assumed` for what it has not measured.
    pub(crate) fn rates(&self, assumed: &Rates) -> Rates {
        Rates {
            prefill_tokens_per_s: known(self.load.prefill_tokens_per_s).unwrap_or(assumed.prefill_tokens_per_s),
            decode_step_s: known(self.load.decode_step_s).unwrap_or(assumed.decode_step_s),
            fetch_bytes_per_s: known(self.load.fetch_bytes_per_s).unwrap_or(assumed.fetch_bytes_per_s),
            host_tokens_per_s: known(self.load.host_tokens_per_s).unwrap_or(assumed.host_tokens_per_s),
            disk_tokens_per_s: known(self.load.disk_tokens_per_s).unwrap_or(assumed.disk_tokens_per_s),
            handoff_s: assumed.handoff_s,
        }
    }

    /// Returns what it has to do, with `assumed` for the speeds that it has not measured.
    pub(crate) fn load(&self, assumed: &Rates) -> Load {
        let rates = self.rates(assumed);
        Load {
            queued_tokens: self.queued_tokens(),
            prefill_tokens_per_s: rates.prefill_tokens_per_s,
            waiting: self.load.waiting,
            running: self.running(),
            decode_step_s: rates.decode_step_s,
        }
    }

    fn view(&self, needed: bool) -> WorkerView {
        WorkerView {
            id: self.id,
            role: self.role,
            name: self.peer.name.clone(),
            incarnation: self.peer.incarnation,
            draining: self.draining,
            needed,
            silent: self.silent,
            waiting: self.load.waiting,
            waiting_tokens: self.load.waiting_tokens,
            running: self.load.running,
            running_max: self.load.running_max,
            context_tokens: self.context_tokens,
            prefill_tokens_per_s: self.load.prefill_tokens_per_s,
            decode_step_s: self.load.decode_step_s,
            blocks_available: self.load.blocks_available,
            blocks_total: self.load.blocks_total,
        }
    }
}

/// A measurement, if it is one.
fn known(value: f32) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(f64::from(value))
}

/// The mean of what was measured.
#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn count(&mut self, value: f32) {
        if let Some(value) = known(value) {
            self.sum += value;
            self.count += 1;
        }
    }

    fn or(self, default: f64) -> f64 {
        if self.count == 0 { default } else { self.sum / f64::from(self.count) }
    }
}

/// All workers that are up, by id, and the index of what they have.
#[derive(Debug)]
pub(crate) struct Workers {
    up: BTreeMap<WorkerId, Worker>,
    index: PrefixIndex,
    /// Those of them that drain.
    draining: BTreeSet<WorkerId>,
    /// Times that one came, went, began or ended to drain, or changed its role.
    changes: u64,
}

impl Workers {
    pub(crate) fn new(index_blocks_max: usize) -> Self {
        Self { up: BTreeMap::new(), index: PrefixIndex::new(index_blocks_max), draining: BTreeSet::new(), changes: 0 }
    }

    /// A session began, with nothing known.
    pub(crate) fn insert(&mut self, now: Time, peer: PeerInfo, context_tokens: u32) {
        self.remove(peer.id);
        self.changes += 1;
        self.up.insert(peer.id, Worker::new(now, peer, context_tokens));
    }

    pub(crate) fn get(&self, id: WorkerId) -> Option<&Worker> {
        self.up.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.up.get_mut(&id)
    }

    /// All, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Worker> {
        self.up.values()
    }

    /// All, by id.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Worker> {
        self.up.values_mut()
    }

    /// A session ended; whether there was one.
    pub(crate) fn remove(&mut self, id: WorkerId) -> bool {
        if self.up.remove(&id).is_none() {
            return false;
        }
        self.index.clear(id);
        self.draining.remove(&id);
        self.changes += 1;
        true
    }

    pub(crate) fn contains(&self, id: WorkerId) -> bool {
        self.up.contains_key(&id)
    }

    /// Returns those of a role, by id.
    pub(crate) fn of_role(&self, role: Role) -> impl Iterator<Item = &Worker> {
        self.up.values().filter(move |worker| worker.role == role)
    }

    /// Returns what to assume of a worker that has not measured itself: the mean of those that have, whatever their
    /// role, since they run the same model; `defaults` where none has.
    pub(crate) fn assumed(&self, defaults: &Rates) -> Rates {
        let mut means = [Mean::default(); 5];
        for Worker { load, .. } in self.up.values() {
            let measured = [
                load.prefill_tokens_per_s,
                load.decode_step_s,
                load.fetch_bytes_per_s,
                load.host_tokens_per_s,
                load.disk_tokens_per_s,
            ];
            means.iter_mut().zip(measured).for_each(|(mean, measured)| mean.count(measured));
        }
        let [prefill, decode, fetch, host, disk] = means;
        Rates {
            prefill_tokens_per_s: prefill.or(defaults.prefill_tokens_per_s),
            decode_step_s: decode.or(defaults.decode_step_s),
            fetch_bytes_per_s: fetch.or(defaults.fetch_bytes_per_s),
            host_tokens_per_s: host.or(defaults.host_tokens_per_s),
            disk_tokens_per_s: disk.or(defaults.disk_tokens_per_s),
            handoff_s: defaults.handoff_s,
        }
    }

    /// What each worker has at the head of `chain`, in the order of their ids.
    pub(crate) fn held_by_all(&self, chain: &[BlockHash], held: &mut Vec<Held>) {
        held.clear();
        // What many begin with, as a system prompt, many have as far as it goes.
        let mut guess = 0;
        for &id in self.up.keys() {
            let has = self.index.held_about(id, chain, guess);
            guess = if has.device > 0 { has.device } else { guess };
            held.push(has);
        }
    }

    /// Returns what a worker has at the head of `chain`.
    pub(crate) fn held(&self, id: WorkerId, chain: &[BlockHash]) -> Held {
        self.index.held(id, chain)
    }

    /// Takes a report in. Loads are absolute, so the newest counts even after a gap; changes of the index count only
    /// without one.
    pub(crate) fn report(&mut self, id: WorkerId, mut report: Report) -> Reported {
        let Some(worker) = self.up.get_mut(&id) else { return Reported::Stale };
        if report.incarnation != worker.peer.incarnation || report.number < worker.report_next {
            return Reported::Stale;
        }
        let [added, host, disk] = [&mut report.added, &mut report.host, &mut report.disk].map(std::mem::take);
        let removed = std::mem::take(&mut report.removed);
        let (number, snapshot) = (report.number, report.snapshot);
        worker.saw(report.submits);
        if let Some(role) = report.role.filter(|&role| role != worker.role) {
            (worker.role, worker.peer.role) = (role, role);
            self.changes += 1;
        }
        let draining = report.draining || worker.leaves;
        if std::mem::replace(&mut worker.draining, draining) != draining {
            self.changes += 1;
            if draining {
                self.draining.insert(id)
            } else {
                self.draining.remove(&id)
            };
        }
        worker.load = report;
        worker.ended = 0;
        if !snapshot && number > worker.report_next {
            let asked = std::mem::replace(&mut worker.snapshot_asked, true);
            return if asked { Reported::Awaited } else { Reported::Gap };
        }
        worker.report_next = number + 1;
        if snapshot {
            worker.snapshot_asked = false;
            self.index.clear(id);
        }
        // Reports say what changed on balance, so no block is in two lists; were one, it would count as held in
        // the faster place.
        self.index.remove(id, &removed);
        self.index.lower(id, &disk, BlockTier::Disk);
        self.index.lower(id, &host, BlockTier::Host);
        self.index.insert(id, &added);
        Reported::Taken
    }

    /// Work goes to a worker, for a prompt with these blocks.
    pub(crate) fn give(&mut self, id: WorkerId, given: Given, chain: &[BlockHash]) {
        if let Some(worker) = self.up.get_mut(&id) {
            worker.give(given);
            self.index.refresh(id, chain);
        }
    }

    /// A request ended at a worker, whose next report says so. Returns whether it would now take another.
    pub(crate) fn ended(&mut self, id: WorkerId) -> bool {
        self.up.get_mut(&id).is_some_and(|worker| {
            worker.ended = worker.ended.saturating_add(1);
            worker.takes(1, 0)
        })
    }

    /// A submit to a worker was not sent after all.
    pub(crate) fn unsent(&mut self, id: WorkerId) {
        self.up.get_mut(&id).into_iter().for_each(Worker::unsent);
    }

    /// A worker said that it is about to end, and takes nothing new.
    pub(crate) fn leave(&mut self, id: WorkerId) {
        let Some(worker) = self.up.get_mut(&id) else { return };
        worker.leaves = true;
        if !std::mem::replace(&mut worker.draining, true) {
            self.draining.insert(id);
            self.changes += 1;
        }
    }

    /// Returns whether a worker is about to end.
    pub(crate) fn leaves(&self, id: WorkerId) -> bool {
        self.up.get(&id).is_some_and(|worker| worker.leaves)
    }

    /// Returns those that drain.
    pub(crate) fn draining(&self) -> &BTreeSet<WorkerId> {
        &self.draining
    }

    /// Times that one came, went, began or ended to drain, or changed its role.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// All, by id. `is_needed`: a request takes something of it.
    pub(crate) fn views(&self, is_needed: impl Fn(WorkerId) -> bool) -> Vec<WorkerView> {
        self.up.values().map(|worker| worker.view(is_needed(worker.id))).collect()
    }

    /// Entries of the index.
    pub(crate) fn indexed(&self) -> usize {
        self.index.len()
    }

    /// Bounds them.
    pub(crate) fn limit_index(&mut self, blocks_max: usize) {
        self.index.limit(blocks_max);
    }

    /// Bytes that they take, about.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.index.bytes()
    }
}
