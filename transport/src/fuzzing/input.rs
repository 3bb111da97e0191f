//! What fuzzers of every machine feed it by: inputs that say how they are fed, sockets, and messages of a good peer.

use crate::agent::known_peer::KnownPeer;
use domain::session::PeerAddress;
use domain::{Incarnation, WorkerId};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

/// What the first byte of an input says, where that is fed to a machine piece by piece.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) checksums: bool,
    pub(crate) encoded: bool,
    /// Bytes that come at once.
    pub(crate) piece: usize,
}

impl How {
    /// What seeds begin with; all of it comes in two or three pieces.
    pub(crate) const PLAIN: Self = Self { checksums: false, encoded: false, piece: 97 };
    pub(crate) const CHECKED: Self = Self { checksums: true, ..Self::PLAIN };
    pub(crate) const ENCODED: Self = Self { encoded: true, ..Self::PLAIN };

    /// And the rest. `None`: there is none.
    pub(crate) fn of(input: &[u8]) -> Option<(Self, &[u8])> {
        let (&first, rest) = input.split_first()?;
        let piece = 1 + usize::from(first >> 2) * 16;
        Some((Self { checksums: first & 1 != 0, encoded: first & 2 != 0, piece }, rest))
    }

    /// An input that says so.
    pub(crate) fn before(self, rest: &[u8]) -> Vec<u8> {
        let first = u8::from(self.checksums) | u8::from(self.encoded) << 1 | (((self.piece - 1) / 16) as u8) << 2;
        [&[first], rest].concat()
    }
}

/// Both ends of a connection. Neither blocks.
pub(crate) fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair")
}

/// Says what a socket takes at once, since little is said before it is heard.
pub(crate) fn said(socket: &OwnedFd, bytes: &[u8]) {
    let sent = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()), "a socket takes what little it gets");
}

/// Returns a peer, as a good one introduces itself.
pub(crate) fn known() -> KnownPeer {
    let address = PeerAddress { process: 7, unix: "\0baton".to_owned(), tcp: "host:1".to_owned() };
    KnownPeer { id: WorkerId(1), incarnation: Incarnation(2), name: "one".to_owned(), address }
}

/// A frame as it is sent.
pub(crate) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 1).to_le_bytes(), [kind].as_slice(), body].concat()
}
