//! The copier of a pool on a card: the same bytes and sums as the host's copier, in frames that are pinned, registered
//! or neither; and the host tier behind it.

use domain::{
    BlockHash, BlockId, BlockRef, Choice, Dtype, Encoding, Epoch, GroupId, Incarnation, KvGroup, KvKind, KvLayout,
    KvPart, ModelLayout, RequestId, SeqKey, Tenant, WorkerId,
};
use engine::cuda::{Card, CudaPool};
use kv_manager::tiers::{Place, ReadEnd, Slot, Tier, TierRead, TierWrite, WriteEnd, WritePolicy};
use kv_memory::{
    Copier, CopyError, CopyOrder, Frame, GuardedMemory, Memory, PoolRange, PrivateMemory, SumOf, checksum, host_range,
};
use proptest::prelude::*;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tests_cuda::{Draw, kernel_cache};
use tiers::{HostConfig, TierEvent, TierOwner, open_host_tier};
use transport::Failure;

/// Parts of a record, and records of a pool.
const PARTS: usize = 8;
const RECORDS: usize = 40;
/// Bytes that are registered at once, as the pins of a card have it.
const SLICE: usize = 1 << 30;

fn card() -> Option<&'static Arc<Card>> {
    static CARD: OnceLock<Option<Arc<Card>>> = OnceLock::new();
    let open = || match Card::open(0, kernel_cache().as_deref()) {
        Ok(card) => Some(card),
        Err(error) => {
            println!("skipped: {error}; `make test-cuda` runs these tests in an emulator");
            None
        }
    };
    CARD.get_or_init(open).as_ref()
}

fn part(encoding: Encoding, tokens: u32) -> KvPart {
    let groups = vec![KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 64), window: None }];
    KvLayout::whole(ModelLayout { block_tokens: tokens, dtype: Dtype::Bf16, encoding, groups }).part(0)
}

/// A pool on a card, and one of the host with the same bytes.
struct Pools {
    card: CudaPool,
    host: GuardedMemory,
    bytes: Vec<u8>,
}

impl Pools {
    fn new(part: KvPart, seed: u64) -> Option<Self> {
        let record = PARTS * part.bytes();
        let card = CudaPool::new(card()?, RECORDS, record, part).expect("a pool");
        let host = GuardedMemory::new(RECORDS * record, Some(part)).expect("memory");
        let mut draw = Draw::new(seed);
        let bytes =
            draw.normals(RECORDS * record / 2, 3.0).into_iter().flat_map(|number| number.to_le_bytes()).collect();
        let pools = Self { card, host, bytes };
        for copier in [pools.copier(), host_copier(&pools.host)] {
            let frame = framed(copier, &pools.bytes);
            copier.scatter(order(frame, &[whole(&pools.bytes)], None, SumOf::Nothing), 0).wait().expect("it is sound");
        }
        Some(pools)
    }

    fn copier(&self) -> &Arc<dyn Copier> {
        self.card.place().device().expect("it is a device's").copier
    }

    /// What the card's pool has.
    fn read(&self) -> Vec<u8> {
        let frame = Frame::new(self.bytes.len()).expect("memory");
        let order = order(frame, &[whole(&self.bytes)], None, SumOf::Nothing);
        self.copier().gather(order).wait().expect("it is sound").frame.to_vec()
    }
}

fn host_copier(pool: &GuardedMemory) -> &Arc<dyn Copier> {
    pool.place().device().expect("it is as a device's").copier
}

fn whole(bytes: &[u8]) -> PoolRange {
    PoolRange { at: 0, len: bytes.len() }
}

fn order(frame: Frame, ranges: &[PoolRange], part: Option<KvPart>, sum: SumOf) -> CopyOrder {
    CopyOrder { frame, ranges: ranges.to_vec(), part, sum, waker: None }
}

fn framed(copier: &Arc<dyn Copier>, bytes: &[u8]) -> Frame {
    let mut frame = copier.frame(bytes.len()).expect("memory");
    frame[..bytes.len()].copy_from_slice(bytes);
    frame
}

/// A frame over memory, from `at` on.
fn over(memory: &Arc<PrivateMemory>, at: usize, len: usize) -> Frame {
    assert!(at + len <= memory.len());
    let first = NonNull::new(memory.as_ptr().wrapping_add(at)).expect("it is mapped");
    // SAFETY: it is inside the memory, which the frame holds, and the test has one frame there at a time.
    unsafe { Frame::over(first, len, Box::new(memory.clone())) }
}

/// Kinds of frames.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Pinned,
    Plain,
    /// It begins at an odd place of pinned memory, which kernels do not encode to.
    Odd,
}

fn frame(pools: &Pools, kind: Kind, len: usize) -> Frame {
    match kind {
        Kind::Pinned => pools.copier().frame(len).expect("memory"),
        Kind::Plain => Frame::new(len).expect("memory"),
        Kind::Odd => {
            let mut whole = pools.copier().frame(len + 1).expect("memory");
            let first = NonNull::from(&mut whole[1]);
            // SAFETY: the new frame holds the one that it is in.
            unsafe { Frame::over(first, len, Box::new(whole)) }
        }
    }
}

/// Gathers and scatters the same on both sides, several orders at once.
fn check(pools: &Pools, ranges: &[PoolRange], part: Option<KvPart>, sum: SumOf, kind: Kind) {
    let room = pools.bytes.len() * 2;
    let host = host_copier(&pools.host).gather(order(Frame::new(room).expect("memory"), ranges, part, sum));
    let host = host.wait().expect("it is sound");
    let gather = || pools.copier().gather(order(frame(pools, kind, room), ranges, part, sum));
    let tickets: Vec<_> = (0..10).map(|_| gather()).collect();
    let mut last = None;
    for ticket in tickets {
        let card = ticket.wait().expect("it is sound");
        assert_eq!((card.bytes, card.sum), (host.bytes, host.sum), "{kind:?} {sum:?}");
        assert!(card.frame[..card.bytes] == host.frame[..host.bytes], "{kind:?} {sum:?}: what was gathered");
        last = Some(card.frame);
    }
    // To other places, which are as far apart.
    let shift = pools.bytes.len() as u64 / 2;
    let to: Vec<PoolRange> = ranges.iter().map(|range| PoolRange { at: range.at + shift, ..*range }).collect();
    let before = pools.read();
    if sum != SumOf::Nothing && host.bytes > 0 {
        let mut wrong = frame(pools, kind, room);
        wrong[..host.bytes].copy_from_slice(&host.frame[..host.bytes]);
        wrong[host.bytes / 2] ^= 1;
        let refused = pools.copier().scatter(order(wrong, &to, part, sum), host.sum).wait();
        assert_eq!(refused.err(), Some(CopyError::Checksum));
        assert!(pools.read() == before, "nothing is written of what is damaged");
    }
    let sent = last.expect("some were gathered");
    pools.copier().scatter(order(sent, &to, part, sum), host.sum).wait().expect("it is sound");
    let mut expected = before;
    let copier = host_copier(&pools.host);
    copier.scatter(order(host.frame, &to, part, sum), host.sum).wait().expect("it is sound");
    let back = copier.gather(order(Frame::new(room).expect("memory"), &to, None, SumOf::Nothing));
    let back = back.wait().expect("it is sound");
    let mut rest = &back.frame[..back.bytes];
    for range in &to {
        let (own, others) = rest.split_at(range.len);
        expected[range.at as usize..][..range.len].copy_from_slice(own);
        rest = others;
    }
    assert!(pools.read() == expected, "{kind:?} {sum:?}: what was scattered");
}

/// Ranges of whole units in the lower half of the pool, apart.
fn ranges(pools: &Pools, units: &[usize], unit: usize) -> Vec<PoolRange> {
    let (mut at, mut ranges) = (0, Vec::new());
    for &count in units {
        let len = count * unit;
        if at + len > pools.bytes.len() / 2 {
            break;
        }
        ranges.push(PoolRange { at: at as u64, len });
        at += len + unit;
    }
    ranges
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn any_ranges_are_as_the_hosts(
        seed: u64, units in proptest::collection::vec(1usize..12, 1..12),
        encoding in prop_oneof![Just(Encoding::Exact), Just(Encoding::Int8), Just(Encoding::Fp8)],
        sum in prop_oneof![Just(SumOf::Nothing), Just(SumOf::Frame), Just(SumOf::Ranges)],
        kind in prop_oneof![Just(Kind::Pinned), Just(Kind::Plain), Just(Kind::Odd)],
    ) {
        let _alone = alone();
        // Blocks of 256 tokens have more groups than the kernels know: the host encodes them.
        for tokens in [16, 256] {
            let part = part(encoding, tokens);
            let Some(pools) = Pools::new(part, seed) else { return Ok(()) };
            let ranges = ranges(&pools, &units, part.bytes());
            check(&pools, &ranges, (encoding != Encoding::Exact).then_some(part), sum, kind);
        }
    }
}

#[test]
fn odd_bytes_and_long_ranges_are_as_the_hosts() {
    let _alone = alone();
    let Some(pools) = Pools::new(part(Encoding::Exact, 256), 3) else { return };
    for (units, unit) in [(&[1, 3, 2, 7][..], 13), (&[100, 1], 1003), (&[1], 300_001), (&[2, 2], 70_000)] {
        for sum in [SumOf::Nothing, SumOf::Frame, SumOf::Ranges] {
            for kind in [Kind::Pinned, Kind::Plain] {
                check(&pools, &ranges(&pools, units, unit), None, sum, kind);
            }
        }
    }
}

/// What the emulator is told to fail. `None`: the device is a card.
fn emulator() -> Option<impl Fn(&str)> {
    // SAFETY: the library is loaded already, and its name and that of the function end with zero.
    let function = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        libc::dlsym(library, c"simt_fail".as_ptr())
    };
    if function.is_null() {
        println!("skipped: a card fails nothing that it is told to; `make test-cuda` runs this test in an emulator");
        return None;
    }
    // SAFETY: the function of this name has this type.
    let function: unsafe extern "C" fn(*const libc::c_char) = unsafe { std::mem::transmute(function) };
    Some(move |faults: &str| {
        let faults = std::ffi::CString::new(faults).expect("no zero");
        // SAFETY: it is a string that ends with zero.
        unsafe { function(faults.as_ptr()) };
    })
}

/// Bytes of a record of the tests of pins.
fn record() -> usize {
    PARTS * part(Encoding::Exact, 16).bytes()
}

/// Copies a record to memory and back to another place, and returns what lies there.
fn there_and_back(pools: &Pools, memory: &Arc<PrivateMemory>, at: usize) -> Result<Vec<u8>, CopyError> {
    let len = record();
    let from = [PoolRange { at: 0, len }];
    let gathered = pools.copier().gather(order(over(memory, at, len), &from, None, SumOf::Frame)).wait()?;
    assert_eq!(gathered.sum, checksum(&pools.bytes[..len]));
    let to = [PoolRange { at: len as u64, len }];
    pools.copier().scatter(order(gathered.frame, &to, None, SumOf::Frame), gathered.sum).wait()?;
    Ok(pools.read()[len..2 * len].to_vec())
}

/// Whether the card copies to memory without a detour: on a new pool that needs an allocation, which is refused.
fn is_direct(fail: &impl Fn(&str), memory: &Arc<PrivateMemory>, at: usize) -> bool {
    let pools = Pools::new(part(Encoding::Exact, 16), 6).expect("there is a card");
    let from = [PoolRange { at: 0, len: record() }];
    let order = order(over(memory, at, record()), &from, None, SumOf::Frame);
    fail("oom@1");
    let copied = pools.copier().gather(order).wait();
    fail("");
    match copied {
        Ok(copied) => {
            assert_eq!(copied.sum, checksum(&pools.bytes[..record()]));
            true
        }
        Err(error) => {
            assert_eq!(error, CopyError::Lost);
            false
        }
    }
}

/// How often a test looks whether what happens in the background has happened, and how long it sleeps between.
const LOOKS_MAX: usize = 12_000;
const LOOK_EVERY: Duration = Duration::from_millis(5);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    panic!("{what} does not happen");
}

fn pin(pools: &Pools, memory: &Arc<PrivateMemory>) -> Box<dyn Send> {
    let range = host_range(&(memory.clone() as Arc<dyn Memory>)).expect("it is the host's");
    pools.copier().pin("test", range).expect("host memory can be pinned")
}

#[test]
fn memory_is_pinned_in_slices_in_the_background_and_copied_to_meanwhile() {
    let _alone = alone();
    let Some(pools) = Pools::new(part(Encoding::Exact, 16), 4) else { return };
    let Some(fail) = emulator() else { return };
    let memory = Arc::new(PrivateMemory::new(2 * SLICE + (1 << 20)).expect("addresses"));
    let places = [64, SLICE - 100, 2 * SLICE + 5];
    let is_whole = |at| there_and_back(&pools, &memory, at).expect("it is sound") == pools.bytes[..record()];
    assert!(!is_direct(&fail, &memory, 64), "nothing is pinned yet");
    let pins = pin(&pools, &memory);
    assert!(places.into_iter().all(is_whole), "while it is being pinned");
    wait_until("pinning of the last slice", || is_direct(&fail, &memory, 2 * SLICE + 5));
    assert!(is_direct(&fail, &memory, 64));
    assert!(!is_direct(&fail, &memory, SLICE - 100), "it lies in two slices");
    assert!(places.into_iter().all(is_whole), "pinned");
    drop(pins);
    assert!(!is_direct(&fail, &memory, 64), "it is the system's again");
    assert!(places.into_iter().all(is_whole), "no more pinned");
}

#[test]
fn memory_that_the_driver_refuses_to_pin_is_copied_to_by_a_detour() {
    let _alone = alone();
    let Some(pools) = Pools::new(part(Encoding::Exact, 16), 5) else { return };
    let Some(fail) = emulator() else { return };
    let memory = Arc::new(PrivateMemory::new(SLICE + (1 << 20)).expect("addresses"));
    // The second slice.
    fail("register@2");
    let pins = pin(&pools, &memory);
    // A fault that is still to come would be taken back here.
    wait_until("refusal of the second slice", pins_are_over);
    assert!(is_direct(&fail, &memory, 64));
    assert!(!is_direct(&fail, &memory, SLICE + 64));
    for at in [64, SLICE + 64] {
        assert!(there_and_back(&pools, &memory, at).expect("it is sound") == pools.bytes[..record()]);
    }
    drop(pins);
}

/// What the host tier took from pools of a card comes back as it was, many records at once.
#[test]
fn records_go_to_the_host_tier_and_come_back() {
    let _alone = alone();
    const BLOCKS: u32 = 24;
    for encoding in [Encoding::Exact, Encoding::Int8] {
        let groups = vec![KvGroup { layers: vec![0, 1], kind: KvKind::of_heads(2, 64), window: None }];
        let model = ModelLayout { block_tokens: 16, dtype: Dtype::Bf16, encoding, groups };
        let layout = KvLayout::whole(model);
        let (record, part) = (layout.record_bytes(0), layout.part(0));
        let Some(card) = card() else { return };
        let pool = Arc::new(CudaPool::new(card, 2 * BLOCKS as usize, record, part).expect("a pool"));
        let copier = pool.place().device().expect("it is a device's").copier.clone();
        let mut draw = Draw::new(9);
        let numbers = draw.normals(BLOCKS as usize * record / 2, 2.0);
        let bytes: Vec<u8> = numbers.into_iter().flat_map(|number| number.to_le_bytes()).collect();
        copier
            .scatter(order(framed(&copier, &bytes), &[whole(&bytes)], None, SumOf::Nothing), 0)
            .wait()
            .expect("sound");

        let (sender, events) = std::sync::mpsc::sync_channel(4 * BLOCKS as usize);
        let told = Arc::new(move |event| drop(sender.send(event)));
        let owner = TierOwner { pools: vec![pool.clone() as Arc<dyn Memory>], failure: Failure::new(), events: told };
        let config = HostConfig {
            name: "test".to_owned(),
            worker: WorkerId(7),
            life: Incarnation(3),
            weights: [5; 32],
            bytes: 8 << 20,
            write: WritePolicy::Through,
            shared: None,
        };
        let mut tier = open_host_tier(&config, &layout, &owner).expect("it opens").remove(0);
        let event = || events.recv_timeout(Duration::from_secs(120)).expect("it ends");
        let place = |slot| Place { tier: Tier::Host, slot: Slot { group: GroupId(0), slot } };
        let block = |block| BlockRef { group: GroupId(0), block: BlockId(block) };
        let hash = |n: u32| BlockHash([n as u8; 16]);
        for n in 0..BLOCKS {
            tier.mover.write(TierWrite { place: place(n), block: block(n), hash: hash(n), tenant: Tenant(1) });
        }
        for _ in 0..BLOCKS {
            assert!(matches!(event(), TierEvent::Wrote { end: WriteEnd::Written, .. }));
        }
        let key = SeqKey { request: RequestId(1), epoch: Epoch(1), choice: Choice(0) };
        for n in 0..BLOCKS {
            let read = TierRead { place: place(n), block: block(2 * BLOCKS - 1 - n), hash: hash(n), number: n };
            tier.mover.read(key, read);
        }
        for n in 0..BLOCKS {
            match event() {
                TierEvent::Read { read, end: ReadEnd::Good, .. } => assert_eq!(read.number, n, "in turn"),
                other => panic!("{other:?}"),
            }
        }
        // Another record is not in its slot.
        tier.mover.read(key, TierRead { place: place(0), block: block(0), hash: hash(77), number: 0 });
        assert!(matches!(event(), TierEvent::Read { end: ReadEnd::Wrong, .. }));
        let all = Frame::new(2 * bytes.len()).expect("memory");
        let all = order(all, &[PoolRange { at: 0, len: 2 * bytes.len() }], None, SumOf::Nothing);
        let all = copier.gather(all).wait().expect("it is sound").frame;
        for n in 0..BLOCKS as usize {
            let own = &bytes[n * record..][..record];
            let (mut stored, mut expected) = (vec![0; layout.stored_bytes(0)], vec![0; record]);
            layout.encode(0, own, &mut stored);
            layout.decode(0, &stored, &mut expected);
            assert!(all[(2 * BLOCKS as usize - 1 - n) * record..][..record] == expected, "{encoding}: record {n}");
        }
    }
}

/// Whether no thread of this process pins memory.
fn pins_are_over() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the system tells of threads");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    !names.into_iter().any(|name| name.trim() == "baton-cuda-pin")
}

/// Keeps other tests of this process away: faults, and threads, are its.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
