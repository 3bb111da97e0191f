//! Which workers are listed: what a directory shows goes in, and changes come out. Nothing here waits or reads a clock.
//!
//! A directory may show a thing again, late, or not at all. The table takes what is newer: a revision orders what a
//! directory shows, and an incarnation orders the lives of a worker. A view of all workers is the truth at its
//! revision, even if that is smaller than earlier ones: then the directory was restored from a copy.

#[cfg(test)]
mod tests;

use crate::{Change, Key, Member};
use domain::Incarnation;
use domain::planted_bugs::{Bug, is};
use std::collections::BTreeMap;

/// Most workers of a directory. Further ones are left out, and are taken when there is room.
pub const WORKERS_MAX: usize = 4096;

/// What a directory shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// All workers that are listed at a revision.
    All {
        /// The revision.
        revision: u64,
        /// The workers, in any order.
        members: Vec<Member>,
    },
    /// A worker was listed, or its entry was replaced.
    Put {
        /// The revision at which that happened.
        revision: u64,
        /// The worker as it is listed now.
        member: Box<Member>,
    },
    /// A worker was removed.
    Gone {
        /// The revision at which that happened.
        revision: u64,
        /// Its name in the directory.
        key: Key,
    },
}

/// The workers that are listed, as far as they were shown.
#[derive(Clone, Debug, Default)]
pub struct Table {
    members: BTreeMap<Key, Member>,
    /// Of the newest thing that was shown.
    revision: u64,
    /// Workers that were left out since all were shown.
    left_out: usize,
}

impl Table {
    /// Takes what a directory shows, and returns what that changes.
    pub fn handle(&mut self, sight: Sight) -> Vec<Change> {
        match sight {
            Sight::All { revision, members } => self.replace(revision, members),
            Sight::Put { revision, member } if self.takes(revision) => {
                self.revision = revision;
                self.put(*member).into_iter().collect()
            }
            Sight::Gone { revision, key } if self.takes(revision) => {
                self.revision = revision;
                self.members.remove(&key).map(|_| Change::Left(key)).into_iter().collect()
            }
            // It was shown before, or something newer was.
            Sight::Put { .. } | Sight::Gone { .. } => Vec::new(),
        }
    }

    /// Returns the workers.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.values()
    }

    /// Returns how many workers were left out since all were shown, because there was no room.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Returns whether all workers are to be shown again: some were left out, and now there is room.
    pub fn has_room_again(&self) -> bool {
        self.left_out > 0 && self.members.len() < WORKERS_MAX
    }

    /// Returns whether what is shown of a revision is not older than what was shown before.
    fn takes(&self, revision: u64) -> bool {
        revision >= self.revision || is(Bug::LateSightTaken)
    }

    fn replace(&mut self, revision: u64, members: Vec<Member>) -> Vec<Change> {
        let mut now: BTreeMap<Key, Member> = members.into_iter().map(|member| (member.key.clone(), member)).collect();
        let gone: Vec<Key> = self.members.keys().filter(|key| !now.contains_key(key)).cloned().collect();
        let gone = if is(Bug::UnlistedStay) { Vec::new() } else { gone };
        gone.iter().for_each(|key| drop(self.members.remove(key)));
        (self.revision, self.left_out) = (revision, 0);
        // Those that are listed keep their places.
        let known: Vec<Member> = self.members.keys().filter_map(|key| now.remove(key)).collect();
        let mut changes: Vec<Change> = gone.into_iter().map(Change::Left).collect();
        changes.extend(known.into_iter().chain(now.into_values()).filter_map(|member| self.take(member)));
        changes
    }

    /// Takes a worker, unless it is an earlier life of one that is listed.
    fn put(&mut self, member: Member) -> Option<Change> {
        let listed = self.members.get(&member.key).and_then(incarnation);
        let is_over = incarnation(&member).zip(listed).is_some_and(|(shown, listed)| shown < listed);
        if is_over && !is(Bug::EarlierLifeListed) {
            return None;
        }
        self.take(member)
    }

    fn take(&mut self, member: Member) -> Option<Change> {
        let is_full = self.members.len() >= WORKERS_MAX;
        match self.members.get_mut(&member.key) {
            Some(listed) if *listed == member => None,
            Some(listed) => {
                *listed = member.clone();
                Some(Change::Changed(member))
            }
            None if is_full => {
                self.left_out += 1;
                None
            }
            None => {
                self.members.insert(member.key.clone(), member.clone());
                Some(Change::Joined(member))
            }
        }
    }
}

fn incarnation(member: &Member) -> Option<Incarnation> {
    member.entry().map(|entry| entry.incarnation)
}
