//! Connections with one member of etcd after the other.

use super::client::Client;
use super::config::{EtcdConfig, TlsFiles};
use super::error::{Asked, EtcdError};
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// How long a member has to take a connection, TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// A connection that carries a watch is asked this often whether it lives. etcd closes those that ask more than every
/// five seconds.
const PING_EVERY: Duration = Duration::from_secs(10);
/// How long it has to answer that.
const PONG_MAX: Duration = Duration::from_secs(5);

/// Makes connections.
#[derive(Debug)]
pub(super) struct Connector {
    config: EtcdConfig,
    /// The member that is asked next.
    next: usize,
}

impl Connector {
    pub(super) fn new(config: EtcdConfig) -> Self {
        Self { config, next: 0 }
    }

    /// Connects to the next member that answers, and authenticates. Errors: of the last one that was tried.
    pub(super) async fn connect(&mut self) -> Result<Client, EtcdError> {
        let mut last = EtcdError::Endpoint { endpoint: String::new(), reason: "there is none".to_owned() };
        for _ in 0..self.config.endpoints.len() {
            let endpoint = self.config.endpoints[self.next].clone();
            self.next = (self.next + 1) % self.config.endpoints.len();
            match self.connect_to(endpoint).await {
                Ok(client) => return Ok(client),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Returns that the member that was asked last did not answer in time.
    pub(super) fn silent(&self, waited: Duration) -> EtcdError {
        let count = self.config.endpoints.len().max(1);
        let last = self.config.endpoints.get((self.next + count - 1) % count);
        EtcdError::Away { endpoint: last.cloned().unwrap_or_default(), reason: format!("no answer within {waited:?}") }
    }

    async fn connect_to(&self, endpoint: String) -> Result<Client, EtcdError> {
        let user = self.config.credentials.as_ref().map_or(String::new(), |user| user.username.clone());
        let asked = Asked { endpoint: endpoint.clone(), user, keys: self.config.workers() };
        let no_endpoint = |error: tonic::transport::Error| {
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            EtcdError::Endpoint { endpoint: endpoint.clone(), reason }
        };
        let is_tls = endpoint.starts_with("https://");
        let mut channel = Endpoint::from_shared(endpoint.clone())
            .map_err(no_endpoint)?
            .connect_timeout(CONNECT_MAX)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_MAX);
        if is_tls {
            channel = channel.tls_config(tls(&self.config.tls)?).map_err(no_endpoint)?;
        }
        let connected = timeout(CONNECT_MAX, channel.connect()).await;
        let channel = connected.map_err(|_| asked.silent(CONNECT_MAX))?.map_err(|error| asked.not_reached(&error))?;
        let mut client = Client::new(channel, asked);
        let first = match &self.config.credentials {
            Some(credentials) => client.authenticate(credentials).await,
            None if is_tls => client.get(client.keys()).await.map(drop),
            None => Ok(()),
        };
        match first {
            // To the client, a handshake of TLS 1.3 is over before the server has looked at its certificate.
            Err(EtcdError::Ended { endpoint, reason }) if is_tls => {
                let reason = format!("{reason}: etcd may require another certificate of this process");
                Err(EtcdError::Tls { endpoint, reason })
            }
            first => first.map(|()| client),
        }
    }
}

/// Reads the files. Errors: [`EtcdError::File`].
fn tls(files: &TlsFiles) -> Result<ClientTlsConfig, EtcdError> {
    let read = |key: &'static str, path: &Path| {
        let wrong = |reason: String| EtcdError::File { key, path: path.to_owned(), reason };
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let is_pem = bytes.windows(11).any(|window| window == b"-----BEGIN ");
        if is_pem { Ok(bytes) } else { Err(wrong("it is not PEM".to_owned())) }
    };
    let mut tls = ClientTlsConfig::new();
    tls = match &files.authorities {
        Some(path) => tls.ca_certificate(Certificate::from_pem(read("discovery.etcd.tls.ca", path)?)),
        None => tls.with_native_roots(),
    };
    if let Some((certificate, key)) = &files.identity {
        let (certificate, key) = (read("discovery.etcd.tls.cert", certificate)?, read("discovery.etcd.tls.key", key)?);
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    Ok(tls)
}
