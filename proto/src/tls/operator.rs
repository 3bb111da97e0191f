//! The end of an operator that asks one thing over HTTP/1.1 and waits.

use super::TlsFiles;
use super::configs::{TlsError, operator};
use super::connector::server_name;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

/// What operators show to ports, and which ports they trust.
#[derive(Clone, Debug)]
pub struct OperatorTls {
    config: Arc<ClientConfig>,
    /// What certificates must be for. `None`: the host that is asked.
    name: Option<String>,
}

impl OperatorTls {
    /// Reads the files. Without authorities, those of the system are trusted. Errors: [`TlsError`].
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self { config: Arc::new(operator(files)?), name: files.server_name.clone() })
    }

    /// Puts TLS around a connection to `authority` (`host:port`). The handshake is done by the first write. Errors: the
    /// host is no name that a certificate can be for.
    pub fn wrap(&self, authority: &str, stream: TcpStream) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = server_name(self.name.as_deref(), authority)?;
        let connection = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, stream))
    }
}
