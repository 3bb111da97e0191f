//! The registered threads, and the word in which each says what it does.

use crate::doing::Doing;
use rustix::time::{ClockId, clock_gettime};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bits of a word that say what the thread does. Those above: microseconds of the clock when it began.
const DOING_BITS: u32 = u8::BITS;

/// What a thread says of itself.
struct Word {
    name: String,
    word: AtomicU64,
}

/// All that are registered, by what the system calls them. Locked when a thread begins or ends, and for a list.
static REGISTERED: Mutex<BTreeMap<u32, Arc<Word>>> = Mutex::new(BTreeMap::new());

thread_local! {
    static OWN: OnceCell<Own> = const { OnceCell::new() };
}

/// A thread's own word, which is forgotten with the thread.
struct Own {
    id: u32,
    word: Arc<Word>,
}

impl Drop for Own {
    fn drop(&mut self) {
        lock().remove(&self.id);
    }
}

/// Starts a registered thread, which works until it says something else. Errors: of the system.
pub fn spawn<T: Send + 'static>(name: String, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.clone()).spawn(move || {
        register(&name, Doing::Works);
        body()
    })
}

/// Registers this thread under this name until it ends, and says what it does. A thread keeps its first name.
pub fn register(name: &str, doing: Doing) {
    // A thread that is about to end needs no word.
    let _ = OWN.try_with(|own| {
        own.get_or_init(|| {
            let id = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            let word = Arc::new(Word { name: name.to_owned(), word: AtomicU64::new(0) });
            lock().insert(id, word.clone());
            Own { id, word }
        });
    });
    does(doing);
}

/// Says what this thread does from now on.
pub fn does(doing: Doing) {
    say(doing);
}

/// Says what this thread does while `body` runs. Afterwards, by a panic too, it does what it did before, since when it
/// began with that.
pub fn during<T>(doing: Doing, body: impl FnOnce() -> T) -> T {
    struct Before(Option<u64>);
    impl Drop for Before {
        fn drop(&mut self) {
            if let Some(word) = self.0 {
                swap(word);
            }
        }
    }
    let _before = Before(say(doing));
    body()
}

/// Says what this thread does, and returns what it said before. `None`: it is not registered.
fn say(doing: Doing) -> Option<u64> {
    swap(now_us() << DOING_BITS | u64::from(doing as u8))
}

/// Writes this thread's word, and returns the one before.
fn swap(new: u64) -> Option<u64> {
    let swapped = OWN.try_with(|own| {
        let word = &own.get()?.word.word;
        // No other thread writes it, and nothing is published by it.
        let before = word.load(Ordering::Relaxed);
        word.store(new, Ordering::Relaxed);
        Some(before)
    });
    swapped.ok().flatten()
}

/// Returns the name of each registered thread, what it does, and for how long.
pub(crate) fn registered() -> BTreeMap<u32, (String, (Doing, Duration))> {
    let words = lock();
    // A thread may say something else meanwhile, later than this.
    let now = now_us();
    let read = |word: &Word| {
        let value = word.word.load(Ordering::Relaxed);
        let time = Duration::from_micros(now.saturating_sub(value >> DOING_BITS));
        (word.name.clone(), (doing_of(value), time))
    };
    words.iter().map(|(&id, word)| (id, read(word))).collect()
}

fn doing_of(word: u64) -> Doing {
    Doing::of_number(word as u8)
}

/// Reads the clock that is cheapest: some milliseconds more or less do not matter.
fn now_us() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1000
}

fn lock() -> MutexGuard<'static, BTreeMap<u32, Arc<Word>>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}
