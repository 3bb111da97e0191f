//! Errors of the API server, and what they mean.

use crate::causes::{is_of_tls, with_causes};
use crate::outage::Failure;
use http::StatusCode;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// Why pods could not be listed or watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubernetesError {
    /// It does not answer, or not now.
    #[error("the API server at {server} does not answer: {reason}")]
    Away {
        /// The server.
        server: String,
        /// What happened.
        reason: String,
    },
    /// It ended the connection in the middle of an answer.
    #[error("the API server at {server} ended the connection: {reason}")]
    Ended {
        /// The server.
        server: String,
        /// What happened.
        reason: String,
    },
    /// The two ends do not agree on TLS.
    #[error(
        "the API server at {server}: TLS fails: {reason}: check discovery.kubernetes.ca, and the name in discovery.kubernetes.server"
    )]
    Tls {
        /// The server.
        server: String,
        /// What happened.
        reason: String,
    },
    /// A file is of no use.
    #[error("{path} ({key}): {reason}")]
    File {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It does not accept the token (401).
    #[error(
        "the API server at {server} does not accept the token of this process ({reason}): check discovery.kubernetes.token_file, and that the pod has its service account's token"
    )]
    Token {
        /// The server.
        server: String,
        /// Its answer.
        reason: String,
    },
    /// The service account lacks a right (403).
    #[error("the API server refuses: {reason}: {}", right(.what))]
    Denied {
        /// What was asked for.
        what: Asked,
        /// Its answer, which names the account.
        reason: String,
    },
    /// The selector cannot be read (400).
    #[error("the API server refuses the request: {reason}: check discovery.kubernetes.selector")]
    Invalid {
        /// Its answer.
        reason: String,
    },
    /// It has not what was asked for (404).
    #[error("the API server at {server} has no such thing: {reason}: check discovery.kubernetes.server")]
    Missing {
        /// The server.
        server: String,
        /// Its answer.
        reason: String,
    },
    /// It has forgotten the version from which this process went on (410).
    #[error("the API server has forgotten the version that was read: the pods are listed again")]
    Gone,
    /// What it says cannot be read.
    #[error("the API server at {server} says what cannot be read: {reason}")]
    Strange {
        /// The server.
        server: String,
        /// What is wrong.
        reason: String,
    },
}

/// What the API server is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The pods of the selector.
    ListPods,
    /// Their changes.
    WatchPods,
    /// The labels of a node.
    GetNode,
}

fn right(what: &Asked) -> &'static str {
    match what {
        Asked::ListPods | Asked::WatchPods => {
            "bind a Role that allows `list` and `watch` of `pods` in this namespace to the service account of the router (the Helm chart does so with discovery.kind=kubernetes)"
        }
        Asked::GetNode => {
            "bind a ClusterRole that allows `get` of `nodes` to the service account of the router (the Helm chart does so with discovery.nodeLabels=true), or set discovery.kubernetes.node_labels = false"
        }
    }
}

impl KubernetesError {
    /// Returns whether this is a mistake in the settings of either side, which no waiting corrects.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Tls { .. }
            | Self::File { .. }
            | Self::Token { .. }
            | Self::Denied { .. }
            | Self::Invalid { .. }
            | Self::Missing { .. } => true,
            Self::Away { .. } | Self::Ended { .. } | Self::Gone | Self::Strange { .. } => false,
        }
    }

    /// Returns why a request had no answer.
    pub(super) fn no_answer(server: &str, error: &(dyn Error + 'static)) -> Self {
        let (server, reason) = (server.to_owned(), with_causes(error));
        if is_of_tls(error) { Self::Tls { server, reason } } else { Self::Away { server, reason } }
    }

    /// Returns that something did not come in time.
    pub(super) fn silent(server: &str, waited: Duration) -> Self {
        Self::Away { server: server.to_owned(), reason: format!("nothing came for {waited:?}") }
    }

    /// Returns what an answer means that is an error. `reason` is its text.
    pub(super) fn refused(server: &str, what: Asked, status: StatusCode, reason: String) -> Self {
        let server = server.to_owned();
        match status {
            StatusCode::BAD_REQUEST => Self::Invalid { reason },
            StatusCode::UNAUTHORIZED => Self::Token { server, reason },
            StatusCode::FORBIDDEN => Self::Denied { what, reason },
            StatusCode::NOT_FOUND => Self::Missing { server, reason },
            StatusCode::GONE => Self::Gone,
            _ => Self::Away { server, reason: format!("{status}: {reason}") },
        }
    }
}

impl Failure for KubernetesError {
    const DIRECTORY: &'static str = "the API server";

    fn is_absence(&self) -> bool {
        matches!(self, Self::Away { .. } | Self::Ended { .. })
    }

    fn is_passing(&self) -> bool {
        matches!(self, Self::Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_answers_has_a_meaning() {
        let of = |what, status: u16| {
            let status = StatusCode::from_u16(status).expect("a status");
            KubernetesError::refused("https://k:443", what, status, "said".to_owned())
        };
        for (status, is_refusal) in
            [(400, true), (401, true), (403, true), (404, true), (410, false), (429, false), (503, false)]
        {
            assert_eq!(of(Asked::ListPods, status).is_refusal(), is_refusal, "{status}");
        }
        assert_eq!(of(Asked::WatchPods, 410), KubernetesError::Gone);
        let denied = of(Asked::WatchPods, 403).to_string();
        assert!(denied.contains("bind a Role that allows `list` and `watch` of `pods`"), "{denied}");
        let denied = of(Asked::GetNode, 403).to_string();
        assert!(denied.contains("bind a ClusterRole that allows `get` of `nodes`"), "{denied}");
        let away = of(Asked::ListPods, 503);
        assert!(away.to_string().contains("https://k:443") && away.to_string().contains("503"), "{away}");
        let ended = KubernetesError::Ended { server: String::new(), reason: String::new() };
        assert!(away.is_like(&ended) && !away.is_like(&KubernetesError::Gone));
    }
}
