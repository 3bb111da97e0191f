//! Rows of tensors on their way to a card, in slices: while one is copied, others are read and converted.

use cuda::{Context, DriverError, Event, Pinned, Stream, StreamPriority};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a slice: enough that a copy runs at the link's speed.
const SLICE_BYTES: usize = 4 << 20;
/// Slices of a thread: one is filled while the other is copied.
const SLICES: usize = 2;
/// Threads that read and convert, at most.
const THREADS_MAX: usize = 8;

/// What fills the bytes of some rows.
pub(super) type Fill<'a> = &'a (dyn Fn(Range<usize>, &mut [u8]) + Sync);

/// Threads with pinned memory.
pub(super) struct Uploader {
    lanes: Vec<Lane>,
}

struct Lane {
    stream: Stream,
    slices: [Slice; SLICES],
}

struct Slice {
    memory: Pinned,
    /// It was copied.
    copied: Event,
}

impl Uploader {
    /// Makes as many threads' memory as the host has processors. Errors: of the driver.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, DriverError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let slice = || Ok(Slice { memory: Pinned::new(context, SLICE_BYTES)?, copied: Event::new(context)? });
        let lane = |_| Ok(Lane { stream: Stream::new(context, StreamPriority::Low)?, slices: [slice()?, slice()?] });
        Ok(Self { lanes: (0..threads).map(lane).collect::<Result<_, DriverError>>()? })
    }

    /// Writes `rows` rows of `row_bytes` to the device's memory from `to` on, and waits until they are there. Errors:
    /// of the driver.
    ///
    /// # Safety
    /// There must be as many bytes, which nothing else uses meanwhile.
    pub(super) unsafe fn upload(
        &mut self,
        to: u64,
        rows: usize,
        row_bytes: usize,
        fill: Fill<'_>,
    ) -> Result<(), DriverError> {
        let step = (SLICE_BYTES / row_bytes.max(1)).max(1);
        let next = AtomicUsize::new(0);
        let take = || {
            let from = next.fetch_add(step, Ordering::Relaxed);
            (from < rows).then(|| from..rows.min(from + step))
        };
        let wanted = rows.div_ceil(step).clamp(1, self.lanes.len());
        std::thread::scope(|scope| {
            // SAFETY: as the caller says; the threads have different rows.
            let run = |lane: &'_ mut Lane| unsafe { lane.run(to, row_bytes, fill, &take) };
            let (first, others) = self.lanes[..wanted].split_first_mut().expect("there is one");
            let others: Vec<_> = others.iter_mut().map(|lane| scope.spawn(move || run(lane))).collect();
            let own = run(first);
            others.into_iter().map(|thread| thread.join().expect("it does not panic")).fold(own, Result::and)
        })
    }
}

impl Lane {
    /// Takes slices as long as there are any.
    ///
    /// # Safety
    /// As [`Uploader::upload`] says.
    unsafe fn run(
        &mut self,
        to: u64,
        row_bytes: usize,
        fill: Fill<'_>,
        take: &(dyn Fn() -> Option<Range<usize>> + Sync),
    ) -> Result<(), DriverError> {
        self.stream.context().bind()?;
        for at in 0.. {
            let Some(rows) = take() else { break };
            let slice = &mut self.slices[at % SLICES];
            slice.copied.synchronize()?;
            let bytes = rows.len() * row_bytes;
            // A row that is longer than a slice has one of its own.
            if bytes > slice.memory.len() {
                slice.memory = Pinned::new(self.stream.context(), bytes)?;
            }
            // SAFETY: the memory is this slice's, and has been copied.
            let own = unsafe { std::slice::from_raw_parts_mut(slice.memory.as_ptr(), bytes) };
            let first = rows.start;
            fill(rows, own);
            // SAFETY: as the caller says; the slice stays until its event.
            unsafe { self.stream.upload(to + (first * row_bytes) as u64, own) }?;
            self.stream.record(&slice.copied)?;
        }
        self.stream.synchronize()
    }
}
