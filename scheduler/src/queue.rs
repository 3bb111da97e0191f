//! All that wait: preempted ones first, by age, then the others by when their requests arrived.

use crate::{Job, Kind};
use domain::planted_bugs::{self, Bug};
use domain::{SeqKey, Time};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Order of preemption: the greatest age goes first. The key breaks ties, so that the order is total.
pub(crate) type Age = (Time, SeqKey);

/// Where a job stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// It never ran.
    new: bool,
    age: Age,
}

impl Position {
    fn of(job: &Job, new: bool) -> Self {
        Self { new: new != planted_bugs::is(Bug::PreemptedLast), age: (job.arrived, job.key) }
    }

    /// Returns whether the job ran before.
    pub(crate) fn is_preempted(self) -> bool {
        self.new == planted_bugs::is(Bug::PreemptedLast)
    }
}

/// The waiting jobs.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    jobs: BTreeMap<Position, Job>,
    preempted: usize,
}

impl Queue {
    /// Adds a new job, behind all that arrived before it.
    pub(crate) fn push(&mut self, job: Job) {
        self.jobs.insert(Position::of(&job, true), job);
    }

    /// Adds a job whose sequence ran before: in front of all new ones, and among its like by age.
    pub(crate) fn push_preempted(&mut self, job: Job) {
        self.preempted += 1;
        self.jobs.insert(Position::of(&job, false), job);
    }

    /// Returns the first job, or the next one behind that at `place`.
    pub(crate) fn behind(&self, place: Option<Position>) -> Option<(Position, Job)> {
        let from = place.map_or(Bound::Unbounded, Bound::Excluded);
        if planted_bugs::is(Bug::LaterJobFirst) {
            return self.jobs.range((Bound::Unbounded, from)).next_back().map(|(&place, &job)| (place, job));
        }
        self.jobs.range((from, Bound::Unbounded)).next().map(|(&place, &job)| (place, job))
    }

    /// Takes the job at `place` away.
    pub(crate) fn take(&mut self, place: Position) {
        if self.jobs.remove(&place).is_some() && place.is_preempted() {
            self.preempted -= 1;
        }
    }

    /// Returns the place of the job of this age, if it waits.
    pub(crate) fn place(&self, age: Age) -> Option<Position> {
        [false, true].map(|new| Position { new, age }).into_iter().find(|place| self.jobs.contains_key(place))
    }

    /// Returns the job at `place`.
    pub(crate) fn job(&self, place: Position) -> Option<&Job> {
        self.jobs.get(&place)
    }

    /// Returns what the job at `place` waits for, to be changed.
    pub(crate) fn kind_mut(&mut self, place: Position) -> Option<&mut Kind> {
        self.jobs.get_mut(&place).map(|job| &mut job.kind)
    }

    /// Returns all jobs, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Position, &Job)> {
        self.jobs.iter().map(|(&place, job)| (place, job))
    }

    /// Returns how many jobs there are.
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns how many jobs never ran.
    pub(crate) fn new_len(&self) -> usize {
        self.jobs.len() - self.preempted
    }
}
