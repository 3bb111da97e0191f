//! The listening half of a reader's connection for bytes: the answers land where their transfer wants them.

#[cfg(test)]
mod tests;

use super::asker::Asker;
use super::encoded::Arrived;
use super::owner::Waker;
use super::plan::StreamPlan;
use super::scatters::{Scattered, Scatters};
use super::wire::{Answer, RUN_HEAD, RUN_PIECES_MAX, RunHead};
use crate::agent::counts::Refusal;
use crate::agent::event::TransferError;
use crate::agent::link::{Link, Way};
use crate::clock::now;
use crate::lanes::lane_queue::Open;
use crate::net::control::ChannelError;
use crate::net::socket::Socket;
use crate::transfer::prepared::PlanGuard;
use crate::transfer::timeline::Moment;
use domain::KvPart;
use kv_memory::{CopyError, Frame, Memory, checksum, fold};
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that are read over one connection before it is another's turn.
const TURN_BYTES: usize = 1 << 20;
/// While a run arrives, a reader that sleeps is woken for no fewer bytes than these or what is left of it: a
/// wake-up for each segment costs both ends more than the bytes do.
const WAKE_BYTES: usize = 128 << 10;

/// How long the thread looks for the next bytes of a run, which its owner is sending, before it looks after
/// others; and for how long in all before it does, however they come.
const RUN_SPIN: Duration = Duration::from_micros(20);
const RUN_SPIN_MAX: Duration = Duration::from_micros(400);

/// A transfer that is under way.
pub(super) struct Active {
    pub(super) open: Open,
    pub(super) plan: PlanGuard<StreamPlan>,
}

/// The transfers under way, by the numbers they have on the wire.
pub(super) type Actives = HashMap<u64, Active>;

/// A connection over which this agent reads.
pub(super) struct ReaderConnection {
    pub(super) link: Arc<Link>,
    /// Which of the link's rails it is.
    pub(super) rail: usize,
    asker: Arc<Asker>,
    socket: Arc<Socket>,
    head: [u8; RUN_HEAD],
    head_len: usize,
    run: Option<Incoming>,
    /// What is there of a run that comes encoded.
    arrived: Arrived,
    /// Runs on their way from their frames to memory of a device.
    scatters: Scatters,
    pub(super) waits_to_write: bool,
    /// Whether a caller reads over it, and the thread does not listen.
    pub(super) is_driven: bool,
    /// Bytes that must be there for the socket to be readable.
    wake_bytes: usize,
}

/// How reading ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    /// What there was is read, or it is another connection's turn.
    All,
    /// There was nothing.
    Nothing,
    /// See [`ReaderConnection::receive`].
    Unknown,
}

/// A run that is arriving.
struct Incoming {
    head: RunHead,
    /// Whether its bytes are wanted. Else they go nowhere: its transfer ended.
    wanted: bool,
    /// The piece that arrives, and the bytes of it that are there.
    piece: u32,
    offset: usize,
    /// Bytes of the run that are not there.
    left: usize,
    begun: Instant,
    /// What its pieces are made of, where they come encoded.
    part: Option<KvPart>,
    /// What it is put together in, and the region that it then goes to, where that is memory of a device.
    staged: Option<(Frame, Arc<dyn Memory>)>,
}

impl Active {
    /// The pieces of a run are in memory of a device. Returns whether the transfer ends by it.
    fn landed(&mut self, head: &RunHead) -> bool {
        let plan = &mut *self.plan;
        let landings = &mut plan.landings[head.pieces()];
        plan.missing -= landings.len();
        landings.iter_mut().for_each(|landing| (landing.landed, landing.scatters) = (true, false));
        let missing = plan.missing;
        self.note(Moment::Read, head);
        missing == 0
    }

    /// A copier failed. How the transfer ends by it.
    fn lost(&self, error: &CopyError) -> TransferError {
        if *error == CopyError::Checksum {
            return TransferError::Corrupted;
        }
        tracing::error!(peer = self.open.link.name, %error, "bytes that were read do not reach memory of a device");
        TransferError::DeviceLost
    }

    /// Notes that a run begins to arrive, or that its bytes are there.
    fn note(&mut self, moment: Moment, run: &RunHead) {
        self.open.note(moment, self.plan.gate(run.first), run.len as usize);
    }
}

impl ReaderConnection {
    /// Returns the listening half of a rail. `waker` is called when bytes have reached memory of a device. `None`: it
    /// is not connected.
    pub(super) fn new(link: Arc<Link>, rail: usize, waker: Waker) -> Option<Self> {
        let Way::Tcp(way) = &link.way else { return None };
        let asker = way.askers()[rail].clone();
        let socket = asker.socket()?;
        Some(Self {
            link,
            rail,
            asker,
            socket,
            head: [0; RUN_HEAD],
            head_len: 0,
            run: None,
            arrived: Arrived::default(),
            scatters: Scatters::new(waker),
            waits_to_write: false,
            is_driven: false,
            wake_bytes: 1,
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Ends the connection for both ends.
    pub(super) fn close(&self) {
        self.asker.disconnect();
    }

    /// Sends requests. `false`: the socket takes no more now. Errors: the connection failed.
    pub(super) fn flush(&self) -> io::Result<bool> {
        self.asker.flush()
    }

    /// A transfer ended before all its pieces landed: what arrives of it goes nowhere.
    pub(super) fn give_up(&mut self, plan: &StreamPlan) {
        if let Some(run) = self.run.as_mut().filter(|run| run.head.transfer == plan.number) {
            run.wanted = false;
        }
    }

    /// Returns whether bytes that are here are on their way to memory of a device.
    pub(super) fn scatters(&self) -> bool {
        !self.scatters.is_empty()
    }

    /// Takes note of what has reached memory of a device; `ended` gets the transfers that end by it.
    pub(super) fn settle(&mut self, actives: &mut Actives, ended: &mut Vec<(u64, Result<(), TransferError>)>) {
        while let Some(scattered) = self.scatters.next_over() {
            self.scattered(scattered, actives, ended);
        }
    }

    /// Waits until nothing is on its way to memory of a device, and takes note of it.
    pub(super) fn settle_all(&mut self, actives: &mut Actives, ended: &mut Vec<(u64, Result<(), TransferError>)>) {
        while let Some(scattered) = self.scatters.wait() {
            self.scattered(scattered, actives, ended);
        }
    }

    /// A run has got to its device, or never will.
    fn scattered(
        &self,
        scattered: Scattered,
        actives: &mut Actives,
        ended: &mut Vec<(u64, Result<(), TransferError>)>,
    ) {
        let Scattered { head, result } = scattered;
        // It may have ended already.
        let Some(active) = actives.get_mut(&head.transfer) else { return };
        active.plan.scattering -= 1;
        if let Err(error) = result {
            return ended.push((head.transfer, Err(active.lost(&error))));
        }
        self.count(&head, active, now());
        if active.landed(&head) {
            ended.push((head.transfer, Ok(())));
        }
    }

    /// The bytes of a run are where its transfer wants them, or in host memory before they are checked.
    fn count(&self, head: &RunHead, active: &Active, at: Instant) {
        self.asker.landed(head.count as usize);
        if let Way::Tcp(way) = &active.open.link.way {
            way.rails().delivered(self.rail, head.len.into(), at);
        }
    }

    /// Reads what is there, up to a turn's bytes; `ended` gets the transfers that end by it. `Unknown`: the next
    /// answer is for a transfer that is not among `actives`; if it is still not the next time, its bytes go
    /// nowhere. Errors: the connection is of no use any more.
    pub(super) fn receive(
        &mut self,
        actives: &mut Actives,
        waste: &mut [u8],
        ended: &mut Vec<(u64, Result<(), TransferError>)>,
    ) -> Result<Received, ChannelError> {
        self.set_wake_bytes(1);
        self.settle(actives, ended);
        if self.head_len == RUN_HEAD {
            self.begin(actives, ended)?;
        }
        let mut turn = TURN_BYTES;
        let (begin, mut since, mut end) = (now(), None, Received::Nothing);
        while turn > 0 || self.socket.holds() {
            let (received, asked_for) = self.read(actives, waste);
            let received = match received {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.is_soon(begin, &mut since) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            };
            (since, end) = (None, Received::All);
            self.account(received, actives, ended);
            if self.head_len == RUN_HEAD {
                if Answer::decode(&self.head).is_some_and(|answer| !actives.contains_key(&answer.transfer())) {
                    return Ok(Received::Unknown);
                }
                self.begin(actives, ended)?;
            }
            if received < asked_for && self.run.is_none() {
                // The socket is empty, or tells of what is there.
                break;
            }
            turn = turn.saturating_sub(received);
        }
        Ok(end)
    }

    /// Returns whether the next bytes of a run are worth waiting for where the thread is.
    fn is_soon(&self, begin: Instant, since: &mut Option<Instant>) -> bool {
        let now = now();
        std::hint::spin_loop();
        let waited = now.duration_since(*since.get_or_insert(now));
        self.run.is_some() && waited < RUN_SPIN && now.duration_since(begin) < RUN_SPIN_MAX
    }

    /// The header is there: its run begins, or its transfer ends.
    fn begin(
        &mut self,
        actives: &mut Actives,
        ended: &mut Vec<(u64, Result<(), TransferError>)>,
    ) -> Result<(), ChannelError> {
        self.head_len = 0;
        match Answer::decode(&self.head).ok_or_else(|| lie("an answer that is none"))? {
            Answer::Run(head) => {
                let mut run = Incoming::new(head, actives, &self.link, (self.rail, &self.asker))?;
                let device = actives.get_mut(&head.transfer).filter(|_| run.wanted);
                let device = device.and_then(|active| active.plan.request_of(head.first, head.count)?.device.clone());
                if let Some(memory) = device {
                    while self.scatters.is_full()
                        && let Some(scattered) = self.scatters.wait()
                    {
                        self.scattered(scattered, actives, ended);
                    }
                    run.staged = Some((self.scatters.frame(&*memory)?, memory));
                }
                self.run = Some(run);
            }
            Answer::Refused { transfer } => match actives.get(&transfer) {
                Some(active) if !Arc::ptr_eq(&active.open.link, &self.link) => {
                    return Err(lie("an answer to what was not asked"));
                }
                Some(_) => ended.push((transfer, Err(TransferError::Withdrawn))),
                // It ended already.
                None => {}
            },
        }
        Ok(())
    }

    /// The thread is about to sleep.
    pub(super) fn wake_late(&mut self) {
        if self.is_driven {
            return;
        }
        let left = self.run.as_ref().map_or(1, |run| run.left.min(WAKE_BYTES));
        let wake_bytes = left.saturating_sub(self.socket.held_max()).max(1);
        self.set_wake_bytes(wake_bytes);
    }

    fn set_wake_bytes(&mut self, wake_bytes: usize) {
        if wake_bytes != self.wake_bytes {
            self.wake_bytes = wake_bytes;
            receive_low_water(self.socket(), wake_bytes);
        }
    }

    /// Reads once: the rest of the run, as far as it fits, and the header behind it. What came, and what would
    /// have fit.
    fn read(&mut self, actives: &Actives, waste: &mut [u8]) -> (io::Result<usize>, usize) {
        let mut buffers: [IoSliceMut<'_>; RUN_PIECES_MAX + 1] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (mut count, mut asked_for) = (0, 0);
        let head = &mut self.head[self.head_len..];
        let left = self.run.as_ref().map(|run| run.left);
        match &mut self.run {
            None => {}
            Some(run) if !run.wanted => {
                asked_for = run.left.min(waste.len());
                buffers[0] = IoSliceMut::new(&mut waste[..asked_for]);
                count = 1;
            }
            Some(Incoming { staged: Some((frame, _)), head, left, .. }) => {
                let len = head.len as usize;
                buffers[0] = IoSliceMut::new(&mut frame[len - *left..len]);
                (count, asked_for) = (1, *left);
            }
            Some(run) if run.part.is_some() => {
                let len = run.head.len as usize;
                buffers[0] = IoSliceMut::new(&mut self.arrived.run(len)[len - run.left..]);
                (count, asked_for) = (1, run.left);
            }
            Some(run) => {
                let landings = actives.get(&run.head.transfer).map_or(&[][..], |active| &active.plan.landings);
                let mut offset = run.offset;
                for landing in &landings[run.piece as usize..(run.head.first + run.head.count) as usize] {
                    let len = landing.len as usize - offset;
                    // SAFETY: `Prepared::check` checked that the piece is inside its region, which the plan holds.
                    // This transfer alone writes it (`Claim`), until it ends, and no other piece of it is there.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(landing.host().add(offset), len) };
                    buffers[count] = IoSliceMut::new(bytes);
                    (count, asked_for, offset) = (count + 1, asked_for + len, 0);
                }
            }
        }
        let whole = left.is_none_or(|left| asked_for == left);
        if whole {
            asked_for += head.len();
            buffers[count] = IoSliceMut::new(head);
            count += 1;
        }
        (self.socket.receive(&mut buffers[..count]), asked_for)
    }

    /// Takes note of `received` bytes.
    fn account(
        &mut self,
        mut received: usize,
        actives: &mut Actives,
        ended: &mut Vec<(u64, Result<(), TransferError>)>,
    ) {
        if let Some(run) = &mut self.run {
            let of_run = received.min(run.left);
            (run.left, received) = (run.left - of_run, received - of_run);
            if run.left > 0 {
                run.advance(of_run, actives);
                return;
            }
            let run = self.run.take();
            if let Some(mut run) = run.filter(|run| run.wanted)
                && let Some(active) = actives.get_mut(&run.head.transfer)
            {
                let arrived_at = run.arrive(active);
                if let Some((frame, memory)) = run.staged.take() {
                    self.scatters.begin(run.head, run.part, frame, &*memory, &mut active.plan);
                } else {
                    self.count(&run.head, active, arrived_at);
                    if let Some(end) = run.land(active, arrived_at, &mut self.arrived) {
                        ended.push((run.head.transfer, end));
                    }
                }
            }
        }
        self.head_len += received;
    }
}

/// The owner does not keep to the protocol.
fn lie(reason: &str) -> ChannelError {
    ChannelError::Refused(Refusal::Answer, reason.to_owned())
}

/// Sets how many bytes must be there for a socket to be readable. If it does not work, one is enough.
fn receive_low_water(socket: BorrowedFd<'_>, bytes: usize) {
    let bytes = bytes as libc::c_int;
    // SAFETY: the descriptor is open and the value has the size that is said.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        );
    }
}

impl Incoming {
    /// Errors: it is not what was asked for.
    fn new(
        head: RunHead,
        actives: &mut Actives,
        link: &Arc<Link>,
        (rail, asker): (usize, &Asker),
    ) -> Result<Self, ChannelError> {
        let now = now();
        let (piece, left) = (head.first, head.len as usize);
        let mut run = Self { head, wanted: false, piece, offset: 0, left, begun: now, part: None, staged: None };
        let Some(active) = actives.get_mut(&head.transfer) else { return Ok(run) };
        let landings = active.plan.landings.get(head.first as usize..head.first as usize + head.count as usize);
        let missing = landings.filter(|landings| landings.iter().all(|landing| !landing.landed && !landing.scatters));
        let missing = missing.map(|landings| landings.iter().map(|landing| landing.len as usize).sum());
        let missing = missing.filter(|_| Arc::ptr_eq(&active.open.link, link));
        let request = active.plan.request_of(head.first, head.count).filter(|request| {
            let is_asked_for = request.rail == Some(rail) && asker.has_sent(request);
            is_asked_for && missing.is_some_and(|bytes| request.wire_bytes(bytes) == head.len as usize)
        });
        let Some(request) = request else { return Err(lie("an answer to what was not asked")) };
        run.part = request.part;
        if !std::mem::replace(&mut request.is_pending, true)
            && let Way::Tcp(way) = &link.way
        {
            // Its gate has opened.
            way.rails().pending(rail, request.bytes, now);
        }
        active.open.begin(now);
        run.wanted = true;
        active.note(Moment::Begun, &head);
        Ok(run)
    }

    /// `count` more bytes of pieces are there, not all.
    fn advance(&mut self, count: usize, actives: &Actives) {
        if !self.wanted || self.part.is_some() || self.staged.is_some() {
            return;
        }
        let Some(active) = actives.get(&self.head.transfer) else { return };
        self.offset += count;
        while let Some(landing) = active.plan.landings.get(self.piece as usize)
            && self.offset >= landing.len as usize
        {
            self.offset -= landing.len as usize;
            self.piece += 1;
        }
    }

    /// All its bytes are there. Returns since when.
    fn arrive(&self, active: &mut Active) -> Instant {
        let arrived_at = now();
        active.open.add_wire(arrived_at.duration_since(self.begun));
        active.open.delivered(self.head.len.into());
        arrived_at
    }

    /// Its bytes are in host memory, or put together there, right or wrong. How the transfer ends by it, if it does.
    fn land(
        &self,
        active: &mut Active,
        arrived_at: Instant,
        arrived: &mut Arrived,
    ) -> Option<Result<(), TransferError>> {
        let plan = &mut *active.plan;
        let landings = &mut plan.landings[self.head.pieces()];
        landings.iter_mut().for_each(|landing| landing.landed = true);
        if plan.checksums {
            let sum = match self.part {
                Some(_) => checksum(arrived.run(self.head.len as usize)),
                None => landings.iter().fold(0, |sum, landing| {
                    // SAFETY: as in `read`; it is not written now.
                    let bytes = unsafe { std::slice::from_raw_parts(landing.host(), landing.len as usize) };
                    fold(sum, checksum(bytes))
                }),
            };
            if sum != self.head.sum {
                return Some(Err(TransferError::Corrupted));
            }
        }
        if let Some(part) = self.part {
            // SAFETY: as in `read`.
            unsafe { arrived.decode(part, landings) };
            active.open.add_wire(now().duration_since(arrived_at));
        }
        plan.missing -= landings.len();
        let missing = plan.missing;
        active.note(Moment::Read, &self.head);
        (missing == 0).then_some(Ok(()))
    }
}
