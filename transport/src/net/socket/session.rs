//! TLS over a socket. What waits in it, in either direction, is bounded, and an idle one holds no memory for it.
//!
//! The end of a connection is not announced by `close_notify`: what agents say to each other has lengths, so
//! nothing is taken for whole that was cut off.

use super::{SendBuffer, is_tls, receive, send};
use crate::clock::now;
use crate::net::HELLO_BYTES_MAX;
use kv_memory::copy_racing_cached;
use rustls::Connection;
use std::io::{self, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Bytes that are encrypted at once, and wait then if the socket does not take them.
const SEND_BYTES: usize = 64 << 10;
/// Bytes that are read from the socket at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// No record has more bytes.
pub(super) const RECORD_BYTES_MAX: usize = (16 << 10) + 2048 + 5;
/// Records that are sent together.
const RECORDS_MAX: usize = 64;
/// Bytes that are received of an end before it has proven itself, encrypted or not: what it says then
/// ([`HELLO_BYTES_MAX`]), and before that a TLS handshake with a chain of certificates. So that many at most wait here.
const UNPROVEN_BYTES_MAX: usize = HELLO_BYTES_MAX + (16 << 10);
/// The label under which TLS exports what tells a connection from all others, and its bytes: RFC 9266.
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
const BINDING_BYTES: usize = 32;
/// Bytes by which a connection with TLS is told from one without.
const GREETING_BYTES: usize = 3;
/// Reads from the socket, one after the other, that bring records with nothing in them, or parts of one: a whole
/// one of 16 KiB comes in 31 of the smallest segments that there are.
const EMPTY_READS_MAX: usize = 128;

pub(super) struct Session {
    connection: Connection,
    /// What was read from the socket; `taken` bytes of it were looked at.
    input: Vec<u8>,
    taken: usize,
    /// Bytes that may be read from the socket yet. `None`: the other end has proven itself.
    allowance: Option<usize>,
    /// Bytes that are decrypted and nobody took.
    plaintext: usize,
    greeting: Greeting,
    closed: bool,
    /// What is wrong with what was read, behind what is decrypted.
    failed: Option<io::Error>,
}

/// What the other end said first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Nothing,
    Tls,
    /// Something else. It is told why it is refused in its own words, plain ones.
    Plain,
}

impl Session {
    pub(super) fn new(connection: Connection) -> Self {
        let (input, allowance, greeting) = (Vec::new(), Some(UNPROVEN_BYTES_MAX), Greeting::Nothing);
        Self { connection, input, taken: 0, allowance, plaintext: 0, greeting, closed: false, failed: None }
    }

    /// The other end has proven itself.
    pub(super) fn trust(&mut self) {
        self.allowance = None;
    }

    /// Returns what tells this connection from all others. Errors: the ends do not know each other yet.
    pub(super) fn binding(&self) -> io::Result<Vec<u8>> {
        let bytes = vec![0; BINDING_BYTES];
        self.connection
            .export_keying_material(bytes, BINDING_LABEL, None)
            .map_err(|error| TlsBreach::Refused(error).into())
    }

    /// Goes on until both ends know each other, over a socket that blocks; for `patience` at most, however slowly
    /// the other end speaks, or as much more as the socket blocks for.
    pub(super) fn shake_hands(&mut self, socket: &OwnedFd, patience: Duration) -> io::Result<()> {
        let begin = now();
        while self.connection.is_handshaking() || self.connection.wants_write() {
            if !self.flush(socket)? || now().duration_since(begin) > patience {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !self.connection.is_handshaking() || self.advance(socket)? {
                continue;
            }
            match self.read(socket) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn send(&mut self, socket: &OwnedFd, buffers: &[SendBuffer<'_>]) -> io::Result<usize> {
        if self.greeting == Greeting::Plain {
            return send(socket, buffers);
        }
        // What is encrypted goes first, so that no more than `SEND_BYTES` ever waits.
        if !self.flush(socket)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let len = buffers.iter().map(|buffer| buffer.len()).sum::<usize>().min(SEND_BYTES);
        // TLS must not look at bytes that may change while it does.
        let mut bytes = Vec::<u8>::with_capacity(len);
        for buffer in buffers {
            let part = buffer.len().min(len - bytes.len());
            // SAFETY: the buffer is readable for as long as this call, there is room for the part behind what is
            // there, and that many bytes are written then.
            unsafe {
                copy_racing_cached(buffer.as_ptr(), bytes.as_mut_ptr().add(bytes.len()), part);
                bytes.set_len(bytes.len() + part);
            }
        }
        let taken = self.connection.writer().write(&bytes)?;
        self.flush(socket)?;
        Ok(taken)
    }

    pub(super) fn flush(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Output(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(super) fn holds(&self) -> bool {
        self.plaintext > 0 || self.failed.is_some()
    }

    /// Takes what is held, or if that is nothing reads from the socket until there is something.
    pub(super) fn receive(&mut self, socket: &OwnedFd, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let (mut received, mut reads) = (0, 0);
        for buffer in buffers {
            let mut buffer = &mut **buffer;
            while !buffer.is_empty() {
                if self.plaintext > 0 {
                    let count = self.connection.reader().read(buffer)?;
                    (self.plaintext, received) = (self.plaintext - count, received + count);
                    buffer = &mut buffer[count..];
                } else if let Some(error) = self.failed.take_if(|_| received == 0) {
                    return Err(error);
                } else if self.failed.is_some() {
                    return Ok(received);
                } else if self.look(socket) {
                    // Some more of what was read was looked at.
                } else if received > 0 {
                    return Ok(received);
                } else if self.closed || self.read(socket)? == 0 {
                    return Ok(0);
                } else {
                    reads += 1;
                    if reads > EMPTY_READS_MAX {
                        return Err(TlsBreach::EmptyRecords.into());
                    }
                }
            }
        }
        // Nothing is left but what is held, and the beginning of a record.
        while !self.holds() && self.look(socket) {}
        Ok(received)
    }

    /// As [`Session::advance`]; what is wrong is kept until what was decrypted before is taken.
    fn look(&mut self, socket: &OwnedFd) -> bool {
        match self.advance(socket) {
            Ok(more) => more,
            Err(error) => {
                self.failed = Some(error);
                true
            }
        }
    }

    /// Looks at some more of what was read, and answers where TLS wants it. `false`: there is no more.
    fn advance(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        if self.greeting == Greeting::Nothing {
            if self.input.len() < GREETING_BYTES {
                return Ok(false);
            }
            self.greeting = if is_tls(&self.input) { Greeting::Tls } else { Greeting::Plain };
        }
        if self.greeting == Greeting::Plain {
            return Err(TlsBreach::Plain.into());
        }
        if self.taken == self.input.len() {
            (self.input, self.taken) = (Vec::new(), 0);
            return Ok(false);
        }
        self.taken += self.connection.read_tls(&mut &self.input[self.taken..])?;
        let state = self.connection.process_new_packets();
        // Answers of a handshake, or why there is an error. What the socket does not take goes with what is sent
        // next, or when it takes more.
        let flushed = self.flush(socket);
        let state = state.map_err(TlsBreach::Refused)?;
        self.plaintext = state.plaintext_bytes_to_read();
        flushed?;
        if state.peer_has_closed() {
            (self.closed, self.taken) = (true, self.input.len());
        }
        Ok(true)
    }

    /// Reads from the socket. Nothing that was read waits to be looked at, but for too few bytes of a greeting.
    fn read(&mut self, socket: &OwnedFd) -> io::Result<usize> {
        let room = self.allowance.map_or(RECEIVE_BYTES, |allowed| allowed.min(RECEIVE_BYTES));
        if room == 0 {
            return Err(TlsBreach::LongHandshake.into());
        }
        self.input.reserve_exact(room);
        let count = receive(socket, &mut self.input);
        self.allowance = self.allowance.map(|allowed| allowed.saturating_sub(*count.as_ref().unwrap_or(&0)));
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        count
    }
}

/// How the other end breaks the rules of TLS. As an error of a socket, its kind is `InvalidData`.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsBreach {
    /// It speaks without TLS.
    #[error("it speaks without TLS, which transport.tls_certificate demands here")]
    Plain,
    /// It sends records without content, one behind the other.
    #[error("it says nothing at length")]
    EmptyRecords,
    /// Its handshake is longer than that of any agent.
    #[error("it sent {UNPROVEN_BYTES_MAX} bytes of TLS and has not proven itself")]
    LongHandshake,
    /// Its certificate or what it says is refused.
    #[error(transparent)]
    Refused(#[from] rustls::Error),
}

impl From<TlsBreach> for io::Error {
    fn from(breach: TlsBreach) -> Self {
        Self::new(io::ErrorKind::InvalidData, breach)
    }
}

/// The socket, to write to what is encrypted.
struct Output<'a>(&'a OwnedFd);

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.0, &[SendBuffer::new(bytes)])
    }

    fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let mut outgoing = [SendBuffer::new(&[]); RECORDS_MAX];
        let count = buffers.len().min(RECORDS_MAX);
        outgoing.iter_mut().zip(buffers).for_each(|(outgoing, buffer)| *outgoing = SendBuffer::new(buffer));
        send(self.0, &outgoing[..count])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
