//! What wakes a thread of an agent: a futex for those that copy, an eventfd for those that wait for sockets.

mod sleep_flag;
mod tally;
pub(crate) mod watch;

/// What `sleep_flag` and `tally` are made of.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}

use rustix::event::EventfdFlags;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec};
use sleep_flag::SleepFlag;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tally::Tally;

/// Something that wakes a thread. May be called from any thread and does not block.
pub(crate) trait Wake: Send + Sync {
    fn wake(&self);
}

/// A counter that a thread sleeps on until it changes, and what it sleeps on: a futex.
#[derive(Default)]
pub(crate) struct Signal(Tally);

/// A word in memory shared with other processes, and what it is expected to be. The mapping outlives the sleep.
#[derive(Clone, Copy)]
pub(crate) struct SharedFutex {
    pub(crate) at: *mut u32,
    pub(crate) expected: u32,
}

/// Words of other processes that one sleep can wait for: the kernel's limit less the own counter.
pub(crate) const SHARED_FUTEXES_MAX: usize = 127;
/// How long a sleep lasts at most where the system does not let a thread wait for several words: a kernel before
/// 5.16, or a filter of system calls (seccomp) that does not know the call.
const NAP: Duration = Duration::from_micros(100);

impl Signal {
    pub(crate) fn count(&self) -> u32 {
        self.0.now()
    }

    /// Sleeps until the counter differs from `seen`, one of `others` (of which the first `SHARED_FUTEXES_MAX`
    /// count) from what is expected, or for `at_most`; or, rarely, for nothing.
    pub(crate) fn sleep(&self, seen: u32, others: &[SharedFutex], at_most: Option<Duration>) {
        self.sleep_by(seen, others, at_most, |others| self.sleep_on_all(seen, others, at_most));
    }

    /// Returns the same, where `on_all` sleeps on several words.
    fn sleep_by(
        &self,
        seen: u32,
        others: &[SharedFutex],
        at_most: Option<Duration>,
        on_all: impl FnOnce(&[SharedFutex]) -> rustix::io::Result<()>,
    ) {
        use rustix::io::Errno;
        // Every way to return is one after which the caller looks again.
        self.0.sleep(|| {
            let slept = |outcome: rustix::io::Result<()>| match outcome {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => true,
                // Whatever else it is, it would be so again at once.
                Err(_) => false,
            };
            if others.is_empty() || !slept(on_all(others)) {
                let at_most = if others.is_empty() { at_most } else { Some(at_most.map_or(NAP, |time| time.min(NAP))) };
                let timeout = at_most.map(timespec);
                let _ = futex::wait(self.0.count(), futex::Flags::PRIVATE, seen, timeout.as_ref());
            }
        });
    }

    fn sleep_on_all(&self, seen: u32, others: &[SharedFutex], at_most: Option<Duration>) -> rustix::io::Result<()> {
        let wait = |at: *mut u32, expected: u32, flags| {
            let mut wait = futex::Wait::new();
            (wait.val, wait.uaddr, wait.flags) = (expected.into(), futex::WaitPtr::new(at.cast()), flags);
            wait
        };
        let own = wait(self.0.count().as_ptr(), seen, futex::WaitFlags::SIZE_U32 | futex::WaitFlags::PRIVATE);
        let mut waits = [own; SHARED_FUTEXES_MAX + 1];
        let count = others.len().min(SHARED_FUTEXES_MAX);
        for (slot, other) in waits[1..].iter_mut().zip(others) {
            *slot = wait(other.at, other.expected, futex::WaitFlags::SIZE_U32);
        }
        // The deadline is a point of time here, not a duration.
        let deadline = at_most.map(|time| rustix::time::clock_gettime(ClockId::Monotonic) + timespec(time));
        futex::waitv(&waits[..=count], futex::WaitvFlags::empty(), deadline.as_ref(), ClockId::Monotonic).map(drop)
    }
}

/// As the system calls want it.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

impl Wake for Signal {
    fn wake(&self) {
        if self.0.wake() {
            // An error would be a bad address, and it is a good one.
            let _ = futex::wake(self.0.count(), futex::Flags::PRIVATE, 1);
        }
    }
}

/// An eventfd that a thread waits for beside its sockets or files. Edge-triggered it need not be read, since every
/// ring is an edge. Only a thread that sleeps is rung for: one that is awake sees that there is news.
pub(crate) struct Doorbell {
    event: OwnedFd,
    sleep_flag: SleepFlag,
}

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, sleep_flag: SleepFlag::default() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Makes it unreadable until the next ring, for whoever does not wait for edges.
    pub(crate) fn still(&self) {
        // An error says that it is.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// The thread is about to look for work: whoever has some from now on rings again.
    pub(crate) fn answer(&self) {
        self.sleep_flag.answer();
    }

    /// Returns whether somebody rang since the last answer.
    pub(crate) fn is_rung(&self) -> bool {
        self.sleep_flag.is_rung()
    }

    /// Looks for events by `wait`, which is told whether it may sleep until the eventfd becomes readable: not if
    /// somebody rang already.
    pub(crate) fn sleep<T>(&self, wait: impl FnOnce(bool) -> T) -> T {
        let waited = wait(self.sleep_flag.lie_down());
        self.sleep_flag.get_up();
        waited
    }
}

impl Wake for Doorbell {
    fn wake(&self) {
        if self.sleep_flag.ring() {
            // Full is as good as rung.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::time::Instant;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "whether it slept at all is what is tested")]
    fn where_several_words_cannot_be_waited_for_a_nap_is_taken() {
        let (signal, mut word) = (Signal::default(), 0_u32);
        let other = SharedFutex { at: &raw mut word, expected: 0 };
        for error in [Errno::NOSYS, Errno::PERM, Errno::ACCESS] {
            let begin = Instant::now();
            // A sleep may end early for nothing, but not each time.
            (0..20).for_each(|_| signal.sleep_by(signal.count(), &[other], None, |_| Err(error)));
            assert!(begin.elapsed() >= NAP, "it spins at {error}");
        }
        for outcome in [Ok(()), Err(Errno::AGAIN), Err(Errno::INTR), Err(Errno::TIMEDOUT)] {
            // Nobody would wake it from a sleep on its own counter.
            signal.sleep_by(signal.count(), &[other], Some(Duration::MAX), |_| outcome);
        }
    }
}

/// The words alone, without what a thread sleeps on.
#[cfg(test)]
mod words {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Words that are brought to a thread; few under an interpreter.
    const WORDS: u32 = if cfg!(miri) { 50 } else { 10_000 };

    #[test]
    fn every_ring_is_heard() {
        let (sleep_flag, word) = (SleepFlag::default(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=WORDS {
                    word.store(n, Ordering::SeqCst);
                    sleep_flag.ring();
                }
            });
            let mut seen = 0;
            while seen < WORDS {
                sleep_flag.answer();
                seen = word.load(Ordering::SeqCst);
                let may_sleep = sleep_flag.lie_down();
                // A sleep that a ring would end.
                while seen < WORDS && may_sleep && !sleep_flag.is_rung() {
                    std::thread::yield_now();
                }
                sleep_flag.get_up();
            }
        });
    }

    #[test]
    fn every_count_is_seen() {
        let (tally, word) = (Tally::default(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=WORDS {
                    word.store(n, Ordering::SeqCst);
                    tally.wake();
                }
            });
            loop {
                let seen = tally.now();
                if word.load(Ordering::SeqCst) == WORDS {
                    break;
                }
                tally.sleep(|| {
                    while tally.now() == seen {
                        std::thread::yield_now();
                    }
                });
            }
        });
    }
}
