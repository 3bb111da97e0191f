//! How a rail is tried before it is used: reads over its fresh connection, that nobody else uses yet. May block.

use super::plan::new_number;
use super::series::Series;
use super::wire::{Answer, Asked, PIECE_BYTES_MAX, RUN_HEAD};
use crate::desk::now;
use crate::memory::RegionId;
use crate::socket::Socket;
use std::io::{Read, Write};
use std::time::Duration;

/// Bytes of each read.
const READ_BYTES: u64 = 1 << 20;
/// Reads, of which the fastest counts: the first ones find out how much the network takes.
const READS: usize = 4;
/// No further read after so long.
const READS_MAX: Duration = Duration::from_millis(100);

/// Reads from a region of the owner, of `len` bytes, over a connection that was just made and blocks for a limited time. Bytes
/// a second. Errors, in words: the connection is of no use.
pub(crate) fn try_out(mut socket: &Socket, region: RegionId, len: u64) -> Result<f64, String> {
    let piece = len.min(PIECE_BYTES_MAX as u64) as usize;
    let count = (len.min(READ_BYTES) as usize / piece.max(1)).max(1);
    let len = piece * count;
    let explain = |error: std::io::Error| error.to_string();
    let mut scratch = vec![0; PIECE_BYTES_MAX];
    let (mut fastest, begin) = (f64::INFINITY, now());
    for _ in 0..READS {
        let read_at = now();
        socket.write_all(&request(region, piece, count)).map_err(explain)?;
        socket.flush().map_err(explain)?;
        let mut missing = len;
        while missing > 0 {
            let mut head = [0; RUN_HEAD];
            socket.read_exact(&mut head).map_err(explain)?;
            let run = match Answer::decode(&head) {
                Some(Answer::Run(head)) if head.len as usize <= missing => head.len as usize,
                Some(Answer::Refused { .. }) => return Err("the region to try it with is gone".to_owned()),
                _ => return Err("an answer that is none".to_owned()),
            };
            socket.read_exact(&mut scratch[..run]).map_err(explain)?;
            missing -= run;
        }
        fastest = now().duration_since(read_at).as_secs_f64().clamp(1e-9, fastest);
        if now().duration_since(begin) > READS_MAX {
            break;
        }
    }
    Ok(len as f64 / fastest)
}

/// Asks for so many pieces from the beginning of a region.
fn request(region: RegionId, piece: usize, count: usize) -> Vec<u8> {
    let transfer = new_number();
    let asked = Asked::Read { transfer, gate: 0, region: region.0, first: 0, series: 1, checksums: false, part: None };
    let series = Series { from: 0, stride: piece as u64, len: piece as u32, count: count as u32 };
    [&asked.encode()[..], &series.encode()].concat()
}
