//! How the card carries out an order to copy: by which of its means, and with which lists.

use cuda::kernels::{EncodedSection, FrameEncoding, FramedRange};
use domain::{Dtype, Encoding, KvPart};
use kv_memory::{CopyOrder, PoolRange, SumOf};

/// Ranges that a kernel takes at once.
pub(super) const RANGES_MAX: usize = 4096;

/// Ranges that are as long on average are copied one by one, by the card's copy engines: a launch costs as much as some
/// tens of KiB.
const ENGINE_BYTES_MIN: usize = 64 << 10;

/// Bytes that a warp takes of a range which need not be summed up as a whole.
const PIECE_BYTES: usize = 16 << 10;

/// Numbers that a lane reads at once: sections and groups are multiples of it.
const NUMBERS_STEP: usize = 8;
/// Groups of a section: each lane of a warp has a scale.
const GROUPS_MAX: usize = 32;
/// Where encoded bytes begin in a pool, and in a frame, is a multiple of these.
const POOL_ALIGN: u64 = 16;
const FRAME_ALIGN: usize = 4;

/// What carries an order out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// The copy engines, range by range. What is to be summed up, the host sums up.
    Engines,
    /// A kernel.
    Kernel(Lists),
    /// The copy engines, and the host encodes and sums up. The kernels cannot: the numbers are not bf16, a section has
    /// more than [`GROUPS_MAX`] groups, something begins at an odd place, or there are more than [`RANGES_MAX`] ranges.
    Host,
}

/// What a kernel is given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lists {
    pub(super) encoding: FrameEncoding,
    /// What is summed up on the card. Empty: nothing.
    pub(super) summed: Vec<FramedRange>,
    /// What is copied: the same ranges, or in pieces, if the sum is not of ranges.
    pub(super) copied: Vec<FramedRange>,
}

/// Returns how to carry out an order that was checked. A gather sums up what it copies, so it takes ranges as a whole
/// where the card sums them up.
pub(super) fn plan(order: &CopyOrder, is_gather: bool) -> Means {
    let part = order.part.filter(|part| part.encoding() != Encoding::Exact);
    // The sum of a frame of several ranges is the host's: a single warp would make it.
    let is_summed = match order.sum {
        SumOf::Nothing => false,
        SumOf::Frame => order.ranges.len() == 1,
        SumOf::Ranges => !order.ranges.is_empty(),
    };
    let bytes: usize = order.ranges.iter().map(|range| range.len).sum();
    if part.is_none() && !is_summed && (order.ranges.len() < 2 || bytes / order.ranges.len() >= ENGINE_BYTES_MIN) {
        return Means::Engines;
    }
    let otherwise = if part.is_some() { Means::Host } else { Means::Engines };
    let Some(encoding) = encoding(part) else { return Means::Host };
    let is_aligned = |range: &PoolRange| part.is_none() || range.at.is_multiple_of(POOL_ALIGN);
    if !order.ranges.iter().all(is_aligned) {
        return Means::Host;
    }
    let step = part.map_or(PIECE_BYTES, |part| (PIECE_BYTES / part.bytes()).max(1) * part.bytes());
    let (Some(whole), Some(pieces)) = (list(order, part, usize::MAX), list(order, part, step)) else {
        return otherwise;
    };
    let (summed, copied) = match (is_summed, is_gather || order.sum == SumOf::Ranges) {
        (false, _) => (Vec::new(), pieces),
        (true, true) => (whole.clone(), whole),
        (true, false) => (whole, pieces),
    };
    Means::Kernel(Lists { encoding, summed, copied })
}

/// Returns whether kernels reach a frame there that has its ranges so.
pub(super) fn is_reached(encoding: FrameEncoding, frame: u64) -> bool {
    encoding == FrameEncoding::Exact || frame.is_multiple_of(FRAME_ALIGN as u64)
}

/// Returns the ranges as kernels take them, cut at multiples of `step` bytes. `None`: too many, or too long.
fn list(order: &CopyOrder, part: Option<KvPart>, step: usize) -> Option<Vec<FramedRange>> {
    let framed = |bytes: usize| part.map_or(bytes, |part| part.stored_bytes_of(bytes));
    let (mut list, mut framed_at) = (Vec::new(), 0);
    for range in &order.ranges {
        let mut done = 0;
        loop {
            let bytes = step.min(range.len - done);
            if list.len() == RANGES_MAX {
                return None;
            }
            list.push(FramedRange {
                at: range.at + done as u64,
                bytes: u32::try_from(bytes).ok()?,
                framed_at,
                framed_bytes: u32::try_from(framed(bytes)).ok()?,
            });
            (done, framed_at) = (done + bytes, framed_at + framed(bytes) as u64);
            if done >= range.len {
                break;
            }
        }
    }
    Some(list)
}

/// Returns how the kernels know an encoding. `None`: they do not.
fn encoding(part: Option<KvPart>) -> Option<FrameEncoding> {
    let Some(part) = part else { return Some(FrameEncoding::Exact) };
    let is_known = |(numbers, group): (usize, usize)| {
        let is_even = numbers.is_multiple_of(NUMBERS_STEP) && group.is_multiple_of(NUMBERS_STEP);
        numbers == 0 || is_even && numbers.div_ceil(group) <= GROUPS_MAX
    };
    let sections = part.sections();
    let is_known = part.dtype() == Dtype::Bf16
        && part.stored_bytes().is_multiple_of(FRAME_ALIGN)
        && sections.into_iter().all(is_known);
    let of = sections.map(|(numbers, group)| EncodedSection { numbers: numbers as u32, group: group as u32 });
    match part.encoding() {
        _ if !is_known => None,
        Encoding::Exact => Some(FrameEncoding::Exact),
        Encoding::Int8 => Some(FrameEncoding::Int8(of)),
        Encoding::Fp8 => Some(FrameEncoding::Fp8(of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{KvGroup, KvKind, KvLayout, ModelLayout};
    use kv_memory::Frame;

    fn order(ranges: &[(u64, usize)], part: Option<KvPart>, sum: SumOf) -> CopyOrder {
        let ranges = ranges.iter().map(|&(at, len)| PoolRange { at, len }).collect();
        CopyOrder { frame: Frame::new(1).expect("memory"), ranges, part, sum, waker: None }
    }

    fn part(dtype: Dtype, tokens: u32) -> KvPart {
        let groups = vec![KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 64), window: None }];
        let model = ModelLayout { block_tokens: tokens, dtype, encoding: Encoding::Int8, groups };
        KvLayout::whole(model).part(0)
    }

    #[test]
    fn long_ranges_are_copied_by_engines_and_short_ones_in_one_launch() {
        let long = [(0, ENGINE_BYTES_MIN), (1 << 20, ENGINE_BYTES_MIN)];
        assert_eq!(plan(&order(&long, None, SumOf::Nothing), true), Means::Engines);
        let Means::Kernel(lists) = plan(&order(&[(0, 40_000), (1 << 20, 7)], None, SumOf::Nothing), true) else {
            panic!("a launch")
        };
        assert!(lists.summed.is_empty());
        let bytes: Vec<u32> = lists.copied.iter().map(|range| range.bytes).collect();
        assert_eq!(bytes, [16_384, 16_384, 7_232, 7], "long ones are cut");
        assert_eq!(lists.copied[3].framed_at, 40_000);
    }

    #[test]
    fn what_is_summed_up_is_whole_and_what_is_only_copied_behind_it_is_not() {
        let order = order(&[(0, 40_000)], None, SumOf::Frame);
        let lengths = |is_gather| match plan(&order, is_gather) {
            Means::Kernel(lists) => (lists.summed.len(), lists.copied.len()),
            means => panic!("{means:?}"),
        };
        assert_eq!((lengths(true), lengths(false)), ((1, 1), (1, 3)));
    }

    #[test]
    fn what_the_kernels_cannot_do_is_the_hosts() {
        let bf16 = part(Dtype::Bf16, 16);
        let len = bf16.bytes();
        let means = |ranges: &[(u64, usize)], part| plan(&order(ranges, Some(part), SumOf::Nothing), true);
        assert!(matches!(means(&[(0, len)], bf16), Means::Kernel(_)));
        assert_eq!(means(&[(0, part(Dtype::F32, 16).bytes())], part(Dtype::F32, 16)), Means::Host);
        assert_eq!(means(&[(0, part(Dtype::Bf16, 256).bytes())], part(Dtype::Bf16, 256)), Means::Host, "64 groups");
        assert_eq!(means(&[(8, len)], bf16), Means::Host);
        assert_eq!(means(&vec![(0, len); RANGES_MAX + 1], bf16), Means::Host);
    }
}
