//! The three calls of the API server that discovery makes.

use super::config::KubernetesConfig;
use super::error::{Asked, KubernetesError};
use super::lines::Lines;
use super::messages::{Labels, Line, Named, Page, Pod, Status};
use http::header::{ACCEPT, AUTHORIZATION, HeaderValue, USER_AGENT};
use http::{Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long the server has to take a connection, TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long the server has to begin an answer, and to go on with one that is not a watch.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Pods on a page of a list.
const PAGE_PODS: usize = 100;
/// Most pods of a list: the selector is wrong.
const PODS_MAX: usize = 65_536;
/// Largest page. A pod has some 10 KiB.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Largest event of a watch. Objects have at most 1.5 MiB in etcd, and more as JSON.
const EVENT_BYTES_MAX: usize = 4 << 20;
/// Largest answer that is an error, or the labels of a node.
const SMALL_BYTES_MAX: usize = 1 << 20;
/// Largest token.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// How long the server is asked to keep a watch. It says where it is before it ends one, so that the next one goes on.
const WATCH: Duration = Duration::from_secs(120);
/// How long nothing may come over a watch: the server ends it before.
const WATCH_SILENCE_MAX: Duration = Duration::from_secs(135);
/// A connection without traffic is asked this often whether it lives, so that one that broke silently is found.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// Unanswered probes after which a connection is over.
const PROBES: u32 = 3;
/// What a watch and lists need, so that they wait for each other nowhere.
const IDLE_CONNECTIONS_MAX: usize = 1;
/// Asks for the metadata of an object alone.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Connections to an API server.
#[derive(Debug)]
pub(super) struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, String>,
    server: String,
    token: Option<PathBuf>,
    /// Path and first part of the query of the pods.
    pods: String,
}

/// Pods, all of one version.
#[derive(Debug)]
pub(super) struct Pods {
    pub(super) version: String,
    pub(super) pods: Vec<Pod>,
}

/// Changes of pods.
#[derive(Debug)]
pub(super) struct Watch {
    lines: Lines,
    server: String,
}

/// What a watch delivers.
#[derive(Debug)]
pub(super) enum Event {
    /// A pod as it is now. `is_new`: it was not of the selection before.
    Put { pod: Pod, is_new: bool },
    /// A pod that is gone, or is not of the selection any more.
    Gone(Pod),
    /// All up to this version has been delivered.
    Bookmark(String),
}

impl Client {
    /// Makes a client, and connects when it is used. Errors: the file of the authorities is of no use.
    pub(super) fn new(config: &KubernetesConfig) -> Result<Self, KubernetesError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_MAX));
        tcp.set_keepalive(Some(PROBE_EVERY));
        tcp.set_keepalive_interval(Some(PROBE_EVERY));
        tcp.set_keepalive_retries(Some(PROBES));
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls(config)?);
        let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
        let mut http = legacy::Client::builder(TokioExecutor::new());
        let http = http.pool_max_idle_per_host(IDLE_CONNECTIONS_MAX).build(connector);
        let (namespace, selector) = (escaped(&config.namespace), escaped(&config.selector));
        let pods = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}");
        Ok(Self { http, server: config.server.clone(), token: config.token.clone(), pods })
    }

    /// Lists the pods of the selector, page by page.
    pub(super) async fn pods(&self) -> Result<Pods, KubernetesError> {
        let mut all = Vec::new();
        let mut rest = String::new();
        loop {
            let path = format!("{}&limit={PAGE_PODS}&continue={}", self.pods, escaped(&rest));
            let answer = self.get(Asked::ListPods, &path, "application/json", ANSWER_MAX).await?;
            let Page { metadata, items } = read(&self.server, &answer.whole(PAGE_BYTES_MAX).await?)?;
            all.extend(items);
            if all.len() > PODS_MAX {
                let reason = format!("more than {PODS_MAX} pods");
                return Err(KubernetesError::Strange { server: self.server.clone(), reason });
            }
            if metadata.rest.is_empty() {
                return Ok(Pods { version: metadata.resource_version, pods: all });
            }
            rest = metadata.rest;
        }
    }

    /// Watches the pods of the selector from a version on.
    pub(super) async fn watch(&self, version: &str) -> Result<Watch, KubernetesError> {
        let (version, seconds) = (escaped(version), WATCH.as_secs());
        let path = format!(
            "{}&watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}",
            self.pods
        );
        let lines = self.get(Asked::WatchPods, &path, "application/json", WATCH_SILENCE_MAX).await?;
        Ok(Watch { lines, server: self.server.clone() })
    }

    /// Returns the labels of a node. One that does not exist has none.
    pub(super) async fn node(&self, name: &str) -> Result<Labels, KubernetesError> {
        let path = format!("/api/v1/nodes/{}", escaped(name));
        match self.get(Asked::GetNode, &path, METADATA, ANSWER_MAX).await {
            Ok(answer) => Ok(read::<Named>(&self.server, &answer.whole(SMALL_BYTES_MAX).await?)?.metadata.labels),
            Err(KubernetesError::Missing { .. }) => Ok(Labels::new()),
            Err(error) => Err(error),
        }
    }

    /// Asks, and returns the body of an answer that is no error.
    async fn get(
        &self,
        what: Asked,
        path: &str,
        accept: &'static str,
        silence_max: Duration,
    ) -> Result<Lines, KubernetesError> {
        let mut request = Request::get(format!("{}{path}", self.server))
            .header(ACCEPT, accept)
            .header(USER_AGENT, concat!("baton/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &self.token {
            request = request.header(AUTHORIZATION, bearer(path)?);
        }
        let strange =
            |error: http::Error| KubernetesError::Strange { server: self.server.clone(), reason: error.to_string() };
        let request = request.body(String::new()).map_err(strange)?;
        let answered = timeout(ANSWER_MAX, self.http.request(request)).await;
        let answer = answered.map_err(|_| KubernetesError::silent(&self.server, ANSWER_MAX))?;
        let (head, body) = answer.map_err(|error| KubernetesError::no_answer(&self.server, &error))?.into_parts();
        if head.status == StatusCode::OK {
            return Ok(Lines::new(body, &self.server, silence_max));
        }
        let said = Lines::new(body, &self.server, ANSWER_MAX).whole(SMALL_BYTES_MAX).await?;
        // A proxy in between may say something else than a status.
        let message = serde_json::from_slice::<Status>(&said).map(|status| status.message).unwrap_or_default();
        Err(KubernetesError::refused(&self.server, what, head.status, message))
    }
}

impl Watch {
    /// Returns the next event, or none at the end. Nothing is lost if the future is dropped. Errors: the watch broke,
    /// or the server says that it is over.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, KubernetesError> {
        let Some(line) = self.lines.next(EVENT_BYTES_MAX).await? else { return Ok(None) };
        Event::read(&self.server, &line).map(Some)
    }
}

impl Event {
    /// Reads a line of a watch. Errors: it is no event, or the server says that the watch is over.
    pub(super) fn read(server: &str, line: &[u8]) -> Result<Self, KubernetesError> {
        Ok(match read(server, line)? {
            Line::Added(pod) => Event::Put { pod, is_new: true },
            Line::Modified(pod) => Event::Put { pod, is_new: false },
            Line::Deleted(pod) => Event::Gone(pod),
            Line::Bookmark(named) => Event::Bookmark(named.metadata.resource_version),
            Line::Error(Status { code, message }) => {
                let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                return Err(KubernetesError::refused(server, Asked::WatchPods, status, message));
            }
        })
    }
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Reads an answer. Errors: it is something else.
pub(super) fn read<T: DeserializeOwned>(server: &str, bytes: &[u8]) -> Result<T, KubernetesError> {
    serde_json::from_slice(bytes)
        .map_err(|error| KubernetesError::Strange { server: server.to_owned(), reason: error.to_string() })
}

/// Reads the token, as a header.
fn bearer(path: &Path) -> Result<HeaderValue, KubernetesError> {
    let wrong = |reason: String| KubernetesError::File {
        key: "discovery.kubernetes.token_file",
        path: path.to_owned(),
        reason,
    };
    let bytes = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if bytes > TOKEN_BYTES_MAX {
        return Err(wrong(format!("it has {bytes} bytes, a token has at most {TOKEN_BYTES_MAX}")));
    }
    let token = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    if token.trim().is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        .map_err(|_| wrong("it is no token: it has several lines or signs that no token has".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Returns whom the server's certificate may be from.
fn tls(config: &KubernetesConfig) -> Result<ClientConfig, KubernetesError> {
    let mut roots = RootCertStore::empty();
    match &config.authorities {
        Some(path) => {
            let wrong =
                |reason: String| KubernetesError::File { key: "discovery.kubernetes.ca", path: path.clone(), reason };
            let read = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
            for certificate in read {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(wrong("it has no certificate in PEM".to_owned()));
            }
        }
        None if config.server.starts_with("https://") => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let no_tls = |error: rustls::Error| KubernetesError::no_answer(&config.server, &io::Error::other(error));
    Ok(versions.map_err(no_tls)?.with_root_certificates(roots).with_no_client_auth())
}
