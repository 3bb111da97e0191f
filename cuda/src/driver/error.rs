//! Errors of the driver, by the name that its documentation has.

use cudarc::driver::sys;
use std::ffi::CStr;

/// A call of the driver failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {name}, {text}")]
pub struct DriverError {
    /// The call.
    pub call: &'static str,
    /// The driver's number of the error.
    pub code: u32,
    /// Its name, as in `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// What it means, in the driver's words.
    pub text: String,
}

impl DriverError {
    pub(super) fn new(call: &'static str, code: sys::CUresult) -> Self {
        Self {
            call,
            code: code as u32,
            name: words(code, sys::cuGetErrorName),
            text: words(code, sys::cuGetErrorString),
        }
    }

    /// Returns whether the device had no memory left.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32
    }
}

type Describe = unsafe fn(sys::CUresult, *mut *const std::ffi::c_char) -> sys::CUresult;

/// Asks the driver for words about an error.
fn words(code: sys::CUresult, describe: Describe) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the driver writes the address of a string of its own, which stays; or null.
    let answer = unsafe { describe(code, &mut text) };
    if answer != sys::CUresult::CUDA_SUCCESS || text.is_null() {
        return format!("error {}", code as u32);
    }
    // SAFETY: the driver says that it is a string that ends with zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Makes a result of what the driver answered.
pub(super) fn check(call: &'static str, code: sys::CUresult) -> Result<(), DriverError> {
    if code == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(DriverError::new(call, code)) }
}

/// Calls the driver, and names the call in its error.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::driver::error::check(stringify!($name), cudarc::driver::sys::$name($($argument),*))
    };
}
pub(super) use call;
