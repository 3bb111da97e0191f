//! Whose the slots of a store are (the blocks of a pool, or what a tier holds of a group): how many each tenant
//! has, against its quota, which of its own it would miss least, and which of them are to be written to a lower
//! place before they go.
//!
//! A quota bounds what a tenant takes from others, not what it uses while no other tenant wants it. A tenant that has
//! as much as its quota gives up its own blocks before those of others, and the one first that was used longest ago. A
//! tenant that has more gives the excess back first. A tenant that is alone is not bound. So no tenant loses what is
//! within its quota to another, under two conditions: the quotas of the tenants fit the store together, and no tenant
//! holds on to more than its quota at once.
//!
//! What is deliberately absent: which slots may be given up at all, which the owner of the slots knows, and which
//! one goes where no quota says so, which is the eviction policy's.

mod accounts;

use accounts::{Account, AccountId, Accounts, Ends};
use domain::Tenant;
use domain::planted_bugs::{self, Bug};
use std::collections::{BTreeMap, BTreeSet};

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    /// Whose it is, if it is taken.
    tenant: Option<Tenant>,
    /// Where that one's account is, if it has one.
    account: Option<AccountId>,
    /// It is in a lower place too, or is to be written there.
    cold: bool,
    /// It may be given up, and is between these of its tenant's, cold or warm as it is.
    idle: bool,
    older: Option<u32>,
    newer: Option<u32>,
}

const FREE: Node = Node { tenant: None, account: None, cold: false, idle: false, older: None, newer: None };

/// The slots and their tenants. Taking and giving up a slot take time that is logarithmic in the number of
/// tenants; what happens to it meanwhile does only where it makes a tenant have more than it may, or no more.
#[derive(Clone, Debug)]
pub(crate) struct Tenants {
    /// Slots that are a tenant's quota. `None`: there are no quotas, and no accounts.
    quota: Option<u32>,
    /// Warm ones that a tenant may have before some are to be written.
    high: u32,
    nodes: Vec<Node>,
    taken: u32,
    /// Accounts of the tenants that have a slot: no more than there are slots. Slots whose tenant is not known have
    /// none.
    accounts: Accounts,
    /// Those that have more than their quota.
    over: BTreeSet<Tenant>,
    /// Those that have more warm ones than they may.
    crowded: BTreeSet<Tenant>,
}

impl Tenants {
    /// Bytes that each slot takes.
    pub(crate) const SLOT_BYTES: usize = size_of::<Node>();

    /// Makes the table of so many free slots. Each tenant has the share `percent` as its quota (100: there are no
    /// quotas), and the share `high_percent` of its quota for warm slots.
    pub(crate) fn new(slots: u32, percent: u32, high_percent: u32) -> Self {
        let share = |of: u32, percent: u32| (u64::from(of) * u64::from(percent) / 100) as u32;
        let quota = (percent < 100).then(|| share(slots, percent));
        Self {
            quota,
            high: share(quota.unwrap_or(slots), high_percent),
            nodes: vec![FREE; slots as usize],
            taken: 0,
            accounts: Accounts::default(),
            over: BTreeSet::new(),
            crowded: BTreeSet::new(),
        }
    }

    /// Notes that the tenant takes the slot, which is free.
    pub(crate) fn take(&mut self, slot: u32, tenant: Tenant) {
        let account = self.open(tenant);
        let before = std::mem::replace(self.node(slot), Node { tenant: Some(tenant), account, ..FREE });
        assert_eq!(before, FREE, "slot {slot} is taken already");
        self.taken += 1;
        self.change(account, |account| account.taken += 1);
    }

    /// Notes that the slot, which may not be given up, is free.
    pub(crate) fn free(&mut self, slot: u32) {
        let Node { tenant, account, cold, idle, .. } = std::mem::replace(self.node(slot), FREE);
        assert!(tenant.is_some() && !idle, "slot {slot}, which may be given up: {idle}, is freed");
        self.taken -= 1;
        self.change(account, |account| {
            account.taken -= 1;
            account.cold -= u32::from(cold);
        });
    }

    /// Gives the slot, which may not be given up, to this tenant, if its tenant was not known.
    pub(crate) fn claim(&mut self, slot: u32, tenant: Tenant) {
        let node = *self.node(slot);
        assert!(!node.idle, "slot {slot} is claimed and may be given up");
        if node.tenant == Some(Tenant::UNKNOWN) {
            let account = self.open(tenant);
            *self.node(slot) = Node { tenant: Some(tenant), account, ..node };
            self.change(account, |account| account.taken += 1);
        }
    }

    /// Notes that the slot, which is taken, may be given up from now on.
    pub(crate) fn enter(&mut self, slot: u32) {
        let Some(ends) = self.ends(slot) else { return };
        let older = ends.newest.replace(slot);
        ends.oldest.get_or_insert(slot);
        if let Some(older) = older {
            self.node(older).newer = Some(slot);
        }
        let node = self.node(slot);
        assert!(!node.idle, "slot {slot} may be given up already");
        *node = Node { idle: true, older, ..*node };
    }

    /// Notes that the slot may not be given up, until it enters again.
    pub(crate) fn exit(&mut self, slot: u32) {
        let Node { older, newer, .. } = self.nodes[slot as usize];
        let Some(ends) = self.ends(slot) else { return };
        if ends.oldest == Some(slot) {
            ends.oldest = newer;
        }
        if ends.newest == Some(slot) {
            ends.newest = older;
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

    /// Notes that the slot, which may be given up, is cold from now on.
    pub(crate) fn chill(&mut self, slot: u32) {
        self.exit(slot);
        self.set_cold(slot, true);
        self.enter(slot);
    }

    /// Notes that the slot, which may not be given up, is not cold any more.
    pub(crate) fn warm(&mut self, slot: u32) {
        self.set_cold(slot, false);
    }

    /// Returns the tenant of the slot, if it is taken.
    pub(crate) fn of(&self, slot: u32) -> Option<Tenant> {
        self.nodes[slot as usize].tenant
    }

    /// Returns the number of slots that are taken.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// Returns whether the tenant has as much as its quota, or more, and others have something too.
    pub(crate) fn is_full(&self, tenant: Tenant) -> bool {
        let Some(quota) = self.quota_of(tenant) else { return false };
        let account = self.accounts.of(tenant);
        let others = self.accounts.len() > usize::from(account.is_some());
        others && account.map_or(0, |account| account.taken) >= quota && !planted_bugs::is(Bug::QuotaNotKept)
    }

    /// Returns the tenant's slot that goes first: the one that may be given up for longest, of the cold ones or, if
    /// there are none, of the warm ones.
    pub(crate) fn oldest(&self, tenant: Tenant) -> Option<u32> {
        let [warm, cold] = self.accounts.of(tenant)?.idle;
        cold.oldest.or(warm.oldest)
    }

    /// Returns the warm slot that may be given up for longest, of a tenant that is not alone and has more warm ones
    /// than it may.
    pub(crate) fn oldest_warm(&self) -> Option<u32> {
        let mut crowded = self.crowded.iter().filter(|_| self.accounts.len() > 1);
        crowded.find_map(|&tenant| self.accounts.of(tenant)?.idle[0].oldest)
    }

    /// Returns the slot that goes first of another tenant that has more than its quota.
    pub(crate) fn oldest_over(&self, tenant: Tenant) -> Option<u32> {
        let mut others = self.over.iter().filter(|&&over| over != tenant);
        others.find_map(|&over| self.oldest(over))
    }

    /// Asserts that accounts and slots agree, slot by slot; `idle` says which of them may be given up.
    pub(crate) fn check(&self, idle: impl Fn(u32) -> bool) {
        let mut taken = 0;
        let mut counts = BTreeMap::<Tenant, (u32, u32, u32)>::new();
        for (slot, node) in (0..).zip(&self.nodes) {
            let Some(tenant) = node.tenant else {
                assert_eq!(*node, FREE, "slot {slot} is free");
                continue;
            };
            taken += 1;
            let account = node.account.map(|place| self.accounts[place].tenant);
            assert_eq!(account, self.quota_of(tenant).map(|_| tenant), "slot {slot} and its account");
            if account.is_some() {
                assert_eq!(node.idle, idle(slot), "slot {slot} and whether it may be given up");
                let counts = counts.entry(tenant).or_default();
                *counts = (counts.0 + 1, counts.1 + u32::from(node.cold), counts.2 + u32::from(node.idle));
            }
        }
        assert_eq!(taken, self.taken, "slots that are taken");
        let tenants = self.accounts.iter().map(|account| &account.tenant);
        assert!(tenants.eq(counts.keys()), "there is an account of each tenant that has something");
        for account in self.accounts.iter() {
            let tenant = &account.tenant;
            let idle: u32 =
                [false, true].map(|cold| self.check_idle(cold, account.idle[usize::from(cold)])).iter().sum();
            assert_eq!((account.taken, account.cold, idle), counts[tenant], "slots of {tenant:?}");
            let over = self.quota.is_some_and(|quota| account.taken > quota);
            let crowded = account.taken - account.cold > self.high;
            let told = (self.over.contains(tenant), self.crowded.contains(tenant));
            assert_eq!(told, (over, crowded), "{tenant:?} and its quota");
            assert_eq!((account.is_over, account.is_crowded), told, "what {tenant:?} knows of it");
        }
        let mut told = self.over.union(&self.crowded);
        assert!(told.all(|&tenant| self.accounts.of(tenant).is_some()), "who is gone has no quota");
    }

    /// Asserts that all between these ends are cold, or are not. How many they are.
    fn check_idle(&self, cold: bool, Ends { oldest, newest }: Ends) -> u32 {
        let (mut slot, mut last, mut count) = (oldest, None, 0);
        while let Some(at) = slot {
            let node = self.nodes[at as usize];
            assert!(node.idle && node.cold == cold && node.older == last, "slot {at} is where it should not be");
            (slot, last, count) = (node.newer, slot, count + 1);
        }
        assert_eq!(last, newest, "the newest one");
        count
    }

    /// Returns the account of the tenant; `None`: it has no quota.
    fn open(&mut self, tenant: Tenant) -> Option<AccountId> {
        self.quota_of(tenant).map(|_| self.accounts.open(tenant))
    }

    /// Changes what a tenant has, if it has an account.
    fn change(&mut self, place: Option<AccountId>, change: impl FnOnce(&mut Account)) {
        let (Some(place), Some(quota)) = (place, self.quota) else { return };
        let account = &mut self.accounts[place];
        change(account);
        let Account { tenant, taken, cold, .. } = *account;
        let told = [
            (&mut self.over, &mut account.is_over, taken > quota),
            (&mut self.crowded, &mut account.is_crowded, taken - cold > self.high),
        ];
        for (set, was, is) in told {
            if std::mem::replace(was, is) == is {
                continue;
            }
            if is {
                set.insert(tenant);
            } else {
                set.remove(&tenant);
            }
        }
        if taken == 0 {
            self.accounts.close(place);
        }
    }

    fn set_cold(&mut self, slot: u32, cold: bool) {
        let node = self.node(slot);
        assert!(!node.idle && node.cold != cold, "slot {slot} and whether it is cold");
        node.cold = cold;
        let account = node.account;
        self.change(account, |account| if cold { account.cold += 1 } else { account.cold -= 1 });
    }

    /// Returns the tenant's quota. `None`: there are no quotas, or the tenant is not known.
    fn quota_of(&self, tenant: Tenant) -> Option<u32> {
        self.quota.filter(|_| tenant != Tenant::UNKNOWN)
    }

    /// Returns the ends of the list in which the slot is while it may be given up. `None`: its tenant has no account.
    fn ends(&mut self, slot: u32) -> Option<&mut Ends> {
        let Node { account, cold, .. } = self.nodes[slot as usize];
        Some(&mut self.accounts[account?].idle[usize::from(cold)])
    }

    fn node(&mut self, slot: u32) -> &mut Node {
        &mut self.nodes[slot as usize]
    }
}
