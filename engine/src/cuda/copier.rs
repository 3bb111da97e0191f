//! Copies between a pool on a card and frames of the host, and to it out of memory of other processes. Each direction
//! has a thread, and queues of the card beside the steps; orders under way have a queue each, so that what one warp
//! sums up for one of them does not hold up the others.
//!
//! The card copies to and from frames that are pinned ([`Pins`]). For others there is staging, which is.

use super::card::Card;
use super::copy_plan::{Lists, Means, RANGES_MAX, is_reached, plan};
use super::error::CudaError;
use super::pins::{Pins, Place};
use cuda::kernels::{ExpectedSum, FramedRange, Ranges, RangesArgs};
use cuda::{Access, Context, DeviceBytes, DriverError, Pinned, Reservation, Shared, Stream, StreamPriority};
use domain::KvPart;
use domain::planted_bugs::{self, Bug};
use kv_memory::{
    Copier, CopierDevice, CopierThreads, CopyError, CopyOrder, DeviceFile, DeviceId, DeviceKind, FetchOrder,
    FetchRange, Frame, Hand, HostRange, PeerMemory, PoolRange, SumOf, decode_parts, encode_parts, fold,
};
use std::io;
use std::sync::Arc;

/// Orders of a direction that are under way at once: as many warps sum up about as fast as a bus of 16 lanes carries.
const UNDER_WAY_MAX: usize = 8;

/// Bytes of the card's memory in which an order under way puts its frame before it is scattered, at least and at most.
/// Kernels read longer frames across the bus.
const SCRATCH_BYTES: std::ops::RangeInclusive<usize> = 256 << 10..=8 << 20;

/// Bytes of a range in a list.
const RANGE_BYTES: usize = 24;
/// Where the sums of a list lie behind the lists, of which one has a single range, and the word that says whether they
/// are wrong.
const SUMS_AT: usize = (RANGES_MAX + 1) * RANGE_BYTES;
const REFUSED_AT: usize = SUMS_AT + RANGES_MAX * size_of::<u64>();
/// Bytes of the lists of an order.
const LISTS_BYTES: usize = REFUSED_AT + size_of::<u64>();

/// The card, for what is done on the asker's thread.
struct CudaCopierDevice {
    context: Arc<Context>,
    id: DeviceId,
    pins: Arc<Pins>,
}

/// What copies in one direction.
struct CudaHand {
    context: Arc<Context>,
    pins: Arc<Pins>,
    pool: Arc<Reservation>,
    kernels: Ranges,
    kits: Vec<Kit>,
    /// The kit of the next order. Those before it are busy, as many as orders are under way.
    next: usize,
}

/// What an order under way has to itself.
struct Kit {
    stream: Stream,
    /// Lists on the host, and on the card.
    lists: Pinned,
    card_lists: DeviceBytes,
    /// Where frames lie before they are scattered.
    scratch: DeviceBytes,
    /// Pinned memory for frames that are not. There from the first one on.
    staging: Option<Pinned>,
}

/// An order under way.
struct Begun {
    kit: usize,
    left: Left,
    /// What keeps the frame pinned.
    _place: Option<Arc<Place>>,
    /// Where nothing lies.
    _nowhere: Option<DeviceBytes>,
}

/// What is left to do when the card has ended an order.
enum Left {
    Nothing,
    /// To take so many bytes out of staging, if it is staged, and the sums of so many ranges from the card, if it made
    /// them.
    Framed {
        staged: Option<usize>,
        summed: usize,
    },
    /// To encode what lies in staging.
    Encode,
    /// To look whether the sum was right.
    Verdict,
}

/// Starts the copier of a pool of `len` bytes. Errors: of the driver, the kernels and the system.
pub(super) fn start(
    card: &Card,
    pool: &Arc<Reservation>,
    len: usize,
    record_bytes: usize,
) -> Result<Arc<dyn Copier>, CudaError> {
    let kernels = Ranges::load(&card.loader)?;
    let scratch = record_bytes.clamp(*SCRATCH_BYTES.start(), *SCRATCH_BYTES.end());
    let hand = |scratch: usize| {
        let kit = || {
            Ok::<_, DriverError>(Kit {
                stream: Stream::new(&card.context, StreamPriority::Low)?,
                lists: Pinned::new(&card.context, LISTS_BYTES)?,
                card_lists: DeviceBytes::new(&card.context, LISTS_BYTES)?,
                scratch: DeviceBytes::new(&card.context, scratch)?,
                staging: None,
            })
        };
        let kits = (0..UNDER_WAY_MAX).map(|_| kit()).collect::<Result<_, _>>()?;
        let (context, pins, kernels) = (card.context.clone(), card.pins.clone(), kernels.clone());
        Ok::<_, CudaError>(CudaHand { context, pins, pool: pool.clone(), kernels, kits, next: 0 })
    };
    // What leaves the pool needs none.
    let hands = [hand(0)?, hand(scratch)?];
    let device = CudaCopierDevice { context: card.context.clone(), id: DeviceId(card.number), pins: card.pins.clone() };
    let copier = CopierThreads::start("baton-cuda", device, len, hands).map_err(CudaError::Threads)?;
    Ok(Arc::new(copier))
}

impl CopierDevice for CudaCopierDevice {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cuda
    }

    fn id(&self) -> DeviceId {
        self.id
    }

    fn frame(&self, bytes: usize) -> io::Result<Frame> {
        self.pins.frame(bytes)
    }

    fn import(&self, exported: DeviceFile<'_>, len: usize) -> io::Result<Arc<PeerMemory>> {
        let end = exported.offset.checked_add(len as u64);
        if end.is_none_or(|end| end > exported.bytes) {
            return Err(io::Error::other("the memory leaves what its owner exports"));
        }
        let bytes = usize::try_from(exported.bytes).map_err(io::Error::other)?;
        let shared = Shared::from(exported.file.try_clone_to_owned()?);
        let mapped = Reservation::import(&self.context, &shared, bytes, Access::Read).or_else(|error| {
            // Drivers before CUDA 13 map memory of devices for writing alone; nothing here writes it.
            tracing::debug!(%error, "memory of a peer is mapped for writing too");
            Reservation::import(&self.context, &shared, bytes, Access::ReadWrite)
        });
        let mapped = mapped.map_err(io::Error::other)?;
        let address = mapped.address() + exported.offset;
        // SAFETY: the device may read the mapping as long as it lives, and the memory is inside of it.
        Ok(Arc::new(unsafe { PeerMemory::new(DeviceKind::Cuda, self.id, address, len, Box::new(mapped)) }))
    }

    fn pin(&self, name: &str, memory: HostRange) -> Option<Box<dyn Send>> {
        self.pins.pin(name, memory)
    }

    fn nearest_node(&self) -> Option<u32> {
        self.pins.nearest_node()
    }
}

impl Hand for CudaHand {
    const AT_ONCE: usize = UNDER_WAY_MAX;

    type Begun = Begun;

    fn bind(&mut self) {
        // A context that cannot be made current fails the first order too.
        let _ = self.context.bind();
    }

    unsafe fn gather(&mut self, order: &mut CopyOrder, bytes: usize) -> Result<Begun, CopyError> {
        let begun = self.begin_gather(order, bytes);
        self.took(begun)
    }

    unsafe fn scatter(&mut self, order: &CopyOrder, bytes: usize, sum: u64) -> Result<Begun, CopyError> {
        let begun = self.begin_scatter(order, bytes, sum);
        self.took(begun)
    }

    unsafe fn fetch(&mut self, order: &FetchOrder) -> Result<Begun, CopyError> {
        let (stream, pool) = (&self.kits[self.next].stream, self.pool.address());
        let fetched = order.ranges.iter().try_for_each(|&FetchRange { from, to, len }| {
            // SAFETY: both ranges are inside their memory, which the order and this thread hold until the copies have
            // happened, and no other code uses what is fetched to.
            unsafe { stream.copy(pool + to, order.source.address() + from, len) }
        });
        let begun = fetched.map_err(lost).map(|()| self.begun(Left::Nothing));
        self.took(begun)
    }

    unsafe fn try_out(&mut self, source: &PeerMemory, len: usize) -> Result<Begun, CopyError> {
        let nowhere = DeviceBytes::new(&self.context, len).map_err(lost)?;
        // SAFETY: the peer's memory has so many bytes and is held, and the others are this order's own.
        let copied = unsafe { self.kits[self.next].stream.copy(nowhere.address(), source.address(), len) };
        let begun = copied.map_err(lost).map(|()| Begun { _nowhere: Some(nowhere), ..self.begun(Left::Nothing) });
        self.took(begun)
    }

    fn end(&mut self, begun: Begun, gathered: Option<&mut CopyOrder>) -> Result<u64, CopyError> {
        let kit = &self.kits[begun.kit];
        if gathered.is_some() || !planted_bugs::is(Bug::CopyNotAwaited) {
            kit.stream.synchronize().map_err(lost)?;
        }
        match (begun.left, gathered) {
            (Left::Framed { staged, summed }, Some(order)) => {
                if let Some(bytes) = staged {
                    order.frame[..bytes].copy_from_slice(kit.staged(bytes));
                }
                // SAFETY: the card has written them, and this thread alone has the memory.
                let sums = unsafe { std::slice::from_raw_parts(kit.lists.as_ptr().add(SUMS_AT).cast(), summed) };
                Ok(match (order.sum, sums) {
                    (SumOf::Nothing, _) => 0,
                    (SumOf::Frame, &[sum]) => sum,
                    (SumOf::Ranges, [_, ..]) => sums.iter().copied().fold(0, fold),
                    _ => order.sum(order.ranges.iter().map(|&range| order.framed_bytes(range)).sum()),
                })
            }
            (Left::Encode, Some(order)) => {
                let raw = kit.staged(raw_bytes(order));
                if let Some(part) = order.part {
                    each(&order.ranges, part, |raw_at, framed_at| {
                        encode_parts(part, &raw[raw_at], &mut order.frame[framed_at]);
                    });
                }
                Ok(order.sum(order.ranges.iter().map(|&range| order.framed_bytes(range)).sum()))
            }
            // SAFETY: the card has written it, and this thread alone has the memory.
            (Left::Verdict, _) => match unsafe { kit.lists.as_ptr().add(REFUSED_AT).cast::<u32>().read() } {
                0 => Ok(0),
                _ => Err(CopyError::Checksum),
            },
            _ => Ok(0),
        }
    }
}

impl CudaHand {
    /// Takes the kit for an order that began. After one that failed nothing is under way there.
    fn took(&mut self, begun: Result<Begun, CopyError>) -> Result<Begun, CopyError> {
        match &begun {
            Ok(_) => self.next = (self.next + 1) % self.kits.len(),
            // What else is wrong with the card is told by the next order.
            Err(_) => drop(self.kits[self.next].stream.synchronize()),
        }
        begun
    }

    fn begun(&self, left: Left) -> Begun {
        Begun { kit: self.next, left, _place: None, _nowhere: None }
    }

    fn begin_gather(&mut self, order: &mut CopyOrder, bytes: usize) -> Result<Begun, CopyError> {
        let means = plan(order, true);
        let pinned = self.pins.find(order.frame.as_ptr(), bytes);
        let pool = self.pool.address();
        let kit = &mut self.kits[self.next];
        let Means::Kernel(lists) = &means else {
            let encodes = means == Means::Host;
            let pinned = pinned.filter(|_| !encodes);
            let to = match &pinned {
                Some(_) => order.frame.as_mut_ptr(),
                None => kit.stage(&self.context, raw_bytes(order))?.as_ptr(),
            };
            let mut at = 0;
            for range in &order.ranges {
                // SAFETY: the range is inside the pool, and the frame or the staging has room for all ranges. What the
                // card writes meanwhile arrives torn.
                unsafe { kit.stream.download(to.add(at), pool + range.at, range.len) }.map_err(lost)?;
                at += range.len;
            }
            let staged = pinned.is_none().then_some(bytes);
            let left = if encodes { Left::Encode } else { Left::Framed { staged, summed: 0 } };
            return Ok(Begun { _place: pinned.map(|(_, place)| place), ..self.begun(left) });
        };
        let pinned = pinned.filter(|&(address, _)| is_reached(lists.encoding, address));
        let frame = match &pinned {
            Some((address, _)) => *address,
            None => kit.stage(&self.context, bytes)?.device_address(),
        };
        let (staged, summed) = (pinned.is_none().then_some(bytes), lists.summed.len());
        let list = kit.send_lists(lists)?.1;
        let args = RangesArgs { frame, ranges: list, ..kit.args(pool, lists, &lists.copied) };
        let args = RangesArgs { sums: if summed == 0 { 0 } else { args.sums }, ..args };
        // SAFETY: the list was made of an order whose ranges are inside the pool and apart in the frame, which nothing
        // else uses. The sums go to the kit's own memory, which has room for as many.
        unsafe {
            self.kernels.gather(&kit.stream, &args).map_err(lost)?;
            if summed > 0 {
                let (to, from) = (kit.lists.as_ptr().add(SUMS_AT), kit.card_lists.address() + SUMS_AT as u64);
                kit.stream.download(to, from, summed * size_of::<u64>()).map_err(lost)?;
            }
        }
        Ok(Begun { _place: pinned.map(|(_, place)| place), ..self.begun(Left::Framed { staged, summed }) })
    }

    fn begin_scatter(&mut self, order: &CopyOrder, bytes: usize, sum: u64) -> Result<Begun, CopyError> {
        let means = plan(order, false);
        let is_summed_there = matches!(&means, Means::Kernel(lists) if !lists.summed.is_empty());
        if order.sum != SumOf::Nothing && !is_summed_there && order.sum(bytes) != sum {
            return Err(CopyError::Checksum);
        }
        let pool = self.pool.address();
        let kit = &mut self.kits[self.next];
        if let (Means::Host, Some(part)) = (&means, order.part) {
            let raw = kit.stage_mut(&self.context, raw_bytes(order))?;
            each(&order.ranges, part, |raw_at, framed_at| {
                decode_parts(part, &order.frame[framed_at], &mut raw[raw_at]);
            });
            kit.upload_ranges(&order.ranges, pool, kit.staged(raw_bytes(order)))?;
            return Ok(self.begun(Left::Nothing));
        }
        let pinned = self.pins.find(order.frame.as_ptr(), bytes);
        let (from, address) = match &pinned {
            Some((address, _)) => (&order.frame[..bytes], *address),
            None => {
                kit.stage_mut(&self.context, bytes)?.copy_from_slice(&order.frame[..bytes]);
                (kit.staged(bytes), kit.staging.as_ref().map_or(0, Pinned::device_address))
            }
        };
        let left = match &means {
            Means::Kernel(lists) => kit.scatter(&self.kernels, pool, lists, (from, address), order.sum, sum)?,
            _ => {
                kit.upload_ranges(&order.ranges, pool, from)?;
                Left::Nothing
            }
        };
        Ok(Begun { _place: pinned.map(|(_, place)| place), ..self.begun(left) })
    }
}

impl Kit {
    /// Returns staging of at least so many bytes.
    fn stage(&mut self, context: &Arc<Context>, bytes: usize) -> Result<&Pinned, CopyError> {
        if self.staging.as_ref().is_none_or(|staging| staging.len() < bytes) {
            self.staging = Some(Pinned::new(context, bytes.next_power_of_two()).map_err(lost)?);
        }
        self.staging.as_ref().ok_or(CopyError::Lost)
    }

    /// Returns so many bytes of staging, to be written.
    fn stage_mut(&mut self, context: &Arc<Context>, bytes: usize) -> Result<&mut [u8], CopyError> {
        let first = self.stage(context, bytes)?.as_ptr();
        // SAFETY: the memory has as many, this thread alone has it, and the kit has no order under way.
        Ok(unsafe { std::slice::from_raw_parts_mut(first, bytes) })
    }

    /// Returns what lies in staging, once it was made so long and the card does not write it.
    fn staged(&self, bytes: usize) -> &[u8] {
        let Some(staging) = self.staging.as_ref().filter(|staging| staging.len() >= bytes) else { return &[] };
        // SAFETY: the memory has as many bytes, and this thread alone has it.
        unsafe { std::slice::from_raw_parts(staging.as_ptr(), bytes) }
    }

    /// Queues a copy of the lists to the card. Returns where it finds what is summed up, and what is copied.
    fn send_lists(&self, lists: &Lists) -> Result<(u64, u64), CopyError> {
        let Lists { summed, copied, .. } = lists;
        let behind: &[FramedRange] = if copied == summed { &[] } else { copied };
        let count = summed.len() + behind.len();
        assert!(count <= RANGES_MAX + 1, "the plan keeps to it");
        // SAFETY: there is room for so many ranges, and the kit's last order has ended.
        let own = unsafe { std::slice::from_raw_parts_mut(self.lists.as_ptr(), count * RANGE_BYTES) };
        for (to, range) in own.chunks_exact_mut(RANGE_BYTES).zip(summed.iter().chain(behind)) {
            to.as_chunks_mut().0.iter_mut().zip(range.words()).for_each(|(to, word)| *to = word.to_le_bytes());
        }
        let first = self.card_lists.address();
        // SAFETY: the card's lists are as long, and what is sent stays until the kit's next order.
        unsafe { self.stream.upload(first, own) }.map_err(lost)?;
        let second = if behind.is_empty() { first } else { first + (summed.len() * RANGE_BYTES) as u64 };
        Ok((first, second))
    }

    /// Returns what kernels are told of a list; where it and the frame lie is not known yet.
    fn args(&self, pool: u64, lists: &Lists, list: &[FramedRange]) -> RangesArgs {
        RangesArgs {
            pool,
            frame: 0,
            ranges: 0,
            count: list.len() as u32,
            encoding: lists.encoding,
            sums: self.card_lists.address() + SUMS_AT as u64,
        }
    }

    /// Queues what scatters a frame, which has an address for the card as well.
    fn scatter(
        &self,
        kernels: &Ranges,
        pool: u64,
        lists: &Lists,
        (from, address): (&[u8], u64),
        sum_of: SumOf,
        sum: u64,
    ) -> Result<Left, CopyError> {
        let is_summed = !lists.summed.is_empty();
        let refused = self.card_lists.address() + REFUSED_AT as u64;
        let expected = match sum_of {
            _ if !is_summed => ExpectedSum::Any,
            SumOf::Nothing => ExpectedSum::Any,
            SumOf::Frame => ExpectedSum::Frame(sum),
            SumOf::Ranges => ExpectedSum::Ranges(sum),
        };
        let is_short = from.len() <= self.scratch.len();
        let frame = if is_short { self.scratch.address() } else { address };
        // SAFETY: the lists were made of an order whose ranges are inside its frame and apart in the pool, where
        // nothing else uses them. The frame stays as it is until the order's end. The rest is the kit's own.
        unsafe {
            if is_short {
                self.stream.upload(frame, from).map_err(lost)?;
            }
            let (summed, copied) = self.send_lists(lists)?;
            if is_summed {
                self.stream.fill(refused, 0, size_of::<u32>()).map_err(lost)?;
                let args = RangesArgs { frame, ranges: summed, ..self.args(pool, lists, &lists.summed) };
                kernels.sum(&self.stream, &args).map_err(lost)?;
            }
            let args = RangesArgs { frame, ranges: copied, ..self.args(pool, lists, &lists.copied) };
            kernels.scatter(&self.stream, &args, expected, refused).map_err(lost)?;
            if is_summed {
                let to = self.lists.as_ptr().add(REFUSED_AT);
                self.stream.download(to, refused, size_of::<u32>()).map_err(lost)?;
            }
        }
        Ok(if is_summed { Left::Verdict } else { Left::Nothing })
    }

    /// Queues copies of ranges, one behind the other in host memory that stays as it is until they have happened.
    fn upload_ranges(&self, ranges: &[PoolRange], pool: u64, from: &[u8]) -> Result<(), CopyError> {
        let mut at = 0;
        for range in ranges {
            // SAFETY: the range is inside the pool, and no other code uses what is scattered to.
            unsafe { self.stream.upload(pool + range.at, &from[at..at + range.len]) }.map_err(lost)?;
            at += range.len;
        }
        Ok(())
    }
}

/// Returns the bytes that an order's ranges have in the pool.
fn raw_bytes(order: &CopyOrder) -> usize {
    order.ranges.iter().map(|range| range.len).sum()
}

/// Calls `each` for every range: with its place among the bytes of all ranges, and in the frame.
fn each(ranges: &[PoolRange], part: KvPart, mut each: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>)) {
    let (mut raw, mut framed) = (0, 0);
    for range in ranges {
        let stored = part.stored_bytes_of(range.len);
        each(raw..raw + range.len, framed..framed + stored);
        (raw, framed) = (raw + range.len, framed + stored);
    }
}

/// Notes that the card is lost, with its error, in the log.
fn lost(error: DriverError) -> CopyError {
    tracing::error!(%error, "a copy to or from the card failed");
    CopyError::Lost
}
