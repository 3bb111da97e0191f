//! A membership that the configuration names and that never changes.

use crate::{Change, Discovery, Endpoint, Member};
use domain::WorkerId;
use domain::session::Role;
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

/// Most members of a static list; a longer one is a mistake or wants a real directory.
pub const MEMBERS_MAX: usize = 1024;

/// The members, all up from the beginning.
#[derive(Clone, Debug)]
pub struct StaticList {
    members: Vec<Member>,
    /// How many of them [`Discovery::poll`] has named.
    told: usize,
}

/// Why a list is no membership.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticListError {
    /// More than [`MEMBERS_MAX`].
    #[error("{0} workers are listed, at most {MEMBERS_MAX} can be")]
    TooMany(usize),
    /// Nobody can make tokens.
    #[error("no decode worker is listed: at least one is needed, prefill workers are optional")]
    NoDecode,
    /// An id stands twice.
    #[error("worker id {} is listed twice", .0.0)]
    SameId(WorkerId),
    /// A name stands twice.
    #[error("worker name {0:?} is listed twice")]
    SameName(String),
    /// An address stands twice.
    #[error("workers {first:?} and {second:?} have the same address {address}")]
    SameAddress {
        /// Name of the worker listed first.
        first: String,
        /// Name of the other.
        second: String,
        /// Their address.
        address: String,
    },
    /// Not an address.
    #[error("the address {address:?} of worker {name:?} is not HOST:PORT")]
    BadAddress {
        /// The worker.
        name: String,
        /// Its address as written.
        address: String,
    },
}

impl StaticList {
    /// The members as they are listed. Errors: [`StaticListError`].
    pub fn new(members: Vec<Member>) -> Result<Self, StaticListError> {
        if members.len() > MEMBERS_MAX {
            return Err(StaticListError::TooMany(members.len()));
        }
        if !members.iter().any(|member| member.role == Role::Decode) {
            return Err(StaticListError::NoDecode);
        }
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for (position, member) in members.iter().enumerate() {
            if !ids.insert(member.id) {
                return Err(StaticListError::SameId(member.id));
            }
            if !names.insert(&member.name) {
                return Err(StaticListError::SameName(member.name.clone()));
            }
            check_endpoint(member, &members[..position])?;
        }
        Ok(Self { members, told: 0 })
    }

    /// Workers that are threads of this process: ids from 1, prefill workers first. Errors: [`StaticListError`].
    pub fn in_process(prefill: usize, decode: usize) -> Result<Self, StaticListError> {
        let total = prefill.saturating_add(decode);
        if total > MEMBERS_MAX {
            return Err(StaticListError::TooMany(total));
        }
        let prefills = (1..=prefill).map(|number| (Role::Prefill, format!("prefill-{number}")));
        let decodes = (1..=decode).map(|number| (Role::Decode, format!("decode-{number}")));
        let members = prefills.chain(decodes).zip(1..).map(|((role, name), id)| Member {
            id: WorkerId(id),
            role,
            name,
            endpoint: Endpoint::InProcess,
        });
        Self::new(members.collect())
    }

    /// The members.
    pub fn members(&self) -> &[Member] {
        &self.members
    }
}

impl Discovery for StaticList {
    fn poll(&mut self) -> Option<Change> {
        let member = self.members.get(self.told)?;
        self.told += 1;
        Some(Change::Up(member.clone()))
    }
}

fn check_endpoint(member: &Member, earlier: &[Member]) -> Result<(), StaticListError> {
    let Endpoint::Address(address) = &member.endpoint else { return Ok(()) };
    let well_formed = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0));
    if !well_formed {
        return Err(StaticListError::BadAddress { name: member.name.clone(), address: address.clone() });
    }
    match earlier.iter().find(|other| other.endpoint == member.endpoint) {
        Some(other) => Err(StaticListError::SameAddress {
            first: other.name.clone(),
            second: member.name.clone(),
            address: address.clone(),
        }),
        None => Ok(()),
    }
}
