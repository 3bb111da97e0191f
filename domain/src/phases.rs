//! What took time in an attempt at a worker: the parts of a prompt, loads from tiers, reads from other workers with the
//! layers and the lane, decoding. Explanations of requests, the console's waterfall and the spans of traces are made of
//! these, and of nothing else.
//!
//! What is deliberately absent: times of day. A phase begins so long after its attempt came to its worker.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

/// Phases of an attempt that a worker keeps until it tells them. Above: neighbours are told as one.
pub const PHASES_MAX: usize = 192;

/// What a phase is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PhaseKind {
    /// Until the first step of the prompt began.
    Queue,
    /// A tier's blocks of the prompt came.
    Load,
    /// A step computed a part of the prompt.
    Chunk,
    /// KV came from another worker.
    Transfer,
    /// Tokens were made, from the second on.
    Decode,
}

impl PhaseKind {
    /// Returns its name: that of its span.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Load => "load",
            Self::Chunk => "prefill chunk",
            Self::Transfer => "transfer",
            Self::Decode => "decode steps",
        }
    }
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What it is about.
    pub kind: PhaseKind,
    /// When it began, since the attempt came.
    pub begin: Duration,
    /// How long it took.
    pub took: Duration,
    /// The first position of the prompt that it is about.
    pub start: u32,
    /// Tokens that it is about; 0: not told.
    pub tokens: u32,
    /// Bytes that came: over a lane, as they travelled.
    pub bytes: u64,
    /// Layers that came, as a step wrote them. Empty: all of them, written before.
    pub layers: Range<u16>,
    /// The lane or the tier that it came over; empty: none.
    pub via: Cow<'static, str>,
    /// The name of the worker that it came from; empty: none.
    pub peer: String,
    /// As many phases are told as this one.
    pub parts: u32,
}

impl Phase {
    /// Makes a phase that is about nothing more.
    pub fn new(kind: PhaseKind, begin: Duration, end: Duration) -> Self {
        Self {
            kind,
            begin,
            took: end.saturating_sub(begin),
            start: 0,
            tokens: 0,
            bytes: 0,
            layers: 0..0,
            via: Cow::Borrowed(""),
            peer: String::new(),
            parts: 1,
        }
    }

    /// Returns when it ended, since the attempt came.
    pub fn end(&self) -> Duration {
        self.begin.saturating_add(self.took)
    }

    /// Tells another phase as a part of this one.
    pub fn absorb(&mut self, other: &Self) {
        let end = self.end().max(other.end());
        self.begin = self.begin.min(other.begin);
        self.took = end - self.begin;
        self.start = self.start.min(other.start);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.layers = self.layers.start.min(other.layers.start)..self.layers.end.max(other.layers.end);
        self.parts = self.parts.saturating_add(other.parts);
    }

    /// Returns whether another phase goes on where this one ends, or is about the same layers.
    fn is_neighbour(&self, next: &Self) -> bool {
        let is_alike = (self.kind, &self.via, &self.peer) == (next.kind, &next.via, &next.peer);
        is_alike
            && match self.kind {
                PhaseKind::Chunk => self.start.checked_add(self.tokens) == Some(next.start),
                PhaseKind::Transfer => {
                    let follows = !self.layers.is_empty() && !next.layers.is_empty();
                    self.layers == next.layers || (follows && self.layers.end == next.layers.start)
                }
                PhaseKind::Load => true,
                PhaseKind::Queue | PhaseKind::Decode => false,
            }
    }
}

/// The phases of an attempt that are not told yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    kept: Vec<Phase>,
    left_out: u32,
}

impl Phases {
    /// Adds a phase. Where there are [`PHASES_MAX`], pairs of neighbours are made one first; where there are no
    /// neighbours, the phase is left out and counted.
    pub fn push(&mut self, phase: Phase) {
        if self.kept.len() >= PHASES_MAX {
            self.coarsen();
        }
        if self.kept.len() < PHASES_MAX {
            self.kept.push(phase);
        } else {
            self.left_out = self.left_out.saturating_add(phase.parts);
        }
    }

    /// Adds a phase to the last one of its kind, lane and worker, or as a new one.
    pub fn extend(&mut self, phase: Phase) {
        let is_same = |kept: &&mut Phase| (kept.kind, &kept.via, &kept.peer) == (phase.kind, &phase.via, &phase.peer);
        match self.kept.iter_mut().rev().find(is_same) {
            Some(kept) => kept.absorb(&phase),
            None => self.push(phase),
        }
    }

    /// Returns whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.left_out == 0
    }

    /// Takes all phases, and how many more there were.
    pub fn take(&mut self) -> (Vec<Phase>, u32) {
        let Self { kept, left_out } = std::mem::take(self);
        (kept, left_out)
    }

    fn coarsen(&mut self) {
        let mut coarse: Vec<Phase> = Vec::with_capacity(PHASES_MAX);
        // A phase absorbs one neighbour at a time, so that all become coarser alike.
        let mut is_pair = false;
        for phase in self.kept.drain(..) {
            match coarse.last_mut().filter(|last| !is_pair && last.is_neighbour(&phase)) {
                Some(last) => {
                    last.absorb(&phase);
                    is_pair = true;
                }
                None => {
                    coarse.push(phase);
                    is_pair = false;
                }
            }
        }
        self.kept = coarse;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn layer(number: u16) -> Phase {
        let begin = at(u64::from(number) * 10);
        let plain = Phase::new(PhaseKind::Transfer, begin, begin + at(7));
        Phase { layers: number..number + 1, bytes: 100, via: "tcp".into(), peer: "p".to_owned(), ..plain }
    }

    #[test]
    fn however_many_layers_there_are_all_are_told_and_few_are_kept() {
        let mut phases = Phases::default();
        const LAYERS: u16 = 1000;
        (0..LAYERS).for_each(|number| phases.push(layer(number)));
        let (kept, left_out) = phases.take();
        assert!(kept.len() <= PHASES_MAX && left_out == 0, "{} are kept", kept.len());
        assert!(phases.is_empty());
        let (bytes, parts) = kept.iter().fold((0, 0), |(bytes, parts), it| (bytes + it.bytes, parts + it.parts));
        assert_eq!((bytes, parts), (100 * u64::from(LAYERS), u32::from(LAYERS)));
        for pair in kept.windows(2) {
            assert_eq!(pair[0].layers.end, pair[1].layers.start, "each layer is in one phase");
        }
        assert_eq!(kept.last().map(|it| (it.layers.end, it.end())), Some((LAYERS, at(9997))));
    }

    #[test]
    fn whole_records_stay_apart_from_layers() {
        let mut phases = Phases::default();
        let whole = |n: u16| Phase { layers: 0..0, ..layer(n) };
        for n in 0..PHASES_MAX as u16 {
            phases.push(if n % 2 == 0 { whole(n) } else { Phase { layers: 0..1, ..layer(n) } });
        }
        phases.push(whole(0));
        let (kept, left_out) = phases.take();
        assert!(kept.len() == PHASES_MAX && left_out == 1 && kept.iter().all(|phase| phase.parts == 1));
    }

    #[test]
    fn what_has_no_neighbour_is_left_out_and_counted() {
        let mut phases = Phases::default();
        let queue = || Phase::new(PhaseKind::Queue, at(0), at(1));
        (0..PHASES_MAX + 3).for_each(|_| phases.push(queue()));
        let (kept, left_out) = phases.take();
        assert_eq!((kept.len(), left_out), (PHASES_MAX, 3));
    }

    #[test]
    fn blocks_of_one_tier_are_one_load() {
        let mut phases = Phases::default();
        let load = |tier: &'static str, begin, end| Phase {
            via: tier.into(),
            tokens: 16,
            bytes: 5,
            ..Phase::new(PhaseKind::Load, at(begin), at(end))
        };
        [load("host", 1, 5), load("disk", 1, 9), load("host", 1, 7)].into_iter().for_each(|it| phases.extend(it));
        let (kept, _) = phases.take();
        assert_eq!(kept, [Phase { tokens: 32, bytes: 10, parts: 2, ..load("host", 1, 7) }, load("disk", 1, 9)]);
    }
}
