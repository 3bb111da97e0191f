//! Launches of kernels.

use super::error::{DriverError, call};
use super::module::Function;
use super::stream::Stream;
use cudarc::driver::sys;
use std::ffi::c_void;

/// How many blocks of how many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks, in three dimensions.
    pub blocks: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Whether it may begin before the kernel that was queued before it has ended. The kernel waits by itself then,
    /// before it touches anything but weights (`ptx::dependents_wait`).
    pub overlaps: bool,
}

impl Grid {
    /// Makes a grid of one dimension, without dynamic shared memory.
    pub fn of(blocks: u32, threads: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads, shared_bytes: 0, overlaps: false }
    }
}

/// Arguments of a kernel, in its order. What each is follows from the call that adds it; the kernel must take the same.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    words: [u64; Self::MAX],
    count: usize,
}

impl Default for Args {
    fn default() -> Self {
        Self { words: [0; Self::MAX], count: 0 }
    }
}

impl Args {
    /// Arguments that a kernel can have.
    const MAX: usize = 32;

    /// Makes an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an address of the device, or another 64-bit number.
    pub fn address(mut self, value: u64) -> Self {
        self.words[self.count] = value;
        self.count += 1;
        self
    }

    /// Adds a number of 32 bits without sign.
    pub fn number(self, value: u32) -> Self {
        // Little endian: the first four bytes of the word are the number.
        self.address(value.into())
    }

    /// Adds a number with a point.
    pub fn float(self, value: f32) -> Self {
        self.number(value.to_bits())
    }
}

impl Stream {
    /// Queues a kernel. Errors: of the driver; the grid is beyond the device's limits.
    ///
    /// # Safety
    /// The arguments must be those that the kernel takes, and all that it reads and writes by them must be memory that
    /// is there, and that nothing else uses meanwhile.
    pub unsafe fn launch(&self, function: &Function, grid: Grid, mut args: Args) -> Result<(), DriverError> {
        let mut pointers = [std::ptr::null_mut::<c_void>(); Args::MAX];
        for (pointer, word) in pointers.iter_mut().zip(&mut args.words) {
            *pointer = (&raw mut *word).cast();
        }
        let mut overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let [x, y, z] = grid.blocks;
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared_bytes,
            hStream: self.raw(),
            attrs: &raw mut overlap,
            numAttrs: grid.overlaps.into(),
        };
        // SAFETY: the driver reads one pointer for each argument that the kernel takes, and as many bytes behind it as
        // that has; for the rest, as the caller says.
        unsafe { call!(cuLaunchKernelEx(&config, function.raw(), pointers.as_mut_ptr(), std::ptr::null_mut())) }
    }
}
