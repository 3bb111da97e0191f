//! The end that dials.

use super::Tls;
use rustls::pki_types::ServerName;
use std::io;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Dials workers, with the certificate as it is now. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connector {
    tls: Tls,
}

impl Connector {
    pub(super) fn new(tls: Tls) -> Self {
        Self { tls }
    }

    /// Begins TLS with the worker at `address` (`host:port`), whose certificate must be for the configured name, or for
    /// the host. Errors: [`explain`](super::explain) says what is wrong with its certificate, or with ours.
    pub(crate) async fn connect(&self, address: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = server_name(self.tls.0.files.server_name.as_deref(), address)?;
        let config = self.tls.current().connects.ok_or_else(|| io::Error::other("no authorities"))?;
        TlsConnector::from(config).connect(name, stream).await
    }
}

/// Returns what the certificate at `address` (`host:port`) must be for: the name that is expected, or else the host.
/// Errors: it is no name that a certificate can be for.
pub(super) fn server_name(expected: Option<&str>, address: &str) -> io::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    let name = expected.unwrap_or(host);
    ServerName::try_from(name.to_owned())
        .map_err(|_| io::Error::other(format!("{name:?} is no name that a certificate can be for")))
}
