use crate::retry::REFUSALS_MAX;
use crate::retry::{AttemptFailure, Ending, Standing, after_failure};
use domain::WorkerId;
use domain::session::Failure;

const FRESH: Standing<'_> =
    Standing { emitted: false, attempts: 1, attempts_max: 3, refusals: 0, full: None, engine: None };

fn failure(why: Option<Failure>) -> AttemptFailure {
    AttemptFailure { worker: WorkerId(1), why, detail: "said".to_owned() }
}

/// Returns what follows is written as a word, with the words that the client gets.
fn word(next: Option<Ending>) -> String {
    match next {
        None => "retry".to_owned(),
        Some(Ending::RefuseInvalid(detail)) => format!("invalid: {detail}"),
        Some(Ending::RefuseTooLarge(detail)) => format!("too large: {detail}"),
        Some(Ending::RefuseOverloaded(detail)) => format!("overloaded: {detail}"),
        Some(Ending::End(by, detail)) => format!("end by {by:?}: {detail}"),
    }
}

#[test]
fn what_follows_a_failure() {
    let emitted = Standing { emitted: true, ..FRESH };
    let last = Standing { attempts: 3, ..FRESH };
    let refused = Standing { refusals: REFUSALS_MAX, ..FRESH };
    let refused_by_all = Standing { refusals: REFUSALS_MAX + 1, ..FRESH };
    let full = Standing { full: Some("full"), ..refused_by_all };
    let engine = Standing { engine: Some("broken"), ..last };
    let table = [
        // The request's own fault, and its own time.
        (Some(Failure::Invalid), FRESH, "invalid: said"),
        (Some(Failure::Invalid), emitted, "end by Worker: said"),
        (Some(Failure::Deadline), FRESH, "end by Limit: said"),
        (Some(Failure::Deadline), emitted, "end by Limit: said"),
        // Failures cost an attempt.
        (None, FRESH, "retry"),
        (None, emitted, "retry"),
        (None, last, "end by Worker: said"),
        (Some(Failure::Engine), FRESH, "retry"),
        (Some(Failure::Engine), last, "end by Worker: said"),
        (Some(Failure::HandoffTimeout), FRESH, "retry"),
        (Some(Failure::HandoffLapsed), last, "end by Worker: said"),
        (Some(Failure::HandoffLapsed), engine, "end by Worker: broken"),
        (Some(Failure::HandoffTimeout), engine, "end by Worker: broken"),
        // Refusals cost none, but there may not be too many.
        (Some(Failure::QueueFull), last, "retry"),
        (Some(Failure::Draining), refused, "retry"),
        (Some(Failure::TooLarge), refused, "retry"),
        (Some(Failure::TooLarge), refused_by_all, "too large: said"),
        (Some(Failure::TooLarge), Standing { emitted: true, ..refused_by_all }, "end by Worker: said"),
        (Some(Failure::TooLarge), full, "overloaded: full"),
        (Some(Failure::QueueFull), full, "overloaded: full"),
        (Some(Failure::Draining), Standing { emitted: true, ..full }, "end by Us: full"),
    ];
    for (why, standing, expect) in table {
        assert_eq!(word(after_failure(&failure(why), &standing)), expect, "{why:?} of {standing:?}");
    }
}
