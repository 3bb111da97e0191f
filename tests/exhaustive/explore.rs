//! Visits every state that a scope allows, breadth first, so that the way to a violation is one of the shortest.

use crate::action::Action;
use crate::invariants;
use crate::invariants::quiescence::Quiescence;
use crate::process::Event;
use crate::scope::Scope;
use crate::workers::Workers;
use crate::world::World;
use domain::WorkerId;
use std::collections::HashSet;
use std::fmt;

/// Most states that are visited; a scope that has more is too large to be called exhausted.
const STATES_MAX: usize = 4_000_000;

/// What a check found.
#[derive(Debug)]
pub(crate) struct Report {
    /// States visited. Told apart by 64 bits of hash: that two of four million are taken for one has a chance of
    /// one in two million.
    pub(crate) states: usize,
    /// States of single workers among them.
    workers: usize,
    /// Those of these in which two steps are in flight.
    pub(crate) with_two_steps: usize,
    /// Actions from state to state that were tried.
    pub(crate) actions: usize,
    /// Actions on the longest of the shortest ways to a state.
    pub(crate) depth: usize,
    /// No state was left unvisited.
    pub(crate) exhausted: bool,
    pub(crate) violation: Option<Violation>,
}

/// A broken invariant and how it came about.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) what: String,
    /// What happened, one action a line.
    trace: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, workers, with_two_steps, actions, depth, exhausted, violation } = self;
        let end = if *exhausted { "the frontier is exhausted" } else { "not all states were visited" };
        write!(f, "{states} states, {workers} of single workers ({with_two_steps} with two steps in flight), ")?;
        write!(f, "{actions} actions, depth {depth}, {end}")?;
        match violation {
            Some(Violation { what, trace }) => write!(f, "\n  {what}, after:\n    {}", trace.join("\n    ")),
            None => Ok(()),
        }
    }
}

/// Whether it is also followed, from every state, how everything comes to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    Followed,
    /// A violation is found a little later, at the end of the shortest way to it.
    NotFollowed,
}

/// Visits all states of the scope, or those until the first violation.
pub(crate) fn explore(scope: Scope, ends: Ends) -> Report {
    let mut workers = Workers::new(scope);
    let begin = World::new(scope, &mut workers);
    let mut visited = HashSet::from([begin.digest()]);
    // How each state was reached: from which, by what.
    let mut ways: Vec<(u32, Action)> = vec![(0, Action::At(WorkerId(0), Event::Turn))];
    let mut frontier = vec![(0, begin)];
    let mut quiescence = Quiescence::default();
    let mut report =
        Report { states: 1, workers: 0, with_two_steps: 0, actions: 0, depth: 0, exhausted: false, violation: None };
    let mut actions = Vec::new();
    while !frontier.is_empty() && report.states <= STATES_MAX {
        let mut next = Vec::new();
        for (number, world) in &frontier {
            actions.clear();
            world.actions(&mut workers, &mut actions);
            for &action in &actions {
                report.actions += 1;
                let mut after = world.clone();
                after.apply(action, &mut workers);
                let mut checked = invariants::check(&after, &workers);
                let digest = after.digest();
                let new = visited.insert(digest);
                if new && ends == Ends::Followed && checked.is_ok() {
                    checked = quiescence.check(&after, digest, &mut workers);
                }
                if let Err(what) = checked {
                    let trace = trace(scope, &ways, *number, action);
                    (report.states, report.workers) = (ways.len(), workers.len());
                    report.violation = Some(Violation { what, trace });
                    return report;
                }
                if new {
                    next.push((ways.len() as u32, after));
                    ways.push((*number, action));
                }
            }
        }
        (report.states, report.workers) = (ways.len(), workers.len());
        report.depth += usize::from(!next.is_empty());
        frontier = next;
    }
    report.exhausted = frontier.is_empty();
    report.with_two_steps = workers.with_two_steps();
    report
}

/// What happened until the state `number`, and `last`.
fn trace(scope: Scope, ways: &[(u32, Action)], mut number: u32, last: Action) -> Vec<String> {
    let mut actions = vec![last];
    while number != 0 {
        let (before, action) = ways[number as usize];
        actions.push(action);
        number = before;
    }
    let mut workers = Workers::new(scope);
    let mut world = World::new(scope, &mut workers);
    let mut lines = Vec::with_capacity(actions.len());
    for (left, &action) in (0..actions.len()).rev().zip(actions.iter().rev()) {
        lines.push(world.describe(action));
        if left > 0 {
            world.apply(action, &mut workers);
        }
    }
    lines
}
