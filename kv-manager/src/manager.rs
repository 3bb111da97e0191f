//! The manager: sequences, their block tables, and the leases on their blocks, over the pools of all KV groups.
//!
//! Every call that changes something asserts the conservation law. Calls about a sequence that is not open panic
//! unless they say otherwise: the one thread that owns the manager also knows what it opened.
//!
//! A block may be written by steps and read by copies that are still in flight. The manager relies on two promises.
//! The engine runs steps in order. The caller closes a sequence only after all steps that contain it, and all reads
//! into it, have ended.

pub use catch_up::CaughtUp;
pub use pins::Pinned;
pub use room::Room;
pub use router_reports::IndexChanges;

use crate::config::{GroupConfig, KvConfig};
use crate::eviction;
use crate::index::PrefixIndex;
use crate::lease::{Lease, LeaseTable};
use crate::pins::PinTable;
use crate::pool::{GroupStats, Holders, Pool, Quota};
use crate::sequence::{Copying, Sequence, Told};
use crate::tiers::{Tier, TierSlots};
use domain::handoff::OfferedGroup;
use domain::plan::{BlockCopy, BlockTable, TableChange};
use domain::planted_bugs::{self, Bug};
use domain::{BlockHash, BlockRef, Generation, GroupId, LeaseId, SeqKey, Tenant, Time};
use room::Extent;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Answer to opening a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// It is open, with all its slots.
    Ready {
        /// Positions below this are in blocks taken over from the cache. A multiple of the block size.
        cached_tokens: u32,
    },
    /// Not now: too many blocks are held. Nothing was taken.
    NoRoom,
    /// Not ever: it would not fit an empty pool. Nothing was taken.
    Never,
}

/// Answer to growing a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grow {
    /// It has the slots; the step that writes them makes these copies first.
    Ready(Vec<BlockCopy>),
    /// Too many blocks are held. Nothing was taken.
    NoRoom,
}

/// The parts of an [`domain::handoff::Offer`] that the manager knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferParts {
    /// The lease on all the blocks below.
    pub lease: LeaseId,
    /// Positions below this are written and valid already.
    pub ready: u32,
    /// The blocks, one entry per group.
    pub groups: Vec<OfferedGroup>,
}

/// One worker's KV manager.
#[derive(Clone)]
pub struct KvManager {
    config: KvConfig,
    pools: Vec<Pool>,
    index: PrefixIndex,
    sequences: BTreeMap<SeqKey, Sequence>,
    /// Prompts whose tables do not reach their last blocks in some group.
    in_progress: BTreeSet<SeqKey>,
    /// Of each group, the blocks that were promised to them and those that pins might still name, when the last call
    /// ended.
    promises: Vec<[u32; 2]>,
    /// Sequences that were closed, blocks that fell out of windows, promises and pins to come that fell, and leases
    /// that ended.
    ended: u64,
    leases: LeaseTable,
    pins: PinTable,
    /// The tiers below.
    tiers: BTreeMap<Tier, TierSlots>,
    /// Identities in tiers that are reported once more, the first one last.
    tier_repeats: Vec<BlockHash>,
}

/// Prefix cache and sequences.
impl KvManager {
    /// Makes a manager of empty pools. Panics if the block size or a window is zero.
    pub fn new(config: KvConfig) -> Self {
        assert!(config.block_tokens > 0, "a block holds at least one token");
        assert!(config.groups.iter().all(|group| group.window != Some(0)), "a window holds at least one token");
        let windowed: Vec<bool> = config.groups.iter().map(|group| group.window.is_some()).collect();
        let pool = |(id, group): (GroupId, &GroupConfig)| {
            let policy = eviction::policy(config.eviction, group.blocks, group.window.is_some());
            let quota = Quota { percent: config.quotas.device_percent, high_percent: config.watermarks.high_percent };
            Pool::new(id, group.blocks, policy, quota)
        };
        Self {
            pools: groups(config.groups.len()).zip(&config.groups).map(pool).collect(),
            index: PrefixIndex::new(&windowed),
            sequences: BTreeMap::new(),
            in_progress: BTreeSet::new(),
            promises: vec![[0; 2]; config.groups.len()],
            ended: 0,
            leases: LeaseTable::new(config.answers_max, config.leases_max),
            pins: PinTable::new(config.groups.iter().map(|group| group.pinned_max(config.pinned_percent)).collect()),
            tiers: BTreeMap::new(),
            tier_repeats: Vec::new(),
            config,
        }
    }

    /// Returns the length in tokens of the longest cached prefix of `chain` (the identities of a sequence's full
    /// blocks) from which a prompt could go on. Takes nothing.
    pub fn cached_tokens(&self, chain: &[BlockHash]) -> u32 {
        self.usable_blocks(chain, None) * self.config.block_tokens
    }

    /// Returns whether every group has the block.
    pub fn is_cached(&self, block: BlockHash) -> bool {
        self.groups().all(|group| self.index.get(group, block).is_some())
    }

    /// Returns a count of events that gave room back. While it stands still, there is no room for a job that found
    /// none. The exception are blocks that others cached of the same text meanwhile: they close their sequences later,
    /// which counts.
    pub fn given_back(&self) -> u64 {
        self.pools.iter().map(Pool::given_back).sum::<u64>() + self.ended
    }

    /// Returns whether the sequence is open.
    pub fn is_open(&self, key: SeqKey) -> bool {
        self.sequences.contains_key(&key)
    }

    /// Opens a sequence of `tenant` whose first `tokens` positions shall have slots. It takes over the longest
    /// cached prefix that `chain` (identities of its full blocks) finds and that leaves at least `leave` positions
    /// out, and allocates all other blocks, or takes nothing.
    ///
    /// `leave = 1`: a prompt, whose last position at least must be computed to have logits; in windowed groups its
    /// slots begin with the window of the first position computed. Of a long prompt, windowed groups have those of the
    /// first chunk and of the last window at first. [`grow`](Self::grow) takes the rest chunk by chunk, and finds room,
    /// for what the prompt will have at once is promised to it. `leave = 0`: the destination of a fetch, after
    /// which the next position computed is `tokens`; in windowed groups its slots begin with that position's
    /// window, and nothing of it can be offered or forked before [`written`](Self::written) covers `tokens`.
    ///
    /// Panics if the key is open already or if `leave > tokens`.
    pub fn open(&mut self, key: SeqKey, tenant: Tenant, chain: &[BlockHash], tokens: u32, leave: u32) -> Admit {
        assert!(!self.is_open(key), "{key} is open already");
        assert!(leave <= tokens, "{key} cannot leave {leave} of {tokens} tokens out");
        let size = self.config.block_tokens;
        let blocks = tokens.div_ceil(size);
        let candidates = chain.len().min(((tokens - leave) / size) as usize);
        let chain = &chain[..candidates];
        let fetch = leave == 0;
        let hit = self.usable_blocks(chain, fetch.then_some(tokens));
        let next_query = if fetch { tokens } else { hit * size };
        let extents: Vec<Extent> =
            self.groups().map(|group| self.extent(group, hit, next_query, tokens, fetch)).collect();
        let fits =
            |(group, extent): (GroupId, &Extent)| self.fits(group, chain_range(chain, extent.first, hit), extent);
        if !self.groups().zip(&extents).all(fits) {
            let least = |(group, extent): (GroupId, &Extent)| {
                if fetch { blocks - extent.first } else { self.prompt_blocks(group, blocks) }
            };
            let possible = self.groups().zip(&extents).all(|it| least(it) <= self.pools[at(it.0)].total());
            return if possible { Admit::NoRoom } else { Admit::Never };
        }

        let mut tables = Vec::with_capacity(extents.len());
        let mut ends = Vec::with_capacity(extents.len());
        for (group, Extent { first, end, ends_from, .. }) in self.groups().zip(extents) {
            let hits: Vec<_> = chain_range(chain, first, hit).iter().map(|&hash| self.cached(group, hash)).collect();
            let pool = &mut self.pools[at(group)];
            // All hits are taken before anything is allocated, lest the allocation evicts one of them.
            hits.iter().for_each(|&block| pool.share(block));
            for tier in self.tiers.values_mut() {
                for (&hash, &block) in chain_range(chain, first, hit).iter().zip(&hits) {
                    tier.hit(BlockRef { group, block }, pool.generation(block), hash);
                }
            }
            pool.count_lookup(hits.len() as u32, candidates as u32 - hit);
            let fresh = (hit.max(first)..end).map(|_| pool.allocate(tenant, &mut self.index));
            tables.push(BlockTable { first, blocks: hits.iter().copied().chain(fresh).collect() });
            ends.push((ends_from..blocks).map(|_| pool.allocate(tenant, &mut self.index)).collect());
        }
        if fetch && planted_bugs::is(Bug::InFlightCountsAsHeld) {
            self.seal_early(&tables, chain, hit);
        }
        let cached_tokens = hit * size;
        let sequence = Sequence {
            tenant,
            told: vec![None; tables.len()],
            tables,
            ends,
            blocks,
            written: cached_tokens,
            planned: cached_tokens,
            sealed: hit,
            fetched: if fetch { tokens } else { 0 },
            leases: Vec::new(),
            copying: Vec::new(),
        };
        self.sequences.insert(key, sequence);
        self.note_gap(key);
        self.settle();
        Admit::Ready { cached_tokens }
    }

    /// Seals the blocks that a fetch is still to fill: the planted bug [`Bug::InFlightCountsAsHeld`].
    fn seal_early(&mut self, tables: &[BlockTable], chain: &[BlockHash], hit: u32) {
        for (table, pool) in tables.iter().zip(&mut self.pools) {
            for (number, &block) in (table.first..chain.len() as u32).zip(&table.blocks).skip(hit as usize) {
                pool.fill(block);
                pool.seal(block, chain[number as usize], parent(chain, number), &self.pins, &mut self.index);
            }
        }
    }

    /// Gives the positions below `tokens` slots, those of a prompt's next chunk too, and makes those writable that no
    /// step writes yet. A block that another sequence shares, or that an offer froze at or below such a position, is
    /// replaced. The copies returned belong in the step that writes the positions; they are returned once. The sources
    /// stay as they are until [`written`](Self::written) says that those positions are, or the sequence closes. Uses
    /// the reserve.
    ///
    /// An offer of this sequence that promised such a position in a block that is now replaced (it was
    /// shared when it was offered, or since) cannot be kept and is withdrawn.
    pub fn grow(&mut self, key: SeqKey, tokens: u32) -> Grow {
        let size = self.config.block_tokens;
        let sequence = self.sequence(key);
        let blocks = tokens.div_ceil(size).max(sequence.blocks);
        let stuck = |group| self.unwritable(sequence, group, tokens);
        let fits = |group| {
            let (from, ends_from) = (sequence.table_end(group), sequence.ends_from(group));
            let before_ends = tokens.div_ceil(size).min(ends_from).saturating_sub(from);
            let takes = before_ends + (blocks - sequence.blocks) + stuck(group).count() as u32;
            // What is promised is for those that grow into it.
            let promised = if sequence.gap(group) > 0 { 0 } else { self.promised(group) };
            takes == 0 || takes.saturating_add(promised) <= self.pools[at(group)].available()
        };
        if !self.groups().all(fits) {
            return Grow::NoRoom;
        }
        // Mostly none: then nothing is allocated for them.
        let stuck: Vec<(GroupId, u32)> =
            self.groups().flat_map(|group| stuck(group).map(move |number| (group, number))).collect();

        let sequence = self.sequences.get_mut(&key).expect("it was just looked at");
        let unplanned = sequence.planned.max(sequence.written);
        let mut copies = Vec::new();
        let mut broken = Vec::new();
        for (group, pool) in groups(self.pools.len()).zip(&mut self.pools) {
            let end = tokens.div_ceil(size).max(sequence.table_end(group));
            let (from, ends_from) = (sequence.table_end(group), sequence.ends_from(group));
            let (table, ends) = (&mut sequence.tables[at(group)], &mut sequence.ends[at(group)]);
            let mut allocate = || pool.allocate(sequence.tenant, &mut self.index);
            table.blocks.extend((from..end.min(ends_from)).map(|_| allocate()));
            table.blocks.extend(ends.drain(..(end.clamp(ends_from, sequence.blocks) - ends_from) as usize));
            table.blocks.extend((sequence.blocks..end).map(|_| allocate()));
            for &(_, number) in stuck.iter().filter(|(of, _)| *of == group) {
                let to = pool.allocate(sequence.tenant, &mut self.index);
                let from = std::mem::replace(&mut table.blocks[(number - table.first) as usize], to);
                sequence.told[at(group)].iter_mut().for_each(|told| told.changes(number));
                let start = number * size;
                let promised = |id: &LeaseId| {
                    let lease = self.leases.get(*id).expect("blocks know live leases only");
                    lease.key == key && lease.tokens > unplanned.max(start)
                };
                broken.extend(pool.leases(from).iter().copied().filter(promised));
                pool.hold(from);
                pool.leave(from, &self.index);
                sequence.copying.push(Copying { source: BlockRef { group, block: from }, start, until: tokens });
                copies.push(BlockCopy { group, from, to });
            }
        }
        sequence.blocks = blocks;
        sequence.planned = unplanned.max(tokens);
        self.note_gap(key);
        broken.into_iter().for_each(|lease| self.withdraw(lease));
        self.settle();
        Grow::Ready(copies)
    }

    /// Notes that the positions below `tokens` are computed, or fetched and validated. Seals the blocks that became
    /// full under their identities in `chain`, and drops those that no position from `tokens` on attends to. `chain`
    /// may be longer; if it is shorter, a later call seals the rest. Panics if `tokens` falls or exceeds the slots.
    pub fn written(&mut self, key: SeqKey, tokens: u32, chain: &[BlockHash]) {
        let size = self.config.block_tokens;
        let sequence = self.sequences.get_mut(&key).unwrap_or_else(|| not_open(key));
        let slots = groups(self.pools.len()).map(|group| sequence.table_end(group)).min().unwrap_or(0);
        assert!(
            tokens >= sequence.written && tokens.div_ceil(size) <= slots,
            "{key}: {tokens} tokens are written after {} of {slots} blocks",
            sequence.written,
        );
        // What was copied rather than computed is full with the rest.
        let full = sequence.sealed..tokens / size;
        let sealed = sequence.sealed..(tokens / size).min(chain.len() as u32).max(sequence.sealed);
        let groups = groups(self.pools.len()).zip(&self.config.groups);
        for ((table, pool), (id, group)) in sequence.tables.iter_mut().zip(&mut self.pools).zip(groups) {
            let here = |number: &u32| *number >= table.first;
            for number in full.clone().filter(here) {
                pool.fill(table.blocks[(number - table.first) as usize]);
            }
            for number in sealed.clone().filter(here) {
                let block = table.blocks[(number - table.first) as usize];
                let new = pool.seal(block, chain[number as usize], parent(chain, number), &self.pins, &mut self.index);
                for tier in self.tiers.values_mut().filter(|_| new) {
                    let block = BlockRef { group: id, block };
                    tier.sealed(block, pool.generation(block.block), chain[number as usize]);
                }
            }
            let end = table.first + table.blocks.len() as u32;
            let first = group.first_needed(tokens, size).clamp(table.first, end);
            self.ended += u64::from(first - table.first);
            for block in table.blocks.drain(..(first - table.first) as usize) {
                pool.leave(block, &self.index);
            }
            table.first = first;
        }
        sequence.written = tokens;
        sequence.sealed = sealed.end;
        sequence.copying.retain(|copy| {
            let done = copy.until <= tokens;
            if done {
                self.pools[at(copy.source.group)].release(copy.source.block);
            }
            !done
        });
        sequence.leases.iter().for_each(|&lease| self.leases.fulfil(lease, tokens));
        self.settle();
    }

    /// Returns the sequence's block tables, one per group.
    pub fn tables(&self, key: SeqKey) -> Vec<BlockTable> {
        self.sequence(key).tables.clone()
    }

    /// Returns what changed of the sequence's block tables since this was asked last; all of them at first, and after
    /// [`tell_all`](Self::tell_all). Costs as much as there are changes, however long the tables are.
    pub fn changes(&mut self, key: SeqKey) -> impl Iterator<Item = (GroupId, TableChange)> {
        let sequence = self.sequences.get_mut(&key).unwrap_or_else(|| not_open(key));
        groups(self.pools.len()).zip(&sequence.tables).zip(&mut sequence.told).filter_map(|((group, table), told)| {
            let (first, end) = (table.first, table.end());
            let from = told.map_or(first, |told| told.same.clamp(first, end));
            let is_told = told.is_some_and(|told| told.first == first && told.same == end);
            *told = Some(Told { first, same: end });
            let blocks = || table.blocks[(from - first) as usize..].to_vec();
            (!is_told).then(|| (group, TableChange { first, from, blocks: blocks() }))
        })
    }

    /// Returns whether the sequence is open and [`changes`](Self::changes) was asked for since it was opened.
    pub fn is_told(&self, key: SeqKey) -> bool {
        self.sequences.get(&key).is_some_and(|sequence| sequence.told.iter().any(Option::is_some))
    }

    /// Has the next [`changes`](Self::changes) tell all of the sequence's block tables.
    pub fn tell_all(&mut self, key: SeqKey) {
        self.sequences.get_mut(&key).unwrap_or_else(|| not_open(key)).told.fill(None);
    }

    /// Opens `child` with all that `parent` has; whichever first writes into a block that both hold copies it.
    /// Panics if the child is open, or if the parent is a fetch's destination not validated yet or waits for a copy
    /// (between [`grow`](Self::grow) and the end of the step).
    pub fn fork(&mut self, parent: SeqKey, child: SeqKey) {
        assert!(!self.is_open(child), "{child} is open already");
        let sequence = self.sequence(parent);
        assert!(sequence.is_validated(), "{parent} is forked before it is validated");
        assert!(sequence.copying.is_empty(), "{parent} is forked before its copies are made");
        let fork = Sequence {
            tenant: sequence.tenant,
            tables: sequence.tables.clone(),
            told: vec![None; sequence.tables.len()],
            ends: sequence.ends.clone(),
            blocks: sequence.blocks,
            written: sequence.written,
            // What the parent has in flight beyond is not the child's.
            planned: sequence.written,
            sealed: sequence.sealed,
            fetched: 0,
            leases: Vec::new(),
            copying: Vec::new(),
        };
        for ((table, ends), pool) in fork.tables.iter().zip(&fork.ends).zip(&mut self.pools) {
            table.blocks.iter().chain(ends).for_each(|&block| pool.share(block));
        }
        self.sequences.insert(child, fork);
        self.note_gap(child);
        self.settle();
    }

    /// Closes the sequence: its indexed blocks stay cached, the others are free once no live lease covers them. One
    /// that is not open is left alone, so that every path may end here.
    pub fn close(&mut self, key: SeqKey) {
        let Some(sequence) = self.sequences.remove(&key) else { return };
        self.in_progress.remove(&key);
        self.ended += 1;
        for copy in sequence.copying {
            self.pools[at(copy.source.group)].release(copy.source.block);
        }
        for ((table, ends), pool) in sequence.tables.iter().zip(&sequence.ends).zip(&mut self.pools) {
            // The tail first: a block is worth nothing without those before it, so it shall be evicted before them.
            for &block in table.blocks.iter().chain(ends).rev() {
                pool.leave(block, &self.index);
            }
        }
        self.settle();
    }

    /// Drops all cached blocks that no sequence uses, no live lease covers and no pin names.
    pub fn flush(&mut self) {
        self.pools.iter_mut().for_each(|pool| pool.flush(&mut self.index));
        self.settle();
    }
}

/// The owner's side of a fetch.
impl KvManager {
    /// Grants a lease on the blocks that a query at position `tokens` needs (all of them; in windowed groups,
    /// those from its window on), which hold the sequence's positions below `tokens` now or will. It lives for
    /// `duration` after each renewal but not beyond `until`. No step planned from now on writes a position from
    /// `tokens` on into these blocks.
    ///
    /// `None`: [`KvConfig::leases_max`] leases are live, or the sequence is a copy not validated yet. Panics if the
    /// positions have no slots: `tokens` is beyond them, or so far behind what is written that its window is gone. Or
    /// it is in the middle of a prompt whose windowed groups have none there yet.
    pub fn offer(
        &mut self,
        now: Time,
        key: SeqKey,
        tokens: u32,
        duration: Duration,
        until: Time,
    ) -> Option<OfferParts> {
        let size = self.config.block_tokens;
        let sequence = self.sequences.get_mut(&key).unwrap_or_else(|| not_open(key));
        if self.leases.is_full() || !sequence.is_validated() {
            return None;
        }
        let end = tokens.div_ceil(size);
        let mut groups = Vec::with_capacity(self.pools.len());
        let mut blocks = Vec::new();
        for ((group, pool), config) in self::groups(self.pools.len()).zip(&self.pools).zip(&self.config.groups) {
            let first = config.first_needed(tokens, size).min(end);
            let slot = |number| sequence.block(group, number).map(|block| (block, pool.generation(block)));
            let offered: Option<Vec<_>> = (first..end).map(slot).collect();
            let offered = offered.unwrap_or_else(|| panic!("{key} has no slots for {tokens} tokens"));
            blocks.extend(offered.iter().map(|&(block, generation)| (BlockRef { group, block }, generation)));
            groups.push(OfferedGroup { first, blocks: offered });
        }
        let ready = sequence.ready().min(tokens);
        let copied_until = sequence.copied_until();
        let covered: Vec<BlockRef> = blocks.iter().map(|&(block, _)| block).collect();
        let lease = Lease { key, tokens, ready, copied_until, blocks, duration, until, expiry: until, ticks: None };
        let lease = self.leases.grant(now, lease);
        for block in covered {
            self.pools[at(block.group)].lease(block.block, lease);
        }
        sequence.leases.retain(|&given| self.leases.get(given).is_some());
        sequence.leases.push(lease);
        self.settle();
        Some(OfferParts { lease, ready, groups })
    }

    /// Prolongs a live lease to `duration` from now, at most to its `until`. Whether it is alive: a lease that
    /// ended stays ended. A tick count that did not rise since the last renewal renews nothing.
    pub fn renew(&mut self, now: Time, lease: LeaseId, ticks: u64) -> bool {
        self.leases.renew(now, lease, ticks)
    }

    /// Notes that the owner stood still for so long, and heard no renewal. No lease comes nearer to its end by that
    /// time, neither to its next renewal nor to its `until`. Call it before anything else is done with leases.
    pub fn stood_still(&mut self, pause: Duration) {
        self.leases.stand_still(pause);
    }

    /// Ends a lease at its reader's word. Whether what was read is valid: the lease was alive until now, and all
    /// that was promised had been written. Repeating it gives the same answer until [`ack`](Self::ack); a lease
    /// that is not known was never valid.
    pub fn release(&mut self, now: Time, lease: LeaseId) -> bool {
        match self.leases.get(lease) {
            None => {
                if planted_bugs::is(Bug::DuplicateReleaseCounts) {
                    let other = self.leases.iter().map(|(id, _)| id).next();
                    other.into_iter().for_each(|other| self.end_lease(other));
                }
                self.leases.was_valid(lease)
            }
            // `expire` ends and reports it.
            Some(_) if !self.leases.is_alive(now, lease) => false,
            Some(held) => {
                let valid = held.ready >= held.tokens || planted_bugs::is(Bug::ReleaseBeforeWritten);
                let key = held.key;
                self.end_lease(lease);
                if planted_bugs::is(Bug::FirstReleaseEndsBoth) {
                    let others = self.leases.iter().filter(|(_, other)| other.key == key).map(|(id, _)| id);
                    for other in others.collect::<Vec<_>>() {
                        self.end_lease(other);
                        self.leases.keep_valid(other);
                    }
                }
                if valid {
                    self.leases.keep_valid(lease);
                }
                valid
            }
        }
    }

    /// Returns whether the lease was released, and found valid: the answer is kept until [`ack`](Self::ack).
    pub fn was_valid(&self, lease: LeaseId) -> bool {
        self.leases.was_valid(lease)
    }

    /// Forgets a release whose answer the reader has.
    pub fn ack(&mut self, lease: LeaseId) {
        self.leases.ack(lease);
    }

    /// Withdraws an offer: the lease ends as if it had lapsed. One that ended already is left alone.
    pub fn withdraw(&mut self, lease: LeaseId) {
        self.end_lease(lease);
    }

    /// Ends the leases that have lapsed by now and reports each once, in the order in which they lapsed.
    pub fn expire(&mut self, now: Time) -> Vec<LeaseId> {
        let mut lapsed = Vec::new();
        while let Some((id, lease)) = self.leases.lapse(now) {
            self.uncover(id, &lease);
            lapsed.push(id);
        }
        lapsed
    }

    /// Returns whether the lease is alive at `now`.
    pub fn is_alive(&self, now: Time, lease: LeaseId) -> bool {
        self.leases.is_alive(now, lease)
    }

    /// Returns when [`expire`](Self::expire) next has something to end.
    pub fn next_deadline(&self) -> Option<Time> {
        self.leases.next_deadline()
    }

    fn end_lease(&mut self, id: LeaseId) {
        if let Some(lease) = self.leases.end(id) {
            self.uncover(id, &lease);
        }
    }

    fn uncover(&mut self, id: LeaseId, lease: &Lease) {
        self.ended += 1;
        // The tail first, as when a sequence closes.
        for &(block, generation) in lease.blocks.iter().rev() {
            let pool = &mut self.pools[at(block.group)];
            assert_eq!(pool.generation(block.block), generation, "{block:?} was reused under a live lease");
            pool.unlease(block.block, id);
        }
        self.settle();
    }
}

/// Reports and checks.
impl KvManager {
    /// Returns the counts of each group.
    pub fn stats(&self) -> Vec<GroupStats> {
        self.pools.iter().map(Pool::stats).collect()
    }

    /// Returns the leases that are alive.
    pub fn leases_live(&self) -> usize {
        self.leases.iter().count()
    }

    /// Returns the number of sequences that are open.
    pub fn sequences_open(&self) -> usize {
        self.sequences.len()
    }

    /// Answers to releases that are kept until acknowledged.
    pub fn answers_kept(&self) -> usize {
        self.leases.answers_kept()
    }

    /// Returns how often a block's memory was given to a new use.
    pub fn generation(&self, block: BlockRef) -> Generation {
        self.pools[at(block.group)].generation(block.block)
    }

    /// Returns the tenant of the block, if it is not free.
    pub fn tenant(&self, block: BlockRef) -> Option<Tenant> {
        self.pools[at(block.group)].tenant(block.block)
    }

    /// Returns whether the block may be given up: it is cached, no live lease covers it, no pin names it and no tier
    /// reads it.
    pub fn is_evictable(&self, block: BlockRef) -> bool {
        self.pools[at(block.group)].is_evictable(block.block)
    }

    /// Returns the open sequences and their block tables, one per group.
    pub fn sequences(&self) -> impl Iterator<Item = (SeqKey, &[BlockTable])> {
        self.sequences.iter().map(|(&key, sequence)| (key, sequence.tables.as_slice()))
    }

    /// Returns every block that has its identity, whether or not the index names it, with its generation.
    pub fn sealed(&self) -> impl Iterator<Item = (BlockRef, Generation, BlockHash)> {
        self.groups().zip(&self.pools).flat_map(|(group, pool)| {
            pool.sealed().map(move |(block, generation, hash)| (BlockRef { group, block }, generation, hash))
        })
    }

    /// Asserts that blocks, sequences, leases and index agree in every detail. Takes time in proportion to the pools.
    pub fn check(&self) {
        let mut holders: Vec<Vec<Holders>> =
            self.pools.iter().map(|pool| vec![Holders::default(); pool.total() as usize]).collect();
        for (key, sequence) in &self.sequences {
            for (table, holders) in sequence.tables.iter().zip(&mut holders) {
                table.blocks.iter().for_each(|block| holders[block.0 as usize].users += 1);
            }
            for (ends, holders) in sequence.ends.iter().zip(&mut holders) {
                ends.iter().for_each(|block| holders[block.0 as usize].users += 1);
            }
            for (group, config) in self.groups().zip(&self.config.groups) {
                let (end, ends_from) = (sequence.table_end(group), sequence.ends_from(group));
                let is_whole = end == ends_from && sequence.ends[at(group)].is_empty();
                assert!(end <= ends_from, "{key}: a table reaches into the last blocks");
                assert!(is_whole || config.window.is_some(), "{key}: a table of a full group ends early");
            }
            for copy in &sequence.copying {
                holders[at(copy.source.group)][copy.source.block.0 as usize].copies += 1;
            }
        }
        for block in self.tiers.values().flat_map(TierSlots::written_from) {
            holders[at(block.group)][block.block.0 as usize].tiers += 1;
        }
        for (id, lease) in self.leases.iter() {
            for (block, generation) in &lease.blocks {
                let pool = &self.pools[at(block.group)];
                assert_eq!(
                    pool.generation(block.block),
                    *generation,
                    "{block:?} was reused under {id} of {}",
                    lease.key
                );
                holders[at(block.group)][block.block.0 as usize].leases.push(id);
            }
        }
        for (key, sequence) in &self.sequences {
            let has_gap = self.groups().any(|group| sequence.gap(group) > 0);
            assert_eq!(self.in_progress.contains(key), has_gap, "{key} and its gaps");
        }
        assert!(self.in_progress.iter().all(|key| self.sequences.contains_key(key)), "what is closed has no gap");
        self.pools.iter().zip(&holders).for_each(|(pool, holders)| pool.check(holders, &self.index, &self.pins));
        self.leases.check();
        self.pins.check();
        self.tiers.values().for_each(TierSlots::check);
        let of_tiers = self.tier_stats().map(|(_, stats)| (stats.index_bytes, stats.index_bytes_max));
        for (used, budget) in of_tiers.chain([(self.index_bytes(), self.index_bytes_max())]) {
            assert!(used <= budget, "an index takes {used} bytes of {budget}");
        }
    }

    /// Ends a call that changed something: asserts the conservation law, and counts promises that fell. What pins may
    /// still name counts even while no prompt is in progress: a long one finds room only next to that.
    fn settle(&mut self) {
        self.pools.iter().for_each(Pool::assert_conserved);
        for group in groups(self.pools.len()) {
            let promised = [self.promised(group), self.pins_to_come(group)];
            let before = std::mem::replace(&mut self.promises[at(group)], promised);
            self.ended += u64::from(promised.iter().zip(&before).any(|(now, before)| now < before));
        }
    }
}

/// Lookups.
impl KvManager {
    fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        groups(self.pools.len())
    }

    fn sequence(&self, key: SeqKey) -> &Sequence {
        self.sequences.get(&key).unwrap_or_else(|| not_open(key))
    }

    fn cached(&self, group: GroupId, hash: BlockHash) -> domain::BlockId {
        self.index.get(group, hash).expect("the prefix was found usable")
    }

    /// Returns the largest number of blocks at the head of `chain` from whose end a sequence can go on. Every full
    /// group holds all of them, and each windowed group holds those that the next query needs. That query is at
    /// `next`, or, if that is `None`, right behind the prefix.
    fn usable_blocks(&self, chain: &[BlockHash], next: Option<u32>) -> u32 {
        self.reachable_blocks(chain, next, |_, group, hash| self.index.get(group, hash).is_some())
    }

    /// Returns the same as [`usable_blocks`](Self::usable_blocks), for the blocks that `has` says are there, given
    /// their number.
    fn reachable_blocks(
        &self,
        chain: &[BlockHash],
        next: Option<u32>,
        has: impl Fn(u32, GroupId, BlockHash) -> bool,
    ) -> u32 {
        let size = self.config.block_tokens;
        // Per group, how many blocks up to the current one are there without a gap.
        let mut runs = vec![0; self.pools.len()];
        let mut usable = 0;
        for (end, &hash) in (1..).zip(chain) {
            for (group, run) in self.groups().zip(&mut runs) {
                *run = if has(end - 1, group, hash) { *run + 1 } else { 0 };
            }
            let query = next.unwrap_or(end * size);
            let needed = |first: u32| end.saturating_sub(first);
            let mut groups = self.config.groups.iter().zip(&runs);
            if groups.clone().any(|(group, &run)| group.window.is_none() && run < end) {
                break;
            }
            let takes_some = self.config.groups.iter().any(|group| needed(group.first_needed(query, size)) > 0);
            if takes_some && groups.all(|(group, &run)| run >= needed(group.first_needed(query, size))) {
                usable = end;
            }
        }
        usable
    }

    /// Returns the numbers of blocks of the sequence that it may not write, because they are shared with another
    /// sequence or frozen. Each holds a position that is below `tokens` and in no step yet.
    fn unwritable<'a>(&'a self, sequence: &'a Sequence, group: GroupId, tokens: u32) -> impl Iterator<Item = u32> + 'a {
        let size = self.config.block_tokens;
        let pool = &self.pools[at(group)];
        let numbers = sequence.planned.max(sequence.written) / size..tokens.div_ceil(size).min(sequence.blocks);
        numbers.filter(move |&number| {
            let Some(block) = sequence.block(group, number) else { return false };
            let last = tokens.min((number + 1) * size) - 1;
            let frozen = |lease: &LeaseId| self.leases.get(*lease).is_some_and(|lease| lease.tokens <= last);
            pool.is_shared(block) || pool.leases(block).iter().any(frozen)
        })
    }
}

/// Returns the ids of so many groups.
fn groups(count: usize) -> impl Iterator<Item = GroupId> {
    (0..count).map(|group| GroupId(group as u16))
}

/// Returns the group's pool, table and configuration.
fn at(group: GroupId) -> usize {
    usize::from(group.0)
}

/// Returns the identities of the blocks `first..end`: none if the range is empty or reversed.
fn chain_range(chain: &[BlockHash], first: u32, end: u32) -> &[BlockHash] {
    &chain[first.min(end) as usize..end as usize]
}

/// Returns the identity of the block before block `number`.
fn parent(chain: &[BlockHash], number: u32) -> Option<BlockHash> {
    Some(chain[number.checked_sub(1)? as usize])
}

fn not_open(key: SeqKey) -> ! {
    panic!("{key} is not open")
}

mod catch_up;
#[cfg(feature = "explore")]
mod explore;
mod lifts;
mod parking;
mod pins;
mod room;
mod router_reports;
#[cfg(test)]
mod tests;
mod tiers;
