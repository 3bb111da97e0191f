//! Which callers may ask.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use std::net::SocketAddr;
use tonic::Status;

/// The end of a connection that asks. The server of the port puts it in every request.
#[derive(Clone, Copy, Debug)]
pub struct Caller(pub SocketAddr);

/// Which callers may ask what an operator may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Processes of this host.
    Loopback,
    /// Whatever reaches the port.
    Everywhere,
}

impl Reach {
    /// Checks a caller. Errors: it may not ask, and what would let it.
    pub(crate) fn check(self, caller: Option<&Caller>) -> Result<(), Status> {
        let is_here = caller.is_some_and(|Caller(address)| address.ip().to_canonical().is_loopback());
        if self == Reach::Everywhere || is_here {
            return Ok(());
        }
        Err(Status::permission_denied(
            "admin calls are answered on this host alone: connect over loopback (for instance through ssh -L), or set \
             admin.beyond_loopback = true where the network is trusted",
        ))
    }
}

/// Answers callers that may not ask.
pub(crate) async fn guard(State(reach): State<Reach>, request: Request, next: Next) -> Response {
    match reach.check(request.extensions().get()) {
        Ok(()) => next.run(request).await,
        Err(status) => status.into_http(),
    }
}
