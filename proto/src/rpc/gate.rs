//! What may be read from the other end of a connection before it has proven itself.
//!
//! The bound is on the bytes of the socket, so it covers whatever HTTP/2 makes of them: headers, pings, messages.
//! What is beyond it waits in the system until the gate is opened. Nothing else has to know of it, but for one
//! thing: a few bytes may announce a message of 64 MiB, for which gRPC sets memory aside at once ([`Announced`]).

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};
use tonic::Status;

/// Bytes that are read from the other end before it has proven itself. The beginning of a session takes a few hundred.
pub(super) const UNPROVEN_BYTES_MAX: u32 = 4 << 10;
/// Bytes before each message of gRPC: a flag, and the length.
const HEAD_BYTES: usize = 5;

/// Whether the other end of a connection has proven itself. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_open: AtomicBool,
    reader: AtomicWaker,
}

impl Gate {
    /// Lets everything in from now on: the other end has proven itself.
    pub fn open(&self) {
        self.0.is_open.store(true, Ordering::Release);
        self.0.reader.wake();
    }

    fn is_open(&self) -> bool {
        self.0.is_open.load(Ordering::Acquire)
    }
}

/// A stream behind a gate.
pub(super) struct Gated<S> {
    stream: Take<S>,
    gate: Gate,
}

impl<S: AsyncRead> Gated<S> {
    pub(super) fn new(stream: S, gate: Gate) -> Self {
        Self { stream: stream.take(UNPROVEN_BYTES_MAX.into()), gate }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gated<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.stream.limit() == 0 {
            self.gate.0.reader.register(context.waker());
            if !self.gate.is_open() {
                return Poll::Pending;
            }
        }
        if self.gate.is_open() {
            self.stream.set_limit(u64::MAX);
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Gated<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.get_mut()).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.get_mut()).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.get_ref().is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(context)
    }
}

/// The body of a session. While the gate is closed, a message that announces more than may be read is an error.
pub(super) struct Announced<B> {
    body: B,
    gate: Gate,
    /// The head of the next message, as far as it is here.
    head: Vec<u8>,
    /// Bytes of the current message that are still to come.
    left: usize,
}

impl<B> Announced<B> {
    pub(super) fn new(body: B, gate: Gate) -> Self {
        Self { body, gate, head: Vec::with_capacity(HEAD_BYTES), left: 0 }
    }

    /// Follows the messages through `bytes`. Errors: one of them announces too much.
    fn check(&mut self, mut bytes: &[u8]) -> Result<(), Status> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let part = self.left.min(bytes.len());
                self.left -= part;
                bytes = &bytes[part..];
                continue;
            }
            let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
            self.head.extend_from_slice(head);
            bytes = rest;
            if let [_flag, length @ ..] = &self.head[..]
                && let Ok(length) = <[u8; 4]>::try_from(length)
            {
                let length = u32::from_be_bytes(length);
                if length > UNPROVEN_BYTES_MAX {
                    return Err(Status::resource_exhausted("the message is too long"));
                }
                self.left = length as usize;
                self.head.clear();
            }
        }
        Ok(())
    }
}

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> Body for Announced<B> {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?;
        if let Some(bytes) = frame.as_ref().and_then(Frame::data_ref)
            && !self.gate.is_open()
        {
            self.check(bytes)?;
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn no_more_is_read_than_may_be_until_the_gate_is_opened() {
        let (mut theirs, ours) = tokio::io::duplex(64 << 10);
        theirs.write_all(&[7; 10_000]).await.expect("there is room");
        let gate = Gate::default();
        let mut gated = Gated::new(ours, gate.clone());
        let mut read = vec![0; UNPROVEN_BYTES_MAX as usize];
        gated.read_exact(&mut read).await.expect("so much may be read");
        let mut rest = vec![0; 10_000 - read.len()];
        let mut reads = Box::pin(async move { gated.read_exact(&mut rest).await });
        assert!((&mut reads).now_or_never().is_none(), "the gate is closed");
        gate.open();
        reads.await.expect("the rest is there");
    }

    #[test]
    fn a_message_may_not_announce_more_than_may_be_read() {
        let message = |length: u32| [&[0][..], &length.to_be_bytes(), &vec![0; length as usize]].concat();
        let good = [message(0), message(3), message(UNPROVEN_BYTES_MAX), message(1)].concat();
        let long = (UNPROVEN_BYTES_MAX + 1).to_be_bytes();
        for piece in [1, 2, 3, 7, good.len()] {
            let mut body = Announced::new((), Gate::default());
            assert!(good.chunks(piece).all(|bytes| body.check(bytes).is_ok()), "in pieces of {piece}");
            let bad = [&[0][..], &long].concat();
            assert!(bad.chunks(piece).any(|bytes| body.check(bytes).is_err()), "in pieces of {piece}");
        }
    }
}
