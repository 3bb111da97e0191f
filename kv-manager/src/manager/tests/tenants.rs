//! Tenants who say the same: none takes over what another one has, and none loses to another what is within its
//! quota, against a reference that knows of each block and each record whose it is.

use super::*;
use crate::tiers::{Place, ReadEnd, TierConfig, TierRecord, WriteEnd, WritePolicy};
use domain::{Scope, ScopeParts};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const BLOCKS: u32 = 12;
const SLOTS: u32 = 14;
/// The longest conversation, in blocks.
const CHAIN: u32 = 6;

/// What a tenant does; `talk` is one of its conversations, which are those of every other tenant too.
#[derive(Clone, Debug)]
enum Op {
    /// So many tokens more than are cached; the sequence stays open. One block of each group is taken.
    Open {
        tenant: usize,
        talk: u32,
        tokens: u32,
    },
    /// The oldest open sequence ends.
    Close,
    Park {
        tenant: usize,
        talk: u32,
    },
    Load {
        tenant: usize,
        talk: u32,
    },
    /// Only the tier is left, which may have forgotten whose its records are.
    Restart {
        forgets: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let (tenant, talk) = (0..3usize, 0..4u32);
    let of = (tenant, talk);
    prop_oneof![
        12 => (of.clone(), 1..=SIZE).prop_map(|((tenant, talk), tokens)| Op::Open { tenant, talk, tokens }),
        9 => Just(Op::Close),
        2 => of.clone().prop_map(|(tenant, talk)| Op::Park { tenant, talk }),
        4 => of.prop_map(|(tenant, talk)| Op::Load { tenant, talk }),
        1 => any::<bool>().prop_map(|forgets| Op::Restart { forgets }),
    ]
}

/// A percentage that is none of nothing, one of nothing, or anything between.
fn percent() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(100), 1 => Just(0), 6 => 1..100u32]
}

/// What a store has: whose what is, and what of it may be given up.
#[derive(Clone, Default, Debug)]
struct Store {
    total: u32,
    quota: Option<u32>,
    taken: BTreeMap<u32, usize>,
    idle: BTreeSet<u32>,
}

/// Whose slot must go.
#[derive(PartialEq, Eq, Debug)]
enum Whose {
    /// None does: one is free.
    Nobodys,
    /// That of one of these, as a quota says.
    OneOf(Vec<usize>),
    /// Any, or there is none.
    Any,
}

impl Store {
    fn has(&self, tenant: usize) -> u32 {
        self.taken.values().filter(|&&of| of == tenant).count() as u32
    }

    /// The rule, said once more.
    fn expected(&self, tenant: usize) -> Whose {
        if (self.taken.len() as u32) < self.total {
            return Whose::Nobodys;
        }
        let Some(quota) = self.quota else { return Whose::Any };
        let spares = |of: usize| self.idle.iter().any(|slot| self.taken[slot] == of);
        let among_others = (0..3).any(|other| other != tenant && self.has(other) > 0);
        if among_others && self.has(tenant) >= quota && spares(tenant) {
            return Whose::OneOf(vec![tenant]);
        }
        let over: Vec<_> = (0..3).filter(|&of| of != tenant && self.has(of) > quota && spares(of)).collect();
        if over.is_empty() { Whose::Any } else { Whose::OneOf(over) }
    }
}

struct World {
    config: KvConfig,
    kv: KvManager,
    scopes: [Scope; 3],
    open: Vec<SeqKey>,
    /// Whose a block is since its last use began.
    owners: HashMap<BlockRef, (Generation, usize)>,
    /// What the tier holds, and for whom: `3` is nobody knows whom.
    held: BTreeMap<Place, (BlockHash, usize)>,
    number: u64,
}

/// Index of a tenant whom nobody knows.
const UNKNOWN: usize = 3;

impl World {
    fn new(quotas: Quotas) -> Self {
        let config = KvConfig { quotas, ..config(&[(BLOCKS, None), (BLOCKS, Some(6))]) };
        let scope = |tenant| Scope::derive(&ScopeParts { weights: [0; 32], layout: 0, adapter: None, tenant });
        let scopes = ["", "one", "other"].map(scope);
        let kv = KvManager::new(config.clone());
        let (open, owners, held) = (Vec::new(), HashMap::new(), BTreeMap::new());
        let mut world = Self { config, kv, scopes, open, owners, held, number: 0 };
        world.add_tier(false);
        world
    }

    fn add_tier(&mut self, forgets: bool) {
        if forgets {
            self.held.values_mut().for_each(|(_, of)| *of = UNKNOWN);
        }
        let record = |(place, &(hash, of)): (&Place, &(BlockHash, usize))| {
            let tenant = self.scopes.get(of).map_or(Tenant::UNKNOWN, Scope::tenant);
            TierRecord { slot: place.slot, hash, tenant }
        };
        let records: Vec<_> = self.held.iter().map(record).collect();
        let tier = TierConfig { slots: vec![SLOTS; 2], writes_max: 4, backlog_max: 40, write: WritePolicy::Through };
        self.kv.add_tier(Tier::Disk, tier, &records);
    }

    fn chain(&self, tenant: usize, talk: u32, tokens: u32) -> Vec<BlockHash> {
        let mut chain = Vec::new();
        self.scopes[tenant].extend_chain(&mut chain, &vec![talk; tokens as usize], SIZE);
        chain
    }

    fn quota(&self, total: u32, percent: u32) -> Option<u32> {
        (percent < 100).then_some(total * percent / 100)
    }

    /// The blocks of a group that are not free, and those of them that may be given up.
    fn device(&self, group: GroupId) -> Store {
        let used = self.open.iter().flat_map(|&key| self.kv.tables(key)[at(group)].blocks.clone());
        let cached = self.kv.sealed().filter(|(of, ..)| of.group == group).filter_map(|(block, _, hash)| {
            Some(block.block).filter(|&block| self.kv.index.get(group, hash) == Some(block))
        });
        let of = |block: BlockId| (block.0, self.owners[&BlockRef { group, block }].1);
        let taken: BTreeMap<u32, usize> = used.chain(cached).map(of).collect();
        let pool = &self.kv.pools[at(group)];
        let idle = taken.keys().copied().filter(|&block| pool.is_evictable(BlockId(block))).collect();
        let quota = self.quota(BLOCKS, self.config.quotas.device_percent);
        Store { total: BLOCKS, quota, taken, idle }
    }

    fn tier(&self, group: GroupId) -> Store {
        let held = self.held.iter().filter(|(place, _)| place.slot.group == group);
        let taken: BTreeMap<u32, usize> = held.map(|(place, &(_, of))| (place.slot.slot, of)).collect();
        let (quota, idle) = (self.quota(SLOTS, self.config.quotas.disk_percent), taken.keys().copied().collect());
        Store { total: SLOTS, quota, taken, idle }
    }

    /// Every block that the sequence has is its tenant's, and what had to go for it was whose it should be.
    fn claim(&mut self, key: SeqKey, tenant: usize, before: &[Store], evictions: &[u64]) {
        for (group, table) in self.kv.groups().zip(self.kv.tables(key)) {
            let mut store = before[at(group)].clone();
            let mut fresh = Vec::new();
            for block in table.blocks {
                let generation = self.kv.generation(BlockRef { group, block });
                let owner = self.owners.entry(BlockRef { group, block }).or_insert((Generation(0), tenant));
                if owner.0 != generation {
                    *owner = (generation, tenant);
                    fresh.push(block);
                }
                assert_eq!(owner.1, tenant, "{block} of {group} is shared");
                store.idle.remove(&block.0);
            }
            let by_quota = self.kv.stats()[at(group)].quota_evictions - evictions[at(group)];
            let [block] = fresh[..] else { continue };
            let victim = before[at(group)].taken.get(&block.0).copied();
            // What went is in use no more; all else that the sequence has was taken before anything went.
            if victim.is_some() {
                store.idle.insert(block.0);
            }
            let expected = store.expected(tenant);
            match (&expected, victim) {
                (Whose::Nobodys, None) => assert_eq!(by_quota, 0),
                (Whose::OneOf(these), Some(victim)) if these.contains(&victim) => assert_eq!(by_quota, 1),
                (Whose::Any, Some(_)) => assert_eq!(by_quota, 0),
                _ => panic!("{tenant} takes what is {victim:?}'s, it should be {expected:?}: {store:?}"),
            }
        }
    }

    fn write_all(&mut self) {
        loop {
            let before = [0, 1].map(|group| self.tier(GroupId(group)));
            let Some(write) = self.kv.next_write() else { break };
            let (group, slot) = (write.place.slot.group, write.place.slot.slot);
            let owner = self.owners[&write.block].1;
            assert_eq!(write.tenant, self.scopes[owner].tenant(), "{write:?} is another's");
            let store = &before[at(group)];
            let (expected, victim) = (store.expected(owner), store.taken.get(&slot).copied());
            let right = match &expected {
                Whose::Nobodys => victim.is_none(),
                Whose::OneOf(these) => victim.is_some_and(|victim| these.contains(&victim)),
                Whose::Any => victim.is_some(),
            };
            assert!(right, "{owner} takes what is {victim:?}'s, it should be {expected:?}: {store:?}");
            self.held.insert(write.place, (write.hash, owner));
            self.kv.wrote(write.place, WriteEnd::Written);
        }
        let stats = self.kv.tier_stats().next().expect("there is a tier").1;
        assert!(stats.quota_refused == 0 || self.tier(GroupId(0)).quota == Some(0), "{stats:?}");
    }

    fn apply(&mut self, op: Op) {
        self.number += 1;
        let key = key(self.number);
        let before = [0, 1].map(|group| self.device(GroupId(group)));
        let evictions: Vec<_> = self.kv.stats().iter().map(|stats| stats.quota_evictions).collect();
        match op {
            Op::Open { tenant, talk, tokens } => {
                let cached = self.kv.cached_tokens(&self.chain(tenant, talk, CHAIN * SIZE));
                let tokens = (cached + tokens).min(CHAIN * SIZE);
                let chain = self.chain(tenant, talk, tokens);
                if let Admit::Ready { .. } = self.kv.open(key, self.scopes[tenant].tenant(), &chain, tokens, 1) {
                    self.claim(key, tenant, &before, &evictions);
                    self.kv.written(key, tokens, &chain);
                    self.open.push(key);
                }
            }
            Op::Close => self.open.drain(..self.open.len().min(1)).for_each(|key| self.kv.close(key)),
            Op::Park { tenant, talk } => {
                self.kv.park(&self.chain(tenant, talk, CHAIN * SIZE));
            }
            Op::Load { tenant, talk } => {
                let chain = self.chain(tenant, talk, CHAIN * SIZE);
                let tokens = self.kv.loadable_tokens(&chain, self.kv.cached_tokens(&chain));
                if let Some(reads) = self.kv.load(key, self.scopes[tenant].tenant(), &chain, tokens) {
                    self.claim(key, tenant, &before, &evictions);
                    for read in reads {
                        let holder = &mut self.held.get_mut(&read.place).expect("it is held").1;
                        assert!([tenant, UNKNOWN].contains(holder), "{read:?} is another's");
                        *holder = tenant;
                        self.kv.read_ended(&read, &chain, ReadEnd::Good);
                    }
                    self.kv.close(key);
                }
            }
            Op::Restart { forgets } => {
                self.kv = KvManager::new(self.config.clone());
                self.open.clear();
                self.owners.clear();
                self.add_tier(forgets);
            }
        }
        self.write_all();
        self.kv.check();
    }
}

proptest! {
    #[test]
    fn no_block_is_ever_two_tenants_and_quotas_hold(
        device_percent in percent(),
        disk_percent in percent(),
        ops in prop::collection::vec(op(), 0..120),
    ) {
        let mut world = World::new(Quotas { device_percent, disk_percent, ..Quotas::default() });
        ops.into_iter().for_each(|op| world.apply(op));
    }
}

fn open_and_close(kv: &mut KvManager, tenant: Tenant, name: u8, blocks: u8) {
    let tokens = u32::from(blocks) * SIZE;
    let admit = kv.open(key(u64::from(name)), tenant, &chain(name, blocks), tokens, 1);
    assert!(matches!(admit, Admit::Ready { .. }));
    kv.written(key(u64::from(name)), tokens, &chain(name, blocks));
    kv.close(key(u64::from(name)));
    kv.check();
}

#[test]
fn a_tenant_uses_what_nobody_wants_and_gives_it_back_but_keeps_its_quota() {
    let quotas = Quotas { device_percent: 50, ..Quotas::default() };
    let mut kv = KvManager::new(KvConfig { quotas, ..config(&[(10, None)]) });
    let (one, other) = (Tenant(1), Tenant(2));
    // Alone, it has everything, and goes by the policy.
    (1..=6).for_each(|name| open_and_close(&mut kv, one, name, 2));
    assert_eq!(kv.stats()[0].cached, 10);
    assert_eq!((kv.stats()[0].evictions, kv.stats()[0].quota_evictions), (2, 0));
    // The other one gets its half of it, and no more.
    (7..=9).for_each(|name| open_and_close(&mut kv, other, name, 2));
    let cached = |kv: &KvManager, names: &[u8]| -> Vec<u32> {
        names.iter().map(|&name| kv.cached_tokens(&chain(name, 2)) / SIZE).collect()
    };
    assert_eq!(cached(&kv, &[2, 3, 4, 5, 6]), [0, 0, 1, 2, 2]);
    assert_eq!(cached(&kv, &[7, 8, 9]), [1, 2, 2]);
    // However much the first one says from now on, only its own goes.
    (10..=30).for_each(|name| open_and_close(&mut kv, one, name, 2));
    assert_eq!(cached(&kv, &[7, 8, 9]), [1, 2, 2]);
    assert_eq!(kv.stats()[0].quota_evictions, 6 + 2 * 21);
    // What it uses at once is not bounded.
    assert!(matches!(kv.open(key(99), one, &[], 8 * SIZE, 1), Admit::Ready { .. }));
    assert_eq!(cached(&kv, &[7, 8, 9]).iter().sum::<u32>(), 2);
    kv.check();
}

#[test]
fn whose_a_record_is_outlives_a_restart() {
    let quotas = Quotas { disk_percent: 50, ..Quotas::default() };
    let mut kv = KvManager::new(KvConfig { quotas, ..config(&[(4, None)]) });
    let tier = TierConfig { slots: vec![4], writes_max: 1, backlog_max: 9, write: WritePolicy::Through };
    let record = |slot, tenant| {
        let slot = crate::tiers::Slot { group: GroupId(0), slot };
        TierRecord { slot, hash: chain(slot.slot as u8, 1)[0], tenant }
    };
    let (one, other) = (Tenant(1), Tenant(2));
    // The oldest is the other one's.
    kv.add_tier(Tier::Disk, tier, &[record(0, other), record(1, one), record(2, one), record(3, Tenant::UNKNOWN)]);
    open_and_close(&mut kv, one, 9, 1);
    let write = kv.next_write().expect("it is written through");
    assert_eq!((write.place.slot.slot, write.tenant), (1, one), "its own oldest goes");
    kv.wrote(write.place, WriteEnd::Written);
    let stats = kv.tier_stats().next().expect("there is a tier").1;
    assert_eq!((stats.evictions, stats.quota_evictions, stats.held), (0, 1, 4));
    kv.check();
}

#[test]
fn what_a_quota_names_has_been_written_back() {
    let quotas = Quotas { device_percent: 50, ..Quotas::default() };
    let watermarks = Watermarks { high_percent: 50, low_percent: 50 };
    let mut kv = KvManager::new(KvConfig { quotas, watermarks, ..config(&[(20, None)]) });
    let tier = TierConfig { slots: vec![100], writes_max: 9, backlog_max: 9, write: WritePolicy::Back };
    kv.add_tier(Tier::Host, tier, &[]);
    // What another one has stays within its quota.
    open_and_close(&mut kv, Tenant(2), 200, 2);
    for name in 1..=40 {
        open_and_close(&mut kv, Tenant(1), name, 2);
        while let Some(write) = kv.next_write() {
            kv.wrote(write.place, WriteEnd::Written);
            kv.check();
        }
    }
    assert!(kv.stats()[0].quota_evictions > 0, "{:?}", kv.stats());
    assert_eq!(kv.cached_tokens(&chain(200, 2)), 2 * SIZE);
    for name in 1..=40 {
        let chain = chain(name, 2);
        let there = kv.loadable_tokens(&chain, kv.cached_tokens(&chain));
        assert_eq!(there, 2 * SIZE, "{name} is lost");
    }
}
