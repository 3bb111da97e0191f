//! Queues of a device.

use super::context::Context;
use super::error::{DriverError, call};
use super::event::Event;
use cudarc::driver::sys;
use std::sync::Arc;

/// A queue of a device: what is put into it happens in turn, beside what is in other queues.
#[derive(Debug)]
pub struct Stream {
    context: Arc<Context>,
    raw: sys::CUstream,
}

// SAFETY: the driver lets any thread use a stream; it is only a handle here.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

/// Which queue the device prefers where it cannot serve all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPriority {
    /// Steps.
    High,
    /// What may wait: copies of blocks that nothing runs on yet.
    Low,
}

impl Stream {
    /// Makes a queue that does not wait for the device's default one. Errors: of the driver.
    pub fn new(context: &Arc<Context>, priority: StreamPriority) -> Result<Self, DriverError> {
        context.bind()?;
        let (mut least, mut greatest, mut raw) = (0, 0, std::ptr::null_mut());
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the first call writes two numbers, the second one handle.
        unsafe {
            call!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest))?;
            let number = if priority == StreamPriority::High { greatest } else { least };
            call!(cuStreamCreateWithPriority(&mut raw, flags, number))?;
        }
        Ok(Self { context: context.clone(), raw })
    }

    /// Returns its device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits until all that was put into it has happened. Errors: of the driver, and of what was queued.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives.
        unsafe { call!(cuStreamSynchronize(self.raw)) }
    }

    /// Puts a point into the queue. Errors: of the driver.
    pub fn record(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both live.
        unsafe { call!(cuEventRecord(event.raw(), self.raw)) }
    }

    /// Lets what comes wait for an event that another queue recorded. Errors: of the driver.
    pub fn wait(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both live. No flag is known.
        unsafe { call!(cuStreamWaitEvent(self.raw, event.raw(), 0)) }
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What is queued goes on; the driver forgets the queue after it.
        // SAFETY: it was made here and is used no more.
        unsafe { sys::cuStreamDestroy_v2(self.raw) };
    }
}
