//! Callers that wait for their reads: over `tcp` their own threads bring the bytes home, in turn with the lane's.

use crate::ends::*;
use domain::{ProgressWord, StepId, WorkerId};
use std::time::Duration;
use transport::{Agent, Lane, TransferError, TransferState};

/// `tcp`, plain, encrypted, with KV that travels encoded, and between memories of devices.
const WAYS: [Over; 4] = [
    Over { lane: Lane::Tcp, tls: false, encoded: false, guarded: true },
    Over { lane: Lane::Tcp, tls: false, encoded: false, guarded: false },
    Over { lane: Lane::Tcp, tls: true, encoded: false, guarded: false },
    Over { lane: Lane::Tcp, tls: false, encoded: true, guarded: false },
];

#[test]
fn who_waits_brings_its_read_home() {
    const LEN: usize = 64 << 10;
    const READS_MAX: usize = 50_000;
    // What goes to a device ends when its copier says so, which may wake the lane's thread.
    for over in WAYS.into_iter().filter(|over| !over.guarded) {
        let pair = pair(over, LEN);
        let prepared = pair.reader.agent.prepare(OWNER, vec![batch(LEN, 0, &[(0, 0)])]).expect("it is sound");
        let own = Some(std::thread::current().id());
        // The lane's thread may come first, where it was awake.
        let is_home = |_| {
            pair.reader.wipe();
            let id = pair.reader.agent.post(&prepared).expect("there is room");
            assert!(matches!(prepared.wait(PATIENCE), TransferState::Ended(Ok(_))));
            assert_eq!(pair.reader.ended().id, id);
            assert!(pair.reader.bytes() == pair.owner.bytes(), "over {over}");
            *pair.reader.told_by.lock().expect("nobody panicked") == own
        };
        assert!((0..READS_MAX).any(is_home), "over {over}: no read was brought home by who waited for it");
    }
}

/// What callers on several threads have of an end.
#[derive(Clone, Copy)]
struct Side<'a> {
    agent: &'a Agent,
    memory: &'a EndMemory,
}

impl<'a> Side<'a> {
    fn of(end: &'a End) -> Self {
        Self { agent: &end.agent, memory: &end.memory }
    }
}

/// What each end reads of the other, and where to, so that both directions are apart.
const PART: usize = 3 << 16;
const READS: usize = 60;
const LOOKS: usize = 1000;

/// Reads the parts `from` of `peer` again and again into the part `to`, waits in one way after the other, and compares.
fn read_and_compare(end: Side<'_>, peer: Side<'_>, id: WorkerId, from: usize, to: usize) {
    let part = |end: Side<'_>, at: usize| {
        // SAFETY: nobody writes that part now: no transfer into it is open, and its owner fills it once.
        unsafe { std::slice::from_raw_parts(end.memory.as_ptr().add(at), PART) }
    };
    let gate = ProgressWord::mark(StepId(1), 0);
    let prepare = |gate| {
        let batches = vec![batch(PART, gate, &[(from as u64, to as u64)])];
        end.agent.prepare(id, batches).expect("it is sound")
    };
    let (open, gated) = (prepare(0), prepare(gate));
    let ended = |state| matches!(state, TransferState::Ended(Ok(_)));
    for n in 0..READS {
        // SAFETY: no transfer into it is open.
        unsafe { end.memory.as_ptr().add(to).write_bytes(0, PART) };
        let prepared = if n % 5 == 4 { &gated } else { &open };
        let transfer = end.agent.post(prepared).expect("there is room");
        match n % 5 {
            // Seen to have ended, without waiting.
            0 => {
                let is_over = |_: &_| prepared.state() != TransferState::UnderWay;
                (0..LOOKS).inspect(|_| std::thread::yield_now()).find(is_over);
                assert!(ended(prepared.wait(PATIENCE)));
            }
            // Waited for too shortly at first.
            1 => {
                (0..LOOKS).find(|_| prepared.wait(Duration::from_micros(20)) != TransferState::UnderWay);
                assert!(ended(prepared.wait(PATIENCE)));
            }
            // Given up, or too late for that.
            2 => {
                end.agent.cancel(transfer);
                let state = prepared.wait(PATIENCE);
                assert!(ended(state) || state == TransferState::Ended(Err(TransferError::Cancelled)), "{state:?}");
                if !ended(state) {
                    continue;
                }
            }
            _ => assert!(ended(prepared.wait(PATIENCE))),
        }
        assert!(part(end, to) == part(peer, from), "read {n} of {id}");
    }
}

#[test]
fn callers_that_wait_at_once_and_in_both_directions_get_their_bytes() {
    for over in WAYS {
        let pair = pair(over, 6 * PART);
        let (owner, reader) = (&pair.owner, &pair.reader);
        reader.fill();
        owner.connect(READER);
        // From the beginning, those behind gates wait for nothing.
        owner.word.raise(StepId(1), 0);
        reader.word.raise(StepId(1), 0);
        std::thread::scope(|scope| {
            for n in 0..3 {
                let (first, second) = (n * PART, (n + 3) * PART);
                let (owner, reader) = (Side::of(owner), Side::of(reader));
                scope.spawn(move || read_and_compare(reader, owner, OWNER, first, second));
                // The parts that it fills are none that the other end reads.
                scope.spawn(move || read_and_compare(owner, reader, READER, first, second));
            }
        });
    }
}
