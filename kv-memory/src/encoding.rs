//! Records, and parts of them, in the encoding of their layout, there and back, with the widest vectors that the
//! processor has. The bytes are the same with all of them.
//!
//! What an encoding is says [`domain::encoding`], whose loops are compiled here for several instruction sets; a
//! closure would be too large to be inlined into the function that has them.

use crate::checksum::{checksum, copy_summed};
use domain::{Encoding, KvLayout, KvPart};

/// Does as [`encode_record`], and returns the checksum of what it wrote; where nothing is encoded both take one pass
/// over memory.
/// Shown there.
///
/// # Panics
/// As that does.
pub fn encode_summed(layout: &KvLayout, group: usize, record: &[u8], stored: &mut [u8]) -> u64 {
    if layout.encoding == Encoding::Exact {
        return copy(record, stored);
    }
    encode_record(layout, group, record, stored);
    checksum(stored)
}

/// Does as [`decode_record`], if `sum` is the checksum of `stored`; where nothing is encoded both take one pass over
/// memory. Whether it is; where it is not, the bytes of `record` are any.
///
/// # Panics
/// As that does.
pub fn decode_summed(layout: &KvLayout, group: usize, stored: &[u8], sum: u64, record: &mut [u8]) -> bool {
    if layout.encoding == Encoding::Exact {
        return copy(stored, record) == sum;
    }
    let right = checksum(stored) == sum;
    if right {
        decode_record(layout, group, stored, record);
    }
    right
}

fn copy(from: &[u8], to: &mut [u8]) -> u64 {
    assert_eq!(from.len(), to.len(), "a record that is not encoded");
    // SAFETY: both are slices of that length, which are apart since one of them is exclusive.
    unsafe { copy_summed(from.as_ptr(), to.as_mut_ptr(), from.len()) }
}

/// Writes the record of group `group` as the tiers below the device keep it: [`KvLayout::encode`].
///
/// ```
/// use domain::{Dtype, Encoding, KvGroup, ModelLayout, KvKind, KvLayout};
///
/// let groups = vec![KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 16), window: None }];
/// let layout = KvLayout::whole(ModelLayout { block_tokens: 16, dtype: Dtype::F32, encoding: Encoding::Int8, groups });
/// let record = vec![0; layout.record_bytes(0)];
/// let mut stored = vec![0; layout.stored_bytes(0)];
/// assert!(stored.len() < record.len() / 2);
/// let sum = kv_memory::encode_summed(&layout, 0, &record, &mut stored);
/// let mut back = vec![1; record.len()];
/// assert!(kv_memory::decode_summed(&layout, 0, &stored, sum, &mut back));
/// assert_eq!(back, record);
/// // What changed meanwhile is found.
/// stored[3] ^= 1;
/// assert!(!kv_memory::decode_summed(&layout, 0, &stored, sum, &mut back));
/// ```
///
/// # Panics
/// As that does: a slice is not as long as it should be.
pub fn encode_record(layout: &KvLayout, group: usize, record: &[u8], stored: &mut [u8]) {
    layout.check_record(group, record);
    encode_parts(layout.part(group), record, stored);
}

/// Writes the record of group `group` as the device has it: [`KvLayout::decode`].
///
/// # Panics
/// As that does: a slice is not as long as it should be.
pub fn decode_record(layout: &KvLayout, group: usize, stored: &[u8], record: &mut [u8]) {
    layout.check_record(group, record);
    decode_parts(layout.part(group), stored, record);
}

/// Encodes parts: [`KvPart::encode`].
pub fn encode_parts(part: KvPart, parts: &[u8], stored: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the processor has it.
            return unsafe { encode_avx512(part, parts, stored) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            return unsafe { encode_avx2(part, parts, stored) };
        }
    }
    part.encode(parts, stored);
}

/// Writes parts as the device has them: [`KvPart::decode`].
pub fn decode_parts(part: KvPart, stored: &[u8], parts: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the processor has it.
            return unsafe { decode_avx512(part, stored, parts) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            return unsafe { decode_avx2(part, stored, parts) };
        }
    }
    part.decode(stored, parts);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn encode_avx512(part: KvPart, parts: &[u8], stored: &mut [u8]) {
    part.encode(parts, stored);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn encode_avx2(part: KvPart, parts: &[u8], stored: &mut [u8]) {
    part.encode(parts, stored);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn decode_avx512(part: KvPart, stored: &[u8], parts: &mut [u8]) {
    part.decode(stored, parts);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn decode_avx2(part: KvPart, stored: &[u8], parts: &mut [u8]) {
    part.decode(stored, parts);
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{Dtype, KvGroup, KvKind, ModelLayout};

    /// Every processor writes the same bytes, so that all of a cluster read each other's.
    #[test]
    fn vectors_make_no_difference() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            for encoding in [Encoding::Exact, Encoding::Int8, Encoding::Fp8] {
                let groups = vec![KvGroup { layers: vec![0, 1], kind: KvKind::of_heads(2, 67), window: None }];
                let layout = KvLayout::whole(ModelLayout { block_tokens: 18, dtype, encoding, groups });
                let mut state = 7_u32;
                let mut draw = || {
                    state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
                    (state >> 24) as u8
                };
                let mut record: Vec<u8> = (0..layout.record_bytes(0)).map(|_| draw()).collect();
                // Numbers of about the same size, in any format, but for one that is infinite.
                let high = record.iter_mut().skip(dtype.bytes() - 1).step_by(dtype.bytes());
                high.for_each(|byte| *byte = 0x3C | *byte & 0x83);
                let infinite: &[u8] = match dtype {
                    Dtype::F32 => &[0, 0, 0x80, 0x7F],
                    Dtype::F16 => &[0, 0x7C],
                    Dtype::Bf16 => &[0x80, 0x7F],
                };
                record[..infinite.len()].copy_from_slice(infinite);
                let (mut stored, mut plain) = (vec![0; layout.stored_bytes(0)], vec![1; layout.stored_bytes(0)]);
                encode_record(&layout, 0, &record, &mut stored);
                layout.encode(0, &record, &mut plain);
                assert_eq!(stored, plain, "{dtype:?} {encoding}");
                let sum = encode_summed(&layout, 0, &record, &mut plain);
                assert_eq!((sum, &plain), (checksum(&stored), &stored), "{dtype:?} {encoding}");
                let (mut back, mut plain) = (vec![0; record.len()], vec![1; record.len()]);
                decode_record(&layout, 0, &stored, &mut back);
                layout.decode(0, &stored, &mut plain);
                assert_eq!(back, plain, "{dtype:?} {encoding}");
                assert!(decode_summed(&layout, 0, &stored, sum, &mut plain) && back == plain, "{dtype:?} {encoding}");
                assert!(!decode_summed(&layout, 0, &stored, sum ^ 1, &mut plain), "{dtype:?} {encoding}");
            }
        }
    }
}
