//! The disk of a simulated worker. What it holds outlives the worker's lives; moves take their time, one after the other, and some
//! hang, fail or find bytes that somebody flipped.

use crate::event::{Event, Life, WorkerIndex};
use crate::invariants::{quotas, tenants};
use crate::pool::{Pool, WORD};
use crate::process::Inmail;
use crate::random::Random;
use crate::shell::{Output, Shell};
use crate::stock::Stock;
use crate::world::World;
use domain::{BlockHash, BlockRef, KvLayout, SeqKey, Time};
use kv_manager::tiers::{ReadEnd, Slot, Tier, TierConfig, TierRead, TierRecord, TierWrite, WriteEnd, WritePolicy};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use worker::{TierEnd, TierMover, TierParts};

/// The disks of a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disks {
    /// Records of each group.
    slots: u32,
    write: WritePolicy,
    /// How long a record takes.
    record: Duration,
    /// Moves that fail, and records that are wrong when they are read, out of 1,000.
    fails: u32,
    /// Moves at which a disk that had nothing to do hangs for [`HANG`], out of 1,000.
    hangs: u32,
}

/// Longer than a prompt waits for a tier.
const HANG: Duration = Duration::from_secs(8);

/// A move under way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Write(TierWrite),
    Read(SeqKey, TierRead),
}

/// What a worker's disk holds, over all its lives, and what its life asked of it.
#[derive(Default)]
pub(crate) struct Platter {
    records: BTreeMap<Slot, (TierRecord, Vec<u64>)>,
    /// What the present life has of them.
    pub(crate) stock: Stock,
    /// When it has done all that was asked.
    busy: Time,
    /// Until when it hangs.
    pub(crate) hung: Time,
    /// Reads under way that this life wants.
    reading: Vec<(SeqKey, TierRead)>,
}

/// The disk of a machine.
struct Drive(Shell);

impl TierMover for Drive {
    fn write(&mut self, write: TierWrite) {
        self.0.notes().outputs.push(Output::Move(Move::Write(write)));
    }

    fn read(&mut self, key: SeqKey, read: TierRead) {
        self.0.notes().outputs.push(Output::Move(Move::Read(key, read)));
    }

    fn cancel(&mut self, key: SeqKey) {
        self.0.notes().outputs.push(Output::CancelLoad(key));
    }
}

impl Platter {
    /// The read is done. Whether anybody wants it still.
    fn done(&mut self, key: SeqKey, read: &TierRead) -> bool {
        let at = self.reading.iter().position(|wanted| *wanted == (key, *read));
        at.map(|at| self.reading.swap_remove(at)).is_some()
    }
}

impl Disks {
    pub(crate) fn draw(random: &mut Random) -> Option<Self> {
        let write = random.pick(&[WritePolicy::Through, WritePolicy::SecondUse, WritePolicy::Back]);
        let record = Duration::from_micros(random.pick(&[100, 1000, 5000, 20_000]));
        let (slots, fails) = (random.range(10, 100) as u32, random.pick(&[0, 20, 200]));
        let disks = Self { slots, write, record, fails, hangs: random.pick(&[0, 0, 5, 50]) };
        random.chance(500).then_some(disks)
    }
}

impl World {
    /// The disk that a worker begins a life with.
    pub(crate) fn disk(&mut self, w: WorkerIndex, shell: &Shell) -> Option<TierParts> {
        let Disks { slots, write, .. } = self.scenario.disks?;
        let platter = &mut self.workers[w].platter;
        platter.busy = self.now;
        platter.hung = self.now;
        platter.reading.clear();
        platter.stock = Stock::recovered(platter.records.values().map(|(record, _)| record));
        let slots = self.scenario.layout.groups.iter().map(|_| slots).collect();
        Some(TierParts {
            tier: Tier::Disk,
            mover: Box::new(Drive(shell.clone())),
            config: TierConfig { slots, writes_max: 2, backlog_max: 16, write },
            records: platter.records.values().map(|&(record, _)| record).collect(),
        })
    }

    /// A move begins.
    pub(crate) fn begin_move(&mut self, w: WorkerIndex, what: Move) {
        let Some(Disks { record, hangs, .. }) = self.scenario.disks else { return };
        self.look_at_move(w, &what);
        let hangs = self.healed.is_none() && self.random.chance(hangs);
        let worker = &mut self.workers[w];
        match what {
            // From now on the slot holds who knows what.
            Move::Write(write) => drop(worker.platter.records.remove(&write.place.slot)),
            Move::Read(key, read) => worker.platter.reading.push((key, read)),
        }
        let begins = self.now.max(worker.platter.busy);
        if hangs && begins == self.now {
            worker.platter.hung = begins + HANG;
        }
        worker.platter.busy = worker.platter.hung.max(begins + record);
        self.agenda.enter(worker.platter.busy, Event::Moved { worker: w, life: worker.life, what });
    }

    /// Holds a move that begins against what must be so.
    fn look_at_move(&mut self, w: WorkerIndex, what: &Move) {
        let Some(Disks { slots, .. }) = self.scenario.disks else { return };
        let Platter { records, stock, .. } = &self.workers[w].platter;
        let (block, tenant) = match what {
            Move::Write(write) => (write.block, write.tenant),
            Move::Read(_, read) => (read.block, records[&read.place.slot].0.tenant),
        };
        let found = tenants::moved(self, w, block, tenant).map_err(|what| (tenants::NAME, what));
        let quota = self.scenario.tenants.quota(slots, self.scenario.tenants.quotas.disk_percent);
        let met = match (what, quota) {
            (Move::Write(write), Some(quota)) => {
                let met = quotas::written(stock, write.place.slot, tenant, slots, quota);
                met.map_err(|what| (quotas::NAME, format!("w{w}: {what}")))
            }
            _ => Ok(None),
        };
        match found.and(met) {
            Ok(met) => met.into_iter().for_each(|meeting| self.coverage.hit_meeting(meeting)),
            Err((name, what)) => self.violated(name, what),
        }
        self.workers[w].platter.stock.begins(what);
    }

    /// Whether a worker's disk has a record of this identity.
    pub(crate) fn disk_has(&self, w: WorkerIndex, hash: BlockHash) -> bool {
        self.workers[w].platter.records.values().any(|(record, _)| record.hash == hash)
    }

    /// A load of a worker is not wanted any more: its reads are given up at once, however long they hang in the disk.
    pub(crate) fn cancel_moves(&mut self, w: WorkerIndex, key: SeqKey) {
        let (life, elapsed) = (self.workers[w].life, Duration::ZERO);
        for (_, read) in self.workers[w].platter.reading.extract_if(.., |(of, _)| *of == key).collect::<Vec<_>>() {
            self.mail(w, life, Inmail::Moved(TierEnd::Read { key, read, end: ReadEnd::Abandoned, elapsed }));
        }
    }

    /// A move of a worker's life ends.
    pub(crate) fn moved(&mut self, w: WorkerIndex, life: Life, what: Move) {
        let Some(Disks { fails, record: elapsed, .. }) = self.scenario.disks else { return };
        let (fails, layout) = (self.random.chance(fails), &self.scenario.layout);
        let worker = &mut self.workers[w];
        let Some(alive) = worker.alive.as_mut().filter(|_| worker.life == life) else { return };
        let end = match what {
            Move::Write(write) if fails => TierEnd::Wrote { write, end: WriteEnd::Failed, elapsed },
            Move::Write(write) => {
                let TierWrite { place, block, hash, tenant } = write;
                let record = TierRecord { slot: place.slot, hash, tenant };
                worker.platter.records.insert(place.slot, (record, words(layout, &alive.pools, block)));
                TierEnd::Wrote { write, end: WriteEnd::Written, elapsed }
            }
            Move::Read(key, read) if !worker.platter.done(key, &read) => {
                TierEnd::Settled { tier: Tier::Disk, moved: !fails }
            }
            Move::Read(key, read) if fails => TierEnd::Read { key, read, end: ReadEnd::Wrong, elapsed },
            Move::Read(key, read) => {
                let (record, words) = &worker.platter.records[&read.place.slot];
                assert_eq!(record.hash, read.hash, "{:?} holds another record", read.place);
                let (pool, begin) = place(layout, &alive.pools, read.block);
                (0..).zip(words).for_each(|(at, &word)| pool.set(begin + at * WORD, word));
                TierEnd::Read { key, read, end: ReadEnd::Good, elapsed }
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
