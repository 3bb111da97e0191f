//! Operations by threads that block, for hosts where io_uring is not allowed.

use super::operation::{Done, Operation};
use crate::failure::Failure;
use crate::wake::{Doorbell, Wake};
use rustix::event::{PollFd, PollFlags};
use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use threads::Doing;

/// Threads, at most: each has one operation.
const THREADS_MAX: u32 = 16;

pub(super) struct Threads {
    /// `None`: they shall end.
    work: Option<Sender<(usize, Operation)>>,
    ended: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
    bell: Arc<Doorbell>,
}

impl Threads {
    /// Threads for up to `depth` operations at once, which `carry_out` carries out; the end of each rings `bell`.
    /// A panic of one is reported. Errors: of the system.
    pub(super) fn new(
        name: &str,
        depth: u32,
        failure: &Failure,
        bell: Arc<Doorbell>,
        carry_out: fn(&Operation) -> io::Result<usize>,
    ) -> io::Result<Self> {
        let (work, orders) = channel::<(usize, Operation)>();
        let (ends, ended) = channel();
        let orders = Arc::new(Mutex::new(orders));
        let mut threads = Self { work: Some(work), ended, threads: Vec::new(), bell };
        for n in 0..depth.min(THREADS_MAX) {
            let (orders, ends, bell) = (orders.clone(), ends.clone(), threads.bell.clone());
            let (name, failing) = (format!("{name}-{n}"), failure.clone());
            let thread = name.clone();
            let body = move || {
                // The lock is held while it waits: the next one waits for the lock.
                let next = || orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok((slot, operation)) = threads::during(Doing::WaitsForFileWork, next) {
                    // Who panics with an operation owes its end all the same.
                    let mut result = Err(io::Error::from_raw_os_error(libc::EIO));
                    failing.watch(&thread, || {
                        result = threads::during(Doing::UsesFile, || carry_out(&operation));
                        Ok::<_, Infallible>(())
                    });
                    if ends.send(Done { slot, result }).is_err() {
                        break;
                    }
                    bell.wake();
                }
                Ok::<_, Infallible>(())
            };
            threads.threads.push(failure.spawn(name, body)?);
        }
        Ok(threads)
    }

    pub(super) fn push(&mut self, slot: usize, operation: &Operation) {
        let sent = self.work.as_ref().is_some_and(|work| work.send((slot, *operation)).is_ok());
        assert!(sent, "the threads end after the last operation");
    }

    /// Takes in what ended; waits for that, or for the bell, if `wait`.
    pub(super) fn turn(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        done.extend(self.ended.try_iter());
        if wait && done.is_empty() {
            let mut bell = [PollFd::from_borrowed_fd(self.bell.fd(), PollFlags::IN)];
            match rustix::event::poll(&mut bell, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.bell.still();
            done.extend(self.ended.try_iter());
        }
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.work = None;
        for thread in self.threads.drain(..) {
            // A panic of it was reported.
            let _ = thread.join();
        }
    }
}

/// Reads or writes, and returns how many bytes. Errors: of the system.
pub(super) fn carry_out(operation: &Operation) -> io::Result<usize> {
    let Operation { range, memory, write, .. } = *operation;
    let offset = libc::off_t::try_from(range.offset).map_err(io::Error::other)?;
    // SAFETY: the memory is lent to the operation until it has ended; see there.
    let moved = unsafe {
        if write {
            libc::pwrite(range.file, memory.cast(), range.len, offset)
        } else {
            libc::pread(range.file, memory.cast(), range.len, offset)
        }
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}
