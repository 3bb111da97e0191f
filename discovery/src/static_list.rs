//! Addresses that the configuration names and that never change.

use crate::table::WORKERS_MAX;
use crate::{About, Address, AddressError, Change, Discovery, Key, Member};
use std::collections::BTreeSet;

/// The addresses, all there from the beginning.
#[derive(Clone, Debug)]
pub struct StaticList {
    addresses: Vec<Address>,
    /// How many of them [`Discovery::next`] has named.
    told: usize,
}

/// Why a list names no workers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticListError {
    /// More than [`WORKERS_MAX`].
    #[error("{0} workers are listed, at most {WORKERS_MAX} can be")]
    TooMany(usize),
    /// An address stands twice.
    #[error("{0} is listed twice")]
    Twice(Address),
    /// Not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl StaticList {
    /// Reads the addresses in `text`, with commas between them. Errors: [`StaticListError`].
    pub fn parse(text: &str) -> Result<Self, StaticListError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let addresses: Vec<Address> = parts.map(str::parse).collect::<Result<_, _>>()?;
        if addresses.len() > WORKERS_MAX {
            return Err(StaticListError::TooMany(addresses.len()));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = addresses.iter().find(|&address| !seen.insert(address)) {
            return Err(StaticListError::Twice(twice.clone()));
        }
        Ok(Self { addresses, told: 0 })
    }

    /// Returns all addresses.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }
}

impl Discovery for StaticList {
    async fn next(&mut self) -> Change {
        let Some(address) = self.addresses.get(self.told).cloned() else { return std::future::pending().await };
        self.told += 1;
        Change::Joined(Member { key: Key(address.to_string()), address, about: About::Nothing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    fn refused(text: &str) -> String {
        StaticList::parse(text).expect_err("it is refused").to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn every_address_joins_once() {
        let mut list = StaticList::parse("a:1, b:2,\nc:3,").expect("a list");
        let mut seen = Vec::new();
        while let Ok(change) = timeout(Duration::from_secs(1), list.next()).await {
            let Change::Joined(member) = change else { panic!("{change:?}") };
            seen.push(member.address.to_string());
        }
        assert_eq!(seen, ["a:1", "b:2", "c:3"]);
        assert!(StaticList::parse(" ").expect("an empty list").addresses().is_empty());
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(refused("a:1,b:2,a:1"), "a:1 is listed twice");
        assert_eq!(refused("a:1,b"), "\"b\" is not HOST:PORT");
        let many = (1..=WORKERS_MAX + 1).map(|port| format!("h:{port}")).collect::<Vec<_>>().join(",");
        assert_eq!(refused(&many), "4097 workers are listed, at most 4096 can be");
    }
}
