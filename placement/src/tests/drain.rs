//! Workers that drain, take work again or change their role.

use super::support::*;
use crate::{Command, Event, HandoffPolicy, PlacementConfig};
use domain::session::{Failure, FromWorker, Report, Role, ToWorker};
use domain::{End, RequestId};

#[test]
fn a_draining_worker_gets_nothing_new() {
    let mut bench = begun(&[D1, D2]);
    bench.failed(D1, 1, Failure::Draining);
    check(&bench, "w11 cancel e1, w12 whole e2+0, w11 close Drained");
    bench.arrive(request(2, 10, 1, 8));
    check(&bench, "w12 whole e1+0");
    bench.up(D1);
    bench.arrive(request(3, 10, 1, 8));
    check(&bench, "w11 whole e1+0");
}

#[test]
fn a_draining_worker_is_let_go_when_nothing_needs_it() {
    let draining = |bench: &mut Bench, id| bench.event(Event::Worker { id, message: FromWorker::Draining });
    let mut bench = begun(&[P1, D1]);
    draining(&mut bench, P1);
    check(&bench, "");
    bench.tokens(P1, 1, 0, &[5]);
    check(&bench, "c0[0]=5");
    // Its decode worker has said a token: it has the whole prompt.
    bench.tokens(D1, 1, 1, &[6]);
    check(&bench, "c0[1]=6, w1 close Drained, w11 forgets w1/i1");

    // Nobody is there to move it to: its decode worker is needed to the end.
    draining(&mut bench, D1);
    bench.tokens(D1, 1, 2, &[7]);
    check(&bench, "c0[2]=7");
    bench.ended(D1, 1, 3, End::stop());
    check(&bench, "c0 Stop, w11 cancel e1, end Stop by Done 3, w11 close Drained");
    assert_eq!(bench.placement.workers(), []);
    nothing_left(&bench);
}

/// What an operator does with a worker, its reports say.
fn report(number: u64, draining: bool, role: Role) -> Report {
    Report { number, draining, role: Some(role), ..Report::default() }
}

#[test]
fn a_worker_that_an_operator_drains_stays_and_takes_work_again() {
    let mut bench = begun(&[D1, D2]);
    bench.tokens(D1, 1, 0, &[5]);
    bench.report(D1, report(1, true, Role::Decode));
    check(&bench, "w12 take over from w11 e2+1, w11 hand e1 over to w12 as e2 +1");
    assert!(bench.placement.workers()[0].needed && bench.placement.workers()[0].draining);
    bench.tokens(D2, 2, 1, &[6]);
    check(&bench, "c0[1]=6");
    // Nothing of it is needed, and its session stays.
    assert!(!bench.placement.workers()[0].needed && bench.placement.workers()[0].draining);
    bench.arrive(request(2, 10, 1, 8));
    check(&bench, "w12 whole e1+0");
    let changes = bench.placement.fleet_changes();
    bench.report(D1, report(2, false, Role::Decode));
    assert_eq!(bench.placement.fleet_changes(), changes + 1);
    bench.arrive(request(3, 10, 1, 8));
    check(&bench, "w11 whole e1+0");
    // One that is about to end takes no work again, whatever an operator says.
    bench.said(D1, FromWorker::Draining);
    bench.report(D1, report(3, false, Role::Decode));
    bench.arrive(request(4, 10, 1, 8));
    check(&bench, "w12 whole e1+0");
}

#[test]
fn what_had_no_room_elsewhere_stays_where_work_is_taken_again() {
    let mut bench = begun(&[D1]);
    bench.tokens(D1, 1, 0, &[5]);
    bench.report(D1, report(1, true, Role::Decode));
    check(&bench, "");
    assert!(bench.placement.request(RequestId(1)).is_some_and(|request| request.stuck));
    bench.report(D1, report(2, false, Role::Decode));
    bench.up(D2);
    bench.report(D2, report(1, false, Role::Decode));
    check(&bench, "");
    bench.tokens(D1, 1, 1, &[6]);
    check(&bench, "c0[1]=6");
}

#[test]
fn who_refused_an_attempt_takes_it_over_once_it_has_begun_elsewhere() {
    let mut bench = begun(&[D1, D2]);
    bench.failed(D1, 1, Failure::QueueFull);
    check(&bench, "w11 cancel e1, w12 whole e2+0");
    bench.tokens(D2, 2, 0, &[5]);
    bench.report(D2, report(1, true, Role::Decode));
    check(&bench, "w11 take over from w12 e3+1, w12 hand e2 over to w11 as e3 +1");
    // What the prefill worker says does not show that the decode worker has begun.
    let mut bench = Bench::new(PlacementConfig { handoff: HandoffPolicy::Always, ..config() }, &[P1, D1, D2]);
    bench.arrive(request(1, 100, 1, 8));
    bench.failed(D1, 1, Failure::QueueFull);
    check(&bench, "w1 cancel e1, w11 cancel e1, w12 decode after w1 e2+0, w1 prefill for w12 e2+0");
    bench.tokens(P1, 2, 0, &[5]);
    bench.failed(D2, 2, Failure::QueueFull);
    check(&bench, "w1 cancel e2, w12 cancel e2, end Error by Us 1");
}

/// Workers change their roles: the one that computed the prompt decodes by now, and the sequence moves there.
fn moves_to_its_prefill_worker() -> Bench {
    let mut bench = Bench::new(PlacementConfig { handoff: HandoffPolicy::Always, ..config() }, &[P1, D1]);
    bench.arrive(request(1, 100, 1, 8));
    bench.tokens(P1, 1, 0, &[5]);
    bench.tokens(D1, 1, 1, &[6]);
    bench.report(P1, report(1, false, Role::Decode));
    bench.said_so();
    bench.report(D1, report(1, true, Role::Decode));
    check(&bench, "w1 take over from w11 e2+2, w11 hand e1 over to w1 as e2 +2");
    bench
}

#[test]
fn a_move_to_the_worker_that_computed_the_prompt_can_fail() {
    let mut bench = moves_to_its_prefill_worker();
    bench.failed(P1, 2, Failure::HandoffTimeout);
    check(&bench, "w1 cancel e1, w11 cancel e1, w1 cancel e2, w1 whole e3+2");
    let mut bench = moves_to_its_prefill_worker();
    bench.event(Event::WorkerDown { id: P1 });
    check(&bench, "w11 cancel e1, end Error by Worker 2");
}

#[test]
fn who_takes_work_again_is_asked_again() {
    let again: [fn(&mut Bench); 3] = [
        |bench| bench.report(D1, report(2, false, Role::Decode)),
        // Another life of it.
        |bench| bench.up(D1),
        |bench| {
            bench.report(D1, report(2, true, Role::Prefill));
            bench.report(D1, report(3, false, Role::Decode));
        },
    ];
    for takes_work_again in again {
        let mut bench = begun(&[D1, D2]);
        bench.report(D1, report(1, true, Role::Decode));
        bench.failed(D1, 1, Failure::QueueFull);
        check(&bench, "w11 cancel e1, w12 whole e2+0");
        takes_work_again(&mut bench);
        bench.failed(D2, 2, Failure::QueueFull);
        check(&bench, "w12 cancel e2, w11 whole e3+0");
        bench.tokens(D1, 3, 0, &[5]);
        bench.ended(D1, 3, 1, End::stop());
        let usage = |command: &Command| matches!(command, Command::End { usage, .. } if usage.attempts == 1);
        assert!(bench.out.iter().any(usage), "a refusal costs no attempt: {}", bench.said_so());
    }
}

#[test]
fn a_role_that_changed_counts_from_the_report_on() {
    let mut bench = begun(&[D1, D2]);
    bench.tokens(D1, 1, 0, &[5]);
    bench.report(D1, report(1, false, Role::Prefill));
    check(&bench, "");
    let roles: Vec<Role> = bench.placement.workers().iter().map(|worker| worker.role).collect();
    assert_eq!(roles, [Role::Prefill, Role::Decode]);
    bench.arrive(request(2, 500, 1, 8));
    check(&bench, "w12 decode after w11 e1+0, w11 prefill for w12 e1+0");
    // The worker that meets it learns it.
    let introduced = bench.out.iter().find_map(|command| match command {
        Command::Send { worker: D2, message: ToWorker::Peer(peer) } if peer.id == D1 => Some(peer.role),
        _ => None,
    });
    assert_eq!(introduced, Some(Role::Prefill));
    // What it decodes goes on.
    bench.tokens(D1, 1, 1, &[6]);
    check(&bench, "c0[1]=6");
    bench.report(D1, report(2, false, Role::Decode));
    bench.arrive(request(3, 500, 1, 8));
    check(&bench, "w11 whole e1+0");
}

#[test]
fn what_could_not_move_when_its_worker_began_to_drain_moves_later() {
    let draining = |bench: &mut Bench, id| bench.event(Event::Worker { id, message: FromWorker::Draining });
    // The next worker drains, too, before it has said anything.
    let mut bench = begun(&[D1, D2]);
    bench.tokens(D1, 1, 0, &[5]);
    draining(&mut bench, D1);
    check(&bench, "w12 take over from w11 e2+1, w11 hand e1 over to w12 as e2 +1");
    bench.up(D3);
    draining(&mut bench, D2);
    check(&bench, "");
    bench.tokens(D2, 2, 1, &[6]);
    let left = "w11 close Drained, w12 forgets w11/i1";
    check(&bench, &format!("c0[1]=6, w13 take over from w12 e3+2, w12 hand e2 over to w13 as e3 +2, {left}"));

    // The first token is the prefill worker's, and comes after the decode worker's.
    let mut bench = begun(&[P1, D1, D2]);
    draining(&mut bench, D1);
    check(&bench, "");
    bench.tokens(D1, 1, 1, &[6]);
    check(&bench, "");
    bench.tokens(P1, 1, 0, &[5]);
    check(&bench, "c0[0]=5, c0[1]=6, w12 take over from w11 e2+2, w11 hand e1 over to w12 as e2 +2");

    // The same where its worker drains after it has said a token.
    let mut bench = begun(&[P1, D1, D2]);
    bench.tokens(D1, 1, 1, &[6]);
    draining(&mut bench, D1);
    check(&bench, "");
    bench.tokens(P1, 1, 0, &[5]);
    check(&bench, "c0[0]=5, c0[1]=6, w12 take over from w11 e2+2, w11 hand e1 over to w12 as e2 +2");
}

#[test]
fn what_nobody_had_room_for_moves_when_somebody_says_that_it_has() {
    let room = |number, blocks_available| Report { number, blocks_available, blocks_total: 100, ..Report::default() };
    let mut bench = begun(&[D1, D2, D3]);
    bench.tokens(D1, 1, 0, &[5]);
    [D2, D3].into_iter().for_each(|id| bench.report(id, room(1, 6)));
    bench.event(Event::Worker { id: D1, message: FromWorker::Draining });
    check(&bench, "");
    // Its tokens say nothing of room elsewhere, nor does a report without any.
    bench.tokens(D1, 1, 1, &[6]);
    check(&bench, "c0[1]=6");
    bench.report(D2, room(2, 6));
    check(&bench, "");
    bench.report(D1, room(1, 100));
    check(&bench, "");
    bench.report(D3, room(2, 7));
    check(&bench, "w13 take over from w11 e2+2, w11 hand e1 over to w13 as e2 +2");
    bench.report(D2, room(3, 100));
    check(&bench, "");
    // It came to nothing, and the client left.
    bench.event(Event::Gone { request: RequestId(1) });
    let left = "w11 close Drained, w13 forgets w11/i1";
    check(&bench, &format!("w11 cancel e1, w13 cancel e2, end Error by Client 2, {left}"));
    nothing_left(&bench);
}
