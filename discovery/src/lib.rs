//! Where the workers of the cluster are, as a stream of changes.
//!
//! [`StaticList`] knows them from the configuration. Who a worker is, it says itself when a session with it begins. What is
//! deliberately absent: sessions (a shell opens them), health (a session that breaks says it), and any choice among
//! workers (`placement` chooses).
#![forbid(unsafe_code)]

mod address;
mod static_list;

pub use address::{Address, AddressError};
pub use static_list::{StaticList, StaticListError, WORKERS_MAX};

/// A source of addresses.
pub trait Discovery {
    /// The next change, if there is one now; never blocks. The first changes name those who are there already.
    fn poll(&mut self) -> Option<Change>;
}

/// A change of where workers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is a worker here, or will be: whether it runs is not known.
    Up(Address),
    /// There is none any more.
    Down(Address),
}
