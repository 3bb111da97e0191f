//! A text that is not shown.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What is printed instead of it.
pub(super) const SHOWN: &str = "(hidden)";

/// A text that neither `baton config show` nor a log shows.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Hidden(pub(crate) String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { SHOWN })
    }
}
