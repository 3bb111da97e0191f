//! Host memory that a card copies to and from without a detour: frames that the driver allocated, and slices of memory
//! that was there, which is pinned in the background.

use cuda::{Context, DriverError, Pinned, Registered};
use kv_memory::{Frame, HostRange};
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes that are pinned at once, a multiple of a page. The end of a tier waits at most as long as that takes: about a
/// tenth of a second.
const SLICE_BYTES: usize = 1 << 30;

/// How often the log says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// What is pinned for one card.
pub(super) struct Pins {
    context: Arc<Context>,
    /// By the address of the first byte. None overlaps another.
    places: RwLock<BTreeMap<usize, Arc<Place>>>,
}

/// Memory that is pinned as long as this lives.
pub(super) struct Place {
    /// What the card knows the first byte by.
    address: u64,
    len: usize,
    /// Before what it lies in, which must be mapped until it is not pinned any more.
    _pin: Pin,
    _memory: Option<HostRange>,
}

#[expect(dead_code, reason = "they are dropped, and nothing else")]
enum Pin {
    Allocated(Pinned),
    Registered(Registered),
}

/// Memory that is being pinned, or is. When it is dropped it is so no more.
struct Pinning {
    pins: Arc<Pins>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<usize>>>,
}

/// A frame in the list.
struct Listed {
    pins: Arc<Pins>,
    first: usize,
}

impl Pins {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: context.clone(), places: RwLock::default() }
    }

    /// Returns the card's address of host memory, if all of it lies in one place that is pinned, and what keeps it so.
    pub(super) fn find(&self, first: *const u8, len: usize) -> Option<(u64, Arc<Place>)> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let (&begin, place) = places.range(..=first.addr()).next_back()?;
        let at = first.addr() - begin;
        (at + len <= place.len).then(|| (place.address + at as u64, place.clone()))
    }

    /// Makes a frame that is pinned, or one that is not where the driver has no such memory. Errors: of the system.
    pub(super) fn frame(self: &Arc<Self>, bytes: usize) -> io::Result<Frame> {
        let pinned = match Pinned::new(&self.context, bytes) {
            Ok(pinned) => pinned,
            Err(error) => {
                tracing::debug!(%error, bytes, "a frame is not pinned");
                return Frame::new(bytes);
            }
        };
        let first = NonNull::new(pinned.as_ptr()).expect("the driver allocated it");
        let (address, len) = (pinned.device_address(), pinned.len());
        self.list(first.as_ptr().addr(), Place { address, len, _pin: Pin::Allocated(pinned), _memory: None });
        let listed = Listed { pins: self.clone(), first: first.as_ptr().addr() };
        // SAFETY: the memory is this frame's alone, and there until it is taken off the list.
        Ok(unsafe { Frame::over(first, len, Box::new(listed)) })
    }

    /// Begins to pin host memory, slice by slice. `None`: the system has no thread for it.
    pub(super) fn pin(self: &Arc<Self>, name: &str, memory: HostRange) -> Option<Box<dyn Send>> {
        let (pins, stops, name) = (self.clone(), Arc::new(AtomicBool::new(false)), name.to_owned());
        let stop = stops.clone();
        let thread = threads::spawn("baton-cuda-pin".to_owned(), move || pins.pin_slices(&name, &memory, &stop));
        let thread = thread.inspect_err(|error| tracing::warn!(%error, "there is no thread that pins memory")).ok()?;
        Some(Box::new(Pinning { pins: self.clone(), stops, thread: Some(thread) }))
    }

    /// Pins a memory until it is told to stop, or the driver refuses. Returns where the slices begin.
    #[expect(clippy::disallowed_methods, reason = "the log says how long it takes; no core is told of it")]
    fn pin_slices(&self, name: &str, memory: &HostRange, stops: &AtomicBool) -> Vec<usize> {
        let (mut slices, mut done, begin) = (Vec::new(), 0, Instant::now());
        let (mut told, bytes) = (begin, memory.len());
        let first = memory.first().as_ptr();
        while done < bytes && !stops.load(Ordering::Relaxed) {
            let len = SLICE_BYTES.min(bytes - done);
            let at = first.wrapping_add(done);
            if let Err(error) = self.register(at, len, memory) {
                tracing::warn!(
                    memory = name, pinned = done, bytes, %error,
                    "host memory is not pinned from here on: copies between it and the card take a detour. Give the \
                     process a higher limit of locked memory (`ulimit -l unlimited`, LimitMEMLOCK=infinity), or make \
                     the tier smaller than the host's free memory (host.bytes)"
                );
                return slices;
            }
            slices.push(at.addr());
            done += len;
            if done < bytes && told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                let seconds = begin.elapsed().as_secs_f32();
                tracing::info!(
                    memory = name,
                    pinned = done,
                    bytes,
                    seconds,
                    "host memory is being pinned for the card"
                );
            }
        }
        let seconds = begin.elapsed().as_secs_f32();
        if done == bytes {
            tracing::info!(memory = name, pinned = done, bytes, seconds, "host memory is pinned for the card");
        }
        slices
    }

    fn register(&self, first: *mut u8, len: usize, memory: &HostRange) -> Result<(), DriverError> {
        let first = NonNull::new(first).expect("the kernel maps nothing at address zero");
        // SAFETY: the range is inside the memory, which the place keeps mapped until it is not pinned any more.
        let registered = unsafe { Registered::new(&self.context, first, len) }?;
        let address = registered.device_address();
        let place = Place { address, len, _pin: Pin::Registered(registered), _memory: Some(memory.clone()) };
        self.list(first.as_ptr().addr(), place);
        Ok(())
    }

    fn list(&self, first: usize, place: Place) {
        self.places.write().unwrap_or_else(PoisonError::into_inner).insert(first, Arc::new(place));
    }

    /// Takes a place off the list. It is pinned until no copy uses it.
    fn unlist(&self, first: usize) {
        // Dropped without the lock: the driver waits for the card.
        let place = self.places.write().unwrap_or_else(PoisonError::into_inner).remove(&first);
        drop(place);
    }

    /// Returns the node of the host's memory that the card is at. `None`: the system does not say, or has but one.
    pub(super) fn nearest_node(&self) -> Option<u32> {
        let address = self.context.pci_address().ok()?;
        std::fs::read_to_string(format!("/sys/bus/pci/devices/{address}/numa_node")).ok()?.trim().parse().ok()
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.pins.unlist(self.first);
    }
}

impl Drop for Pinning {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        let slices = self.thread.take().and_then(|thread| thread.join().ok());
        slices.into_iter().flatten().for_each(|first| self.pins.unlist(first));
    }
}
