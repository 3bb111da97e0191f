//! A device, and the state that the driver keeps of it for this process.

use super::error::{DriverError, call};
use super::library::Driver;
use cudarc::driver::sys;
use std::ffi::c_char;
use std::sync::Arc;

/// The primary context of a device. All that is made on a device keeps it.
#[derive(Debug)]
pub struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
}

// SAFETY: the driver lets any thread use a context; it is only a handle here.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A fact about a device that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Streaming multiprocessors.
    Multiprocessors,
    /// The first number of its compute capability.
    CapabilityMajor,
    /// The second one.
    CapabilityMinor,
    /// Bytes of shared memory that a block may have at most.
    SharedBytesMax,
    /// Bytes of its second-level cache.
    CacheBytes,
    /// Engines that copy beside kernels.
    CopyEngines,
    /// The clock of its memory in kHz.
    MemoryClock,
    /// Wires of its memory.
    MemoryWires,
    /// The host's memory node that it is at; below 0: not known.
    HostNode,
    /// Whether addresses can be reserved apart from memory.
    Reservations,
    /// Whether allocations can be exported as file descriptors.
    FileDescriptors,
    /// Whether its memory can be registered with network cards.
    NetworkCards,
}

impl Attribute {
    fn raw(self) -> sys::CUdevice_attribute {
        use sys::CUdevice_attribute_enum as Raw;
        match self {
            Self::Multiprocessors => Raw::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            Self::CapabilityMajor => Raw::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            Self::CapabilityMinor => Raw::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            Self::SharedBytesMax => Raw::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            Self::CacheBytes => Raw::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
            Self::CopyEngines => Raw::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
            Self::MemoryClock => Raw::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
            Self::MemoryWires => Raw::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
            Self::HostNode => Raw::CU_DEVICE_ATTRIBUTE_NUMA_ID,
            Self::Reservations => Raw::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            Self::FileDescriptors => Raw::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            Self::NetworkCards => Raw::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
        }
    }
}

impl Context {
    /// Opens device number `device`. Errors: of the driver.
    pub fn open(_driver: Driver, device: u32) -> Result<Arc<Self>, DriverError> {
        let (mut handle, mut raw) = (0, std::ptr::null_mut());
        let number = i32::try_from(device).unwrap_or(i32::MAX);
        // SAFETY: the driver is loaded, as its value shows; both calls write one handle.
        unsafe {
            call!(cuDeviceGet(&mut handle, number))?;
            call!(cuDevicePrimaryCtxRetain(&mut raw, handle))?;
        }
        let context = Arc::new(Self { device: handle, raw });
        context.bind()?;
        Ok(context)
    }

    /// Makes the calling thread's calls about this device. Every thread does so once before it calls anything else.
    /// Errors: of the driver.
    pub fn bind(&self) -> Result<(), DriverError> {
        // SAFETY: the context lives as long as this value.
        unsafe { call!(cuCtxSetCurrent(self.raw)) }
    }

    /// Returns the device's name. Errors: of the driver.
    pub fn name(&self) -> Result<String, DriverError> {
        const LENGTH_MAX: usize = 256;
        let mut name = [0_u8; LENGTH_MAX];
        // SAFETY: the driver writes at most so many bytes, and ends them with zero.
        unsafe { call!(cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), LENGTH_MAX as i32, self.device)) }?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(LENGTH_MAX);
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Returns the bytes that tell this device from all others. Errors: of the driver.
    pub fn uuid(&self) -> Result<[u8; 16], DriverError> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the driver writes one value.
        unsafe { call!(cuDeviceGetUuid_v2(&mut uuid, self.device)) }?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    /// Returns where it is on the PCI bus, as in `0000:3b:00.0`. Errors: of the driver.
    pub fn pci_address(&self) -> Result<String, DriverError> {
        const LENGTH_MAX: usize = 32;
        let mut name = [0_u8; LENGTH_MAX];
        // SAFETY: the driver writes at most so many bytes, and ends them with zero.
        unsafe { call!(cuDeviceGetPCIBusId(name.as_mut_ptr().cast::<c_char>(), LENGTH_MAX as i32, self.device)) }?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(LENGTH_MAX);
        Ok(String::from_utf8_lossy(&name[..end]).to_lowercase())
    }

    /// Returns a fact about the device. Errors: of the driver.
    pub fn attribute(&self, attribute: Attribute) -> Result<i32, DriverError> {
        let mut value = 0;
        // SAFETY: the driver writes one number.
        unsafe { call!(cuDeviceGetAttribute(&mut value, attribute.raw(), self.device)) }?;
        Ok(value)
    }

    /// Returns the compute capability: 9 and 0 of an H100. Errors: of the driver.
    pub fn capability(&self) -> Result<(u32, u32), DriverError> {
        let part = |attribute| self.attribute(attribute).map(i32::unsigned_abs);
        Ok((part(Attribute::CapabilityMajor)?, part(Attribute::CapabilityMinor)?))
    }

    /// Returns the bytes of memory that are free, and all of them. Errors: of the driver.
    pub fn memory(&self) -> Result<(usize, usize), DriverError> {
        let (mut free, mut total) = (0, 0);
        self.bind()?;
        // SAFETY: the driver writes two numbers.
        unsafe { call!(cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// Waits for all that was queued on the device. Errors: of the driver, and of what was queued.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.bind()?;
        // SAFETY: the context is current.
        unsafe { call!(cuCtxSynchronize()) }
    }

    /// Lets kernels and copies of this device read the memory of `peer`. Errors: of the driver; the two cannot.
    pub fn reach(&self, peer: &Self) -> Result<(), DriverError> {
        self.bind()?;
        // SAFETY: both contexts live.
        match unsafe { call!(cuCtxEnablePeerAccess(peer.raw, 0)) } {
            Err(error) if error.code == sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32 => Ok(()),
            answer => answer,
        }
    }

    pub(super) fn device(&self) -> sys::CUdevice {
        self.device
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once, and nothing of it is left, since all that is made on it keeps it.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}
