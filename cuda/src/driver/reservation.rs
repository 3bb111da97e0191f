//! Device memory that other processes of the host can map.

use super::context::Context;
use super::error::{DriverError, call};
use cudarc::driver::sys;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// What this process may do with memory that it maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it alone.
    Read,
    /// Read and write it.
    ReadWrite,
}

/// Device memory at an address of its own. It has a file descriptor, which other processes map it by.
#[derive(Debug)]
pub struct Reservation {
    context: Arc<Context>,
    address: u64,
    len: usize,
    memory: sys::CUmemGenericAllocationHandle,
}

/// A file descriptor of device memory.
#[derive(Debug)]
pub struct Shared(OwnedFd);

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Shared {
    /// Takes what another process sent.
    fn from(file: OwnedFd) -> Self {
        Self(file)
    }
}

/// How allocations are exported.
const HANDLE: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

impl Reservation {
    /// Allocates at least so many bytes, which have no value yet; the device rounds them up. With `for_network_cards`
    /// they may be registered with network cards, where the device can. Errors: of the driver.
    pub fn new(context: &Arc<Context>, len: usize, for_network_cards: bool) -> Result<Self, DriverError> {
        context.bind()?;
        let property = property(context, for_network_cards);
        let mut step = 0;
        let minimum = sys::CUmemAllocationGranularity_flags_enum::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        // SAFETY: the property is whole; one number is written.
        unsafe { call!(cuMemGetAllocationGranularity(&mut step, &property, minimum)) }?;
        let len = len.max(1).next_multiple_of(step.max(1));
        let mut memory = 0;
        // SAFETY: as above; one handle is written.
        unsafe { call!(cuMemCreate(&mut memory, len, &property, 0)) }?;
        Self::map(context, memory, len, Access::ReadWrite)
    }

    /// Maps what another process shared, which has so many bytes. Errors: of the driver.
    pub fn import(context: &Arc<Context>, shared: &Shared, len: usize, access: Access) -> Result<Self, DriverError> {
        context.bind()?;
        let mut memory = 0;
        let file = shared.0.as_raw_fd() as usize as *mut std::ffi::c_void;
        // SAFETY: the descriptor is open; one handle is written.
        unsafe { call!(cuMemImportFromShareableHandle(&mut memory, file, HANDLE)) }?;
        Self::map(context, memory, len, access)
    }

    fn map(
        context: &Arc<Context>,
        memory: sys::CUmemGenericAllocationHandle,
        len: usize,
        access: Access,
    ) -> Result<Self, DriverError> {
        let mut reservation = Self { context: context.clone(), address: 0, len, memory };
        // SAFETY: one address is written.
        unsafe { call!(cuMemAddressReserve(&mut reservation.address, len, 0, 0, 0)) }?;
        use sys::CUmemAccess_flags_enum as Flags;
        let flags = match access {
            Access::Read => Flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Access::ReadWrite => Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let description = sys::CUmemAccessDesc { location: location(context), flags };
        // SAFETY: the addresses were just reserved, and the memory has as many bytes.
        unsafe {
            call!(cuMemMap(reservation.address, len, 0, memory, 0))?;
            call!(cuMemSetAccess(reservation.address, len, &description, 1))?;
        }
        Ok(reservation)
    }

    /// Returns a file descriptor for other processes. Errors: of the driver.
    pub fn share(&self) -> Result<Shared, DriverError> {
        self.context.bind()?;
        let mut file = -1_i32;
        // SAFETY: the memory lives; one descriptor is written, which is this process's from here on.
        unsafe {
            call!(cuMemExportToShareableHandle((&raw mut file).cast(), self.memory, HANDLE, 0))?;
            Ok(Shared(OwnedFd::from_raw_fd(file)))
        }
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

impl Drop for Reservation {
    fn drop(&mut self) {
        let _ = self.context.synchronize();
        // SAFETY: it was made here and is used no more, by anything that was queued. Unmapping what is not mapped yet
        // fails and does nothing.
        unsafe {
            if self.address != 0 {
                sys::cuMemUnmap(self.address, self.len);
                sys::cuMemAddressFree(self.address, self.len);
            }
            sys::cuMemRelease(self.memory);
        }
    }
}

fn location(context: &Context) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device() }
}

fn property(context: &Context, for_network_cards: bool) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: HANDLE,
        location: location(context),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: for_network_cards.into(),
            usage: 0,
            reserved: [0; 4],
        },
    }
}
