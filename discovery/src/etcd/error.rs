//! Errors of etcd, and what they mean.

use crate::causes::{is_of_tls, with_causes};
use crate::entry::ENTRY_BYTES_MAX;
use crate::outage::Failure;
use domain::{Incarnation, WorkerId};
use std::error::Error;
use std::path::PathBuf;
use tonic::{Code, Status};

/// Why something was not done in etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// No member answers, or they have no leader.
    #[error("etcd at {endpoint} does not answer: {reason}")]
    Away {
        /// The member that was asked.
        endpoint: String,
        /// What happened.
        reason: String,
    },
    /// A member ended the connection instead of an answer.
    #[error("etcd at {endpoint} ended the connection: {reason}")]
    Ended {
        /// The member that was asked.
        endpoint: String,
        /// What happened.
        reason: String,
    },
    /// The two ends do not agree on TLS.
    #[error(
        "etcd at {endpoint}: TLS fails: {reason}: check discovery.etcd.tls.ca, .cert and .key, and the name in the endpoint"
    )]
    Tls {
        /// The member that was asked.
        endpoint: String,
        /// What happened.
        reason: String,
    },
    /// A file for TLS is of no use.
    #[error("{path} ({key}): {reason}")]
    File {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An endpoint is none.
    #[error("discovery.etcd.endpoints: {endpoint:?}: {reason}")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The worker has more to say than readers take.
    #[error(
        "the entry of this worker has {bytes} bytes, at most {ENTRY_BYTES_MAX} are read: shorten worker.name, model.name or the labels of [topology]"
    )]
    Entry {
        /// Bytes of the entry.
        bytes: usize,
    },
    /// The user or the password is wrong.
    #[error(
        "etcd refuses the user {user:?} with this password: check discovery.etcd.username and discovery.etcd.password"
    )]
    Credentials {
        /// The user.
        user: String,
    },
    /// There is no user.
    #[error("etcd requires a user: set discovery.etcd.username and discovery.etcd.password")]
    Anonymous,
    /// The user may not do this.
    #[error("the user {user:?} of etcd may not read and write below {keys}: grant it a role that may")]
    Denied {
        /// The user.
        user: String,
        /// What the keys begin with.
        keys: String,
    },
    /// The database has reached its quota.
    #[error(
        "etcd is full (alarm NOSPACE) and takes no new registration: compact and defragment it or raise --quota-backend-bytes, then `etcdctl alarm disarm`"
    )]
    Full,
    /// The token of this process has expired, or rights have changed: it has to authenticate again.
    #[error("the token for etcd is not valid any more")]
    Token,
    /// The lease has lapsed.
    #[error("the lease of the registration has lapsed")]
    Lapsed,
    /// A later life of the worker is registered, or another worker with its id.
    #[error(
        "{name} at {address} is registered with the id {id} and a later incarnation ({later}): give one of the two another name (worker.name)"
    )]
    Superseded {
        /// The id of both.
        id: WorkerId,
        /// The other's name.
        name: String,
        /// The other's address.
        address: String,
        /// The other's incarnation.
        later: Incarnation,
    },
    /// Others wrote the key again and again meanwhile.
    #[error("the key of the worker {0} changes all the time: two workers may have one name (worker.name)")]
    Contended(WorkerId),
}

impl EtcdError {
    /// Returns whether this is a mistake in the settings of either side, which no waiting corrects.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Tls { .. }
            | Self::File { .. }
            | Self::Endpoint { .. }
            | Self::Entry { .. }
            | Self::Credentials { .. }
            | Self::Anonymous
            | Self::Denied { .. } => true,
            Self::Away { .. }
            | Self::Ended { .. }
            | Self::Full
            | Self::Token
            | Self::Lapsed
            | Self::Superseded { .. }
            | Self::Contended(_) => false,
        }
    }
}

/// The member that is asked, and the user: what errors name.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) endpoint: String,
    pub(super) user: String,
    pub(super) keys: String,
}

impl Asked {
    /// Returns why a member could not be asked.
    pub(super) fn not_reached(&self, error: &(dyn Error + 'static)) -> EtcdError {
        let (endpoint, reason) = (self.endpoint.clone(), with_causes(error));
        if is_of_tls(error) { EtcdError::Tls { endpoint, reason } } else { EtcdError::Away { endpoint, reason } }
    }

    /// Returns that a member did not answer in time.
    pub(super) fn silent(&self, waited: std::time::Duration) -> EtcdError {
        EtcdError::Away { endpoint: self.endpoint.clone(), reason: format!("no answer within {waited:?}") }
    }

    /// Returns what an answer means that is an error.
    pub(super) fn refused(&self, status: &Status) -> EtcdError {
        let (code, message) = (status.code(), status.message());
        match code {
            Code::Unauthenticated => EtcdError::Token,
            // Users or roles were changed since the token was made.
            Code::InvalidArgument if message.contains("revision of auth store is old") => EtcdError::Token,
            Code::InvalidArgument if message.contains("user name is empty") => EtcdError::Anonymous,
            Code::InvalidArgument if message.contains("authentication failed") => {
                EtcdError::Credentials { user: self.user.clone() }
            }
            Code::PermissionDenied => EtcdError::Denied { user: self.user.clone(), keys: self.keys.clone() },
            Code::ResourceExhausted if message.contains("space exceeded") => EtcdError::Full,
            Code::NotFound if message.contains("lease not found") => EtcdError::Lapsed,
            _ => {
                let endpoint = self.endpoint.clone();
                match status.source() {
                    Some(error) => EtcdError::Ended { endpoint, reason: with_causes(error) },
                    None => EtcdError::Away { endpoint, reason: format!("{code:?}: {message}") },
                }
            }
        }
    }
}

impl Failure for EtcdError {
    const DIRECTORY: &'static str = "etcd";

    fn is_absence(&self) -> bool {
        matches!(self, Self::Away { .. } | Self::Ended { .. })
    }

    fn is_passing(&self) -> bool {
        // The next connection has another one.
        matches!(self, Self::Token | Self::Lapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_answers_has_a_meaning() {
        let asked = Asked { endpoint: "http://e:1".into(), user: "u".into(), keys: "/baton/workers/".into() };
        let of = |code, message: &str| asked.refused(&Status::new(code, message));
        assert_eq!(of(Code::Unauthenticated, "etcdserver: invalid auth token"), EtcdError::Token);
        assert_eq!(of(Code::InvalidArgument, "etcdserver: revision of auth store is old"), EtcdError::Token);
        assert_eq!(of(Code::InvalidArgument, "etcdserver: user name is empty"), EtcdError::Anonymous);
        assert_eq!(of(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"), EtcdError::Full);
        assert_eq!(of(Code::NotFound, "etcdserver: requested lease not found"), EtcdError::Lapsed);
        let denied = of(Code::PermissionDenied, "etcdserver: permission denied");
        assert!(denied.is_refusal() && denied.to_string().contains("/baton/workers/"), "{denied}");
        let unknown = of(Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password");
        assert!(unknown.is_refusal() && unknown.to_string().contains("the user \"u\""), "{unknown}");
        for (code, message) in
            [(Code::Unavailable, "etcdserver: no leader"), (Code::ResourceExhausted, "too many requests")]
        {
            let away = of(code, message);
            assert!(!away.is_refusal() && away.to_string().contains("http://e:1"), "{away}");
        }
    }

    #[test]
    fn what_fails_before_an_answer_is_of_tls_or_of_the_network() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::io::Error);
        let asked = Asked { endpoint: "https://e:1".into(), user: String::new(), keys: String::new() };
        let tls = Outer(std::io::Error::new(std::io::ErrorKind::InvalidData, rustls::Error::DecryptError));
        assert!(matches!(asked.not_reached(&tls), EtcdError::Tls { .. }));
        assert!(matches!(asked.not_reached(&Outer(std::io::ErrorKind::TimedOut.into())), EtcdError::Away { .. }));
    }
}
