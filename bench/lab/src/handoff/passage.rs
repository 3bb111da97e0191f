//! One handoff, as two timelines tell it.

use super::timeline::{Event, Span, Timeline};
use std::error::Error;

/// Slices that were read together: of which layer, if that had to be waited for, and when.
pub(super) type Slices = (Option<u16>, Span);

/// What happened when. All times are nanoseconds of the clock that both workers share.
#[derive(Debug)]
pub(super) struct Passage {
    /// The prefill worker's first step of the prompt begins.
    pub(super) begin: u64,
    /// When the K and V of each layer were written, step by step.
    pub(super) written: Vec<(u16, u64)>,
    /// What the decode worker read.
    pub(super) slices: Vec<Slices>,
    /// The prefill worker's last step of the prompt ends: the first token is there.
    pub(super) first_token: u64,
    pub(super) first_sent: u64,
    pub(super) complete: Span,
    pub(super) release: Span,
    pub(super) taken_over: u64,
    /// The decode worker's first step.
    pub(super) decode: Span,
    pub(super) second_token: u64,
}

impl Passage {
    /// Finds the one handoff in `window`. Errors: there is none, or its KV went another way than over `lane`.
    pub(super) fn find(timeline: &Timeline, window: Span, lane: &str) -> Result<Self, Box<dyn Error>> {
        let Timeline { prefill: p, decode: d } = timeline;
        let planned = p.all(window, "planned");
        let (begin, first_token) = p.prompt(window)?;
        let steps: Vec<_> = planned.iter().map(|event| event.step).collect();
        let written = p.all(window, "layer written").into_iter().filter(|event| steps.contains(&event.step));
        let request = &planned[0].request;
        let token = |events: Vec<&Event>, index| {
            let token = events.into_iter().find(|event| event.request == *request && event.index == Some(index));
            token.map(|event| event.at_ns).ok_or(format!("token {index} was not sent"))
        };
        let decode = d.all(window, "planned").into_iter().find(|event| event.request == *request);
        let release = d.first(window, "release sent")?;
        let answered = p.all(window, "release answered").into_iter().find(|event| event.lease == release.lease);
        let passage = Self {
            begin,
            written: written.filter_map(|event| Some((event.layer?, event.at_ns))).collect(),
            slices: slices(timeline, window, lane)?,
            first_token,
            first_sent: token(p.all(window, "token sent"), 0)?,
            complete: (p.first(window, "complete sent")?.at_ns, d.first(window, "complete taken")?.at_ns),
            release: (release.at_ns, answered.ok_or("a release was not answered")?.at_ns),
            taken_over: d.first(window, "taken over")?.at_ns,
            decode: d.step(window, decode.ok_or("nothing was decoded")?)?,
            second_token: token(d.all(window, "token sent"), 1)?,
        };
        Ok(passage)
    }

    /// Returns when the last slice was there, in milliseconds after the first token. Below zero: it was there before.
    pub(super) fn last_read_ms(&self) -> f64 {
        let last = self.slices.iter().map(|(_, (_, end))| *end).max().unwrap_or(self.first_token);
        ms(self.first_token, last)
    }

    /// Returns when the decode worker could go on, in milliseconds after the first token was there.
    pub(super) fn taken_over_ms(&self) -> f64 {
        ms(self.first_token, self.taken_over)
    }

    /// Milliseconds that the prompt was computed for.
    pub(super) fn prefill_ms(&self) -> f64 {
        ms(self.begin, self.first_token)
    }
}

/// Milliseconds from `from` to `to`; below zero where `to` is earlier.
pub(super) fn ms(from: u64, to: u64) -> f64 {
    (to as i64 - from as i64) as f64 / 1e6
}

/// Pairs the begins and the ends of what was read: of slices that are read at the same time, those of a layer in order.
fn slices(timeline: &Timeline, window: Span, lane: &str) -> Result<Vec<Slices>, Box<dyn Error>> {
    let mut begun = timeline.decode.all(window, "slices begun");
    let mut slices = Vec::new();
    for read in timeline.decode.all(window, "slices read") {
        if read.lane.as_deref() != Some(lane) {
            return Err(format!("KV was read over {:?}, not over {lane}", read.lane).into());
        }
        let same = |event: &&Event| {
            (event.transfer, event.step, event.layer, event.bytes) == (read.transfer, read.step, read.layer, read.bytes)
        };
        let at = begun.iter().position(same).ok_or("a read has no begin")?;
        slices.push((read.layer, (begun.remove(at).at_ns, read.at_ns)));
    }
    if slices.is_empty() { Err("no KV was read".into()) } else { Ok(slices) }
}
