//! What loading may use of a worker, and what its parts share.

use super::lift_queue::Lifts;
use super::loads::Loads;
use crate::attempts::Attempts;
use crate::config::WorkerConfig;
use crate::measured_rates::Rates;
use crate::sequence::Sequence;
use crate::sessions::Sessions;
use crate::tier_meters::TierMeters;
use domain::{BlockHash, Claim, GroupId, KvLayout, SeqKey};
use kv_manager::KvManager;
use kv_manager::tiers::Tier;
use scheduler::Scheduler;
use std::collections::{BTreeMap, HashMap};
use tiers::{TierHandle, TierParts};

/// The part of a worker's state that loading works with.
pub(crate) struct Loader<'a> {
    pub(crate) config: &'a WorkerConfig,
    pub(crate) kv: &'a mut KvManager,
    pub(crate) tiers: &'a mut BTreeMap<Tier, TierHandle>,
    pub(crate) loads: &'a mut Loads,
    pub(crate) lifts: &'a mut Lifts,
    pub(crate) rates: &'a mut Rates,
    pub(crate) scheduler: &'a mut Scheduler,
    pub(crate) sequences: &'a mut HashMap<SeqKey, Sequence>,
    pub(crate) meters: &'a mut TierMeters,
    pub(crate) attempts: &'a mut Attempts,
    pub(crate) sessions: &'a mut Sessions,
}

impl Loader<'_> {
    /// Gives the worker a tier.
    pub(crate) fn add_tier(&mut self, parts: TierParts) {
        let TierParts { tier, mover, config, records } = parts;
        self.kv.add_tier(tier, config, &records);
        self.tiers.insert(tier, TierHandle::new(mover));
        self.meters.show(tier);
    }

    /// Begins the writes that the manager wants.
    pub(crate) fn write_to_tiers(&mut self) {
        while let Some(write) = self.kv.next_write() {
            self.tier(write.place.tier).write(write);
        }
    }

    /// Reports something to a tier. If the worker stops or starts relying on the tier because of it, the manager is
    /// told, and `reason` is logged.
    pub(super) fn update_availability(&mut self, tier: Tier, reason: &str, report: impl FnOnce(&mut TierHandle)) {
        let handle = self.tier(tier);
        let before = handle.is_relied_on();
        report(handle);
        let open = handle.is_relied_on();
        if open == before {
            return;
        }
        let (worker, name) = (&self.config.name, tier.name());
        if open {
            tracing::info!(worker, tier = name, "a tier is there again");
            self.kv.open_tier(tier);
        } else {
            tracing::error!(worker, tier = name, reason, "a tier is off: the service goes on without it");
            self.kv.close_tier(tier);
        }
        self.meters.open(tier, open);
        // Routers still believe what the last reports said of this tier.
        self.sessions.iter_mut().for_each(|(_, session)| session.wants_snapshot = true);
    }

    /// Makes tiers end the reads of a load, or the lifts for a prompt, soon.
    pub(super) fn cancel_moves(&mut self, key: SeqKey) {
        self.tiers.values_mut().for_each(|tier| tier.cancel(key));
    }

    /// Returns the tier that the manager moves a record in.
    pub(super) fn tier(&mut self, tier: Tier) -> &mut TierHandle {
        self.tiers.get_mut(&tier).expect("the manager moves in tiers that it was given")
    }

    /// Returns whether the outbox of the sequence's router is full, so that the sequence makes no tokens.
    pub(super) fn is_held(&self, key: SeqKey) -> bool {
        self.attempts.is_held(self.sessions, key)
    }

    /// Returns the room that the waiting jobs will take.
    pub(super) fn queued(&self) -> Claim {
        self.scheduler.queued(|key| self.is_held(key))
    }

    /// Predicts how many seconds it takes to load what the device lacks of the first `tokens` positions of `chain`.
    pub(super) fn load_s(&self, chain: &[BlockHash], tokens: u32) -> f32 {
        predicted_load_s(self.kv, self.rates, &self.config.layout, chain, tokens)
    }

    /// Returns the bytes of a record of the group, as tiers store it.
    pub(super) fn record_bytes(&self, group: GroupId) -> u64 {
        self.config.layout.stored_bytes(usize::from(group.0)) as u64
    }
}

/// Predicts how many seconds it takes to load what the device lacks of the first `tokens` positions of `chain`.
pub(crate) fn predicted_load_s(
    kv: &KvManager,
    rates: &Rates,
    layout: &KvLayout,
    chain: &[BlockHash],
    tokens: u32,
) -> f32 {
    let sources = kv.sources(chain, tokens);
    let bytes = |tier| {
        let records = sources.iter().filter(move |(source, ..)| *source == tier);
        records.map(|(_, group, _)| layout.stored_bytes(usize::from(group.0)) as u64).sum::<u64>()
    };
    rates.load_s(&Tier::ALL.map(|tier| (tier, bytes(tier))))
}

/// Returns the part of a prompt's chain that a cache can serve. The last token is computed in any case, because the
/// first sampled token depends on it.
pub(super) fn cacheable(chain: &[BlockHash], tokens: u32, block_tokens: u32) -> &[BlockHash] {
    let blocks = (tokens.saturating_sub(1) / block_tokens) as usize;
    &chain[..blocks.min(chain.len())]
}
