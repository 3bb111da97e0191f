//! Keys that nobody uses: each costs its entry, and a request by another key costs the same beside many as beside few.

use crate::counting::{count, held};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use keys::{KeyEntry, KeyFile, KeyHash, Keys};

/// They fill the table of keys to the same share.
const FEW: usize = 1_250;
const MANY: usize = 10_000;
/// For a key with its limits, its tenant, its place in the table, what its requests took, and what waits for its end.
const KEY_BYTES_MAX: f64 = 1024.0;

/// What keys cost.
#[derive(Debug)]
struct Costs {
    /// Bytes that are held for a key.
    bytes: f64,
    /// Allocations and bytes of a request by one of them.
    request: (usize, usize),
}

fn costs(keys: usize) -> Costs {
    let name = |number: usize| format!("baton-{number:06}");
    let entry = |number| {
        let plain = KeyEntry::new(KeyHash::of(&name(number)), format!("tenant-{number:06}"));
        KeyEntry { requests_per_minute: 60, tokens_per_minute: 1000, concurrent: 4, ..plain }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let file = KeyFile { keys: (0..keys).map(entry).collect() };
    std::fs::write(&path, serde_json::to_vec(&file).expect("it is JSON")).expect("it is written");
    let (known, bytes) = held(|| Keys::open(&path).expect("it is a file of keys"));
    let headers = |number| {
        let value = HeaderValue::from_str(&format!("Bearer {}", name(number))).expect("ASCII");
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    };
    let request = |number: usize| {
        let (shown, mut told) = (headers(number), HeaderMap::new());
        count(|| {
            let key = known.find(&shown).expect("it is known").expect("one is needed");
            let admission = key.admit().expect("it took nothing yet");
            admission.take(10);
            key.tell(&mut told);
        })
    };
    let first = request(0);
    assert!([keys / 2, keys - 1].into_iter().all(|number| request(number) == first), "{first:?}");
    Costs { bytes: bytes as f64 / keys as f64, request: first }
}

#[test]
fn a_key_among_many_costs_what_it_costs_among_few() {
    let [few, many] = [FEW, MANY].map(costs);
    println!("{FEW} keys: {few:?}; {MANY} keys: {many:?}");
    assert!((many.bytes / few.bytes - 1.0).abs() < 0.01, "{few:?}, {many:?}");
    assert!(many.bytes < KEY_BYTES_MAX, "{many:?}");
    assert_eq!(many.request, few.request);
}
