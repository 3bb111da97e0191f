//! Ranges of a pool in frames: the same bytes and checksums as the host's, and the same way back.

use cuda::Pinned;
use cuda::kernels::{EncodedSection, ExpectedSum, FrameEncoding, FramedRange, Ranges, RangesArgs};
use domain::{Dtype, Encoding, KvGroup, KvKind, KvLayout, KvPart, ModelLayout};
use proptest::prelude::*;
use tests_cuda::{Buffer, Draw, Gpu};

/// Bytes of a pool and how frames have them.
struct Case {
    pool: Vec<u8>,
    ranges: Vec<FramedRange>,
    encoding: FrameEncoding,
    part: Option<KvPart>,
}

impl Case {
    /// What the frame is to have; between ranges, what it had.
    fn frame(&self) -> Vec<u8> {
        let end = self.ranges.iter().map(|range| range.framed_at as usize + range.framed_bytes as usize).max();
        let mut frame = vec![0xFF; end.unwrap_or(0) + 40];
        for range in &self.ranges {
            let from = &self.pool[range.at as usize..][..range.bytes as usize];
            let to = &mut frame[range.framed_at as usize..][..range.framed_bytes as usize];
            match self.part {
                Some(part) => part.encode(from, to),
                None => to.copy_from_slice(from),
            }
        }
        frame
    }

    /// What the pool is to have once a frame was scattered to a pool of 0xFF.
    fn scattered(&self, frame: &[u8]) -> Vec<u8> {
        let mut pool = vec![0xFF; self.pool.len()];
        for range in &self.ranges {
            let from = &frame[range.framed_at as usize..][..range.framed_bytes as usize];
            let to = &mut pool[range.at as usize..][..range.bytes as usize];
            match self.part {
                Some(part) => part.decode(from, to),
                None => to.copy_from_slice(from),
            }
        }
        pool
    }

    fn sums(&self, frame: &[u8]) -> Vec<u64> {
        let own = |range: &FramedRange| &frame[range.framed_at as usize..][..range.framed_bytes as usize];
        self.ranges.iter().map(|range| kv_memory::checksum(own(range))).collect()
    }

    fn args(&self, pool: &Buffer<u8>, frame: u64, list: &Buffer<u64>, sums: u64) -> RangesArgs {
        RangesArgs {
            pool: pool.address(),
            frame,
            ranges: list.address(),
            count: self.ranges.len() as u32,
            encoding: self.encoding,
            sums,
        }
    }

    /// There and back, in device memory.
    fn check(&self) {
        let Some(gpu) = Gpu::open() else { return };
        let kernels = Ranges::load(&gpu.loader).expect("the kernels");
        let words: Vec<u64> = self.ranges.iter().flat_map(|range| range.words()).chain([u64::MAX; 3]).collect();
        let (pool, list) = (gpu.upload(&self.pool), gpu.upload(&words));
        let exact = self.frame();
        let (frame, sums) = (gpu.empty::<u8>(exact.len()), gpu.empty::<u64>(self.ranges.len()));
        let args = self.args(&pool, frame.address(), &list, sums.address());
        // SAFETY: the ranges are inside both.
        unsafe { kernels.gather(&gpu.stream, &args) }.expect("a launch");
        assert!(frame.read() == exact, "what was gathered");
        assert_eq!(sums.read(), self.sums(&exact), "the sums of what was gathered");

        // Without sums the bytes are the same.
        let again = gpu.empty::<u8>(exact.len());
        let args = RangesArgs { frame: again.address(), sums: 0, ..args };
        // SAFETY: as above.
        unsafe { kernels.gather(&gpu.stream, &args) }.expect("a launch");
        assert!(again.read() == exact, "what was gathered without sums");

        let (back, sums) = (gpu.empty::<u8>(self.pool.len()), gpu.empty::<u64>(self.ranges.len()));
        let refused = gpu.upload(&[0_u32]);
        let args = self.args(&back, frame.address(), &list, sums.address());
        // SAFETY: as above.
        unsafe { kernels.sum(&gpu.stream, &args) }.expect("a launch");
        assert_eq!(sums.read(), self.sums(&exact), "the sums of what is to be scattered");
        let sum = self.sums(&exact).into_iter().fold(0, kv_memory::fold);
        let expected = ExpectedSum::Ranges(sum ^ 1);
        // SAFETY: as above.
        unsafe { kernels.scatter(&gpu.stream, &args, expected, refused.address()) }.expect("a launch");
        assert_eq!((back.read(), refused.read()), (vec![0xFF; self.pool.len()], vec![1]), "other bytes are refused");
        let (refused, expected) = (gpu.upload(&[0_u32]), ExpectedSum::Ranges(sum));
        // SAFETY: as above.
        unsafe { kernels.scatter(&gpu.stream, &args, expected, refused.address()) }.expect("a launch");
        assert!(back.read() == self.scattered(&exact), "what was scattered");
        assert_eq!(refused.read(), [0]);
    }
}

/// Places of ranges with these lengths in the pool and in the frame, with some steps between them, and the bytes of the
/// pool.
fn place(
    draw: &mut Draw,
    lengths: &[(usize, usize)],
    pool_step: usize,
    frame_step: usize,
) -> (usize, Vec<FramedRange>) {
    let (mut at, mut framed_at) = (0, 0);
    let mut ranges = Vec::new();
    for &(bytes, framed_bytes) in lengths {
        at += draw.below(4) * pool_step;
        framed_at += draw.below(4) * frame_step;
        let (bytes, framed_bytes) = (bytes as u32, framed_bytes as u32);
        ranges.push(FramedRange { at: at as u64, bytes, framed_at: framed_at as u64, framed_bytes });
        at += bytes as usize;
        framed_at += framed_bytes as usize;
    }
    (at, ranges)
}

/// Numbers as records have them: most of one size, groups of zeros, of tiny numbers, and some with what is not finite.
fn record(draw: &mut Draw, numbers: usize) -> Vec<u8> {
    let mut scale = 1.0;
    let mut number = |i: usize| {
        if i.is_multiple_of(64) {
            scale = [1.0, 1.0, 100.0, 1e-3, 0.0, 1e-30, 1e-37, 1e37][draw.below(8)];
        }
        match draw.below(3000) {
            0 => half::bf16::INFINITY,
            1 => half::bf16::NAN,
            _ => half::bf16::from_f32(draw.normal() * scale),
        }
    };
    (0..numbers).flat_map(|i| number(i).to_le_bytes()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn any_bytes_are_copied_and_summed_up(
        seed: u64, step in prop_oneof![Just(1_usize), Just(4), Just(16)],
        lengths in proptest::collection::vec(prop_oneof![0usize..40, 500usize..5000], 1..20),
    ) {
        let mut draw = Draw::new(seed);
        let lengths = lengths.into_iter().map(|len| len.next_multiple_of(step));
        let lengths: Vec<(usize, usize)> = lengths.map(|len| (len, len)).collect();
        let (bytes, ranges) = place(&mut draw, &lengths, step, step);
        let pool = (0..bytes).map(|_| draw.bits() as u8).collect();
        Case { pool, ranges, encoding: FrameEncoding::Exact, part: None }.check();
    }

    #[test]
    fn encoded_parts_are_the_hosts(
        seed: u64, tokens in prop_oneof![Just(8_u32), Just(16)], eighths in 1u32..9, more in 0u32..4,
        is_latent: bool, parts in proptest::collection::vec(1usize..4, 1..6),
    ) {
        let (dim, other) = (8 * eighths, 8 * more);
        let (kind, sections) = if is_latent {
            let section = |numbers| EncodedSection { numbers, group: numbers };
            (KvKind::Latent { width: dim, rope: other }, [section(dim), section(other)])
        } else {
            let section = |dim| EncodedSection { numbers: tokens * dim, group: 4 * dim };
            // Keys and values of the same width are parts of their own.
            let second = if more == 0 { EncodedSection::default() } else { section(dim + other) };
            (KvKind::Heads { heads: 1, k_dim: dim, v_dim: dim + other }, [section(dim), second])
        };
        let int8 = (Encoding::Int8, FrameEncoding::Int8(sections));
        for (encoding, form) in [int8, (Encoding::Fp8, FrameEncoding::Fp8(sections))] {
            let groups = vec![KvGroup { layers: vec![0], kind, window: None }];
            let model = ModelLayout { block_tokens: tokens, dtype: Dtype::Bf16, encoding, groups };
            let part = KvLayout::whole(model).part(0);
            let bytes = |count: &usize| (count * part.bytes(), count * part.stored_bytes());
            let lengths: Vec<(usize, usize)> = parts.iter().map(bytes).collect();
            let mut draw = Draw::new(seed);
            let (bytes, ranges) = place(&mut draw, &lengths, 16, 4);
            let pool = record(&mut draw, bytes / 2);
            Case { pool, ranges, encoding: form, part: Some(part) }.check();
        }
    }
}

#[test]
fn more_ranges_than_warps_are_taken_and_frames_may_be_the_hosts() {
    let Some(gpu) = Gpu::open() else { return };
    const COUNT: usize = 300;
    const BYTES: usize = 64;
    let mut draw = Draw::new(5);
    let pool: Vec<u8> = (0..COUNT * BYTES).map(|_| draw.bits() as u8).collect();
    let range = |i: usize| FramedRange {
        at: ((COUNT - 1 - i) * BYTES) as u64,
        bytes: BYTES as u32,
        framed_at: (i * BYTES) as u64,
        framed_bytes: BYTES as u32,
    };
    let ranges = (0..COUNT).map(range).collect();
    let case = Case { pool, ranges, encoding: FrameEncoding::Exact, part: None };
    case.check();
    let kernels = Ranges::load(&gpu.loader).expect("the kernels");
    let frame = Pinned::new(gpu.context(), COUNT * BYTES).expect("memory");
    let words: Vec<u64> = case.ranges.iter().flat_map(|range| range.words()).collect();
    let (pool, list) = (gpu.upload(&case.pool), gpu.upload(&words));
    // SAFETY: the ranges are inside both.
    unsafe { kernels.gather(&gpu.stream, &case.args(&pool, frame.device_address(), &list, 0)) }.expect("a launch");
    gpu.stream.synchronize().expect("what was queued");
    // SAFETY: the frame is this test's, and nothing writes it any more.
    let gathered = unsafe { std::slice::from_raw_parts(frame.as_ptr(), frame.len()) };
    let exact = &case.frame()[..COUNT * BYTES];
    assert!(gathered == exact);

    // The sum of the frame as a whole, which is one range.
    let whole = FramedRange { at: 0, bytes: 0, framed_at: 0, framed_bytes: (COUNT * BYTES) as u32 };
    let (one, sums, refused) = (gpu.upload(&whole.words()), gpu.empty::<u64>(1), gpu.upload(&[0_u32]));
    let back = gpu.empty::<u8>(case.pool.len());
    let args = case.args(&back, frame.device_address(), &list, sums.address());
    let sum = kv_memory::checksum(exact);
    // SAFETY: as above.
    unsafe { kernels.sum(&gpu.stream, &RangesArgs { ranges: one.address(), count: 1, ..args }) }.expect("a launch");
    assert_eq!(sums.read(), [sum]);
    for (expected, is_written) in [(!sum, false), (sum, true)] {
        let expected = ExpectedSum::Frame(expected);
        // SAFETY: as above.
        unsafe { kernels.scatter(&gpu.stream, &args, expected, refused.address()) }.expect("a launch");
        assert_eq!(back.read() == case.pool, is_written);
    }
    assert_eq!(refused.read(), [1]);
}
