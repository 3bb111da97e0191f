//! Counts instructions: a copy of the process does something, and is stopped after each of them.

use libc::{PTRACE_SINGLESTEP, PTRACE_TRACEME, SIGSTOP, WIFSTOPPED, WSTOPSIG, c_int, pid_t};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// Returns how many instructions this takes in user space, which it does in a copy of the process. Errors: the system
/// lets nobody trace.
pub(crate) fn instructions(act: impl FnOnce()) -> io::Result<u64> {
    // SAFETY: the copy has one thread, allocates, as the system's allocator allows it to, and then ends.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above; the parent waits for both stops.
            unsafe {
                if libc::ptrace(PTRACE_TRACEME, 0, null_mut::<u8>(), null_mut::<u8>()) != 0 {
                    libc::_exit(1);
                }
                libc::raise(SIGSTOP);
                if catch_unwind(AssertUnwindSafe(act)).is_err() {
                    libc::_exit(2);
                }
                libc::raise(SIGSTOP);
                libc::_exit(0)
            }
        }
        copy => {
            let stepped = step(copy);
            // SAFETY: the copy is a child of this process that nobody else waits for.
            unsafe {
                libc::kill(copy, libc::SIGKILL);
                libc::waitpid(copy, null_mut(), 0);
            }
            stepped
        }
    }
}

/// Counts the instructions of a traced process between two stops of its own.
fn step(copy: pid_t) -> io::Result<u64> {
    let refused = || io::Error::new(io::ErrorKind::PermissionDenied, "a process may not be traced here");
    if wait(copy)? != Some(SIGSTOP) {
        return Err(refused());
    }
    for count in 0.. {
        // SAFETY: the process is traced by this thread, and is stopped.
        if unsafe { libc::ptrace(PTRACE_SINGLESTEP, copy, null_mut::<u8>(), null_mut::<u8>()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        match wait(copy)? {
            Some(libc::SIGTRAP) => {}
            Some(SIGSTOP) => return Ok(count),
            other => return Err(io::Error::other(format!("the copy was stopped by {other:?} after {count} steps"))),
        }
    }
    unreachable!("the loop has no end")
}

/// Waits until the process stops: by which signal. `None`: it has ended.
fn wait(copy: pid_t) -> io::Result<Option<c_int>> {
    let mut status = 0;
    // SAFETY: the status is this function's.
    if unsafe { libc::waitpid(copy, &raw mut status, 0) } != copy {
        return Err(io::Error::last_os_error());
    }
    Ok(WIFSTOPPED(status).then(|| WSTOPSIG(status)))
}
