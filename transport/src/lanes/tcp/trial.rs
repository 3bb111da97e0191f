//! How a rail is tried before it is used: reads over its new connection, which no transfer uses yet. May block.

use super::series::Series;
use super::wire::{Answer, Asked, PIECE_BYTES_MAX, RUN_HEAD};
use crate::clock::now;
use crate::net::control::ConnectError;
use crate::net::socket::Socket;
use crate::regions::RegionId;
use crate::transfer::new_number;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// Bytes of each read.
const READ_BYTES: u64 = 1 << 20;
/// Reads, of which the fastest counts: the first ones find out how much the network takes.
const READS: usize = 4;
/// No further read after so long.
const READS_MAX: Duration = Duration::from_millis(100);

/// Reads from a region of the owner, of `len` bytes, over a connection that was just made and blocks for a limited
/// time, for `at_most` in all. Bytes a second. Errors: the connection is of no use.
pub(crate) fn try_out(mut socket: &Socket, region: RegionId, len: u64, at_most: Duration) -> Result<f64, ConnectError> {
    let piece = len.min(PIECE_BYTES_MAX as u64) as usize;
    let count = (len.min(READ_BYTES) as usize / piece.max(1)).max(1);
    let len = piece * count;
    let explain = ConnectError::System;
    let mut scratch = vec![0; PIECE_BYTES_MAX];
    let (mut fastest, begin) = (f64::INFINITY, now());
    for _ in 0..READS {
        let read_at = now();
        socket.write_all(&request(region, piece, count)).map_err(explain)?;
        socket.flush().map_err(explain)?;
        let mut missing = len;
        while missing > 0 {
            let mut head = [0; RUN_HEAD];
            fill(socket, &mut head, begin + at_most).map_err(explain)?;
            let run = match Answer::decode(&head) {
                Some(Answer::Run(head)) if head.len as usize <= missing => head.len as usize,
                Some(Answer::Refused { .. }) => return Err(ConnectError::RegionGone),
                _ => return Err(ConnectError::NoAnswer),
            };
            fill(socket, &mut scratch[..run], begin + at_most).map_err(explain)?;
            missing -= run;
        }
        fastest = now().duration_since(read_at).as_secs_f64().clamp(1e-9, fastest);
        if now().duration_since(begin) > READS_MAX {
            break;
        }
    }
    Ok(len as f64 / fastest)
}

/// Reads as many bytes, until then. A time limit of the socket's own holds for each read alone, however little
/// that brings.
fn fill(mut socket: &Socket, mut buffer: &mut [u8], until: Instant) -> io::Result<()> {
    while !buffer.is_empty() {
        if now() > until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it is too slow to be tried"));
        }
        match socket.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer = &mut buffer[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Asks for so many pieces from the beginning of a region.
fn request(region: RegionId, piece: usize, count: usize) -> Vec<u8> {
    let transfer = new_number();
    let asked = Asked::Read { transfer, gate: 0, region: region.0, first: 0, series: 1, checksums: false, part: None };
    let series = Series { from: 0, stride: piece as u64, len: piece as u32, count: count as u32 };
    [&asked.encode()[..], &series.encode()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_sends_byte_by_byte_is_not_tried_for_longer() {
        let (own, mut peer) = UnixStream::pair().expect("there are descriptors");
        own.set_read_timeout(Some(Duration::from_secs(5))).expect("it is a socket");
        let trickle = std::thread::spawn(move || {
            while peer.write_all(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let (socket, at_most) = (Socket::plain(own.into()), Duration::from_millis(50));
        let mut buffer = vec![0; 1 << 20];
        let outcome = fill(&socket, &mut buffer, now() + at_most);
        assert!(outcome.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut));
        drop(socket);
        trickle.join().expect("it ends with the socket");
    }
}
