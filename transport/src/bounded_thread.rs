//! A thread that is waited for at its end, but not for ever: a device that hangs must not keep who ends.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A thread that can be waited for with a bound.
#[derive(Debug)]
pub struct BoundedThread {
    thread: JoinHandle<()>,
    over: Arc<Over>,
}

/// Why a thread was not joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unjoined {
    /// It panicked.
    Panicked,
    /// It has not ended. It goes on by itself.
    Late,
}

#[derive(Debug, Default)]
struct Over {
    is: Mutex<bool>,
    told: Condvar,
}

/// Tells that the body is over when it is dropped, by a panic too.
struct Tells(Arc<Over>);

impl Drop for Tells {
    fn drop(&mut self) {
        *self.0.is.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.told.notify_all();
    }
}

impl BoundedThread {
    /// Starts it. Errors: of the system.
    pub fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let over = Arc::<Over>::default();
        let tells = Tells(over.clone());
        let body = move || {
            let _tells = tells;
            body();
        };
        let thread = std::thread::Builder::new().name(name).spawn(body)?;
        Ok(Self { thread, over })
    }

    /// Waits for its end, for `at_most`. Errors: it panicked, or goes on.
    pub fn join(self, at_most: Duration) -> Result<(), Unjoined> {
        let is_over = self.over.is.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.over.told.wait_timeout_while(is_over, at_most, |is_over| !*is_over);
        let is_over = *waited.unwrap_or_else(PoisonError::into_inner).0;
        if !is_over {
            return Err(Unjoined::Late);
        }
        self.thread.join().map_err(|_| Unjoined::Panicked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn spawn(body: impl FnOnce() + Send + 'static) -> BoundedThread {
        BoundedThread::spawn("test".to_owned(), body).expect("it starts")
    }

    #[test]
    fn a_thread_that_hangs_is_not_waited_for_for_ever() {
        const LONG: Duration = Duration::from_secs(60);
        assert_eq!(spawn(|| {}).join(LONG), Ok(()));
        assert_eq!(spawn(|| panic!("as it should")).join(LONG), Err(Unjoined::Panicked));
        let (goes_on, hangs) = channel::<()>();
        let (says, ended) = channel();
        let thread = spawn(move || {
            let _ = hangs.recv();
            says.send(()).expect("somebody listens");
        });
        assert_eq!(thread.join(Duration::from_millis(1)), Err(Unjoined::Late));
        // It goes on when what it waits for comes.
        drop(goes_on);
        ended.recv().expect("it ends");
    }
}
