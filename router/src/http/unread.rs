//! What becomes of a body that a handler did not read.
//!
//! A client may send its whole request before it reads the answer. If the connection were closed while bytes of it
//! are underway, the client would get a reset in place of an answer that came early, such as 429. So the rest of
//! the body is read and thrown away, within bounds, while the answer is on its way.

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use futures_util::StreamExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes that are thrown away. A client that sends more may get a reset.
const DISCARD_BYTES_MAX: usize = 64 << 20;
/// Time for that.
const DISCARD_WAIT: Duration = Duration::from_secs(5);

/// A body that goes back to its lender if it is dropped before its end.
struct Lent {
    /// `None` once it went back.
    body: Option<Incoming>,
    lender: Option<oneshot::Sender<Incoming>>,
}

/// What a handler leaves of a body.
pub(super) struct Unread(oneshot::Receiver<Incoming>);

/// Lends the body of `request` to a handler.
pub(super) fn lend(request: Request<Incoming>) -> (Request<Body>, Unread) {
    let (lender, unread) = oneshot::channel();
    (request.map(|body| Body::new(Lent { body: Some(body), lender: Some(lender) })), Unread(unread))
}

impl Unread {
    /// Returns the rest of the body, if the handler has dropped it before its end.
    pub(super) fn rest(mut self) -> Option<Incoming> {
        self.0.try_recv().ok()
    }
}

/// Reads `body` to its end and throws it away, within bounds.
pub(super) async fn discard(body: Incoming) {
    let mut stream = Body::new(body).into_data_stream();
    let read = async {
        let mut left = DISCARD_BYTES_MAX;
        while let Some(Ok(part)) = stream.next().await {
            let Some(rest) = left.checked_sub(part.len()) else { return };
            left = rest;
        }
    };
    // A client that sends for longer had its answer long ago.
    let _ = tokio::time::timeout(DISCARD_WAIT, read).await;
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(body), Some(lender)) = (self.body.take(), self.lender.take())
            && !body.is_end_stream()
        {
            // Nobody waits for it where the connection is over.
            let _ = lender.send(body);
        }
    }
}
