//! The owner's end of a connection for bytes: it is asked for pieces of its regions and streams them.

#[cfg(test)]
mod tests;

use super::encoded::{Encoder, part_of};
use super::pieces::SendRange;
use super::series::{SERIES_BYTES, Series, Walk};
use super::wire::{
    Answer, Asked, PIECES_OPEN_MAX, REQUEST_HEAD, REQUEST_PIECES_MAX, RUN_BYTES_MAX, RUN_HEAD, RUN_PIECES_MAX, RunHead,
};
use crate::agent::counts::Refusal;
use crate::agent::shared::AgentShared;
use crate::net::control::ChannelError;
use crate::net::socket::{SendBuffer, Socket};
use crate::regions::RegionId;
use domain::{Incarnation, KvPart, WorkerId};
use kv_memory::{
    Copied, CopyError, CopyOrder, Frame, Memory, PoolRange, SumOf, Ticket, checksum, checksum_racing, fold,
};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
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
    /// The run that comes next, while its bytes come from a device.
    gathering: Option<Gathering>,
    /// Frames that nothing lies in.
    frames: Vec<Frame>,
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
    /// What its pieces are made of, where they are sent encoded.
    part: Option<KvPart>,
}

/// The run that is being sent.
#[derive(Default)]
struct Sending {
    head: [u8; RUN_HEAD],
    parts: Vec<SendRange>,
    /// Bytes in all, with the header.
    len: usize,
    sent: usize,
    /// Keeps the parts mapped, where they are a region's.
    memory: Option<Arc<dyn Memory>>,
    /// Has the bytes of a run that is sent encoded.
    encoder: Encoder,
    /// Has the bytes of a run that came from a device.
    frame: Option<Frame>,
}

/// A run out of memory of a device, on its way into the frame that it is sent from.
struct Gathering {
    /// Without what is known at its end: its bytes, and their checksum.
    head: RunHead,
    ticket: Ticket,
    /// Counts as in use.
    _memory: Arc<dyn Memory>,
}

/// Why what a reader asks for is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    #[error("a request that is none")]
    Malformed,
    #[error("there is no region {0}")]
    NoRegion(u32),
    #[error(
        "{} times {} bytes from {}, {} apart, are asked for of region {region}, which has {bytes}",
        series.count, series.len, series.from, series.stride
    )]
    Outside { series: Series, region: u32, bytes: u64 },
    #[error("region {0} is not made of the parts that are asked for encoded")]
    OtherParts(u32),
    #[error(
        "{} bytes from {}, {} apart, are asked for encoded of region {region}, whose parts have {bytes}",
        series.len, series.from, series.stride
    )]
    NotWhole { series: Series, region: u32, bytes: u64 },
    #[error("{0} pieces are asked for by one request")]
    TooManyPieces(usize),
    #[error("more than {PIECES_OPEN_MAX} pieces are asked for at once")]
    TooManyOpen,
}

/// How a turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// There is nothing to send.
    Idle,
    /// There is more, after others had their turns.
    More,
    /// The socket takes no more now.
    Blocked,
    /// What comes next is on its way from a device; the waker is called when it is there.
    Gathers,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// A run, or a refusal.
    Ready,
    /// See [`Turn::Gathers`].
    Gathers,
    Nothing,
}

/// What a copier calls, on a thread of its own.
pub(super) type Waker = Arc<dyn Fn() + Send + Sync>;

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
            gathering: None,
            frames: Vec::new(),
            waits_to_write: false,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether it is an earlier life of the peer.
    pub(super) fn is_before(&self, id: WorkerId, life: Incarnation) -> bool {
        self.peer == id && self.incarnation < life
    }

    /// Returns whether requests wait for their gates.
    pub(super) fn waits(&self) -> bool {
        !self.gated.is_empty()
    }

    /// The progress word is at `progress`. Whether there is something to send.
    pub(super) fn open(&mut self, progress: u64) -> bool {
        // In the order in which they were asked for.
        self.ready.extend(self.gated.extract_if(.., |request| request.gate <= progress));
        self.has_work()
    }

    fn has_work(&self) -> bool {
        !self.ready.is_empty()
            || !self.refused.is_empty()
            || self.gathering.is_some()
            || self.sending.sent < self.sending.len
    }

    /// Returns whether what comes next is on its way from a device.
    pub(super) fn gathers(&self) -> bool {
        self.gathering.as_ref().is_some_and(|gathering| !gathering.ticket.is_over())
    }

    /// Reads requests. Whether there is something to send. Errors: the connection is of no use any more.
    pub(super) fn receive(&mut self, agent: &AgentShared) -> Result<bool, ChannelError> {
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
        let refuse = |error: RequestError| ChannelError::Refused(Refusal::Request, error.to_string());
        let input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        while let Some((head, after)) = rest.split_first_chunk::<REQUEST_HEAD>() {
            let asked = Asked::decode(head).ok_or(RequestError::Malformed).map_err(refuse)?;
            let Some((series, after)) = after.split_at_checked(asked.body()) else { break };
            self.take(agent, asked, series).map_err(refuse)?;
            rest = after;
        }
        if !rest.is_empty() {
            self.input = rest.to_vec();
        }
        Ok(self.has_work())
    }

    fn take(&mut self, agent: &AgentShared, asked: Asked, series: &[u8]) -> Result<(), RequestError> {
        let (transfer, gate, region, first, checksums, part) = match asked {
            Asked::Read { transfer, gate, region, first, checksums, part, .. } => {
                (transfer, gate, region, first, checksums, part)
            }
            Asked::Cancel { transfer } => {
                self.forget(transfer);
                return Ok(());
            }
        };
        if agent.is_withdrawn(RegionId(region)) {
            agent.counts.refused(Refusal::Region);
            self.refused.push_back(transfer);
            return self.remember(1);
        }
        let memory = agent.region(RegionId(region)).ok_or(RequestError::NoRegion(region))?;
        let series: Vec<_> = series.as_chunks::<SERIES_BYTES>().0.iter().map(Series::decode).collect();
        let bytes = memory.len() as u64;
        if let Some(&series) = series.iter().find(|it| !it.fits(bytes, RUN_BYTES_MAX)) {
            return Err(RequestError::Outside { series, region, bytes });
        }
        let part = match part {
            Some(fingerprint) => Some(encodable(region, &*memory, fingerprint, &series)?),
            None => None,
        };
        let pieces = Walk::new(series);
        if pieces.left() > REQUEST_PIECES_MAX {
            return Err(RequestError::TooManyPieces(pieces.left()));
        }
        self.remember(pieces.left())?;
        let reading = Reading { transfer, gate, memory, next: first, pieces, checksums, part };
        if gate <= agent.progress.get() {
            self.ready.push_back(reading);
        } else {
            self.gated.push(reading);
        }
        Ok(())
    }

    /// Nothing of a transfer is sent any more, but for the run that is sent or comes next.
    fn forget(&mut self, transfer: u64) {
        let wanted = |reading: &Reading| reading.transfer != transfer;
        self.ready.retain(wanted);
        self.gated.retain(wanted);
        self.refused.retain(|&refused| refused != transfer);
        let left: usize = self.ready.iter().chain(&self.gated).map(|reading| reading.pieces.left()).sum();
        self.open_pieces = left + self.refused.len();
    }

    /// Counts pieces that are to be answered. Errors: they are too many.
    fn remember(&mut self, pieces: usize) -> Result<(), RequestError> {
        self.open_pieces += pieces;
        if self.open_pieces > PIECES_OPEN_MAX {
            return Err(RequestError::TooManyOpen);
        }
        Ok(())
    }

    /// Sends for a while. `waker` is called when bytes from a device are there. Errors: the connection failed.
    pub(super) fn turn(&mut self, waker: &Waker) -> io::Result<Turn> {
        let mut left = TURN_BYTES;
        loop {
            let next = if self.sending.sent == self.sending.len { self.next_run(waker) } else { Next::Ready };
            if next != Next::Ready {
                let after = if next == Next::Gathers { Turn::Gathers } else { Turn::Idle };
                return Ok(if self.socket.flush()? { after } else { Turn::Blocked });
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

    /// Begins the next run.
    fn next_run(&mut self, waker: &Waker) -> Next {
        self.sending.parts.clear();
        self.frames.extend(self.sending.frame.take());
        self.gather(waker);
        if !self.gathers()
            && let Some(gathering) = self.gathering.take()
        {
            self.gathered(gathering);
            self.gather(waker);
            if self.sending.sent < self.sending.len {
                return Next::Ready;
            }
        }
        if let Some(transfer) = self.refused.pop_front() {
            self.open_pieces -= 1;
            self.sending.send_next(Answer::Refused { transfer }, 0);
            return Next::Ready;
        }
        if self.gathering.is_some() {
            return Next::Gathers;
        }
        self.next_host_run()
    }

    /// Begins the next run out of host memory.
    fn next_host_run(&mut self) -> Next {
        let sending = &mut self.sending;
        let host = |reading: &'_ Reading| reading.memory.place().host();
        let front = self.ready.front_mut().and_then(|reading| Some((host(reading)?, reading)));
        let Some((first, reading)) = front else {
            // An idle connection keeps nothing mapped.
            (sending.memory, sending.len, sending.sent) = (None, 0, 0);
            return Next::Nothing;
        };
        let mut len = reading.take_run(|from, len| {
            // SAFETY: `take` checked that the piece is inside the memory.
            let from = unsafe { first.add(from as usize) };
            sending.parts.push(SendRange { from, len });
        });
        let count = sending.parts.len();
        let sum = match reading.part {
            Some(part) => {
                // SAFETY: `take` checked that the pieces are inside the memory, and whole parts of it.
                let encoded = unsafe { sending.encoder.encode(part, &sending.parts) };
                len = encoded.len();
                let run = SendRange { from: encoded.as_ptr(), len };
                sending.parts.clear();
                sending.parts.push(run);
                // What is sent is no region's any more.
                sending.memory = None;
                if reading.checksums { checksum(encoded) } else { 0 }
            }
            None => {
                sending.memory = Some(reading.memory.clone());
                if reading.checksums { sum_up(&sending.parts) } else { 0 }
            }
        };
        let head =
            RunHead { transfer: reading.transfer, first: reading.next, count: count as u32, len: len as u32, sum };
        sending.send_next(Answer::Run(head), len);
        self.taken(count);
        Next::Ready
    }

    /// So many pieces of the first request that is ready are sent, or on their way into a frame.
    fn taken(&mut self, count: usize) {
        self.open_pieces -= count;
        if let Some(reading) = self.ready.front_mut() {
            reading.next += count as u32;
            if reading.pieces.left() == 0 {
                self.ready.pop_front();
            }
        }
    }

    /// Has the bytes of the next run brought from a device, if they are there and no others are on their way.
    fn gather(&mut self, waker: &Waker) {
        let Some(reading) = self.ready.front_mut().filter(|_| self.gathering.is_none()) else { return };
        let memory = reading.memory.clone();
        let Some(device) = memory.place().device() else { return };
        let frame = self.frames.pop().map_or_else(|| device.copier.frame(RUN_BYTES_MAX), Ok);
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                let transfer = reading.transfer;
                return self.lose(transfer, &error.into());
            }
        };
        let mut ranges = Vec::new();
        reading.take_run(|at, len| ranges.push(PoolRange { at, len }));
        let (count, part) = (ranges.len(), reading.part);
        let sum = match (reading.checksums, part) {
            (false, _) => SumOf::Nothing,
            (true, Some(_)) => SumOf::Frame,
            (true, None) => SumOf::Ranges,
        };
        let head = RunHead { transfer: reading.transfer, first: reading.next, count: count as u32, len: 0, sum: 0 };
        let ticket = device.copier.gather(CopyOrder { frame, ranges, part, sum, waker: Some(waker.clone()) });
        self.gathering = Some(Gathering { head, ticket, _memory: memory });
        self.taken(count);
    }

    /// What was gathered is sent next, or its transfer is refused.
    fn gathered(&mut self, gathering: Gathering) {
        let Gathering { head, ticket, .. } = gathering;
        match ticket.wait() {
            Ok(Copied { frame, bytes, sum }) => {
                let sending = &mut self.sending;
                sending.parts.push(SendRange { from: frame.as_ptr(), len: bytes });
                sending.send_next(Answer::Run(RunHead { len: bytes as u32, sum, ..head }), bytes);
                // What is sent is no region's.
                (sending.frame, sending.memory) = (Some(frame), None);
            }
            Err(error) => self.lose(head.transfer, &error),
        }
    }

    /// A copier fails: the transfer that needs it is refused.
    fn lose(&mut self, transfer: u64, error: &CopyError) {
        tracing::error!(reader = %self.peer, %error, "bytes that are asked for do not leave memory of a device");
        self.forget(transfer);
        self.open_pieces += 1;
        self.refused.push_back(transfer);
    }
}

impl Reading {
    /// Takes the pieces of the next run; `each` gets the place and the bytes of each. Returns the bytes of all.
    fn take_run(&mut self, mut each: impl FnMut(u64, usize)) -> usize {
        let (mut count, mut len) = (0, 0);
        while let Some((from, piece_len)) = self.pieces.peek()
            && count < RUN_PIECES_MAX
            && len + piece_len as usize <= RUN_BYTES_MAX
        {
            self.pieces.advance();
            (count, len) = (count + 1, len + piece_len as usize);
            each(from, piece_len as usize);
        }
        len
    }
}

/// Returns what the pieces of a request that is to be answered encoded are made of. Errors: the region is not made of
/// what was asked for, or they are not whole parts.
fn encodable(region: u32, memory: &dyn Memory, fingerprint: u32, series: &[Series]) -> Result<KvPart, RequestError> {
    let part = part_of(memory).filter(|part| part.fingerprint() == fingerprint);
    let part = part.ok_or(RequestError::OtherParts(region))?;
    let bytes = part.bytes() as u64;
    let is_whole = |it: &&Series| [it.from, it.stride, it.len.into()].iter().all(|number| number.is_multiple_of(bytes));
    match series.iter().find(|it| !is_whole(it)) {
        Some(&series) => Err(RequestError::NotWhole { series, region, bytes }),
        None => Ok(part),
    }
}

/// The checksum of a run. What it read is still in a cache when it is sent.
fn sum_up(parts: &[SendRange]) -> u64 {
    // SAFETY: the parts are inside their region, which is held.
    parts.iter().fold(0, |sum, part| fold(sum, unsafe { checksum_racing(part.from, part.len) }))
}

impl Sending {
    /// An answer, with so many bytes that its parts name, is sent next.
    fn send_next(&mut self, answer: Answer, bytes: usize) {
        (self.head, self.len, self.sent) = (answer.encode(), RUN_HEAD + bytes, 0);
    }

    /// Sends what the socket takes now.
    fn send(&mut self, socket: &Socket) -> io::Result<usize> {
        let mut buffers = [SendBuffer::new(&[]); RUN_PIECES_MAX + 1];
        let (mut count, mut skip) = (0, self.sent);
        let head = SendRange { from: self.head.as_ptr(), len: RUN_HEAD };
        for part in std::iter::once(&head).chain(&self.parts) {
            if skip < part.len {
                // SAFETY: the part is readable memory that this value holds, and the buffers do not outlive this call.
                buffers[count] = unsafe { SendBuffer::racing(part.from.add(skip), part.len - skip) };
                count += 1;
            }
            skip = skip.saturating_sub(part.len);
        }
        let sent = socket.send(&buffers[..count])?;
        self.sent += sent;
        Ok(sent)
    }
}
