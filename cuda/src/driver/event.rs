//! Points of a queue that others wait for.

use super::context::Context;
use super::error::{DriverError, call};
use super::library;
use cudarc::driver::sys;
use std::sync::Arc;
use std::time::Duration;

/// A point of a queue. It has been reached when all that was queued before it was recorded has happened.
#[derive(Debug)]
pub struct Event {
    _context: Arc<Context>,
    raw: sys::CUevent,
}

// SAFETY: the driver lets any thread use an event; it is only a handle here.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event that knows no time, and costs least. Errors: of the driver.
    pub fn new(context: &Arc<Context>) -> Result<Self, DriverError> {
        Self::with(context, sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING)
    }

    /// Makes an event that knows when it was reached. Errors: of the driver.
    pub fn timed(context: &Arc<Context>) -> Result<Self, DriverError> {
        Self::with(context, sys::CUevent_flags_enum::CU_EVENT_DEFAULT)
    }

    fn with(context: &Arc<Context>, flags: sys::CUevent_flags) -> Result<Self, DriverError> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the driver writes one handle.
        unsafe { call!(cuEventCreate(&mut raw, flags as u32)) }?;
        Ok(Self { _context: context.clone(), raw })
    }

    /// Waits until the point is reached. Errors: of the driver, and of what was queued.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: it lives.
        unsafe { call!(cuEventSynchronize(self.raw)) }
    }

    /// Returns whether the point is reached. Errors: of the driver, and of what was queued.
    pub fn is_reached(&self) -> Result<bool, DriverError> {
        // SAFETY: it lives.
        match unsafe { sys::cuEventQuery(self.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            answer => super::error::check("cuEventQuery", answer).map(|()| true),
        }
    }

    /// Returns the time from another event to this one; both are timed, and reached. Errors: of the driver.
    pub fn since(&self, earlier: &Self) -> Result<Duration, DriverError> {
        // SAFETY: both live, in a context, for which the driver was loaded.
        let milliseconds = unsafe { library::elapsed(earlier.raw, self.raw) }?;
        Ok(Duration::from_secs_f32(milliseconds.max(0.0) / 1e3))
    }

    pub(super) fn raw(&self) -> sys::CUevent {
        self.raw
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it was made here and is used no more.
        unsafe { sys::cuEventDestroy_v2(self.raw) };
    }
}
