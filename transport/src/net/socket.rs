//! The socket of a connection, as whoever speaks over it sees it: plain, where the kernel takes bytes from where
//! they are and puts them where they belong, or with TLS in between.
//!
//! Who may speak is not decided here: see `tls` and `control`.

mod session;

use crate::net::tls::Tls;
use rustix::net::RecvFlags;
use session::Session;
use std::io::{self, IoSliceMut};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes to be sent. Others may write them meanwhile, and what arrives of those is torn: so there is their
/// address, and no reference to them.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct SendBuffer<'a>(libc::iovec, PhantomData<&'a [u8]>);

impl<'a> SendBuffer<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self::of(bytes.as_ptr(), bytes.len())
    }

    /// Bytes that others may write.
    ///
    /// # Safety
    /// So many must be readable from there on for as long as the value lives.
    pub(crate) unsafe fn racing(from: *const u8, len: usize) -> Self {
        Self::of(from, len)
    }

    fn of(from: *const u8, len: usize) -> Self {
        Self(libc::iovec { iov_base: from.cast_mut().cast(), iov_len: len }, PhantomData)
    }

    fn as_ptr(&self) -> *const u8 {
        self.0.iov_base.cast_const().cast()
    }

    fn len(&self) -> usize {
        self.0.iov_len
    }
}

/// A connected socket, blocking or not, for whoever sends and whoever receives.
pub(crate) struct Socket {
    descriptor: OwnedFd,
    session: Option<Box<Mutex<Session>>>,
}

impl Socket {
    /// Without TLS.
    pub(crate) fn plain(descriptor: OwnedFd) -> Self {
        Self { descriptor, session: None }
    }

    /// The end that was connected to. With TLS, the first bytes come through once both ends know each other.
    pub(crate) fn accepted(descriptor: OwnedFd, tls: Option<&Tls>) -> io::Result<Self> {
        Self::new(descriptor, tls.map(Tls::accepting))
    }

    /// The end that connected. With TLS, it knows the other when this returns, after `patience` at most, or as
    /// much more as the socket blocks for.
    pub(crate) fn connected(descriptor: OwnedFd, tls: Option<&Tls>, patience: Duration) -> io::Result<Self> {
        let socket = Self::new(descriptor, tls.map(Tls::connecting))?;
        if let Some(mut session) = socket.session() {
            session.shake_hands(&socket.descriptor, patience)?;
        }
        Ok(socket)
    }

    fn new(descriptor: OwnedFd, tls: Option<Result<rustls::Connection, rustls::Error>>) -> io::Result<Self> {
        let session = tls.transpose().map_err(session::TlsBreach::Refused)?;
        Ok(Self { descriptor, session: session.map(|connection| Box::new(Mutex::new(Session::new(connection)))) })
    }

    /// `None`: there is no TLS.
    fn session(&self) -> Option<MutexGuard<'_, Session>> {
        self.session.as_ref().map(|session| session.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether bytes are encrypted.
    pub(crate) fn has_tls(&self) -> bool {
        self.session.is_some()
    }

    /// Sends what is taken now; at most a limited part of it, encrypted, is not on its way yet when this returns: see
    /// [`Socket::flush`]. Errors: `WouldBlock`; or the connection failed.
    pub(crate) fn send(&self, buffers: &[SendBuffer<'_>]) -> io::Result<usize> {
        match self.session() {
            Some(mut session) => session.send(&self.descriptor, buffers),
            None => send(&self.descriptor, buffers),
        }
    }

    /// Receives what is there, at least a byte; 0: the other end closed the connection. Errors: `WouldBlock`;
    /// `InvalidData`, where the other end breaks the rules of TLS; or the connection failed.
    pub(crate) fn receive(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self.session() {
            Some(mut session) => session.receive(&self.descriptor, buffers),
            None => Ok(rustix::io::readv(&self.descriptor, buffers)?),
        }
    }

    /// Sends what was taken and waits, encrypted. `false`: the system takes no more now.
    pub(crate) fn flush(&self) -> io::Result<bool> {
        self.session().map_or(Ok(true), |mut session| session.flush(&self.descriptor))
    }

    /// Returns whether something was received that nobody took. No event will tell of it, and taking it does not block.
    pub(crate) fn holds(&self) -> bool {
        self.session().is_some_and(|session| session.holds())
    }

    /// Bytes that may have been received and cannot be taken before more come.
    pub(crate) fn held_max(&self) -> usize {
        if self.has_tls() { session::RECORD_BYTES_MAX } else { 0 }
    }

    /// Returns what tells this connection from all others, alike at both ends: what TLS exports for it (RFC 9266), or
    /// nothing. Both ends know each other already where there is TLS. Errors: they do not.
    pub(crate) fn binding(&self) -> io::Result<Vec<u8>> {
        self.session().map_or(Ok(Vec::new()), |session| session.binding())
    }

    /// The other end has proven itself, so as much is received of it as it sends.
    pub(crate) fn trust(&self) {
        if let Some(mut session) = self.session() {
            session.trust();
        }
    }

    /// Ends the connection for both ends, whoever still holds it.
    pub(crate) fn shut_down(&self) {
        // An error says that it has ended before.
        let _ = rustix::net::shutdown(&self.descriptor, rustix::net::Shutdown::Both);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl io::Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(&mut [IoSliceMut::new(buffer)])
    }
}

impl io::Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.send(&[SendBuffer::new(buffer)])
    }

    fn flush(&mut self) -> io::Result<()> {
        if Socket::flush(self)? { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}

/// Returns whether a connection begins like one of TLS: a record of its handshake, or of an alert. What agents say
/// without TLS does not: its length, of four bytes, is never so large.
pub(crate) fn is_tls(first: &[u8]) -> bool {
    matches!(first, [0x15 | 0x16, 3, 1..=4, ..])
}

fn send(descriptor: &OwnedFd, buffers: &[SendBuffer<'_>]) -> io::Result<usize> {
    // SAFETY: zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = buffers.as_ptr().cast_mut().cast();
    message.msg_iovlen = buffers.len() as _;
    // SAFETY: the descriptor is open, each buffer is an `iovec`, and what it names is readable for as long as this
    // call.
    let sent = unsafe { libc::sendmsg(descriptor.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives into the room behind what `buffer` holds.
fn receive(descriptor: &OwnedFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let flags = RecvFlags::empty();
    Ok(rustix::net::recv(descriptor, rustix::buffer::spare_capacity(buffer), flags).map(|(count, _)| count)?)
}
