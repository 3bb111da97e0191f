//! What tiers report: ends of moves, and what they have, lost or found.

use super::loader::Loader;
use crate::prompt_sources::Source;
use domain::{SeqKey, Time};
use kv_manager::tiers::{ReadEnd, TierRead};
use std::time::Duration;
use tiers::TierEvent;

impl Loader<'_> {
    /// Handles what a tier reports.
    pub(crate) fn on_tier_event(&mut self, now: Time, event: TierEvent) {
        let reason = if let TierEvent::Off { reason, .. } = &event { reason } else { "" };
        self.update_availability(event.tier(), reason, |tier| tier.on_event(now, &event));
        match event {
            TierEvent::Wrote { write, end, elapsed } => {
                self.kv.wrote(write.place, end);
                self.meters.wrote(write.place.tier, end, self.record_bytes(write.block.group), elapsed);
            }
            TierEvent::Read { key, read, end, elapsed } => self.on_read_ended(now, key, &read, end, elapsed),
            TierEvent::Lifted { prompt, lift, end, record, elapsed } => {
                self.on_lifted(prompt, lift, end, record, elapsed);
            }
            TierEvent::Landed { prompt, lift, there, elapsed } => self.on_landed(prompt, lift, there, elapsed),
            TierEvent::Settled { .. } | TierEvent::Off { .. } | TierEvent::On { .. } => {}
            TierEvent::Learned { tier, records } => self.kv.learn(tier, &records),
            TierEvent::Found { tier, prompt, records, last } => {
                self.kv.find(tier, &records);
                if last {
                    self.on_lookup_ended(now, prompt);
                }
            }
            TierEvent::Forgotten { tier, records } => self.kv.forget(tier, &records),
        }
        self.write_to_tiers();
    }

    /// Notes the end of a read. Its prompts continue if it was the last one that they waited for.
    fn on_read_ended(&mut self, now: Time, key: SeqKey, read: &TierRead, end: ReadEnd, elapsed: Duration) {
        let (tier, bytes) = (read.place.tier, self.record_bytes(read.block.group));
        self.meters.read(tier, end, bytes, elapsed);
        let load = self.loads.get_mut(key).expect("a load is there until its reads have ended");
        self.kv.read_ended(read, &load.chain, end);
        let is_good = end == ReadEnd::Good;
        let was_last = load.on_read_ended(read, bytes, is_good);
        self.rates.note_read(now, tier, bytes, is_good, was_last);
        for (prompt, tier, since) in load.delivered(read.number) {
            if let Some(sequence) = self.sequences.get_mut(&prompt) {
                sequence.sources.brought(read.number, Source::Tier(tier), now.since(since));
            }
            if let Some(timed) = self.attempts.timed(prompt.request, prompt.epoch) {
                let layout = &self.config.layout;
                let bytes = layout.token_bytes() as u64 * u64::from(layout.block_tokens);
                timed.loaded(tier.name(), since, now, layout.block_tokens, bytes);
            }
        }
        if is_good {
            self.loads.note_progress(now, key, tier);
        }
        self.settle_load(key);
    }
}
