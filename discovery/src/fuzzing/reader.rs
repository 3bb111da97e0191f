//! A reader of a directory, which holds each change against what it knows.

use crate::{Change, Key, Member, Sight, Table};
use std::collections::BTreeMap;

/// The reader.
#[derive(Default)]
pub(crate) struct Reader {
    table: Table,
    known: BTreeMap<Key, Member>,
}

impl Reader {
    /// Takes what a directory shows.
    pub(crate) fn show(&mut self, sight: Sight) {
        for change in self.table.handle(sight) {
            match change {
                Change::Joined(member) => assert!(self.known.insert(member.key.clone(), member).is_none()),
                Change::Changed(member) => {
                    let before = self.known.insert(member.key.clone(), member.clone());
                    assert!(before.is_some_and(|before| before != member));
                }
                Change::Left(key) => assert!(self.known.remove(&key).is_some()),
            }
        }
        assert!(self.known.values().eq(self.table.members()));
    }
}
