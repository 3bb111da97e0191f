//! What stops a run.

use engine::cpu::CpuError;
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
    /// The device refused a step.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// A step failed.
    #[error("a step failed: {0}")]
    Step(String),
}
