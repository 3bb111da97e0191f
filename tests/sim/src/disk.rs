//! The tiers of a simulated worker: a disk, whose records outlive the worker's lives, and memory above it, which does
//! not. Moves take their time, one after the other in each tier, and some hang, fail or find bytes that somebody
//! flipped.

use crate::event::{Event, Life, WorkerIndex};
use crate::invariants::{quotas, slots, tenants};
use crate::pool::{Pool, WORD};
use crate::process::{Inmail, Worker};
use crate::random::Random;
use crate::shell::{Output, Shell};
use crate::slot_ownership::SlotOwnership;
use crate::world::World;
use domain::{BlockHash, BlockRef, KvLayout, SeqKey, Tenant, Time};
use kv_manager::tiers::{
    Place, ReadEnd, Slot, Tier, TierConfig, TierLift, TierRead, TierRecord, TierWrite, WriteEnd, WritePolicy,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tiers::{Record, TierEvent, TierMover, TierParts};

/// The disks of a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disks {
    /// Records of each group.
    slots: u32,
    write: WritePolicy,
    /// What is written to the memory above.
    host_write: WritePolicy,
    /// How long a record takes.
    record: Duration,
    /// Moves that fail, and records that are wrong when they are read, out of 1,000.
    fails: u32,
    /// Moves at which a disk that had nothing to do hangs for [`HANG`], out of 1,000.
    hangs: u32,
    /// Records of each group in the memory above. 0: there is none.
    pub(crate) host: u32,
}

/// How much longer a record takes on a disk than in memory.
const SLOWER: u32 = 10;

/// Longer than a prompt waits for a tier.
const HANG: Duration = Duration::from_secs(8);

/// A move under way.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    Write(TierWrite),
    Read(SeqKey, TierRead),
    Lift(SeqKey, TierLift),
    Land(SeqKey, TierLift, Record),
}

impl Move {
    /// In which tier it is.
    pub(crate) fn tier(&self) -> Tier {
        match self {
            Self::Write(write) => write.place.tier,
            Self::Read(_, read) => read.place.tier,
            Self::Lift(_, lift) => lift.from.tier,
            Self::Land(_, lift, _) => lift.to.tier,
        }
    }

    /// What is read, and for whom.
    fn read(&self) -> Option<(SeqKey, Place)> {
        match self {
            Self::Read(key, read) => Some((*key, read.place)),
            Self::Lift(prompt, lift) => Some((*prompt, lift.from)),
            Self::Write(_) | Self::Land(..) => None,
        }
    }

    /// The slot that it takes for what it writes, or will have written.
    pub(crate) fn takes(&self) -> Option<Place> {
        match self {
            Self::Write(write) => Some(write.place),
            Self::Lift(_, lift) | Self::Land(_, lift, _) => Some(lift.to),
            Self::Read(..) => None,
        }
    }
}

/// What a tier of a worker holds, a disk's over all its lives, and what its life asked of it.
#[derive(Default)]
pub(crate) struct Platter {
    records: BTreeMap<Slot, (TierRecord, Vec<u64>)>,
    /// What the present life has of them.
    pub(crate) stock: SlotOwnership,
    /// When it has done all that was asked.
    busy: Time,
    /// Until when it hangs.
    pub(crate) hung: Time,
    /// Reads under way that this life wants.
    reading: Vec<Move>,
}

/// A tier of a machine.
struct Drive(Shell);

impl TierMover for Drive {
    fn write(&mut self, write: TierWrite) {
        self.0.notes().outputs.push(Output::Move(Move::Write(write)));
    }

    fn read(&mut self, key: SeqKey, read: TierRead) {
        self.0.notes().outputs.push(Output::Move(Move::Read(key, read)));
    }

    fn lift(&mut self, prompt: SeqKey, lift: TierLift) {
        self.0.notes().outputs.push(Output::Move(Move::Lift(prompt, lift)));
    }

    fn land(&mut self, prompt: SeqKey, lift: TierLift, record: Record) {
        self.0.notes().outputs.push(Output::Move(Move::Land(prompt, lift, record)));
    }

    fn cancel(&mut self, key: SeqKey) {
        self.0.notes().outputs.push(Output::CancelLoad(key));
    }
}

impl Platter {
    /// The read is done. Whether anybody wants it still.
    fn done(&mut self, what: &Move) -> bool {
        let at = self.reading.iter().position(|wanted| wanted.read() == what.read());
        at.map(|at| self.reading.swap_remove(at)).is_some()
    }

    /// A life begins with what there is.
    fn begin(&mut self, now: Time) {
        (self.busy, self.hung) = (now, now);
        self.reading.clear();
        self.stock = SlotOwnership::recovered(self.records.values().map(|(record, _)| record));
    }
}

impl Worker {
    pub(crate) fn tier(&mut self, tier: Tier) -> &mut Platter {
        if tier == Tier::Host { &mut self.slab } else { &mut self.platter }
    }
}

impl Disks {
    pub(crate) fn draw(random: &mut Random) -> Option<Self> {
        let write = random.pick(&[WritePolicy::Through, WritePolicy::SecondUse, WritePolicy::Back]);
        let record = Duration::from_micros(random.pick(&[100, 1000, 5000, 20_000]));
        let (slots, fails) = (random.range(10, 100) as u32, random.pick(&[0, 20, 200]));
        let hangs = random.pick(&[0, 0, 5, 50]);
        let host = if random.chance(600) { random.range(8, 60) as u32 } else { 0 };
        let disks = Self { slots, write, host_write: write, record, fails, hangs, host };
        random.chance(500).then_some(disks)
    }

    /// Whether one may hang.
    pub(crate) fn hangs(&self) -> bool {
        self.hangs > 0
    }

    /// How long a record takes.
    pub(crate) fn record(&self) -> Duration {
        self.record
    }

    /// The same, so fast that prompts wait for what lies there, and what is in memory was lifted, most of it.
    pub(crate) fn crowded(self, random: &mut Random) -> Self {
        let host_write = random.pick(&[WritePolicy::Never, WritePolicy::SecondUse]);
        // It moves more, and is to hang no more often for that.
        let hangs = self.hangs / 10;
        Self { record: random.micros(10, 100), write: WritePolicy::Through, host_write, hangs, ..self }
    }
}

impl World {
    /// The tiers that a worker begins a life with.
    pub(crate) fn tiers(&mut self, w: WorkerIndex, shell: &Shell) -> Vec<TierParts> {
        let Some(Disks { slots, write, host, host_write, .. }) = self.scenario.disks else { return Vec::new() };
        let worker = &mut self.workers[w];
        worker.slab.records.clear();
        let mut parts = Vec::new();
        let tiers = [(Tier::Disk, slots, write), (Tier::Host, host, host_write)];
        for (tier, slots, write) in tiers.into_iter().filter(|(_, slots, _)| *slots > 0) {
            let platter = worker.tier(tier);
            platter.begin(self.now);
            parts.push(TierParts {
                tier,
                mover: Box::new(Drive(shell.clone())),
                config: TierConfig {
                    slots: self.scenario.layout.groups.iter().map(|_| slots).collect(),
                    writes_max: 2,
                    backlog_max: 16,
                    write,
                },
                records: platter.records.values().map(|&(record, _)| record).collect(),
            });
        }
        parts
    }

    /// A move begins.
    pub(crate) fn begin_move(&mut self, w: WorkerIndex, what: Move) {
        let Some(Disks { record, hangs, .. }) = self.scenario.disks else { return };
        self.look_at_move(w, &what);
        let tier = what.tier();
        let hangs = tier == Tier::Disk && self.healed.is_none() && self.random.chance(hangs);
        let record = if tier == Tier::Disk { record } else { record / SLOWER };
        let worker = &mut self.workers[w];
        let platter = worker.tier(tier);
        match &what {
            // From now on the slot holds who knows what.
            Move::Write(write) => drop(platter.records.remove(&write.place.slot)),
            Move::Land(_, lift, _) => drop(platter.records.remove(&lift.to.slot)),
            Move::Read(..) | Move::Lift(..) => platter.reading.push(what.clone()),
        }
        let begins = self.now.max(platter.busy);
        if hangs && begins == self.now {
            platter.hung = begins + HANG;
        }
        platter.busy = platter.hung.max(begins + record);
        self.agenda.enter(platter.busy, Event::Moved { worker: w, life: worker.life, what });
    }

    /// Holds a move that begins against what must be so.
    fn look_at_move(&mut self, w: WorkerIndex, what: &Move) {
        let Some(Disks { slots, .. }) = self.scenario.disks else { return };
        let tier = what.tier();
        let worker = &mut self.workers[w];
        let free = slots::taken(worker, what).map_err(|what| (slots::NAME, format!("w{w}: {what}")));
        let Platter { records, stock, .. } = worker.tier(tier);
        // Of what is lifted no block has to do with it.
        let moved = match what {
            Move::Write(write) => Some((write.block, write.tenant)),
            Move::Read(_, read) => Some((read.block, records[&read.place.slot].0.tenant)),
            Move::Lift(..) | Move::Land(..) => None,
        };
        let quota = self.scenario.tenants.quota(slots, self.scenario.tenants.quotas.disk_percent);
        let met = match (what, quota) {
            (Move::Write(write), Some(quota)) if tier == Tier::Disk => {
                let met = quotas::written(stock, write.place.slot, write.tenant, slots, quota);
                met.map_err(|what| (quotas::NAME, format!("w{w}: {what}")))
            }
            _ => Ok(None),
        };
        let found = moved.map_or(Ok(()), |(block, tenant)| tenants::moved(self, w, block, tenant));
        match free.and(found.map_err(|what| (tenants::NAME, what))).and(met) {
            Ok(met) => met.into_iter().for_each(|meeting| self.coverage.hit_meeting(meeting)),
            Err((name, what)) => self.violated(name, what),
        }
        if let Some(place) = what.takes() {
            self.workers[w].tier(place.tier).stock.takes(place.slot, what);
        }
        if let Some((_, place)) = what.read() {
            self.workers[w].tier(place.tier).stock.reads(place.slot);
        }
    }

    /// A worker hears of the end of a move.
    pub(crate) fn hear_of_move(&mut self, w: WorkerIndex, end: &TierEvent) {
        let worker = &mut self.workers[w];
        match end {
            TierEvent::Wrote { write, end, .. } => {
                worker.tier(write.place.tier).stock.wrote(write.place.slot, *end != WriteEnd::Failed);
            }
            TierEvent::Read { read, end, .. } => worker.tier(read.place.tier).stock.read(read.place.slot, *end),
            TierEvent::Lifted { lift, end, .. } => {
                worker.tier(lift.from.tier).stock.read(lift.from.slot, *end);
                // Taken again if it lands.
                worker.tier(lift.to.tier).stock.wrote(lift.to.slot, false);
            }
            TierEvent::Landed { lift, there, .. } => worker.tier(lift.to.tier).stock.wrote(lift.to.slot, *there),
            _ => {}
        }
    }

    /// Whether a worker's disk has a record of this identity.
    pub(crate) fn disk_has(&self, w: WorkerIndex, hash: BlockHash) -> bool {
        self.workers[w].platter.records.values().any(|(record, _)| record.hash == hash)
    }

    /// A load of a worker is not wanted any more, or what is lifted for a prompt: its reads are given up at once,
    /// however long they hang.
    pub(crate) fn cancel_moves(&mut self, w: WorkerIndex, key: SeqKey) {
        let (life, elapsed) = (self.workers[w].life, Duration::ZERO);
        let of_it = |what: &mut Move| what.read().is_some_and(|(of, _)| of == key);
        let mut given_up = Vec::new();
        for tier in [Tier::Host, Tier::Disk] {
            given_up.extend(self.workers[w].tier(tier).reading.extract_if(.., of_it));
        }
        let end = ReadEnd::Abandoned;
        for what in given_up {
            let end = match what {
                Move::Read(key, read) => TierEvent::Read { key, read, end, elapsed },
                Move::Lift(prompt, lift) => TierEvent::Lifted { prompt, lift, end, record: None, elapsed },
                Move::Write(_) | Move::Land(..) => continue,
            };
            self.mail(w, life, Inmail::Moved(end));
        }
    }

    /// A move of a worker's life ends.
    pub(crate) fn moved(&mut self, w: WorkerIndex, life: Life, what: Move) {
        let Some(Disks { fails, record: elapsed, .. }) = self.scenario.disks else { return };
        let (fails, layout) = (self.random.chance(fails), &self.scenario.layout);
        let worker = &mut self.workers[w];
        if worker.life != life || worker.alive.is_none() {
            return;
        }
        let tier = what.tier();
        let unwanted = what.read().is_some() && !worker.tier(tier).done(&what);
        let Worker { alive: Some(alive), platter, slab, .. } = worker else { return };
        let records = if tier == Tier::Host { &mut slab.records } else { &mut platter.records };
        let end = match what {
            _ if unwanted => TierEvent::Settled { tier, moved: !fails },
            Move::Write(write) if fails => TierEvent::Wrote { write, end: WriteEnd::Failed, elapsed },
            Move::Write(write) => {
                let TierWrite { place, block, hash, tenant } = write;
                let record = TierRecord { slot: place.slot, hash, tenant };
                records.insert(place.slot, (record, words(layout, &alive.pools, block)));
                TierEvent::Wrote { write, end: WriteEnd::Written, elapsed }
            }
            Move::Read(key, read) if fails => TierEvent::Read { key, read, end: ReadEnd::Wrong, elapsed },
            Move::Read(key, read) => {
                let (record, words) = &records[&read.place.slot];
                assert_eq!(record.hash, read.hash, "{:?} holds another record", read.place);
                let (pool, begin) = place(layout, &alive.pools, read.block);
                (0..).zip(words).for_each(|(at, &word)| pool.set(begin + at * WORD, word));
                TierEvent::Read { key, read, end: ReadEnd::Good, elapsed }
            }
            Move::Lift(prompt, lift) if fails => {
                TierEvent::Lifted { prompt, lift, end: ReadEnd::Wrong, record: None, elapsed }
            }
            Move::Lift(prompt, lift) => {
                let (record, words) = &records[&lift.from.slot];
                assert_eq!(record.hash, lift.hash, "{:?} holds another record", lift.from);
                let tenant = u64::from(record.tenant.0);
                let bytes = words.iter().chain([&tenant]).flat_map(|word| word.to_le_bytes()).collect();
                TierEvent::Lifted { prompt, lift, end: ReadEnd::Good, record: Some(Record::new(bytes)), elapsed }
            }
            Move::Land(prompt, lift, _) if fails => TierEvent::Landed { prompt, lift, there: false, elapsed },
            Move::Land(prompt, lift, record) => {
                let mut words: Vec<u64> =
                    record.bytes().as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
                let tenant = Tenant(words.pop().expect("whose it is comes last") as u32);
                records.insert(lift.to.slot, (TierRecord { slot: lift.to.slot, hash: lift.hash, tenant }, words));
                TierEvent::Landed { prompt, lift, there: true, elapsed }
            }
        };
        self.trace.note(self.now, || format!("w{w}: {end:?}"));
        self.mail(w, life, Inmail::Moved(end));
    }
}

fn words(layout: &KvLayout, pools: &[Arc<Pool>], block: BlockRef) -> Vec<u64> {
    let (pool, begin) = place(layout, pools, block);
    (0..layout.record_bytes(usize::from(block.group.0)) / WORD).map(|at| pool.get(begin + at * WORD)).collect()
}

fn place<'a>(layout: &KvLayout, pools: &'a [Arc<Pool>], block: BlockRef) -> (&'a Pool, usize) {
    let group = usize::from(block.group.0);
    (&pools[group], block.block.0 as usize * layout.record_bytes(group))
}
