//! Whether the libraries are there, which is asked before anything in them is called.

use super::error::{DriverError, call};
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
        /// The first version that has all of them.
        wanted: &'static str,
    },
    /// The driver does not start.
    #[error("the NVIDIA driver does not start: {0}")]
    Start(#[from] DriverError),
    /// It has no device.
    #[error("the NVIDIA driver finds no GPU")]
    Devices,
}

/// The driver of CUDA that has all calls of [`LATE_SYMBOLS`].
const DRIVER_WANTED: &str = "12.3";

/// Calls that older drivers lack. The others are as old as the cards that the kernels run on.
const LATE_SYMBOLS: [&str; 4] =
    ["cuLaunchKernelEx", "cuMemCreate", "cuStreamBeginCapture_v2", "cuGraphInstantiateWithFlags"];

impl Driver {
    /// Loads the driver's library and starts it. Errors: [`Missing`].
    pub fn load() -> Result<Self, Missing> {
        // SAFETY: opening the driver's library runs its initialisers, as every CUDA program does.
        if !unsafe { sys::is_culib_present() } {
            return Err(Missing::Library);
        }
        for symbol in LATE_SYMBOLS {
            // SAFETY: the library is present; the symbol is looked up and not called.
            let found = unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
            if found.is_err() {
                return Err(Missing::Symbol { symbol, wanted: DRIVER_WANTED });
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
