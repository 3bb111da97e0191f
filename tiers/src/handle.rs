//! A tier as its worker's step loop has it: what moves its bytes, and whether it is relied on.

use super::{LOAD_WAIT_MAX, Record, TierEnd, TierMover};
use domain::{BlockHash, SeqKey, Time};
use kv_manager::tiers::{ReadEnd, TierLift, TierRead, TierWrite, WriteEnd};

/// A tier. It is relied on unless it says itself that it fails, or says nothing at all: a device that hangs, or a
/// thread that is gone, ends no move, and a prompt that waited for it in vain shall be the last one.
pub struct TierHandle {
    mover: Box<dyn TierMover>,
    /// Moves that have not ended.
    under_way: usize,
    /// When something was moved last.
    moved: Time,
    /// As it says itself.
    fails: bool,
    /// A prompt waited for it in vain, and nothing was moved meanwhile.
    silent: bool,
}

impl TierHandle {
    /// A tier that is relied on, with what moves its bytes.
    pub fn new(mover: Box<dyn TierMover>) -> Self {
        Self { mover, under_way: 0, moved: Time::ZERO, fails: false, silent: false }
    }

    /// Whether anything is asked of it.
    pub fn is_relied_on(&self) -> bool {
        !self.fails && !self.silent
    }

    /// Begins to write a record.
    pub fn write(&mut self, write: TierWrite) {
        self.under_way += 1;
        self.mover.write(write);
    }

    /// Begins to read a record, for this load.
    pub fn read(&mut self, load: SeqKey, read: TierRead) {
        self.under_way += 1;
        self.mover.read(load, read);
    }

    /// Begins to read a record for a prompt that waits for room.
    pub fn lift(&mut self, prompt: SeqKey, lift: TierLift) {
        self.under_way += 1;
        self.mover.lift(prompt, lift);
    }

    /// Begins to write a record that was lifted.
    pub fn land(&mut self, prompt: SeqKey, lift: TierLift, record: Record) {
        self.under_way += 1;
        self.mover.land(prompt, lift, record);
    }

    /// Has the reads of a load, or of lifts for a prompt, end soon.
    pub fn cancel(&mut self, load: SeqKey) {
        self.mover.cancel(load);
    }

    /// A prompt needs these records, which nobody knows to be there.
    pub fn seek(&mut self, prompt: SeqKey, chain: &[BlockHash]) {
        if self.is_relied_on() {
            self.mover.seek(prompt, chain);
        }
    }

    /// A prompt waited for this tier in vain. Where nothing is under way, nothing hangs; nor would an end ever be
    /// heard.
    pub fn overdue(&mut self, now: Time) {
        self.silent |= self.under_way > 0 && now.since(self.moved) >= LOAD_WAIT_MAX;
    }

    /// Something of it ended. A tier that was silent is heard of once it moved something, or once nothing hangs in
    /// it any more.
    pub fn ended(&mut self, now: Time, end: &TierEnd) {
        let moved = match end {
            TierEnd::Wrote { end, .. } => *end != WriteEnd::Failed,
            // It has not left the tier: that is told when it does.
            TierEnd::Read { end: ReadEnd::Abandoned, .. } | TierEnd::Lifted { end: ReadEnd::Abandoned, .. } => return,
            TierEnd::Landed { there, .. } => *there,
            TierEnd::Read { end, .. } | TierEnd::Lifted { end, .. } => {
                !matches!(end, ReadEnd::Unread | ReadEnd::Failed)
            }
            TierEnd::Settled { moved, .. } => *moved,
            TierEnd::Off { .. } => return self.fails = true,
            TierEnd::On { .. } => return self.fails = false,
            TierEnd::Learned { .. } | TierEnd::Found { .. } | TierEnd::Forgotten { .. } => return,
        };
        self.under_way -= 1;
        if moved {
            self.moved = now;
        }
        self.silent &= !moved && self.under_way > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{TENANT, block, hash, key, slot};
    use kv_manager::tiers::{Place, Tier};
    use std::time::Duration;

    struct Nowhere;

    impl TierMover for Nowhere {
        fn write(&mut self, _: TierWrite) {}
        fn read(&mut self, _: SeqKey, _: TierRead) {}
        fn cancel(&mut self, _: SeqKey) {}
    }

    fn place() -> Place {
        Place { tier: Tier::Disk, slot: slot(0, 1) }
    }

    const START: Time = Time(1_000_000_000_000);

    fn reading(number: u32) -> TierRead {
        TierRead { place: place(), block: block(0, number), hash: hash(1), number }
    }

    fn read(number: u32, end: ReadEnd) -> TierEnd {
        TierEnd::Read { key: key(), read: reading(number), end, elapsed: Duration::ZERO }
    }

    fn after(since: Time, wait: Duration) -> Time {
        Time(since.0 + wait.as_nanos() as u64)
    }

    /// A tier that was asked for three records and gave none of them.
    fn silent() -> TierHandle {
        let mut tier = TierHandle::new(Box::new(Nowhere));
        (0..3).for_each(|number| tier.read(key(), reading(number)));
        tier.overdue(after(START, LOAD_WAIT_MAX));
        assert!(!tier.is_relied_on());
        tier
    }

    #[test]
    fn a_tier_that_hangs_is_not_relied_on_until_it_moves_something() {
        let mut tier = silent();
        tier.ended(START, &read(0, ReadEnd::Unread));
        assert!(!tier.is_relied_on(), "what had not begun was given up");
        tier.ended(START, &read(1, ReadEnd::Good));
        assert!(tier.is_relied_on());
    }

    #[test]
    fn a_tier_in_which_nothing_hangs_is_asked_again() {
        let mut tier = silent();
        (0..2).for_each(|number| tier.ended(START, &read(number, ReadEnd::Unread)));
        assert!(!tier.is_relied_on());
        tier.ended(START, &read(2, ReadEnd::Unread));
        assert!(tier.is_relied_on());
    }

    #[test]
    fn a_tier_hangs_for_as_long_as_what_was_given_up_hangs_in_it() {
        let mut tier = silent();
        (0..2).for_each(|number| tier.ended(START, &read(number, ReadEnd::Unread)));
        tier.ended(START, &read(2, ReadEnd::Abandoned));
        assert!(!tier.is_relied_on(), "its blocks are free, and it hangs still");
        tier.ended(START, &TierEnd::Settled { tier: Tier::Disk, moved: false });
        assert!(tier.is_relied_on());
    }

    #[test]
    fn a_tier_in_which_nothing_is_under_way_does_not_hang() {
        let mut tier = TierHandle::new(Box::new(Nowhere));
        tier.overdue(after(START, LOAD_WAIT_MAX));
        assert!(tier.is_relied_on());
        tier.read(key(), reading(0));
        tier.ended(START, &read(0, ReadEnd::Unread));
        tier.overdue(after(START, LOAD_WAIT_MAX));
        assert!(tier.is_relied_on(), "nothing is under way any more");
    }

    #[test]
    fn a_tier_that_is_slow_is_relied_on() {
        let mut tier = TierHandle::new(Box::new(Nowhere));
        let write = TierWrite { place: place(), block: block(0, 0), hash: hash(1), tenant: TENANT };
        tier.write(write);
        tier.read(key(), reading(0));
        tier.ended(
            after(START, LOAD_WAIT_MAX / 2),
            &TierEnd::Wrote { write, end: WriteEnd::Written, elapsed: Duration::ZERO },
        );
        tier.overdue(after(START, LOAD_WAIT_MAX));
        assert!(tier.is_relied_on());
    }

    #[test]
    fn a_tier_that_says_that_it_fails_is_back_when_it_says_so() {
        let mut tier = silent();
        tier.ended(START, &TierEnd::Off { tier: Tier::Disk, reason: String::new() });
        tier.ended(START, &read(0, ReadEnd::Good));
        assert!(!tier.is_relied_on(), "it said nothing else");
        tier.ended(START, &TierEnd::On { tier: Tier::Disk });
        assert!(tier.is_relied_on());
    }
}
