//! Posting a transfer allocates nothing, whatever the lane; nor does posting one of files.

use domain::session::{PeerInfo, Role};
use domain::{Dtype, Encoding, Incarnation, KvGroup, KvKind, KvLayout, ModelLayout, ProgressWord, Secret, WorkerId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use transport::{
    Agent, AgentConfig, AgentEvent, Copies, Copy, Direction, FILE_ALIGN, Failure, FileBatch, FileConfig, FileCopy,
    FileMover, FileSpec, FileTransfer, Hub, Lane, ListenConfig, Prepared, ReadBatch, RegionId, SealedMemory,
    TransferState,
};

thread_local! {
    /// Allocations of this thread.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: it is the system's allocator, with a counter beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller says.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LEN: usize = 1 << 20;
const POSTED_MAX: usize = 16;
const REGION: RegionId = RegionId(0);

fn agent(hub: &Hub, id: u32, lane: Lane, encoded: bool) -> (Agent, PeerInfo, Receiver<AgentEvent>) {
    let (sender, events) = sync_channel(2 * POSTED_MAX);
    let (id, incarnation, name) = (WorkerId(id), Incarnation(1), format!("w{id}"));
    let mut config = AgentConfig::in_process(id, incarnation, name.clone(), POSTED_MAX);
    config.listen = Some(ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() });
    config.secrets = Secret::new("of this program").into();
    (config.lanes, config.tcp.encoded) = (vec![lane], encoded);
    let groups = vec![KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 4), window: None }];
    let part =
        KvLayout::whole(ModelLayout { block_tokens: 4, dtype: Dtype::Bf16, encoding: Encoding::Int8, groups }).part(0);
    let sink = Box::new(move |event| sender.try_send(event).is_ok());
    let agent = Agent::start(hub, config, ProgressWord::new(), sink).expect("an agent starts");
    agent.register(Arc::new(SealedMemory::new("test", POSTED_MAX * LEN).expect("memory can be had").of_parts(part)));
    let info = PeerInfo { id, incarnation, name, role: Role::Prefill, address: agent.address() };
    (agent, info, events)
}

/// The machine with Soft-RoCE is emulated.
const PATIENCE: Duration = Duration::from_secs(150);

#[test]
fn posting_files_allocates_nothing() {
    const COUNT_MAX: usize = LEN / FILE_ALIGN as usize;
    for io_uring in [true, false] {
        let config = FileConfig { name: "test".to_owned(), depth: 4, posted_max: POSTED_MAX, io_uring };
        let mover = FileMover::start(config, &Failure::new(), Box::new(|_| {})).expect("it starts");
        let memory = mover.register(Arc::new(SealedMemory::new("test", LEN).expect("memory can be had")));
        let folder = tempfile::tempdir().expect("a folder");
        let spec = FileSpec { paths: vec![folder.path().join("a")], bytes: LEN as u64, stripe_bytes: FILE_ALIGN };
        let file = mover.open(&spec).expect("it opens");
        for (count, direction) in [(1, Direction::Write), (COUNT_MAX, Direction::Write), (COUNT_MAX, Direction::Read)] {
            let len = LEN / count;
            let transfer = |_| {
                // No two are neighbours at both ends, so that none are merged.
                let copy = |i: usize| FileCopy { file: (i * len) as u64, memory: ((count - 1 - i) * len) as u64 };
                let batch = FileBatch { direction, file, memory, len, copies: (0..count).map(copy).collect() };
                mover.prepare(vec![batch]).expect("it is sound")
            };
            let transfers: Vec<FileTransfer> = (0..POSTED_MAX).map(transfer).collect();
            for time in 0..3 {
                let before = COUNT.get();
                for transfer in &transfers {
                    mover.post(transfer).expect("there is room");
                }
                assert_eq!(COUNT.get() - before, 0, "io_uring {io_uring}, {count} slices, {time}");
                for transfer in &transfers {
                    let ended = transfer.wait(PATIENCE);
                    assert!(matches!(ended, TransferState::Ended(Ok(_))), "{ended:?}");
                }
            }
        }
    }
}

/// Whether there is an RDMA device.
fn has_rdma() -> bool {
    let devices = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten();
    devices.count() > 0
}

#[test]
fn posting_allocates_nothing() {
    let rdma = has_rdma().then_some((Lane::Rdma, false));
    let everywhere = [(Lane::Local, false), (Lane::Shm, false), (Lane::Tcp, false), (Lane::Tcp, true)];
    for (lane, encoded) in everywhere.into_iter().chain(rdma) {
        let hub = Hub::new();
        let (_owner, info, _owner_events) = agent(&hub, 0, lane, encoded);
        let hub = if lane == Lane::Local { hub } else { Hub::new() };
        let (reader, _, events) = agent(&hub, 1, lane, encoded);
        reader.introduce(info);
        reader.connect(WorkerId(0));
        let connected = events.recv_timeout(PATIENCE).expect("it is connected");
        assert!(matches!(connected, AgentEvent::Connected { .. }), "{connected:?}");
        // Small ones that are copied at once, larger ones, some that wait at their gates, and many slices: by one
        // distance, and in no order.
        let many = LEN / 2048;
        let cases = [
            (16, 4, 0, true),
            (LEN / 4, 4, 0, true),
            (LEN / 4, 4, u64::MAX, true),
            (many, 1000, 0, true),
            (many, 1000, 0, false),
        ];
        for (len, count, gate, in_order) in cases {
            let transfer = |n: usize| {
                // No two are neighbours at both ends, so that none are merged.
                let place = |i: usize| if in_order { i } else { i * (7 + 10 * i) % count };
                let copy =
                    |i: usize| Copy { from: (place(i) * len) as u64, to: (n * LEN + (count - 1 - i) * len) as u64 };
                let copies = Copies::List((0..count).map(copy).collect());
                let batch = ReadBatch { source: REGION, destination: REGION, len, gate, copies };
                reader.prepare(WorkerId(0), vec![batch]).expect("it is sound")
            };
            let transfers: Vec<Prepared> = (0..POSTED_MAX).map(transfer).collect();
            let mut posted = Vec::with_capacity(POSTED_MAX);
            // Prepared once and posted again.
            for time in 0..3 {
                let before = COUNT.get();
                for transfer in &transfers {
                    posted.push(reader.post(transfer).expect("there is room"));
                }
                assert_eq!(COUNT.get() - before, 0, "over {lane}, {count} slices of {len} bytes, gate {gate}, {time}");
                if gate > 0 {
                    posted.iter().for_each(|&id| reader.cancel(id));
                }
                for _ in posted.drain(..) {
                    let ended = events.recv_timeout(PATIENCE).expect("it ends");
                    assert!(matches!(ended, AgentEvent::Ended(_)), "{ended:?}");
                }
            }
        }
    }
}
