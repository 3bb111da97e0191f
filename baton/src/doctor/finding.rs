//! What a check says.

use serde::Serialize;

/// How it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Good,
    /// There is nothing to check.
    Absent,
    /// It works, and would be faster or safer otherwise.
    Advice,
    /// It is wrong: something will be slow, or will not work.
    Bad,
}

/// One finding of a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    /// What was found.
    pub(super) what: String,
    /// The command that fixes it, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

impl Finding {
    pub(super) fn good(what: impl Into<String>) -> Self {
        Self { verdict: Verdict::Good, what: what.into(), fix: None }
    }

    pub(super) fn absent(what: impl Into<String>) -> Self {
        Self { verdict: Verdict::Absent, what: what.into(), fix: None }
    }

    pub(super) fn advice(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Advice, what: what.into(), fix: Some(fix.into()) }
    }

    pub(super) fn bad(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Bad, what: what.into(), fix: Some(fix.into()) }
    }

    /// Good if `good`, else bad with this fix.
    pub(super) fn of(good: bool, what: impl Into<String>, fix: impl Into<String>) -> Self {
        if good { Self::good(what) } else { Self::bad(what, fix) }
    }
}

/// Something to look at on a host.
pub(super) struct Check {
    /// Its name in reports.
    pub(super) name: &'static str,
    /// Looks. Nothing found says that there is nothing to check.
    pub(super) run: fn(&super::Subject<'_>) -> Vec<Finding>,
}
