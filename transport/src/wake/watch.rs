//! The engine's progress word, with a bell that wakes the threads which wait for it here and in other processes.

mod bells;
mod board;

/// What they are made of.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};
    pub(super) use std::sync::{Mutex, PoisonError};
}

use crate::lanes::shm::progress_page::ProgressPage;
use crate::wake::Wake;
use bells::Bells;
use board::Board;
use domain::ProgressWord;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A progress word and who watches it.
pub(crate) struct Watched {
    word: ProgressWord,
    watchers: Arc<Watchers>,
}

struct Watchers {
    /// Those of this process.
    bells: Bells<Arc<dyn Wake>>,
    /// What other processes watch.
    page: Option<ProgressPage>,
    /// Whether any has been given the page.
    board: Board,
}

impl Watched {
    /// With `page`, processes that map it can watch. `None`: the word is watched through another already.
    pub(crate) fn new(word: ProgressWord, page: Option<ProgressPage>) -> Option<Self> {
        let watchers = Arc::new(Watchers { bells: Bells::new(), page, board: Board::new() });
        let bell = watchers.clone();
        word.on_raise(Box::new(move |word| bell.ring(word))).then_some(Self { word, watchers })
    }

    /// Returns the word now.
    pub(crate) fn get(&self) -> u64 {
        self.word.get()
    }

    /// Has the next raise wake `wake`, once. Returns the word now: if it is what the caller waits for, there may be no
    /// next raise.
    pub(crate) fn watch(&self, wake: &Arc<dyn Wake>) -> u64 {
        self.watchers.bells.hang(wake.clone(), |other| Arc::ptr_eq(other, wake));
        self.word.await_next();
        self.word.get()
    }

    /// Wakes all who watch from this process, though the word is what it was.
    pub(crate) fn ring(&self) {
        self.watchers.bells.ring(|wake| wake.wake());
    }

    /// Returns the page for another process to map. From now on every raise is shown there.
    pub(crate) fn show(&self) -> Option<BorrowedFd<'_>> {
        let page = self.watchers.page.as_ref()?;
        self.watchers.board.open(|| self.word.get(), |word| page.raise(word));
        // What sleeps on the page says nothing.
        self.word.await_all();
        page.file()
    }
}

impl Watchers {
    fn ring(&self, word: u64) {
        if let Some(page) = &self.page {
            self.board.raised(word, |word| page.raise(word));
        }
        self.bells.ring(|wake| wake.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake::Signal;
    use domain::StepId;

    #[test]
    fn no_raise_is_slept_through() {
        const STEPS: u64 = 2_000;
        let word = ProgressWord::new();
        let watched = Watched::new(word.clone(), None).expect("nobody else watches it");
        assert!(Watched::new(word.clone(), None).is_none());
        let reader = std::thread::spawn(move || {
            let signal = Arc::<Signal>::default();
            let wake: Arc<dyn Wake> = signal.clone();
            for step in 1..=STEPS {
                // Without a wake-up for each raise this never ends.
                loop {
                    let seen = signal.count();
                    if watched.watch(&wake) >= ProgressWord::mark(StepId(step), 0) {
                        break;
                    }
                    signal.sleep(seen, &[], None);
                }
            }
        });
        (1..=STEPS).for_each(|step| word.raise(StepId(step), 0));
        reader.join().expect("the reader saw every step");
    }
}

/// The words alone, without what a thread sleeps on.
#[cfg(test)]
mod words {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Raises; few under an interpreter.
    const RAISES: u64 = if cfg!(miri) { 50 } else { 10_000 };

    #[test]
    fn every_raise_rings_the_bell_that_hangs_and_is_shown() {
        let (bells, board) = (Bells::<()>::new(), Board::new());
        let (word, shown, rung) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let show = |word| {
            shown.fetch_max(word, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=RAISES {
                    word.store(n, Ordering::SeqCst);
                    board.raised(n, show);
                    bells.ring(|()| rung.store(true, Ordering::SeqCst));
                }
            });
            board.open(|| word.load(Ordering::SeqCst), show);
            loop {
                rung.store(false, Ordering::SeqCst);
                bells.hang((), |()| false);
                if word.load(Ordering::SeqCst) == RAISES {
                    break;
                }
                while !rung.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(shown.load(Ordering::SeqCst), RAISES);
    }
}
