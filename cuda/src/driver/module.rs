//! Compiled kernels in a device.

use super::context::Context;
use super::error::{DriverError, call};
use cudarc::driver::sys;
use std::ffi::CString;
use std::sync::Arc;

/// A file of compiled kernels that a device has loaded.
#[derive(Debug)]
pub struct Module {
    context: Arc<Context>,
    raw: sys::CUmodule,
}

// SAFETY: the driver lets any thread use a module; it is only a handle here.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Function {
    _module: Arc<Module>,
    raw: sys::CUfunction,
}

// SAFETY: the driver lets any thread use a function; it is only a handle here.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Loads what the compiler made for this device. Errors: of the driver.
    pub fn load(context: &Arc<Context>, image: &[u8]) -> Result<Arc<Self>, DriverError> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the image is what nvrtc made, which says its own length.
        unsafe { call!(cuModuleLoadData(&mut raw, image.as_ptr().cast())) }?;
        Ok(Arc::new(Self { context: context.clone(), raw }))
    }

    /// Returns the kernel of this name. Errors: of the driver; there is none.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, DriverError> {
        self.context.bind()?;
        let text = CString::new(name).expect("names of kernels have no zeros");
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module lives; one handle is written.
        let found = unsafe { call!(cuModuleGetFunction(&mut raw, self.raw, text.as_ptr())) };
        found.map_err(|error| DriverError { text: format!("{}, for the kernel {name}", error.text), ..error })?;
        Ok(Function { _module: self.clone(), raw })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: it was loaded here and is used no more.
        unsafe { sys::cuModuleUnload(self.raw) };
    }
}

impl Function {
    /// Lets its blocks have so many bytes of dynamic shared memory. Errors: of the driver; the device has less.
    pub fn set_shared_bytes(&self, bytes: u32) -> Result<(), DriverError> {
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: the function lives as long as its module.
        unsafe { call!(cuFuncSetAttribute(self.raw, attribute, bytes)) }
    }

    pub(super) fn raw(&self) -> sys::CUfunction {
        self.raw
    }
}
