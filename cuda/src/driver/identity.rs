//! What a device is, without a context on it: asking takes none of its memory.

use super::error::{DriverError, call};
use super::library::Driver;
use cudarc::driver::sys;
use std::ffi::{CStr, c_char};

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name, as in `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Its compute capability: 9 and 0 of an H100.
    pub capability: (u32, u32),
    /// Bytes of its memory.
    pub memory: u64,
}

impl Driver {
    /// Returns what device number `device` is. Errors: of the driver; there is none of that number.
    pub fn identity(&self, device: u32) -> Result<Identity, DriverError> {
        use sys::CUdevice_attribute_enum as Attribute;
        const NAME_BYTES_MAX: usize = 256;
        let number = i32::try_from(device).unwrap_or(i32::MAX);
        let (mut handle, mut memory) = (0, 0);
        let mut name = [0_u8; NAME_BYTES_MAX];
        // SAFETY: the driver is loaded, as this value shows. Each call writes one value; the name has at most so many
        // bytes with its zero.
        unsafe {
            call!(cuDeviceGet(&mut handle, number))?;
            call!(cuDeviceTotalMem_v2(&mut memory, handle))?;
            call!(cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), NAME_BYTES_MAX as i32, handle))?;
        }
        let part = |attribute| {
            let mut value = 0;
            // SAFETY: the driver writes one number.
            unsafe { call!(cuDeviceGetAttribute(&mut value, attribute, handle)) }?;
            Ok::<_, DriverError>(value.unsigned_abs())
        };
        let major = part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let name =
            CStr::from_bytes_until_nul(&name).map_or_else(|_| String::new(), |name| name.to_string_lossy().into());
        Ok(Identity { name, capability: (major, minor), memory: memory as u64 })
    }
}
