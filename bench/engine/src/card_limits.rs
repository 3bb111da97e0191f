//! What a card does at best: reads, copies, products, launches. All that is read is compared.

use crate::SAMPLES_MAX;
use crate::card_copies::{self, Records};
use crate::clock::now;
use crate::error::BenchError;
use crate::settings::CardChoice;
use cuda::compiler::{Cache, Compiler};
use cuda::kernels::{LimitKernels, LoadError, Loader, PiecesArgs};
use cuda::{Attribute, Capture, Context, DeviceBytes, Driver, DriverError, Event, Pinned, Stream, StreamPriority};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a piece: what a layer has of a block of 16 tokens, in the shape of Llama 3.1 8B.
const PIECE_BYTES: u64 = 64 << 10;
/// Bytes from a piece to the next: what a block has of all layers.
const STRIDE: u64 = 2 << 20;
/// Memory that is read unless another amount is asked for, in bytes.
const BYTES_WANTED: u64 = 32 << 30;
/// Of the memory that is free, so many eighths are used at most.
const FREE_EIGHTHS: u64 = 6;
/// Most bytes of a copy over the bus.
const COPY_BYTES_MAX: u64 = 256 << 20;
/// Of the memory that is read, the part that is copied over the bus; products are in proportion to it, too.
const COPY_SHARE: u64 = 8;
/// Rounds of products for each MiB that is read.
const ROUNDS_MAX: u64 = 1 << 15;
/// Blocks that read on a multiprocessor, and that multiply there.
const READERS: u32 = 8;
const MULTIPLIERS: u32 = 2;
/// Launches in a row.
const LAUNCHES: u32 = 200;
/// What memory is filled with.
const FILL: u8 = 0xA5;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardSizes {
    /// Bytes of the card's memory that are read. `None`: 32 GiB, or three quarters of what is free.
    pub bytes: Option<u64>,
    /// How often each limit is taken; the best counts.
    pub samples: usize,
}

/// The limits of a card. Rates count bytes once where they are read, and twice where they are copied.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardLimits {
    /// Its name, as the driver has it.
    pub name: String,
    /// What kernels are compiled for, as in `sm_90a`.
    pub architecture: String,
    /// The version of CUDA that the driver implements.
    pub driver: String,
    /// The version of the compiler.
    pub compiler: String,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Engines that copy beside kernels.
    pub copy_engines: u32,
    /// Bytes of its second-level cache.
    pub cache_bytes: u64,
    /// Bytes of its memory, and those that were free.
    pub memory_bytes: u64,
    /// Those that were free.
    pub free_bytes: u64,
    /// Where it is on the PCI bus.
    pub pci_address: String,
    /// Bytes that were read for the rates below.
    pub bytes: u64,
    /// Memory read in a row.
    pub read_gb_per_s: f64,
    /// Pieces of 64 KiB read that begin 2 MiB apart.
    pub pieces_gb_per_s: f64,
    /// Memory copied within the card, by the driver.
    pub copy_gb_per_s: f64,
    /// Products of bf16 into f32 by the instruction that the kernels use (`mma.sync`), in registers.
    pub bf16_tflop_per_s: f64,
    /// Microseconds from a kernel that does nothing to the next one: launched one by one.
    pub launch_us: f64,
    /// In a graph.
    pub graph_launch_us: f64,
    /// In a graph, where each may begin before the one ahead of it has ended.
    pub overlapped_launch_us: f64,
    /// Copied to the card out of pinned memory of the host.
    pub to_card_gb_per_s: f64,
    /// Copied from the card.
    pub from_card_gb_per_s: f64,
    /// Both at once, added up.
    pub both_ways_gb_per_s: f64,
    /// Records of 2 MiB copied from the card by the copier of its pools, from the order to its end.
    pub records_from_card_gb_per_s: f64,
    /// Records copied to the card.
    pub records_to_card_gb_per_s: f64,
}

impl CardLimits {
    /// Measures them. Errors: there is no card, no memory on it, or it reads what is not there.
    pub fn measure(choice: &CardChoice, sizes: CardSizes) -> Result<Self, BenchError> {
        if !(1..=SAMPLES_MAX).contains(&sizes.samples) {
            return Err(BenchError::Settings(format!("--samples {}: 1 to {SAMPLES_MAX}", sizes.samples)));
        }
        let probe = Probe::open(choice, sizes)?;
        let (context, driver, compiler) = (&probe.context, probe.driver.version(), probe.compiler.version());
        let whole = |attribute| context.attribute(attribute).map(i32::unsigned_abs);
        let (free, total) = context.memory()?;
        let (read_gb_per_s, pieces_gb_per_s, copy_gb_per_s) = probe.memory()?;
        let (launch_us, graph_launch_us, overlapped_launch_us) = probe.launches()?;
        let (to_card_gb_per_s, from_card_gb_per_s, both_ways_gb_per_s) = probe.bus()?;
        let records = Records { bytes: STRIDE, order: (probe.copied() / STRIDE).max(1), samples: sizes.samples };
        let (records_from_card_gb_per_s, records_to_card_gb_per_s) = card_copies::measure(choice, &records)?;
        Ok(Self {
            name: context.name()?,
            architecture: probe.loader.architecture().to_owned(),
            driver: format!("{}.{}", driver.0, driver.1),
            compiler: format!("{}.{}", compiler.0, compiler.1),
            multiprocessors: probe.multiprocessors,
            copy_engines: whole(Attribute::CopyEngines)?,
            cache_bytes: whole(Attribute::CacheBytes)?.into(),
            memory_bytes: total as u64,
            free_bytes: free as u64,
            pci_address: context.pci_address()?,
            bytes: probe.bytes,
            read_gb_per_s,
            pieces_gb_per_s,
            copy_gb_per_s,
            bf16_tflop_per_s: probe.products()?,
            launch_us,
            graph_launch_us,
            overlapped_launch_us,
            to_card_gb_per_s,
            from_card_gb_per_s,
            both_ways_gb_per_s,
            records_from_card_gb_per_s,
            records_to_card_gb_per_s,
        })
    }

    /// Returns the better of each of two measurements of one card.
    #[must_use]
    pub fn or_better(&self, other: &Self) -> Self {
        Self {
            read_gb_per_s: self.read_gb_per_s.max(other.read_gb_per_s),
            pieces_gb_per_s: self.pieces_gb_per_s.max(other.pieces_gb_per_s),
            copy_gb_per_s: self.copy_gb_per_s.max(other.copy_gb_per_s),
            bf16_tflop_per_s: self.bf16_tflop_per_s.max(other.bf16_tflop_per_s),
            launch_us: self.launch_us.min(other.launch_us),
            graph_launch_us: self.graph_launch_us.min(other.graph_launch_us),
            overlapped_launch_us: self.overlapped_launch_us.min(other.overlapped_launch_us),
            to_card_gb_per_s: self.to_card_gb_per_s.max(other.to_card_gb_per_s),
            from_card_gb_per_s: self.from_card_gb_per_s.max(other.from_card_gb_per_s),
            both_ways_gb_per_s: self.both_ways_gb_per_s.max(other.both_ways_gb_per_s),
            records_from_card_gb_per_s: self.records_from_card_gb_per_s.max(other.records_from_card_gb_per_s),
            records_to_card_gb_per_s: self.records_to_card_gb_per_s.max(other.records_to_card_gb_per_s),
            ..self.clone()
        }
    }
}

impl fmt::Display for CardLimits {
    /// Lines for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        writeln!(
            f,
            "{} ({}, driver {}, nvrtc {}) at {}: {} multiprocessors, {} copy engines, {} MiB of cache, {:.1} of {:.1} GiB free",
            self.name,
            self.architecture,
            self.driver,
            self.compiler,
            self.pci_address,
            self.multiprocessors,
            self.copy_engines,
            self.cache_bytes >> 20,
            gib(self.free_bytes),
            gib(self.memory_bytes)
        )?;
        let rows = [
            ("memory, read in a row", self.read_gb_per_s, "GB/s"),
            ("memory, 64 KiB every 2 MiB", self.pieces_gb_per_s, "GB/s"),
            ("memory, copied (read and written)", self.copy_gb_per_s, "GB/s"),
            ("bf16 by mma.sync, in registers", self.bf16_tflop_per_s, "TFLOP/s"),
            ("a launch, one by one", self.launch_us, "us"),
            ("a launch in a graph", self.graph_launch_us, "us"),
            ("a launch in a graph, overlapped", self.overlapped_launch_us, "us"),
            ("bus, to the card", self.to_card_gb_per_s, "GB/s"),
            ("bus, from the card", self.from_card_gb_per_s, "GB/s"),
            ("bus, both at once", self.both_ways_gb_per_s, "GB/s"),
            ("records, from the card", self.records_from_card_gb_per_s, "GB/s"),
            ("records, to the card", self.records_to_card_gb_per_s, "GB/s"),
        ];
        rows.iter().try_for_each(|(what, figure, unit)| writeln!(f, "{what:<36}{figure:>10.2} {unit}"))
    }
}

/// A card with memory to measure in.
struct Probe {
    driver: Driver,
    compiler: Compiler,
    context: Arc<Context>,
    loader: Loader,
    kernels: LimitKernels,
    stream: Stream,
    multiprocessors: u32,
    /// Bytes of `memory`: a multiple of the stride.
    bytes: u64,
    memory: DeviceBytes,
    samples: usize,
}

impl Probe {
    fn open(choice: &CardChoice, sizes: CardSizes) -> Result<Self, BenchError> {
        let (driver, compiler) = (Driver::load()?, Compiler::load().map_err(LoadError::from)?);
        let context = Context::open(driver, choice.number)?;
        let loader = Loader::new(&context, compiler, choice.kernels.as_deref().map(Cache::new))?;
        let kernels = LimitKernels::load(&loader)?;
        let stream = Stream::new(&context, StreamPriority::High)?;
        let multiprocessors = context.attribute(Attribute::Multiprocessors)?.unsigned_abs();
        let free = context.memory()?.0 as u64 / 8 * FREE_EIGHTHS;
        let bytes = sizes.bytes.unwrap_or(BYTES_WANTED).min(free) / STRIDE * STRIDE;
        let bytes = bytes.max(STRIDE);
        let memory = DeviceBytes::new(&context, bytes as usize)?;
        // SAFETY: the memory was just made.
        unsafe { stream.fill(memory.address(), FILL, bytes as usize) }?;
        stream.synchronize()?;
        let samples = sizes.samples;
        Ok(Self { driver, compiler, context, loader, kernels, stream, multiprocessors, bytes, memory, samples })
    }

    /// Takes the shortest time of work that is queued, after once that does not count.
    fn shortest(&self, queue: impl Fn() -> Result<(), DriverError>) -> Result<f64, DriverError> {
        let (began, ended) = (Event::timed(&self.context)?, Event::timed(&self.context)?);
        let mut shortest = Duration::MAX;
        for sample in 0..=self.samples {
            self.stream.record(&began)?;
            queue()?;
            self.stream.record(&ended)?;
            ended.synchronize()?;
            if sample > 0 {
                shortest = shortest.min(ended.since(&began)?);
            }
        }
        // Clocks of cards tick in half microseconds: no work takes no time.
        Ok(shortest.max(Duration::from_nanos(1)).as_secs_f64())
    }

    /// Takes reads in a row, reads of pieces, and copies, in GB/s.
    fn memory(&self) -> Result<(f64, f64, f64), BenchError> {
        let row = self.read(self.bytes / PIECE_BYTES, PIECE_BYTES)?;
        let pieces = self.read(self.bytes / STRIDE, STRIDE)?;
        let half = self.bytes / 2;
        let from = self.memory.address();
        // SAFETY: both halves are the memory's, which nothing else uses.
        let copied = self.shortest(|| unsafe { self.stream.copy(from + half, from, half as usize) })?;
        Ok((row, pieces, 2.0 * half as f64 / copied / 1e9))
    }

    /// Takes reads of so many pieces.
    fn read(&self, pieces: u64, stride: u64) -> Result<f64, BenchError> {
        let total = self.word()?;
        let blocks = (self.multiprocessors * READERS).min(pieces as u32).max(1);
        let args = PiecesArgs {
            from: self.memory.address(),
            pieces,
            piece_bytes: PIECE_BYTES,
            stride,
            total: total.address(),
            blocks,
        };
        // SAFETY: the pieces are in the memory, which nothing writes.
        let seconds = self.shortest(|| unsafe { self.kernels.read(&self.stream, &args) })?;
        let bytes = pieces * PIECE_BYTES;
        let words = (bytes / size_of::<u32>() as u64 * (self.samples as u64 + 1)) as u32;
        let expected = words.wrapping_mul(u32::from_le_bytes([FILL; 4]));
        self.expect("read memory", &total, expected)?;
        Ok(bytes as f64 / seconds / 1e9)
    }

    /// Takes products, in TFLOP/s.
    fn products(&self) -> Result<f64, BenchError> {
        let blocks = self.multiprocessors * MULTIPLIERS;
        let rounds = (self.bytes >> 20).clamp(1, ROUNDS_MAX) as u32;
        let out = DeviceBytes::new(&self.context, LimitKernels::outputs(blocks) * size_of::<f32>())?;
        // SAFETY: there is a number for each thread.
        let seconds =
            self.shortest(|| unsafe { self.kernels.multiply(&self.stream, out.address(), rounds, blocks) })?;
        Ok(LimitKernels::operations(rounds, blocks) as f64 / seconds / 1e12)
    }

    /// Takes microseconds of a launch: one by one, in a graph, and in a graph overlapped.
    fn launches(&self) -> Result<(f64, f64, f64), BenchError> {
        let count = self.word()?;
        let queue = |overlaps| {
            // SAFETY: the word is the kernel's alone.
            (0..LAUNCHES).try_for_each(|_| unsafe { self.kernels.count(&self.stream, count.address(), overlaps) })
        };
        let mut alone = f64::INFINITY;
        for _ in 0..=self.samples {
            // With the host, which may be what takes longest.
            let began = now();
            queue(false)?;
            self.stream.synchronize()?;
            alone = alone.min(now().duration_since(began).as_secs_f64());
        }
        let graph = |overlaps| {
            let capture = Capture::begin(&self.stream)?;
            queue(overlaps)?;
            let graph = capture.end()?;
            // SAFETY: as above.
            self.shortest(|| unsafe { graph.launch(&self.stream) })
        };
        let (plain, overlapped) = (graph(false)?, graph(true)?);
        self.expect("ran kernels", &count, LAUNCHES * 3 * (self.samples as u32 + 1))?;
        let each = |seconds: f64| seconds * 1e6 / f64::from(LAUNCHES);
        Ok((each(alone), each(plain), each(overlapped)))
    }

    /// Returns the bytes of a copy over the bus.
    fn copied(&self) -> u64 {
        (self.bytes / COPY_SHARE).min(COPY_BYTES_MAX)
    }

    /// Takes copies to the card, from it, and both at once, in GB/s.
    fn bus(&self) -> Result<(f64, f64, f64), BenchError> {
        let len = self.copied() as usize;
        let (down, up) = (Pinned::new(&self.context, len)?, Pinned::new(&self.context, len)?);
        let second = Stream::new(&self.context, StreamPriority::High)?;
        let (begin, end) = (Event::new(&self.context)?, Event::new(&self.context)?);
        let (to, from) = (self.memory.address(), self.memory.address() + len as u64);
        // SAFETY: the memory is pinned and nothing else writes it.
        let bytes = unsafe { std::slice::from_raw_parts(down.as_ptr(), len) };
        // SAFETY: both ends are so long, and different bytes for each direction; here and below.
        let to_card = self.shortest(|| unsafe { self.stream.upload(to, bytes) })?;
        // SAFETY: as above.
        let from_card = self.shortest(|| unsafe { self.stream.download(up.as_ptr(), from, len) })?;
        let both = self.shortest(|| {
            self.stream.record(&begin)?;
            second.wait(&begin)?;
            // SAFETY: as above.
            unsafe {
                self.stream.upload(to, bytes)?;
                second.download(up.as_ptr(), from, len)?;
            }
            second.record(&end)?;
            self.stream.wait(&end)
        })?;
        // SAFETY: the copies have ended.
        let came = unsafe { std::slice::from_raw_parts(up.as_ptr(), len) };
        let wrong = came.iter().filter(|&&byte| byte != FILL).count() as u64;
        if wrong != 0 {
            return Err(BenchError::Wrong { what: "copied wrong bytes to the host", found: wrong, expected: 0 });
        }
        let rate = |bytes: usize, seconds: f64| bytes as f64 / seconds / 1e9;
        Ok((rate(len, to_card), rate(len, from_card), rate(2 * len, both)))
    }

    /// Makes a u32 that is zero.
    fn word(&self) -> Result<DeviceBytes, DriverError> {
        let word = DeviceBytes::new(&self.context, size_of::<u32>())?;
        // SAFETY: it was just made.
        unsafe { self.stream.fill(word.address(), 0, word.len()) }?;
        Ok(word)
    }

    /// Fails unless a word is as expected.
    fn expect(&self, what: &'static str, word: &DeviceBytes, expected: u32) -> Result<(), BenchError> {
        let mut found = [0_u8; size_of::<u32>()];
        // SAFETY: both are a word long.
        unsafe { self.stream.download(found.as_mut_ptr(), word.address(), found.len()) }?;
        self.stream.synchronize()?;
        match u32::from_le_bytes(found) {
            found if found == expected => Ok(()),
            found => Err(BenchError::Wrong { what, found: found.into(), expected: expected.into() }),
        }
    }
}
