//! Host memory that the device reads and writes by itself.

use super::context::Context;
use super::error::{DriverError, call};
use cudarc::driver::sys;
use std::ptr::NonNull;
use std::sync::Arc;

/// Host memory that the driver allocated, and that stays in its place.
#[derive(Debug)]
pub struct Pinned {
    context: Arc<Context>,
    first: NonNull<u8>,
    len: usize,
    device_address: u64,
}

// SAFETY: it is memory that it alone has.
unsafe impl Send for Pinned {}
// SAFETY: as above; it gives out an address alone.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates so many bytes of zeros, at least one. Errors: of the driver.
    pub fn new(context: &Arc<Context>, len: usize) -> Result<Self, DriverError> {
        context.bind()?;
        let (mut first, mut device_address) = (std::ptr::null_mut(), 0);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let len = len.max(1);
        // SAFETY: the driver writes one address; the memory is as long as asked for.
        unsafe {
            call!(cuMemHostAlloc(&mut first, len, flags))?;
            call!(cuMemHostGetDevicePointer_v2(&mut device_address, first, 0))?;
            first.cast::<u8>().write_bytes(0, len);
        }
        let first = NonNull::new(first.cast()).expect("the driver allocated it");
        Ok(Self { context: context.clone(), first, len, device_address })
    }

    /// Returns the first byte. What reads or writes there must know what the device does meanwhile.
    pub fn as_ptr(&self) -> *mut u8 {
        self.first.as_ptr()
    }

    /// Returns the device's address of the first byte.
    pub fn device_address(&self) -> u64 {
        self.device_address
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: it was allocated here and is used no more.
        unsafe { sys::cuMemFreeHost(self.first.as_ptr().cast()) };
    }
}

/// Host memory of another owner that is pinned as long as this lives.
#[derive(Debug)]
pub struct Registered {
    context: Arc<Context>,
    first: NonNull<u8>,
    device_address: u64,
}

// SAFETY: it is an address, of which it does nothing but end the registration.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// Pins host memory. It takes about a second per 10 GiB. Errors: of the driver.
    ///
    /// # Safety
    /// So many bytes from `first` on must be mapped, and stay so, until this is dropped.
    pub unsafe fn new(context: &Arc<Context>, first: NonNull<u8>, len: usize) -> Result<Self, DriverError> {
        context.bind()?;
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        let mut device_address = 0;
        // SAFETY: the memory is mapped, as the caller says; one address is written.
        unsafe {
            call!(cuMemHostRegister_v2(first.as_ptr().cast(), len, flags))?;
            call!(cuMemHostGetDevicePointer_v2(&mut device_address, first.as_ptr().cast(), 0))?;
        }
        Ok(Self { context: context.clone(), first, device_address })
    }

    /// Returns the device's address of the first byte.
    pub fn device_address(&self) -> u64 {
        self.device_address
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: it was registered here, and is mapped still.
        unsafe { sys::cuMemHostUnregister(self.first.as_ptr().cast()) };
    }
}
