//! The progress word: how far an engine has written KV.

use crate::ids::StepId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;

/// Bits of the word that count layers of the current step.
const LAYER_BITS: u32 = 16;

/// A single word `(step, layers written)` that an engine raises and readers of its KV watch. One per rank, never reset,
/// only growing. The device raises it once a layer's K and V of the step are written, before that layer's attention.
///
/// A reader that sees the word at or above [`ProgressWord::mark`]`(step, layer)` also sees the bytes of that layer
/// written by that step (release on the raise, acquire on the look).
///
/// A reader of the same process can sleep until the next raise ([`ProgressWord::watch`]); one elsewhere has to look again.
#[derive(Clone, Debug, Default)]
pub struct ProgressWord(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    word: AtomicU64,
    /// Whether anybody is in `watchers`: a raise that nobody watches is one store and one load.
    watched: AtomicBool,
    watchers: Mutex<Vec<Thread>>,
}

impl ProgressWord {
    /// A word at zero: nothing is written.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value that the word has at least when layers `0..=layer` of `step` are written.
    pub fn mark(step: StepId, layer: u16) -> u64 {
        (step.0 << LAYER_BITS) | (u64::from(layer) + 1)
    }

    /// The engine's side: layers `0..=layer` of `step` are written.
    pub fn raise(&self, step: StepId, layer: u16) {
        let Shared { word, watched, watchers } = &*self.0;
        // Sequentially consistent, as in `watch`: of a raise and a watch at once, one sees the other.
        word.store(Self::mark(step, layer), Ordering::SeqCst);
        if watched.load(Ordering::SeqCst) {
            let mut watchers = watchers.lock().unwrap_or_else(PoisonError::into_inner);
            watched.store(false, Ordering::SeqCst);
            watchers.drain(..).for_each(|thread| thread.unpark());
        }
    }

    /// The reader's side: the word now.
    pub fn get(&self) -> u64 {
        self.0.word.load(Ordering::Acquire)
    }

    /// The reader's side: the next raise unparks the calling thread, once. The word now: if it is what the caller waits
    /// for, there may be no next raise.
    pub fn watch(&self) -> u64 {
        let thread = std::thread::current();
        let mut watchers = self.0.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if watchers.iter().all(|watcher| watcher.id() != thread.id()) {
            watchers.push(thread);
        }
        self.0.watched.store(true, Ordering::SeqCst);
        drop(watchers);
        self.0.word.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_grow_with_layers_and_steps() {
        let marks =
            [(1, 0), (1, 1), (1, u16::MAX - 1), (2, 0)].map(|(step, layer)| ProgressWord::mark(StepId(step), layer));
        assert!(marks.is_sorted() && marks[0] > ProgressWord::new().get());
    }

    #[test]
    fn no_raise_is_slept_through() {
        const STEPS: u64 = 2_000;
        let word = ProgressWord::new();
        let reader = std::thread::spawn({
            let word = word.clone();
            move || {
                for step in 1..=STEPS {
                    // Without a wake-up for each raise this never ends.
                    while word.watch() < ProgressWord::mark(StepId(step), 0) {
                        std::thread::park();
                    }
                }
            }
        });
        (1..=STEPS).for_each(|step| word.raise(StepId(step), 0));
        reader.join().expect("the reader saw every step");
    }
}
