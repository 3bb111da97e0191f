//! What threads share without a lock, in thousands of orders of their steps. A wake that is lost leaves a thread
//! asleep for ever, which shuttle finds, and tells by which schedule. That it does is shown by bugs that are
//! planted here, one at a time.
//!
//! The files are those of the crate; what threads sleep on is a model here: an eventfd that tells edges, and a futex.

#[path = "../src/wake/watch/bells.rs"]
mod bells;
#[path = "../src/wake/watch/board.rs"]
mod board;
#[path = "../src/wake/sleep_flag.rs"]
mod sleep_flag;
#[path = "../src/wake/tally.rs"]
mod tally;

/// What `sleep_flag` and `tally` are made of.
mod atomic {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}

/// What `bells` and `board` are made of.
mod sync {
    pub(crate) use shuttle::sync::Mutex;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use std::sync::PoisonError;
}

/// Which bug there is in the files.
mod planted_bugs {
    use std::cell::Cell;

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Bug {
        RingOverheard,
        CountedTooLate,
        BellForgotten,
        BoardOpenedLate,
    }

    thread_local! {
        /// All threads of a schedule are run by the one that tries it.
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    pub(crate) fn is(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    pub(crate) fn plant(bug: Bug) {
        PLANTED.set(Some(bug));
    }
}

use bells::Bells;
use board::Board;
use planted_bugs::Bug;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;
use sleep_flag::SleepFlag;
use tally::Tally;

/// Orders that are tried.
const SCHEDULES: usize = 5_000;
/// Which orders find what is planted.
const SEED: u64 = 1;
/// Who brings work, and how much each does.
const GIVERS: u32 = 2;
const GIFTS: u32 = 3;

/// An eventfd, of which each write is told once.
#[derive(Default)]
struct Event {
    writes: Mutex<u32>,
    written: Condvar,
}

impl Event {
    fn write(&self) {
        *self.writes.lock().expect("nobody panics") += 1;
        self.written.notify_all();
    }

    /// Sleeps until there are more writes than `seen`.
    fn wait(&self, seen: &mut u32) {
        let mut writes = self.writes.lock().expect("nobody panics");
        while *writes == *seen {
            writes = self.written.wait(writes).expect("nobody panics");
        }
        *seen = *writes;
    }
}

/// A futex: looking and falling asleep are one step.
#[derive(Default)]
struct Futex {
    lock: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn wait(&self, is_as_seen: impl Fn() -> bool) {
        let guard = self.lock.lock().expect("nobody panics");
        if is_as_seen() {
            drop(self.woken.wait(guard).expect("nobody panics"));
        }
    }

    fn wake(&self) {
        let _guard = self.lock.lock().expect("nobody panics");
        self.woken.notify_all();
    }
}

/// Work that lies ready.
type Pile = Mutex<u32>;

fn give(pile: &Pile) {
    *pile.lock().expect("nobody panics") += 1;
}

fn take(pile: &Pile) -> u32 {
    std::mem::take(&mut *pile.lock().expect("nobody panics"))
}

/// The threads of lanes and of the control connections.
fn doorbell() {
    let shared = Arc::new((SleepFlag::default(), Event::default(), Pile::default()));
    for _ in 0..GIVERS {
        let shared = shared.clone();
        thread::spawn(move || {
            let (sleep_flag, event, pile) = &*shared;
            for _ in 0..GIFTS {
                give(pile);
                if sleep_flag.ring() {
                    event.write();
                }
            }
        });
    }
    let (sleep_flag, event, pile) = &*shared;
    let (mut taken, mut seen) = (0, 0);
    loop {
        sleep_flag.answer();
        taken += take(pile);
        if taken == GIVERS * GIFTS {
            return;
        }
        if sleep_flag.lie_down() {
            event.wait(&mut seen);
        }
        sleep_flag.get_up();
    }
}

/// The movers, and the transfers that they claim.
fn mover() {
    let shared = Arc::new((Tally::default(), Futex::default(), Pile::default()));
    for _ in 0..GIVERS {
        let shared = shared.clone();
        thread::spawn(move || {
            let (tally, futex, pile) = &*shared;
            for _ in 0..GIFTS {
                give(pile);
                if tally.wake() {
                    futex.wake();
                }
            }
        });
    }
    let (tally, futex, pile) = &*shared;
    let mut taken = 0;
    loop {
        let seen = tally.now();
        taken += take(pile);
        if taken == GIVERS * GIFTS {
            return;
        }
        tally.sleep(|| futex.wait(|| tally.count().load(Ordering::SeqCst) == seen));
    }
}

/// A progress word, and two threads that wait for its raises.
fn word() {
    let shared = Arc::new((AtomicU64::new(0), Bells::<usize>::new()));
    let sleepers = Arc::new([(); 2].map(|()| (Tally::default(), Futex::default())));
    let (own, wakes) = (shared.clone(), sleepers.clone());
    let raiser = thread::spawn(move || {
        for step in 1..=u64::from(GIFTS) {
            own.0.fetch_max(step, Ordering::SeqCst);
            own.1.ring(|sleeper| {
                let (tally, futex) = &wakes[sleeper];
                if tally.wake() {
                    futex.wake();
                }
            });
        }
    });
    let wait = |shared: Arc<(AtomicU64, Bells<usize>)>, sleepers: Arc<[(Tally, Futex); 2]>, own: usize| {
        let ((word, bells), (tally, futex)) = (&*shared, &sleepers[own]);
        for step in 1..=u64::from(GIFTS) {
            loop {
                let seen = tally.now();
                bells.hang(own, |other| *other == own);
                if word.load(Ordering::SeqCst) >= step {
                    break;
                }
                tally.sleep(|| futex.wait(|| tally.count().load(Ordering::SeqCst) == seen));
            }
        }
    };
    let (theirs, their_sleepers) = (shared.clone(), sleepers.clone());
    let other = thread::spawn(move || wait(theirs, their_sleepers, 1));
    wait(shared, sleepers, 0);
    other.join().expect("it saw every step");
    raiser.join().expect("it raised every step");
}

/// A progress word, and two readers in other processes, to which its page is shown at any moment. Only what is
/// shown there wakes them.
fn page() {
    let shared = Arc::new((AtomicU64::new(0), Board::new(), AtomicU64::new(0), Futex::default()));
    let show = |shared: &(AtomicU64, Board, AtomicU64, Futex), word: u64| {
        shared.2.fetch_max(word, Ordering::SeqCst);
        shared.3.wake();
    };
    let own = shared.clone();
    let raiser = thread::spawn(move || {
        for step in 1..=u64::from(GIFTS) {
            own.0.store(step, Ordering::SeqCst);
            own.1.raised(step, |word| show(&own, word));
        }
    });
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                // The control connection of each gives it the page.
                shared.1.open(|| shared.0.load(Ordering::SeqCst), |word| show(&shared, word));
                for step in 1..=u64::from(GIFTS) {
                    loop {
                        let seen = shared.2.load(Ordering::SeqCst);
                        if seen >= step {
                            break;
                        }
                        // The kernel compares the lower half alone.
                        shared.3.wait(|| shared.2.load(Ordering::SeqCst) as u32 == seen as u32);
                    }
                }
            })
        })
        .collect();
    raiser.join().expect("it raised every step");
    readers.into_iter().for_each(|reader| reader.join().expect("it saw every step"));
}

#[test]
fn a_doorbell_loses_no_ring() {
    shuttle::check_random(doorbell, SCHEDULES);
}

#[test]
fn a_mover_sleeps_through_no_post() {
    shuttle::check_random(mover, SCHEDULES);
}

#[test]
fn no_raise_of_a_word_is_slept_through() {
    shuttle::check_random(word, SCHEDULES);
}

#[test]
fn no_raise_is_slept_through_in_another_process() {
    shuttle::check_random(page, SCHEDULES);
}

/// Every bug is found by the run that it is in, as a thread that sleeps for ever. The orders are the same each
/// time: of others, which are new each time, one in some hundred times 5,000 has none that finds the rarest.
#[test]
fn what_is_planted_is_found() {
    let planted: [(Bug, fn()); 4] = [
        (Bug::RingOverheard, doorbell),
        (Bug::CountedTooLate, mover),
        (Bug::BellForgotten, word),
        (Bug::BoardOpenedLate, page),
    ];
    for (number, (bug, run)) in planted.into_iter().enumerate() {
        planted_bugs::plant(bug);
        let found = std::panic::catch_unwind(|| shuttle::check_random_with_seed(run, SEED, SCHEDULES))
            .expect_err("it is found");
        let told = found.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(told.contains("deadlock"), "bug {number}: {told}");
    }
}
