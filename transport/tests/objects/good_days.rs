//! What works when the store does.

use crate::bench::{Bench, PART, POSTED_MAX, config, delete, look, pattern, read, read_pieces, write};
use crate::store::Store;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use transport::{ObjectOutcome, ObjectPiece, ObjectWork, PostError};

#[test]
fn what_is_written_is_read() {
    let store = Store::start();
    let bench = Bench::new(config(store.address));
    for (key, len) in [("small/one", 1000), ("small/part", PART), ("large/parts", 2 * PART + 4321), ("empty", 0)] {
        assert_eq!(bench.outcome(look(key)), ObjectOutcome::Missing);
        assert_eq!(bench.outcome(read(key, 0, 8)), ObjectOutcome::Missing);
        assert_eq!(bench.put(key, len, pattern), ObjectOutcome::Written);
        assert_eq!(bench.outcome(look(key)), ObjectOutcome::Present(len as u64));
        bench.fill(len..2 * len, |_| 0);
        let report = bench.done(read(key, len, len)).expect("it is there");
        assert_eq!((report.outcome, report.bytes), (ObjectOutcome::Read, len as u64));
        assert_eq!(report.requests, len.div_ceil(PART) as u32, "of {key}");
        assert!(bench.bytes(len..2 * len).iter().enumerate().all(|(at, byte)| *byte == pattern(at)), "of {key}");
    }
    // A key is written once, in one request or in several.
    for (key, len) in [("small/one", 1000), ("large/parts", 2 * PART + 4321)] {
        assert_eq!(bench.put(key, len, |_| 7), ObjectOutcome::Existed);
        assert_eq!(bench.outcome(read(key, 0, len)), ObjectOutcome::Read);
        assert!(bench.bytes(0..len).iter().enumerate().all(|(at, byte)| *byte == pattern(at)), "of {key}");
    }
    for _ in 0..2 {
        assert_eq!(bench.outcome(delete("small/one")), ObjectOutcome::Deleted);
    }
    assert_eq!(bench.outcome(look("small/one")), ObjectOutcome::Missing);
}

#[test]
fn what_is_there_is_listed_in_order_from_anywhere_on() {
    let store = Store::start();
    let bench = Bench::new(config(store.address));
    let keys: Vec<String> = (0..7).map(|n| format!("some/{n}/object")).collect();
    for key in keys.iter().rev().map(String::as_str).chain(["other/object", "some-more/object"]) {
        assert_eq!(bench.put(key, 10, pattern), ObjectOutcome::Written);
    }
    let list = |prefix: &str, after: Option<&String>, keys_max| {
        let work = ObjectWork::List { prefix: prefix.to_owned(), after: after.cloned(), keys_max };
        let ObjectOutcome::Listed(objects) = bench.outcome(work) else { panic!("it lists") };
        assert!(objects.iter().all(|object| object.bytes == 10), "{objects:?}");
        objects.into_iter().map(|object| object.key).collect::<Vec<_>>()
    };
    assert_eq!(list("some", None, 100), keys);
    assert_eq!(list("some", None, 3), keys[..3]);
    assert_eq!(list("some", Some(&keys[2]), 3), keys[3..6]);
    assert_eq!(list("some", Some(&keys[5]), 3), keys[6..]);
    assert_eq!(list("some", Some(&keys[6]), 3), [""; 0]);
    assert_eq!(list("nothing", None, 3), [""; 0]);
}

#[test]
fn pieces_come_from_where_they_are_to_where_they_belong() {
    const OBJECT: usize = PART + 70_000;
    let store = Store::start();
    let bench = Bench::new(config(store.address));
    bench.put("object", OBJECT, pattern);
    // In slots of the memory of their own, so that no two meet.
    let piece = (0..OBJECT - 200_000, 1..200_000_usize, 0..1000_usize);
    let pieces = proptest::collection::vec(piece, 1..12);
    let cases = ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() };
    let run = |pieces: Vec<(usize, usize, usize)>| {
        let slot = |n: usize| n * 202_000..(n + 1) * 202_000;
        bench.fill(0..slot(pieces.len()).start, |_| 0);
        let place = |(n, &(object, len, at)): (usize, &(usize, usize, usize))| ObjectPiece {
            object: object as u64,
            memory: (slot(n).start + at) as u64,
            len,
        };
        let asked: Vec<_> = pieces.iter().enumerate().map(place).collect();
        assert_eq!(bench.outcome(read_pieces("object", &asked)), ObjectOutcome::Read);
        for (n, (object, len, at)) in pieces.into_iter().enumerate() {
            for (offset, byte) in bench.bytes(slot(n)).iter().enumerate() {
                let inside = (at..at + len).contains(&offset);
                let expected = if inside { pattern(object + offset - at) } else { 0 };
                assert_eq!(*byte, expected, "piece {n}, byte {offset}");
            }
        }
        Ok(())
    };
    TestRunner::new(cases).run(&pieces, run).expect("every case holds");
}

#[test]
fn transfers_are_under_way_together_and_their_number_is_bounded() {
    let store = Store::start();
    let bench = Bench::new(config(store.address));
    bench.fill(0..1000, pattern);
    let mut posted: Vec<_> = (0..POSTED_MAX).map(|n| bench.post(write(&format!("k{n}"), 1000))).collect();
    let one_more = bench.mover.prepare(write("k", 1000)).expect("it is sound");
    // Requests take milliseconds; that many have not all ended yet, or there is room again.
    match bench.mover.post(&one_more) {
        Err(PostError::Full(POSTED_MAX)) => {}
        Ok(id) => posted.push(id),
        Err(error) => panic!("{error}"),
    }
    for _ in 0..posted.len() {
        let end = bench.ended();
        assert!(posted.contains(&end.id));
        assert_eq!(end.result.expect("it succeeds").outcome, ObjectOutcome::Written);
    }
}
