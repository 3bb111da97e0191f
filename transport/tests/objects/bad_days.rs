//! What happens when the store, or the way to it, fails.

use crate::bench::{Bench, PART, PATIENCE, POSTED_MAX, config, look, pattern, read, write};
use crate::relay::{Day, Relay};
use crate::store::Store;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use transport::{
    Failure, ObjectConfig, ObjectEnd, ObjectError, ObjectMover, ObjectOutcome, ObjectTrouble, PostError, RegionId,
    SealedMemory, TransferState,
};

/// Short, since it has to pass.
const GIVE_UP: Duration = Duration::from_millis(1500);
/// Longer than any answer on a good day, also where many tests share a machine.
const SILENCE_MAX: Duration = Duration::from_secs(20);

#[test]
fn who_asks_too_much_asks_again_after_a_pause() {
    let store = Store::start();
    let relay = Relay::start(store.address);
    let bench = Bench::new(config(relay.address));
    relay.fare(&[Day::Status(503), Day::Status(429), Day::Status(500)], Day::Good);
    bench.fill(0..1000, pattern);
    let report = bench.done(write("a", 1000)).expect("it succeeds in the end");
    assert_eq!((report.outcome, report.requests), (ObjectOutcome::Written, 4));
    relay.fare(&[Day::Status(503)], Day::Good);
    assert_eq!(bench.done(read("a", 0, 1000)).expect("it is there").requests, 2);
    // Others are about to write or to delete what is asked for.
    relay.fare(&[Day::Status(409), Day::Status(409)], Day::Good);
    let report = bench.done(write("b", 1000)).expect("it succeeds in the end");
    assert_eq!((report.outcome, report.requests), (ObjectOutcome::Written, 3));

    let hasty = Bench::new(ObjectConfig { give_up: GIVE_UP, ..config(relay.address) });
    for (status, trouble) in [(503, ObjectTrouble::Busy), (500, ObjectTrouble::Store), (403, ObjectTrouble::Refused)] {
        relay.fare(&[], Day::Status(status));
        assert_eq!(hasty.trouble(read("a", 0, 1000)), trouble);
    }
    relay.fare(&[], Day::Status(409));
    assert_eq!(hasty.trouble(write("c", 1000)), ObjectTrouble::Busy);
}

#[test]
fn who_waits_for_others_lets_others_ask() {
    let store = Store::start();
    let relay = Relay::start(store.address);
    let bench = Bench::new(ObjectConfig { requests_max: 1, ..config(relay.address) });
    bench.fill(0..1000, pattern);
    relay.fare(&[], Day::Conflict);
    let (writes, looks) = (bench.post(write("a", 1000)), bench.post(look("b")));
    let end = bench.ended();
    assert_eq!((end.id, end.result.expect("it is told").outcome), (looks, ObjectOutcome::Missing));
    relay.fare(&[], Day::Good);
    let end = bench.ended();
    assert_eq!((end.id, end.result.expect("it succeeds in the end").outcome), (writes, ObjectOutcome::Written));
}

#[test]
fn a_large_object_is_not_sent_where_there_is_one() {
    const LEN: usize = 1 << 20;
    let store = Store::start();
    let relay = Relay::start(store.address);
    let bench = Bench::new(config(relay.address));
    assert_eq!(bench.put("a", LEN, pattern), ObjectOutcome::Written);
    // Over new connections, by which nothing can be written.
    let other = Bench::new(config(relay.address));
    relay.fare(&[], Day::Conflict);
    let report = other.done(write("a", LEN)).expect("it need not be written");
    assert_eq!((report.outcome, report.bytes, report.requests), (ObjectOutcome::Existed, 0, 1));
}

#[test]
fn an_answer_that_breaks_off_is_asked_for_from_there_on() {
    const LEN: usize = 3_000_000;
    let store = Store::start();
    let relay = Relay::start(store.address);
    let bench = Bench::new(config(relay.address));
    bench.put("a", LEN, pattern);
    bench.fill(LEN..2 * LEN, |_| 0);
    relay.fare(&[Day::CutAfter(1_000_000), Day::CutAfter(100), Day::CutAfter(50_000)], Day::Good);
    let report = bench.done(read("a", LEN, LEN)).expect("it succeeds in the end");
    assert_eq!((report.bytes, report.requests), (LEN as u64, 4));
    assert!(bench.bytes(LEN..2 * LEN).iter().enumerate().all(|(at, byte)| *byte == pattern(at)));

    relay.fare(&[], Day::CutAfter(1000));
    assert_eq!(bench.trouble(read("a", 0, LEN)), ObjectTrouble::Broken);
}

#[test]
fn a_store_that_says_nothing_is_not_waited_for_for_ever() {
    let store = Store::start();
    let relay = Relay::start(store.address);
    let bench = Bench::new(ObjectConfig { silence_max: GIVE_UP / 3, give_up: GIVE_UP, ..config(relay.address) });
    Bench::new(config(store.address)).put("a", 3_000_000, pattern);
    for day in [Day::Silence, Day::SilenceAfter(100_000)] {
        relay.fare(&[], day);
        assert_eq!(bench.trouble(read("a", 0, 3_000_000)), ObjectTrouble::Slow, "{day:?}");
    }
    // It is asked again before it is given up.
    relay.fare(&[Day::Silence], Day::Good);
    let patient = Bench::new(ObjectConfig { silence_max: SILENCE_MAX / 10, ..config(relay.address) });
    assert_eq!(patient.outcome(look("a")), ObjectOutcome::Present(3_000_000));
}

#[test]
fn after_a_cancel_nothing_is_touched() {
    const LEN: usize = 2_000_000;
    let store = Store::start();
    let relay = Relay::start(store.address);
    let bench = Bench::new(config(relay.address));
    bench.put("a", LEN, pattern);
    // One is in the middle of its bytes, one still waits for an answer, others for their turn.
    relay.fare(&[Day::SilenceAfter(500_000)], Day::Silence);
    let posted: Vec<_> = (0..POSTED_MAX).map(|_| bench.post(read("a", LEN, LEN))).collect();
    let one_more = bench.mover.prepare(look("a")).expect("it is sound");
    assert_eq!(bench.mover.post(&one_more).expect_err("it is full"), PostError::Full(POSTED_MAX));
    posted.iter().for_each(|id| bench.mover.cancel(*id));
    for _ in &posted {
        let end = bench.ended();
        assert_eq!(end.result, Err(ObjectError::Cancelled));
        assert!(posted.contains(&end.id));
    }
    // From here on memory is this test's: what is written to it stays.
    bench.fill(LEN..2 * LEN, |_| 9);
    relay.fare(&[], Day::Good);
    bench.mover.cancel(posted[0]);
    assert_eq!(bench.outcome(read("a", 0, LEN)), ObjectOutcome::Read);
    assert!(bench.bytes(LEN..2 * LEN).iter().all(|byte| *byte == 9));
}

#[test]
fn an_upload_that_is_not_finished_leaves_nothing_behind() {
    let store = Store::start();
    let relay = Relay::start(store.address);
    let bench = Bench::new(config(relay.address));
    let under_way = || store.ask("GET", "?uploads").contains("<UploadId>");
    let begin = || {
        // A look and the beginning go through; a part does not, nor do those after it. Who asks for one knows of
        // the beginning.
        let begun = relay.begun();
        relay.fare(&[Day::Good, Day::Good], Day::Silence);
        let id = bench.post(write("a", 3 * PART));
        while relay.begun() < begun + 3 {
            std::thread::yield_now();
        }
        assert!(under_way());
        id
    };
    let id = begin();
    relay.fare(&[], Day::Good);
    bench.mover.cancel(id);
    assert_eq!(bench.ended().result, Err(ObjectError::Cancelled));
    while under_way() {
        std::thread::yield_now();
    }
    // The same when the mover ends before it.
    let id = begin();
    relay.fare(&[], Day::Good);
    let ends = bench.rest();
    assert_eq!((ends.len(), ends[0].id), (1, id));
    assert!(!under_way());
}

#[test]
fn a_store_may_die_and_return() {
    let mut store = Store::start();
    let relay = Relay::start(store.address);
    let bench = Bench::new(ObjectConfig { give_up: GIVE_UP, silence_max: SILENCE_MAX, ..config(store.address) });
    let patient = Bench::new(config(relay.address));
    assert_eq!(patient.put("a", 1000, pattern), ObjectOutcome::Written);
    store.die();
    for work in [read("a", 0, 1000), write("b", 1000), look("a")] {
        assert_eq!(bench.trouble(work), ObjectTrouble::Unreachable);
    }
    // Who waits longer than it is away notices nothing. The relay ends all connections until the store has its
    // bucket again.
    relay.fare(&[], Day::CutAfter(0));
    let waits = patient.post(write("b", 1000));
    // Its old port may be somebody else's by now.
    let store = Store::start();
    relay.lead_to(store.address);
    relay.fare(&[], Day::Good);
    let end = patient.ended();
    assert_eq!(end.id, waits);
    let report = end.result.expect("it succeeds in the end");
    // A try whose answer was cut off may have written it; then the next one finds the key taken.
    assert!(matches!(report.outcome, ObjectOutcome::Written | ObjectOutcome::Existed), "{:?}", report.outcome);
    assert!(report.requests > 1, "{} requests", report.requests);
    assert_eq!(patient.outcome(read("a", 0, 1000)), ObjectOutcome::Missing, "what it had is lost");
}

#[test]
fn a_bucket_that_is_not_there_is_no_missing_object() {
    let store = Store::start();
    let bench = Bench::new(ObjectConfig { bucket: "another".to_owned(), ..config(store.address) });
    assert_eq!(bench.trouble(read("a", 0, 1000)), ObjectTrouble::NoBucket);
    assert_eq!(bench.trouble(write("a", 1000)), ObjectTrouble::NoBucket);
}

#[test]
fn an_object_that_is_too_short_is_not_read() {
    let store = Store::start();
    let bench = Bench::new(config(store.address));
    bench.put("a", 1000, pattern);
    assert_eq!(bench.trouble(read("a", 0, 1001)), ObjectTrouble::Mismatch);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let wrong = ObjectConfig { part_bytes: PART - 1, ..config("127.0.0.1:1".parse().expect("an address")) };
    let refused =
        transport::ObjectMover::start(wrong, &Failure::new(), Box::new(|_| {})).map(drop).expect_err("refused");
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn a_sink_that_panics_leaves_no_transfer_open() {
    // Nobody is asked behind it.
    let relay = Relay::start("127.0.0.1:1".parse().expect("an address"));
    relay.fare(&[], Day::Silence);
    // The mover's thread is kept where it tells of the first end until more is posted, and panics then; and again
    // with each end.
    let (goes_on, waits) = sync_channel::<()>(0);
    let (says, ends) = sync_channel(8);
    let waits: Mutex<Option<Receiver<()>>> = Mutex::new(Some(waits));
    let sink = move |end: ObjectEnd| {
        says.send(end).expect("somebody listens");
        if let Some(waits) = waits.lock().expect("nobody panics with it").take() {
            let _ = waits.recv();
        }
        panic!("as it should");
    };
    let failure = Failure::new();
    let mover = ObjectMover::start(config(relay.address), &failure, Box::new(sink)).expect("it starts");
    let memory = Arc::new(SealedMemory::new("test", 1000).expect("memory"));
    assert_eq!(mover.register(memory), RegionId(0));
    let prepare = |key| mover.prepare(read(key, 0, 1000)).expect("it is sound");
    let transfers = ["a", "b", "c"].map(prepare);
    let post = |n: usize| mover.post(&transfers[n]).expect("there is room");
    let mut ids = vec![post(0), post(1)];
    mover.cancel(ids[0]);
    let end = ends.recv_timeout(PATIENCE).expect("it ends");
    assert_eq!(end, ObjectEnd { id: ids[0], result: Err(ObjectError::Cancelled) });
    // The thread has begun the second one, and does not know of the third.
    ids.push(post(2));
    goes_on.send(()).expect("it waits");
    for id in &ids[1..] {
        let end = ends.recv_timeout(PATIENCE).expect("it ends");
        assert_eq!(end, ObjectEnd { id: *id, result: Err(ObjectError::Panicked) });
    }
    for transfer in &transfers[1..] {
        assert_eq!(transfer.wait(PATIENCE), TransferState::Ended(Err(ObjectError::Panicked)));
    }
    assert_eq!(mover.post(&transfers[0]), Err(PostError::Panicked));
    let fault = failure.get().expect("it is reported");
    assert!(fault.thread.ends_with("-object") && fault.cause.contains("as it should"), "{fault}");
    let last = TransferState::Ended(Err(ObjectError::Cancelled));
    assert_eq!(transfers[0].state(), last, "who is refused is not under way");
    mover.cancel(ids[0]);
    drop(mover);
    assert!(ends.try_recv().is_err(), "nothing ends twice");
}
