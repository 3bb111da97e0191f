//! What will happen and when: events ordered by time, those of one time in the order in which they were entered.

use crate::event::Event;
use domain::Time;
use std::collections::BTreeMap;

/// The events to come.
#[derive(Default)]
pub(crate) struct EventQueue {
    events: BTreeMap<(Time, u64), Event>,
    entered: u64,
}

impl EventQueue {
    pub(crate) fn enter(&mut self, at: Time, event: Event) {
        self.entered += 1;
        self.events.insert((at, self.entered), event);
    }

    pub(crate) fn next(&mut self) -> Option<(Time, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }
}
