//! Whether the libraries are there, which is asked before anything in them is called.

use super::error::{DriverError, call, check};
use cudarc::driver::sys;

/// What the host offers of CUDA's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    version: i32,
    devices: u32,
}

/// Why there is no CUDA on this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// There is no driver.
    #[error("libcuda.so.1 is not there: the NVIDIA driver is not installed, or not mounted into the container")]
    Library,
    /// The driver lacks a call that is needed.
    #[error("the NVIDIA driver lacks {symbol}: version {wanted} or later of CUDA's driver is needed")]
    Symbol {
        /// The call.
        symbol: &'static str,
        /// The first version that may be used.
        wanted: String,
    },
    /// The driver is too old.
    #[error("the NVIDIA driver implements CUDA {found}: {wanted} or later is needed")]
    Old {
        /// What it implements.
        found: String,
        /// The first version that may be used.
        wanted: String,
    },
    /// The driver does not start.
    #[error("the NVIDIA driver does not start: {0}")]
    Start(#[from] DriverError),
    /// It has no device.
    #[error("the NVIDIA driver finds no GPU")]
    Devices,
}

/// The first version of CUDA that the driver may implement, as the driver writes it: 1000 times major and 10 times
/// minor.
const VERSION_MIN: i32 = 12_030;

/// The calls that are made of the driver. What cudarc does not find when it is called ends the process, so all of them
/// are looked for before the first.
const CALLS: [&str; 60] = [
    "cuCtxEnablePeerAccess",
    "cuCtxGetStreamPriorityRange",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    ELAPSED,
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernelEx",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAllocationGranularity",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpyAsync",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// The call that tells the time between two events.
const ELAPSED: &str = "cuEventElapsedTime";

/// Has the driver tell the milliseconds between two events.
type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// Returns the milliseconds between two events. The call is the one that all drivers have: the one that cudarc knows
/// came with CUDA 12.8. Errors: of the driver.
///
/// # Safety
///
/// Both events live, and the driver was loaded.
pub(super) unsafe fn elapsed(from: sys::CUevent, to: sys::CUevent) -> Result<f32, DriverError> {
    let mut milliseconds = 0.0;
    // SAFETY: the driver's library is there, and has the call with these arguments. One number is written.
    let answer = unsafe {
        let call = sys::culib().get::<Elapsed>(ELAPSED.as_bytes()).expect("`Driver::load` has found it");
        call(&mut milliseconds, from, to)
    };
    check(ELAPSED, answer).map(|()| milliseconds)
}

impl Driver {
    /// Loads the driver's library and starts it. Errors: [`Missing`].
    pub fn load() -> Result<Self, Missing> {
        // SAFETY: opening the driver's library runs its initialisers, as every CUDA program does.
        if !unsafe { sys::is_culib_present() } {
            return Err(Missing::Library);
        }
        for symbol in CALLS {
            // SAFETY: the library is present; the symbol is looked up and not called.
            let found = unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
            if found.is_err() {
                return Err(Missing::Symbol { symbol, wanted: dotted(VERSION_MIN) });
            }
        }
        // The one flag that the driver knows is none.
        // SAFETY: the library is present.
        unsafe { call!(cuInit(0)) }?;
        let (mut version, mut devices) = (0, 0);
        // SAFETY: both write one number.
        unsafe {
            call!(cuDriverGetVersion(&mut version))?;
            call!(cuDeviceGetCount(&mut devices))?;
        }
        if version < VERSION_MIN {
            return Err(Missing::Old { found: dotted(version), wanted: dotted(VERSION_MIN) });
        }
        match u32::try_from(devices) {
            Ok(devices @ 1..) => Ok(Self { version, devices }),
            _ => Err(Missing::Devices),
        }
    }

    /// Returns the version of CUDA that the driver implements: major, minor.
    pub fn version(&self) -> (u32, u32) {
        let version = self.version.unsigned_abs();
        (version / 1000, version % 1000 / 10)
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> u32 {
        self.devices
    }
}

/// Writes a version of CUDA as people do.
fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Returns the names of calls in a text: `cu`, a capital, and what follows, before a parenthesis.
    fn calls(text: &str) -> impl Iterator<Item = &str> {
        let names = text.split('(').map(|before| {
            let start = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
            &before[start..]
        });
        names.filter(|name| {
            name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        })
    }

    #[test]
    fn every_call_is_looked_for_before_the_first() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/driver");
        let files = std::fs::read_dir(folder).expect("the sources are there");
        let texts = files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a source"));
        let texts: Vec<String> = texts.collect();
        let mut made: BTreeSet<&str> = texts.iter().flat_map(|text| calls(text)).collect();
        // Made by their names alone.
        made.extend([ELAPSED, "cuGetErrorName", "cuGetErrorString"]);
        assert_eq!(made, BTreeSet::from(CALLS));
    }
}
