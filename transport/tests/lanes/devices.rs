//! Memory of a device, which the host reaches by its copier alone: which lane is taken, what is said of it, and what
//! happens when the device is lost. That its bytes arrive is tested with the others.

use crate::ends::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use transport::{
    Agent, Copier, CopyOrder, DeviceFile, DeviceId, DeviceKind, DevicePlace, Exports, FetchOrder, Fetched, Frame,
    GuardedMemory, Hub, Lane, LaneStatus, Memory, PeerMemory, Place, ReadBatch, Staging, Ticket, TransferError,
    WhyPassed,
};

const LEN: usize = 1 << 20;
const DEVICE: Option<DeviceId> = Some(DeviceId(0));

fn guarded() -> EndMemory {
    EndMemory::Guarded(GuardedMemory::new(LEN, Some(part())).expect("memory can be had"))
}

fn sealed() -> EndMemory {
    EndMemory::Sealed(transport::SealedMemory::new("test", LEN).expect("memory can be had"))
}

/// An owner and a reader of two processes, that take whatever lane is best.
fn connected(owner: EndMemory, reader: EndMemory) -> (Pair, LaneStatus) {
    let end = |memory, id| end_of_memory(memory, &Hub::new(), id, 1, |_| ());
    let pair = Pair { owner: end(owner, OWNER), reader: end(reader, READER) };
    pair.owner.fill();
    pair.introduce();
    pair.reader.connect(OWNER);
    let (_, status) = pair.reader.agent.lanes().remove(0);
    (pair, status)
}

#[test]
fn a_lane_is_chosen_by_the_kind_of_memory_and_says_so() {
    let staging = |peer, own| Staging { peer, own };
    for (owner, reader, lane, expected) in [
        (sealed(), sealed(), Lane::Shm, staging(None, None)),
        (sealed(), guarded(), Lane::Shm, staging(None, DEVICE)),
        (guarded(), sealed(), Lane::Tcp, staging(DEVICE, None)),
        (guarded(), guarded(), Lane::Nvlink, staging(None, None)),
    ] {
        let host_here = owner.place().device().is_some() || reader.place().device().is_none();
        let (pair, status) = connected(owner, reader);
        assert_eq!((status.lane, status.staging), (lane, expected));
        let passed = |lane| status.passed_over.iter().find(|passed| passed.lane == lane);
        let reason = |lane| passed(lane).map(|passed| (passed.why, passed.reason.as_str()));
        let shm = (WhyPassed::Memory, "the peer's pool is in memory of device 0, which processes cannot map");
        assert_eq!(reason(Lane::Shm), (lane == Lane::Tcp).then_some(shm));
        let host = if host_here { "this worker's pool is in host memory" } else { "the peer's pool is in host memory" };
        assert_eq!(reason(Lane::Nvlink), (lane > Lane::Nvlink).then_some((WhyPassed::Memory, host)));
        let report = pair.read(LEN / 2, 0, &[(0, LEN as u64 / 2), (LEN as u64 / 2, 0)]).result.expect("it comes");
        assert_eq!((report.lane, report.bytes), (lane, LEN as u64));
        let (source, destination) = (pair.owner.bytes(), pair.reader.bytes());
        assert!(source[..LEN / 2] == destination[LEN / 2..] && source[LEN / 2..] == destination[..LEN / 2]);
    }
}

/// Memory of a device that is lost at some time.
struct Fragile {
    copier: Arc<dyn Copier>,
}

/// Copies until its device is lost, and then ends every order at once.
struct FragileCopier {
    copier: Arc<dyn Copier>,
    lost: Arc<AtomicBool>,
}

// SAFETY: nobody touches its address.
unsafe impl Memory for Fragile {
    fn place(&self) -> Place<'_> {
        let (id, kind, exports) = (DeviceId(0), DeviceKind::Guarded, Exports::default());
        Place::Device(DevicePlace { id, kind, address: self as *const Self as u64, exports, copier: &self.copier })
    }

    fn len(&self) -> usize {
        LEN
    }
}

impl Copier for FragileCopier {
    fn frame(&self, bytes: usize) -> std::io::Result<Frame> {
        self.copier.frame(bytes)
    }

    fn gather(&self, order: CopyOrder) -> Ticket {
        if self.lost.load(Ordering::Relaxed) { Ticket::new(order.waker).0 } else { self.copier.gather(order) }
    }

    fn scatter(&self, order: CopyOrder, sum: u64) -> Ticket {
        if self.lost.load(Ordering::Relaxed) { Ticket::new(order.waker).0 } else { self.copier.scatter(order, sum) }
    }

    fn import(&self, exported: DeviceFile<'_>, len: usize) -> std::io::Result<Arc<PeerMemory>> {
        self.copier.import(exported, len)
    }

    fn fetch(&self, order: FetchOrder) -> Ticket<Fetched> {
        if self.lost.load(Ordering::Relaxed) { Ticket::new(order.waker).0 } else { self.copier.fetch(order) }
    }

    fn try_out(&self, source: &Arc<PeerMemory>, len: usize) -> Ticket<Fetched> {
        self.copier.try_out(source, len)
    }
}

/// Registers memory of a device with an agent, and what loses the device.
fn fragile(agent: &Agent) -> (transport::RegionId, Arc<AtomicBool>) {
    let (pool, lost) = (GuardedMemory::new(LEN, None).expect("memory can be had"), Arc::<AtomicBool>::default());
    let copier = pool.place().device().expect("it is as a device's").copier.clone();
    let copier = Arc::new(FragileCopier { copier, lost: lost.clone() });
    (agent.register(Arc::new(Fragile { copier })), lost)
}

#[test]
fn whoever_reads_from_a_device_or_into_one_hears_that_it_is_lost() {
    for lane in [Lane::Local, Lane::Tcp] {
        let (from, to) = (pair(lane, LEN), pair(lane, LEN));
        let (source, source_lost) = fragile(&from.owner.agent);
        let (destination, destination_lost) = fragile(&to.reader.agent);
        let read = |pair: &Pair, source, destination| {
            let whole = || vec![ReadBatch { source, destination, ..batch(LEN, 0, &[(0, 0)]) }];
            until(|| pair.reader.agent.prepare(OWNER, whole()).is_ok());
            pair.reader.post(OWNER, whole());
            pair.reader.ended().result.map(|report| report.bytes)
        };
        assert_eq!(read(&from, source, REGION), Ok(LEN as u64), "over {lane}");
        assert_eq!(read(&to, REGION, destination), Ok(LEN as u64), "over {lane}");
        source_lost.store(true, Ordering::Relaxed);
        destination_lost.store(true, Ordering::Relaxed);
        let theirs = if lane == Lane::Tcp { TransferError::Withdrawn } else { TransferError::DeviceLost };
        for _ in 0..3 {
            assert_eq!(read(&from, source, REGION), Err(theirs), "over {lane}");
            assert_eq!(read(&to, REGION, destination), Err(TransferError::DeviceLost), "over {lane}");
        }
        // What is not that device's is read as before.
        assert_eq!(read(&from, REGION, REGION), Ok(LEN as u64), "over {lane}");
    }
}
