//! HTTP for the S3 client: connections that are kept, bounds on silence, and a journal of what a request met.
//!
//! What repeats a request, and after which pause, is the S3 client's matter; here it is told what may be repeated,
//! which is everything: whoever writes a key writes the same bytes.

use super::config::ObjectConfigError;
use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody, HttpService,
};
use rustls::ClientConfig;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// Bytes a second that a store takes at least: a request with a body may be answered later by as much.
const PACE_MIN: u64 = 1 << 20;

tokio::task_local! {
    /// That of the request that is made.
    pub(super) static JOURNAL: Arc<Journal>;
}

/// What a request met, with its repetitions.
#[derive(Default)]
pub(super) struct Journal {
    requests: AtomicU32,
    last: Mutex<Met>,
}

/// What became of the last try.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Met {
    #[default]
    Nothing,
    NoConnection,
    Break,
    Silence,
    /// The store answered with this status.
    Status(u16),
}

impl Journal {
    /// Returns how often something was asked.
    pub(super) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn last(&self) -> Met {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn met(&self, met: Met) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = met;
    }
}

/// Connections to the store.
#[derive(Debug)]
pub(super) struct Connections {
    http: legacy::Client<HttpsConnector<HttpConnector>, HttpRequestBody>,
    silence_max: Duration,
}

impl Connections {
    /// So many are kept. `secure`: to an endpoint with TLS. Errors: this system has no certificates to trust.
    pub(super) fn client(secure: bool, kept: usize, silence_max: Duration) -> io::Result<HttpClient> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(silence_max));
        let builder = HttpsConnectorBuilder::new();
        let builder = if secure {
            let provider = rustls::crypto::ring::default_provider();
            builder.with_provider_and_native_roots(provider).map_err(ObjectConfigError::NoAuthorities)?
        } else {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let config = versions.map_err(io::Error::other)?.with_root_certificates(rustls::RootCertStore::empty());
            builder.with_tls_config(config.with_no_client_auth())
        };
        let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
        let http = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(kept)
            .build(connector);
        Ok(HttpClient::new(Self { http, silence_max }))
    }
}

#[async_trait]
impl HttpService for Connections {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let journal = JOURNAL.try_with(Arc::clone).unwrap_or_default();
        journal.requests.fetch_add(1, Ordering::Relaxed);
        let body_bytes = request.body().size_hint().lower();
        let answer_max = self.silence_max + Duration::from_secs(body_bytes / PACE_MIN);
        match tokio::time::timeout(answer_max, self.http.request(request)).await {
            Ok(Ok(response)) => {
                journal.met(Met::Status(response.status().as_u16()));
                let quiet = Box::pin(tokio::time::sleep(self.silence_max));
                Ok(response
                    .map(|body| HttpResponseBody::new(Watched { body, quiet, silence_max: self.silence_max, journal })))
            }
            Ok(Err(error)) if error.is_connect() => {
                journal.met(Met::NoConnection);
                Err(HttpError::new(HttpErrorKind::Connect, error))
            }
            Ok(Err(error)) => {
                journal.met(Met::Break);
                Err(HttpError::new(HttpErrorKind::Request, error))
            }
            Err(_) => Err(silence(&journal, answer_max)),
        }
    }
}

fn silence(journal: &Journal, waited: Duration) -> HttpError {
    journal.met(Met::Silence);
    let what = format!("the store said nothing for {} ms", waited.as_millis());
    HttpError::new(HttpErrorKind::Request, io::Error::new(io::ErrorKind::TimedOut, what))
}

/// The body of a response, of which something must come now and then.
struct Watched {
    body: Incoming,
    quiet: Pin<Box<Sleep>>,
    silence_max: Duration,
    journal: Arc<Journal>,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let watched = &mut *self;
        match Pin::new(&mut watched.body).poll_frame(cx) {
            Poll::Pending => {
                ready!(watched.quiet.as_mut().poll(cx));
                Poll::Ready(Some(Err(silence(&watched.journal, watched.silence_max))))
            }
            Poll::Ready(frame) => {
                watched.quiet.as_mut().reset(tokio::time::Instant::now() + watched.silence_max);
                Poll::Ready(frame.map(|frame| {
                    frame.map_err(|error| {
                        watched.journal.met(Met::Break);
                        HttpError::new(HttpErrorKind::Request, error)
                    })
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
