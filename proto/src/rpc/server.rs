//! The worker's end.

use super::codec::AsTheyAre;
use super::connection_slots::{ConnectionSlot, ConnectionSlots, PortLimits};
use super::gate::{Announced, Gate, Gated, UNPROVEN_BYTES_MAX};
use super::{BEGIN_WAIT, Incoming, KEEP_ALIVE, KEEP_ALIVE_WAIT, MESSAGE_BYTES_MAX, PATH, WINDOW_BYTES};
use crate::queue;
use crate::tls::{Acceptor, Port};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, poll_fn};
use futures_util::{FutureExt, StreamExt};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use tonic::body::Body;
use tonic::server::StreamingService;
use tonic::{Request, Response, Status};

/// Pause after `accept` failed for want of files, so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for a session to bring its last messages out.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// What goes out over a session; an error is its last message.
pub type Outgoing = queue::Receiver<Result<Vec<u8>, Status>>;

/// The client of a session that is being opened. It has proven nothing: little is read from it, and its connection
/// is closed [`BEGIN_WAIT`] after it was made, or sooner where newer ones need its place.
#[derive(Debug)]
pub struct Stranger {
    /// Where it is.
    pub address: SocketAddr,
    gate: Gate,
    place: Arc<ConnectionSlot>,
}

impl Stranger {
    /// Lets it in, since it has proven itself: from now on its messages may be long, and its connection lasts as
    /// long as its session. False: it is too late, or there are as many sessions as the port takes.
    #[must_use]
    pub fn has_proven_itself(self) -> bool {
        let taken = self.place.prove();
        if taken {
            self.gate.open();
        }
        taken
    }
}

/// Serves sessions on `port`. `session` is called with the client and the messages of each session; it returns
/// what goes out, or refuses. Once `shutdown` is ready, no new session begins. Returns when the sessions have ended,
/// or after a short time.
pub async fn serve<S, F>(port: impl Into<Port>, limits: PortLimits, session: S, shutdown: impl Future<Output = ()>)
where
    S: Fn(Stranger, Incoming) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Outgoing, Status>> + Send + 'static,
{
    let port = port.into();
    // Each connection has a receiver.
    let (closing, _) = watch::channel(());
    tokio::select! {
        never = accept(&port, limits, &session, &closing) => match never {},
        () = shutdown => {}
    }
    drop(port);
    // An error says that there is no connection.
    let _ = closing.send(());
    let _ = timeout(CLOSE_WAIT, closing.closed()).await;
}

async fn accept<S, F>(port: &Port, limits: PortLimits, session: &S, closing: &watch::Sender<()>) -> Infallible
where
    S: Fn(Stranger, Incoming) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Outgoing, Status>> + Send + 'static,
{
    let places = ConnectionSlots::new(limits);
    loop {
        match port.listener.accept().await {
            Ok((stream, address)) => {
                let (place, evicted) = places.enter();
                let stranger = Stranger { address, gate: Gate::default(), place: place.into() };
                let connection =
                    connection(stream, port.acceptor.clone(), stranger, session.clone(), closing.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        () = connection => {}
                        () = overdue(evicted) => tracing::debug!(%address, "a connection proved nothing in time"),
                    }
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                places.make_room();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Waits until a connection that has proven nothing has lasted too long, or has to make room; of one that has, for
/// ever.
async fn overdue(evicted: oneshot::Receiver<()>) {
    if let Ok(Err(_)) = timeout(BEGIN_WAIT, evicted).await {
        std::future::pending().await
    }
}

/// Carries one connection from its handshake, if the port has TLS, until its session is over.
async fn connection<S, F>(
    stream: TcpStream,
    acceptor: Option<Acceptor>,
    stranger: Stranger,
    session: S,
    closing: watch::Receiver<()>,
) where
    S: Fn(Stranger, Incoming) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Outgoing, Status>> + Send + 'static,
{
    // Tokens are small and must not wait for each other. A socket that refuses is about to fail anyway.
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else { return carry(stream, stranger, session, closing).await };
    match acceptor.accept(stream, |stream| stream).await {
        Ok(accepted) => carry(accepted.stream, stranger, session, closing).await,
        Err(why) => tracing::debug!(address = %stranger.address, %why, "a connection is refused"),
    }
}

/// Carries one session.
async fn carry<S, F>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    stranger: Stranger,
    session: S,
    mut closing: watch::Receiver<()>,
) where
    S: Fn(Stranger, Incoming) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Outgoing, Status>> + Send + 'static,
{
    let (gate, place) = (stranger.gate.clone(), stranger.place.clone());
    // The first request takes both: a connection carries one session. The sender is dropped with it.
    let (open, mut over) = oneshot::channel::<()>();
    let begin = Mutex::new(Some((stranger, open)));
    let service = service_fn(|request| {
        let begin = begin.lock().unwrap_or_else(PoisonError::into_inner).take();
        answer(session.clone(), begin, gate.clone(), request)
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(UNPROVEN_BYTES_MAX)
        .max_concurrent_streams(1)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_WAIT)
        .serve_connection(TokioIo::new(Gated::new(stream, gate.clone())), service);
    let mut connection = std::pin::pin!(connection);
    let closed = async {
        let is_over = tokio::select! {
            ended = connection.as_mut() => return ended,
            _ = &mut over => true,
            _ = closing.changed() => false,
        };
        // What is on its way still goes out.
        connection.as_mut().graceful_shutdown();
        let too_late = async {
            if !is_over {
                let _ = over.await;
            }
            sleep(CLOSE_WAIT).await;
        };
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = too_late => Ok(()),
        }
    };
    if let Err(error) = closed.await {
        tracing::debug!(%error, "the connection of a session broke");
    }
    drop(place);
}

async fn answer<S, F>(
    session: S,
    begin: Option<(Stranger, oneshot::Sender<()>)>,
    gate: Gate,
    request: http::Request<hyper::body::Incoming>,
) -> Result<http::Response<Body>, Infallible>
where
    S: Fn(Stranger, Incoming) -> F + Send + 'static,
    F: Future<Output = Result<Outgoing, Status>> + Send + 'static,
{
    if request.uri().path() != PATH {
        return Ok(Status::unimplemented("there is no such method").into_http());
    }
    let Some((stranger, open)) = begin else {
        return Ok(Status::resource_exhausted("a connection carries one session").into_http());
    };
    let mut grpc = tonic::server::Grpc::new(AsTheyAre)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let request = request.map(|body| Announced::new(body, gate));
    Ok(grpc.streaming(Opened { session, begin: Some((stranger, open)) }, request).await)
}

/// A session that is being opened, as tonic wants to see it.
struct Opened<S> {
    session: S,
    begin: Option<(Stranger, oneshot::Sender<()>)>,
}

impl<S, F> StreamingService<Vec<u8>> for Opened<S>
where
    S: Fn(Stranger, Incoming) -> F,
    F: Future<Output = Result<Outgoing, Status>> + Send + 'static,
{
    type Response = Vec<u8>;
    type ResponseStream = BoxStream<'static, Result<Vec<u8>, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let Some((stranger, open)) = self.begin.take() else {
            return async { Err(Status::internal("a session is opened once")) }.boxed();
        };
        let outgoing = (self.session)(stranger, request.into_inner());
        async move {
            let mut outgoing = outgoing.await?;
            let messages = poll_fn(move |context| {
                // The session is open for as long as somebody hears what goes out.
                let _ = &open;
                outgoing.poll_recv(context)
            });
            Ok(Response::new(messages.boxed()))
        }
        .boxed()
    }
}
