//! What ends a worker: a fault of one of its threads that nothing can handle.
//!
//! What is deliberately absent: the end itself. Whoever drives the worker ends it, and says why.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// Why a thread ended that should not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The thread's name.
    pub thread: String,
    /// What it panicked with, or the error that it could not handle.
    pub cause: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the thread {} failed: {}", self.thread, self.cause)
    }
}

/// Whether a worker has failed, as all its threads share it. The first fault counts and stays. Clones are the same
/// failure.
///
/// ```
/// use transport::Failure;
///
/// let failure = Failure::new();
/// failure.on_report(|fault| println!("{fault}"));
/// assert!(failure.watch("mover", || Ok::<_, std::io::Error>(())));
/// assert_eq!(failure.get(), None);
/// failure.report("mover", "no more descriptors");
/// assert_eq!(failure.get().map(|fault| fault.thread.as_str()), Some("mover"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Failure(Arc<Shared>);

/// Called once, with the fault.
type Alarm = Box<dyn FnOnce(&Fault) + Send>;

#[derive(Default)]
struct Shared {
    fault: OnceLock<Fault>,
    /// Those that were not raised yet.
    alarms: Mutex<Vec<Alarm>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.get().fmt(f)
    }
}

impl Failure {
    /// Makes one of a worker that has not failed. Shown at [`Failure`], as the calls below are.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the fault, if there is one.
    pub fn get(&self) -> Option<&Fault> {
        self.0.fault.get()
    }

    /// Reports a fault. The first one is logged and raises all alarms, on the caller's thread.
    pub fn report(&self, thread: &str, cause: impl fmt::Display) {
        let fault = Fault { thread: thread.to_owned(), cause: cause.to_string() };
        tracing::error!(thread, cause = fault.cause, "a thread failed");
        if self.0.fault.set(fault).is_ok() {
            self.raise();
        }
    }

    /// Calls `alarm` once there is a fault; at once, if there is one now. It must be quick.
    pub fn on_report(&self, alarm: impl FnOnce(&Fault) + Send + 'static) {
        self.alarms().push(Box::new(alarm));
        // A report that came before the alarm did not raise it.
        self.raise();
    }

    /// Runs a thread's body, or a part of it, and reports a panic or an error in it. Whether there was neither.
    /// What a panic leaves half done is the caller's matter.
    pub fn watch<E: fmt::Display>(&self, thread: &str, body: impl FnOnce() -> Result<(), E>) -> bool {
        match caught(body) {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => self.report(thread, error),
            Err(panic) => self.report(thread, panic),
        }
        false
    }

    /// Starts a thread whose panics and errors are reported. Errors: of the system.
    pub(crate) fn spawn<E: fmt::Display>(
        &self,
        name: String,
        body: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let (failure, thread) = (self.clone(), name.clone());
        threads::spawn(name, move || {
            failure.watch(&thread, body);
        })
    }

    fn raise(&self) {
        let Some(fault) = self.get() else { return };
        // Called without the lock: an alarm may report, or add another.
        let alarms = std::mem::take(&mut *self.alarms());
        alarms.into_iter().for_each(|alarm| alarm(fault));
    }

    fn alarms(&self) -> MutexGuard<'_, Vec<Alarm>> {
        self.0.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A panic that was caught, with what it said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it panicked: {0}")]
pub(crate) struct Panicked(String);

impl Panicked {
    fn of(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        Self(said.unwrap_or("without a message").to_owned())
    }
}

/// Runs `body` to its end. What a panic leaves half done is the caller's matter.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| Panicked::of(&*panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn the_first_fault_stays_and_everybody_hears_of_it_once() {
        let failure = Failure::new();
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let listen = || {
            let heard = heard.clone();
            failure.on_report(move |fault| heard.lock().expect("nobody panics here").push(fault.to_string()));
        };
        listen();
        assert!(failure.watch("first", || Ok::<_, Infallible>(())));
        assert_eq!(failure.get(), None, "a body that ends well is no fault");
        let seven = 7;
        assert!(!failure.watch("second", || -> Result<(), Infallible> { panic!("{seven} of them") }));
        assert!(!failure.watch("third", || Err("too late")));
        listen();
        let expected = "the thread second failed: it panicked: 7 of them";
        assert_eq!(failure.get().map(ToString::to_string).as_deref(), Some(expected));
        assert_eq!(*heard.lock().expect("nobody panics here"), [expected, expected]);
    }

    #[test]
    fn an_error_of_a_thread_is_a_fault_and_an_alarm_may_report_another() {
        let failure = Failure::new();
        let again = failure.clone();
        failure.on_report(move |_| again.report("alarm", "another"));
        let thread = failure.spawn("thread".to_owned(), || Err("no more descriptors"));
        thread.expect("it starts").join().expect("what it does wrong is reported");
        let expected = Fault { thread: "thread".to_owned(), cause: "no more descriptors".to_owned() };
        assert_eq!(failure.get(), Some(&expected));
    }

    #[test]
    fn what_a_panic_said_is_told() {
        assert_eq!(caught(|| 7), Ok(7));
        let said = |body: fn(i32)| caught(|| body(7)).expect_err("it panics").to_string();
        assert_eq!(said(|_| panic!("as it should")), "it panicked: as it should");
        assert_eq!(said(|seven| panic!("{seven} of them")), "it panicked: 7 of them");
        assert_eq!(said(|seven| std::panic::panic_any(seven)), "it panicked: without a message");
    }
}
