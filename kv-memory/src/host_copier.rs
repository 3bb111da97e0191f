//! The copier of memory that is the host's in truth.

use crate::copier::{CopyError, CopyOrder, FetchOrder, FetchRange, PoolRange, SumOf};
use crate::copier_threads::{CopierDevice, CopierThreads, Hand};
use crate::copy::{copy_racing, copy_racing_cached};
use crate::device::{DeviceFile, DeviceId, DeviceKind};
use crate::encoding::{decode_parts, encode_parts};
use crate::peer_mapping::PeerMapping;
use crate::peer_memory::PeerMemory;
use crate::writable_mapping::WritableMapping;
use domain::KvPart;
use std::io;
use std::sync::Arc;

/// Bytes of the pool that are encoded or decoded at once, from a cache.
const STEP_BYTES: usize = 16 << 10;

/// The device that it copies for.
pub(crate) const DEVICE: DeviceId = DeviceId(0);
/// What drives that device.
pub(crate) const KIND: DeviceKind = DeviceKind::Guarded;

/// The processor, as if it were a device.
pub(crate) struct HostDevice;

/// Starts the copier of a pool. Errors: of the system.
pub(crate) fn start(pool: &Arc<WritableMapping>) -> io::Result<CopierThreads<HostDevice>> {
    let hand = || HostHand { pool: pool.clone(), step: Vec::new() };
    CopierThreads::start("baton", HostDevice, pool.len(), [hand(), hand()])
}

impl CopierDevice for HostDevice {
    fn kind(&self) -> DeviceKind {
        KIND
    }

    fn id(&self) -> DeviceId {
        DEVICE
    }

    fn import(&self, exported: DeviceFile<'_>, len: usize) -> io::Result<Arc<PeerMemory>> {
        let mapping = PeerMapping::new(exported.file, exported.offset, len).map_err(io::Error::other)?;
        let address = mapping.as_ptr().expose_provenance() as u64;
        // SAFETY: the mapping has so many bytes from there on, and stays valid memory whatever becomes of its owner.
        Ok(Arc::new(unsafe { PeerMemory::new(KIND, DEVICE, address, len, Box::new(mapping)) }))
    }
}

/// What copies. An order has happened when it has begun; what is known of it then is its sum.
struct HostHand {
    pool: Arc<WritableMapping>,
    /// Parts on their way between the pool and the frame; and where nothing lies.
    step: Vec<u8>,
}

/// Returns where the bytes of a peer's memory begin at `at` in it.
fn within(source: &PeerMemory, at: u64) -> *const u8 {
    std::ptr::with_exposed_provenance::<u8>(source.address() as usize).wrapping_add(at as usize)
}

impl Hand for HostHand {
    const AT_ONCE: usize = 1;

    type Begun = u64;

    unsafe fn gather(&mut self, order: &mut CopyOrder, bytes: usize) -> Result<u64, CopyError> {
        let mut end = 0;
        for at in 0..order.ranges.len() {
            let range = order.ranges[at];
            let begin = end;
            end += order.framed_bytes(range);
            self.gather_range(range, order.part, &mut order.frame[begin..end]);
        }
        Ok(order.sum(bytes))
    }

    unsafe fn scatter(&mut self, order: &CopyOrder, bytes: usize, sum: u64) -> Result<u64, CopyError> {
        if order.sum != SumOf::Nothing && order.sum(bytes) != sum {
            return Err(CopyError::Checksum);
        }
        let mut end = 0;
        for &range in &order.ranges {
            let begin = end;
            end += order.framed_bytes(range);
            self.scatter_range(&order.frame[begin..end], range, order.part);
        }
        Ok(sum)
    }

    unsafe fn fetch(&mut self, order: &FetchOrder) -> Result<u64, CopyError> {
        for &FetchRange { from, to, len } in &order.ranges {
            let to = self.pool.as_ptr().wrapping_add(to as usize);
            // SAFETY: both ranges are inside their memory, which the order and this thread hold, and nobody else uses
            // what is fetched to.
            unsafe { copy_racing(within(&order.source, from), to, len) };
        }
        Ok(0)
    }

    unsafe fn try_out(&mut self, source: &PeerMemory, len: usize) -> Result<u64, CopyError> {
        self.step.resize(len.max(self.step.len()), 0);
        // SAFETY: the peer's memory has so many bytes and is held, and the others are the thread's own.
        unsafe { copy_racing(within(source, 0), self.step.as_mut_ptr(), len) };
        Ok(0)
    }

    fn end(&mut self, sum: u64, _: Option<&mut CopyOrder>) -> Result<u64, CopyError> {
        Ok(sum)
    }
}

impl HostHand {
    /// Copies a range of the pool to its place in a frame, which is as long.
    fn gather_range(&mut self, range: PoolRange, part: Option<KvPart>, to: &mut [u8]) {
        let from = self.pool.as_ptr().wrapping_add(range.at as usize);
        let Some(part) = part else {
            // SAFETY: the range is inside the pool, and the frame is its holder's alone.
            return unsafe { copy_racing(from, to.as_mut_ptr(), range.len) };
        };
        let mut rest = to;
        for (at, len) in steps(part, range.len) {
            self.step.resize(len, 0);
            // SAFETY: as above, for the thread's own bytes.
            unsafe { copy_racing_cached(from.wrapping_add(at), self.step.as_mut_ptr(), len) };
            let (encoded, after) = rest.split_at_mut(part.stored_bytes_of(len));
            encode_parts(part, &self.step, encoded);
            rest = after;
        }
    }

    /// Copies what a frame has of a range to the pool.
    fn scatter_range(&mut self, from: &[u8], range: PoolRange, part: Option<KvPart>) {
        let to = self.pool.as_ptr().wrapping_add(range.at as usize);
        let Some(part) = part else {
            // SAFETY: the range is inside the pool, and nobody else uses what is scattered to.
            return unsafe { copy_racing(from.as_ptr(), to, range.len) };
        };
        let mut rest = from;
        for (at, len) in steps(part, range.len) {
            let (encoded, after) = rest.split_at(part.stored_bytes_of(len));
            self.step.resize(len, 0);
            decode_parts(part, encoded, &mut self.step);
            // SAFETY: as above.
            unsafe { copy_racing_cached(self.step.as_ptr(), to.wrapping_add(at), len) };
            rest = after;
        }
    }
}

/// Cuts so many bytes, which are whole parts, into steps: where each begins, and its bytes.
fn steps(part: KvPart, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let step = (STEP_BYTES / part.bytes()).max(1) * part.bytes();
    (0..len).step_by(step).map(move |at| (at, step.min(len - at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::{checksum, fold};
    use crate::copier::Copier;
    use crate::frame::Frame;
    use domain::{Dtype, Encoding, KvGroup, KvKind, KvLayout, ModelLayout};
    use proptest::prelude::*;
    use std::sync::mpsc::sync_channel;

    const POOL: usize = 96 << 10;

    fn part(encoding: Encoding) -> KvPart {
        let groups = vec![KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 16), window: None }];
        KvLayout::whole(ModelLayout { block_tokens: 16, dtype: Dtype::F32, encoding, groups }).part(0)
    }

    fn order(frame: Frame, ranges: &[PoolRange], part: Option<KvPart>, sum: SumOf) -> CopyOrder {
        CopyOrder { frame, ranges: ranges.to_vec(), part, sum, waker: None }
    }

    fn pool() -> (Arc<WritableMapping>, impl Copier) {
        let pool = Arc::new(WritableMapping::new(POOL, None::<std::os::fd::BorrowedFd<'_>>).expect("memory"));
        let copier = start(&pool).expect("threads");
        (pool, copier)
    }

    #[allow(clippy::mut_from_ref)]
    fn bytes(pool: &WritableMapping) -> &mut [u8] {
        // SAFETY: the pool is that long, and no order is under way.
        unsafe { std::slice::from_raw_parts_mut(pool.as_ptr(), POOL) }
    }

    /// Returns the ranges of a pool as a frame has them.
    fn framed(pool: &[u8], ranges: &[PoolRange], encoded: Option<KvPart>) -> Vec<u8> {
        let mut wanted = Vec::new();
        for range in ranges {
            let raw = &pool[range.at as usize..][..range.len];
            match encoded {
                None => wanted.extend_from_slice(raw),
                Some(part) => {
                    let begin = wanted.len();
                    wanted.resize(begin + part.stored_bytes_of(raw.len()), 0);
                    part.encode(raw, &mut wanted[begin..]);
                }
            }
        }
        wanted
    }

    /// Returns the checksum of a frame.
    fn summed(framed: &[u8], ranges: &[PoolRange], encoded: Option<KvPart>, sum: SumOf) -> u64 {
        let each = ranges.iter().scan(0, |end, range| {
            let begin = *end;
            *end += encoded.map_or(range.len, |part| part.stored_bytes_of(range.len));
            Some(checksum(&framed[begin..*end]))
        });
        match sum {
            SumOf::Nothing => 0,
            SumOf::Frame => checksum(framed),
            SumOf::Ranges => each.fold(0, fold),
        }
    }

    /// Returns a pool with these ranges out of a frame.
    fn spread(mut pool: Vec<u8>, framed: &[u8], ranges: &[PoolRange], encoded: Option<KvPart>) -> Vec<u8> {
        let mut rest = framed;
        for range in ranges {
            let there = &mut pool[range.at as usize..][..range.len];
            let (own, others) = rest.split_at(encoded.map_or(range.len, |part| part.stored_bytes_of(range.len)));
            match encoded {
                None => there.copy_from_slice(own),
                Some(part) => part.decode(own, there),
            }
            rest = others;
        }
        pool
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// What is gathered and scattered elsewhere is what encoding and decoding make of it, whatever the ranges.
        #[test]
        fn gathered_and_scattered_is_encoded_and_decoded(
            lens in proptest::collection::vec(1..20_usize, 1..5), seed in any::<u8>(),
            encoding in prop_oneof![Just(None), Just(Some(Encoding::Int8)), Just(Some(Encoding::Fp8))],
            sum in prop_oneof![Just(SumOf::Nothing), Just(SumOf::Frame), Just(SumOf::Ranges)],
        ) {
            let (encoded, unit) = (encoding.map(part), part(Encoding::Int8).bytes());
            let (pool, copier) = pool();
            for (at, number) in bytes(&pool).chunks_exact_mut(4).enumerate() {
                number.copy_from_slice(&((at as f32 * 0.37 + f32::from(seed)).sin() * 9.0).to_le_bytes());
            }
            // From the upper half to the lower one.
            let mut at = POOL as u64 / 2;
            let mut from = Vec::new();
            for len in lens {
                let len = len * unit;
                if at as usize + len <= POOL {
                    from.push(PoolRange { at, len });
                }
                at += len as u64 + unit as u64;
            }
            let to: Vec<_> = from.iter().map(|range| PoolRange { at: range.at - POOL as u64 / 2, ..*range }).collect();
            let before = bytes(&pool).to_vec();
            let frame = copier.frame(POOL).expect("memory");
            let gathered = copier.gather(order(frame, &from, encoded, sum)).wait().expect("it is sound");
            let wanted = framed(&before, &from, encoded);
            prop_assert!(gathered.frame[..gathered.bytes] == wanted[..]);
            let expected = summed(&wanted, &from, encoded, sum);
            prop_assert_eq!(gathered.sum, expected);

            if sum != SumOf::Nothing {
                let mut wrong = copier.frame(POOL).expect("memory");
                wrong[..wanted.len()].copy_from_slice(&wanted);
                wrong[wanted.len() / 2] ^= 1;
                let refused = copier.scatter(order(wrong, &to, encoded, sum), expected).wait();
                prop_assert_eq!(refused.err(), Some(CopyError::Checksum));
                prop_assert!(bytes(&pool) == before, "nothing is written of what is damaged");
            }
            copier.scatter(order(gathered.frame, &to, encoded, sum), expected).wait().expect("it is sound");
            let after = spread(before, &wanted, &to, encoded);
            prop_assert!(bytes(&pool) == after);
        }
    }

    #[test]
    fn one_direction_does_not_wait_for_the_other() {
        let (_pool, copier) = pool();
        // The gather's waker keeps its thread until a scatter has ended.
        let (release, held) = sync_channel::<()>(0);
        let held = std::sync::Mutex::new(held);
        let waker = Arc::new(move || {
            let _ = held.lock().expect("nobody panics").recv();
        });
        let range = [PoolRange { at: 0, len: 64 }];
        let frame = || Frame::new(64).expect("memory");
        let gather = copier.gather(CopyOrder { waker: Some(waker), ..order(frame(), &range, None, SumOf::Nothing) });
        copier.scatter(order(frame(), &range, None, SumOf::Nothing), 0).wait().expect("it is sound");
        drop(release);
        gather.wait().expect("it is sound");
    }
}
