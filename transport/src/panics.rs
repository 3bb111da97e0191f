//! Panics of threads that owe others an end: who waits for what such a thread has shall hear that it will not come.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs it to its end. What a panic leaves half done is the caller's matter. Errors: what the panic said.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| said(&*panic).to_owned())
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let said = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    said.unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_panic_said_is_told() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught(|| panic!("as it should")), Err::<(), _>("as it should".to_owned()));
        let seven = 7;
        assert_eq!(caught(|| panic!("{seven} of them")), Err::<(), _>("7 of them".to_owned()));
        assert_eq!(caught(|| std::panic::panic_any(seven)), Err::<(), _>("without a message".to_owned()));
    }
}
