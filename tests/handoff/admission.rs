//! Who gets memory and running room, in which order, and for how long a handoff waits for the queue of another worker.

use super::*;
use crate::peer::Peer;
use domain::WorkerId;
use domain::handoff::PeerBody;

/// Sequences that run at once.
const RUNNING: u32 = 16;
/// Requests that end before the handoff has begun, of which those are that were there before it.
const OVERTAKEN_MAX: u64 = 120;

/// Each of the others would fit at any time, so there is never room for all of these unless somebody waits for them.
#[test]
fn a_handoff_of_many_choices_gets_its_room_among_requests_that_come_all_the_time() {
    let mut cluster = Cluster::new(&Options { running_max: RUNNING, ..options(None) });
    cluster.decode_knobs.layer_us.store(200, Ordering::Relaxed);
    let one = |id: u64| Asked::new(id, prompt(5, id as u32), 12 + (id % 7) as u32 * 4);
    let mut last = 100 + u64::from(RUNNING) + 4;
    (100..last).for_each(|id| cluster.submit(DECODE, &one(id), Part::Whole));
    let many = Asked { choices: RUNNING as u16, ..Asked::new(2, prompt(22, 1), 6) };
    cluster.hand_off(&many);
    let begun = |cluster: &tests::cluster::Cluster| {
        cluster.rows.get(&many.key(0)).is_some_and(|rows| rows.iter().any(|(from, _)| *from == DECODE))
    };
    while !begun(&cluster) {
        let ended = cluster.ends.len();
        cluster.until("an end, or the handoff", |cluster| begun(cluster) || cluster.ends.len() > ended);
        assert!(cluster.failures.is_empty(), "{:?}", cluster.failures);
        assert!((ended as u64) < OVERTAKEN_MAX, "it is starved");
        for _ in ended..cluster.ends.len() {
            cluster.submit(DECODE, &one(last), Part::Whole);
            last += 1;
        }
    }
    let all: Vec<_> = (100..last).map(one).chain([many]).collect();
    finish(&mut cluster, &all);
}

/// Who waits in the queue of the worker that computes prompts is not sent elsewhere, where computing it would only move the overload.
#[test]
fn a_queue_that_is_longer_than_a_handoff_waits_fails_none() {
    let wait = Duration::from_secs(2);
    let mut cluster = Cluster::new(&Options { running_max: 1, chunk: 8, handoff_wait: wait, ..options(None) });
    cluster.prefill_knobs.layer_us.store(200_000, Ordering::Relaxed);
    // Six steps, of three layers each.
    let (first, next) = (Asked::new(2, prompt(48, 1), 3), Asked::new(4, prompt(5, 2), 3));
    check(&mut cluster, &[first, next]);
}

#[test]
fn a_prompt_is_said_to_be_queued_to_its_reader_alone_and_until_it_is_offered() {
    let mut cluster = Cluster::new(&Options { running_max: 1, chunk: 8, ..options(None) });
    cluster.prefill_knobs.layer_us.store(50_000, Ordering::Relaxed);
    let [mut reader, mut other] = [9, 11].map(|id| Peer::enter(&cluster.hub, &cluster.layout, WorkerId(id), 1));
    let (first, next) = (Asked::new(2, prompt(48, 1), 3), Asked::new(3, prompt(5, 2), 3));
    cluster.hand_off(&first);
    cluster.submit(PREFILL, &next, Part::Prefill { decode: WorkerId(9) });
    let expect = |id: u64| PeerBody::Expect { request: RequestId(id), epoch: Epoch(1) };
    // Of what is not there nothing is said, nor to anybody else.
    other.say(PREFILL, None, expect(3));
    [2, 4, 3].into_iter().for_each(|id| reader.say(PREFILL, None, expect(id)));
    assert_eq!(reader.hear(), PeerBody::Queued { request: RequestId(3), epoch: Epoch(1) });
    assert!(matches!(reader.hear(), PeerBody::Offer(_)));
    reader.say(PREFILL, None, expect(3));
    reader.say(PREFILL, None, PeerBody::Release { lease: domain::LeaseId(77) });
    loop {
        match reader.hear() {
            PeerBody::Written { .. } | PeerBody::Complete { .. } => {}
            answer => {
                assert_eq!(answer, PeerBody::Released { lease: domain::LeaseId(77), valid: false });
                break;
            }
        }
    }
    assert!(other.hears_nothing(Duration::ZERO));
    cluster.cancel(&next);
    cluster.wait_end(&first);
}
