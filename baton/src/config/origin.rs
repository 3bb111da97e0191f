//! Where the value of a setting came from.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody said anything else.
    Default,
    /// The TOML file.
    File(PathBuf),
    /// This variable of the environment.
    Environment(String),
    /// This flag.
    Flag(String),
    /// A call of an operator.
    Call,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Call => write!(f, "admin call"),
        }
    }
}
