//! Jobs that wait: preempted ones first, by age, then new ones in the order in which they came.

use crate::Job;
use domain::planted::{self, Bug};
use domain::{SeqKey, Time};
use std::collections::{BTreeMap, VecDeque};

/// Order of preemption: the greatest age goes first. The key breaks ties, so that the order is total.
pub(crate) type Age = (Time, SeqKey);

/// The waiting jobs.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    preempted: BTreeMap<Age, Job>,
    new: VecDeque<Job>,
}

impl Queue {
    /// A new job, behind all others.
    pub(crate) fn push(&mut self, job: Job) {
        if planted::is(Bug::LaterJobFirst) {
            return self.new.push_front(job);
        }
        self.new.push_back(job);
    }

    /// A job whose sequence ran before: in front of all new ones, among its like by age.
    pub(crate) fn push_preempted(&mut self, job: Job) {
        if planted::is(Bug::PreemptedLast) {
            return self.new.push_back(job);
        }
        self.preempted.insert((job.arrived, job.key), job);
    }

    /// The next job.
    pub(crate) fn head(&self) -> Option<Job> {
        self.preempted.values().next().or_else(|| self.next_new()).copied()
    }

    /// The next of those that never ran.
    pub(crate) fn next_new(&self) -> Option<&Job> {
        self.new.front()
    }

    /// Takes the next job away.
    pub(crate) fn pop(&mut self) {
        if self.preempted.pop_first().is_none() {
            self.new.pop_front();
        }
    }

    /// Takes a job away wherever it stands.
    pub(crate) fn remove(&mut self, age: Age) -> bool {
        if self.preempted.remove(&age).is_some() {
            return true;
        }
        let Some(at) = self.new.iter().position(|job| job.key == age.1) else { return false };
        self.new.remove(at);
        true
    }

    /// Jobs that never ran.
    pub(crate) fn new_len(&self) -> usize {
        self.new.len()
    }

    /// Jobs that were preempted.
    pub(crate) fn preempted_len(&self) -> usize {
        self.preempted.len()
    }

    /// Prompt tokens of all jobs.
    pub(crate) fn tokens(&self) -> u64 {
        self.preempted.values().chain(&self.new).map(|job| u64::from(job.tokens)).sum()
    }
}
