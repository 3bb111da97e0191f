//! Queued work that is recorded once and replayed as one launch.

use super::context::Context;
use super::error::{DriverError, call};
use super::stream::Stream;
use cudarc::driver::sys;
use std::sync::Arc;

/// Work that a queue records instead of doing it. Nothing of it has happened if it is dropped.
#[derive(Debug)]
pub struct Capture<'a> {
    stream: &'a Stream,
    is_over: bool,
}

/// Recorded work. Addresses and sizes in it are fixed; what varies is in the memory that it reads.
#[derive(Debug)]
pub struct Graph {
    _context: Arc<Context>,
    raw: sys::CUgraphExec,
}

// SAFETY: the driver lets any thread use a graph that is not launched and changed at once; it never changes here.
unsafe impl Send for Graph {}

impl<'a> Capture<'a> {
    /// Begins to record what is put into the queue. Calls of this thread that would wait are refused meanwhile.
    /// Errors: of the driver.
    pub fn begin(stream: &'a Stream) -> Result<Self, DriverError> {
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives.
        unsafe { call!(cuStreamBeginCapture_v2(stream.raw(), mode)) }?;
        Ok(Self { stream, is_over: false })
    }

    /// Ends it, and makes what was recorded ready to be launched. Errors: of the driver; the record is broken.
    pub fn end(mut self) -> Result<Graph, DriverError> {
        let graph = self.stop()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the graph was just made; one handle is written. Instantiating copies it.
        let made = unsafe { call!(cuGraphInstantiateWithFlags(&mut raw, graph, 0)) };
        // SAFETY: it is used no more.
        unsafe { sys::cuGraphDestroy(graph) };
        made?;
        Ok(Graph { _context: self.stream.context().clone(), raw })
    }

    fn stop(&mut self) -> Result<sys::CUgraph, DriverError> {
        self.is_over = true;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream lives and records; one handle is written.
        unsafe { call!(cuStreamEndCapture(self.stream.raw(), &mut graph)) }?;
        Ok(graph)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Ok(graph) = self.stop()
            && !graph.is_null()
        {
            // SAFETY: it was just made, and nothing else has it.
            unsafe { sys::cuGraphDestroy(graph) };
        }
    }
}

impl Graph {
    /// Puts all of it into the queue. Errors: of the driver.
    ///
    /// # Safety
    /// What was recorded must be sound now: the memory that it reads and writes is there and not used otherwise.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: both live; for the rest, as the caller says.
        unsafe { call!(cuGraphLaunch(self.raw, stream.raw())) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it was made here and is used no more.
        unsafe { sys::cuGraphExecDestroy(self.raw) };
    }
}
