//! Connections: accepting, their limits, and their end.

use super::connections::{Connection, Connections};
use super::patient::Patient;
use super::unread::{discard, lend};
use admin::{Caller, Certified};
use axum::Router;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderValue, Request, Version};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use proto::tls::{Acceptor, Port};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use telemetry::metrics;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Time for a new connection to send the head of its first request, the handshake of TLS included.
const FIRST_HEAD_WAIT: Duration = Duration::from_secs(10);
/// Time for the head of a later request, which begins when the connection is ready for one: an idle connection lives as
/// long.
const HEAD_WAIT: Duration = Duration::from_secs(75);
/// Bytes of a request's head. Above: 431. As much gets a head with more than 100 headers, which is hyper's bound.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Bytes that are read and not looked at yet, and bytes that wait to be written to a client (beside those that the
/// kernel holds).
const CONNECTION_BUFFER_BYTES: usize = 64 << 10;
/// Pause after `accept` failed for want of files, so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for connections to finish writing their last answers.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// Accepts connections and serves them.
pub(crate) struct Server {
    port: Port,
    app: Router,
    connections: Arc<Connections>,
    write_wait: Duration,
    graceful: GracefulShutdown,
}

impl Server {
    /// Makes a server on `port` with at most `connections_max` connections. Above that, each new one closes one that
    /// has no open request. Clients may speak HTTP/2 at once, as gRPC does: a connection that carries streams waits as
    /// any other does, so a client that watches without end keeps no other out.
    pub(crate) fn new(port: Port, app: Router, connections_max: usize, write_wait: Duration) -> Self {
        let connections = Connections::new(connections_max);
        Self { port, app, connections, write_wait, graceful: GracefulShutdown::new() }
    }

    /// Accepts until dropped. Errors: none; a connection that cannot be accepted is logged.
    pub(crate) async fn accept(&self) -> Infallible {
        loop {
            match self.port.listener.accept().await {
                Ok((stream, caller)) => {
                    let connection = self.connections.enter().await;
                    tokio::spawn(self.serve(stream, Caller(caller), connection));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn serve(
        &self,
        stream: TcpStream,
        caller: Caller,
        connection: Arc<Connection>,
    ) -> impl Future<Output = ()> + Send + 'static {
        // Tokens are small and must not wait for each other. A socket that refuses is about to fail anyway.
        let _ = stream.set_nodelay(true);
        let begun = Arc::new(Notify::new());
        let asks = Asks { app: self.app.clone(), caller, connection: connection.clone(), begun: begun.clone() };
        let (watcher, write_wait) = (self.graceful.watcher(), self.write_wait);
        let acceptor = self.port.acceptor.clone();
        let served = async move {
            let patient = |stream| Patient::new(stream, write_wait);
            let Some(acceptor) = acceptor else {
                let is_http2 = begins_http2(&stream).await;
                return speak(patient(stream), is_http2, asks.service(Certified::Unasked), watcher).await;
            };
            match acceptor.accept(stream, patient).await {
                Ok(accepted) => {
                    let certified = certified(&acceptor, accepted.is_certified);
                    speak(accepted.stream, accepted.is_http2, asks.service(certified), watcher).await;
                }
                Err(why) => {
                    metrics::tls_refused(why.reason()).increment(1);
                    tracing::debug!(address = %caller.0, %why, "a connection is refused");
                }
            }
        };
        async move {
            let silent = async {
                if timeout(FIRST_HEAD_WAIT, begun.notified()).await.is_ok() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = served => {}
                () = silent => tracing::debug!("a connection without a request is closed"),
                () = connection.must_close() => metrics::connections_evicted().increment(1),
            }
        }
    }

    /// Closes the listener and idle connections, and waits a short time for those that still write.
    pub(crate) async fn close(self) {
        drop(self.port);
        let _ = timeout(CLOSE_WAIT, self.graceful.shutdown()).await;
    }
}

/// What the requests of a connection are answered by.
struct Asks {
    app: Router,
    caller: Caller,
    connection: Arc<Connection>,
    /// Told of each request.
    begun: Arc<Notify>,
}

impl Asks {
    /// Returns the service of a connection whose other end is known so.
    fn service(
        self,
        certified: Certified,
    ) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send + 'static> + Send {
        let Self { app, caller, connection, begun } = self;
        let app = TowerToHyperService::new(app);
        service_fn(move |request: Request<Incoming>| {
            begun.notify_one();
            let waits_for_word = request.headers().contains_key(EXPECT);
            let is_http1 = request.version() < Version::HTTP_2;
            let (mut request, unread) = lend(request);
            request.extensions_mut().insert(connection.clone());
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(certified);
            let (answer, connection) = (app.call(request), connection.clone());
            async move {
                let mut answer = answer.await?;
                connection.answered();
                if let Some(rest) = unread.rest() {
                    if waits_for_word && is_http1 {
                        // Whether it sends the body now is the client's choice: what comes next may be either.
                        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    tokio::spawn(discard(rest));
                }
                Ok::<_, Infallible>(answer)
            }
        })
    }
}

/// Returns what a port with TLS knows of the other end.
fn certified(acceptor: &Acceptor, is_certified: bool) -> Certified {
    match (acceptor.asks_for_certificates(), is_certified) {
        (false, _) => Certified::Unasked,
        (true, false) => Certified::No,
        (true, true) => Certified::Yes,
    }
}

/// Carries a connection to its end.
async fn speak<S>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_http2: bool,
    service: S,
    watcher: Watcher,
) where
    S: Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send + 'static>,
{
    let stream = TokioIo::new(stream);
    let ended = if is_http2 {
        watcher.watch(http2_limits().serve_connection(stream, service)).await
    } else {
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WAIT)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(CONNECTION_BUFFER_BYTES)
            .serve_connection(stream, service);
        watcher.watch(served).await
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

/// What a client begins with that speaks HTTP/2 at once, and no request of HTTP/1 does.
const HTTP2_PREFACE: &[u8] = b"PRI ";
/// Pause before it is looked again for the rest of a preface.
const PREFACE_PAUSE: Duration = Duration::from_millis(10);
/// Requests of a connection that are open at once.
const STREAMS_MAX: u32 = 64;
/// An end that is silent for so long is asked whether its host is there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Looks, and takes nothing, whether a client speaks HTTP/2 at once.
async fn begins_http2(stream: &TcpStream) -> bool {
    let mut begin = [0; HTTP2_PREFACE.len()];
    loop {
        // What cannot be read now, the connection finds out.
        let Ok(count) = stream.peek(&mut begin).await else { return false };
        if count == 0 || begin[..count] != HTTP2_PREFACE[..count] {
            return false;
        }
        if count == HTTP2_PREFACE.len() {
            return true;
        }
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}

fn http2_limits() -> http2::Builder<TokioExecutor> {
    let mut limits = http2::Builder::new(TokioExecutor::new());
    limits
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .keep_alive_interval(KEEP_ALIVE);
    limits
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_lives_shorter_than_one_that_had_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let server = Server::new(listener.into(), Router::new(), 1, Duration::from_secs(30));
        let client = async {
            let mut stream = TcpStream::connect(address).await.expect("the server listens");
            let began = Instant::now();
            assert_eq!(stream.read(&mut [0]).await.expect("it is closed in order"), 0);
            let lived = began.elapsed();
            assert!((FIRST_HEAD_WAIT..HEAD_WAIT).contains(&lived), "{lived:?}");
        };
        tokio::select! {
            never = server.accept() => match never {},
            () = client => {}
        }
    }
}
