//! The owner's end of a connection for bytes: it is asked for pieces of its regions and streams them.

use super::series::{SERIES_BYTES, Series, Walk};
use super::wire::{
    Answer, Asked, PIECES_OPEN_MAX, REQUEST_HEAD, REQUEST_PIECES_MAX, RUN_BYTES_MAX, RUN_HEAD, RUN_PIECES_MAX, RunHead,
};
use crate::checksum::{checksum_racing, fold};
use crate::control::ChannelError;
use crate::counts::Refusal;
use crate::memory::{Memory, RegionId};
use crate::socket::Socket;
use crate::station::Station;
use domain::{Incarnation, WorkerId};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Bytes that are sent over one connection before it is another's turn.
const TURN_BYTES: usize = 1 << 20;
/// Bytes of requests that are read at once.
const READ_BYTES: usize = 32 << 10;

/// A connection over which a peer reads.
pub(super) struct OwnerConnection {
    socket: Socket,
    peer: WorkerId,
    incarnation: Incarnation,
    /// The beginning of a request that is not there as a whole.
    input: Vec<u8>,
    /// Requests whose gates are open, in the order in which they opened.
    ready: VecDeque<Reading>,
    /// Requests whose gates are closed.
    gated: Vec<Reading>,
    /// Transfers that read a region which is registered no more.
    refused: VecDeque<u64>,
    /// Pieces in the first two, and refusals.
    open_pieces: usize,
    sending: Sending,
    pub(super) waits_to_write: bool,
}

/// A request that is being answered.
struct Reading {
    transfer: u64,
    gate: u64,
    memory: Arc<dyn Memory>,
    /// Number of the piece that comes next.
    next: u32,
    /// What is to be sent. Inside of the memory.
    pieces: Walk,
    checksums: bool,
}

/// The run that is being sent.
#[derive(Default)]
struct Sending {
    head: [u8; RUN_HEAD],
    parts: Vec<Part>,
    /// Bytes in all, with the header.
    len: usize,
    sent: usize,
    /// Keeps the parts mapped.
    memory: Option<Arc<dyn Memory>>,
}

/// Bytes of a region. Nothing keeps their owner from writing them while they are summed up and sent, and nothing needs to: by
/// the rules of leases it does so only after the reader's lapsed, and the reader, who is told so when it releases, throws away
/// what it read. With a checksum, its read fails before that if the bytes changed between being summed up and being sent.
struct Part {
    from: *const u8,
    len: usize,
}

// SAFETY: it is an address; `Sending` holds what it points to.
unsafe impl Send for Part {}

/// How a turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// There is nothing to send.
    Idle,
    /// There is more, after others had their turns.
    More,
    /// The socket takes no more now.
    Blocked,
}

impl OwnerConnection {
    pub(super) fn new(socket: Socket, peer: WorkerId, incarnation: Incarnation) -> Self {
        Self {
            socket,
            peer,
            incarnation,
            input: Vec::new(),
            ready: VecDeque::new(),
            gated: Vec::new(),
            refused: VecDeque::new(),
            open_pieces: 0,
            sending: Sending::default(),
            waits_to_write: false,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether it is an earlier life of the peer.
    pub(super) fn is_before(&self, id: WorkerId, life: Incarnation) -> bool {
        self.peer == id && self.incarnation < life
    }

    /// Whether requests wait for their gates.
    pub(super) fn waits(&self) -> bool {
        !self.gated.is_empty()
    }

    /// The progress word is at `progress`. Whether there is something to send.
    pub(super) fn open(&mut self, progress: u64) -> bool {
        let mut at = 0;
        // In the order in which they were asked for.
        while at < self.gated.len() {
            if self.gated[at].gate <= progress {
                self.ready.push_back(self.gated.remove(at));
            } else {
                at += 1;
            }
        }
        self.has_work()
    }

    fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.refused.is_empty() || self.sending.sent < self.sending.len
    }

    /// Reads requests. Whether there is something to send. Errors: the connection is of no use any more.
    pub(super) fn receive(&mut self, station: &Station) -> Result<bool, ChannelError> {
        loop {
            let before = self.input.len();
            self.input.resize(before + READ_BYTES, 0);
            let received = self.socket.receive(&mut [IoSliceMut::new(&mut self.input[before..])]);
            self.input.truncate(before + *received.as_ref().unwrap_or(&0));
            match received {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(_) if self.socket.holds() => {}
                Err(error) if !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                    return Err(error.into());
                }
                Ok(_) | Err(_) => break,
            }
        }
        let refuse = |reason| ChannelError::Refused(Refusal::Request, reason);
        let input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        while let Some((head, after)) = rest.split_first_chunk::<REQUEST_HEAD>() {
            let asked = Asked::decode(head).ok_or_else(|| refuse("a request that is none".to_owned()))?;
            let Some((series, after)) = after.split_at_checked(asked.body()) else { break };
            self.take(station, asked, series).map_err(refuse)?;
            rest = after;
        }
        if !rest.is_empty() {
            self.input = rest.to_vec();
        }
        Ok(self.has_work())
    }

    fn take(&mut self, station: &Station, asked: Asked, series: &[u8]) -> Result<(), String> {
        let (transfer, gate, region, first, checksums) = match asked {
            Asked::Read { transfer, gate, region, first, checksums, .. } => (transfer, gate, region, first, checksums),
            Asked::Cancel { transfer } => {
                let wanted = |reading: &Reading| reading.transfer != transfer;
                self.ready.retain(wanted);
                self.gated.retain(wanted);
                self.refused.retain(|&refused| refused != transfer);
                let left: usize = self.ready.iter().chain(&self.gated).map(|reading| reading.pieces.left()).sum();
                self.open_pieces = left + self.refused.len();
                return Ok(());
            }
        };
        if station.is_withdrawn(RegionId(region)) {
            station.counts.refused(Refusal::Region);
            self.refused.push_back(transfer);
            return self.remember(1);
        }
        let memory = station.region(RegionId(region)).ok_or_else(|| format!("there is no region {region}"))?;
        let series: Vec<_> = series.as_chunks::<SERIES_BYTES>().0.iter().map(Series::decode).collect();
        let bytes = memory.len() as u64;
        if let Some(Series { from, stride, len, count }) = series.iter().find(|it| !it.fits(bytes, RUN_BYTES_MAX)) {
            return Err(format!(
                "{count} times {len} bytes from {from}, {stride} apart, are asked for of region {region}, which has {bytes}"
            ));
        }
        let pieces = Walk::new(series);
        if pieces.left() > REQUEST_PIECES_MAX {
            return Err(format!("{} pieces are asked for by one request", pieces.left()));
        }
        self.remember(pieces.left())?;
        let reading = Reading { transfer, gate, memory, next: first, pieces, checksums };
        if gate <= station.progress.get() {
            self.ready.push_back(reading);
        } else {
            self.gated.push(reading);
        }
        Ok(())
    }

    /// Errors, in words: it is too much.
    fn remember(&mut self, pieces: usize) -> Result<(), String> {
        self.open_pieces += pieces;
        if self.open_pieces > PIECES_OPEN_MAX {
            return Err(format!("more than {PIECES_OPEN_MAX} pieces are asked for at once"));
        }
        Ok(())
    }

    /// Sends for a while. Errors: the connection failed.
    pub(super) fn turn(&mut self) -> io::Result<Turn> {
        let mut left = TURN_BYTES;
        loop {
            if self.sending.sent == self.sending.len && !self.next_run() {
                return Ok(if self.socket.flush()? { Turn::Idle } else { Turn::Blocked });
            }
            if left == 0 {
                return Ok(Turn::More);
            }
            match self.sending.send(&self.socket) {
                Ok(count) => left = left.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Blocked),
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins the next run. `false`: nothing is left.
    fn next_run(&mut self) -> bool {
        let sending = &mut self.sending;
        sending.parts.clear();
        if let Some(transfer) = self.refused.pop_front() {
            self.open_pieces -= 1;
            (sending.head, sending.len, sending.sent) = (Answer::Refused { transfer }.encode(), RUN_HEAD, 0);
            return true;
        }
        let Some(reading) = self.ready.front_mut() else {
            // An idle connection keeps nothing mapped.
            (sending.memory, sending.len, sending.sent) = (None, 0, 0);
            return false;
        };
        let mut len = 0;
        while let Some((from, piece_len)) = reading.pieces.peek()
            && sending.parts.len() < RUN_PIECES_MAX
            && len + piece_len as usize <= RUN_BYTES_MAX
        {
            reading.pieces.advance();
            len += piece_len as usize;
            // SAFETY: `take` checked that the piece is inside the memory.
            let from = unsafe { reading.memory.as_ptr().add(from as usize) };
            sending.parts.push(Part { from, len: piece_len as usize });
        }
        let count = sending.parts.len();
        let sum = if reading.checksums { sum_up(&sending.parts) } else { 0 };
        let head =
            RunHead { transfer: reading.transfer, first: reading.next, count: count as u32, len: len as u32, sum };
        (sending.head, sending.len, sending.sent) = (Answer::Run(head).encode(), RUN_HEAD + len, 0);
        sending.memory = Some(reading.memory.clone());
        reading.next += count as u32;
        self.open_pieces -= count;
        if reading.pieces.left() == 0 {
            self.ready.pop_front();
        }
        true
    }
}

/// The checksum of a run. What it read is still in a cache when it is sent.
fn sum_up(parts: &[Part]) -> u64 {
    // SAFETY: the parts are inside their region, which is held.
    parts.iter().fold(0, |sum, part| fold(sum, unsafe { checksum_racing(part.from, part.len) }))
}

impl Sending {
    /// Sends what the socket takes now.
    fn send(&mut self, socket: &Socket) -> io::Result<usize> {
        let empty = IoSlice::new(&[]);
        let mut buffers = [empty; RUN_PIECES_MAX + 1];
        let (mut count, mut skip) = (0, self.sent);
        let head = Part { from: self.head.as_ptr(), len: RUN_HEAD };
        for part in std::iter::once(&head).chain(&self.parts) {
            if skip < part.len {
                // SAFETY: the part is readable memory that is held. Its owner may write it meanwhile, but only the kernel, or
                // the copy that is made to be encrypted, looks at it, byte by byte.
                let bytes = unsafe { std::slice::from_raw_parts(part.from.add(skip), part.len - skip) };
                buffers[count] = IoSlice::new(bytes);
                count += 1;
            }
            skip = skip.saturating_sub(part.len);
        }
        let sent = socket.send(&buffers[..count])?;
        self.sent += sent;
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AgentConfig;
    use crate::control::Control;
    use crate::hub::Hub;
    use crate::sealed::SealedMemory;
    use crate::station::StationParts;
    use crate::watch::Watched;
    use domain::session::PeerAddress;
    use domain::{ProgressWord, StepId};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const LEN: usize = 4096;

    fn station(word: &ProgressWord) -> Station {
        let station = Station::new(StationParts {
            config: AgentConfig::in_process(WorkerId(0), Incarnation(1), "owner".to_owned(), 1),
            address: PeerAddress::default(),
            hub: Hub::new(),
            progress: Watched::new(word.clone(), None).expect("nobody else watches it"),
            control: Control::new().expect("there are descriptors"),
            streams: None,
            verbs: Err("not of this test".to_owned()),
            sink: Box::new(|_| true),
        });
        station.register(Arc::new(SealedMemory::new("test", LEN).expect("memory")));
        station
    }

    fn connection() -> (OwnerConnection, UnixStream) {
        let (own, peer) = UnixStream::pair().expect("there are descriptors");
        own.set_nonblocking(true).expect("it is a socket");
        (OwnerConnection::new(Socket::plain(own.into()), WorkerId(1), Incarnation(1)), peer)
    }

    fn read(region: u32, gate: u64, pieces: &[(u64, u32)]) -> Vec<u8> {
        let series: Vec<_> = pieces.iter().map(|&(from, len)| Series { from, stride: 0, len, count: 1 }).collect();
        read_series(region, gate, &series)
    }

    fn read_series(region: u32, gate: u64, series: &[Series]) -> Vec<u8> {
        let count = series.len() as u32;
        let asked = Asked::Read { transfer: 5, gate, region, first: 0, series: count, checksums: false };
        let mut bytes = asked.encode().to_vec();
        series.iter().for_each(|series| bytes.extend_from_slice(&series.encode()));
        bytes
    }

    #[test]
    fn what_may_not_be_asked_is_refused() {
        let station = station(&ProgressWord::new());
        let refused = [
            (vec![0; REQUEST_HEAD], "a request that is none"),
            (vec![0xFF; REQUEST_HEAD], "a request that is none"),
            (read(1, 0, &[(0, 1)]), "there is no region 1"),
            (read(0, 0, &[(0, 0)]), "0 bytes from 0"),
            (read(0, 0, &[(0, 1), (LEN as u64, 1)]), "1 bytes from 4096"),
            (read(0, 0, &[(u64::MAX, 2)]), "2 bytes from 18446744073709551615"),
            (read(0, 0, &[(0, u32::MAX)]), "4294967295 bytes from 0"),
            (read_series(0, 0, &[Series { from: 6, stride: 4096, len: 1, count: 2 }]), "4096 apart"),
            (read_series(0, 0, &[Series { from: 6, stride: u64::MAX, len: 1, count: 9 }]), "9 times 1 bytes"),
            (read_series(0, 0, &[Series { from: 0, stride: 0, len: 1, count: 0 }]), "0 times 1 bytes"),
            (read_series(0, 0, &[Series { from: 0, stride: 0, len: 1, count: 16_385 }]), "16385 pieces"),
        ];
        for (bytes, expect) in refused {
            let (mut owner, mut peer) = connection();
            peer.write_all(&bytes).expect("it is open");
            let error = owner.receive(&station).expect_err(expect);
            assert!(
                matches!(&error, ChannelError::Refused(Refusal::Request, reason) if reason.contains(expect)),
                "{error}"
            );
        }
        // More than is remembered at once.
        let (mut owner, mut peer) = connection();
        let many = read(0, u64::MAX, &[(0, 1); 1024]);
        let mut asked = 0;
        let end = loop {
            peer.write_all(&many).expect("it is open");
            match owner.receive(&station) {
                Ok(_) => asked += 1,
                Err(end) => break end,
            }
            assert!(asked <= PIECES_OPEN_MAX / 1024 + 1);
        };
        assert!(matches!(&end, ChannelError::Refused(Refusal::Request, reason) if reason.contains("at once")), "{end}");
    }

    #[test]
    fn a_withdrawn_region_is_refused_read_by_read() {
        let station = station(&ProgressWord::new());
        let (mut owner, mut peer) = connection();
        assert!(station.deregister(RegionId(0)).is_ok());
        // One of the two is taken back before it is answered.
        for _ in 0..2 {
            peer.write_all(&read(0, 0, &[(0, 1)])).expect("it is open");
        }
        assert_eq!((owner.receive(&station).ok(), owner.open_pieces), (Some(true), 2));
        assert_eq!(owner.turn().ok(), Some(Turn::Idle));
        let mut answers = [0; 2 * RUN_HEAD];
        peer.read_exact(&mut answers).expect("it is answered");
        for answer in answers.as_chunks::<RUN_HEAD>().0 {
            assert_eq!(Answer::decode(answer), Some(Answer::Refused { transfer: 5 }));
        }
        peer.write_all(&read(0, 0, &[(0, 1)])).expect("it is open");
        peer.write_all(&Asked::Cancel { transfer: 5 }.encode()).expect("it is open");
        assert_eq!((owner.receive(&station).ok(), owner.open_pieces), (Some(false), 0));
        let refused = station.counts.now().refused.into_iter().find(|(why, _)| *why == Refusal::Region);
        assert_eq!(refused.map(|(_, count)| count), Some(3));
    }

    #[test]
    fn requests_come_in_parts_wait_for_their_gates_and_are_taken_back() {
        let word = ProgressWord::new();
        let station = station(&word);
        let (mut owner, mut peer) = connection();
        let bytes = read(0, ProgressWord::mark(StepId(1), 0), &[(0, 10), (100, 20)]);
        for byte in &bytes {
            peer.write_all(&[*byte]).expect("it is open");
            assert_eq!(owner.receive(&station).ok(), Some(false));
        }
        assert!(owner.waits() && !owner.open(word.get()));
        word.raise(StepId(1), 0);
        assert!(owner.open(word.get()) && !owner.waits());
        assert_eq!(owner.turn().ok(), Some(Turn::Idle));
        let mut answer = [0; RUN_HEAD + 30];
        peer.read_exact(&mut answer).expect("it is answered");
        let head = Answer::decode(answer[..RUN_HEAD].try_into().expect("so long"));
        assert_eq!(head, Some(Answer::Run(RunHead { transfer: 5, first: 0, count: 2, len: 30, sum: 0 })));

        peer.write_all(&read(0, u64::MAX, &[(0, 10)])).expect("it is open");
        peer.write_all(&Asked::Cancel { transfer: 5 }.encode()).expect("it is open");
        assert_eq!(owner.receive(&station).ok(), Some(false));
        assert_eq!((owner.waits(), owner.open_pieces), (false, 0));
        drop(peer);
        assert!(matches!(owner.receive(&station), Err(ChannelError::Closed)));
    }
}
