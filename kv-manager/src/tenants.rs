//! Whose the slots of a store are (the blocks of a pool, or what a tier holds of a group): how many each tenant has, against its
//! quota, and which of its own it would miss least.
//!
//! A quota bounds what a tenant takes from others, not what it uses while nobody else wants it. Whoever has as much as its quota
//! gives up its own before anybody else's, the one first that was used longest ago; whoever has more gives that back first. A
//! tenant that is alone is bound by nothing. So as long as the quotas of those who are there fit the store together, and
//! nobody holds on to more than its quota at once, none of them loses what is within its quota to another.
//!
//! What is deliberately absent: which slots may be given up at all, which the owner of the slots knows, and which one goes where no
//! quota says so, which is the eviction policy's.

use domain::Tenant;
use std::collections::{BTreeMap, BTreeSet};

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    /// Whose it is, if it is taken.
    tenant: Option<Tenant>,
    /// It may be given up, and is between these of its tenant's.
    idle: bool,
    older: Option<u32>,
    newer: Option<u32>,
}

const FREE: Node = Node { tenant: None, idle: false, older: None, newer: None };

/// What a tenant has.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    taken: u32,
    /// Of those that may be given up: the one that may be for longest, and for shortest.
    oldest: Option<u32>,
    newest: Option<u32>,
}

/// The slots and their tenants. Every operation takes time that is logarithmic in the number of tenants.
#[derive(Clone, Debug)]
pub(crate) struct Tenants {
    /// Slots that are a tenant's quota. `None`: there are no quotas, and no accounts.
    quota: Option<u32>,
    nodes: Vec<Node>,
    taken: u32,
    /// Of those that have a slot: no more than there are slots. What is nobody knows whose has none.
    accounts: BTreeMap<Tenant, Account>,
    /// Those that have more than their quota.
    over: BTreeSet<Tenant>,
}

impl Tenants {
    /// So many slots, none of which is taken, of which each tenant has this share as its quota; 100: there are no quotas.
    pub(crate) fn new(slots: u32, percent: u32) -> Self {
        let quota = (percent < 100).then(|| (u64::from(slots) * u64::from(percent) / 100) as u32);
        Self { quota, nodes: vec![FREE; slots as usize], taken: 0, accounts: BTreeMap::new(), over: BTreeSet::new() }
    }

    /// The tenant takes the slot, which is free.
    pub(crate) fn take(&mut self, slot: u32, tenant: Tenant) {
        let before = std::mem::replace(self.node(slot), Node { tenant: Some(tenant), ..FREE });
        assert_eq!(before, FREE, "slot {slot} is taken already");
        self.taken += 1;
        self.add(tenant);
    }

    /// The slot, which may not be given up, is free.
    pub(crate) fn free(&mut self, slot: u32) {
        let Node { tenant, idle, .. } = std::mem::replace(self.node(slot), FREE);
        let tenant = tenant.expect("what is freed was taken");
        assert!(!idle, "slot {slot} may be given up and is free");
        self.taken -= 1;
        let Some(quota) = self.quota_of(tenant) else { return };
        let account = self.accounts.get_mut(&tenant).expect("who has a slot has an account");
        account.taken -= 1;
        if account.taken <= quota {
            self.over.remove(&tenant);
        }
        if account.taken == 0 {
            self.accounts.remove(&tenant);
        }
    }

    /// The slot, which may not be given up, is this tenant's, if nobody knew whose it is.
    pub(crate) fn claim(&mut self, slot: u32, tenant: Tenant) {
        let node = self.node(slot);
        assert!(!node.idle, "slot {slot} is claimed and may be given up");
        if node.tenant == Some(Tenant::UNKNOWN) {
            node.tenant = Some(tenant);
            self.add(tenant);
        }
    }

    /// The slot, which is taken, may be given up from now on.
    pub(crate) fn enter(&mut self, slot: u32) {
        let Some(account) = self.account(slot) else { return };
        let older = account.newest.replace(slot);
        account.oldest.get_or_insert(slot);
        if let Some(older) = older {
            self.node(older).newer = Some(slot);
        }
        let node = self.node(slot);
        assert!(!node.idle, "slot {slot} may be given up already");
        *node = Node { idle: true, older, ..*node };
    }

    /// The slot may be given up no more, until it enters again.
    pub(crate) fn exit(&mut self, slot: u32) {
        let Node { older, newer, .. } = self.nodes[slot as usize];
        let Some(account) = self.account(slot) else { return };
        if account.oldest == Some(slot) {
            account.oldest = newer;
        }
        if account.newest == Some(slot) {
            account.newest = older;
        }
        if let Some(older) = older {
            self.node(older).newer = newer;
        }
        if let Some(newer) = newer {
            self.node(newer).older = older;
        }
        let node = self.node(slot);
        assert!(node.idle, "slot {slot} may not be given up");
        *node = Node { idle: false, older: None, newer: None, ..*node };
    }

    /// Whose the slot is, which is taken.
    pub(crate) fn of(&self, slot: u32) -> Tenant {
        self.nodes[slot as usize].tenant.expect("the slot is taken")
    }

    /// Slots that are taken.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// Whether the tenant has as much as its quota, or more, and others have something too.
    pub(crate) fn is_full(&self, tenant: Tenant) -> bool {
        let others = self.accounts.len() > usize::from(self.accounts.contains_key(&tenant));
        let taken = self.accounts.get(&tenant).map_or(0, |account| account.taken);
        others && self.quota_of(tenant).is_some_and(|quota| taken >= quota)
    }

    /// The tenant's slot that may be given up for longest.
    pub(crate) fn oldest(&self, tenant: Tenant) -> Option<u32> {
        self.accounts.get(&tenant)?.oldest
    }

    /// The slot that may be given up for longest, of another tenant that has more than its quota.
    pub(crate) fn oldest_over(&self, tenant: Tenant) -> Option<u32> {
        let mut others = self.over.iter().filter(|&&over| over != tenant);
        others.find_map(|&over| self.oldest(over))
    }

    /// Asserts that accounts and slots agree, slot by slot; `idle` says which of them may be given up.
    pub(crate) fn check(&self, idle: impl Fn(u32) -> bool) {
        let mut taken = 0;
        let mut counts = BTreeMap::<Tenant, (u32, u32)>::new();
        for (slot, node) in (0..).zip(&self.nodes) {
            let Some(tenant) = node.tenant else {
                assert_eq!(*node, FREE, "slot {slot} is free");
                continue;
            };
            taken += 1;
            if self.quota_of(tenant).is_some() {
                assert_eq!(node.idle, idle(slot), "slot {slot} and whether it may be given up");
                let counts = counts.entry(tenant).or_default();
                *counts = (counts.0 + 1, counts.1 + u32::from(node.idle));
            }
        }
        assert_eq!(taken, self.taken, "slots that are taken");
        assert!(self.accounts.keys().eq(counts.keys()), "there is an account of each tenant that has something");
        for (tenant, account) in &self.accounts {
            let mut slot = account.oldest;
            let mut newest = None;
            let walk = std::iter::from_fn(|| {
                newest = slot.or(newest);
                slot = self.nodes[slot? as usize].newer;
                Some(())
            });
            let idle = walk.count() as u32;
            assert_eq!((account.taken, idle), counts[tenant], "slots of {tenant:?}");
            assert_eq!(newest, account.newest, "the newest of {tenant:?}");
            let over = self.quota.is_some_and(|quota| account.taken > quota);
            assert_eq!(self.over.contains(tenant), over, "{tenant:?} and its quota");
        }
        assert!(self.over.iter().all(|tenant| self.accounts.contains_key(tenant)), "who is gone has no quota");
    }

    /// The tenant has a slot more.
    fn add(&mut self, tenant: Tenant) {
        let Some(quota) = self.quota_of(tenant) else { return };
        let account = self.accounts.entry(tenant).or_default();
        account.taken += 1;
        if account.taken > quota {
            self.over.insert(tenant);
        }
    }

    /// The tenant's quota; `None`: it has none, for there are none, or since nobody knows who it is.
    fn quota_of(&self, tenant: Tenant) -> Option<u32> {
        self.quota.filter(|_| tenant != Tenant::UNKNOWN)
    }

    /// The account that the slot is in, if it is in one.
    fn account(&mut self, slot: u32) -> Option<&mut Account> {
        let tenant = self.nodes[slot as usize].tenant?;
        self.accounts.get_mut(&tenant)
    }

    fn node(&mut self, slot: u32) -> &mut Node {
        &mut self.nodes[slot as usize]
    }
}
