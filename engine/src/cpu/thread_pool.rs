//! The threads of a device: one leads, the others help it with one piece of work at a time.
//!
//! Work is a number of tasks that do not depend on each other and write to different places. Each thread has a
//! share of consecutive ones, takes them in order, and then the last ones of others' shares: so a thread mostly
//! goes on in memory where it was. Which thread takes which cannot be seen in the result.
//!
//! A helper that looks for work spins for some microseconds, since between two operations of a step there is
//! almost nothing, and then sleeps. The leader waits only for helpers that have entered the work: one that the
//! system did not wake in time holds up nobody. One that it wakes on the leader's processor goes to another one,
//! and may be moved from there as the system likes.

use super::cpu_topology::Affinity;
use super::numa::{leave, processor, settle};
use crate::clock::now;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use threads::Doing;

/// How long a helper looks for work before it sleeps, and the leader for the end of it before it offers its
/// processor to whoever may run there.
const SPIN: Duration = Duration::from_micros(30);
/// Looks between two glances at the clock.
const SPINS_PER_GLANCE: u32 = 64;

/// The gate is open: helpers may enter. Below this bit: how many are inside; above it: the number of the work.
const OPEN: u64 = 1 << 15;
const INSIDE: u64 = OPEN - 1;
const NUMBER_SHIFT: u32 = 16;

/// Threads of a pool, at most.
pub(super) const THREADS_MAX: usize = 1024;

/// A task: the thread's index in the pool and the task's number.
pub type Task<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// The leader's end. Dropping it ends the helpers.
pub struct ThreadPool {
    shared: Arc<Shared>,
    helpers: Vec<(JoinHandle<()>, Thread)>,
}

struct Shared {
    /// Number of the work, open or not, and helpers inside.
    gate: AtomicU64,
    /// What a task of the work does. Written by the leader while the gate is closed and nobody is inside; read by those
    /// inside. The lifetime is erased: [`ThreadPool::run`] returns only when nobody is inside any more.
    work: UnsafeCell<Option<*const Task<'static>>>,
    /// Tasks that nobody has taken, of each thread's share.
    shares: Vec<Share>,
    /// A task panicked in a helper.
    panicked: AtomicBool,
    /// Helpers shall end.
    ended: AtomicBool,
    /// Which helpers sleep.
    asleep: Vec<AtomicBool>,
    /// Processor on which the leader woke a helper last.
    leader_at: AtomicUsize,
}

/// The tasks from the low half of a word up to its high half, so that both ends move at once. Alone in its cache lines.
#[repr(align(128))]
struct Share(AtomicU64);

impl Share {
    fn word(from: u64, to: u64) -> u64 {
        to << u32::BITS | from
    }

    /// Takes the first task.
    fn first(&self) -> Option<usize> {
        self.take(|from, to| (from, Self::word(from + 1, to)))
    }

    /// Takes the last task.
    fn last(&self) -> Option<usize> {
        self.take(|from, to| (to - 1, Self::word(from, to - 1)))
    }

    /// Takes what `choice` says: a task, and what is left without it.
    fn take(&self, choice: impl Fn(u64, u64) -> (u64, u64)) -> Option<usize> {
        // What a task reads and writes is ordered by the gate.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let (from, to) = (word & u64::from(u32::MAX), word >> u32::BITS);
            if from >= to {
                return None;
            }
            let (task, left) = choice(from, to);
            match self.0.compare_exchange_weak(word, left, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(task as usize),
                Err(now) => word = now,
            }
        }
    }
}

// SAFETY: `work` is guarded by the gate, as its documentation says; `Task` is `Sync`. The rest is atomic.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl ThreadPool {
    /// Returns a pool of so many threads, at least one, which go where the system puts them; for whoever measures one
    /// by itself.
    pub fn anywhere(threads: usize) -> std::io::Result<Self> {
        Self::new(vec![Affinity::new(); threads.clamp(1, THREADS_MAX)], "baton-threads")
    }

    /// Returns a pool of a thread for each of `places`, at least one. The caller, or whoever it gives the pool to,
    /// leads at the first one and goes there itself.
    pub(super) fn new(places: Vec<Affinity>, name: &str) -> std::io::Result<Self> {
        let helpers = places.len() - 1;
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            work: UnsafeCell::new(None),
            shares: (0..=helpers).map(|_| Share(AtomicU64::new(0))).collect(),
            panicked: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            asleep: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
            leader_at: AtomicUsize::new(0),
        });
        let mut thread_pool = Self { shared: shared.clone(), helpers: Vec::with_capacity(helpers) };
        for (index, place) in places.into_iter().skip(1).enumerate() {
            let shared = shared.clone();
            let handle = threads::spawn(format!("{name}-{}", index + 1), move || {
                threads::does(Doing::LooksForPart);
                settle(&place);
                shared.help(index);
            })?;
            let thread = handle.thread().clone();
            thread_pool.helpers.push((handle, thread));
        }
        Ok(thread_pool)
    }

    /// Threads, the leader included.
    pub(super) fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Runs `task(thread, number)` for all numbers below `tasks` and returns when all have ended. A panic in any
    /// of them comes out here, after that.
    pub fn run(&mut self, tasks: usize, task: &Task<'_>) {
        if self.helpers.is_empty() || tasks <= 1 {
            (0..tasks).for_each(|number| task(0, number));
            return;
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes, and nobody uses the pointer after this function returns.
        let erased = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
        // SAFETY: the gate is closed and nobody is inside: so the last call, or `new`, left it.
        unsafe { *shared.work.get() = Some(erased) };
        shared.deal(tasks);
        let number = (shared.gate.load(Ordering::Relaxed) >> NUMBER_SHIFT) + 1;
        shared.gate.store((number << NUMBER_SHIFT) | OPEN, Ordering::SeqCst);
        for (asleep, (_, thread)) in shared.asleep.iter().zip(&self.helpers).take(tasks - 1) {
            if asleep.swap(false, Ordering::SeqCst) {
                shared.leader_at.store(processor(), Ordering::Relaxed);
                thread.unpark();
            }
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| shared.take_tasks(task, 0)));
        shared.gate.fetch_and(!OPEN, Ordering::AcqRel);
        let nobody_inside = || (shared.gate.load(Ordering::Acquire) & INSIDE == 0).then_some(());
        if spin(nobody_inside).is_none() {
            threads::during(Doing::WaitsForHelpers, || {
                while nobody_inside().is_none() {
                    std::thread::yield_now();
                }
            });
        }
        if let Err(panic) = outcome {
            shared.panicked.store(false, Ordering::Relaxed);
            resume_unwind(panic);
        }
        if shared.panicked.swap(false, Ordering::Relaxed) {
            panic!("a helper thread panicked");
        }
    }
}

/// Returns what `look` finds within [`SPIN`].
fn spin<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    let began = now();
    while now().duration_since(began) < SPIN {
        for _ in 0..SPINS_PER_GLANCE {
            let found = look();
            if found.is_some() {
                return found;
            }
            std::hint::spin_loop();
        }
    }
    None
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for (handle, thread) in self.helpers.drain(..) {
            thread.unpark();
            // Panics of tasks were caught and reported; the loop around them has none.
            let _ = handle.join();
        }
    }
}

impl Shared {
    /// A helper's life.
    fn help(&self, index: usize) {
        let mut seen = 0;
        while let Some(number) = self.enter(index, seen) {
            seen = number;
            // SAFETY: this thread is inside, so the leader does not change the work and its task is alive.
            let work = unsafe { *self.work.get() };
            if let Some(task) = work {
                // SAFETY: as above.
                let task = unsafe { &*task };
                if catch_unwind(AssertUnwindSafe(|| self.take_tasks(task, index + 1))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            self.gate.fetch_sub(1, Ordering::Release);
        }
    }

    /// Makes shares of equal sizes; the first ones have what is over.
    fn deal(&self, tasks: usize) {
        let begin = |thread: usize| (tasks * thread).div_ceil(self.shares.len());
        for (thread, share) in self.shares.iter().enumerate() {
            share.0.store(Share::word(begin(thread) as u64, begin(thread + 1) as u64), Ordering::Relaxed);
        }
    }

    /// Takes tasks until there are none.
    fn take_tasks(&self, task: &Task<'_>, thread: usize) {
        while let Some(number) = self.shares[thread].first() {
            task(thread, number);
        }
        let (before, own_and_after) = self.shares.split_at(thread);
        for share in own_and_after[1..].iter().chain(before) {
            while let Some(number) = share.last() {
                task(thread, number);
            }
        }
    }

    /// Waits for work that is not number `seen` and enters it. `None`: the pool ended.
    fn enter(&self, index: usize, seen: u64) -> Option<u64> {
        loop {
            if let Some(number) = spin(|| self.try_enter(seen)) {
                return Some(number);
            }
            if self.ended.load(Ordering::SeqCst) {
                return None;
            }
            // Announced first, looked again after: the leader either sees the announcement or is seen.
            self.asleep[index].store(true, Ordering::SeqCst);
            let entered = self.try_enter(seen);
            if entered.is_none() && !self.ended.load(Ordering::SeqCst) {
                threads::during(Doing::WaitsForPart, std::thread::park);
                leave(self.leader_at.load(Ordering::Relaxed));
            }
            self.asleep[index].store(false, Ordering::SeqCst);
            if entered.is_some() {
                return entered;
            }
        }
    }

    fn try_enter(&self, seen: u64) -> Option<u64> {
        let gate = self.gate.load(Ordering::SeqCst);
        let number = gate >> NUMBER_SHIFT;
        let may_enter = gate & OPEN != 0 && number != seen;
        let entered =
            may_enter && self.gate.compare_exchange(gate, gate + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        entered.then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_task_runs_once_on_any_number_of_threads() {
        for threads in 1..6 {
            let mut thread_pool = ThreadPool::anywhere(threads).unwrap();
            assert_eq!(thread_pool.threads(), threads);
            for tasks in [0, 1, 2, 3, 7, 100, 1000] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                thread_pool.run(tasks, &|thread, number| {
                    assert!(thread < threads);
                    counts[number].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn others_take_what_a_thread_does_not_come_to() {
        let mut thread_pool = ThreadPool::anywhere(3).unwrap();
        for stuck in [0, 5, 10, 29] {
            let done = AtomicUsize::new(0);
            thread_pool.run(30, &|_, number| {
                while number == stuck && done.load(Ordering::Relaxed) < 29 {
                    std::thread::yield_now();
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.load(Ordering::Relaxed), 30);
        }
    }

    #[test]
    fn work_after_a_sleep_is_done() {
        let mut thread_pool = ThreadPool::anywhere(3).unwrap();
        for _ in 0..20 {
            std::thread::sleep(SPIN * 4);
            let done = AtomicUsize::new(0);
            thread_pool.run(50, &|_, _| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.load(Ordering::Relaxed), 50);
        }
    }

    #[test]
    fn a_panic_comes_out_and_the_crew_goes_on() {
        let mut thread_pool = ThreadPool::anywhere(4).unwrap();
        for guilty in [0, 17, 63] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                thread_pool.run(64, &|_, number| assert_ne!(number, guilty, "the guilty one"));
            }));
            assert!(result.is_err());
            let done = AtomicUsize::new(0);
            thread_pool.run(64, &|_, _| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.load(Ordering::Relaxed), 64);
        }
    }
}
