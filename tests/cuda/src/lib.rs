//! What tests of kernels share: a device, buffers between zones that nothing may write, and exact references.
//!
//! The device is a card, or the emulator where `LD_LIBRARY_PATH` names it (`make test-cuda`). Without either the tests
//! are skipped, and say so.

pub mod blocks;
mod emulator;

pub use emulator::{Counted, Emulator, Moved, Traffic, Watch, assert_moves_little};

use cuda::compiler::{Cache, Compiler};
use cuda::kernels::Loader;
use cuda::{Context, DeviceBytes, Driver, Stream, StreamPriority};
use half::bf16;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Returns the folder in which a card's kernels are kept: compiling takes longer than most tests. `None`: the emulator
/// keeps what it compiled itself, by the checks that are on.
pub fn kernel_cache() -> Option<PathBuf> {
    Emulator::find().is_none().then(|| std::env::temp_dir().join("baton-tests-kernels"))
}

/// A device with the compiler for it.
pub struct Gpu {
    /// Loads kernels.
    pub loader: Loader,
    /// What tests queue work in.
    pub stream: Stream,
}

impl Gpu {
    /// Opens the first device. `None`: there is none, which is said once.
    pub fn open() -> Option<&'static Self> {
        static GPU: OnceLock<Option<Gpu>> = OnceLock::new();
        let gpu = GPU.get_or_init(|| match Self::try_open() {
            Ok(gpu) => Some(gpu),
            Err(reason) => {
                println!("skipped: {reason}; `make test-cuda` runs the tests of kernels in an emulator");
                None
            }
        });
        let gpu = gpu.as_ref()?;
        gpu.context().bind().expect("the device is current");
        Some(gpu)
    }

    fn try_open() -> Result<Self, String> {
        let driver = Driver::load().map_err(|error| error.to_string())?;
        let compiler = Compiler::load().map_err(|error| error.to_string())?;
        let context = Context::open(driver, 0).map_err(|error| error.to_string())?;
        let loader =
            Loader::new(&context, compiler, kernel_cache().map(Cache::new)).map_err(|error| error.to_string())?;
        let stream = Stream::new(&context, StreamPriority::High).map_err(|error| error.to_string())?;
        Ok(Self { loader, stream })
    }

    /// Returns its context.
    pub fn context(&self) -> &Arc<Context> {
        self.loader.context()
    }

    /// Makes a buffer of these numbers.
    pub fn upload<T: Plain>(&self, values: &[T]) -> Buffer<'_, T> {
        let buffer = self.empty(values.len());
        // SAFETY: the buffer was just made, with as many bytes.
        unsafe { self.stream.upload(buffer.address(), bytes_of(values)) }.expect("a copy");
        self.stream.synchronize().expect("a copy");
        buffer
    }

    /// Makes a buffer of so many numbers, every byte of which is 0xFF.
    pub fn empty<T: Plain>(&self, len: usize) -> Buffer<'_, T> {
        let bytes = len * size_of::<T>();
        let memory = DeviceBytes::new(self.context(), bytes + 2 * ZONE).expect("memory of the device");
        // SAFETY: the memory was just made.
        unsafe { self.stream.fill(memory.address(), FILL, bytes + 2 * ZONE) }.expect("a write");
        self.stream.synchronize().expect("a write");
        Buffer { gpu: self, memory, len, kind: PhantomData }
    }
}

/// Bytes before and behind a buffer that nothing may write.
const ZONE: usize = 512;

/// What memory is before something is written: no number, in every format.
const FILL: u8 = 0xFF;

/// Numbers in device memory.
pub struct Buffer<'a, T> {
    gpu: &'a Gpu,
    memory: DeviceBytes,
    len: usize,
    kind: PhantomData<T>,
}

impl<T: Plain> Buffer<'_, T> {
    /// Returns the address of the first number.
    pub fn address(&self) -> u64 {
        self.memory.address() + ZONE as u64
    }

    /// Waits for what was queued, and returns the numbers.
    ///
    /// # Panics
    /// What was queued failed, or wrote beside the buffer.
    pub fn read(&self) -> Vec<T> {
        let mut whole = vec![0_u8; self.len * size_of::<T>() + 2 * ZONE];
        // SAFETY: both have so many bytes.
        unsafe { self.gpu.stream.download(whole.as_mut_ptr(), self.memory.address(), whole.len()) }.expect("a copy");
        self.gpu.stream.synchronize().expect("what was queued");
        let (before, rest) = whole.split_at(ZONE);
        let (own, behind) = rest.split_at(self.len * size_of::<T>());
        assert!(before.iter().all(|&byte| byte == FILL), "something wrote before the buffer");
        assert!(behind.iter().all(|&byte| byte == FILL), "something wrote behind the buffer");
        own.chunks_exact(size_of::<T>()).map(T::of).collect()
    }
}

/// Numbers that are their bytes, little endian.
pub trait Plain: Copy {
    /// Makes one of its bytes.
    fn of(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($type:ty),*) => {
        $(impl Plain for $type {
            fn of(bytes: &[u8]) -> Self {
                <$type>::from_le_bytes(bytes.try_into().expect("the bytes of one"))
            }
        })*
    };
}
plain!(u8, i8, u16, u32, i32, u64, f32, bf16, half::f16);

/// Returns the bytes of numbers.
pub fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: the types above are numbers without gaps between them.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Numbers that follow from a seed: the same in every run.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// Begins at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws 64 bits. Source: Steele et al., "Fast splittable pseudorandom number generators" (SplitMix64), 2014.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Draws a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Draws a number of a normal distribution, nearly: the sum of twelve even ones.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| (self.bits() >> 40) as f32 / (1u32 << 24) as f32).sum::<f32>() - 6.0
    }

    /// Draws so many in bf16, times `scale`.
    pub fn normals(&mut self, count: usize, scale: f32) -> Vec<bf16> {
        (0..count).map(|_| bf16::from_f32(self.normal() * scale)).collect()
    }
}

/// Fails unless each number is within `relative` of the exact one, plus `absolute`. What is no number is never near.
///
/// # Panics
/// One is not.
pub fn assert_near(found: &[f32], exact: &[f64], relative: f64, absolute: f64, what: &str) {
    assert_eq!(found.len(), exact.len(), "{what}");
    for (at, (&found, &exact)) in found.iter().zip(exact).enumerate() {
        let bound = exact.abs() * relative + absolute;
        let is_near = (f64::from(found) - exact).abs() <= bound;
        assert!(is_near, "{what}: number {at} is {found}, not {exact}, which allows {bound:e}");
    }
}

/// Widens numbers.
pub fn widened(values: &[bf16]) -> Vec<f32> {
    values.iter().map(|value| value.to_f32()).collect()
}
