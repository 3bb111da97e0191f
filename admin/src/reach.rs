//! Which callers may ask.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use std::net::SocketAddr;
use tonic::Status;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Processes of this host.
    Loopback,
    /// Whatever reaches the port.
    Everywhere,
}

impl Reach {
    /// Checks a caller. Errors: it may not ask, and what would let it.
    pub(crate) fn check(self, caller: Option<&Caller>, certified: Option<&Certified>) -> Result<(), Status> {
        if self == Reach::Everywhere || caller.is_some_and(Caller::is_here) || certified == Some(&Certified::Yes) {
            return Ok(());
        }
        Err(Status::permission_denied(
            "admin calls of other hosts need a certificate of an authority in tls.client_ca (--cert and --key-file): show \
             one, or connect over loopback (for instance through ssh -L), or set admin.beyond_loopback = true where the \
             network is trusted",
        ))
    }
}

/// Answers callers that may not ask.
pub(crate) async fn guard(State(reach): State<Reach>, request: Request, next: Next) -> Response {
    let extensions = request.extensions();
    match reach.check(extensions.get(), extensions.get()) {
        Ok(()) => next.run(request).await,
        Err(status) => status.into_http(),
    }
}
