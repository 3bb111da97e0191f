#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod address;
mod static_list;

pub use address::{Address, AddressError};
pub use static_list::{StaticList, StaticListError, WORKERS_MAX};

/// A source of addresses.
pub trait Discovery {
    /// Returns the next change, if there is one now; never blocks. The first changes name the workers that are there
    /// already.
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
