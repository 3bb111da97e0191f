//! A tier as its worker's step loop has it: what moves its bytes, and whether the worker relies on it.

use crate::mover::{LOAD_WAIT_MAX, TierEvent, TierMover};
use crate::records::Record;
use domain::{BlockHash, SeqKey, Time};
use kv_manager::tiers::{ReadEnd, TierLift, TierRead, TierWrite, WriteEnd};

/// A tier. The worker relies on it unless it reports that it fails, or reports nothing at all. A device that hangs, or
/// a thread that is gone, ends no move, and no second prompt shall wait for it in vain.
pub struct TierHandle {
    mover: Box<dyn TierMover>,
    /// Moves that have not ended.
    under_way: usize,
    /// When something was moved last.
    moved: Time,
    /// It reported that it fails.
    fails: bool,
    /// A prompt waited for it in vain, and nothing was moved meanwhile.
    silent: bool,
}

impl TierHandle {
    /// Makes a tier that is relied on, with what moves its bytes.
    pub fn new(mover: Box<dyn TierMover>) -> Self {
        Self { mover, under_way: 0, moved: Time::ZERO, fails: false, silent: false }
    }

    /// Returns whether the worker asks anything of it.
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

    /// Makes the reads of a load, or of lifts for a prompt, end soon.
    pub fn cancel(&mut self, load: SeqKey) {
        self.mover.cancel(load);
    }

    /// Looks for records that a prompt needs and no index has.
    pub fn look_up(&mut self, prompt: SeqKey, chain: &[BlockHash]) {
        if self.is_relied_on() {
            self.mover.look_up(prompt, chain);
        }
    }

    /// Notes that a prompt waited for this tier in vain. If nothing is under way, nothing hangs, and no end would ever
    /// say that the tier works again.
    pub fn overdue(&mut self, now: Time) {
        self.silent |= self.under_way > 0 && now.since(self.moved) >= LOAD_WAIT_MAX;
    }

    /// Handles what the tier reports. A silent tier is relied on again once it moved something, or once nothing hangs
    /// in it any more.
    pub fn on_event(&mut self, now: Time, event: &TierEvent) {
        let moved = match event {
            TierEvent::Wrote { end, .. } => *end != WriteEnd::Failed,
            // It has not left the tier: that is told when it does.
            TierEvent::Read { end: ReadEnd::Abandoned, .. } | TierEvent::Lifted { end: ReadEnd::Abandoned, .. } => {
                return;
            }
            TierEvent::Landed { there, .. } => *there,
            TierEvent::Read { end, .. } | TierEvent::Lifted { end, .. } => {
                !matches!(end, ReadEnd::Unread | ReadEnd::Failed)
            }
            TierEvent::Settled { moved, .. } => *moved,
            TierEvent::Off { .. } => return self.fails = true,
            TierEvent::On { .. } => return self.fails = false,
            TierEvent::Learned { .. } | TierEvent::Found { .. } | TierEvent::Forgotten { .. } => return,
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

    fn read(number: u32, end: ReadEnd) -> TierEvent {
        TierEvent::Read { key: key(), read: reading(number), end, elapsed: Duration::ZERO }
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
        tier.on_event(START, &read(0, ReadEnd::Unread));
        assert!(!tier.is_relied_on(), "what had not begun was given up");
        tier.on_event(START, &read(1, ReadEnd::Good));
        assert!(tier.is_relied_on());
    }

    #[test]
    fn a_tier_in_which_nothing_hangs_is_asked_again() {
        let mut tier = silent();
        (0..2).for_each(|number| tier.on_event(START, &read(number, ReadEnd::Unread)));
        assert!(!tier.is_relied_on());
        tier.on_event(START, &read(2, ReadEnd::Unread));
        assert!(tier.is_relied_on());
    }

    #[test]
    fn a_tier_hangs_for_as_long_as_what_was_given_up_hangs_in_it() {
        let mut tier = silent();
        (0..2).for_each(|number| tier.on_event(START, &read(number, ReadEnd::Unread)));
        tier.on_event(START, &read(2, ReadEnd::Abandoned));
        assert!(!tier.is_relied_on(), "its blocks are free, and it hangs still");
        tier.on_event(START, &TierEvent::Settled { tier: Tier::Disk, moved: false });
        assert!(tier.is_relied_on());
    }

    #[test]
    fn a_tier_in_which_nothing_is_under_way_does_not_hang() {
        let mut tier = TierHandle::new(Box::new(Nowhere));
        tier.overdue(after(START, LOAD_WAIT_MAX));
        assert!(tier.is_relied_on());
        tier.read(key(), reading(0));
        tier.on_event(START, &read(0, ReadEnd::Unread));
        tier.overdue(after(START, LOAD_WAIT_MAX));
        assert!(tier.is_relied_on(), "nothing is under way any more");
    }

    #[test]
    fn a_tier_that_is_slow_is_relied_on() {
        let mut tier = TierHandle::new(Box::new(Nowhere));
        let write = TierWrite { place: place(), block: block(0, 0), hash: hash(1), tenant: TENANT };
        tier.write(write);
        tier.read(key(), reading(0));
        tier.on_event(
            after(START, LOAD_WAIT_MAX / 2),
            &TierEvent::Wrote { write, end: WriteEnd::Written, elapsed: Duration::ZERO },
        );
        tier.overdue(after(START, LOAD_WAIT_MAX));
        assert!(tier.is_relied_on());
    }

    #[test]
    fn a_tier_that_says_that_it_fails_is_back_when_it_says_so() {
        let mut tier = silent();
        tier.on_event(START, &TierEvent::Off { tier: Tier::Disk, reason: String::new() });
        tier.on_event(START, &read(0, ReadEnd::Good));
        assert!(!tier.is_relied_on(), "it said nothing else");
        tier.on_event(START, &TierEvent::On { tier: Tier::Disk });
        assert!(tier.is_relied_on());
    }
}
