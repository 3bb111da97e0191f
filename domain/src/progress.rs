//! The progress word: how far an engine has written KV.

use crate::ids::StepId;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Bits of the word that count layers of the current step.
const LAYER_BITS: u32 = 16;

/// Called after every raise with the word.
type Bell = Box<dyn Fn(u64) + Send + Sync>;

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

#[derive(Default)]
struct Shared {
    /// What readers see.
    word: AtomicU64,
    /// What the engine raised it to.
    raised: AtomicU64,
    held: AtomicBool,
    bell: OnceLock<Bell>,
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
        self.0.raised.store(word, Ordering::SeqCst);
        if !self.0.held.load(Ordering::SeqCst) {
            self.show(word);
        }
    }

    /// Returns how far the engine is, whether readers see it or not.
    pub fn raised(&self) -> u64 {
        self.0.raised.load(Ordering::SeqCst)
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

    fn show(&self, word: u64) {
        self.0.word.store(word, Ordering::SeqCst);
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
