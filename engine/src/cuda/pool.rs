//! Memory of a KV pool on a card.

use super::card::Card;
use super::copier;
use super::error::CudaError;
use cuda::{DriverError, Reservation, Shared, Stream, StreamPriority};
use domain::KvPart;
use kv_memory::{Copier, DeviceFile, DeviceId, DeviceKind, DevicePlace, Exports, Memory, Place};
use std::os::fd::AsFd;
use std::sync::Arc;

/// A pool: one range of addresses, which begins zeroed.
pub struct CudaPool {
    memory: Arc<Reservation>,
    /// What other processes of the host map it by. `None`: the driver exports nothing.
    shared: Option<Shared>,
    id: DeviceId,
    len: usize,
    part: KvPart,
    copier: Arc<dyn Copier>,
}

impl CudaPool {
    /// Allocates a pool of so many records of `record_bytes` bytes each, all zero, with what copies to it and from it.
    /// Errors: the card has no memory; of the driver, the kernels and the system.
    pub fn new(card: &Card, records: usize, record_bytes: usize, part: KvPart) -> Result<Self, CudaError> {
        let len = records * record_bytes;
        let memory =
            allocate(card, len).map_err(|source| CudaError::Memory { what: "KV blocks", bytes: len, source })?;
        let copier = copier::start(card, &memory, len, record_bytes)?;
        let shared = memory
            .share()
            .inspect_err(|error| tracing::warn!(%error, "other processes cannot map the pool of {}", card.describe()))
            .ok();
        Ok(Self { memory, shared, id: DeviceId(card.number), len, part, copier })
    }

    /// Returns the card's address of the first byte.
    pub(super) fn address(&self) -> u64 {
        self.memory.address()
    }
}

/// Allocates so many bytes, all zero. Errors: of the driver.
fn allocate(card: &Card, len: usize) -> Result<Arc<Reservation>, DriverError> {
    let memory = Reservation::new(&card.context, len, false)?;
    let stream = Stream::new(&card.context, StreamPriority::High)?;
    // SAFETY: the memory was just made.
    unsafe { stream.fill(memory.address(), 0, memory.len()) }?;
    stream.synchronize()?;
    Ok(Arc::new(memory))
}

// SAFETY: it answers the same as long as it lives; the memory is a device's, which the host reaches by the copier
// alone, and is mapped on the device as long as the reservation lives.
unsafe impl Memory for CudaPool {
    fn place(&self) -> Place<'_> {
        let bytes = self.memory.len() as u64;
        let file = self.shared.as_ref().map(|shared| DeviceFile { file: shared.as_fd(), bytes, offset: 0 });
        Place::Device(DevicePlace {
            id: self.id,
            kind: DeviceKind::Cuda,
            address: self.memory.address(),
            exports: Exports { file, ..Exports::default() },
            copier: &self.copier,
        })
    }

    fn len(&self) -> usize {
        self.len
    }

    fn part(&self) -> Option<KvPart> {
        Some(self.part)
    }
}
