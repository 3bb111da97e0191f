//! What copies between memory of a device and the host's, and out of memory of other processes' devices, as seen by who
//! asks for it.

use crate::checksum::{checksum, fold};
use crate::device::{DeviceFile, DeviceId, DeviceKind};
use crate::frame::Frame;
use crate::host_range::HostRange;
use crate::peer_memory::PeerMemory;
use domain::KvPart;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Orders that wait in one direction of a copier. The asker of one more waits until there is room.
pub const COPIES_QUEUED_MAX: usize = 256;

/// Copies between one pool of a device and frames in host memory, and to the pool out of memory of other processes'
/// devices.
///
/// The two directions do not wait for each other. Within one, orders begin and end in turn, and some may be under way
/// at the same time. Bytes of the pool that its owner writes meanwhile arrive torn, as the asker expects. No other
/// code, and no other order, may use ranges that are scattered to, or fetched to.
pub trait Copier: Send + Sync {
    /// Makes a frame of so many bytes, at least one, as the copier likes them: pinned, if a device reads it. Errors: of
    /// the system.
    fn frame(&self, bytes: usize) -> io::Result<Frame>;

    /// Copies the order's ranges to the beginning of its frame, one behind the other.
    fn gather(&self, order: CopyOrder) -> Ticket;

    /// Copies what the beginning of the order's frame has to its ranges. Nothing is written if its checksum is not
    /// `sum`, where the order has one.
    fn scatter(&self, order: CopyOrder, sum: u64) -> Ticket;

    /// Maps `len` bytes of what another process exports, for reading alone where the driver can. Waits for the driver.
    /// Errors: of the driver, which may reach that device not at all.
    fn import(&self, exported: DeviceFile<'_>, len: usize) -> io::Result<Arc<PeerMemory>>;

    /// Copies ranges of memory that a copier of the pool's device mapped to ranges of the pool. It is of the direction
    /// of [`Copier::scatter`], and may be carried out at the same time as that.
    fn fetch(&self, order: FetchOrder) -> Ticket<Fetched>;

    /// Copies the first `len` bytes of such memory, or all if it has fewer, to where nothing lies, so that the asker
    /// sees how long that takes.
    fn try_out(&self, source: &Arc<PeerMemory>, len: usize) -> Ticket<Fetched>;

    /// Begins to pin host memory, in the background, so that the device copies to it and from it without a detour.
    /// Frames over it may be ordered before, and where the system refuses. `name` is for the log. The memory is held
    /// until the end of what is returned, which waits for what is under way. `None`: the device needs none pinned, or
    /// the log says why it cannot be.
    fn pin(&self, _name: &str, _memory: HostRange) -> Option<Box<dyn Send>> {
        None
    }

    /// Returns the node of the host's memory that is nearest to the device. `None`: all are alike, or it is not known.
    fn nearest_node(&self) -> Option<u32> {
        None
    }
}

/// Bytes of a pool, inside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRange {
    /// Where they begin, in bytes from the beginning of the pool.
    pub at: u64,
    /// How many there are.
    pub len: usize,
}

/// What a checksum is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumOf {
    /// There is none.
    Nothing,
    /// Of what the frame has, as a whole.
    Frame,
    /// Of each range as the frame has it, folded in their order.
    Ranges,
}

/// What is to be copied.
pub struct CopyOrder {
    /// Host memory. It comes back with the end.
    pub frame: Frame,
    /// What of the pool.
    pub ranges: Vec<PoolRange>,
    /// What the ranges are made of, where the frame has them encoded; then they are whole parts. `None`: it has them
    /// as they are.
    pub part: Option<KvPart>,
    /// What is summed up.
    pub sum: SumOf,
    /// Called when it has ended, on any thread. It must not wait.
    pub waker: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl CopyOrder {
    /// Returns the bytes of a range as the frame has it.
    pub fn framed_bytes(&self, range: PoolRange) -> usize {
        self.part.map_or(range.len, |part| part.stored_bytes_of(range.len))
    }

    /// Returns the bytes that all ranges have in the frame. Errors: a range leaves the pool of `bytes` bytes, is not
    /// whole parts, or they have no room in the frame.
    pub fn check(&self, bytes: usize) -> Result<usize, CopyError> {
        let mut framed = 0_usize;
        for &range in &self.ranges {
            let is_inside = range.at.checked_add(range.len as u64).is_some_and(|end| end <= bytes as u64);
            let is_whole = self.part.is_none_or(|part| range.len.is_multiple_of(part.bytes()));
            if !is_inside || !is_whole {
                return Err(CopyError::Order { range, bytes });
            }
            framed = framed.saturating_add(self.framed_bytes(range));
            if framed > self.frame.len() {
                return Err(CopyError::Order { range, bytes });
            }
        }
        Ok(framed)
    }

    /// Returns the checksum that the order wants of what lies in its frame, of which so many bytes; 0: it wants none.
    pub fn sum(&self, framed: usize) -> u64 {
        match self.sum {
            SumOf::Nothing => 0,
            SumOf::Frame => checksum(&self.frame[..framed]),
            SumOf::Ranges => {
                let mut rest = &self.frame[..framed];
                self.ranges.iter().fold(0, |sum, &range| {
                    let (own, after) = rest.split_at(self.framed_bytes(range));
                    rest = after;
                    fold(sum, checksum(own))
                })
            }
        }
    }
}

/// Bytes of a peer's memory, and where they go in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchRange {
    /// Where they begin, in bytes from the beginning of the peer's memory.
    pub from: u64,
    /// Where they go, in bytes from the beginning of the pool.
    pub to: u64,
    /// How many there are.
    pub len: usize,
}

/// What is to be copied out of memory of another process' device.
pub struct FetchOrder {
    /// The memory. The order holds it until its end.
    pub source: Arc<PeerMemory>,
    /// What of it, and where it goes. No two of them write the same bytes.
    pub ranges: Vec<FetchRange>,
    /// Called when it has ended, on any thread. It must not wait.
    pub waker: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl FetchOrder {
    /// Returns the bytes of all ranges. Errors: the memory was not mapped for this device, or a range leaves it, or the
    /// pool of `bytes` bytes.
    pub fn check(&self, kind: DeviceKind, device: DeviceId, bytes: usize) -> Result<u64, CopyError> {
        if (self.source.kind(), self.source.reader()) != (kind, device) {
            return Err(CopyError::Foreign { kind, device });
        }
        let peer = self.source.len();
        let inside =
            |at: u64, len: usize, bytes: usize| at.checked_add(len as u64).is_some_and(|end| end <= bytes as u64);
        self.ranges.iter().try_fold(0, |sum: u64, &range| {
            if inside(range.from, range.len, peer) && inside(range.to, range.len, bytes) {
                Ok(sum.saturating_add(range.len as u64))
            } else {
                Err(CopyError::Fetch { range, peer, bytes })
            }
        })
    }
}

/// What was fetched.
#[derive(Debug)]
pub struct Fetched {
    /// The order's, for the next one.
    pub ranges: Vec<FetchRange>,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// What was copied.
#[derive(Debug)]
pub struct Copied {
    /// The order's.
    pub frame: Frame,
    /// Bytes of it that were copied.
    pub bytes: usize,
    /// Their checksum; 0: the order wanted none.
    pub sum: u64,
}

/// Why nothing, or not all, was copied. The frame is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The order cannot be carried out.
    #[error("{} bytes from {} are not whole parts of a pool of {bytes} bytes with room in the frame", range.len, range.at)]
    Order {
        /// The first range that is at fault.
        range: PoolRange,
        /// Bytes of the pool.
        bytes: usize,
    },
    /// What is to be fetched leaves an end.
    #[error(
        "{} bytes from {} to {} leave the peer's memory of {peer} bytes, or the pool of {bytes}",
        range.len, range.from, range.to
    )]
    Fetch {
        /// The first range that is at fault.
        range: FetchRange,
        /// Bytes of the peer's memory.
        peer: usize,
        /// Bytes of the pool.
        bytes: usize,
    },
    /// What is to be fetched from was mapped for another device.
    #[error("the peer's memory was not mapped for {device} ({kind})")]
    Foreign {
        /// What drives the device that should fetch.
        kind: DeviceKind,
        /// That device.
        device: DeviceId,
    },
    /// What was to be scattered does not match its checksum.
    #[error("the bytes do not match their checksum")]
    Checksum,
    /// The system has no memory for a frame.
    #[error("there is no memory for a frame: {0}")]
    NoFrame(io::ErrorKind),
    /// The device, or the copier's thread, is lost.
    #[error("the copier is lost")]
    Lost,
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        Self::NoFrame(error.kind())
    }
}

/// How an order ended that gives a `T`.
type End<T> = Result<T, CopyError>;

struct Slot<T> {
    end: Mutex<Option<End<T>>>,
    ended: Condvar,
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, Option<End<T>>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An order under way.
pub struct Ticket<T = Copied>(Arc<Slot<T>>);

/// Where the copier tells the order's end. If it is dropped instead, the order has ended with [`CopyError::Lost`].
pub struct Reply<T = Copied> {
    /// There until it is told.
    slot: Option<Arc<Slot<T>>>,
    waker: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl<T> Ticket<T> {
    /// Makes a ticket for an order with this waker, for a copier that carries it out.
    pub fn new(waker: Option<Arc<dyn Fn() + Send + Sync>>) -> (Self, Reply<T>) {
        let slot = Arc::new(Slot { end: Mutex::new(None), ended: Condvar::new() });
        (Self(slot.clone()), Reply { slot: Some(slot), waker })
    }

    /// Returns whether it has ended.
    pub fn is_over(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Waits for the end. Errors: [`CopyError`].
    pub fn wait(self) -> Result<T, CopyError> {
        let mut end = self.0.lock();
        loop {
            if let Some(end) = end.take() {
                return end;
            }
            end = self.0.ended.wait(end).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Reply<T> {
    /// Tells the end.
    pub fn tell(mut self, end: Result<T, CopyError>) {
        self.end(end);
    }

    fn end(&mut self, end: End<T>) {
        let Some(slot) = self.slot.take() else { return };
        *slot.lock() = Some(end);
        slot.ended.notify_all();
        if let Some(waker) = &self.waker {
            waker();
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        self.end(Err(CopyError::Lost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn an_order_whose_copier_ends_ends_too() {
        let woken = Arc::new(AtomicU32::new(0));
        let count = woken.clone();
        let (ticket, reply) = Ticket::<Copied>::new(Some(Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        })));
        assert!(!ticket.is_over());
        drop(reply);
        assert!(ticket.is_over());
        assert_eq!(ticket.wait().err(), Some(CopyError::Lost));
        assert_eq!(woken.load(Ordering::Relaxed), 1, "it is told once");
    }

    #[test]
    fn ranges_that_leave_the_pool_or_the_frame_are_refused() {
        let order = |ranges: &[(u64, usize)]| CopyOrder {
            frame: Frame::new(100).expect("memory"),
            ranges: ranges.iter().map(|&(at, len)| PoolRange { at, len }).collect(),
            part: None,
            sum: SumOf::Ranges,
            waker: None,
        };
        assert_eq!(order(&[(0, 50), (150, 50)]).check(200), Ok(100));
        for bad in [&[(151, 50)][..], &[(u64::MAX, 2)], &[(0, 60), (60, 60)]] {
            assert!(matches!(order(bad).check(200), Err(CopyError::Order { .. })), "{bad:?}");
        }
    }

    #[test]
    fn what_is_fetched_stays_inside_both_ends_and_is_the_devices_own() {
        let (kind, device) = (DeviceKind::Cuda, DeviceId(3));
        // SAFETY: nothing reads it.
        let source = Arc::new(unsafe { PeerMemory::new(kind, device, 0, 100, Box::new(())) });
        let order = |ranges: &[(u64, u64, usize)]| FetchOrder {
            source: source.clone(),
            ranges: ranges.iter().map(|&(from, to, len)| FetchRange { from, to, len }).collect(),
            waker: None,
        };
        assert_eq!(order(&[(50, 0, 50), (0, 150, 50)]).check(kind, device, 200), Ok(100));
        for bad in [(51, 0, 50), (0, 151, 50), (u64::MAX, 0, 2), (0, u64::MAX, 2)] {
            let refused = order(&[(0, 0, 1), bad]).check(kind, device, 200);
            assert!(matches!(refused, Err(CopyError::Fetch { .. })), "{bad:?}");
        }
        for (kind, device) in [(DeviceKind::Guarded, device), (kind, DeviceId(0))] {
            assert_eq!(order(&[]).check(kind, device, 200), Err(CopyError::Foreign { kind, device }));
        }
    }
}
