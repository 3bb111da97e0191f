//! What a fuzzer feeds here; see `crate::fuzzing`.

use super::series::{SERIES_BYTES, Series};
use super::wire::{Answer, Asked, PIECE_BYTES_MAX, REQUEST_HEAD, REQUEST_SERIES_MAX, RUN_HEAD, RunHead};

/// Bytes of a region that is asked for.
const REGION: u64 = 1 << 40;

/// What comes over a connection for bytes, wherever it begins: requests, their series, and answers.
pub(crate) fn wire(bytes: &[u8]) {
    for head in bytes.windows(REQUEST_HEAD).filter_map(|window| window.first_chunk()) {
        if let Some(asked) = Asked::decode(head) {
            assert_eq!(Asked::decode(&asked.encode()), Some(asked));
            assert!(asked.body() <= REQUEST_SERIES_MAX * SERIES_BYTES);
        }
    }
    for series in bytes.windows(SERIES_BYTES).filter_map(|window| window.first_chunk()) {
        let series = Series::decode(series);
        assert_eq!(Series::decode(&series.encode()), series);
        if series.fits(REGION, PIECE_BYTES_MAX) {
            for n in [0, series.count / 2, series.count - 1] {
                assert!(series.at(n) + u64::from(series.len) <= REGION, "piece {n} of {series:?}");
            }
        }
    }
    for head in bytes.windows(RUN_HEAD).filter_map(|window| window.first_chunk()) {
        if let Some(answer) = Answer::decode(head) {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }
}

/// Returns what is said on good days.
pub(crate) fn seeds() -> [Vec<u8>; 3] {
    let read = Asked::Read { transfer: 1, gate: 2, region: 3, first: 4, series: 1, checksums: true, part: None };
    let encoded = Asked::Read { transfer: 1, gate: 0, region: 3, first: 4, series: 1, checksums: true, part: Some(6) };
    let series = Series { from: 4096, stride: 8192, len: 512, count: 1000 };
    let run = RunHead { transfer: 1, first: 2, count: 3, len: 4, sum: 5 };
    let asked = [read.encode().as_slice(), &series.encode(), &Asked::Cancel { transfer: 1 }.encode()].concat();
    let asked_encoded = [encoded.encode().as_slice(), &series.encode()].concat();
    [asked, asked_encoded, [Answer::Run(run).encode(), Answer::Refused { transfer: 1 }.encode()].concat()]
}
