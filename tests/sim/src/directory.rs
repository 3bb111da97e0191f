//! A directory of workers, as etcd is one: what it holds, and how that is numbered. What it holds may be wrong.

use crate::event::{Life, WorkerIndex};
use crate::random::Random;
use discovery::{About, Address, Entry, Key, Member, Sight, Topology};
use domain::session::Role;
use domain::{Incarnation, WorkerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// The port at which no worker listens.
const NO_PORT: u64 = u16::MAX as u64;
/// The port of all workers where their addresses stay.
const PORT: u64 = 1;

/// How workers are listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listings {
    /// A worker that dies is listed for so long.
    pub(crate) lease: Duration,
    /// Every life of a worker has an address of its own.
    addresses_change: bool,
}

impl Listings {
    pub(crate) fn draw(random: &mut Random) -> Self {
        Self { lease: random.millis(30, 400), addresses_change: random.chance(500) }
    }

    /// The entry of a worker in a life, at its own address.
    pub(crate) fn member(self, w: WorkerIndex, life: Life, role: Role) -> Member {
        self.misplaced(w, life, role, self.address(w, life))
    }

    /// The same at another address.
    pub(crate) fn misplaced(self, w: WorkerIndex, life: Life, role: Role, address: Address) -> Member {
        let entry = Entry {
            id: WorkerId(w as u32),
            incarnation: Incarnation(life),
            name: format!("w{w}"),
            role,
            address: address.clone(),
            ops: None,
            model: String::new(),
            layout: 0,
            topology: Topology::default(),
        };
        Member { key: key_of(w), address, about: About::Worker(entry) }
    }

    /// Where a worker listens in a life.
    pub(crate) fn address(self, w: WorkerIndex, life: Life) -> Address {
        address(w, if self.addresses_change { PORT + life } else { PORT })
    }
}

/// An address at which no worker listens.
pub(crate) fn nowhere(w: WorkerIndex) -> Address {
    address(w, NO_PORT)
}

fn address(w: WorkerIndex, port: u64) -> Address {
    format!("w{w}:{port}").parse().expect("it has a host and a port")
}

/// Which worker listens at an address in some life, or none if that is beyond all workers.
pub(crate) fn worker_at(address: &Address) -> WorkerIndex {
    let host = address.as_str().split(':').next().unwrap_or_default();
    host.trim_start_matches('w').parse().expect("hosts are numbers of workers")
}

/// What a worker is called in the directory.
pub(crate) fn key_of(w: WorkerIndex) -> Key {
    Key(w.to_string())
}

/// Returns the worker of a key.
pub(crate) fn index_of(key: &Key) -> WorkerIndex {
    key.0.parse().expect("keys are numbers of workers")
}

/// What the directory holds.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    revision: u64,
    listed: BTreeMap<Key, Member>,
}

impl Directory {
    /// Lists a worker, or replaces what is listed of it.
    pub(crate) fn put(&mut self, member: Member) -> Sight {
        self.revision += 1;
        self.listed.insert(member.key.clone(), member.clone());
        Sight::Put { revision: self.revision, member: Box::new(member) }
    }

    /// Removes a worker, if it is listed.
    pub(crate) fn remove(&mut self, w: WorkerIndex) -> Option<Sight> {
        let key = key_of(w);
        self.listed.remove(&key)?;
        self.revision += 1;
        Some(Sight::Gone { revision: self.revision, key })
    }

    /// All that is listed.
    pub(crate) fn all(&self) -> Sight {
        Sight::All { revision: self.revision, members: self.listed.values().cloned().collect() }
    }

    /// An entry as if it were listed now.
    pub(crate) fn lie(&self, member: Member) -> Sight {
        Sight::Put { revision: self.revision, member: Box::new(member) }
    }

    pub(crate) fn get(&self, w: WorkerIndex) -> Option<&Member> {
        self.listed.get(&key_of(w))
    }

    /// What is listed.
    pub(crate) fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.listed.values()
    }
}

/// The life that an entry tells of.
pub(crate) fn life_of(member: &Member) -> Life {
    member.entry().map_or(0, |entry| entry.incarnation.0)
}
