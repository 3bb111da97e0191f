//! The progress word: how far an engine has written KV.
//!
//! An engine on the host raises it by a call, which rings for readers that wait. A device stores it into memory that
//! the host reads, and nothing rings: there a poller looks, as long as a reader waits.

use crate::ids::StepId;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Bits of the word that count layers of the current step.
const LAYER_BITS: u32 = 16;

/// Called after every raise with the word.
type Bell = Box<dyn Fn(u64) + Send + Sync>;

/// Memory that the engine of a progress word raises: a word of the host, or one that a device can store to.
pub trait ProgressMemory: Send + Sync {
    /// Returns the word, always the same.
    fn word(&self) -> &AtomicU64;
}

impl ProgressMemory for AtomicU64 {
    fn word(&self) -> &AtomicU64 {
        self
    }
}

/// A single word `(step, layers written)` that an engine raises and readers of its KV watch. One per rank, never reset,
/// only growing. The device raises it once a layer's K and V of the step are written, before that layer's attention.
///
/// A reader that sees the word at or above [`ProgressWord::mark`]`(step, layer)` also sees the bytes of that layer
/// written by that step (release on the raise, acquire on the look).
///
/// Code that carries the word to readers may hang a bell on it ([`ProgressWord::on_raise`]). Without a bell, readers
/// look again.
///
/// Where a step failed that readers wait for, the word is held ([`ProgressWord::hold`]): the steps that write the
/// same again have other numbers, and readers see none of them before all of it is written.
#[derive(Clone, Debug, Default)]
pub struct ProgressWord(Arc<Shared>);

struct Shared {
    /// What readers see.
    word: AtomicU64,
    /// What the engine raised it to.
    raised: Arc<dyn ProgressMemory>,
    held: AtomicBool,
    bell: OnceLock<Bell>,
    /// Whether a reader waits for the next raise.
    awaits_next: AtomicBool,
    /// Whether readers may wait at any time, and none says so.
    awaits_all: AtomicBool,
    /// Called when a reader begins to wait.
    on_await: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self::over(Arc::new(AtomicU64::new(0)))
    }
}

impl Shared {
    fn over(raised: Arc<dyn ProgressMemory>) -> Self {
        Self {
            word: AtomicU64::new(0),
            raised,
            held: AtomicBool::new(false),
            bell: OnceLock::new(),
            awaits_next: AtomicBool::new(false),
            awaits_all: AtomicBool::new(false),
            on_await: OnceLock::new(),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.word.load(Ordering::Relaxed))
    }
}

impl ProgressWord {
    /// Makes a word at zero: nothing is written.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a word that a device raises: it stores marks into `memory`, which is zero, in rising order and with
    /// release. Readers see them after the next [look](ProgressWord::look).
    pub fn over(memory: Arc<dyn ProgressMemory>) -> Self {
        Self(Arc::new(Shared::over(memory)))
    }

    /// Returns the value that the word has at least when layers `0..=layer` of `step` are written.
    pub fn mark(step: StepId, layer: u16) -> u64 {
        (step.0 << LAYER_BITS) | (u64::from(layer) + 1)
    }

    /// Returns the step and the layer of a mark. `None`: the word was not raised yet.
    pub fn parts(mark: u64) -> Option<(StepId, u16)> {
        let written = (mark & ((1 << LAYER_BITS) - 1)) as u16;
        written.checked_sub(1).map(|layer| (StepId(mark >> LAYER_BITS), layer))
    }

    /// Says, on the engine's side, that layers `0..=layer` of `step` are written.
    pub fn raise(&self, step: StepId, layer: u16) {
        // Sequentially consistent, as is the look: who says that it waits and then looks either sees this raise or is
        // seen by the bell.
        let word = Self::mark(step, layer);
        self.0.raised.word().store(word, Ordering::SeqCst);
        if !self.0.held.load(Ordering::SeqCst) {
            self.show(word);
        }
    }

    /// Returns how far the engine is, whether readers see it or not.
    pub fn raised(&self) -> u64 {
        self.0.raised.word().load(Ordering::SeqCst)
    }

    /// Readers see no raise from now on. Only while no step runs.
    pub fn hold(&self) {
        self.0.held.store(true, Ordering::SeqCst);
    }

    /// Readers see all raises again, also those since [`ProgressWord::hold`]. Only while no step runs.
    pub fn let_go(&self) {
        self.0.held.store(false, Ordering::SeqCst);
        self.show(self.raised());
    }

    /// Shows readers what a device has raised, and rings for those that wait.
    pub fn look(&self) {
        let raised = self.raised();
        if raised > self.get() && !self.0.held.load(Ordering::SeqCst) {
            // Whoever is woken and waits on says so again.
            self.0.awaits_next.store(false, Ordering::SeqCst);
            self.show(raised);
        }
    }

    /// Says, on the reader's side, that it waits for the next raise. It looks at the word after that, and sleeps then.
    pub fn await_next(&self) {
        self.0.awaits_next.store(true, Ordering::SeqCst);
        self.awaited();
    }

    /// Says that from now on readers may wait at any time without a word: those of other processes.
    pub fn await_all(&self) {
        self.0.awaits_all.store(true, Ordering::SeqCst);
        self.awaited();
    }

    fn awaited(&self) {
        if let Some(call) = self.0.on_await.get() {
            call();
        }
    }

    /// Returns whether a reader waits for a raise.
    pub fn is_awaited(&self) -> bool {
        self.0.awaits_all.load(Ordering::SeqCst) || self.0.awaits_next.load(Ordering::SeqCst)
    }

    /// Calls `call` whenever a reader begins to wait, on the reader's thread. `false`: another one is called already.
    pub fn on_await(&self, call: Box<dyn Fn() + Send + Sync>) -> bool {
        self.0.on_await.set(call).is_ok()
    }

    fn show(&self, word: u64) {
        // Two may look at once, and the later one have seen less.
        self.0.word.fetch_max(word, Ordering::SeqCst);
        if let Some(bell) = self.0.bell.get() {
            bell(word);
        }
    }

    /// Reads the word, on the reader's side.
    pub fn get(&self) -> u64 {
        self.0.word.load(Ordering::SeqCst)
    }

    /// Calls `bell` with the word after every raise, on the engine's thread: it must be quick. `false`: the word
    /// has a bell already.
    pub fn on_raise(&self, bell: Box<dyn Fn(u64) + Send + Sync>) -> bool {
        self.0.bell.set(bell).is_ok()
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
        assert_eq!(ProgressWord::parts(marks[2]), Some((StepId(1), u16::MAX - 1)));
        assert_eq!(ProgressWord::parts(marks[3]), Some((StepId(2), 0)));
        assert_eq!(ProgressWord::parts(ProgressWord::new().get()), None);
    }

    fn count(rings: &AtomicU64) {
        rings.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn what_is_raised_while_the_word_is_held_is_seen_when_it_is_let_go() {
        let (word, rung) = (ProgressWord::new(), Arc::<AtomicU64>::default());
        let rings = rung.clone();
        assert!(word.on_raise(Box::new(move |_| count(&rings))));
        word.raise(StepId(1), 0);
        word.hold();
        word.raise(StepId(2), 3);
        let [before, after] = [(1, 0), (2, 3)].map(|(step, layer)| ProgressWord::mark(StepId(step), layer));
        assert_eq!((word.get(), word.raised(), rung.load(Ordering::SeqCst)), (before, after, 1));
        word.let_go();
        assert_eq!((word.get(), word.raised(), rung.load(Ordering::SeqCst)), (after, after, 2));
        word.raise(StepId(3), 0);
        assert_eq!((word.get(), rung.load(Ordering::SeqCst)), (ProgressWord::mark(StepId(3), 0), 3));
    }

    #[test]
    fn what_a_device_stores_is_seen_when_somebody_looks() {
        let memory = Arc::new(AtomicU64::new(0));
        let (word, rung) = (ProgressWord::over(memory.clone()), Arc::<AtomicU64>::default());
        let (rings, calls) = (rung.clone(), Arc::<AtomicU64>::default());
        let called = calls.clone();
        assert!(word.on_raise(Box::new(move |_| count(&rings))) && word.on_await(Box::new(move || count(&called))));
        let marks = [(1, 0), (1, 1), (2, 0)].map(|(step, layer)| ProgressWord::mark(StepId(step), layer));
        word.await_next();
        memory.store(marks[0], Ordering::SeqCst);
        assert_eq!((word.get(), word.raised(), word.is_awaited()), (0, marks[0], true));
        word.look();
        assert_eq!((word.get(), rung.load(Ordering::SeqCst), word.is_awaited()), (marks[0], 1, false));
        word.look();
        assert_eq!(rung.load(Ordering::SeqCst), 1, "nothing was raised");
        // The step fails, and is computed again.
        word.hold();
        memory.store(marks[1], Ordering::SeqCst);
        word.await_all();
        word.look();
        assert_eq!((word.get(), rung.load(Ordering::SeqCst)), (marks[0], 1));
        memory.store(marks[2], Ordering::SeqCst);
        word.let_go();
        assert_eq!((word.get(), rung.load(Ordering::SeqCst)), (marks[2], 2));
        assert!(word.is_awaited(), "nobody hears of readers that have gone");
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_bell_rings_after_each_raise() {
        let (word, heard) = (ProgressWord::new(), Arc::<AtomicU64>::default());
        let bell = || {
            let heard = heard.clone();
            Box::new(move |word| heard.store(word, Ordering::SeqCst))
        };
        assert!(word.on_raise(bell()));
        assert!(!word.on_raise(bell()), "one only");
        word.raise(StepId(3), 4);
        assert_eq!(heard.load(Ordering::SeqCst), word.get());
        assert_eq!(word.get(), ProgressWord::mark(StepId(3), 4));
    }
}
