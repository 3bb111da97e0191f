//! How fast records are encoded and decoded by one thread, as the thread of a tier does it, beside plain copies of
//! them.

use domain::{Dtype, KvLayout, ModelLayout};
use std::error::Error;
use std::time::Instant;
use transport::{SealedMemory, decode_record, encode_record, encode_summed};

/// Bytes of records, so that no cache has the next one.
const BYTES: usize = 256 << 20;
/// The best of so many passes counts.
const PASSES: usize = 5;

/// Prints GB/s, counted in bytes of the device.
pub(super) fn run(layout: &KvLayout) -> Result<(), Box<dyn Error>> {
    println!(
        "\nGB/s of one thread, in bytes of the device's records of {} KiB ({:?})",
        layout.record_bytes(0) >> 10,
        layout.dtype
    );
    println!("| KV | as | there | and its checksum | back |");
    println!("| --- | --- | --- | --- | --- |");
    let (records, kept) = (SealedMemory::new("bench-records", BYTES)?, SealedMemory::new("bench-kept", BYTES)?);
    // SAFETY: both are that long and this function's alone.
    let (records, kept) = unsafe {
        let records = std::slice::from_raw_parts_mut(records.as_ptr(), BYTES);
        (records, std::slice::from_raw_parts_mut(kept.as_ptr(), BYTES))
    };
    for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32] {
        for encoding in super::ENCODINGS {
            let layout = KvLayout::whole(ModelLayout { encoding, dtype, ..layout.model().clone() });
            let (record, stored) = (layout.record_bytes(0), layout.stored_bytes(0));
            // Numbers of about the same size, in any format.
            let numbers = records.as_chunks_mut::<4>().0.iter_mut().enumerate();
            numbers.for_each(|(at, number)| *number = [(at * 7) as u8, 0x3C | at as u8 & 0x83, (at * 3) as u8, 0x3C]);
            kept.fill(1);
            let mut passes = [f64::MAX; 3];
            for _ in 0..PASSES {
                let took = [
                    seconds(|| {
                        let all = records.chunks_exact(record).zip(kept.chunks_exact_mut(stored));
                        all.for_each(|(record, stored)| encode_record(&layout, 0, record, stored));
                    }),
                    seconds(|| {
                        let all = records.chunks_exact(record).zip(kept.chunks_exact_mut(stored));
                        let sum = |(record, stored): (&[u8], &mut [u8])| encode_summed(&layout, 0, record, stored);
                        std::hint::black_box(all.map(sum).fold(0, u64::wrapping_add));
                    }),
                    seconds(|| {
                        let all = kept.chunks_exact(stored).zip(records.chunks_exact_mut(record));
                        all.for_each(|(stored, record)| decode_record(&layout, 0, stored, record));
                    }),
                ];
                passes.iter_mut().zip(took).for_each(|(best, took)| *best = best.min(took));
            }
            let bytes = (BYTES / record * record) as f64;
            let [there, summed, back] = passes.map(|seconds| format!("{:.1}", bytes / seconds / 1e9));
            println!("| {dtype:?} | {encoding} | {there} | {summed} | {back} |");
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn seconds(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}
