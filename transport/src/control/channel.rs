//! Frames over a connected socket, to and fro, with file descriptors beside them where it is a Unix socket.
//!
//! A frame is its length (4 bytes, little endian, of what follows), its kind (1 byte) and its body.

use crate::counts::{Counts, Refusal};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes before a frame's body.
const HEAD: usize = 5;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// Descriptors that may come with the bytes of one read, and wait to be asked for.
const DESCRIPTORS_MAX: usize = 64;

/// A frame that was received.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) body: Vec<u8>,
}

struct Outgoing {
    bytes: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

/// A socket and what waits on both sides of it. Works on blocking and on non-blocking sockets.
pub(crate) struct Channel {
    socket: OwnedFd,
    unix: bool,
    input: Vec<u8>,
    /// Descriptors that came and were not asked for yet.
    descriptors: VecDeque<OwnedFd>,
    output: VecDeque<Outgoing>,
    /// Bytes of the first outgoing frame that are sent.
    sent: usize,
    /// Bytes that wait to be sent.
    unsent: usize,
}

/// Why a channel is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    /// The other end closed it.
    #[error("the connection was closed")]
    Closed,
    /// The other end does not keep to the protocol.
    #[error("{1}")]
    Refused(Refusal, String),
    /// The system says so; on a blocking socket, also that a time limit passed.
    #[error("the connection failed: {0}")]
    Failed(Errno),
}

impl ChannelError {
    /// Counts it, where it is the other end's fault.
    pub(crate) fn count(&self, counts: &Counts) {
        if let Self::Refused(why, _) = self {
            counts.refused(*why);
        }
    }
}

impl Channel {
    pub(crate) fn new(socket: OwnedFd, unix: bool) -> Self {
        Self {
            socket,
            unix,
            input: Vec::new(),
            descriptors: VecDeque::new(),
            output: VecDeque::new(),
            sent: 0,
            unsent: 0,
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn is_unix(&self) -> bool {
        self.unix
    }

    /// The socket. `None`: the other end sent more than it was asked for.
    pub(crate) fn into_socket(self) -> Option<OwnedFd> {
        self.input.is_empty().then_some(self.socket)
    }

    /// Reads once. `false`: nothing is there now.
    pub(crate) fn fill(&mut self) -> Result<bool, ChannelError> {
        let before = self.input.len();
        self.input.resize(before + READ_BYTES, 0);
        let received = self.receive(before);
        self.input.truncate(before + *received.as_ref().unwrap_or(&0));
        match received {
            Ok(0) => Err(ChannelError::Closed),
            Ok(_) => Ok(true),
            Err(Errno::INTR) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(ChannelError::Failed(error)),
        }
    }

    fn receive(&mut self, at: usize) -> Result<usize, Errno> {
        let buffer = &mut self.input[at..];
        if !self.unix {
            return rustix::net::recv(&self.socket, buffer, RecvFlags::empty()).map(|(count, _)| count);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let buffers = &mut [IoSliceMut::new(buffer)];
        let received = rustix::net::recvmsg(&self.socket, buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // What is beyond the limit is closed here; the frame that speaks of it will miss it.
                let room = DESCRIPTORS_MAX - self.descriptors.len().min(DESCRIPTORS_MAX);
                self.descriptors.extend(descriptors.take(room));
            }
        }
        Ok(received.bytes)
    }

    /// The next whole frame, whose body may have `body_max` bytes.
    pub(crate) fn next(&mut self, body_max: usize) -> Result<Option<Frame>, ChannelError> {
        let Some((head, rest)) = self.input.split_first_chunk::<HEAD>() else { return Ok(None) };
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if len == 0 || len - 1 > body_max {
            let reason = format!("a frame of {len} bytes where {body_max} are the most");
            return Err(ChannelError::Refused(Refusal::Protocol, reason));
        }
        let (kind, len) = (head[4], len - 1);
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let body = body.to_vec();
        self.input.drain(..HEAD + len);
        if self.input.is_empty() && self.input.capacity() > READ_BYTES {
            // An idle connection holds no memory.
            self.input = Vec::new();
        }
        Ok(Some(Frame { kind, body }))
    }

    /// The next descriptor that came.
    pub(crate) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// Queues a frame.
    pub(crate) fn push(&mut self, kind: u8, body: &[u8], descriptor: Option<OwnedFd>) {
        let mut bytes = Vec::with_capacity(HEAD + body.len());
        bytes.extend_from_slice(&(body.len() as u32 + 1).to_le_bytes());
        bytes.push(kind);
        bytes.extend_from_slice(body);
        self.unsent += bytes.len();
        self.output.push_back(Outgoing { bytes, descriptor });
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Sends what waits. `false`: the socket takes no more now.
    pub(crate) fn flush(&mut self) -> Result<bool, ChannelError> {
        while let Some(first) = self.output.front() {
            let bytes = [IoSlice::new(&first.bytes[self.sent..])];
            let descriptor = first.descriptor.as_ref().map(AsFd::as_fd);
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            // With the first byte only.
            let descriptors = descriptor.filter(|_| self.sent == 0);
            if let Some(descriptors) = &descriptors {
                ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptors)));
            }
            match rustix::net::sendmsg(&self.socket, &bytes, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    (self.sent, self.unsent) = (self.sent + count, self.unsent - count);
                    if self.sent == first.bytes.len() {
                        self.sent = 0;
                        self.output.pop_front();
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(ChannelError::Failed(error)),
            }
        }
        Ok(true)
    }
}
