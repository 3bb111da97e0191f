//! Who belongs to the cluster: workers, their roles and where they are, as a stream of changes.
//!
//! [`StaticList`] knows them from the configuration. What is deliberately absent: sessions with the members (a shell
//! opens them), health (a session that breaks says it), and any choice among members (`placement` chooses).
#![forbid(unsafe_code)]

mod member;
mod static_list;

pub use member::{Change, Endpoint, Member};
pub use static_list::{MEMBERS_MAX, StaticList, StaticListError};

/// A source of members.
pub trait Discovery {
    /// The next change, if there is one now; never blocks. The first changes name those who are there already. A member
    /// whose role, name or endpoint changes goes down and comes up again.
    fn poll(&mut self) -> Option<Change>;
}
