//! The copier of a pool on a card: the same bytes and sums as the host's copier, in frames that are pinned, registered or
//! neither; and the host tier behind it.

use domain::{Dtype, Encoding, KvGroup, KvKind, KvLayout, KvPart, ModelLayout};
use engine::cuda::{Card, CudaPool};
use kv_memory::{
    Copier, CopyError, CopyOrder, Frame, GuardedMemory, Memory, PoolRange, PrivateMemory, SumOf, checksum,
};
use proptest::prelude::*;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tests_cuda::Draw;

/// Parts of a record, and records of a pool.
const PARTS: usize = 8;
const RECORDS: usize = 40;
/// Bytes that are registered at once, as the pins of a card have it.
const SLICE: usize = 1 << 30;

fn card() -> Option<&'static Arc<Card>> {
    static CARD: OnceLock<Option<Arc<Card>>> = OnceLock::new();
    let open = || match Card::open(0, None) {
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
        let bytes = draw.normals(RECORDS * record / 2, 3.0).into_iter().flat_map(|number| number.to_le_bytes()).collect();
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
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_ranges_are_as_the_hosts(
        seed: u64, units in proptest::collection::vec(1usize..12, 1..12),
        encoding in prop_oneof![Just(Encoding::Exact), Just(Encoding::Int8), Just(Encoding::Fp8)],
        sum in prop_oneof![Just(SumOf::Nothing), Just(SumOf::Frame), Just(SumOf::Ranges)],
        kind in prop_oneof![Just(Kind::Pinned), Just(Kind::Plain), Just(Kind::Odd)],
    ) {
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
    let Some(pools) = Pools::new(part(Encoding::Exact, 256), 3) else { return };
    for (units, unit) in [(&[1, 3, 2, 7][..], 13), (&[100, 1], 1003), (&[1], 300_001), (&[2, 2], 70_000)] {
        for sum in [SumOf::Nothing, SumOf::Frame, SumOf::Ranges] {
            for kind in [Kind::Pinned, Kind::Plain] {
                check(&pools, &ranges(&pools, units, unit), None, sum, kind);
            }
        }
    }
}

/// Waits until copies of this frame of the memory need no staging, or do.
fn launches_direct(pools: &Pools, memory: &Arc<PrivateMemory>, at: usize) -> Vec<u8> {
    let len = PARTS * part(Encoding::Exact, 16).bytes();
    let ranges = [PoolRange { at: 0, len }];
    let gathered = pools.copier().gather(order(over(memory, at, len), &ranges, None, SumOf::Frame)).wait();
    let gathered = gathered.expect("it is sound");
    assert_eq!(gathered.sum, checksum(&pools.bytes[..len]));
    let to = [PoolRange { at: len as u64, len }];
    pools.copier().scatter(order(gathered.frame, &to, None, SumOf::Frame), gathered.sum).wait().expect("it is sound");
    pools.read()[len..2 * len].to_vec()
}

#[test]
fn memory_that_is_registered_in_slices_is_copied_to_wherever_a_frame_lies() {
    let Some(pools) = Pools::new(part(Encoding::Exact, 16), 4) else { return };
    let memory = Arc::new(PrivateMemory::new(2 * SLICE + 12_345).expect("addresses"));
    let len = PARTS * part(Encoding::Exact, 16).bytes();
    // In a slice, across the border of two, and in the last one; while it is being pinned, and after.
    for wait in [Duration::ZERO, Duration::from_millis(200)] {
        let held = memory.clone() as Arc<dyn Memory>;
        let pins = pools.copier().pin("test", &held).expect("host memory can be pinned");
        std::thread::sleep(wait);
        for at in [64, SLICE - 100, 2 * SLICE + 5] {
            assert!(launches_direct(&pools, &memory, at) == pools.bytes[..len], "at {at}");
        }
        drop(pins);
        // It is the system's again.
        assert!(launches_direct(&pools, &memory, 64) == pools.bytes[..len]);
    }
}
