//! Which web pages may ask: those of the same port, under a name that no other server can have.
//!
//! A browser sends whatever a page tells it to, from the user's own host. `Origin` and `Sec-Fetch-Site` tell a page of
//! another origin. A page whose name was made to lead here after it was loaded (DNS rebinding) is of the same origin.
//! `Host` tells it: it still has that name.

use crate::reach::Reach;
use crate::refusal::refusal;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderName, Method, Request};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use keys::Key;
use std::net::IpAddr;
use std::sync::Arc;
use tonic::Status;

/// What browsers say of the page that asks: `same-origin`, `none` (the user did), or another site.
static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Which pages may ask, and which callers.
#[derive(Clone, Debug)]
pub struct Browsers {
    reach: Reach,
    /// Names of this process beside addresses and `localhost`.
    hosts: Arc<[String]>,
}

impl Browsers {
    /// Lets pages ask that came from here, to callers that `reach` lets ask, under an address, `localhost` or one of
    /// `hosts`, which are names without ports.
    pub fn new(reach: Reach, hosts: &[String]) -> Self {
        Self { reach, hosts: hosts.iter().map(|host| host.to_lowercase()).collect() }
    }

    /// Returns which callers may ask, by whatever way.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Lets only what may ask reach these paths.
    pub fn guard(&self, paths: Router) -> Router {
        paths.route_layer(from_fn_with_state(self.clone(), guard))
    }

    /// Lets browsers reach these paths under the right names. They are of pages, which tell nothing by themselves:
    /// links of others may lead to them, and a browser shows no key before it has them.
    pub fn guard_pages(&self, paths: Router) -> Router {
        paths.route_layer(from_fn_with_state(self.clone(), guard_page))
    }

    /// Checks a request, and returns the key by which it may ask, if it needs one. Errors: it may come from a page of
    /// others, or its caller may not ask.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<Option<Key>, Status> {
        self.check_host(host(request))?;
        check_origin(request)?;
        // A page of others may send this type only after it was allowed to, and nothing here ever allows it.
        let kind = text(request, &CONTENT_TYPE).and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        if !matches!(*request.method(), Method::GET | Method::HEAD) && !kind.eq_ignore_ascii_case("application/json") {
            return Err(Status::invalid_argument("content-type is not application/json"));
        }
        let extensions = request.extensions();
        self.reach.check(extensions.get(), extensions.get(), request.headers())
    }

    /// Checks that the name in `Host` is one that nothing else can have. Errors: a page of others could have it.
    fn check_host(&self, shown: &str) -> Result<(), Status> {
        let host = name_of(shown).to_lowercase();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let is_sure = address.parse::<IpAddr>().is_ok() || host == "localhost" || host.ends_with(".localhost");
        if is_sure || self.hosts.contains(&host) {
            return Ok(());
        }
        Err(Status::permission_denied(format!(
            "pages under the name {host:?} are not answered: use localhost or an address, or list the name in \
             admin.hosts"
        )))
    }
}

/// Checks that the page that asks, if one does, came from here. Errors: it is of another origin.
fn check_origin<B>(request: &Request<B>) -> Result<(), Status> {
    let other = || Status::permission_denied("pages of other origins are not answered");
    let headers = request.headers();
    if headers.get(&FETCH_SITE).is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(other());
    }
    if !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    // A proxy in front may speak TLS, so the scheme is not compared.
    let authority = text(request, &ORIGIN).and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    if authority == Some(host(request)) { Ok(()) } else { Err(other()) }
}

fn text<'a, B>(request: &'a Request<B>, name: &HeaderName) -> Option<&'a str> {
    request.headers().get(name)?.to_str().ok()
}

/// Returns the name and port under which a server is asked.
fn host<B>(request: &Request<B>) -> &str {
    text(request, &HOST).or_else(|| Some(request.uri().authority()?.as_str())).unwrap_or_default()
}

/// Returns a host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// Answers requests that may not ask. Puts the key of one that may by it into the request.
async fn guard(State(browsers): State<Browsers>, mut request: Request<Body>, next: Next) -> Response {
    match browsers.check(&request) {
        Ok(key) => {
            if let Some(key) = key {
                request.extensions_mut().insert(key);
            }
            next.run(request).await
        }
        Err(status) => refusal(&status),
    }
}

/// Answers requests for pages under names that others could have.
async fn guard_page(State(browsers): State<Browsers>, request: Request<Body>, next: Next) -> Response {
    match browsers.check_host(host(&request)) {
        Ok(()) => next.run(request).await,
        Err(status) => refusal(&status),
    }
}
