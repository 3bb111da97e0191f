//! Addresses that the configuration names and that never change.

use crate::{Address, AddressError, Change, Discovery};
use std::collections::BTreeSet;

/// Most workers of a static list; a longer one is a mistake or wants a real directory.
pub const WORKERS_MAX: usize = 4096;

/// The addresses, all there from the beginning.
#[derive(Clone, Debug)]
pub struct StaticList {
    addresses: Vec<Address>,
    /// How many of them [`Discovery::poll`] has named.
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
    fn poll(&mut self) -> Option<Change> {
        let address = self.addresses.get(self.told)?;
        self.told += 1;
        Some(Change::Up(address.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        StaticList::parse(text).expect_err("it is refused").to_string()
    }

    #[test]
    fn every_address_comes_up_once() {
        let mut list = StaticList::parse("a:1, b:2,\nc:3,").expect("a list");
        let mut seen = Vec::new();
        while let Some(Change::Up(address)) = list.poll() {
            seen.push(address.to_string());
        }
        assert_eq!(seen, ["a:1", "b:2", "c:3"]);
        assert_eq!(list.poll(), None);
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
