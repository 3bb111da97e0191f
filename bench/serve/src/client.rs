//! HTTP/1.1 to one server: connections are kept alive and never delayed by Nagle's algorithm.

use crate::error::Malformed;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as Pool, Error};
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Most bytes of an answer that is not a stream: a list of models, or an error.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Most characters of an error that are kept.
const ERROR_CHARS_MAX: usize = 300;
/// Time for a connection to be made.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Time for a connection to stay unused; shorter than that of common servers, so that none closes under a request.
const IDLE_WAIT: Duration = Duration::from_secs(4);

/// A client of one server.
#[derive(Debug)]
pub(crate) struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Takes a new connection for each request.
    fresh: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Requests that were sent again.
    resent: AtomicU64,
    base: String,
    headers: HeaderMap,
}

/// Status and text of an answer that is not a stream.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
    /// What the server calls itself.
    pub(crate) server: Option<String>,
}

/// A request for a whole answer has none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlainError {
    /// The request was not sent, or nothing came back.
    #[error("{}", with_causes(.0))]
    Request(#[from] Error),
    /// The answer takes too long.
    #[error("no answer in {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The answer broke off, or has more than [`ANSWER_BYTES_MAX`].
    #[error("{0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Client {
    /// Makes a client of the server at `url`, for example `http://127.0.0.1:8000` or `http://host/prefix`; `/v1` at
    /// its end is understood. `headers`: `name: value`, sent with every request. `ca`: the authorities of an `https`
    /// server, if not those of the system.
    pub(crate) fn new(url: &str, headers: &[String], ca: Option<&Path>) -> Result<Self, Malformed> {
        let base = url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        let parsed: Uri = base.parse().map_err(|error| Malformed(format!("--url {url:?}: {error}")))?;
        let tls = match parsed.scheme_str().filter(|_| parsed.host().is_some()) {
            Some("http") => trusting(RootCertStore::empty()),
            Some("https") => tls(ca)?,
            _ => return Err(Malformed(format!("--url {url:?} is no URL such as http://127.0.0.1:8000"))),
        };
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for header in headers {
            let wrong = || Malformed(format!("--header {header:?} is not NAME: VALUE"));
            let (name, value) = header.split_once(':').ok_or_else(wrong)?;
            let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
            fields.insert(name, value.trim().parse().map_err(|_| wrong())?);
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_WAIT));
        connector.enforce_http(false);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector);
        let pool = |idle_max| {
            let mut pool = Pool::builder(TokioExecutor::new());
            pool.pool_idle_timeout(IDLE_WAIT).pool_max_idle_per_host(idle_max).build(connector.clone())
        };
        let (pool, fresh) = (pool(usize::MAX), pool(0));
        Ok(Self { pool, fresh, resent: AtomicU64::new(0), base, headers: fields })
    }

    /// Returns the URL of a path of the API.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sends a POST; the answer's body is still to be read. Some servers close a connection after an answer
    /// without saying so (llama-server after a stream), and the next request may be under way by then: one that
    /// gets not a byte of an answer is sent once more, on a connection of its own, and counted.
    pub(crate) async fn post(&self, path: &str, body: Bytes) -> Result<Response<Incoming>, Error> {
        match self.pool.request(self.request(Method::POST, path, body.clone())).await {
            Err(error) if closed_unanswered(&error) => {
                self.resent.fetch_add(1, Ordering::Relaxed);
                self.fresh.request(self.request(Method::POST, path, body)).await
            }
            answer => answer,
        }
    }

    /// Returns the number of requests that were sent again so far.
    pub(crate) fn resent(&self) -> u64 {
        self.resent.load(Ordering::Relaxed)
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn plain(&self, method: Method, path: &str, body: Bytes) -> Result<Plain, PlainError> {
        let response = self.pool.request(self.request(method, path, body)).await?;
        let server = response.headers().get("server").and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(Plain { status: response.status(), text: text(response.into_body()).await?, server })
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.url(path).parse().expect("the base was parsed, and paths are ours");
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// Returns what a connection to an `https` server trusts. Errors: there are no authorities.
fn tls(ca: Option<&Path>) -> Result<ClientConfig, Malformed> {
    let Some(path) = ca else {
        let trusts = builder().with_native_roots();
        let trusts =
            trusts.map_err(|error| Malformed(format!("no authorities of the system ({error}): name one by --ca")))?;
        return Ok(trusts.with_no_client_auth());
    };
    let wrong = |why: &dyn std::fmt::Display| Malformed(format!("--ca {}: {why}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    }
    Ok(trusting(roots))
}

fn trusting(roots: RootCertStore) -> ClientConfig {
    builder().with_root_certificates(roots).with_no_client_auth()
}

fn builder() -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    builder.with_safe_default_protocol_versions().expect("the provider has these versions")
}

/// Returns the whole text of a body.
async fn text(body: Incoming) -> Result<String, PlainError> {
    let bytes = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(PlainError::Body)?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns what an error answer says, in one short line.
pub(crate) async fn complaint(body: Incoming) -> String {
    text(body).await.map_or_else(|error| error.to_string(), |text| brief(&text))
}

/// Returns the message of an error in OpenAI's form, or the begin of whatever it is, in one line.
pub(crate) fn brief(text: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let message = [&value["error"]["message"], &value["message"], &value["error"], &value["detail"]];
    let message = message.into_iter().find_map(|message| message.as_str()).unwrap_or(text);
    let line: Vec<&str> = message.split_whitespace().collect();
    line.join(" ").chars().take(ERROR_CHARS_MAX).collect()
}

/// Returns whether the server closed the connection before it answered anything.
fn closed_unanswered(error: &Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.is_some_and(hyper::Error::is_incomplete_message)
}

/// Returns an error and its causes.
pub(crate) fn with_causes(error: &Error) -> String {
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

    #[tokio::test]
    async fn urls_and_headers_are_checked() {
        let client = |url: &str, header: &str| Client::new(url, &[header.to_owned()], None);
        for url in ["http://127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1/"] {
            let client = client(url, "authorization: Bearer x").expect(url);
            assert_eq!(client.url("/v1/models"), "http://127.0.0.1:8000/v1/models");
        }
        let authority = Path::new("/nowhere/ca.pem");
        let error = Client::new("https://a", &[], Some(authority)).expect_err("there is no file").to_string();
        assert!(error.starts_with("--ca /nowhere/ca.pem: "), "{error}");
        for (url, header) in
            [("127.0.0.1:8000", "a: b"), ("http://", "a: b"), ("http://a", "a"), ("http://a", "a b: c")]
        {
            assert!(client(url, header).is_err(), "{url} {header}");
        }
    }

    #[test]
    fn complaints_are_one_line() {
        assert_eq!(brief(r#"{"error": {"message": "too\nlong", "code": 400}}"#), "too long");
        assert_eq!(brief(r#"{"object": "error", "message": "no"}"#), "no");
        assert_eq!(brief(r#"{"error": "gone"}"#), "gone");
        assert_eq!(brief("<html>\n  down </html>"), "<html> down </html>");
        assert_eq!(brief(&"x".repeat(10_000)).len(), ERROR_CHARS_MAX);
    }
}
