//! The router's end.

use super::codec::AsTheyAre;
use super::gate::{Announced, Gate, Gated, UNPROVEN_BYTES_MAX};
use super::{CONNECT_MAX, Incoming, KEEP_ALIVE, KEEP_ALIVE_WAIT, MESSAGE_BYTES_MAX, PATH, WINDOW_BYTES};
use crate::queue;
use crate::tls::{Connector, explain};
use futures_util::stream::poll_fn;
use http::uri::{PathAndQuery, Uri};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;

/// Opens a session with the worker at `address` (`host:port`), over TLS if `tls` is there. What comes out of `outgoing`
/// is sent; the session ends for the worker when `outgoing` is closed. Ready when the worker answered. Little is read
/// from the worker until the gate is opened: open it when the worker has proven itself. Errors: no process listens
/// there, or one of the ends refused the other.
pub async fn open(
    address: &str,
    tls: Option<&Connector>,
    outgoing: queue::Receiver<Vec<u8>>,
) -> Result<(Incoming, Gate), Status> {
    let addresses = tokio::net::lookup_host(address).await.map_err(unreachable)?;
    let stream = connect(addresses).await.map_err(unreachable)?;
    // Tokens are small and must not wait for each other.
    stream.set_nodelay(true).map_err(unreachable)?;
    let Some(tls) = tls else { return begin(stream, &format!("http://{address}"), outgoing).await };
    let stream = tls.connect(address, stream).await.map_err(unreachable)?;
    begin(stream, &format!("https://{address}"), outgoing).await
}

/// Opens a session over a connection.
async fn begin(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    origin: &str,
    mut outgoing: queue::Receiver<Vec<u8>>,
) -> Result<(Incoming, Gate), Status> {
    let gate = Gate::default();
    let handshake = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(UNPROVEN_BYTES_MAX)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_WAIT)
        .keep_alive_while_idle(true)
        .handshake::<_, Body>(TokioIo::new(Gated::new(stream, gate.clone())));
    let (sender, connection) = handshake.await.map_err(unreachable)?;
    // It ends with the session, whose only request it carries.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = with_causes(&error), "the connection of a session broke");
        }
    });
    let origin: Uri = origin.parse().map_err(|_| {
        Status::invalid_argument(format!("{origin:?} is no host and port")) // What resolved is one.
    })?;
    let closed = gate.clone();
    let service = tower::service_fn(move |request| {
        let (mut sender, gate) = (sender.clone(), closed.clone());
        async move {
            let response = sender.send_request(request).await?;
            Ok::<_, hyper::Error>(response.map(|body| Announced::new(body, gate)))
        }
    });
    let mut client = tonic::client::Grpc::with_origin(service, origin)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let messages = poll_fn(move |context| outgoing.poll_recv(context));
    let request = tonic::Request::new(messages);
    let response = client.streaming(request, PathAndQuery::from_static(PATH), AsTheyAre).await;
    // To this end, a handshake of TLS 1.3 is over before the worker has looked at its certificate.
    let response = response.map_err(|status| match explain(&status) {
        Some(why) => Status::unauthenticated(why),
        None => status,
    })?;
    Ok((response.into_inner(), gate))
}

/// Returns what is said of a connection that came to nothing.
fn unreachable(error: impl std::error::Error + 'static) -> Status {
    match explain(&error) {
        Some(why) => Status::unauthenticated(why),
        None => Status::unavailable(with_causes(&error)),
    }
}

/// Connects to the first of a host's addresses that answers in time. Errors: of the last one.
async fn connect(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        let silent = || io::Error::new(io::ErrorKind::TimedOut, format!("{address} says nothing for {CONNECT_MAX:?}"));
        match timeout(CONNECT_MAX, TcpStream::connect(address)).await.unwrap_or_else(|_| Err(silent())) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns an error with its causes: the outer ones alone say little.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use tokio::net::TcpSocket;

    #[tokio::test]
    async fn an_address_that_leads_nowhere_hides_no_other() {
        // Nobody listens there, and nobody else can have the port.
        let held = TcpSocket::new_v4().expect("there are sockets");
        held.bind("127.0.0.1:0".parse().expect("it is an address")).expect("loopback is there");
        let closed = held.local_addr().expect("it is bound");
        // Nobody takes in who connects, and there is room for few: the system answers no others.
        let full = TcpSocket::new_v4().expect("there are sockets");
        full.bind("127.0.0.2:0".parse().expect("it is an address")).expect("loopback is there");
        let full = full.listen(1).expect("it may listen");
        let silent = full.local_addr().expect("it listens");
        let mut waiting = Vec::new();
        while let Ok(Ok(stream)) = timeout(CONNECT_MAX / 4, TcpStream::connect(silent)).await {
            waiting.push(stream);
        }
        let good = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let answers = good.local_addr().expect("it listens");
        let stream = connect([closed, silent, answers].into_iter()).await.expect("the last one answers");
        assert_eq!(stream.peer_addr().expect("it is connected"), answers);
        let error = connect([closed, silent].into_iter()).await.expect_err("neither answers");
        assert!(error.to_string().contains(&silent.to_string()), "{error}");
    }
}
