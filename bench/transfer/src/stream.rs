//! What plain TCP over loopback does: one connection whose sender only writes, and whose receiver only reads.

use crate::error::BenchError;
use crate::pool::Pool;
use crate::timed::timed;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use transport::Memory;

/// Measures the seconds of a pass over `from` into `to`, which are as long, in blocks of `bytes`. Both ends are
/// threads of this process.
pub(crate) fn pass(passes: usize, from: &Pool, to: &Pool, bytes: usize) -> Result<f64, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let receiver = TcpStream::connect(listener.local_addr()?)?;
    let (mut sender, _) = listener.accept()?;
    let starts = || (0..from.len()).step_by(bytes);
    // SAFETY: nobody writes this memory while the slice lives.
    let source = |at: usize| unsafe { std::slice::from_raw_parts(from.as_ptr().add(at), bytes) };
    // SAFETY: only the receiver uses this memory, one block at a time.
    let destination = |at: usize| unsafe { std::slice::from_raw_parts_mut(to.as_ptr().add(at), bytes) };
    std::thread::scope(|scope| {
        // It is ahead of the receiver by what the sockets hold, and ends when the receiver's end is closed.
        scope.spawn(|| while starts().try_for_each(|at| sender.write_all(source(at))).is_ok() {});
        let seconds = timed(passes, || Ok(starts().try_for_each(|at| (&receiver).read_exact(destination(at)))?));
        drop(receiver);
        seconds
    })
}
