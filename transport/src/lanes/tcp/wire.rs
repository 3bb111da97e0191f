//! What a reader and an owner say to each other over a connection for bytes. All numbers are little endian.
//!
//! The reader asks: a request names a transfer, a gate and series of pieces of one region; a cancel takes back all
//! requests of a transfer. The owner answers with runs: a header, and behind it the bytes of successive pieces of
//! one request; or, where the region is registered no more, with a refusal. Requests are answered as their gates
//! open, so in any order; the pieces of a request are answered in theirs.
//!
//! Bytes are those of the region, or, where a request says so, its parts of KV encoded by themselves, one behind
//! the other ([`domain::KvPart`]): then all its pieces are whole parts, and what a run says of bytes is of encoded
//! ones.

use super::series::SERIES_BYTES;
use std::ops::Range;

/// Bytes of a request's head.
pub(crate) const REQUEST_HEAD: usize = 40;
/// Series of one request.
pub(crate) const REQUEST_SERIES_MAX: usize = 1024;
/// Pieces of all its series.
pub(crate) const REQUEST_PIECES_MAX: usize = 16 << 10;
/// Pieces that an owner remembers for one connection. A reader keeps below; a connection that asks for more is closed.
pub(crate) const PIECES_OPEN_MAX: usize = 64 << 10;
/// Bytes of a run's header.
pub(crate) const RUN_HEAD: usize = 32;
/// Bytes of a piece: larger ones are cut.
pub(crate) const PIECE_BYTES_MAX: usize = 256 << 10;
/// Bytes of a run, so that they are still in a cache when they are sent after being summed up, or summed up after being
/// received.
pub(crate) const RUN_BYTES_MAX: usize = 256 << 10;
/// Pieces of a run, of which every one is a part of a vectored read and write.
pub(crate) const RUN_PIECES_MAX: usize = 64;

const READ: u32 = 0x3152_5442;
const READ_WITH_CHECKSUMS: u32 = 0x3253_5442;
const READ_ENCODED: u32 = 0x3153_4542;
const READ_ENCODED_WITH_CHECKSUMS: u32 = 0x3253_4542;
const CANCEL: u32 = 0x3143_5442;
const RUN: u32 = 0x3144_5442;
const REFUSED: u32 = 0x3145_5442;

/// The head of a request, or a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Read {
        /// The transfer, as the reader numbers it.
        transfer: u64,
        /// What the owner's progress word must have reached.
        gate: u64,
        region: u32,
        /// Number of the first piece in the transfer.
        first: u32,
        /// Series that follow.
        series: u32,
        checksums: bool,
        /// What the pieces are made of, where they are to be encoded: its fingerprint.
        part: Option<u32>,
    },
    Cancel {
        transfer: u64,
    },
}

/// What an owner's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Bytes follow.
    Run(RunHead),
    /// The region that this transfer reads is registered no more.
    Refused { transfer: u64 },
}

/// The header of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunHead {
    pub(crate) transfer: u64,
    /// Number of the first piece in the transfer.
    pub(crate) first: u32,
    /// Its pieces.
    pub(crate) count: u32,
    /// Bytes that follow.
    pub(crate) len: u32,
    /// The checksums of the pieces, folded, or that of all bytes where they are encoded; 0 where none were asked for.
    pub(crate) sum: u64,
}

impl RunHead {
    /// Returns the numbers of its pieces.
    pub(crate) fn pieces(&self) -> Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl Asked {
    pub(crate) fn encode(self) -> [u8; REQUEST_HEAD] {
        let (kind, transfer, gate, words) = match self {
            Asked::Read { transfer, gate, region, first, series, checksums, part } => {
                let kind = match (part, checksums) {
                    (None, false) => READ,
                    (None, true) => READ_WITH_CHECKSUMS,
                    (Some(_), false) => READ_ENCODED,
                    (Some(_), true) => READ_ENCODED_WITH_CHECKSUMS,
                };
                (kind, transfer, gate, [region, first, series, part.unwrap_or(0)])
            }
            Asked::Cancel { transfer } => (CANCEL, transfer, 0, [0; 4]),
        };
        let mut bytes = [0; REQUEST_HEAD];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[8..16].copy_from_slice(&transfer.to_le_bytes());
        bytes[16..24].copy_from_slice(&gate.to_le_bytes());
        for (word, at) in words.into_iter().zip((24..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Gives an encoded request another transfer's number.
    pub(crate) fn renumber(frame: &mut [u8], transfer: u64) {
        frame[8..16].copy_from_slice(&transfer.to_le_bytes());
    }

    /// `None`: it is none.
    pub(crate) fn decode(bytes: &[u8; REQUEST_HEAD]) -> Option<Self> {
        let transfer = u64_at(bytes, 8);
        let kind = u32_at(bytes, 0);
        match kind {
            CANCEL => Some(Asked::Cancel { transfer }),
            READ | READ_WITH_CHECKSUMS | READ_ENCODED | READ_ENCODED_WITH_CHECKSUMS => {
                let (region, first, series) = (u32_at(bytes, 24), u32_at(bytes, 28), u32_at(bytes, 32));
                let sound = (1..=REQUEST_SERIES_MAX as u32).contains(&series)
                    && first.checked_add(REQUEST_PIECES_MAX as u32).is_some();
                let checksums = [READ_WITH_CHECKSUMS, READ_ENCODED_WITH_CHECKSUMS].contains(&kind);
                let encoded = [READ_ENCODED, READ_ENCODED_WITH_CHECKSUMS].contains(&kind);
                let (gate, part) = (u64_at(bytes, 16), encoded.then(|| u32_at(bytes, 36)));
                sound.then_some(Asked::Read { transfer, gate, region, first, series, checksums, part })
            }
            _ => None,
        }
    }

    /// Returns the bytes of the series that follow the head.
    pub(crate) fn body(self) -> usize {
        match self {
            Asked::Read { series, .. } => series as usize * SERIES_BYTES,
            Asked::Cancel { .. } => 0,
        }
    }
}

impl Answer {
    /// Returns which transfer it is for.
    pub(crate) fn transfer(self) -> u64 {
        match self {
            Answer::Run(head) => head.transfer,
            Answer::Refused { transfer } => transfer,
        }
    }

    pub(crate) fn encode(self) -> [u8; RUN_HEAD] {
        let (kind, transfer, [first, count, len], sum) = match self {
            Answer::Run(head) => (RUN, head.transfer, [head.first, head.count, head.len], head.sum),
            Answer::Refused { transfer } => (REFUSED, transfer, [0; 3], 0),
        };
        let mut bytes = [0; RUN_HEAD];
        for (part, at) in [kind, first, count, len].into_iter().zip((0..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&part.to_le_bytes());
        }
        bytes[16..24].copy_from_slice(&transfer.to_le_bytes());
        bytes[24..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None`: it is none, or a run that is longer than one may be.
    pub(crate) fn decode(bytes: &[u8; RUN_HEAD]) -> Option<Self> {
        let head = RunHead {
            transfer: u64_at(bytes, 16),
            first: u32_at(bytes, 4),
            count: u32_at(bytes, 8),
            len: u32_at(bytes, 12),
            sum: u64_at(bytes, 24),
        };
        let sound = (1..=RUN_PIECES_MAX as u32).contains(&head.count) && (1..=RUN_BYTES_MAX as u32).contains(&head.len);
        match u32_at(bytes, 0) {
            RUN if sound => Some(Answer::Run(head)),
            REFUSED => Some(Answer::Refused { transfer: head.transfer }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_said_is_understood(
            transfer: u64, gate: u64, region: u32, first in 0..1_u32 << 31, count in 1..=REQUEST_SERIES_MAX as u32,
            checksums: bool, part: Option<u32>, sum: u64, len in 1..=RUN_BYTES_MAX as u32,
        ) {
            let read = Asked::Read { transfer, gate, region, first, series: count, checksums, part };
            prop_assert_eq!(Asked::decode(&read.encode()), Some(read));
            let cancel = Asked::Cancel { transfer };
            prop_assert_eq!(Asked::decode(&cancel.encode()), Some(cancel));
            let run = Answer::Run(RunHead { transfer, first, count: count.min(RUN_PIECES_MAX as u32), len, sum });
            for answer in [run, Answer::Refused { transfer }] {
                prop_assert_eq!((Answer::decode(&answer.encode()), answer.transfer()), (Some(answer), transfer));
            }
        }

        #[test]
        fn too_much_is_refused(transfer: u64, over in 1..1000_u32, part: Option<u32>) {
            let (gate, region, first, checksums) = (0, 0, 0, false);
            for series in [0, REQUEST_SERIES_MAX as u32 + over] {
                let read = Asked::Read { transfer, gate, region, first, series, checksums, part };
                prop_assert_eq!(Asked::decode(&read.encode()), None);
            }
            let sound = RunHead { transfer, first: 0, count: 1, len: 1, sum: 0 };
            for head in [
                RunHead { count: 0, ..sound },
                RunHead { len: 0, ..sound },
                RunHead { count: RUN_PIECES_MAX as u32 + over, ..sound },
                RunHead { len: RUN_BYTES_MAX as u32 + over, ..sound },
            ] {
                prop_assert_eq!(Answer::decode(&Answer::Run(head).encode()), None);
            }
        }
    }
}
