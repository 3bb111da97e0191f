//! Threads that sleep until a progress word is raised.

use domain::ProgressWord;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;

/// A progress word and who watches it in this process.
pub(crate) struct Watched {
    word: ProgressWord,
    watchers: Arc<Watchers>,
}

#[derive(Default)]
struct Watchers {
    /// Whether there are any: a raise that nobody watches costs one load.
    any: AtomicBool,
    threads: Mutex<Vec<Thread>>,
}

impl Watched {
    /// `None`: the word is watched through another already.
    pub(crate) fn new(word: ProgressWord) -> Option<Self> {
        let watchers = Arc::<Watchers>::default();
        let bell = watchers.clone();
        word.on_raise(Box::new(move || bell.ring())).then_some(Self { word, watchers })
    }

    /// The word now.
    pub(crate) fn get(&self) -> u64 {
        self.word.get()
    }

    /// The next raise unparks the calling thread, once. The word now: if it is what the caller waits for, there may be
    /// no next raise.
    pub(crate) fn watch(&self) -> u64 {
        let thread = std::thread::current();
        let mut threads = self.watchers.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.iter().all(|other| other.id() != thread.id()) {
            threads.push(thread);
        }
        self.watchers.any.store(true, Ordering::SeqCst);
        drop(threads);
        self.word.get()
    }
}

impl Watchers {
    fn ring(&self) {
        if self.any.load(Ordering::SeqCst) {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            self.any.store(false, Ordering::SeqCst);
            threads.drain(..).for_each(|thread| thread.unpark());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::StepId;

    #[test]
    fn no_raise_is_slept_through() {
        const STEPS: u64 = 2_000;
        let word = ProgressWord::new();
        let watched = Watched::new(word.clone()).expect("nobody else watches it");
        assert!(Watched::new(word.clone()).is_none());
        let reader = std::thread::spawn(move || {
            for step in 1..=STEPS {
                // Without a wake-up for each raise this never ends.
                while watched.watch() < ProgressWord::mark(StepId(step), 0) {
                    std::thread::park();
                }
            }
        });
        (1..=STEPS).for_each(|step| word.raise(StepId(step), 0));
        reader.join().expect("the reader saw every step");
    }
}
