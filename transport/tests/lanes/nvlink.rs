//! The lane `nvlink`: why it is passed over, what ends its reads early, and how long what it maps stays mapped. That
//! its bytes arrive is tested with the others.

use crate::ends::*;
use domain::{ProgressWord, StepId, WorkerId};
use kv_memory::Reply;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use transport::{
    Agent, AgentStartError, Copier, CopyOrder, DeviceFile, DeviceId, DeviceKind, DevicePlace, Exports, FetchOrder,
    Fetched, Frame, GuardedMemory, Hub, Lane, LaneStatus, Memory, PeerMemory, Place, ReadBatch, RegionId, SealedMemory,
    Staging, Ticket, TransferError, WhyPassed,
};

const LEN: usize = 1 << 20;

fn guarded() -> GuardedMemory {
    GuardedMemory::new(LEN, Some(part())).expect("memory can be had")
}

/// What a device does that the tests make up.
#[derive(Default)]
struct Whims {
    /// Its driver maps nothing, for this reason.
    refuses: Option<&'static str>,
    /// It is of another kind than it looks.
    kind: Option<DeviceKind>,
    /// Its driver exports nothing.
    hides: bool,
    /// It copies nothing any more.
    is_lost: AtomicBool,
    /// Where orders to fetch wait until they are let go.
    held: Option<Sender<FetchHeld>>,
    /// Nothing that it mapped is mapped any more.
    has_unmapped: Arc<AtomicBool>,
}

/// An order that waits.
struct FetchHeld {
    order: FetchOrder,
    reply: Reply<Fetched>,
    copier: Arc<dyn Copier>,
}

impl FetchHeld {
    /// Carries it out.
    fn let_go(self) {
        let order = FetchOrder { waker: None, ..self.order };
        self.reply.tell(self.copier.fetch(order).wait());
    }
}

/// Memory of a device with whims.
pub(crate) struct Odd {
    memory: GuardedMemory,
    whims: Arc<Whims>,
    copier: Arc<dyn Copier>,
}

struct OddCopier {
    copier: Arc<dyn Copier>,
    whims: Arc<Whims>,
}

impl Odd {
    fn new(whims: Whims) -> (Arc<Self>, Arc<Whims>) {
        let (memory, whims) = (guarded(), Arc::new(whims));
        let copier = memory.place().device().expect("it is as a device's").copier.clone();
        let copier = Arc::new(OddCopier { copier, whims: whims.clone() });
        (Arc::new(Self { memory, whims: whims.clone(), copier }), whims)
    }

    /// Returns the first byte, as its owner knows it.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

// SAFETY: it answers what the memory that it has does, and nobody touches its address.
unsafe impl Memory for Odd {
    fn place(&self) -> Place<'_> {
        let place = self.memory.place().device().expect("it is as a device's");
        let exports = if self.whims.hides { Exports::default() } else { place.exports };
        let kind = self.whims.kind.unwrap_or(place.kind);
        Place::Device(DevicePlace { kind, exports, copier: &self.copier, ..place })
    }

    fn len(&self) -> usize {
        self.memory.len()
    }
}

/// What says that it is gone.
struct Mapped {
    _memory: Arc<PeerMemory>,
    has_unmapped: Arc<AtomicBool>,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.has_unmapped.store(true, Ordering::Release);
    }
}

impl Copier for OddCopier {
    fn frame(&self, bytes: usize) -> io::Result<Frame> {
        self.copier.frame(bytes)
    }

    fn gather(&self, order: CopyOrder) -> Ticket {
        self.copier.gather(order)
    }

    fn scatter(&self, order: CopyOrder, sum: u64) -> Ticket {
        self.copier.scatter(order, sum)
    }

    fn import(&self, exported: DeviceFile<'_>, len: usize) -> io::Result<Arc<PeerMemory>> {
        if let Some(reason) = self.whims.refuses {
            return Err(io::Error::other(reason));
        }
        let memory = self.copier.import(exported, len)?;
        let (kind, reader, address) = (memory.kind(), memory.reader(), memory.address());
        let mapping = Box::new(Mapped { _memory: memory, has_unmapped: self.whims.has_unmapped.clone() });
        // SAFETY: the mapping holds the memory, whose promises these are.
        Ok(Arc::new(unsafe { PeerMemory::new(kind, reader, address, len, mapping) }))
    }

    fn fetch(&self, order: FetchOrder) -> Ticket<Fetched> {
        if self.whims.is_lost.load(Ordering::Relaxed) {
            return Ticket::new(order.waker).0;
        }
        let Some(held) = &self.whims.held else { return self.copier.fetch(order) };
        let (ticket, reply) = Ticket::new(order.waker.clone());
        let _ = held.send(FetchHeld { order, reply, copier: self.copier.clone() });
        ticket
    }

    fn try_out(&self, source: &Arc<PeerMemory>, len: usize) -> Ticket<Fetched> {
        self.copier.try_out(source, len)
    }
}

/// An end whose one region is memory of a device with these whims.
fn odd(id: WorkerId, whims: Whims) -> (End, Arc<Whims>) {
    let (memory, whims) = Odd::new(whims);
    let end = end_of_memory(EndMemory::Odd(memory), &Hub::new(), id, 1, |_| ());
    (end, whims)
}

fn plain(id: WorkerId) -> End {
    end_of_memory(EndMemory::Guarded(guarded()), &Hub::new(), id, 1, |_| ())
}

fn met(owner: End, reader: End) -> (Pair, LaneStatus) {
    let pair = Pair { owner, reader };
    pair.introduce();
    pair.reader.connect(OWNER);
    let (_, status) = pair.reader.agent.lanes().remove(0);
    (pair, status)
}

#[test]
fn who_cannot_fetch_takes_the_next_lane_and_says_why() {
    let kind = Some(DeviceKind::Cuda);
    let cases: [(Whims, Whims, WhyPassed, &str); 4] = [
        (
            Whims::default(),
            Whims { refuses: Some("no peer access"), ..Whims::default() },
            WhyPassed::Unreached,
            "memory of the peer's device 0 cannot be mapped for this worker's device 0: no peer access",
        ),
        (
            Whims::default(),
            Whims { kind, ..Whims::default() },
            WhyPassed::Memory,
            "the peer's device 0 is guarded, and this worker's is cuda",
        ),
        (
            Whims { kind, ..Whims::default() },
            Whims::default(),
            WhyPassed::Memory,
            "the peer's device 0 is cuda, and this worker's is guarded",
        ),
        (
            Whims { hides: true, ..Whims::default() },
            Whims::default(),
            WhyPassed::Memory,
            "the peer's pool is in memory of device 0, whose driver exports it to no other process",
        ),
    ];
    for (owner, reader, why, reason) in cases {
        let (pair, status) = met(odd(OWNER, owner).0, odd(READER, reader).0);
        let device = Some(DeviceId(0));
        assert_eq!((status.lane, status.staging), (Lane::Tcp, Staging { peer: device, own: device }));
        let nvlink = status.passed_over.iter().find(|passed| passed.lane == Lane::Nvlink).expect("it has a reason");
        assert_eq!((nvlink.why, nvlink.reason.as_str()), (why, reason));
        assert_eq!(pair.read(LEN, 0, &[(0, 0)]).result.map(|report| report.lane), Ok(Lane::Tcp));
    }
}

#[test]
fn settings_forbid_it_at_either_end_and_hosts_part_it() {
    let without = |config: &mut transport::AgentConfig| config.lanes.retain(|&lane| lane != Lane::Nvlink);
    let end = |id, forbids: bool| {
        end_of_memory(EndMemory::Guarded(guarded()), &Hub::new(), id, 1, |config| {
            if forbids {
                without(config);
            }
        })
    };
    let reason = |status: &LaneStatus| {
        let nvlink = status.passed_over.iter().find(|passed| passed.lane == Lane::Nvlink).expect("it has a reason");
        nvlink.reason.clone()
    };
    let (_pair, status) = met(end(OWNER, false), end(READER, true));
    assert_eq!((status.lane, reason(&status).as_str()), (Lane::Tcp, "forbidden by transport.lanes"));
    let (_pair, status) = met(end(OWNER, true), end(READER, false));
    assert_eq!((status.lane, reason(&status).as_str()), (Lane::Tcp, "the peer: transport.lanes forbids nvlink there"));
    let mut owner = end(OWNER, false);
    owner.info.address.unix = "baton-of-another-host".to_owned();
    let (_pair, status) = met(owner, end(READER, false));
    let reason = reason(&status);
    assert!(status.lane == Lane::Tcp && reason.starts_with("no common Unix socket"), "{reason}");
    assert!(reason.contains("fabric handles"), "{reason}");
}

#[test]
fn who_requires_it_needs_memory_of_a_device() {
    let require = |config: &mut transport::AgentConfig| config.require = Some(Lane::Nvlink);
    let host = end(&Hub::new(), READER, 1, 64, require);
    let refused = host.agent.check_required();
    assert!(matches!(&refused, Err(AgentStartError::NoDevice(_))), "{refused:?}");
    let device = end_of_memory(EndMemory::Guarded(guarded()), &Hub::new(), READER, 1, require);
    assert!(device.agent.check_required().is_ok());
    let owner = plain(OWNER);
    device.agent.introduce(owner.info.clone());
    assert_eq!(device.connect(OWNER), Lane::Nvlink);
}

#[test]
fn kv_is_not_encoded_over_it_and_it_was_measured() {
    let encoded = |config: &mut transport::AgentConfig| config.tcp.encoded = true;
    let reader = end_of_memory(EndMemory::Guarded(guarded()), &Hub::new(), READER, 1, encoded);
    let (pair, status) = met(plain(OWNER), reader);
    assert_eq!((status.lane, status.encoding), (Lane::Nvlink, domain::Encoding::Exact));
    assert!(status.probe.bytes_per_s > 0.0 && status.probe.latency_s > 0.0);
    let report = pair.read(LEN, 0, &[(0, 0)]).result.expect("it comes");
    assert_eq!((report.bytes, report.wire_bytes, report.rails), (LEN as u64, LEN as u64, 1));
    assert!(!report.wire.is_zero() && report.wire <= report.elapsed, "{report:?}");
}

/// Two ends of which the reader's device holds what it is to fetch.
fn holding() -> (Pair, Arc<Whims>, Receiver<FetchHeld>) {
    let (held, orders) = channel();
    let (reader, whims) = odd(READER, Whims { held: Some(held), ..Whims::default() });
    let (pair, status) = met(plain(OWNER), reader);
    assert_eq!(status.lane, Lane::Nvlink);
    pair.owner.fill();
    (pair, whims, orders)
}

#[test]
fn a_cancelled_read_ends_once_the_device_has_let_go_of_its_destination() {
    let (pair, _, orders) = holding();
    let id = pair.post(LEN / 2, 0, &[(0, 0)]);
    let held = orders.recv_timeout(PATIENCE).expect("it is ordered");
    pair.reader.agent.cancel(id);
    pair.reader.hears_nothing();
    held.let_go();
    let end = pair.reader.ended();
    assert_eq!((end.id, end.result), (id, Err(TransferError::Cancelled)));
    // The connection is as good as before.
    let id = pair.post(LEN, 0, &[(0, 0)]);
    orders.recv_timeout(PATIENCE).expect("it is ordered").let_go();
    let end = pair.reader.ended();
    assert_eq!((end.id, end.result.map(|report| report.bytes)), (id, Ok(LEN as u64)));
    assert!(pair.reader.bytes() == pair.owner.bytes());
}

#[test]
fn a_read_of_an_owner_that_dies_ends_once_the_device_has_let_go() {
    let (Pair { owner, reader }, _, orders) = holding();
    let id = reader.post(OWNER, vec![batch(LEN, 0, &[(0, 0)])]);
    let held = orders.recv_timeout(PATIENCE).expect("it is ordered");
    let bytes = owner.bytes();
    drop(owner);
    reader.lost(OWNER);
    reader.hears_nothing();
    held.let_go();
    let end = reader.ended();
    assert_eq!((end.id, end.result), (id, Err(TransferError::PeerGone)));
    // What was mapped outlived its owner.
    assert!(reader.bytes() == bytes);
}

#[test]
fn the_end_of_an_agent_waits_for_its_device() {
    let (Pair { owner: _owner, reader }, _, orders) = holding();
    let id = reader.post(OWNER, vec![batch(LEN, 0, &[(0, 0)])]);
    let held = orders.recv_timeout(PATIENCE).expect("it is ordered");
    let End { agent, events, .. } = reader;
    std::thread::scope(|scope| {
        scope.spawn(|| drop(agent));
        std::thread::sleep(MOMENT);
        assert!(events.try_recv().is_err(), "the device still writes");
        held.let_go();
    });
    match events.recv_timeout(PATIENCE) {
        Ok(transport::AgentEvent::Ended(end)) => {
            assert_eq!((end.id, end.result), (id, Err(TransferError::Cancelled)));
        }
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn what_is_withdrawn_stays_mapped_until_its_last_read_has_ended() {
    let (pair, whims, orders) = holding();
    let has_unmapped = || whims.has_unmapped.load(Ordering::Acquire);
    let whole = || vec![batch(LEN, 0, &[(0, 0)])];
    let prepared = pair.reader.agent.prepare(OWNER, whole()).expect("it is sound");
    pair.reader.agent.post(&prepared).expect("there is room");
    let held = orders.recv_timeout(PATIENCE).expect("it is ordered");
    let bytes = pair.owner.bytes();
    // The owner waits for no reader, and may give the memory back.
    let memory = pair.owner.agent.deregister(REGION).expect("nobody here uses it");
    until(|| pair.reader.agent.prepare(OWNER, whole()).is_err());
    drop((memory, pair.owner.memory));
    assert!(!has_unmapped(), "the device still reads it");
    held.let_go();
    assert!(pair.reader.ended().result.is_ok());
    assert!(pair.reader.bytes() == bytes);
    assert!(!has_unmapped(), "it may be posted again");
    drop(prepared);
    until(has_unmapped);
}

#[test]
fn a_device_that_is_lost_ends_every_read() {
    let (reader, whims) = odd(READER, Whims::default());
    let (pair, status) = met(plain(OWNER), reader);
    assert_eq!(status.lane, Lane::Nvlink);
    assert!(pair.read(LEN, 0, &[(0, 0)]).result.is_ok());
    whims.is_lost.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(pair.read(LEN, 0, &[(0, 0)]).result, Err(TransferError::DeviceLost));
    }
}

#[test]
fn many_small_copies_are_few_orders_and_some_are_under_way_at_once() {
    const COPIES: u64 = 10_000;
    let (pair, _, orders) = holding();
    // Each second part, so that no two are neighbours.
    let copies: Vec<_> = (0..COPIES).map(|n| (n * 64, n * 100)).collect();
    pair.post(32, 0, &copies);
    let [first, second] = [(); 2].map(|()| orders.recv_timeout(PATIENCE).expect("it is ordered"));
    assert!(orders.recv_timeout(MOMENT).is_err(), "more wait until one has ended");
    first.let_go();
    let third = orders.recv_timeout(PATIENCE).expect("it is ordered");
    second.let_go();
    third.let_go();
    assert_eq!(pair.reader.ended().result.map(|report| report.bytes), Ok(32 * COPIES));
    let (source, destination) = (pair.owner.bytes(), pair.reader.bytes());
    for (from, to) in copies {
        assert_eq!(destination[to as usize..][..32], source[from as usize..][..32]);
    }
}

#[test]
fn gates_open_between_orders() {
    let (pair, _, orders) = holding();
    let gate = |layer| ProgressWord::mark(StepId(1), layer);
    let half = LEN as u64 / 2;
    let batches = vec![batch(LEN / 2, gate(0), &[(0, 0)]), batch(LEN / 2, gate(1), &[(half, half)])];
    pair.reader.post(OWNER, batches);
    assert!(orders.recv_timeout(MOMENT).is_err(), "nothing is written yet");
    pair.owner.word.raise(StepId(1), 0);
    let first = orders.recv_timeout(PATIENCE).expect("it is written");
    assert!(orders.recv_timeout(MOMENT).is_err(), "the second is not written yet");
    pair.owner.word.raise(StepId(1), 1);
    // It does not wait for the first.
    let second = orders.recv_timeout(PATIENCE).expect("it is written");
    pair.reader.hears_nothing();
    first.let_go();
    second.let_go();
    assert!(pair.reader.ended().result.is_ok());
    assert!(pair.reader.bytes() == pair.owner.bytes());
}

fn register(agent: &Agent, memory: impl Memory + 'static) -> RegionId {
    agent.register(Arc::new(memory))
}

#[test]
fn regions_of_devices_come_and_go_and_one_of_the_host_changes_the_lane() {
    let (pair, status) = met(plain(OWNER), plain(READER));
    assert_eq!(status.lane, Lane::Nvlink);
    let more = guarded();
    // SAFETY: nobody else uses it yet.
    unsafe { more.as_ptr().write_bytes(9, LEN) };
    let second = register(&pair.owner.agent, more);
    let read = |source| ReadBatch { source, ..batch(LEN, 0, &[(0, 0)]) };
    let prepare = |source| pair.reader.agent.prepare(OWNER, vec![read(source)]);
    until(|| prepare(second).is_ok());
    pair.reader.agent.post(&prepare(second).expect("it is there")).expect("there is room");
    assert!(pair.reader.ended().result.is_ok() && pair.reader.bytes().iter().all(|&byte| byte == 9));
    // Into host memory nothing comes over this lane.
    let host = register(&pair.reader.agent, SealedMemory::new("test", LEN).expect("memory can be had"));
    let into_host = ReadBatch { destination: host, ..read(second) };
    let refused = pair.reader.agent.prepare(OWNER, vec![into_host.clone()]).err();
    assert_eq!(refused, Some(transport::PrepareError::NotOnDevice { region: host }));
    // A region that it does not read ends it, and the next lane reads all of them.
    let third = register(&pair.owner.agent, SealedMemory::new("test", LEN).expect("memory can be had"));
    assert!(pair.reader.lost(OWNER).contains("the peer's pool is in host memory"));
    assert_eq!(pair.reader.connect(OWNER), Lane::Tcp);
    for source in [REGION, second, third] {
        pair.reader.agent.post(&prepare(source).expect("it is read")).expect("there is room");
        assert!(pair.reader.ended().result.is_ok());
    }
    assert!(pair.reader.agent.prepare(OWNER, vec![into_host]).is_ok());
}

#[test]
fn devices_of_one_process_copy_without_host_memory_and_lend_what_is_read() {
    let hub = Hub::new();
    let (held, orders) = channel();
    let (memory, _) = Odd::new(Whims { held: Some(held), ..Whims::default() });
    let owner = end_of_memory(EndMemory::Guarded(guarded()), &hub, OWNER, 1, |_| ());
    let reader = end_of_memory(EndMemory::Odd(memory), &hub, READER, 1, |_| ());
    let (pair, status) = met(owner, reader);
    assert_eq!((status.lane, status.staging), (Lane::Local, Staging::default()));
    pair.owner.fill();
    pair.post(LEN, 0, &[(0, 0)]);
    let held = orders.recv_timeout(PATIENCE).expect("the device fetches");
    let in_use = pair.owner.agent.deregister(REGION).err();
    assert!(matches!(in_use, Some(transport::DeregisterError::InUse { .. })), "{in_use:?}");
    held.let_go();
    assert!(pair.reader.ended().result.is_ok());
    assert!(pair.reader.bytes() == pair.owner.bytes());
    until(|| pair.owner.agent.deregister(REGION).is_ok());
    drop(pair);

    // Where the driver maps nothing, bytes go through host memory.
    let (memory, _) = Odd::new(Whims { refuses: Some("no"), ..Whims::default() });
    let owner = end_of_memory(EndMemory::Guarded(guarded()), &hub, OWNER, 2, |_| ());
    let reader = end_of_memory(EndMemory::Odd(memory), &hub, READER, 2, |_| ());
    let (pair, status) = met(owner, reader);
    let device = Some(DeviceId(0));
    assert_eq!((status.lane, status.staging), (Lane::Local, Staging { peer: device, own: device }));
    pair.owner.fill();
    assert!(pair.read(LEN, 0, &[(0, 0)]).result.is_ok());
    assert!(pair.reader.bytes() == pair.owner.bytes());
}

#[test]
fn nobody_but_its_owner_writes_what_guarded_memory_exports() {
    let memory = guarded();
    let place = memory.place().device().expect("it is as a device's");
    let DeviceFile { file, bytes, offset } = place.exports.file.expect("it is exported");
    assert_eq!((bytes, offset), (LEN as u64, 0));
    for protection in [ProtFlags::WRITE, ProtFlags::READ | ProtFlags::WRITE] {
        // SAFETY: a new mapping overlaps nothing.
        let mapped = unsafe { mmap(std::ptr::null_mut(), LEN, protection, MapFlags::SHARED, file, 0) };
        assert!(mapped.is_err(), "{protection:?}");
    }
    assert!(rustix::io::pwrite(file, &[1], 0).is_err());
}
