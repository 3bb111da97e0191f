//! Requests to a hub, over HTTP.

use crate::error::HubError;
use crate::listing::{LISTING_BYTES_MAX, Listing};
use crate::name::ModelName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;
use std::time::Duration;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Body};

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(15);
/// Longest wait for the next bytes. A transfer that stands still for longer is begun again where it stopped.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Redirects on the way to a file: a model that was renamed, and the store that holds its bytes.
const REDIRECTS_MAX: u32 = 8;
/// Tries of a request, or of a transfer that makes no progress.
pub(crate) const TRIES_MAX: u32 = 6;
/// Tries of a first request that is not answered at all: without a network, a person wants to know it soon.
pub(crate) const SILENT_TRIES_MAX: u32 = 3;
/// Longest wait before the next try, whatever the hub asks for.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// What a path in a URL keeps as it is.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// A hub.
pub(crate) struct Client {
    agent: Agent,
    /// Its address, without a slash at the end.
    pub(crate) endpoint: String,
    token: Option<String>,
    /// Wait before the second try; each further one is twice as long.
    pub(crate) first_wait: Duration,
}

/// Why a request did not give what it asked for.
pub(crate) enum Trouble {
    /// Another try may help, after this wait if the hub named one.
    Passing { reason: String, status: Option<u16>, after: Option<Duration> },
    /// None will.
    Lasting(HubError),
}

impl Client {
    /// Makes a client of the hub at `endpoint`. Proxies are those of the environment.
    ///
    /// # Errors
    ///
    /// `endpoint` is no address, or it wants TLS and this host has no certificates.
    pub(crate) fn new(endpoint: &str, token: Option<String>, first_wait: Duration) -> Result<Self, HubError> {
        let endpoint = endpoint.trim_end_matches('/');
        let bad = || HubError::Endpoint(endpoint.to_owned());
        let uri: ureq::http::Uri = endpoint.parse().map_err(|_| bad())?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(bad());
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(REDIRECTS_MAX)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_recv_response(Some(SILENCE_MAX))
            .timeout_per_read(Some(SILENCE_MAX))
            .user_agent(concat!("baton/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls()?)
            .build();
        Ok(Self { agent: config.new_agent(), endpoint: endpoint.to_owned(), token, first_wait })
    }

    /// Returns the address of the description of a model.
    pub(crate) fn listing_url(&self, name: &ModelName) -> String {
        let revision = utf8_percent_encode(&name.revision, NON_ALPHANUMERIC);
        format!("{}/api/models/{}/revision/{revision}?blobs=true", self.endpoint, name.repo)
    }

    /// Returns the address of a file.
    pub(crate) fn file_url(&self, repo: &str, commit: &str, path: &str) -> String {
        format!("{}/{repo}/resolve/{commit}/{}", self.endpoint, utf8_percent_encode(path, PATH))
    }

    /// Asks once for the description of a model.
    pub(crate) fn listing(&self, name: &ModelName) -> Result<Listing, Trouble> {
        let url = self.listing_url(name);
        let mut response = self.get(&url, 0, &name.repo)?;
        let json = response.body_mut().with_config().limit(LISTING_BYTES_MAX).read_to_vec();
        let json = json.map_err(|error| Trouble::passing(&error))?;
        let unusable = |error: crate::listing::ListingError| HubError::Listing { url, reason: error.to_string() };
        Listing::parse(&json).map_err(|error| Trouble::Lasting(unusable(error)))
    }

    /// Asks once for `url`, from this byte on. The answer has status 200 or 206, or says that the range is empty (416).
    pub(crate) fn get(&self, url: &str, from: u64, repo: &str) -> Result<Response<Body>, Trouble> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        // Compressed bytes could not be continued, nor counted.
        let response =
            request.header("accept-encoding", "identity").call().map_err(|error| Trouble::passing(&error))?;
        match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => Ok(response),
            _ => Err(self.refusal(url, &response, repo)),
        }
    }

    /// Says why the hub did not give what was asked for.
    fn refusal(&self, url: &str, response: &Response<Body>, repo: &str) -> Trouble {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let (endpoint, name) = (self.endpoint.clone(), repo.to_owned());
        let gated = header("x-error-code") == Some("GatedRepo");
        let status = response.status().as_u16();
        match status {
            401 | 403 if gated => Trouble::Lasting(HubError::Gated { endpoint, name }),
            401 | 403 if self.token.is_some() => Trouble::Lasting(HubError::Token { endpoint, name }),
            401 | 403 | 404 => Trouble::Lasting(HubError::NotFound { endpoint, name }),
            408 | 425 | 429 | 500 | 502..=504 => {
                let after = header("retry-after").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
                Trouble::Passing { reason: format!("status {status}"), status: Some(status), after }
            }
            _ => Trouble::Lasting(HubError::Status { url: url.to_owned(), status, tries: 1 }),
        }
    }

    /// Returns how long to wait after so many tries that failed.
    pub(crate) fn wait_after(&self, tries: u32, asked: Option<Duration>) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << tries.saturating_sub(1).min(16));
        doubled.max(asked.unwrap_or_default()).min(WAIT_MAX)
    }
}

impl Trouble {
    pub(crate) fn passing(error: &dyn std::error::Error) -> Self {
        let reason = match error.source() {
            Some(source) if !error.to_string().contains(&source.to_string()) => format!("{error}: {source}"),
            _ => error.to_string(),
        };
        Self::Passing { reason, status: None, after: None }
    }
}

/// Returns the settings of TLS, with the certificates that this host trusts.
fn tls() -> Result<TlsConfig, HubError> {
    let found = rustls_native_certs::load_native_certs();
    if let (true, Some(error)) = (found.certs.is_empty(), found.errors.first()) {
        return Err(HubError::Tls(error.to_string()));
    }
    let roots: Vec<_> = found.certs.iter().map(|cert| Certificate::from_der(cert.as_ref()).to_owned()).collect();
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}
