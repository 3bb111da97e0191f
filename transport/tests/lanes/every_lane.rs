//! What every lane does alike.

use crate::ends::*;
use domain::{ProgressWord, StepId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use transport::{
    AgentEvent, Completion, Copies, Copy, Hub, Lane, PostError, PrepareError, ReadBatch, RegionId, SendError,
    TransferError, TransferState,
};

#[test]
fn ready_bytes_arrive_and_are_reported() {
    for over in ways() {
        let pair = pair(over, 1000);
        let report = pair.read(10, 0, &[(0, 990), (500, 0)]).result.unwrap();
        assert_eq!((report.lane, report.bytes), (over.lane, 20));
        let (source, destination) = (pair.owner.bytes(), pair.reader.bytes());
        assert_eq!(destination[990..], source[..10]);
        assert_eq!(destination[..10], source[500..510]);
        assert!(destination[10..990].iter().all(|&byte| byte == 0));
        assert_eq!(pair.read(10, 0, &[]).result.unwrap().bytes, 0, "nothing is read at once");
    }
}

#[test]
fn a_transfer_is_posted_again_once_it_has_ended() {
    const LEN: usize = 1 << 20;
    for over in ways() {
        let pair = pair(over, LEN);
        let agent = &pair.reader.agent;
        let word = ProgressWord::mark(StepId(1), 0);
        let copies = [(0, LEN as u64 / 2), (LEN as u64 / 2, 0)];
        let prepared = agent.prepare(OWNER, vec![batch(LEN / 2, word, &copies)]).expect("it is sound");
        assert_eq!((prepared.state(), prepared.lane()), (TransferState::Unposted, over.lane));
        assert!(prepared.estimate().is_some_and(|time| !time.is_zero()), "the peer was measured");
        let clear = || {
            // SAFETY: no transfer is open, so nobody else touches it.
            unsafe { std::ptr::write_bytes(pair.reader.memory.as_ptr(), 0, LEN) }
        };
        let post = || {
            clear();
            let id = agent.post(&prepared).expect("there is room");
            assert_eq!(prepared.state(), TransferState::UnderWay);
            assert_eq!(agent.post(&prepared), Err(PostError::UnderWay));
            id
        };
        // Given up before it begins: nothing that was asked for arrives the next time.
        let id = post();
        agent.cancel(id);
        let cancelled = Err(TransferError::Cancelled);
        assert_eq!(prepared.wait(PATIENCE), TransferState::Ended(cancelled));
        assert_eq!(pair.reader.ended(), Completion { id, result: cancelled, runs: Vec::new() });
        let id = post();
        pair.owner.word.raise(StepId(1), 0);
        assert!(matches!(prepared.wait(PATIENCE), TransferState::Ended(Ok(_))));
        assert_eq!(pair.reader.ended().id, id);
        for _ in 0..5 {
            clear();
            let id = agent.post(&prepared).expect("it has ended");
            let end = pair.reader.ended();
            assert_eq!((end.id, prepared.state()), (id, TransferState::Ended(end.result)));
            let report = end.result.expect("the gate is open");
            assert_eq!((report.lane, report.rails, report.bytes), (over.lane, 1, LEN as u64));
            let (source, destination) = (pair.owner.bytes(), pair.reader.bytes());
            assert!(source[..LEN / 2] == destination[LEN / 2..] && source[LEN / 2..] == destination[..LEN / 2]);
        }
    }
}

#[test]
fn a_timed_transfer_tells_when_each_gate_came() {
    const LEN: usize = 1 << 20;
    for over in ways() {
        let pair = pair(over, 4 * LEN);
        let gates = [0, 1, 2].map(|layer| ProgressWord::mark(StepId(1), layer));
        let at = |layer: usize| (layer * LEN) as u64;
        let batches = (0..3).map(|layer| batch(LEN, gates[layer], &[(at(layer), at(layer))])).collect();
        let prepared = pair.reader.agent.prepare(OWNER, batches).expect("it is sound").timed();
        let id = pair.reader.agent.post(&prepared).expect("there is room");
        for layer in 0..3 {
            assert_eq!(pair.reader.ended_by_now(), None, "a gate is closed");
            std::thread::sleep(Duration::from_millis(5));
            pair.owner.word.raise(StepId(1), layer);
        }
        let end = pair.reader.ended();
        let report = end.result.expect("all gates are open");
        let told: Vec<_> = end.runs.iter().map(|run| (run.first, run.last, run.bytes)).collect();
        // As they travel: 20 bytes of 32.
        let bytes = if over.encoded { LEN as u64 * 20 / 32 } else { LEN as u64 };
        assert_eq!((end.id, told), (id, gates.map(|gate| (gate, gate, bytes)).to_vec()), "over {over}");
        for (run, since) in end.runs.iter().zip(1..) {
            assert!(run.begun <= run.ended && run.ended <= report.elapsed, "{run:?} of {report:?}");
            assert!(run.begun >= Duration::from_millis(5 * since), "it began before its gate opened: {run:?}");
        }
        // What is not asked for is not kept.
        assert_eq!(pair.read(LEN, 0, &[(0, 0)]).runs, []);
    }
}

#[test]
fn the_end_of_a_transfer_can_be_awaited() {
    for over in ways() {
        let pair = pair(over, 64);
        let gate = ProgressWord::mark(StepId(1), 0);
        let prepared = pair.reader.agent.prepare(OWNER, vec![batch(64, gate, &[(0, 0)])]).expect("it is sound");
        pair.reader.agent.post(&prepared).expect("there is room");
        let (waker, woken) = (Arc::<Woken>::default(), |woken: &Woken| woken.0.load(Ordering::SeqCst));
        let context = &mut Context::from_waker(Waker::noop());
        let mut ended = Box::pin(prepared.ended());
        assert!(ended.as_mut().poll(context).is_pending());
        let own = Waker::from(waker.clone());
        assert!(ended.as_mut().poll(&mut Context::from_waker(&own)).is_pending() && !woken(&waker));
        pair.owner.word.raise(StepId(1), 0);
        pair.reader.ended();
        assert!(woken(&waker), "over {over}");
        assert!(matches!(ended.as_mut().poll(context), Poll::Ready(TransferState::Ended(Ok(_)))));
    }
}

#[test]
fn any_number_of_tasks_await_one_transfer() {
    let pair = pair(Lane::Local, 64);
    let gate = ProgressWord::mark(StepId(1), 0);
    let prepared = pair.reader.agent.prepare(OWNER, vec![batch(64, gate, &[(0, 0)])]).expect("it is sound");
    for _ in 0..2 {
        let id = pair.reader.agent.post(&prepared).expect("there is room");
        let wakers = [(); 3].map(|()| Arc::<Woken>::default());
        let mut awaiting = wakers.clone().map(|waker| (Box::pin(prepared.ended()), Waker::from(waker)));
        for (ended, waker) in &mut awaiting {
            // A task that is woken by something else asks again.
            for _ in 0..2 {
                assert!(ended.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
            }
        }
        // Who gives up is not woken.
        let [first, second, third] = awaiting;
        drop(second);
        pair.reader.agent.cancel(id);
        pair.reader.ended();
        assert_eq!(wakers.map(|waker| waker.0.load(Ordering::SeqCst)), [true, false, true]);
        for (mut ended, waker) in [first, third] {
            assert!(ended.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        }
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn strided_copies_arrive_and_are_bounded() {
    for over in ways() {
        let pair = pair(over, 4096);
        let copies = |from: u64, to: u64, count| Copies::Strided {
            first: Copy { from: 3, to: 1 },
            step: Copy { from, to },
            count,
        };
        let read = |copies| ReadBatch { copies, ..batch(10, 0, &[]) };
        pair.reader.post(OWNER, vec![read(copies(40, 12, 100))]);
        assert_eq!(pair.reader.ended().result.map(|report| report.bytes), Ok(1000));
        let (source, destination) = (pair.owner.bytes(), pair.reader.bytes());
        for n in 0..100 {
            assert_eq!(destination[1 + n * 12..][..10], source[3 + n * 40..][..10], "slice {n} over {over}");
        }
        let refused = |copies| pair.reader.agent.prepare(OWNER, vec![read(copies)]).err();
        let outside = |error| matches!(error, Some(PrepareError::OutOfBounds { .. }));
        assert!(outside(refused(copies(41, 10, 101))) && outside(refused(copies(1, 41, 101))));
        assert!(outside(refused(copies(u64::MAX, 10, 3))) && outside(refused(copies(1, 1 << 40, 1 << 30))));
        // However many of them there are said to be.
        for (step, count) in [(0, u64::MAX), (0, 2), (9, 2)] {
            assert_eq!(
                refused(copies(0, step, count)),
                Some(PrepareError::Overlap { region: REGION, at: 1 + step }),
                "over {over}"
            );
        }
        assert_eq!((refused(copies(0, 10, 2)), refused(copies(0, 0, 1))), (None, None), "over {over}");
        assert_eq!(refused(copies(u64::MAX, 1, 0)), None, "nothing leaves nothing");
    }
}

#[test]
fn large_reads_arrive_whole() {
    const LEN: usize = (9 << 20) + 13;
    for over in ways() {
        let pair = pair(over, LEN);
        assert_eq!(pair.read(LEN, 0, &[(0, 0)]).result.unwrap().bytes, LEN as u64);
        assert!(pair.reader.bytes() == pair.owner.bytes(), "over {over}");
    }
}

#[test]
fn a_layer_is_read_only_once_it_is_written() {
    for over in ways() {
        let pair = pair(over, 64);
        let batches = (0..4_u16).map(|layer| {
            let at = u64::from(layer) * 16;
            batch(16, ProgressWord::mark(StepId(3), layer), &[(at, at)])
        });
        pair.reader.post(OWNER, batches.collect());
        pair.owner.word.raise(StepId(2), 9);
        pair.reader.hears_nothing();
        for layer in 0..4 {
            assert!(pair.reader.events.try_recv().is_err());
            pair.owner.word.raise(StepId(3), layer);
        }
        assert!(pair.reader.ended().result.is_ok());
        assert_eq!(pair.reader.bytes(), pair.owner.bytes());
    }
}

#[test]
fn a_closed_gate_holds_up_nobody_else() {
    for over in ways() {
        let pair = pair(over, 256 << 10);
        let waiting = pair.post(128 << 10, ProgressWord::mark(StepId(1), 0), &[(0, 0)]);
        assert!(pair.read(128 << 10, 0, &[(128 << 10, 128 << 10)]).result.is_ok());
        pair.owner.word.raise(StepId(1), 0);
        let end = pair.reader.ended();
        assert_eq!((end.id, end.result.is_ok()), (waiting, true));
        assert!(pair.reader.bytes() == pair.owner.bytes());
    }
}

#[test]
fn cancel_ends_once_and_quiesces() {
    for over in ways() {
        let pair = pair(over, 64);
        let id = pair.post(64, ProgressWord::mark(StepId(1), 0), &[(0, 0)]);
        pair.reader.agent.cancel(id);
        pair.reader.agent.cancel(id);
        assert_eq!(pair.reader.ended(), Completion { id, result: Err(TransferError::Cancelled), runs: Vec::new() });
        pair.owner.word.raise(StepId(1), 0);
        pair.reader.hears_nothing();
        assert_eq!(pair.reader.bytes(), vec![0; 64], "nothing is written after the end");
        // The connection is as good as before.
        assert!(pair.read(64, 0, &[(0, 0)]).result.is_ok());
        assert_eq!(pair.reader.bytes(), pair.owner.bytes());
    }
}

#[test]
fn a_cancel_amid_the_bytes_stops_them() {
    const LEN: usize = 32 << 20;
    for over in ways() {
        let pair = pair(over, LEN);
        for _ in 0..8 {
            let id = pair.post(LEN, 0, &[(0, 0)]);
            pair.reader.agent.cancel(id);
            let end = pair.reader.ended();
            assert!(matches!(end.result, Ok(_) | Err(TransferError::Cancelled)), "{end:?}");
            // SAFETY: the transfer ended, so nobody writes there.
            unsafe { std::ptr::write_bytes(pair.reader.memory.as_ptr(), 0xAA, LEN) };
            pair.reader.hears_nothing();
            assert!(pair.reader.bytes().iter().all(|&byte| byte == 0xAA), "nothing is written after the end");
        }
        assert!(pair.read(LEN, 0, &[(0, 0)]).result.is_ok());
        assert!(pair.reader.bytes() == pair.owner.bytes());
    }
}

#[test]
fn the_owners_death_ends_the_transfer() {
    for over in ways() {
        let Pair { owner, reader } = pair(over, 64);
        let id = reader.post(OWNER, vec![batch(64, u64::MAX, &[(0, 0)])]);
        drop(owner);
        let events = [reader.event(), reader.event()];
        let end = AgentEvent::Ended(Completion { id, result: Err(TransferError::PeerGone), runs: Vec::new() });
        assert!(events.contains(&end), "{events:?}");
        assert!(events.iter().any(|event| matches!(event, AgentEvent::Lost { peer: OWNER, .. })), "{events:?}");
        assert!(!reader.agent.is_connected(OWNER));
        let none = reader.agent.prepare(OWNER, vec![]).err();
        assert_eq!(none, Some(PrepareError::NotConnected(OWNER)));
    }
}

#[test]
fn a_returned_peer_is_connected_again() {
    for over in ways() {
        let (owner_hub, reader_hub) = hubs(over);
        let reader = end_over(over, &reader_hub, READER, 1, 8, |_| ());
        let life = |life| end_over(over, &owner_hub, OWNER, life, 8, |_| ());
        let first = life(1);
        reader.agent.introduce(first.info.clone());
        reader.connect(OWNER);
        let second = life(2);
        second.fill();
        reader.agent.introduce(second.info.clone());
        // An earlier life is no news.
        reader.agent.introduce(first.info.clone());
        assert!(reader.lost(OWNER).contains("new life"));
        drop(first);
        reader.connect(OWNER);
        reader.agent.send(OWNER, vec![7]).unwrap();
        assert_eq!(second.message(), (READER, vec![7]));
        reader.post(OWNER, vec![batch(8, 0, &[(0, 0)])]);
        assert!(reader.ended().result.is_ok());
        assert_eq!(reader.bytes(), second.bytes());
    }
}

#[test]
fn bounds_are_kept() {
    for over in ways() {
        let pair = pair(over, 64);
        let refused = |batch| pair.reader.agent.prepare(OWNER, vec![batch]).err();
        let out = |from, to| Some(PrepareError::OutOfBounds { copy: Copy { from, to }, len: 5 });
        assert_eq!(refused(batch(5, 0, &[(60, 0)])), out(60, 0));
        assert_eq!(refused(batch(5, 0, &[(0, 0), (0, u64::MAX)])), out(0, u64::MAX));
        let elsewhere = |source, destination| ReadBatch { source, destination, ..batch(5, 0, &[(0, 0)]) };
        let missing = |peer| Some(PrepareError::NoRegion { peer, region: RegionId(1) });
        assert_eq!(refused(elsewhere(RegionId(1), REGION)), missing(Some(OWNER)));
        assert_eq!(refused(elsewhere(REGION, RegionId(1))), missing(None));
        let waiting = |n| pair.reader.agent.prepare(OWNER, vec![batch(1, u64::MAX, &[(0, n as u64)])]).unwrap();
        (0..POSTED_MAX).for_each(|n| assert!(pair.reader.agent.post(&waiting(n)).is_ok()));
        assert_eq!(pair.reader.agent.post(&waiting(POSTED_MAX)), Err(PostError::Full(POSTED_MAX)));
        let End { agent, events, .. } = pair.reader;
        drop(agent);
        let ends: Vec<_> = (0..POSTED_MAX).map(|_| events.recv_timeout(PATIENCE).unwrap()).collect();
        let cancelled = |event: &AgentEvent| {
            matches!(event, AgentEvent::Ended(Completion { result: Err(TransferError::Cancelled), .. }))
        };
        assert!(ends.iter().all(cancelled), "shutdown ends what is open: {ends:?}");
    }
}

#[test]
fn messages_arrive_in_order_both_ways() {
    for over in ways() {
        let pair = pair(over, 1);
        for i in 0..INBOX as u8 {
            pair.reader.agent.send(OWNER, vec![i; usize::from(i) * 1000]).unwrap();
        }
        for i in 0..INBOX as u8 {
            assert_eq!(pair.owner.message(), (READER, vec![i; usize::from(i) * 1000]));
        }
        // Sending connects.
        pair.owner.agent.send(READER, vec![1]).unwrap();
        assert_eq!(pair.reader.message(), (OWNER, vec![1]));
        let bytes = 9 << 20;
        let refused = pair.reader.agent.send(OWNER, vec![0; bytes]);
        assert_eq!(refused, Err(SendError::TooLong { peer: OWNER, bytes }));
    }
}

/// What waits for room is sent once there is some, though the socket then takes at once all that waited at it.
#[test]
fn messages_beyond_what_waits_at_a_socket_arrive() {
    for over in ways() {
        let pair = pair(over, 1);
        for round in 0..2_u8 {
            let message = |i: u8| vec![round ^ i; (1 << 20) + 1000 * usize::from(i)];
            for i in 0..24 {
                pair.reader.agent.send(OWNER, message(i)).unwrap();
            }
            for i in 0..24 {
                assert!(pair.owner.message() == (READER, message(i)), "message {i} of round {round} over {over}");
            }
        }
    }
}

#[test]
fn what_the_inbox_does_not_take_is_kept_unless_it_is_a_message() {
    for over in ways() {
        let pair = pair(over, 64);
        // The owner fills the reader's inbox.
        pair.owner.connect(READER);
        for _ in 0..INBOX + 10 {
            let _ = pair.owner.agent.send(READER, vec![5]);
        }
        let id = pair.post(64, 0, &[(0, 0)]);
        std::thread::sleep(MOMENT);
        let end = loop {
            match pair.reader.event() {
                AgentEvent::Ended(end) => break end,
                AgentEvent::Message { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        };
        assert_eq!((end.id, end.result.is_ok()), (id, true));
        assert_eq!(pair.reader.bytes(), pair.owner.bytes());
    }
}

#[test]
fn who_is_nowhere_is_lost() {
    let reader = end(&Hub::new(), READER, 1, 8, |_| ());
    reader.agent.connect(OWNER);
    assert!(reader.lost(OWNER).contains("nobody said where"));
    assert_eq!(reader.agent.send(OWNER, vec![1]), Err(SendError::NotConnected(OWNER)));
}

fn cases() -> u32 {
    ProptestConfig::default().cases.min(64) / 2
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Whatever the order of raises and cancels: every transfer ends once; a regular end has all bytes, and after an
    /// end nothing more is written.
    #[test]
    fn any_interleaving_ends_every_transfer_once(
        over in prop::sample::select(ways()), slice in 1_usize..20_000,
        actions in proptest::collection::vec((0_u8..3, 0_u16..4), 1..40),
    ) {
        let pair = pair(over, 4 * 4 * slice);
        let mut posted = Vec::new();
        let mut ended = BTreeMap::new();
        for (kind, which) in actions {
            match kind {
                // A slot is used again only once its last transfer has ended.
                0 if posted.len() < POSTED_MAX => {
                    let slot = (posted.len() * 4 * slice) as u64;
                    let batches = (0..=which).map(|layer| {
                        let at = slot + u64::from(layer) * slice as u64;
                        batch(slice, ProgressWord::mark(StepId(1), layer), &[(at, at)])
                    });
                    posted.push((pair.reader.post(OWNER, batches.collect()), slot, which));
                }
                1 => pair.owner.word.raise(StepId(1), which),
                _ => if let Some(&(id, ..)) = posted.get(usize::from(which)) { pair.reader.agent.cancel(id) },
            }
        }
        pair.owner.word.raise(StepId(1), 3);
        for _ in 0..posted.len() {
            let end = pair.reader.ended();
            prop_assert!(ended.insert(end.id, end.result).is_none(), "one end each");
        }
        prop_assert!(pair.reader.events.try_recv().is_err());
        let (source, destination) = (pair.owner.bytes(), pair.reader.bytes());
        for (id, slot, layers) in posted {
            if ended[&id].is_ok() {
                let range = slot as usize..slot as usize + (usize::from(layers) + 1) * slice;
                prop_assert!(destination[range.clone()] == source[range]);
            }
        }
    }

    /// Copies of any length between any places arrive, and nothing else changes.
    #[test]
    fn any_copies_arrive(
        over in prop::sample::select(ways()),
        len in 1_usize..70_000, places in proptest::collection::vec(0_u64..200_000, 1..40),
    ) {
        let len = len.min(200_000 / places.len());
        let pair = pair(over, 280_000);
        // Destinations do not overlap.
        let copies: Vec<_> = places.iter().enumerate().map(|(i, &from)| (from, (i * len) as u64)).collect();
        prop_assert!(pair.read(len, 0, &copies).result.is_ok());
        let (source, destination) = (pair.owner.bytes(), pair.reader.bytes());
        for (from, to) in copies {
            let (from, to) = (from as usize, to as usize);
            prop_assert!(destination[to..to + len] == source[from..from + len]);
        }
        prop_assert!(destination[places.len() * len..].iter().all(|&byte| byte == 0));
    }
}
