//! How asking a cluster fails, as the person who typed it sees it.

use crate::output::human_bytes;
use proto::tls::explain;
use std::io;
use std::path::PathBuf;
use tonic::{Code, Status};

/// Why a cluster was asked in vain.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    /// The address is none.
    #[error("--server {0}: no address such as http://127.0.0.1:8001")]
    Url(String),
    /// The key is none.
    #[error("--key, or BATON_KEY: a key has visible characters of ASCII alone, as `baton keys add` prints it")]
    Key,
    /// A file with a certificate or a key cannot be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A process answers, and one of the two ends refuses the other's certificate, or has none.
    #[error("{server}: {why}")]
    Tls {
        /// The address that was given.
        server: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// No process answers there.
    #[error(
        "{server} is not reached: {why}. Is a router or worker up? --server names its operations listener \
         (router.ops_listen, worker.ops_listen), which it prints when it starts"
    )]
    Unreached {
        /// The address that was given.
        server: String,
        /// What the system says.
        why: String,
    },
    /// A process answers that has no admin service.
    #[error(
        "{server} has no admin service, or an older one ({why}): --server names an operations listener \
         (router.ops_listen, worker.ops_listen), not that of the API or of sessions"
    )]
    NoService {
        /// The address that was given.
        server: String,
        /// What it answers.
        why: String,
    },
    /// A file is longer than a call may be.
    #[error("{path}: more than {}, the most that a call takes", human_bytes(*most))]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Bytes that it may have.
        most: u64,
    },
    /// Some workers did not do it.
    #[error("{server}: of {all} workers {refused} refuse, and {silent} did not answer")]
    Partly {
        /// The address that was given.
        server: String,
        /// Workers that refuse.
        refused: usize,
        /// Workers that did not answer.
        silent: usize,
        /// All that were asked.
        all: usize,
    },
    /// The call came to nothing.
    #[error("{server}: {}", .status.message())]
    Call {
        /// The address that was given.
        server: String,
        /// What it answers.
        status: Box<Status>,
    },
}

impl AdminError {
    /// Returns the error of a call that `server` answered so.
    pub(super) fn of_call(server: &str, status: Status) -> Self {
        let server = server.to_owned();
        if let Some(why) = explain(&status) {
            return Self::Tls { server, why };
        }
        // What the server itself answers has no cause; what the connection says has one.
        let cause = std::error::Error::source(&status).map(|cause| root(cause).to_string());
        match (status.code(), cause) {
            (Code::Unimplemented, _) => Self::NoService { server, why: "the call is unknown there".to_owned() },
            (Code::Unknown | Code::Internal | Code::Unavailable | Code::Cancelled, Some(why)) => {
                Self::NoService { server, why }
            }
            _ => Self::Call { server, status: Box::new(status) },
        }
    }

    /// Returns the exit status: 1 not reached or failed; 2 what was typed is wrong; 3 there is none of that name; 4
    /// refused.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Url(_) | Self::Key | Self::File { .. } | Self::TooLong { .. } => 2,
            Self::Unreached { .. } | Self::NoService { .. } | Self::Tls { .. } => 1,
            Self::Partly { refused, .. } => {
                if *refused > 0 {
                    4
                } else {
                    1
                }
            }
            Self::Call { status, .. } => match status.code() {
                Code::InvalidArgument | Code::OutOfRange => 2,
                Code::NotFound => 3,
                Code::Unauthenticated | Code::PermissionDenied | Code::FailedPrecondition => 4,
                _ => 1,
            },
        }
    }
}

/// Returns the first cause of an error.
pub(super) fn root<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    error.source().map_or(error, root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_answers_has_a_status_of_its_own() {
        let code = |status| AdminError::of_call("http://h:1", status).exit_code();
        assert_eq!(code(Status::not_found("no worker")), 3);
        assert_eq!(code(Status::permission_denied("not here")), 4);
        assert_eq!(code(Status::unauthenticated("no key")), 4);
        assert_eq!(code(Status::failed_precondition("the last one")), 4);
        assert_eq!(code(Status::invalid_argument("no id")), 2);
        assert_eq!(code(Status::unavailable("the router ends")), 1);
        let error = AdminError::of_call("http://h:1", Status::unimplemented("")).to_string();
        assert!(error.starts_with("http://h:1 has no admin service"), "{error}");
        let error = AdminError::of_call("http://h:1", Status::unavailable("the router ends")).to_string();
        assert_eq!(error, "http://h:1: the router ends");
    }
}
