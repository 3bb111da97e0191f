#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod address;
mod backoff;
mod causes;
mod entry;
pub mod etcd;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[rustfmt::skip]
#[path = "generated/etcdserverpb.rs"]
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; etcd documents its interface")]
mod generated;
pub mod kubernetes;
mod outage;
mod static_list;
mod table;

pub use address::{Address, AddressError};
pub use entry::{ENTRY_BYTES_MAX, Entry, EntryError, Topology};
pub use static_list::{StaticList, StaticListError, StaticWatcher};
pub use table::{Sight, Table, WORKERS_MAX};

use domain::session::Role;
use std::fmt;

/// A directory of workers.
pub trait Discovery {
    /// Waits for the next change. The first ones name the workers that are listed already. A directory that is not
    /// reached has no changes: its members stay listed. Nothing is lost if the returned future is dropped.
    fn next(&mut self) -> impl Future<Output = Change> + Send;
}

/// A change of which workers are listed. That a worker is listed does not mean that it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A worker is listed that was not.
    Joined(Member),
    /// A listed worker has another address or says something else of itself, as after a restart.
    Changed(Member),
    /// A worker is not listed any more.
    Left(Key),
}

/// A worker, as a directory lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name in the directory.
    pub key: Key,
    /// Where it takes sessions.
    pub address: Address,
    /// What is known of it.
    pub about: About,
}

/// What a directory knows of a worker beyond its address. The worker's session says the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// Nothing, as in a list of addresses.
    Nothing,
    /// What the worker says of itself, as in etcd.
    Worker(Entry),
    /// What Kubernetes says of the worker's pod.
    Pod {
        /// The role that its pool is for. The worker may have another one by now.
        role: Option<Role>,
        /// Where it is.
        topology: Topology,
    },
}

impl Member {
    /// Returns what the worker says of itself, if the directory has that.
    pub fn entry(&self) -> Option<&Entry> {
        if let About::Worker(entry) = &self.about { Some(entry) } else { None }
    }
}

/// The name by which a directory tells a worker from others: the address in a static list, the id in etcd, the name of
/// the pod in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub String);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
