//! What reading costs, measured when a peer is connected.

use crate::clock::now;
use crate::lanes::Probe;
use kv_memory::{Memory, Place, copy_racing};
use std::cell::UnsafeCell;
use std::convert::Infallible;

/// Bytes that a probe reads at once.
pub(crate) const PROBE_BYTES: usize = 1 << 20;
/// Times that each is measured; the fastest counts.
pub(crate) const PROBE_REPEATS: usize = 4;
/// Bytes of the smallest read.
pub(crate) const PROBE_BYTES_MIN: usize = 8;

/// Memory that a probe reads into.
pub(crate) struct Scratch(Box<[UnsafeCell<u8>]>);

// SAFETY: only the transfer that it is the destination of touches its bytes.
unsafe impl Sync for Scratch {}

impl Scratch {
    pub(crate) fn new(len: usize) -> Self {
        Self((0..len).map(|_| UnsafeCell::new(0)).collect())
    }
}

// SAFETY: the box is never exchanged or resized, its bytes may be written through a shared reference, and there
// are no others.
unsafe impl Memory for Scratch {
    fn place(&self) -> Place<'_> {
        Place::Host(self.0.as_ptr().cast_mut().cast())
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Measures reading within this process, out of memory of its own.
pub(crate) fn local() -> Probe {
    copies(vec![1_u8; PROBE_BYTES].as_ptr(), PROBE_BYTES)
}

/// Measures copies out of `len` readable bytes at `from`, which the caller holds mapped.
pub(crate) fn copies(from: *const u8, len: usize) -> Probe {
    let len = len.min(PROBE_BYTES);
    let mut scratch = vec![0_u8; len];
    let mut copy = |len: usize| {
        // SAFETY: the caller says that so many bytes are readable, and the scratch is as long and nobody else's.
        unsafe { copy_racing(from, scratch.as_mut_ptr(), len) };
    };
    let probe = Probe {
        bytes_per_s: len as f64 / fastest(|| copy(len)),
        latency_s: fastest(|| copy(len.min(PROBE_BYTES_MIN))),
    };
    std::hint::black_box(&scratch);
    probe
}

/// Seconds of the fastest of some runs. The first one is not counted: it touches pages for the first time.
fn fastest(mut run: impl FnMut()) -> f64 {
    let Ok(seconds) = fastest_of(|| {
        run();
        Ok::<_, Infallible>(())
    });
    seconds
}

/// Returns the seconds of the fastest of some runs, of which the first one is not counted. Errors: of a run.
pub(crate) fn fastest_of<E>(mut run: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    run()?;
    let mut fastest = f64::INFINITY;
    for _ in 0..PROBE_REPEATS {
        let begin = now();
        run()?;
        fastest = fastest.min(now().duration_since(begin).as_secs_f64());
    }
    Ok(fastest.max(1e-9))
}
