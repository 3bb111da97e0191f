//! A queue of numbered slots that may be left from the middle: a doubly linked list threaded through an array, so that
//! every operation takes constant time and none allocates.

/// Neighbours of a slot in the queue.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Link {
    older: Option<u32>,
    newer: Option<u32>,
    inside: bool,
}

/// The queue, from the oldest slot to the newest.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    links: Vec<Link>,
    oldest: Option<u32>,
    newest: Option<u32>,
    len: u32,
}

impl Queue {
    /// Bytes that each slot takes.
    pub(crate) const SLOT_BYTES: usize = size_of::<Link>();

    /// Makes an empty queue for the slots below `slots`.
    pub(crate) fn new(slots: u32) -> Self {
        Self { links: vec![Link::default(); slots as usize], oldest: None, newest: None, len: 0 }
    }

    /// Puts a slot, which is out, at the newest end.
    pub(crate) fn push(&mut self, slot: u32) {
        let older = self.newest.replace(slot);
        let link = self.link(slot);
        assert!(!link.inside, "slot {slot} is in the queue already");
        *link = Link { older, newer: None, inside: true };
        match older {
            Some(older) => self.link(older).newer = Some(slot),
            None => self.oldest = Some(slot),
        }
        self.len += 1;
    }

    /// Takes a slot out, which is in.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Link { older, newer, inside } = std::mem::take(self.link(slot));
        assert!(inside, "slot {slot} is not in the queue");
        match older {
            Some(older) => self.link(older).newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.link(newer).older = older,
            None => self.newest = older,
        }
        self.len -= 1;
    }

    /// Takes the oldest slot out.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let slot = self.oldest()?;
        self.remove(slot);
        Some(slot)
    }

    /// Returns the oldest slot.
    pub(crate) fn oldest(&self) -> Option<u32> {
        self.oldest
    }

    /// Returns the slots that are in, from the newest to the oldest.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(self.newest, move |&slot| self.links[slot as usize].older)
    }

    /// Returns whether the slot is in.
    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.links[slot as usize].inside
    }

    /// Returns the number of slots that are in.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    fn link(&mut self, slot: u32) -> &mut Link {
        &mut self.links[slot as usize]
    }
}
