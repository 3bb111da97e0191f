//! The pool of one KV group: the state of each block, and the law that the states' sum is the pool.
//!
//! A block's state follows from its holders and its content; [`Pool::settle`] is the one place that derives it. The
//! manager knows which sequence uses which block, and what a lease is.

use crate::config::Watermarks;
use crate::eviction::Eviction;
use crate::index::PrefixIndex;
use crate::pins::PinTable;
use domain::planted_bugs::{self, Bug};
use domain::{BlockHash, BlockId, Generation, GroupId, LeaseId, Tenant, Time};
use order::Order;

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It has no holder and no content.
    Free,
    /// Taken, and not all of its positions are written.
    Filling,
    /// All written, and a sequence uses it, or a reader or a tier does and no index knows it.
    InUse,
    /// All written and indexed, and no sequence uses it. May be evicted once no live lease covers it, no pin names
    /// it and no tier reads it.
    Cached,
}

/// Number of states.
const STATES: usize = 4;

/// One block.
#[derive(Clone, Debug)]
struct Block {
    state: State,
    generation: Generation,
    /// Sequences whose tables hold it.
    users: u32,
    /// Copies that will still read it.
    holds: u32,
    /// Tiers that read it, which is no use of it: it keeps its place among those that may be given up.
    reads: u32,
    /// It has such a place, and a tier reads it: its memory cannot be had yet.
    lent: bool,
    /// Live leases that cover it: ids, so that an end that comes twice ends nothing else.
    leases: Vec<LeaseId>,
    /// All positions are written.
    full: bool,
    /// Its identity, once sealed.
    hash: Option<BlockHash>,
    /// The identity of the block that it continues, once sealed; `None` for the first of its sequences.
    parent: Option<BlockHash>,
    /// Whether the index names it under `hash`.
    indexed: bool,
    /// A pin names it.
    pinned: bool,
}

/// The holders of a block.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Holders {
    /// Sequences.
    pub(crate) users: u32,
    /// Copies that will still read it.
    pub(crate) copies: u32,
    /// Tiers that read it.
    pub(crate) tiers: u32,
    /// Live leases, sorted.
    pub(crate) leases: Vec<LeaseId>,
}

/// Counts of one group, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GroupStats {
    /// Blocks of the pool: always `free + filling + in_use + cached`.
    pub total: u32,
    /// Blocks without a holder.
    pub free: u32,
    /// Taken, not all positions written.
    pub filling: u32,
    /// Full and used by a sequence, or by a reader or a tier alone where no index knows the block.
    pub in_use: u32,
    /// Full, indexed, used by no sequence.
    pub cached: u32,
    /// Cached ones that no live lease covers, no pin names and no tier reads.
    pub evictable: u32,
    /// Covered by a live lease, in whichever state.
    pub leased: u32,
    /// Named by a pin, in use or cached.
    pub pinned: u32,
    /// Cached ones that write-back took down, or is to: they are given up first.
    pub cold: u32,
    /// Cached blocks given up for room, since the start.
    pub evictions: u64,
    /// Those among them that a tenant's quota named, and not the policy.
    pub quota_evictions: u64,
    /// Blocks that left the device because they were not used for long, or by command, since the start.
    pub parked: u64,
    /// Blocks that sequences took over from the cache, when they were opened or later, since the start.
    pub hits: u64,
    /// Full blocks that opened sequences would have taken over, had they been cached, since the start.
    pub misses: u64,
}

impl GroupStats {
    /// Returns the number of blocks that can be had at once: free or evictable.
    pub fn available(&self) -> u32 {
        self.free + self.evictable
    }
}

/// What a tenant may have of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// In percent of the pool; 100: anything.
    pub(crate) percent: u32,
    /// Of that, warm blocks above which write-back takes some down, in percent.
    pub(crate) high_percent: u32,
}

/// The blocks of one group.
#[derive(Clone)]
pub(crate) struct Pool {
    group: GroupId,
    blocks: Vec<Block>,
    free: Vec<BlockId>,
    /// Which blocks may be given up, those among them that tiers read.
    order: Order,
    /// How many tiers read of those.
    lent: u32,
    /// There were more warm blocks than the high watermark allows, and are more than the low one does.
    cooling: bool,
    /// Blocks by [`State`], counted at every transition.
    counts: [u32; STATES],
    leased: u32,
    pinned: u32,
    /// How often a block could be had from then on that could not be had before.
    given_back: u64,
    evictions: u64,
    quota_evictions: u64,
    parked: u64,
    hits: u64,
    misses: u64,
}

impl Pool {
    /// Makes a pool of `blocks` free blocks, of which each tenant has this quota.
    pub(crate) fn new(group: GroupId, blocks: u32, eviction: Box<dyn Eviction>, quota: Quota) -> Self {
        let block = || Block {
            state: State::Free,
            generation: Generation(0),
            users: 0,
            holds: 0,
            reads: 0,
            lent: false,
            leases: Vec::new(),
            full: false,
            hash: None,
            parent: None,
            indexed: false,
            pinned: false,
        };
        Self {
            group,
            blocks: (0..blocks).map(|_| block()).collect(),
            free: (0..blocks).rev().map(BlockId).collect(),
            order: Order::new(blocks, eviction, quota),
            lent: 0,
            cooling: false,
            counts: [blocks, 0, 0, 0],
            leased: 0,
            pinned: 0,
            given_back: 0,
            evictions: 0,
            quota_evictions: 0,
            parked: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// Returns the number of blocks of the pool.
    pub(crate) fn total(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Returns the number of blocks that can be had at once: free or evictable.
    pub(crate) fn available(&self) -> u32 {
        self.free.len() as u32 + self.evictable()
    }

    /// Returns how often a block became available that was not available before.
    pub(crate) fn given_back(&self) -> u64 {
        self.given_back
    }

    /// Returns about how many bytes it takes at most to know the state of each block and which goes first.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * (size_of::<Block>() + size_of::<BlockId>() + self.order.block_bytes())
    }

    /// Takes a block for a sequence of the tenant, under a new generation; where none is free, one is given up:
    /// the one that a quota names, or else the eviction policy. One that a tier reads is given up when it is its
    /// turn, but is free only then when that has read it, so another one goes with it. Panics where none is
    /// available.
    pub(crate) fn allocate(&mut self, tenant: Tenant, index: &mut PrefixIndex) -> BlockId {
        while self.free.is_empty() {
            let named = self.order.pop_by_quota(tenant);
            self.quota_evictions += u64::from(named.is_some());
            let id = named.or_else(|| self.order.pop()).expect("the caller saw that enough blocks are available");
            self.give_up(id, index);
            self.evictions += 1;
        }
        let id = self.free.pop().expect("one is free now");
        self.order.take(id, tenant);
        let block = self.block(id);
        block.generation.0 += 1;
        block.users = 1;
        self.settle(id);
        id
    }

    /// Notes that one more sequence uses the block.
    pub(crate) fn share(&mut self, id: BlockId) {
        self.order.warm(id);
        self.block(id).users += 1;
        self.settle(id);
    }

    /// Notes that one sequence less uses the block.
    pub(crate) fn leave(&mut self, id: BlockId, index: &PrefixIndex) {
        let block = self.block(id);
        assert!(block.users > 0, "no sequence uses {id}");
        block.users -= 1;
        let twin = block.hash.filter(|_| !block.indexed).and_then(|hash| index.get(self.group, hash));
        self.settle(id);
        // The block that the index has in this one's stead was used, so to say, along with it; otherwise it would go
        // before blocks that continue it.
        if let Some(twin) = twin.filter(|&twin| self.is_idle(twin)) {
            self.order.warm(twin);
            if self.is_idle(twin) {
                self.order.exit(twin);
            }
            self.enter(twin);
        }
    }

    /// Notes that a copy will read the block, even if all its holders leave it before.
    pub(crate) fn hold(&mut self, id: BlockId) {
        self.order.warm(id);
        self.block(id).holds += 1;
        self.settle(id);
    }

    /// Ends a hold: the copy has read the block, or never will.
    pub(crate) fn release(&mut self, id: BlockId) {
        let block = self.block(id);
        assert!(block.holds > 0, "no copy reads {id}");
        block.holds -= 1;
        self.settle(id);
    }

    /// Notes that a tier will read the block. That does not count as a use.
    pub(crate) fn read(&mut self, id: BlockId) {
        self.block(id).reads += 1;
        self.settle(id);
    }

    /// Notes that the tier has read the block, or never will.
    pub(crate) fn was_read(&mut self, id: BlockId) {
        let block = self.block(id);
        assert!(block.reads > 0, "no tier reads {id}");
        block.reads -= 1;
        self.settle(id);
    }

    /// Notes that a live lease covers the block.
    pub(crate) fn lease(&mut self, id: BlockId, lease: LeaseId) {
        let block = self.block(id);
        assert!(!block.leases.contains(&lease), "{lease} covers {id} already");
        block.leases.push(lease);
        self.leased += u32::from(self.blocks[id.0 as usize].leases.len() == 1);
        self.settle(id);
    }

    /// Notes that the lease has ended.
    pub(crate) fn unlease(&mut self, id: BlockId, lease: LeaseId) {
        let block = self.block(id);
        let place = block.leases.iter().position(|&held| held == lease);
        block.leases.swap_remove(place.expect("the lease covers the block"));
        self.leased -= u32::from(self.blocks[id.0 as usize].leases.is_empty());
        self.settle(id);
    }

    /// Notes that a pin names the block, which is indexed.
    pub(crate) fn pin(&mut self, id: BlockId) {
        let before = std::mem::replace(&mut self.block(id).pinned, true);
        assert!(!before, "{id} is pinned already");
        self.pinned += 1;
        self.settle(id);
    }

    /// Notes that no pin names the block any more.
    pub(crate) fn unpin(&mut self, id: BlockId) {
        let before = std::mem::replace(&mut self.block(id).pinned, false);
        assert!(before, "{id} is not pinned");
        self.pinned -= 1;
        self.settle(id);
    }

    /// Notes that all positions of the block are written.
    pub(crate) fn fill(&mut self, id: BlockId) {
        self.block(id).full = true;
        self.settle(id);
    }

    /// Gives a full block its identity, tells whose block it continues, and enters it into the index; a pin may
    /// name that. Where another block has the identity already, that one stays indexed, and this one is good for
    /// its own sequences and goes with them: their tables may be part of a step that runs, so the two cannot be
    /// exchanged. `false`: it had its identity already.
    pub(crate) fn seal(
        &mut self,
        id: BlockId,
        hash: BlockHash,
        parent: Option<BlockHash>,
        pins: &PinTable,
        index: &mut PrefixIndex,
    ) -> bool {
        let group = self.group;
        let block = self.block(id);
        assert!(block.full, "{id} is sealed before it is full");
        let new = block.hash.is_none();
        if new {
            block.hash = Some(hash);
            block.parent = parent;
            block.indexed = index.insert(group, hash, id);
            if block.indexed && pins.names(group, hash) {
                self.pin(id);
            }
            self.settle(id);
        }
        new
    }

    /// Gives up all cached blocks that no live lease covers and no pin names.
    pub(crate) fn flush(&mut self, index: &mut PrefixIndex) {
        while let Some(id) = self.order.pop() {
            self.give_up(id, index);
        }
    }

    /// Returns whether write-back is to take blocks down: there were more warm ones than above the high watermark, and
    /// are more than the low one allows. A block is warm that is neither free nor cold.
    pub(crate) fn is_cooling(&mut self, watermarks: Watermarks) -> bool {
        let (high, low) = watermarks.blocks(self.total());
        let warm = self.total() - self.free.len() as u32 - self.order.cold_blocks();
        self.cooling = warm > if self.cooling { low } else { high };
        self.cooling
    }

    /// Takes the block that goes first out of the policy: it is cold now, and shall be written. What it is: its
    /// generation and identity.
    pub(crate) fn cool(&mut self) -> Option<(BlockId, Generation, BlockHash)> {
        let id = self.order.cool()?;
        Some((id, self.generation(id), self.hash(id)))
    }

    /// Returns the same with the block that goes first of a tenant that has more warm blocks than the high watermark
    /// allows of its quota.
    pub(crate) fn cool_by_quota(&mut self) -> Option<(BlockId, Generation, BlockHash)> {
        let id = self.order.cool_by_quota()?;
        Some((id, self.generation(id), self.hash(id)))
    }

    /// Notes that the time is `now`.
    pub(crate) fn pass(&mut self, now: Time) {
        self.order.pass(now);
    }

    /// Returns the block that could be given up for longest, and since when.
    pub(crate) fn longest_idle(&self) -> Option<(BlockId, Time)> {
        self.order.longest_idle()
    }

    /// Marks the block, which may be given up, to leave when [`depart`](Self::depart) is called, unless it is used
    /// before.
    pub(crate) fn park(&mut self, id: BlockId) {
        self.order.park(id);
    }

    /// Returns whether the block is to be parked, and nothing reads it.
    pub(crate) fn may_depart(&self, id: BlockId) -> bool {
        self.order.may_depart(id) && self.is_evictable(id)
    }

    /// Lets the block leave, which may.
    pub(crate) fn depart(&mut self, id: BlockId, index: &mut PrefixIndex) {
        self.order.depart(id);
        self.give_up(id, index);
        self.parked += 1;
    }

    /// Counts a lookup: blocks taken over and blocks that were missing.
    pub(crate) fn count_lookup(&mut self, hits: u32, misses: u32) {
        self.hits += u64::from(hits);
        self.misses += u64::from(misses);
    }

    /// Returns whether more than one sequence uses the block.
    pub(crate) fn is_shared(&self, id: BlockId) -> bool {
        self.blocks[id.0 as usize].users > 1
    }

    /// Returns whether a sequence uses the block.
    pub(crate) fn is_used(&self, id: BlockId) -> bool {
        self.blocks[id.0 as usize].users > 0
    }

    /// Returns whether the block can be had by others once the one sequence that uses it leaves it, unless a tier
    /// reads it just then.
    pub(crate) fn is_sole(&self, id: BlockId) -> bool {
        let block = &self.blocks[id.0 as usize];
        block.users == 1 && block.leases.is_empty() && !block.pinned
    }

    /// Returns the number of blocks that pins name.
    pub(crate) fn pinned(&self) -> u32 {
        self.pinned
    }

    /// Returns whether the block is cached, no live lease covers it and no pin names it.
    pub(crate) fn is_idle(&self, id: BlockId) -> bool {
        self.order.contains(id)
    }

    /// Returns whether the block is idle and no tier reads it.
    pub(crate) fn is_evictable(&self, id: BlockId) -> bool {
        self.is_idle(id) && !self.blocks[id.0 as usize].lent
    }

    /// Returns the live leases that cover the block.
    pub(crate) fn leases(&self, id: BlockId) -> &[LeaseId] {
        &self.blocks[id.0 as usize].leases
    }

    /// Returns the identity of a block that has one.
    pub(crate) fn hash(&self, id: BlockId) -> BlockHash {
        self.blocks[id.0 as usize].hash.expect("the block is sealed")
    }

    /// Returns the identity of the block that a sealed one continues.
    pub(crate) fn parent(&self, id: BlockId) -> Option<BlockHash> {
        self.blocks[id.0 as usize].parent
    }

    /// Returns the tenant of the block, if it is not free.
    pub(crate) fn tenant(&self, id: BlockId) -> Option<Tenant> {
        self.order.tenant(id)
    }

    /// Returns how often the block was taken.
    pub(crate) fn generation(&self, id: BlockId) -> Generation {
        self.blocks[id.0 as usize].generation
    }

    /// Returns the blocks that have their identity.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = (BlockId, Generation, BlockHash)> {
        let sealed = |(block, id): (&Block, u32)| Some((BlockId(id), block.generation, block.hash?));
        self.blocks.iter().zip(0..).filter_map(sealed)
    }

    /// Returns the counts.
    pub(crate) fn stats(&self) -> GroupStats {
        let [free, filling, in_use, cached] = self.counts;
        GroupStats {
            total: self.total(),
            free,
            filling,
            in_use,
            cached,
            evictable: self.evictable(),
            cold: self.order.cold_blocks(),
            leased: self.leased,
            pinned: self.pinned,
            evictions: self.evictions,
            quota_evictions: self.quota_evictions,
            parked: self.parked,
            hits: self.hits,
            misses: self.misses,
        }
    }

    /// Asserts the conservation law by its counters: cheap enough for every call, in release builds too.
    pub(crate) fn assert_conserved(&self) {
        let [free, filling, in_use, cached] = self.counts;
        let sum = self.free.len() as u32 + filling + in_use + cached;
        assert!(
            sum == self.total()
                && free == self.free.len() as u32
                && self.order.taken() == filling + in_use + cached
                && self.order.len() <= cached
                && self.pinned <= in_use + cached,
            "{}: blocks are not conserved: {:?}",
            self.group,
            self.stats()
        );
    }

    /// Asserts everything about the pool, block by block. `holders[b]` are the holders of block `b`.
    pub(crate) fn check(&self, holders: &[Holders], index: &PrefixIndex, pins: &PinTable) {
        self.assert_conserved();
        let mut counts = [0; STATES];
        let mut is_free = vec![false; self.blocks.len()];
        for id in &self.free {
            assert!(!std::mem::replace(&mut is_free[id.0 as usize], true), "{id} is free twice");
        }
        let (mut leased, mut evictable, mut indexed, mut pinned) = (0, 0, 0, 0);
        for (number, block) in self.blocks.iter().enumerate() {
            let id = BlockId(number as u32);
            let mut leases = block.leases.clone();
            leases.sort_unstable();
            let found = Holders { users: block.users, copies: block.holds, tiers: block.reads, leases };
            assert_eq!(found, holders[number], "holders of {id}");
            let held = block.users + block.holds > 0;
            let named = block.indexed && block.hash.is_some_and(|hash| pins.names(self.group, hash));
            assert_eq!(block.pinned, named, "{id} and the pins");
            let idle = !held && block.leases.is_empty();
            let expected = match block {
                Block { indexed: false, reads: 0, .. } if idle => State::Free,
                Block { full: false, .. } => State::Filling,
                Block { indexed: true, .. } if !held => State::Cached,
                _ => State::InUse,
            };
            assert_eq!(block.state, expected, "state of {id}");
            assert_eq!(is_free[number], expected == State::Free, "{id} and the free list");
            assert_eq!(
                self.is_idle(id),
                expected == State::Cached && idle && !block.pinned,
                "{id} and the eviction policy"
            );
            assert_eq!(block.lent, self.is_idle(id) && block.reads > 0, "{id} and the tiers");
            assert!(expected == State::Free || block.generation.0 > 0, "{id} was taken under no generation");
            if block.indexed {
                let named = block.hash.and_then(|hash| index.get(self.group, hash));
                assert_eq!((block.full, named), (true, Some(id)), "{id} and the index");
            }
            assert!(!self.order.is_cold(id) || block.indexed && block.users == 0, "{id} is cold and used");
            counts[expected as usize] += 1;
            pinned += u32::from(block.pinned);
            leased += u32::from(!block.leases.is_empty());
            evictable += u32::from(self.is_evictable(id));
            indexed += usize::from(block.indexed);
        }
        assert_eq!(counts, self.counts, "blocks by state");
        assert_eq!(pinned, self.pinned, "pinned blocks");
        self.order.check();
        assert_eq!((leased, evictable), (self.leased, self.evictable()), "leased and evictable blocks");
        assert_eq!(indexed, index.len(self.group), "the index names only blocks that know of it");
    }

    /// Feeds what the future of the blocks depends on, but for the ids of leases and the order of eviction.
    #[cfg(feature = "explore")]
    pub(crate) fn digest(&self, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        for (id, block) in (0..).map(BlockId).zip(&self.blocks) {
            (block.state as u8, block.generation, block.users, block.holds, block.reads, block.leases.len())
                .hash(hasher);
            (block.full, block.hash, block.indexed, self.is_evictable(id)).hash(hasher);
        }
        self.free.hash(hasher);
    }

    fn evictable(&self) -> u32 {
        self.order.len() - self.lent
    }

    fn block(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.0 as usize]
    }

    /// Frees a cached block that is not in the order any more.
    fn give_up(&mut self, id: BlockId, index: &mut PrefixIndex) {
        index.remove(self.group, self.hash(id));
        let block = &mut self.blocks[id.0 as usize];
        block.indexed = false;
        // It could be had before.
        let given_back = self.given_back;
        self.settle(id);
        self.given_back = given_back;
    }

    /// Notes that the block may be given up from now on.
    fn enter(&mut self, id: BlockId) {
        let Block { hash, parent, .. } = self.blocks[id.0 as usize];
        self.order.enter(id, hash.expect("a cached block is sealed"), parent);
    }

    /// Derives the block's state from what holds it and what it holds, and moves it to where it belongs.
    fn settle(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.0 as usize];
        let held = block.users + block.holds > 0;
        let leased = !block.leases.is_empty() && !planted_bugs::is(Bug::ReuseUnderLease);
        let state = if !held && block.reads == 0 && !leased && !block.indexed {
            State::Free
        } else if !block.full {
            State::Filling
        } else if held || !block.indexed {
            State::InUse
        } else {
            State::Cached
        };
        let before = std::mem::replace(&mut block.state, state);
        let idle = state == State::Cached && !leased && !block.pinned;
        let lent = idle && block.reads > 0;
        let could_be_had = before == State::Free || self.order.contains(id) && !block.lent;
        self.given_back += u64::from(!could_be_had && (state == State::Free || idle && !lent));
        self.lent = self.lent + u32::from(lent) - u32::from(std::mem::replace(&mut block.lent, lent));
        match (self.order.contains(id), idle) {
            (false, true) => self.enter(id),
            (true, false) => self.order.exit(id),
            _ => {}
        }
        self.counts[before as usize] -= 1;
        self.counts[state as usize] += 1;
        match (before, state) {
            (State::Free, State::Free) => unreachable!("{id} is free and was touched"),
            (_, State::Free) => {
                let block = &mut self.blocks[id.0 as usize];
                block.full = false;
                block.hash = None;
                block.parent = None;
                self.order.free(id);
                self.free.push(id);
            }
            _ => {}
        }
    }
}

mod order;
