//! How fast records of a pool are copied between a card and pinned memory, by the copier that tiers and lanes use.

use crate::clock::now;
use crate::error::BenchError;
use crate::settings::CardChoice;
use domain::{Dtype, Encoding, KvGroup, KvKind, KvLayout, KvPart, ModelLayout};
use engine::cuda::{Card, CudaPool};
use kv_memory::{CopyError, CopyOrder, Frame, Memory, PoolRange, SumOf};

/// Records of an order are so many records apart: none is beside the next.
const APART: u64 = 2;
/// What the host's memory has before anything is copied.
const FILL: u8 = 0x3C;

/// Records that are copied, in the shape of Llama 3.1 8B: a block of 16 tokens with all layers is 2 MiB.
pub(crate) struct Records {
    /// Bytes of a record.
    pub(crate) bytes: u64,
    /// How many an order has.
    pub(crate) order: u64,
    /// How often each direction is taken; the best counts.
    pub(crate) samples: usize,
}

/// Takes the rates of copies out of a pool and into it, in GB/s. Errors: there is no card or no memory; bytes came
/// wrong.
pub(crate) fn measure(choice: &CardChoice, records: &Records) -> Result<(f64, f64), BenchError> {
    let card = Card::open(choice.number, choice.kernels.as_deref())?;
    let pool = CudaPool::new(&card, (records.order * APART) as usize, records.bytes as usize, part())?;
    let place = pool.place();
    let Some(device) = place.device() else { return Err(BenchError::Step("the pool has no copier".to_owned())) };
    let (copier, bytes) = (device.copier, (records.order * records.bytes) as usize);
    let ranges: Vec<PoolRange> = (0..records.order)
        .map(|at| PoolRange { at: at * APART * records.bytes, len: records.bytes as usize })
        .collect();
    let order = |frame| CopyOrder { frame, ranges: ranges.clone(), part: None, sum: SumOf::Nothing, waker: None };
    let mut frame = copier.frame(bytes).map_err(BenchError::Limits)?;
    let (mut gathered, mut scattered) = (f64::INFINITY, f64::INFINITY);
    for sample in 0..=records.samples {
        frame.fill(FILL ^ sample as u8);
        let (back, into) = timed(|| copier.scatter(order(frame), 0).wait())?;
        let mut empty = back;
        empty.fill(!FILL);
        let (back, out) = timed(|| copier.gather(order(empty)).wait())?;
        let wrong = back.iter().filter(|&&byte| byte != FILL ^ sample as u8).count() as u64;
        if wrong > 0 {
            return Err(BenchError::Wrong { what: "copied wrong bytes of records", found: wrong, expected: 0 });
        }
        frame = back;
        if sample > 0 {
            (gathered, scattered) = (gathered.min(out), scattered.min(into));
        }
    }
    let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
    Ok((rate(gathered), rate(scattered)))
}

/// Runs a copy. Returns its frame, and the seconds from its order to its end.
fn timed(copy: impl FnOnce() -> Result<kv_memory::Copied, CopyError>) -> Result<(Frame, f64), BenchError> {
    let began = now();
    let copied = copy().map_err(|error| BenchError::Step(error.to_string()))?;
    Ok((copied.frame, now().duration_since(began).as_secs_f64()))
}

/// Returns what one layer has of a block.
fn part() -> KvPart {
    let groups = vec![KvGroup { layers: vec![0], kind: KvKind::of_heads(8, 128), window: None }];
    KvLayout::whole(ModelLayout { block_tokens: 16, dtype: Dtype::Bf16, encoding: Encoding::Exact, groups }).part(0)
}
