//! Prompts that catch up with the cache in the middle of their way: what others computed meanwhile, or a lower
//! tier brought back, need not be computed again.

use super::{KvManager, at, groups, not_open};
use crate::sequence::Copying;
use domain::plan::{BlockCopy, BlockTable};
use domain::planted_bugs::{self, Bug};
use domain::{BlockHash, BlockRef, SeqKey};

/// How far a sequence came by what is cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaughtUp {
    /// Positions below this need not be computed. A multiple of the block size.
    pub tokens: u32,
    /// Copies that the next step with this sequence makes first.
    pub copies: Vec<BlockCopy>,
}

impl KvManager {
    /// Takes cached blocks for positions of a prompt of `tokens` positions that are not computed: the longest run
    /// from which it can go on, with at least one position left to compute. `None`: there is none. `chain` has the
    /// identities of its full blocks. No step in flight contains the sequence.
    ///
    /// Its own blocks there are given back, and what it has not taken yet was promised to it, so this always finds
    /// room. Those that an offer of it promised stay, as
    /// their reader knows them by number: they are filled by the copies returned, whose sources stay as they are
    /// until [`written`](Self::written) says that a position behind them is.
    pub fn catch_up(&mut self, key: SeqKey, chain: &[BlockHash], tokens: u32) -> Option<CaughtUp> {
        let size = self.config.block_tokens;
        let hit = self.reachable_ahead(key, chain, tokens)?;
        let until = hit * size + 1;
        let sequence = self.sequences.get_mut(&key).unwrap_or_else(|| not_open(key));
        let done = sequence.written / size;
        let mut copies = Vec::new();
        for ((group, pool), config) in groups(self.pools.len()).zip(&mut self.pools).zip(&self.config.groups) {
            let first = config.first_needed(hit * size, size).clamp(sequence.tables[at(group)].first, hit);
            let taken = done.max(first)..hit;
            let before = sequence.table_end(group);
            let mut blocks = Vec::new();
            for number in first..hit.max(before) {
                let own = sequence.block(group, number);
                if !taken.contains(&number) {
                    blocks.push(own.expect("a table has no gap"));
                    continue;
                }
                let hash = chain[number as usize];
                let from = self.index.get(group, hash).expect("the run was found reachable");
                for tier in self.tiers.values_mut() {
                    tier.hit(BlockRef { group, block: from }, pool.generation(from), hash);
                }
                let promised = |id| self.leases.get(id).is_some_and(|lease| lease.key == key);
                match own {
                    Some(own) if pool.leases(own).iter().any(|&id| promised(id)) => {
                        pool.hold(from);
                        let source = BlockRef { group, block: from };
                        sequence.copying.push(Copying { source, start: number * size, until });
                        copies.push(BlockCopy { group, from, to: own });
                        blocks.push(own);
                    }
                    own => {
                        pool.share(from);
                        own.into_iter().for_each(|own| pool.leave(own, &self.index));
                        blocks.push(from);
                    }
                }
            }
            let reached = hit.max(before).saturating_sub(sequence.ends_from(group)) as usize;
            sequence.ends[at(group)].drain(..reached);
            let table = &mut sequence.tables[at(group)];
            for &block in table.blocks.iter().take((first - table.first) as usize) {
                pool.leave(block, &self.index);
            }
            self.ended += u64::from(first - table.first);
            *table = BlockTable { first, blocks };
            if !planted_bugs::is(Bug::CaughtUpUntold) {
                sequence.told[at(group)].iter_mut().for_each(|told| told.changes(taken.start));
            }
            pool.count_lookup(taken.len() as u32, 0);
        }
        sequence.written = hit * size;
        self.note_gap(key);
        self.settle();
        Some(CaughtUp { tokens: hit * size, copies })
    }

    /// Returns the block behind the last one that [`catch_up`](Self::catch_up) can take.
    fn reachable_ahead(&self, key: SeqKey, chain: &[BlockHash], tokens: u32) -> Option<u32> {
        let size = self.config.block_tokens;
        let sequence = self.sequence(key);
        let written = sequence.written;
        let waits = sequence.planned > written || !sequence.is_validated();
        if waits || !written.is_multiple_of(size) || tokens <= written {
            return None;
        }
        let done = written / size;
        // Behind the end of an offer that is not fulfilled, its reader's window may begin later than it was told.
        let offers = sequence.leases.iter().filter_map(|&id| self.leases.get(id)).map(|lease| lease.tokens);
        let promised = offers.filter(|&tokens| tokens > written).map(|tokens| tokens / size).min();
        let limit = ((tokens - 1) / size).min(promised.unwrap_or(u32::MAX)).min(chain.len() as u32);
        let hit = self.reachable_blocks(&chain[..limit as usize], None, |number, group, hash| {
            if number < done {
                number >= sequence.tables[at(group)].first
            } else {
                self.index.get(group, hash).is_some()
            }
        });
        // What is promised is written in its place, or not at all.
        let stuck = |group| {
            let promised = self.unwritable(sequence, group, hit * size).any(|number| {
                let block = sequence.block(group, number).expect("what is not taken is not unwritable");
                let leases = self.pools[at(group)].leases(block);
                leases.iter().any(|&id| self.leases.get(id).is_some_and(|lease| lease.key == key))
            });
            // A block that an earlier copy is still to be made into is not dropped before.
            let first = self.config.groups[at(group)].first_needed(hit * size, size) * size;
            promised || sequence.copying.iter().any(|copy| copy.source.group == group && copy.start < first)
        };
        (hit > done && !self.groups().any(stuck)).then_some(hit)
    }
}
