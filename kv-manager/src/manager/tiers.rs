//! The manager's side of the tiers: blocks go down when a tier's policy wants them there, and come back into a
//! sequence of their own, one by one, which is closed when all of them have.

use super::{Admit, KvManager, at, groups, parent};
use crate::tiers::{Place, ReadEnd, Tier, TierConfig, TierRead, TierRecord, TierSlots, TierStats, TierWrite, WriteEnd};
use domain::{BlockHash, BlockRef, GroupId, SeqKey, Tenant};

impl KvManager {
    /// Gives the manager a tier below, which held `records` at the end of an earlier life, the oldest first.
    pub fn add_tier(&mut self, tier: Tier, config: TierConfig, records: &[TierRecord]) {
        let mut tier_slots = TierSlots::new(config, self.config.quotas.of(tier));
        tier_slots.recover(records);
        self.tiers.insert(tier, tier_slots);
    }

    /// Closes the tier: nothing is found there from now on, and nothing is written, until it is opened again. Moves
    /// under way end as usual.
    pub fn close_tier(&mut self, tier: Tier) {
        self.tiers.get_mut(&tier).into_iter().for_each(TierSlots::close);
    }

    /// Opens the tier again.
    pub fn open_tier(&mut self, tier: Tier) {
        self.tiers.get_mut(&tier).into_iter().for_each(TierSlots::open);
    }

    /// Notes that others wrote these records to the tier, as many as it has room for.
    pub fn learn(&mut self, tier: Tier, records: &[(GroupId, BlockHash)]) {
        if let Some(tier_slots) = self.tiers.get_mut(&tier) {
            records.iter().for_each(|&(group, hash)| tier_slots.learn(group, hash));
        }
    }

    /// Notes records that others wrote to the tier and that a prompt looks for. They are remembered in place of what
    /// was used longest ago.
    pub fn find(&mut self, tier: Tier, records: &[(GroupId, BlockHash)]) {
        if let Some(tier_slots) = self.tiers.get_mut(&tier) {
            records.iter().for_each(|&(group, hash)| tier_slots.find(group, hash));
        }
    }

    /// Notes that others gave up these records of the tier.
    pub fn forget(&mut self, tier: Tier, records: &[(GroupId, BlockHash)]) {
        if let Some(tier_slots) = self.tiers.get_mut(&tier) {
            records.iter().for_each(|&(group, hash)| tier_slots.forget(group, hash));
        }
    }

    /// Returns whether the tier is there and relied on.
    pub fn is_tier_open(&self, tier: Tier) -> bool {
        self.tiers.get(&tier).is_some_and(TierSlots::is_open)
    }

    /// Returns the counts of each tier, the fastest first.
    pub fn tier_stats(&self) -> impl Iterator<Item = (Tier, TierStats)> {
        self.tiers.iter().map(|(&tier, tier_slots)| (tier, tier_slots.stats()))
    }

    /// Records that each tier holds of each group.
    pub fn tier_records(&self) -> impl Iterator<Item = (Tier, GroupId, usize)> {
        self.tiers
            .iter()
            .flat_map(|(&tier, tier_slots)| tier_slots.held().map(move |(group, held)| (tier, group, held)))
    }

    /// Takes the next record to write, if another may be under way. Its block stays as it is until
    /// [`wrote`](Self::wrote), even if it is given up before.
    pub fn next_write(&mut self) -> Option<TierWrite> {
        self.cool();
        let (pools, index) = (&self.pools, &self.index);
        let write = self.tiers.iter_mut().find_map(|(&tier, tier_slots)| {
            let (record, block) = tier_slots.next_write(|block, generation, hash| {
                let pool = &pools[at(block.group)];
                let there = index.get(block.group, hash) == Some(block.block);
                let owned = there && pool.generation(block.block) == generation;
                let tenant = pool.tenant(block.block).filter(|_| owned)?;
                Some((tenant, pool.parent(block.block)))
            })?;
            let TierRecord { slot, hash, tenant } = record;
            Some(TierWrite { place: Place { tier, slot }, block, hash, tenant })
        })?;
        self.pools[at(write.block.group)].read(write.block.block);
        self.settle();
        Some(write)
    }

    /// Writes blocks down to a tier that is written back, if a pool is fuller than its watermarks allow, or a tenant
    /// has more of it than they allow of its quota. The blocks go down in the order of eviction. A block that is
    /// needed before it was written is lost to the tier, and counted.
    fn cool(&mut self) {
        if !self.tiers.values().any(TierSlots::is_written_back) {
            return;
        }
        for (group, pool) in groups(self.pools.len()).zip(&mut self.pools) {
            while self.tiers.values().all(TierSlots::takes_cold) {
                let cooled = if pool.is_cooling(self.config.watermarks) { pool.cool() } else { None };
                let Some((block, generation, hash)) = cooled.or_else(|| pool.cool_by_quota()) else { break };
                self.tiers.values_mut().for_each(|tier| tier.cooled(BlockRef { group, block }, generation, hash));
            }
        }
        self.settle();
    }

    /// Notes that a write ended. Panics if none was under way there.
    pub fn wrote(&mut self, Place { tier, slot }: Place, end: WriteEnd) {
        let tier_slots = self.tiers.get_mut(&tier).expect("there is the tier, for it was written to");
        let BlockRef { group, block } = tier_slots.wrote(slot, end);
        self.pools[at(group)].was_read(block);
        self.depart(group, block);
        self.settle();
    }

    /// Returns the length in tokens of the longest prefix of `chain` from which a prompt could go on once
    /// [`load`](Self::load) brought back what tiers have of it. The device has `cached_tokens` of it
    /// ([`cached_tokens`](Self::cached_tokens)); the length is at least that.
    pub fn loadable_tokens(&self, chain: &[BlockHash], cached_tokens: u32) -> u32 {
        let cached = cached_tokens / self.config.block_tokens;
        let loadable = self.reachable_blocks(chain, None, |number, group, hash| {
            self.source(group, hash).is_some() || (number < cached && self.index.get(group, hash).is_some())
        });
        loadable.max(cached) * self.config.block_tokens
    }

    /// Returns the places of the records that a [`load`](Self::load) of the first `tokens` positions of `chain` would
    /// read.
    pub fn sources(&self, chain: &[BlockHash], tokens: u32) -> Vec<(Tier, GroupId, BlockHash)> {
        let size = self.config.block_tokens;
        let cached = self.usable_blocks(&chain[..chain.len().min((tokens / size) as usize)], Some(tokens));
        let of_group = |(group, config): (GroupId, &crate::GroupConfig)| {
            let first = config.first_needed(tokens, size).max(cached);
            let records = chain.iter().take((tokens / size) as usize).skip(first as usize);
            records.filter_map(move |&hash| Some((self.source(group, hash)?, group, hash))).collect::<Vec<_>>()
        };
        self.groups().zip(&self.config.groups).flat_map(of_group).collect()
    }

    /// Returns the fastest tier that has the record.
    fn source(&self, group: GroupId, hash: BlockHash) -> Option<Tier> {
        self.tiers.iter().find(|(_, tier_slots)| tier_slots.holds(group, hash)).map(|(&tier, _)| tier)
    }

    /// Counts what tiers have of a prompt's `chain`, and what they do not have, behind the `cached_tokens` that
    /// the device has.
    pub fn count_lookups(&mut self, chain: &[BlockHash], cached_tokens: u32) {
        let cached = cached_tokens / self.config.block_tokens;
        for group in self.groups() {
            for &hash in &chain[cached as usize..] {
                let _found = self.tiers.values_mut().any(|tier_slots| tier_slots.count_lookup(group, hash));
            }
        }
    }

    /// Opens a sequence of `tenant` for the first `tokens` positions of `chain` and says what to read into it from
    /// tiers: of whatever the device does not have. Each read ends with [`read_ended`](Self::read_ended), and
    /// after all of them the sequence is [closed](Self::close). `None`: it does not fit now, or not all of it is
    /// there; nothing was taken.
    pub fn load(&mut self, key: SeqKey, tenant: Tenant, chain: &[BlockHash], tokens: u32) -> Option<Vec<TierRead>> {
        let Admit::Ready { cached_tokens } = self.open(key, tenant, chain, tokens, 0) else { return None };
        let first = cached_tokens / self.config.block_tokens;
        let mut reads = Vec::new();
        let sequence = self.sequence(key);
        let wanted: Vec<(u32, BlockRef)> = self
            .groups()
            .zip(&sequence.tables)
            .flat_map(|(group, table)| {
                let numbered = (table.first..).zip(&table.blocks).filter(move |&(number, _)| number >= first);
                numbered.map(move |(number, &block)| (number, BlockRef { group, block }))
            })
            .collect();
        for (number, block) in wanted {
            let hash = chain[number as usize];
            let mut tiers = self.tiers.iter_mut();
            let found = tiers.find_map(|(&tier, tier_slots)| {
                Some(Place { tier, slot: tier_slots.begin_read(block.group, hash, tenant)? })
            });
            match found {
                Some(place) => reads.push(TierRead { place, block, hash, number }),
                None => {
                    reads.iter().for_each(|read| self.read_ended(read, chain, ReadEnd::Unread));
                    self.close(key);
                    return None;
                }
            }
        }
        Some(reads)
    }

    /// Ends a read of [`load`](Self::load). If it was good, its block is cached from now on, whatever becomes of those
    /// before it. Panics if none was under way there.
    pub fn read_ended(&mut self, read: &TierRead, chain: &[BlockHash], end: ReadEnd) {
        let Place { tier, slot } = read.place;
        self.tiers.get_mut(&tier).expect("there is the tier, for it was read").end_read(slot, end);
        if end != ReadEnd::Good {
            return;
        }
        let BlockRef { group, block } = read.block;
        let pool = &mut self.pools[at(group)];
        pool.fill(block);
        pool.seal(block, read.hash, parent(chain, read.number), &self.pins, &mut self.index);
        // What came from a slow tier may be wanted in a faster one.
        self.tiers.values_mut().for_each(|tier| tier.sealed(read.block, pool.generation(block), read.hash));
        self.settle();
    }
}
