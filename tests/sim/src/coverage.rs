//! Which faults hit which steps of the protocol, and which messages between workers, and what happened between
//! tenants, and which limits were reached, counted over runs.

use crate::fault::{AIMED, FaultKind, OF_MESSAGES, OF_OPERATORS};
use crate::reach::Reached;
use crate::step::{STEPS, Step};
use crate::tenants::{MEETINGS, Meeting};
use domain::handoff::PeerBody;
use std::collections::BTreeMap;
use std::fmt;

/// The kinds of messages between workers.
const MESSAGES: [&str; 12] = [
    "ask", "decline", "expect", "queued", "offer", "written", "complete", "withdraw", "renew", "release", "released",
    "ack",
];

/// The counts.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    steps: BTreeMap<(FaultKind, Step), u64>,
    messages: BTreeMap<(FaultKind, &'static str), u64>,
    meetings: BTreeMap<Meeting, u64>,
    reached: BTreeMap<Reached, u64>,
}

/// The name of a message's kind.
pub(crate) fn message_kind(body: &PeerBody) -> &'static str {
    match body {
        PeerBody::Ask(_) => "ask",
        PeerBody::Decline { .. } => "decline",
        PeerBody::Expect { .. } => "expect",
        PeerBody::Queued { .. } => "queued",
        PeerBody::Offer(_) => "offer",
        PeerBody::Written { .. } => "written",
        PeerBody::Complete { .. } => "complete",
        PeerBody::Withdraw { .. } => "withdraw",
        PeerBody::Renew { .. } => "renew",
        PeerBody::Release { .. } => "release",
        PeerBody::Released { .. } => "released",
        PeerBody::ReleaseAck { .. } => "ack",
    }
}

impl Coverage {
    pub(crate) fn hit(&mut self, fault: FaultKind, step: Step) {
        *self.steps.entry((fault, step)).or_default() += 1;
    }

    pub(crate) fn hit_message(&mut self, fault: FaultKind, kind: &'static str) {
        *self.messages.entry((fault, kind)).or_default() += 1;
    }

    pub(crate) fn hit_meeting(&mut self, meeting: Meeting) {
        *self.meetings.entry(meeting).or_default() += 1;
    }

    pub(crate) fn reach(&mut self, reached: Reached) {
        *self.reached.entry(reached).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Coverage) {
        other.steps.iter().for_each(|(&cell, &count)| *self.steps.entry(cell).or_default() += count);
        other.messages.iter().for_each(|(&cell, &count)| *self.messages.entry(cell).or_default() += count);
        other.meetings.iter().for_each(|(&cell, &count)| *self.meetings.entry(cell).or_default() += count);
        other.reached.iter().for_each(|(&cell, &count)| *self.reached.entry(cell).or_default() += count);
    }

    /// The cells that were never hit, in words.
    pub fn missing(&self) -> Vec<String> {
        let steps = rows().flat_map(|fault| STEPS.map(|step| (fault, step)));
        let steps =
            steps.filter(|cell| !self.steps.contains_key(cell)).map(|(fault, step)| format!("{fault:?} in {step:?}"));
        let messages = OF_MESSAGES.into_iter().flat_map(|fault| MESSAGES.map(|kind| (fault, kind)));
        let messages = messages
            .filter(|cell| !self.messages.contains_key(cell))
            .map(|(fault, kind)| format!("{fault:?} of {kind}"));
        let meetings = MEETINGS.into_iter().filter(|cell| !self.meetings.contains_key(cell));
        let meetings = meetings.map(|meeting| format!("{meeting:?} between tenants"));
        let reached = Reached::all().filter(|cell| !self.reached.contains_key(cell)).map(Reached::name);
        steps.chain(messages).chain(meetings).chain(reached).collect()
    }
}

/// The faults that are counted by step.
fn rows() -> impl Iterator<Item = FaultKind> {
    AIMED.into_iter().chain(OF_OPERATORS).chain([FaultKind::Deadline])
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:20}", "fault \\ step")?;
        STEPS.iter().try_for_each(|step| write!(f, "{:>7}", step.short()))?;
        for fault in rows() {
            write!(f, "\n{:20}", format!("{fault:?}"))?;
            for step in STEPS {
                write!(f, "{:>7}", self.steps.get(&(fault, step)).copied().unwrap_or(0))?;
            }
        }
        write!(f, "\n\n{:20}", "fault \\ message")?;
        MESSAGES.iter().try_for_each(|kind| write!(f, "{kind:>10}"))?;
        for fault in OF_MESSAGES {
            write!(f, "\n{:20}", format!("{fault:?}"))?;
            for kind in MESSAGES {
                write!(f, "{:>10}", self.messages.get(&(fault, kind)).copied().unwrap_or(0))?;
            }
        }
        write!(f, "\n\nbetween tenants")?;
        for meeting in MEETINGS {
            write!(f, "\n{:20}{:>7}", format!("{meeting:?}"), self.meetings.get(&meeting).copied().unwrap_or(0))?;
        }
        write!(f, "\n\nreached")?;
        for reached in Reached::all() {
            write!(f, "\n{:26}{:>7}", reached.name(), self.reached.get(&reached).copied().unwrap_or(0))?;
        }
        Ok(())
    }
}
