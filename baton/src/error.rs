//! How a command fails, as the person who typed it sees it.

use crate::commands::admin::AdminError;
use crate::config::ConfigError;
use engine::models::ModelError;
use engine::random::RandomError;
use std::error::Error;
use std::io;
use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An argument is wrong.
    #[error(transparent)]
    Usage(Box<dyn Error>),
    /// A model cannot be opened.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A model that was described cannot be served here.
    #[error("{0} cannot be served here")]
    NotServed(String),
    /// A checkpoint was not written.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The answer cannot be printed.
    #[error("cannot write the answer")]
    Output(#[from] io::Error),
    /// A cluster was asked in vain.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Whatever went wrong while serving.
    #[error(transparent)]
    Failed(Box<dyn Error>),
}

impl CommandError {
    /// 2 where the person's input is at fault, else 1. `baton admin` has more.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Admin(error) => ExitCode::from(error.exit_code()),
            Self::Config(_) | Self::Usage(_) => ExitCode::from(2),
            Self::Random(
                RandomError::UnknownFamily { .. }
                | RandomError::UnknownShape { .. }
                | RandomError::Impossible { .. }
                | RandomError::Exists(_),
            ) => ExitCode::from(2),
            Self::Model(_) | Self::NotServed(_) | Self::Random(_) | Self::Output(_) | Self::Failed(_) => {
                ExitCode::FAILURE
            }
        }
    }
}

/// Returns the error and its causes, in one line where they are.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let line = error.to_string();
        // Some errors say their cause themselves.
        if !text.ends_with(&line) {
            text = format!("{text}: {line}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        let error = CommandError::Output(io::Error::other("disk full"));
        assert_eq!(with_causes(&error), "cannot write the answer: disk full");
        let error = CommandError::Usage("bad flag".into());
        assert_eq!(with_causes(&error), "bad flag");
    }
}
