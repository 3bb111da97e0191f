//! The worker's end.

use super::codec::AsTheyAre;
use super::{BEGIN_WAIT, Incoming, KEEP_ALIVE, KEEP_ALIVE_WAIT, MESSAGE_BYTES_MAX, PATH, WINDOW_BYTES};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, poll_fn};
use futures_util::{FutureExt, StreamExt};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tonic::body::Body;
use tonic::server::StreamingService;
use tonic::{Request, Response, Status};

/// Connections that are open at once; the next one waits in the listener's backlog.
const CONNECTIONS_MAX: usize = 4096;
/// Pause after `accept` failed for want of files, so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for sessions to bring their last messages out.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// What goes out over a session; an error is its last message.
pub type Outgoing = mpsc::Receiver<Result<Vec<u8>, Status>>;

/// Serves sessions on `listener`: `session` is called with the messages of each and says what goes out, or refuses. Once
/// `shutdown` is ready nobody is let in any more; it returns when the sessions have ended, or after a short time.
pub async fn serve<S, F>(listener: TcpListener, session: S, shutdown: impl Future<Output = ()>)
where
    S: Fn(Incoming) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Outgoing, Status>> + Send + 'static,
{
    let graceful = GracefulShutdown::new();
    tokio::select! {
        never = accept(&listener, &session, &graceful) => match never {},
        () = shutdown => {}
    }
    drop(listener);
    let _ = timeout(CLOSE_WAIT, graceful.shutdown()).await;
}

async fn accept<S, F>(listener: &TcpListener, session: &S, graceful: &GracefulShutdown) -> Infallible
where
    S: Fn(Incoming) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Outgoing, Status>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await.expect("nobody closes it");
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = connection(stream, session.clone(), graceful);
                tokio::spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Carries one connection; one on which no session begins is dropped.
fn connection<S, F>(
    stream: TcpStream,
    session: S,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + use<S, F>
where
    S: Fn(Incoming) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Outgoing, Status>> + Send + 'static,
{
    // Tokens are small and must not wait for each other. A socket that refuses is about to fail anyway.
    let _ = stream.set_nodelay(true);
    let begun = Arc::<AtomicBool>::default();
    let begins = begun.clone();
    let service = tower::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        begins.store(true, Ordering::Relaxed);
        answer(session.clone(), request)
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(1)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_WAIT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let connection = graceful.watch(connection);
    async move {
        let mut connection = std::pin::pin!(connection);
        let in_time = timeout(BEGIN_WAIT, &mut connection).await;
        let ended = match in_time {
            Ok(ended) => ended,
            Err(_) if begun.load(Ordering::Relaxed) => connection.await,
            Err(_) => return tracing::debug!("a connection began no session"),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "the connection of a session broke");
        }
    }
}

async fn answer<S, F>(
    session: S,
    request: http::Request<hyper::body::Incoming>,
) -> Result<http::Response<Body>, Infallible>
where
    S: Fn(Incoming) -> F + Send + 'static,
    F: Future<Output = Result<Outgoing, Status>> + Send + 'static,
{
    if request.uri().path() != PATH {
        let path = request.uri().path().to_owned();
        return Ok(Status::unimplemented(format!("there is no {path}, only {PATH}")).into_http());
    }
    let mut grpc = tonic::server::Grpc::new(AsTheyAre)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Ok(grpc.streaming(Opened(session), request).await)
}

/// A session that is being opened, as tonic wants to see it.
struct Opened<S>(S);

impl<S, F> StreamingService<Vec<u8>> for Opened<S>
where
    S: Fn(Incoming) -> F,
    F: Future<Output = Result<Outgoing, Status>> + Send + 'static,
{
    type Response = Vec<u8>;
    type ResponseStream = BoxStream<'static, Result<Vec<u8>, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let outgoing = (self.0)(request.into_inner());
        async move {
            let mut outgoing = outgoing.await?;
            Ok(Response::new(poll_fn(move |context| outgoing.poll_recv(context)).boxed()))
        }
        .boxed()
    }
}
