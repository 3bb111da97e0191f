//! Memory of a device, and copies to and from it.

use super::context::Context;
use super::error::{DriverError, call};
use super::stream::Stream;
use cudarc::driver::sys;
use std::sync::Arc;

/// Bytes of a device's memory. The host cannot touch them.
#[derive(Debug)]
pub struct DeviceBytes {
    context: Arc<Context>,
    address: u64,
    len: usize,
}

impl DeviceBytes {
    /// Allocates so many bytes, at least one, which have no value yet. Errors: of the driver.
    pub fn new(context: &Arc<Context>, len: usize) -> Result<Self, DriverError> {
        context.bind()?;
        let mut address = 0;
        // SAFETY: the driver writes one address.
        unsafe { call!(cuMemAlloc_v2(&mut address, len.max(1))) }?;
        Ok(Self { context: context.clone(), address, len })
    }

    /// Returns the device's address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns its device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for DeviceBytes {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // The driver waits until nothing that was queued before uses it.
        // SAFETY: it was allocated here and is used no more.
        unsafe { sys::cuMemFree_v2(self.address) };
    }
}

impl Stream {
    /// Queues a copy from host memory to the device's. Pinned memory is read when the copy happens, other memory before
    /// this returns. Errors: of the driver.
    ///
    /// # Safety
    /// `to` must be the address of `from.len()` bytes of device memory which nothing else uses meanwhile. Pinned
    /// `from` must stay as it is until the copy has happened.
    pub unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), DriverError> {
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: as the caller says.
        unsafe { call!(cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.raw())) }
    }

    /// Queues a copy from the device's memory to host memory. Errors: of the driver.
    ///
    /// # Safety
    /// `from` must be the address of `len` bytes of device memory, and `to` writable for as many, until the copy has
    /// happened; nothing else may use them meanwhile.
    pub unsafe fn download(&self, to: *mut u8, from: u64, len: usize) -> Result<(), DriverError> {
        if len == 0 {
            return Ok(());
        }
        // SAFETY: as the caller says.
        unsafe { call!(cuMemcpyDtoHAsync_v2(to.cast(), from, len, self.raw())) }
    }

    /// Queues a copy within the device's memory, or from that of another one. Errors: of the driver.
    ///
    /// # Safety
    /// Both must be addresses of `len` bytes of device memory that do not overlap, and that nothing else uses
    /// meanwhile.
    pub unsafe fn copy(&self, to: u64, from: u64, len: usize) -> Result<(), DriverError> {
        if len == 0 {
            return Ok(());
        }
        // SAFETY: as the caller says.
        unsafe { call!(cuMemcpyAsync(to, from, len, self.raw())) }
    }

    /// Queues the writing of one byte all over. Errors: of the driver.
    ///
    /// # Safety
    /// `to` must be the address of `len` bytes of device memory that nothing else uses meanwhile.
    pub unsafe fn fill(&self, to: u64, byte: u8, len: usize) -> Result<(), DriverError> {
        if len == 0 {
            return Ok(());
        }
        // SAFETY: as the caller says.
        unsafe { call!(cuMemsetD8Async(to, byte, len, self.raw())) }
    }
}
