//! The progress word of a device that stores it itself, as the kernels of a GPU do: into memory that the host reads,
//! where nothing rings a bell. A thread looks there while a step runs and a reader waits, and shows it to readers.

use crate::locks::lock;
use domain::{ProgressMemory, ProgressWord, StepId};
use std::io;
#[cfg(test)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use threads::Doing;

/// How long the thread sleeps between two looks; the system adds some 50 µs of its own. A layer of a prompt takes a
/// device longer, and a reader that hears of it so much later loses nothing that it could have moved meanwhile.
const LOOK_EVERY: Duration = Duration::from_micros(20);

/// A progress word, the memory that its device stores, and the thread that looks there. The thread ends with it.
pub(crate) struct DeviceProgress {
    memory: Arc<dyn ProgressMemory>,
    word: ProgressWord,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the poller and those who wake it share.
struct Shared {
    /// Steps that run.
    running: AtomicUsize,
    ends: AtomicBool,
    /// The poller, once it has begun.
    poller: Mutex<Option<Thread>>,
    /// Looks of the poller.
    #[cfg(test)]
    looks: AtomicU64,
}

/// A step that runs, until it is dropped.
pub(crate) struct RunningStep(Arc<DeviceProgress>);

impl DeviceProgress {
    /// Starts the thread, for a word that the device stores here, and that is zero. Errors: the system starts no
    /// thread.
    pub(crate) fn over(memory: Arc<dyn ProgressMemory>) -> io::Result<Self> {
        let word = ProgressWord::over(memory.clone());
        let shared = Arc::new(Shared {
            running: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            poller: Mutex::new(None),
            #[cfg(test)]
            looks: AtomicU64::new(0),
        });
        let woken = shared.clone();
        word.on_await(Box::new(move || woken.wake_if_running()));
        let (looks_at, polls) = (word.clone(), shared.clone());
        let thread = threads::spawn("baton-progress".to_owned(), move || polls.poll(&looks_at))?;
        *lock(&shared.poller) = Some(thread.thread().clone());
        Ok(Self { memory, word, shared, thread: Some(thread) })
    }

    /// Returns the word that readers see.
    pub(crate) fn word(&self) -> &ProgressWord {
        &self.word
    }

    /// Stores, as a device does, that layers `0..=layer` of `step` are written. It wakes no reader.
    pub(crate) fn written(&self, step: StepId, layer: u16) {
        self.memory.word().store(ProgressWord::mark(step, layer), Ordering::Release);
    }

    /// Says that a step runs until the value that is returned is dropped. Then readers see all that it stored.
    pub(crate) fn step(self: &Arc<Self>) -> RunningStep {
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        if self.word.is_awaited() {
            self.shared.wake();
        }
        RunningStep(self.clone())
    }
}

impl Drop for RunningStep {
    fn drop(&mut self) {
        self.0.shared.running.fetch_sub(1, Ordering::SeqCst);
        self.0.word.look();
    }
}

impl Drop for DeviceProgress {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened, by the hook.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Looks while a step runs and a reader waits, and sleeps until both are so.
    fn poll(&self, word: &ProgressWord) {
        while !self.ends.load(Ordering::SeqCst) {
            if self.runs() && word.is_awaited() {
                #[cfg(test)]
                self.looks.fetch_add(1, Ordering::SeqCst);
                word.look();
                threads::during(Doing::LooksForProgress, || std::thread::park_timeout(LOOK_EVERY));
            } else {
                // Whoever changes either after the line above wakes this thread, and so ends the sleep.
                threads::during(Doing::WaitsForReader, std::thread::park);
            }
        }
    }

    fn runs(&self) -> bool {
        self.running.load(Ordering::SeqCst) > 0
    }

    fn wake_if_running(&self) {
        if self.runs() {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(poller) = lock(&self.poller).as_ref() {
            poller.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: u64 = 200;

    #[test]
    fn a_reader_that_waits_hears_of_a_layer_while_its_step_runs() {
        let progress = Arc::new(DeviceProgress::over(Arc::new(AtomicU64::new(0))).expect("a thread"));
        let (word, device) = (progress.word().clone(), std::thread::current());
        word.on_raise(Box::new(move |_| device.unpark()));
        for step in 1..=STEPS {
            // Each begins to wait at another time.
            if step % 2 == 0 {
                word.await_next();
            }
            let running = progress.step();
            for layer in 0..3 {
                word.await_next();
                progress.written(StepId(step), layer);
                let mark = ProgressWord::mark(StepId(step), layer);
                // Without the poller this never ends.
                while word.get() < mark {
                    std::thread::park();
                }
            }
            drop(running);
        }
    }

    #[test]
    fn nobody_looks_for_nobody_and_the_end_of_a_step_shows_all() {
        let progress = Arc::new(DeviceProgress::over(Arc::new(AtomicU64::new(0))).expect("a thread"));
        let looks = || progress.shared.looks.load(Ordering::SeqCst);
        for step in 1..=STEPS {
            let running = progress.step();
            progress.shared.wake();
            progress.written(StepId(step), 1);
            let mark = ProgressWord::mark(StepId(step), 1);
            assert_eq!((looks(), progress.word().raised()), (0, mark));
            drop(running);
            assert_eq!(progress.word().get(), mark);
        }
        // A reader that waits while nothing runs wakes nobody either.
        progress.word().await_next();
        assert_eq!(looks(), 0);
    }
}
