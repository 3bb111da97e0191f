//! What a check of `tidy` says.

use std::fmt;
use std::path::PathBuf;

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    /// The file, from the root.
    pub(crate) path: PathBuf,
    /// The line, from 1; 0: the file as a whole.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) what: String,
    /// How to fix it.
    pub(crate) fix: String,
}

impl Finding {
    pub(crate) fn new(path: impl Into<PathBuf>, line: usize, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { path: path.into(), line, what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}\n    fix: {}", self.what, self.fix)
    }
}
