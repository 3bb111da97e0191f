//! What took time in an attempt: kept where its router, or a collector of traces, wants to know it, and told when the
//! attempt begins to decode and when it ends.
//!
//! Nothing is kept of a step that decodes: of all of them together one phase is told.

use domain::session::Submit;
use domain::{Phase, PhaseKind, Phases, ProgressWord, Time};
use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;
use telemetry::traces::AttemptSpan;
use transport::{Completion, RunTime, TransferId};

/// The phases of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    arrived: Time,
    /// The router wants to know.
    is_told: bool,
    /// The attempt is traced.
    span: Option<AttemptSpan>,
    phases: Phases,
    /// The first step of the prompt has begun.
    has_begun: bool,
    /// When it began to decode.
    decodes: Option<Time>,
    /// Reads that have not ended, and when each was posted.
    posted: Vec<(TransferId, Time)>,
}

impl Timed {
    /// Begins with an attempt that comes now. `None`: it is not timed.
    pub(crate) fn new(now: Time, submit: &Submit, span: Option<AttemptSpan>) -> Option<Box<Self>> {
        let timed = Self {
            arrived: now,
            is_told: submit.timed,
            span,
            phases: Phases::default(),
            has_begun: false,
            decodes: None,
            posted: Vec::new(),
        };
        (timed.is_told || timed.span.is_some()).then(|| Box::new(timed))
    }

    /// Notes that a step computed so many tokens of the prompt, from this position on.
    pub(crate) fn chunk(&mut self, begun: Time, ended: Time, start: u32, tokens: u32) {
        let begin = self.since(begun);
        if !std::mem::replace(&mut self.has_begun, true) {
            self.phases.push(Phase::new(PhaseKind::Queue, Duration::ZERO, begin));
        }
        self.phases.push(Phase { start, tokens, ..Phase::new(PhaseKind::Chunk, begin, self.since(ended)) });
    }

    /// Notes that a tier brought so many tokens of the prompt, of what was asked of it at `begun`.
    pub(crate) fn loaded(&mut self, tier: &'static str, begun: Time, ended: Time, tokens: u32, bytes: u64) {
        let load = Phase::new(PhaseKind::Load, self.since(begun), self.since(ended));
        self.phases.extend(Phase { tokens, bytes, via: Cow::Borrowed(tier), ..load });
    }

    /// Notes that something happened, for traces.
    pub(crate) fn event(&mut self, now: Time, name: &'static str) {
        let at = self.since(now);
        self.span.iter_mut().for_each(|span| span.event(at, name));
    }

    /// Notes how many tokens of the prompt came from a source, for traces.
    pub(crate) fn tokens(&mut self, source: &str, tokens: u32) {
        self.span.iter_mut().for_each(|span| span.tokens(source, tokens));
    }

    /// Notes why the attempt fails, for traces.
    pub(crate) fn fails(&mut self, why: String) {
        self.span.iter_mut().for_each(|span| span.fails(why.clone()));
    }

    /// Notes that a read of KV was posted.
    pub(crate) fn posted(&mut self, now: Time, transfer: TransferId) {
        self.posted.push((transfer, now));
    }

    /// Notes the end of a read from a worker of this name, in a model of so many layers.
    pub(crate) fn transferred(&mut self, now: Time, peer: &str, completion: &Completion, layers: u16) {
        let Some(at) = self.posted.iter().position(|(transfer, _)| *transfer == completion.id) else { return };
        let (_, posted) = self.posted.swap_remove(at);
        let Ok(report) = &completion.result else { return };
        let (posted, via) = (self.since(posted), report.lane.name());
        let mut push = |begin, end, bytes, layers| {
            let plain = Phase::new(PhaseKind::Transfer, begin, end);
            self.phases.push(Phase { bytes, layers, via: via.into(), peer: peer.to_owned(), ..plain });
        };
        let runs = &completion.runs;
        for (at, run) in runs.iter().enumerate() {
            push(posted + run.begun, posted + run.ended, run.bytes, layers_of(run, runs.get(at + 1), layers));
        }
        if runs.is_empty() {
            push(posted, now.since(self.arrived), report.wire_bytes, 0..0);
        }
    }

    /// Notes that the attempt decodes from now on.
    pub(crate) fn decodes(&mut self, now: Time) {
        self.decodes.get_or_insert(now);
    }

    /// Notes that the attempt ends.
    pub(crate) fn ends(&mut self, now: Time) {
        if let Some(decodes) = self.decodes.take() {
            self.phases.push(Phase::new(PhaseKind::Decode, self.since(decodes), self.since(now)));
        }
    }

    /// Takes what its router is to be told, and how much more there was. `None`: nothing.
    pub(crate) fn take(&mut self) -> Option<(Vec<Phase>, u32)> {
        if self.phases.is_empty() {
            return None;
        }
        let (phases, left_out) = self.phases.take();
        self.span.iter_mut().for_each(|span| span.phases(&phases));
        self.is_told.then_some((phases, left_out))
    }

    /// Ends its span, after all was taken.
    pub(crate) fn end_span(self, now: Time) {
        let took = self.since(now);
        if let Some(span) = self.span {
            span.end(took);
        }
    }

    fn since(&self, time: Time) -> Duration {
        time.since(self.arrived)
    }
}

/// Returns the layers that came with a run: all up to the next one's, since those that were written before the read was
/// prepared come with the first of them. Empty: whole records, which were written before.
fn layers_of(run: &RunTime, next: Option<&RunTime>, layers: u16) -> Range<u16> {
    let Some((step, first)) = ProgressWord::parts(run.first) else { return 0..0 };
    match ProgressWord::parts(run.last) {
        Some((last_step, last)) if last_step == step => {
            let next = next.and_then(|next| ProgressWord::parts(next.first)).filter(|(of, _)| *of == step);
            first..next.map_or(layers, |(_, layer)| layer).max(last + 1)
        }
        // Several steps, told as one.
        _ => 0..layers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::StepId;

    fn run(first: u64, last: u64) -> RunTime {
        RunTime { first, last, begun: Duration::ZERO, ended: Duration::ZERO, bytes: 1 }
    }

    #[test]
    fn a_run_has_the_layers_up_to_the_next_one() {
        let mark = |step, layer| ProgressWord::mark(StepId(step), layer);
        let one = |step, layer| run(mark(step, layer), mark(step, layer));
        let layers = |run: RunTime, next: Option<RunTime>| layers_of(&run, next.as_ref(), 8);
        assert_eq!(layers(run(0, 0), Some(one(4, 0))), 0..0, "whole records have no layers");
        assert_eq!(layers(one(4, 0), Some(one(4, 3))), 0..3, "three were written when it was prepared");
        assert_eq!(layers(one(4, 3), Some(one(4, 4))), 3..4);
        assert_eq!(layers(one(4, 5), None), 5..8);
        assert_eq!(layers(one(4, 7), Some(one(5, 0))), 7..8, "the next step begins anew");
        assert_eq!(layers(run(mark(4, 2), mark(4, 3)), Some(one(4, 4))), 2..4, "two told as one");
        assert_eq!(layers(run(mark(4, 7), mark(5, 1)), Some(one(5, 2))), 0..8);
    }
}
