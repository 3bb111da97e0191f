//! A thread that is waited for at its end, but not for ever: a device that hangs must not keep who ends.

use crate::failure::Failure;
use std::convert::Infallible;
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

/// A thread that has not ended in time. It goes on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

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
    /// Starts it. A panic in it is reported. Errors: of the system.
    pub fn spawn(name: String, failure: &Failure, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let over = Arc::<Over>::default();
        let tells = Tells(over.clone());
        let body = move || {
            let _tells = tells;
            body();
            Ok::<_, Infallible>(())
        };
        let thread = failure.spawn(name, body)?;
        Ok(Self { thread, over })
    }

    /// Waits for its end, for `at_most`. Errors: it goes on.
    pub fn join(self, at_most: Duration) -> Result<(), Late> {
        let is_over = self.over.is.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.over.told.wait_timeout_while(is_over, at_most, |is_over| !*is_over);
        let is_over = *waited.unwrap_or_else(PoisonError::into_inner).0;
        if !is_over {
            return Err(Late);
        }
        // A panic of it was reported.
        let _ = self.thread.join();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn spawn(body: impl FnOnce() + Send + 'static) -> BoundedThread {
        BoundedThread::spawn("test".to_owned(), &Failure::new(), body).expect("it starts")
    }

    #[test]
    fn a_panic_is_over_and_reported() {
        let failure = Failure::new();
        let thread = BoundedThread::spawn("test".to_owned(), &failure, || panic!("as it should")).expect("it starts");
        assert_eq!(thread.join(Duration::from_secs(60)), Ok(()));
        assert_eq!(failure.get().map(|fault| fault.thread.as_str()), Some("test"));
    }

    #[test]
    fn a_thread_that_hangs_is_not_waited_for_for_ever() {
        const LONG: Duration = Duration::from_secs(60);
        assert_eq!(spawn(|| {}).join(LONG), Ok(()));
        let (goes_on, hangs) = channel::<()>();
        let (says, ended) = channel();
        let thread = spawn(move || {
            let _ = hangs.recv();
            says.send(()).expect("somebody listens");
        });
        assert_eq!(thread.join(Duration::from_millis(1)), Err(Late));
        // It goes on when what it waits for comes.
        drop(goes_on);
        ended.recv().expect("it ends");
    }
}
