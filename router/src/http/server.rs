//! Connections: accepting, their limits, and their end.

use super::patient::Patient;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Time for a client to send a request's head, which begins when the connection is ready for one: an idle connection
/// lives as long.
const HEAD_WAIT: Duration = Duration::from_secs(75);
/// Bytes of a request's head, and bytes that wait to be written to a client (beside those that the kernel holds).
const CONNECTION_BUFFER_BYTES: usize = 64 << 10;
/// Pause after `accept` failed for want of files, so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for connections to finish writing their last answers.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// Accepts connections and serves them.
pub(crate) struct Server {
    listener: TcpListener,
    app: Router,
    connections: Arc<Semaphore>,
    write_wait: Duration,
    graceful: GracefulShutdown,
}

impl Server {
    /// On `listener`, with `connections_max` connections at once; above, they wait in the listener's backlog.
    pub(crate) fn new(listener: TcpListener, app: Router, connections_max: usize, write_wait: Duration) -> Self {
        let connections = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        Self { listener, app, connections, write_wait, graceful: GracefulShutdown::new() }
    }

    /// Accepts until dropped. Errors: none; a connection that cannot be accepted is logged.
    pub(crate) async fn accept(&self) -> Infallible {
        loop {
            let place = self.connections.clone().acquire_owned().await.expect("nobody closes it");
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let connection = self.connection(stream);
                    tokio::spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn connection(&self, stream: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        // Tokens are small and must not wait for each other. A socket that refuses is about to fail anyway.
        let _ = stream.set_nodelay(true);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WAIT)
            .max_buf_size(CONNECTION_BUFFER_BYTES)
            .serve_connection(
                TokioIo::new(Patient::new(stream, self.write_wait)),
                TowerToHyperService::new(self.app.clone()),
            );
        let connection = self.graceful.watch(connection);
        async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
        }
    }

    /// Closes the listener and idle connections, and waits a short time for those that still write.
    pub(crate) async fn close(self) {
        drop(self.listener);
        let _ = tokio::time::timeout(CLOSE_WAIT, self.graceful.shutdown()).await;
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
