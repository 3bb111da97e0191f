//! Frames over a connected socket, to and fro, with file descriptors beside them where it is a Unix socket.
//!
//! A frame is its length (4 bytes, little endian, of what follows), its kind (1 byte) and its body.

use super::admission_error::AdmissionError;
use crate::agent::counts::{Counts, Refusal};
use crate::lanes::nvlink::{MapRegionError, NotFetched};
use crate::net::HELLO_BYTES_MAX;
use crate::net::socket::{SendBuffer, Socket, is_tls};
use crate::wire_error::WireError;
use kv_memory::MapError;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes before a frame's body.
const HEAD_BYTES: usize = 5;
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
    socket: Socket,
    unix: bool,
    /// Whether descriptors may come of which none is wanted.
    wary: bool,
    /// Bytes that may be received yet. `None`: the other end has proven itself, and says what it likes.
    allowance: Option<usize>,
    input: Vec<u8>,
    /// Descriptors that came and were not asked for yet.
    descriptors: VecDeque<OwnedFd>,
    output: VecDeque<Outgoing>,
    /// Bytes of the first outgoing frame that are sent.
    sent: usize,
    /// Bytes that wait to be sent.
    unsent: usize,
    /// Whether it is waited for until the socket takes more.
    waits_to_write: bool,
}

/// Why a channel is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    /// The other end closed it.
    #[error("the connection was closed")]
    Closed,
    /// The other end breaks the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A region of the other end is not what it claims to be.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A region of the other end is memory that this agent's device does not read.
    #[error(transparent)]
    NotFetched(#[from] NotFetched),
    /// The other end is not served.
    #[error(transparent)]
    NotAdmitted(#[from] AdmissionError),
    /// A lane refuses what the other end asks or answers.
    #[error("{1}")]
    Refused(Refusal, String),
    /// The other end breaks the rules of TLS, or its certificate is not accepted.
    #[error("{0}")]
    Tls(io::Error),
    /// The other end speaks TLS, and this agent does not.
    #[error("it speaks TLS, for which transport.tls_certificate is not set here")]
    TlsNotSet,
    /// The system says so; on a blocking socket, also that a time limit passed.
    #[error("the connection failed: {0}")]
    Failed(io::Error),
}

impl From<MapRegionError> for ChannelError {
    fn from(error: MapRegionError) -> Self {
        match error {
            MapRegionError::NotFetched(error) => Self::NotFetched(error),
            MapRegionError::Wire(error) => Self::Wire(error),
        }
    }
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Tls(error),
            _ => Self::Failed(error),
        }
    }
}

impl ChannelError {
    /// Returns what the other end did wrong, if it did.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Wire(_) | Self::Map(_) => Some(Refusal::Protocol),
            Self::NotAdmitted(error) => error.refusal(),
            Self::Refused(why, _) => Some(*why),
            Self::Tls(_) | Self::TlsNotSet => Some(Refusal::Encryption),
            Self::Closed | Self::NotFetched(_) | Self::Failed(_) => None,
        }
    }

    /// Counts it, where it is the other end's fault.
    pub(crate) fn count(&self, counts: &Counts) {
        if let Some(why) = self.refusal() {
            counts.refused(why);
        }
    }
}

impl Channel {
    pub(crate) fn new(socket: Socket, unix: bool) -> Self {
        Self {
            socket,
            unix,
            wary: false,
            allowance: None,
            input: Vec::new(),
            descriptors: VecDeque::new(),
            output: VecDeque::new(),
            sent: 0,
            unsent: 0,
            waits_to_write: false,
        }
    }

    /// The same, of a Unix socket whose other end may send descriptors that are not wanted: it is refused when it
    /// does, and none of them is taken. Closing the socket closes them, which may take as long as the other end
    /// likes.
    pub(crate) fn wary(self) -> Self {
        Self { wary: true, ..self }
    }

    /// The same, whose other end has not proven itself: no more than [`HELLO_BYTES_MAX`] are received of it until
    /// it is trusted.
    pub(crate) fn of_stranger(self) -> Self {
        Self { allowance: Some(HELLO_BYTES_MAX), ..self }
    }

    /// The other end has proven itself.
    pub(crate) fn trust(&mut self) {
        self.allowance = None;
        self.socket.trust();
    }

    /// Returns whether the other end has proven itself.
    pub(crate) fn is_trusted(&self) -> bool {
        self.allowance.is_none()
    }

    /// Returns what tells this channel from all others, for proofs: see [`Socket::binding`].
    pub(crate) fn binding(&self) -> io::Result<Vec<u8>> {
        self.socket.binding()
    }

    pub(crate) fn is_wary(&self) -> bool {
        self.wary
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn is_unix(&self) -> bool {
        self.unix
    }

    /// Returns the socket. `None`: the other end sent more than it was asked for.
    pub(crate) fn into_socket(self) -> Option<Socket> {
        (self.input.is_empty() && !self.socket.holds()).then_some(self.socket)
    }

    /// Reads once, and what the socket holds then. `false`: nothing is there now.
    pub(crate) fn fill(&mut self) -> Result<bool, ChannelError> {
        loop {
            let (before, room) =
                (self.input.len(), self.allowance.map_or(READ_BYTES, |allowed| allowed.min(READ_BYTES)));
            if room == 0 {
                return Err(WireError::Unproven(HELLO_BYTES_MAX).into());
            }
            self.input.resize(before + room, 0);
            let received = self.receive(before);
            let count = *received.as_ref().unwrap_or(&0);
            self.input.truncate(before + count);
            self.allowance = self.allowance.map(|allowed| allowed - count);
            match received {
                Ok(0) => return Err(ChannelError::Closed),
                // What is held comes without waiting.
                Ok(_) if self.socket.holds() => {}
                Ok(_) => return Ok(true),
                Err(ChannelError::Failed(error)) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
                Err(ChannelError::Failed(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn receive(&mut self, at: usize) -> Result<usize, ChannelError> {
        let mut buffer = &mut self.input[at..];
        if !self.unix {
            return Ok(self.socket.receive(&mut [IoSliceMut::new(buffer)])?);
        }
        if self.wary {
            // No more than was looked at.
            let len = look(&self.socket, buffer)?;
            buffer = &mut buffer[..len];
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let buffers = &mut [IoSliceMut::new(buffer)];
        let received = rustix::net::recvmsg(&self.socket, buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        let received = received.map_err(io::Error::from)?;
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
        let Some((head, rest)) = self.input.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if len == 0 || len - 1 > body_max {
            if is_tls(head) && !self.socket.has_tls() {
                return Err(ChannelError::TlsNotSet);
            }
            return Err(WireError::FrameTooLong { bytes: len, bytes_max: body_max }.into());
        }
        let (kind, len) = (head[4], len - 1);
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let body = body.to_vec();
        self.input.drain(..HEAD_BYTES + len);
        if self.input.is_empty() {
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
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
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
            match self.send(first) {
                Ok(count) => {
                    (self.sent, self.unsent) = (self.sent + count, self.unsent - count);
                    if self.output.front().is_some_and(|first| self.sent == first.bytes.len()) {
                        self.sent = 0;
                        self.output.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.socket.flush()?)
    }

    /// Sends what waits, now and whenever the socket takes more, for which `epoll` waits as for what comes: the
    /// event is `token`.
    pub(crate) fn flush_on(&mut self, epoll: &OwnedFd, token: u64) -> Result<(), ChannelError> {
        let done = self.flush()?;
        if done == self.waits_to_write {
            self.waits_to_write = !done;
            let flags = if done { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
            epoll::modify(epoll, &self.socket, EventData::new_u64(token), flags)
                .map_err(|error| ChannelError::Failed(error.into()))?;
        }
        Ok(())
    }

    /// Has `to` wait for what comes, in place of `from`: the event is `token`.
    pub(crate) fn change_watch(&mut self, from: &OwnedFd, to: &OwnedFd, token: u64) -> Result<(), ChannelError> {
        self.waits_to_write = false;
        epoll::delete(from, &self.socket)
            .and_then(|()| epoll::add(to, &self.socket, EventData::new_u64(token), EventFlags::IN))
            .map_err(|error| ChannelError::Failed(error.into()))
    }

    fn send(&self, first: &Outgoing) -> io::Result<usize> {
        let bytes = &first.bytes[self.sent..];
        // With the first byte only.
        let Some(descriptor) = first.descriptor.as_ref().filter(|_| self.sent == 0) else {
            return self.socket.send(&[SendBuffer::new(bytes)]);
        };
        let (mut space, descriptors) =
            ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [descriptor.as_fd()]);
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        Ok(rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
    }
}

/// Looks at what came over a Unix socket, and leaves it there: so many bytes. A descriptor among them is refused.
fn look(socket: &Socket, buffer: &mut [u8]) -> Result<usize, ChannelError> {
    let (buffers, mut none) = (&mut [IoSliceMut::new(buffer)], RecvAncillaryBuffer::default());
    let looked = rustix::net::recvmsg(socket, buffers, &mut none, RecvFlags::PEEK).map_err(io::Error::from)?;
    if looked.flags.contains(ReturnFlags::CTRUNC) {
        return Err(WireError::UnwantedDescriptors.into());
    }
    Ok(looked.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_that_are_not_wanted_are_refused_and_not_taken() {
        let (own, peer) = UnixStream::pair().expect("there are descriptors");
        own.set_nonblocking(true).expect("it is a socket");
        let (mut channel, mut peer) =
            (Channel::new(Socket::plain(own.into()), true).wary(), Channel::new(Socket::plain(peer.into()), true));
        peer.push(7, b"without", None);
        assert!(peer.flush().is_ok_and(|all| all) && channel.fill().is_ok_and(|more| more));
        assert!(channel.next(64).is_ok_and(|frame| frame.is_some_and(|frame| frame.body == b"without")));
        assert!(channel.fill().is_ok_and(|more| !more));

        let (brought, mut kept) = UnixStream::pair().expect("there are descriptors");
        peer.push(7, b"without", None);
        peer.push(7, b"with", Some(brought.into()));
        assert!(peer.flush().is_ok_and(|all| all));
        let refused = channel.fill();
        assert!(matches!(refused, Err(ChannelError::Wire(WireError::UnwantedDescriptors))), "{refused:?}");
        // It waits in the socket, and is closed with that.
        kept.set_nonblocking(true).expect("it is a socket");
        let is_open =
            |kept: &mut UnixStream| kept.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        assert!(is_open(&mut kept));
        drop(channel);
        assert!(!is_open(&mut kept));
    }
}
