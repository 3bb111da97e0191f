//! The accounts of tenants: each has a place of its own for as long as it is there, so that a slot finds the
//! account of its tenant without a search.

use domain::Tenant;
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// What a tenant has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    pub(super) tenant: Tenant,
    pub(super) taken: u32,
    pub(super) cold: u32,
    /// Of those that may be given up, the warm ones and the cold ones.
    pub(super) idle: [Ends; 2],
    /// It has more than its quota.
    pub(super) is_over: bool,
    /// It has more warm ones than it may.
    pub(super) is_crowded: bool,
}

/// The slot that may be given up for longest, and the one for shortest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    pub(super) oldest: Option<u32>,
    pub(super) newest: Option<u32>,
}

/// Where an account is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AccountId(u32);

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    all: Vec<Account>,
    places: BTreeMap<Tenant, AccountId>,
    /// Places of accounts that were closed.
    free: Vec<AccountId>,
    /// The one that was opened last, if it was not closed: a sequence takes its slots one after the other.
    recent: Option<AccountId>,
}

impl Accounts {
    /// Returns the tenant's account, which is empty if there was none.
    pub(super) fn open(&mut self, tenant: Tenant) -> AccountId {
        if let Some(place) = self.place(tenant) {
            self.recent = Some(place);
            return place;
        }
        let account =
            Account { tenant, taken: 0, cold: 0, idle: Default::default(), is_over: false, is_crowded: false };
        let place = match self.free.pop() {
            Some(place) => {
                self[place] = account;
                place
            }
            None => {
                self.all.push(account);
                AccountId(self.all.len() as u32 - 1)
            }
        };
        self.places.insert(tenant, place);
        self.recent = Some(place);
        place
    }

    /// Closes an account that no slot has any more.
    pub(super) fn close(&mut self, place: AccountId) {
        let tenant = self[place].tenant;
        let closed = self.places.remove(&tenant);
        assert_eq!(closed, Some(place), "the account of {tenant:?}");
        self.free.push(place);
        self.recent.take_if(|recent| *recent == place);
    }

    pub(super) fn of(&self, tenant: Tenant) -> Option<&Account> {
        self.place(tenant).map(|place| &self[place])
    }

    fn place(&self, tenant: Tenant) -> Option<AccountId> {
        let recent = self.recent.filter(|&recent| self[recent].tenant == tenant);
        recent.or_else(|| self.places.get(&tenant).copied())
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the accounts in the order of tenants.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Account> {
        self.places.values().map(|&place| &self[place])
    }
}

impl Index<AccountId> for Accounts {
    type Output = Account;

    fn index(&self, place: AccountId) -> &Account {
        &self.all[place.0 as usize]
    }
}

impl IndexMut<AccountId> for Accounts {
    fn index_mut(&mut self, place: AccountId) -> &mut Account {
        &mut self.all[place.0 as usize]
    }
}
