//! Why there is no device on a card.

use cuda::kernels::LoadError;
use cuda::{DriverError, Missing};
use std::io;

/// Why a device on a card cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// The host has no driver, or the driver no card.
    #[error("there is no cuda device here: {0}")]
    Missing(#[from] Missing),
    /// The card that was asked for is not there.
    #[error("there is no card {card}: the driver has {cards}, from 0 on")]
    Card {
        /// The card.
        card: u32,
        /// How many there are.
        cards: u32,
    },
    /// The kernels do not run on such a card.
    #[error("{name} has the compute capability {major}.{minor}; the kernels need 8.0 or later")]
    Capability {
        /// The card.
        name: String,
        /// Its capability.
        major: u32,
        /// Its capability.
        minor: u32,
    },
    /// Kernels cannot be compiled or loaded.
    #[error("the kernels cannot be loaded: {0}")]
    Kernels(#[from] LoadError),
    /// The configuration contradicts itself or the model.
    #[error("the cuda device cannot be made so: {0}")]
    Config(String),
    /// The card has no memory left.
    #[error("the card has no {bytes} bytes for {what}: {source}")]
    Memory {
        /// What the memory is for, in plural or as a mass noun.
        what: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// The driver's answer.
        #[source]
        source: DriverError,
    },
    /// The kernels of the set `fast` cannot be prepared.
    #[error("engine.kernels is fast, which cannot be had: {0}")]
    Fast(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Another call of the driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// No threads.
    #[error("cannot start the device's threads")]
    Threads(#[source] io::Error),
}
