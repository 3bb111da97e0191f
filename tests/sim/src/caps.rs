//! The limits of numbers that a cluster is set up with, low in some worlds so that they are reached, and what is
//! asked of its memory beside requests: pins, parking, write-back.

use crate::random::Random;
use kv_manager::Watermarks;
use std::time::Duration;

/// More than any world has.
const PLENTY: usize = 1_000_000;

/// The limits.
#[derive(Clone, Debug)]
pub(crate) struct Caps {
    /// Frames of a session on their way to a worker.
    pub(crate) link_frames: usize,
    /// What waits in a worker's inbox.
    pub(crate) inbox: usize,
    /// Messages to one peer that a worker's agent takes in a turn.
    pub(crate) peer_messages: usize,
    /// Transfers of a worker that are posted and not ended.
    pub(crate) transfers: usize,
    /// The longest context of each worker; none: no bound.
    pub(crate) contexts: Vec<usize>,
    /// Most of a pool that pins may name, in percent.
    pub(crate) pinned_percent: u32,
    pub(crate) park_after: Option<Duration>,
    pub(crate) watermarks: Watermarks,
}

impl Caps {
    /// In most worlds one or two of them are low. `shortest`: a context that is enough for what is asked at the
    /// end of a world.
    pub(crate) fn draw(random: &mut Random, workers: usize, shortest: usize, longest: usize) -> Self {
        let low = |random: &mut Random, from: &[usize]| if random.chance(80) { random.pick(from) } else { PLENTY };
        let context = |random: &mut Random| {
            if random.chance(500) { random.range(shortest as u64, longest as u64) as usize } else { usize::MAX }
        };
        let high_percent = random.range(30, 90) as u32;
        Self {
            link_frames: low(random, &[3, 6, 12]),
            inbox: low(random, &[4, 12, 24]),
            peer_messages: low(random, &[1, 2, 4]),
            transfers: low(random, &[1, 2, 4]),
            contexts: if random.chance(100) { (0..workers).map(|_| context(random)).collect() } else { Vec::new() },
            pinned_percent: if random.chance(150) { random.range(5, 40) as u32 } else { 0 },
            park_after: random.chance(200).then(|| random.millis(30, 400)),
            watermarks: Watermarks { high_percent, low_percent: high_percent - random.range(0, 25) as u32 },
        }
    }

    /// The same with nothing so low that it is reached, but for what is asked of memory.
    pub(crate) fn calm(self) -> Self {
        Self {
            link_frames: PLENTY,
            inbox: PLENTY,
            peer_messages: PLENTY,
            transfers: PLENTY,
            contexts: Vec::new(),
            ..self
        }
    }
}
