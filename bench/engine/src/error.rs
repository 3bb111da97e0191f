//! What stops a run.

use cuda::DriverError;
use cuda::kernels::LoadError as KernelError;
use engine::cpu::CpuError;
use engine::cuda::CudaError;
use engine::device::SubmitError;
use engine::models::bind::LoadError;
use std::io;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Settings that contradict each other or a bound.
    #[error("{0}")]
    Settings(String),
    /// The weights cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is no device for it.
    #[error(transparent)]
    Device(#[from] CpuError),
    /// There is no memory to measure the limits in.
    #[error("cannot measure the machine's limits")]
    Limits(#[source] io::Error),
    /// There is no card, or no memory on it.
    #[error(transparent)]
    Card(#[from] CudaError),
    /// There is no driver of cards.
    #[error(transparent)]
    Missing(#[from] cuda::Missing),
    /// There is no compiler of kernels, or it fails.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A call of the driver failed.
    #[error("cannot measure the card's limits: {0}")]
    Driver(#[from] DriverError),
    /// The card computes what is wrong.
    #[error("the card {what}: {found}, not {expected}; its figures mean nothing")]
    Wrong {
        /// What it did.
        what: &'static str,
        /// What came of it.
        found: u64,
        /// What should have.
        expected: u64,
    },
    /// The device refused a step.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// A step failed.
    #[error("a step failed: {0}")]
    Step(String),
}
