//! Ports, and what is refused there.

use super::configs::{HTTP2, PortUse};
use super::{Tls, plain};
use rustls::{AlertDescription, Error};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// First byte of a client that speaks TLS: a record of the handshake.
const HANDSHAKE: u8 = 22;

/// Where a process listens.
#[derive(Debug)]
pub struct Port {
    /// Takes the connections.
    pub listener: TcpListener,
    /// Takes their handshakes; `None`: the port speaks no TLS.
    pub acceptor: Option<Acceptor>,
}

impl Port {
    /// Returns where it listens. Errors: the system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the URL of the port. Errors: the system's.
    pub fn url(&self) -> io::Result<String> {
        let scheme = if self.acceptor.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}", self.local_addr()?))
    }
}

impl From<TcpListener> for Port {
    fn from(listener: TcpListener) -> Self {
        Self { listener, acceptor: None }
    }
}

/// Takes the handshakes of a port, with the certificate as it is now. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Acceptor {
    tls: Tls,
    at: PortUse,
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct Accepted<S> {
    /// What the ends say, decrypted.
    pub stream: TlsStream<S>,
    /// Whether they speak HTTP/2.
    pub is_http2: bool,
    /// Whether the other end has shown a certificate, which is of an authority of this process then.
    pub is_certified: bool,
}

/// Why a connection has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The other end closed it before it said anything.
    #[error("it was closed before it began")]
    Silent,
    /// The other end speaks something else. If that is HTTP, it got an answer.
    #[error("the other end does not speak TLS")]
    Plain,
    /// The handshake failed.
    #[error("{}", super::explain(.0).unwrap_or_else(|| .0.to_string()))]
    Failed(#[source] io::Error),
}

impl Refused {
    /// Returns the kind of the reason, in a word for a metric.
    pub fn reason(&self) -> &'static str {
        let Self::Failed(error) = self else {
            return if matches!(self, Self::Plain) { "plain" } else { "broken" };
        };
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented) => "certificate",
            Some(Error::PeerIncompatible(_) | Error::AlertReceived(AlertDescription::ProtocolVersion)) => "version",
            Some(Error::AlertReceived(_)) => "alert",
            _ => "broken",
        }
    }
}

impl Acceptor {
    pub(super) fn new(tls: Tls, at: PortUse) -> Self {
        Self { tls, at }
    }

    /// Returns whether those that connect are asked for a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.tls.0.files.client_authorities.is_some()
    }

    /// Begins TLS on a connection that `wrap` has wrapped. It takes as long as the other end does, so the caller bounds
    /// the time. Errors: [`Refused`], after the other end was told.
    pub async fn accept<S>(&self, stream: TcpStream, wrap: impl FnOnce(TcpStream) -> S) -> Result<Accepted<S>, Refused>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut first = [0; 2];
        match stream.peek(&mut first).await {
            Ok(0) | Err(_) => return Err(Refused::Silent),
            Ok(_) if first[0] == HANDSHAKE => {}
            Ok(_) => {
                plain::answer(wrap(stream), first).await;
                return Err(Refused::Plain);
            }
        }
        // An acceptor is made for a process with a certificate, and no later files are taken that have none.
        let config = self.tls.current().accepts(self.at).ok_or(Refused::Silent)?;
        match TlsAcceptor::from(config).accept(wrap(stream)).into_fallible().await {
            Ok(stream) => {
                let session = stream.get_ref().1;
                let is_http2 = session.alpn_protocol() == Some(HTTP2);
                let is_certified = session.peer_certificates().is_some();
                Ok(Accepted { stream, is_http2, is_certified })
            }
            Err((error, stream)) => {
                plain::linger(stream).await;
                Err(Refused::Failed(error))
            }
        }
    }
}
