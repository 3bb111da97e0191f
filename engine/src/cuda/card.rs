//! A card that was opened, with the compiler of its kernels.

use super::error::CudaError;
use super::pins::Pins;
use cuda::compiler::{Cache, Compiler};
use cuda::kernels::{LoadError, Loader};
use cuda::{Attribute, Context, Driver, Identity};
use std::path::Path;
use std::sync::Arc;

/// The first compute capability that the kernels run on: that of an A100.
pub const CAPABILITY_MIN: (u32, u32) = (8, 0);

/// A card of this host, opened for this process.
pub struct Card {
    pub(super) number: u32,
    pub(super) context: Arc<Context>,
    pub(super) loader: Loader,
    /// Blocks that run at once where each has a multiprocessor to itself.
    pub(super) multiprocessors: u32,
    /// Host memory that it copies to and from without a detour.
    pub(super) pins: Arc<Pins>,
    description: String,
}

impl Card {
    /// Opens card `number`. Kernels are compiled for it when they are loaded the first time, and kept in `cache`.
    /// Errors: [`CudaError`].
    pub fn open(number: u32, cache: Option<&Path>) -> Result<Arc<Self>, CudaError> {
        let driver = Driver::load()?;
        if number >= driver.devices() {
            return Err(CudaError::Card { card: number, cards: driver.devices() });
        }
        let compiler = Compiler::load().map_err(LoadError::from)?;
        let context = Context::open(driver, number)?;
        let (name, (major, minor)) = (context.name()?, context.capability()?);
        if (major, minor) < CAPABILITY_MIN {
            return Err(CudaError::Capability { name, major, minor });
        }
        let loader = Loader::new(&context, compiler, cache.map(Cache::new))?;
        let multiprocessors = context.attribute(Attribute::Multiprocessors)?.unsigned_abs();
        let (driver, compiler) = (driver.version(), compiler.version());
        let description = format!(
            "{name} ({}, driver {}.{}, nvrtc {}.{})",
            loader.architecture(),
            driver.0,
            driver.1,
            compiler.0,
            compiler.1
        );
        let pins = Arc::new(Pins::new(&context));
        Ok(Arc::new(Self { number, context, loader, multiprocessors, pins, description }))
    }

    /// Returns the bytes of its memory that are free, and all of them. Errors: of the driver.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        Ok(self.context.memory()?)
    }

    /// Returns the card in words: its name, architecture, and the versions of driver and compiler.
    pub fn describe(&self) -> &str {
        &self.description
    }
}

/// Returns the cards of this host, by number, as the driver tells of them without opening one. Errors: there is no
/// driver, or no card.
pub fn cards() -> Result<Vec<Identity>, CudaError> {
    let driver = Driver::load()?;
    (0..driver.devices()).map(|card| Ok(driver.identity(card)?)).collect()
}
