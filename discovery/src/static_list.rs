//! Addresses that the configuration names.

use crate::table::WORKERS_MAX;
use crate::{About, Address, AddressError, Change, Discovery, Key, Member};
use std::collections::BTreeSet;
use std::future::pending;
use tokio::sync::watch;

/// The addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticList {
    addresses: Vec<Address>,
}

/// A list as a directory: it changes when the configuration does.
#[derive(Debug)]
pub struct StaticWatcher {
    list: watch::Receiver<StaticList>,
    /// Addresses that [`Discovery::next`] has named and that have not left.
    named: BTreeSet<Address>,
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
        Ok(Self { addresses })
    }

    /// Returns all addresses.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }
}

impl StaticWatcher {
    /// Follows a list, for as long as it can change.
    pub fn new(list: watch::Receiver<StaticList>) -> Self {
        Self { list, named: BTreeSet::new() }
    }

    /// Returns what the list has changed since it was last asked, one thing at a time.
    fn change(&mut self) -> Option<Change> {
        let list = self.list.borrow_and_update();
        let key = |address: &Address| Key(address.to_string());
        if let Some(left) = self.named.iter().find(|&address| !list.addresses.contains(address)).cloned() {
            self.named.remove(&left);
            return Some(Change::Left(key(&left)));
        }
        let address = list.addresses.iter().find(|&address| !self.named.contains(address))?.clone();
        self.named.insert(address.clone());
        Some(Change::Joined(Member { key: key(&address), address, about: About::Nothing }))
    }
}

impl Discovery for StaticWatcher {
    async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.change() {
                return change;
            }
            if self.list.changed().await.is_err() {
                return pending().await;
            }
        }
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

    fn list(text: &str) -> StaticList {
        StaticList::parse(text).expect("a list")
    }

    /// Returns the changes until there are none.
    async fn changes(watcher: &mut StaticWatcher) -> Vec<String> {
        let mut seen = Vec::new();
        while let Ok(change) = timeout(Duration::from_secs(1), watcher.next()).await {
            seen.push(match change {
                Change::Joined(member) => format!("+{}", member.address),
                Change::Changed(member) => format!("={}", member.address),
                Change::Left(key) => format!("-{key}"),
            });
        }
        seen
    }

    #[tokio::test(start_paused = true)]
    async fn every_address_joins_once_and_leaves_with_its_list() {
        let (lists, receiver) = watch::channel(list("a:1, b:2,\nc:3,"));
        let mut watcher = StaticWatcher::new(receiver);
        assert_eq!(changes(&mut watcher).await, ["+a:1", "+b:2", "+c:3"]);
        lists.send_replace(list("d:4,b:2,a:1"));
        assert_eq!(changes(&mut watcher).await, ["-c:3", "+d:4"]);
        // Of what it did not see it says nothing.
        lists.send_replace(list("b:2"));
        lists.send_replace(list("c:3,a:1"));
        assert_eq!(changes(&mut watcher).await, ["-b:2", "-d:4", "+c:3"]);
        drop(lists);
        assert_eq!(changes(&mut watcher).await, [""; 0]);
        assert!(list(" ").addresses().is_empty());
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(refused("a:1,b:2,a:1"), "a:1 is listed twice");
        assert_eq!(refused("a:1,b"), "\"b\" is not HOST:PORT");
        let many = (1..=WORKERS_MAX + 1).map(|port| format!("h:{port}")).collect::<Vec<_>>().join(",");
        assert_eq!(refused(&many), "4097 workers are listed, at most 4096 can be");
    }
}
