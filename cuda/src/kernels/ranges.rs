//! Ranges of a pool to a frame and back, encoded and summed up if that is wanted.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};

pub(super) const SOURCE: Source = source!("ranges.cu");

/// Threads of a block.
const THREADS: u32 = 512;
/// Ranges that a block takes at once: one per warp.
const RANGES_AT_ONCE: u32 = THREADS / 32;
/// Blocks, at most, so that a step beside them hardly notices.
const BLOCKS_MAX: u32 = 8;

/// The kernels. None of them begins before what is queued before it has ended.
#[derive(Clone, Debug)]
pub struct Ranges {
    gather: Function,
    sum: Function,
    scatter: Function,
}

/// Bytes of a pool, and where they lie in a frame.
///
/// A warp takes one at a time, at some 7 GB/s: where nothing is summed up by ranges, long ones are better cut, between
/// parts if they are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramedRange {
    /// Where they begin in the pool. Bytes that are encoded begin at a multiple of 16.
    pub at: u64,
    /// How many bytes of the pool there are: whole parts, if they are encoded.
    pub bytes: u32,
    /// Where they begin in the frame. Bytes that are encoded begin at a multiple of 4.
    pub framed_at: u64,
    /// How many bytes there are in the frame.
    pub framed_bytes: u32,
}

/// Numbers of bf16 that are encoded by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EncodedSection {
    /// Numbers, a multiple of 8.
    pub numbers: u32,
    /// Numbers that share a scale, a multiple of 8; a section has at most 32 such groups.
    pub group: u32,
}

/// How a frame has its ranges: domain's `Encoding`, of a pool of bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameEncoding {
    /// As they are.
    Exact,
    /// Whole numbers from -127 to 127. The sections of a part; the second one may be empty.
    Int8([EncodedSection; 2]),
    /// Floats of 8 bits, E4M3. The sections of a part; the second one may be empty.
    Fp8([EncodedSection; 2]),
}

/// What is copied; addresses are the device's.
#[derive(Clone, Copy, Debug)]
pub struct RangesArgs {
    /// The pool, in device memory.
    pub pool: u64,
    /// The frame, in device memory or pinned host memory.
    pub frame: u64,
    /// The list, [`FramedRange::words`] each.
    pub ranges: u64,
    /// Ranges of the list.
    pub count: u32,
    /// How the frame has them.
    pub encoding: FrameEncoding,
    /// Checksums of the ranges as the frame has them, u64, `[count]`: kv-memory's `checksum`. 0: none.
    pub sums: u64,
}

/// What the sums of a list must be before it is scattered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedSum {
    /// Anything.
    Any,
    /// This is the sum of the whole frame, and the first of the sums.
    Frame(u64),
    /// This is what the sums become when they are folded in their order, from 0 on.
    Ranges(u64),
}

impl FramedRange {
    /// Returns it as the kernels read it.
    pub fn words(self) -> [u64; 3] {
        [self.at, self.framed_at, u64::from(self.bytes) | u64::from(self.framed_bytes) << 32]
    }
}

impl FrameEncoding {
    /// Adds it to the arguments of a kernel.
    fn add_to(self, args: Args) -> Args {
        let (number, sections) = match self {
            Self::Exact => (0, [EncodedSection::default(); 2]),
            Self::Int8(sections) => (1, sections),
            Self::Fp8(sections) => (2, sections),
        };
        let add = |args: Args, section: EncodedSection| args.number(section.numbers).number(section.group);
        sections.into_iter().fold(args.number(number), add)
    }
}

impl Ranges {
    /// Loads them. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        let module = loader.module(&SOURCE)?;
        Ok(Self {
            gather: module.function("gather_ranges")?,
            sum: module.function("sum_ranges")?,
            scatter: module.function("scatter_ranges")?,
        })
    }

    /// Queues copies from the pool to the frame, and of their checksums. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`RangesArgs`] says, all ranges inside the pool and apart in the frame, and nothing else
    /// may use what is written. What else is written in the pool meanwhile arrives torn.
    pub unsafe fn gather(&self, stream: &Stream, args: &RangesArgs) -> Result<(), DriverError> {
        let words = Args::new().address(args.pool).address(args.frame).address(args.ranges).address(args.sums);
        let words = args.encoding.add_to(words.number(args.count));
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.gather, grid(args.count), words) }
    }

    /// Queues the summing up of what a frame has of the ranges; nothing is copied. For the sum of a whole frame the
    /// list is one range. Errors: of the driver.
    ///
    /// # Safety
    /// As [`Ranges::gather`]; the frame and the sums alone are used.
    pub unsafe fn sum(&self, stream: &Stream, args: &RangesArgs) -> Result<(), DriverError> {
        let words = Args::new().address(args.frame).address(args.ranges).address(args.sums).number(args.count);
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.sum, grid(args.count), words) }
    }

    /// Queues copies from the frame to the pool. Where the sums, which were made before ([`Ranges::sum`]), are not as
    /// expected, nothing is written but a 1 to the u32 at `refused`. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`RangesArgs`] says, all ranges inside the frame and apart in the pool, and nothing else
    /// may use what is written. The sums must be there, unless they may be anything.
    pub unsafe fn scatter(
        &self,
        stream: &Stream,
        args: &RangesArgs,
        expected: ExpectedSum,
        refused: u64,
    ) -> Result<(), DriverError> {
        let (sum, sum_of) = match expected {
            ExpectedSum::Any => (0, 0),
            ExpectedSum::Frame(sum) => (sum, 1),
            ExpectedSum::Ranges(sum) => (sum, 2),
        };
        let words = Args::new().address(args.frame).address(args.pool).address(args.ranges).address(args.sums);
        let words = words.address(refused).address(sum).number(sum_of).number(args.count);
        // SAFETY: as the caller says.
        unsafe { stream.launch(&self.scatter, grid(args.count), args.encoding.add_to(words)) }
    }
}

fn grid(ranges: u32) -> Grid {
    Grid::of(ranges.div_ceil(RANGES_AT_ONCE).clamp(1, BLOCKS_MAX), THREADS)
}
