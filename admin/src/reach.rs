//! Which callers may ask.

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, FORWARDED, HeaderName, ORIGIN, VIA};
use axum::http::{Extensions, HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use keys::{Key, Keys};
use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use tonic::Status;

/// What the content of every call of gRPC begins with.
const GRPC: &str = "application/grpc";
/// What browsers add to what a web page asks, and the page cannot leave out.
static OF_BROWSERS: [HeaderName; 2] = [ORIGIN, HeaderName::from_static("sec-fetch-site")];
/// What proxies add to what they pass on. The caller is behind them then.
static OF_PROXIES: [HeaderName; 4] =
    [FORWARDED, VIA, HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("x-real-ip")];

/// The end of a connection that asks. The server of the port puts it in every request.
#[derive(Clone, Copy, Debug)]
pub struct Caller(pub SocketAddr);

impl Caller {
    /// Returns whether it is of this host.
    pub fn is_here(&self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

/// What the TLS of the port knows of the end that asks. The server of the port puts it in every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certified {
    /// The port asks for no certificate.
    Unasked,
    /// It asks, and was shown none.
    No,
    /// It was shown one of an authority that the settings name for clients.
    Yes,
}

/// Which callers may ask what an operator may.
#[derive(Clone, Debug)]
pub enum Reach {
    /// Processes of this host.
    Loopback,
    /// Also others, if they prove that they are operators: if they show a key with that right.
    Beyond(Keys),
}

impl Reach {
    /// Checks a caller, and returns the key by which it may ask, if it needs one. Errors: it may not ask, and what
    /// would let it.
    pub(crate) fn check(
        &self,
        caller: Option<&Caller>,
        certified: Option<&Certified>,
        headers: &HeaderMap,
    ) -> Result<Option<Key>, Status> {
        let is_here = caller.is_some_and(Caller::is_here);
        let proxy = OF_PROXIES.iter().find(|name| headers.contains_key(*name));
        // The certificate of a proxy says nothing of the caller behind it.
        let is_operator = is_here || certified == Some(&Certified::Yes);
        match (self, is_operator, proxy) {
            (_, true, None) => Ok(None),
            (Reach::Beyond(keys), ..) => operator(keys, headers).map(Some),
            (Reach::Loopback, true, Some(header)) => Err(Status::permission_denied(format!(
                "this admin call came through a proxy (it has the header {header}), which shows no operator: ask the \
                 listener itself"
            ))),
            (Reach::Loopback, false, _) => Err(Status::permission_denied(
                "admin calls of other hosts need a certificate of an authority in tls.client_ca (--cert and --key-file): \
                 show one, or connect over loopback (for instance through ssh -L), or set admin.beyond_loopback = true, \
                 and admin.keys_file for those who may",
            )),
        }
    }

    /// Returns whether a caller may read what the process tells of itself. A port that asks for certificates tells it
    /// to this host and to operators.
    pub fn may_read(&self, caller: &Extensions, headers: &HeaderMap) -> bool {
        let (address, certified) = (caller.get(), caller.get());
        certified != Some(&Certified::No)
            || address.is_some_and(Caller::is_here)
            || self.check(address, certified, headers).is_ok()
    }

    /// Takes changes of what proves that a caller is an operator, until dropped.
    pub async fn follow(&self) -> Infallible {
        match self {
            Reach::Loopback => pending().await,
            Reach::Beyond(keys) => keys.follow().await,
        }
    }
}

/// Returns the key of an operator that a caller shows. Errors: what it lacks.
fn operator(keys: &Keys, headers: &HeaderMap) -> Result<Key, Status> {
    match keys.find(headers) {
        Ok(Some(key)) if key.is_operator() => Ok(key),
        Ok(key) => {
            let id = key.map(|key| key.id()).unwrap_or_default();
            let what = format!("the key {id} is not that of an operator: `baton keys add --admin` makes one that is");
            Err(Status::permission_denied(what))
        }
        Err(error) => Err(Status::unauthenticated(format!(
            "{error}; admin calls of other hosts need a key with the right admin: `baton admin --key`, or BATON_KEY"
        ))),
    }
}

/// Answers callers that may not ask. Puts the key of one that may by it into its request.
pub(crate) async fn guard(State(reach): State<Reach>, mut request: Request, next: Next) -> Response {
    if let Err(refusal) = check_headers(request.headers()) {
        return refusal.into_response();
    }
    let extensions = request.extensions();
    match reach.check(extensions.get(), extensions.get(), request.headers()) {
        Ok(key) => {
            if let Some(key) = key {
                request.extensions_mut().insert(key);
            }
            next.run(request).await
        }
        Err(status) => status.into_http(),
    }
}

/// Checks that a client of gRPC asks, and no web page that a browser of this host shows. Errors: the answer.
fn check_headers(headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    if OF_BROWSERS.iter().any(|name| headers.contains_key(name)) {
        return Err((StatusCode::FORBIDDEN, "web pages may not make admin calls\n"));
    }
    let content = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    if !content.starts_with(GRPC.as_bytes()) {
        return Err((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "admin calls are gRPC: use `baton admin` or a client of gRPC\n",
        ));
    }
    Ok(())
}
