//! A step that fails as a whole costs whoever is at fault its attempt, and nobody else anything.

use crate::{Cluster, finish, options};
use decode_worker::Decode;
use domain::handoff::PeerBody;
use domain::session::{Assignment, Failure, FromWorker, ToWorker};
use domain::{Epoch, ProgressWord, RequestId, StepId, WorkerId};
use prefill_worker::Prefill;
use std::sync::atomic::Ordering;
use tests::cluster::{Asked, DECODE, Options, prompt};
use tests::rig::{PEER, Rig};

/// Waits until every attempt of `requests` has ended. Those of the culprits failed, once at each worker that had
/// them, and the others said what they say undisturbed.
fn check_culprits(cluster: &mut Cluster, requests: &[Asked], culprits: &[u64], failures: usize) {
    requests.iter().for_each(|request| cluster.wait_end(request));
    cluster.until("the culprits' failures", |cluster| cluster.failures.len() == failures);
    let failed = std::mem::take(&mut cluster.failures);
    assert!(failed.iter().all(|(request, ..)| culprits.contains(&request.0)), "{failed:?}");
    let by_engine =
        |culprit: u64| failed.iter().filter(move |(id, _, why, _)| id.0 == culprit && *why == Failure::Engine);
    assert!(culprits.iter().all(|&culprit| by_engine(culprit).count() == 1), "{failed:?}");
    let innocent: Vec<_> = requests.iter().filter(|request| !culprits.contains(&request.id)).cloned().collect();
    finish(cluster, &innocent);
}

#[test]
fn of_a_step_that_fails_only_the_culprits_do() {
    // While the step runs, or already when it is submitted.
    for (culprits, refused) in [(vec![3], false), (vec![0, 5], false), (vec![6], true), (vec![], false)] {
        let mut cluster = Cluster::new(&options(None));
        cluster.decode_knobs.layer_us.store(500, Ordering::Relaxed);
        let asked =
            |id| Asked { choices: 1 + id as u16 % 2, ..Asked::new(id, prompt(9 + 3 * id as u32, id as u32), 60) };
        let requests: Vec<_> = (0..7).map(asked).collect();
        requests.iter().for_each(|request| cluster.submit(DECODE, request, Assignment::Whole));
        cluster
            .until("all decode", |cluster| requests.iter().all(|request| cluster.rows.contains_key(&request.key(0))));
        cluster.decode_knobs.refuses.store(refused, Ordering::Relaxed);
        cluster.decode_knobs.fail_with(&culprits);
        check_culprits(&mut cluster, &requests, &culprits, culprits.len());
        let failed = cluster.decode_knobs.failed_steps.load(Ordering::Relaxed);
        assert_eq!(failed > culprits.len() as u64, !culprits.is_empty(), "{failed} steps failed");
    }
}

#[test]
fn prompts_that_are_read_while_they_are_computed_survive_the_failures_of_others() {
    for window in [None, Some(6)] {
        let mut cluster = Cluster::new(&Options { chunk: 8, ..options(window) });
        cluster.prefill_knobs.layer_us.store(2_000, Ordering::Relaxed);
        let requests: Vec<_> = (0..6).map(|id| Asked::new(id, prompt(60 + 5 * id as u32, id as u32), 12)).collect();
        cluster.prefill_knobs.fail_with(&[2]);
        requests.iter().for_each(|request| cluster.hand_off(request));
        // The one who waits for its offer fails with it.
        check_culprits(&mut cluster, &requests, &[2], 2);
    }
}

#[test]
fn what_a_step_copies_on_write_is_there_when_it_is_computed_again() {
    // The choices fork in the middle of a block, which the next step copies. It is refused, or fails before its
    // first layer is written, or later.
    for (chunk, failing, refused) in [(32, 2, true), (32, 2, false), (16, 3, false), (8, 4, false)] {
        let mut cluster = Cluster::new(&Options { chunk, ..options(None) });
        cluster.decode_knobs.refuses.store(refused, Ordering::Relaxed);
        cluster.decode_knobs.failing_step.store(failing, Ordering::Relaxed);
        let request = Asked { choices: 5, ..Asked::new(1, prompt(22, 1), 15) };
        cluster.submit(DECODE, &request, Assignment::Whole);
        finish(&mut cluster, std::slice::from_ref(&request));
        assert_eq!(cluster.decode_knobs.failed_steps.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_sequence_that_moves_away_survives_the_failures_of_others() {
    let mut cluster = Cluster::new(&Options { pairs: 2, ..options(None) });
    cluster.decode_knobs.layer_us.store(1_000, Ordering::Relaxed);
    let requests: Vec<_> = (0..4).map(|id| Asked::new(id, prompt(40, id as u32), 80)).collect();
    requests.iter().for_each(|request| cluster.submit(DECODE, request, Assignment::Whole));
    cluster.until("all decode", |cluster| requests.iter().all(|request| cluster.rows.contains_key(&request.key(0))));
    cluster.decode_knobs.fail_with(&[1]);
    let moved = cluster.migrate(&requests[0], DECODE, WorkerId(3));
    cluster.until("a failure", |cluster| !cluster.failures.is_empty());
    let failed: Vec<_> = cluster.failures.drain(..).map(|(request, _, why, _)| (request.0, why)).collect();
    assert_eq!(failed, [(1, Failure::Engine)]);
    let (text, there) = cluster.moved_text(&requests[0], &moved);
    assert_eq!(text, cluster.expected(&requests[0], 0));
    assert!(there > 0);
    finish(&mut cluster, &requests[2..]);
}

/// A decode worker that decodes `count` sequences.
fn decoding(count: u64) -> Rig {
    let mut rig = Rig::new(Decode, options(None).layout);
    (0..count).for_each(|id| rig.submit(&Asked::new(id, prompt(9, id as u32), 50), Assignment::Whole));
    rig.turn();
    assert!(rig.step());
    assert_eq!(requests(&rig).len() as u64, count);
    rig.said();
    rig
}

/// The requests in the step that runs.
fn requests(rig: &Rig) -> Vec<u64> {
    rig.running().map_or(Vec::new(), |plan| plan.spans.iter().map(|span| span.key.request.0).collect())
}

fn failures(rig: &mut Rig) -> Vec<(u64, Failure)> {
    let failed = |said| if let FromWorker::Failed { request, why, .. } = said { Some((request.0, why)) } else { None };
    rig.said().into_iter().filter_map(failed).collect()
}

#[test]
fn whoever_is_gone_before_its_part_is_computed_is_no_part_of_it() {
    let mut rig = decoding(4);
    rig.fail_step(1);
    // The culprit, and one that would have been blamed with it.
    for request in [0, 3] {
        rig.tell(&ToWorker::Cancel { request: RequestId(request), epoch: Epoch(1), choice: None });
    }
    // A new request waits until the failed step is done with.
    rig.submit(&Asked::new(9, prompt(9, 9), 50), Assignment::Whole);
    rig.turn();
    assert_eq!(requests(&rig), [1]);
    rig.step();
    assert_eq!(requests(&rig), [2]);
    // Cancelled while its part runs.
    rig.tell(&ToWorker::Cancel { request: RequestId(2), epoch: Epoch(1), choice: None });
    rig.fail_step(0);
    rig.turn();
    assert_eq!((requests(&rig), failures(&mut rig)), (vec![1, 9], vec![]));
    rig.step();
    assert_eq!(rig.machine.core().kv.sequences_open(), 2, "what was cancelled is closed");
}

#[test]
fn a_step_of_one_sequence_is_not_repeated() {
    let mut rig = decoding(1);
    rig.fail_step(0);
    rig.turn();
    assert_eq!((rig.running(), failures(&mut rig)), (None, vec![(0, Failure::Engine)]));
}

#[test]
fn a_device_that_fails_every_step_fails_all_after_a_while() {
    let mut rig = decoding(64);
    let mut steps = 0;
    while rig.running().is_some() {
        rig.fail_step(0);
        rig.turn();
        steps += 1;
        assert!(steps < 64, "it is not tried for ever");
    }
    let failed = failures(&mut rig);
    assert_eq!(failed.len(), 64, "each fails once");
    assert!(failed.iter().all(|(_, why)| *why == Failure::Engine));
    // And the next step is one as any other.
    rig.submit(&Asked::new(100, prompt(9, 1), 3), Assignment::Whole);
    rig.turn();
    while rig.step() {}
    assert_eq!(failures(&mut rig), []);
    assert_eq!(rig.word.get(), rig.word.raised());
}

#[test]
fn readers_do_not_see_the_word_pass_a_failed_step_before_all_of_it_is_written_again() {
    let mut rig = Rig::new(Prefill, options(None).layout);
    (0..3).for_each(|id| rig.submit(&Asked::new(id, prompt(9, id as u32), 50), Assignment::Prefill { decode: PEER }));
    rig.turn();
    let step = rig.running().expect("it computes the prompts").step;
    let gates: Vec<StepId> = rig
        .sent()
        .into_iter()
        .filter_map(|body| if let PeerBody::Written { step, .. } = body { Some(step) } else { None })
        .collect();
    assert_eq!(gates, [step; 3], "readers wait for the word of this step");
    rig.fail_step(1);
    rig.turn();
    let seen = ProgressWord::mark(step, 0);
    for part in [&[0][..], &[1, 2]] {
        assert_eq!((requests(&rig).as_slice(), rig.word.get()), (part, seen));
        rig.step();
    }
    assert_eq!((rig.running(), rig.word.get()), (None, rig.word.raised()));
    assert!(rig.word.get() > ProgressWord::mark(step, 2));
    // Nothing was taken back, and nothing is said twice.
    let complete = |body: &PeerBody| matches!(body, PeerBody::Complete { .. });
    assert!(rig.sent().iter().all(complete));
    assert_eq!(failures(&mut rig), []);
}
