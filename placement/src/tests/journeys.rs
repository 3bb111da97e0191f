//! Journeys, message by message.

use super::support::*;
use crate::retry::REFUSALS_MAX;
use crate::{Command, EARLY_ROWS_MAX, Event, HandoffPolicy, LEFT_AFTER, Phases, PlacementConfig};
use domain::session::{Failure, FromWorker, Report, Role, ToWorker};
use domain::{Choice, End, Epoch, Incarnation, Request, RequestId, Time, WorkerId};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn through_a_prefill_worker() {
    let mut bench = begun(&[P1, D1]);
    check(&bench, "w11 decode after w1 e1+0, w1 prefill for w11 e1+0");
    assert_eq!(bench.placement.phases(), Phases { prefilling: 1, ..Phases::default() });
    bench.tokens(P1, 1, 0, &[5]);
    check(&bench, "c0[0]=5");
    assert_eq!(bench.placement.phases(), Phases { handing_off: 1, ..Phases::default() });
    bench.tokens(D1, 1, 1, &[6, 7]);
    check(&bench, "c0[1]=6, c0[2]=7");
    assert_eq!(bench.placement.phases(), Phases { decoding: 1, ..Phases::default() });
    bench.tokens(D1, 1, 3, &[STOP]);
    bench.ended(D1, 1, 4, End::stop());
    check(&bench, "c0 Stop, w1 cancel e1, w11 cancel e1, end Stop by Done 4");
    nothing_left(&bench);
    assert_eq!((bench.placement.counters().handoffs, bench.placement.counters().wholes), (1, 0));
}

#[test]
fn usage_counts_the_cache_of_the_first_token() {
    let mut bench = begun(&[D1]);
    // One that was preempted says once more what was cached when it began anew.
    for (index, cached_tokens) in [(0, 64), (1, 0), (2, 96)] {
        let row = domain::session::TokenRow { cached_tokens, ..row(1, 1, 0, index, 3) };
        bench.said(D1, FromWorker::Tokens(vec![row]));
    }
    bench.ended(D1, 1, 3, End::length());
    let Some(Command::End { usage, .. }) = bench.out.last() else { panic!("{}", bench.said_so()) };
    let expect = crate::Usage { prompt_tokens: 100, cached_tokens: 64, output_tokens: 3, attempts: 1 };
    assert_eq!(*usage, expect);
}

#[test]
fn a_first_token_that_ends_the_request_frees_the_decode_worker() {
    let mut bench = begun(&[P1, D1]);
    bench.tokens(P1, 1, 0, &[STOP]);
    bench.ended(P1, 1, 1, End::stop());
    check(&bench, "c0 Stop, w1 cancel e1, w11 cancel e1, end Stop by Done 1");
    nothing_left(&bench);
}

#[test]
fn rows_are_committed_in_order_and_once() {
    let mut bench = begun(&[P1, D1]);
    bench.tokens(D1, 1, 2, &[7]);
    bench.tokens(D1, 1, 1, &[6]);
    check(&bench, "");
    bench.tokens(D1, 1, 1, &[6]);
    bench.tokens(P1, 1, 0, &[5]);
    check(&bench, "c0[0]=5, c0[1]=6, c0[2]=7");
    bench.tokens(P1, 1, 0, &[5]);
    bench.tokens(D1, 0, 3, &[8]);
    bench.tokens(D2, 1, 3, &[8]);
    bench.tokens(D1, 1, 8, &[8]);
    check(&bench, "");
    let counters = bench.placement.counters();
    assert_eq!((counters.early_rows, counters.duplicate_rows, counters.stale_rows), (2, 2, 3));
}

#[test]
fn an_end_waits_for_its_tokens() {
    let mut bench = begun(&[P1, D1]);
    bench.ended(D1, 1, 2, End::stop());
    bench.tokens(D1, 1, 1, &[6]);
    check(&bench, "");
    bench.tokens(P1, 1, 0, &[5]);
    check(&bench, "c0[0]=5, c0[1]=6, c0 Stop, w1 cancel e1, w11 cancel e1, end Stop by Done 2");
}

#[test]
fn a_stop_string_ends_one_choice_and_then_the_request() {
    let mut bench = Bench::new(config(), &[P1, D1]);
    bench.arrive(request(1, 100, 2, 8));
    let stop = |choice| Event::StopChoice { request: RequestId(1), choice: Choice(choice) };
    bench.said(P1, FromWorker::Tokens(vec![row(1, 1, 0, 0, 3), row(1, 1, 1, 0, 4)]));
    check(&bench, "c0[0]=3, c1[0]=4");
    bench.event(stop(1));
    check(&bench, "c1 Stop, w1 cancel e1/c1, w11 cancel e1/c1");
    bench.event(stop(1));
    bench.event(stop(9));
    bench.said(D1, FromWorker::Tokens(vec![row(1, 1, 1, 1, 4)]));
    check(&bench, "");
    bench.event(stop(0));
    check(&bench, "c0 Stop, w1 cancel e1, w11 cancel e1, end Stop by Done 2");
    nothing_left(&bench);
}

#[test]
fn a_client_that_leaves_ends_its_request() {
    let mut bench = begun(&[P1, D1]);
    bench.event(Event::Gone { request: RequestId(1) });
    check(&bench, "w1 cancel e1, w11 cancel e1, end Error by Client 0");
    bench.event(Event::Gone { request: RequestId(1) });
    check(&bench, "");
    nothing_left(&bench);
}

#[test]
fn a_deadline_ends_a_request() {
    let mut bench = begun(&[P1, D1]);
    let deadline = bench.placement.next_deadline().unwrap();
    assert_eq!(deadline.since(bench.now), Duration::from_secs(10));
    bench.now = deadline;
    // Whatever comes first after it finds the request gone.
    bench.tokens(P1, 1, 0, &[5]);
    check(&bench, "w1 cancel e1, w11 cancel e1, end Error by Limit 0");
    assert_eq!(bench.placement.counters().stale_rows, 1);
    nothing_left(&bench);
}

#[test]
fn a_lost_decode_worker_is_replaced_and_goes_on_from_what_was_sent() {
    let mut bench = begun(&[P1, D1, D2]);
    bench.tokens(P1, 1, 0, &[5]);
    bench.tokens(D1, 1, 1, &[6]);
    bench.report(P1, Report { number: 1, ..Report::default() });
    bench.event(Event::WorkerDown { id: D1 });
    check(&bench, "w1 cancel e1, w12 decode after w1 e2+2, w1 prefill for w12 e2+2");
    bench.tokens(D1, 1, 2, &[7]);
    check(&bench, "");
    bench.tokens(P1, 2, 2, &[7]);
    check(&bench, "c0[2]=7");
    assert_eq!(bench.placement.counters().replays, 1);
}

#[test]
fn a_lost_prefill_worker_is_replaced_while_its_tokens_are_missing() {
    let mut bench = begun(&[P1, P2, D1]);
    bench.event(Event::WorkerDown { id: P1 });
    check(&bench, "w11 cancel e1, w11 decode after w2 e2+0, w2 prefill for w11 e2+0");
    // After its first token only the decode worker knows whether it is still needed.
    bench.tokens(P2, 2, 0, &[5]);
    bench.event(Event::WorkerDown { id: P2 });
    check(&bench, "");
    bench.failed(D1, 2, Failure::HandoffLapsed);
    check(&bench, "w11 cancel e2, w11 whole e3+1");
    bench.tokens(D1, 3, 1, &[6]);
    check(&bench, "c0[1]=6");
}

#[test]
fn a_prefill_worker_that_fails_after_the_handoff_is_not_missed() {
    let mut bench = begun(&[P1, P2, D1]);
    bench.tokens(P1, 1, 0, &[5]);
    bench.tokens(D1, 1, 1, &[6]);
    bench.failed(P1, 1, Failure::Engine);
    check(&bench, "");
    bench.failed(D1, 1, Failure::Engine);
    check(&bench, "w1 cancel e1, w11 cancel e1, w11 decode after w2 e2+2, w2 prefill for w11 e2+2");
}

#[test]
fn a_choice_that_its_first_token_ended_ends_though_its_worker_could_not_say_so() {
    let mut bench = Bench::new(config(), &[P1, D1]);
    bench.arrive(request(1, 100, 2, 8));
    bench.said(P1, FromWorker::Tokens(vec![row(1, 1, 0, 0, STOP), row(1, 1, 1, 0, 4)]));
    bench.event(Event::WorkerDown { id: P1 });
    check(&bench, "c0 Stop");
    bench.said(D1, FromWorker::Ended { key: key(1, 1, 1), tokens: 1, end: End::length() });
    check(&bench, "c1 Length, w11 cancel e1, end Stop by Done 2");
    nothing_left(&bench);
}

#[test]
fn workers_that_fall_silent_together_cost_one_attempt() {
    let (heartbeat, silence_max) = (Duration::from_secs(1), Duration::from_secs(3));
    let mut bench = Bench::new(PlacementConfig { heartbeat, silence_max, ..config() }, &[P1, P2, D1, D2, D3]);
    bench.arrive(request(1, 160, 1, 5));
    assert_eq!(bench.said_so(), "w11 decode after w1 e1+0, w1 prefill for w11 e1+0");
    // Their host has no power any more: only D3 speaks.
    for ms in (125..=3000).step_by(125) {
        bench.now = Time::ZERO + Duration::from_millis(ms);
        bench.said(D3, FromWorker::Heartbeat);
        if (2000..3000).contains(&ms) {
            // Not lost yet, but nobody for anything new.
            bench.arrive(request(ms, 160, 1, 5));
            assert_eq!(bench.said_so(), "w13 whole e1+0");
            bench.event(Event::Gone { request: RequestId(ms) });
        }
    }
    let lost = "w1 close Silent, w2 close Silent, w11 close Silent, w12 close Silent";
    check(&bench, &format!("{lost}, w13 whole e2+0"));
}

#[test]
fn a_restart_is_a_loss() {
    let mut bench = begun(&[D1]);
    bench.tokens(D1, 1, 0, &[5]);
    bench.up(D1);
    check(&bench, "w11 cancel e1, w11 whole e2+1");
}

#[test]
fn attempts_are_bounded() {
    let mut bench = begun(&[P1, P2, D1, D2]);
    bench.failed(P1, 1, Failure::Engine);
    check(&bench, "w1 cancel e1, w11 cancel e1, w12 decode after w2 e2+0, w2 prefill for w12 e2+0");
    bench.failed(P1, 1, Failure::Engine);
    check(&bench, "");
    bench.failed(D2, 2, Failure::Engine);
    check(&bench, "w2 cancel e2, w12 cancel e2, w11 decode after w2 e3+0, w2 prefill for w11 e3+0");
    bench.failed(D1, 3, Failure::Engine);
    check(&bench, "w2 cancel e3, w11 cancel e3, end Error by Worker 0");
    nothing_left(&bench);
}

#[test]
fn what_an_engine_said_outlives_the_handoff_that_it_cost() {
    for (said, told) in [(Failure::Engine, "Engine"), (Failure::HandoffTimeout, "HandoffLapsed")] {
        let mut bench = Bench::new(PlacementConfig { handoff: HandoffPolicy::Always, ..config() }, &[P1, D1, D2]);
        bench.arrive(request(1, 100, 1, 8));
        bench.failed(P1, 1, said);
        bench.failed(D2, 2, Failure::HandoffLapsed);
        bench.failed(D1, 3, Failure::HandoffLapsed);
        let end = bench.out.iter().find_map(|command| match command {
            Command::End { end, .. } => Some(end.detail.as_str()),
            _ => None,
        });
        assert_eq!(end, Some(told));
        nothing_left(&bench);
    }
}

#[test]
fn a_lease_that_lapsed_is_given_twice_the_time() {
    let lease = |bench: &Bench| {
        bench.out.iter().find_map(|command| match command {
            Command::Send { message: ToWorker::Submit(submit), .. } => Some(submit.lease),
            _ => None,
        })
    };
    let mut bench = Bench::new(PlacementConfig { handoff: HandoffPolicy::Always, ..config() }, &[P1, D1, D2]);
    bench.arrive(request(1, 100, 1, 8));
    assert_eq!(lease(&bench), Some(Duration::from_secs(1)));
    bench.failed(D1, 1, Failure::HandoffTimeout);
    check(&bench, "w1 cancel e1, w11 cancel e1, w12 decode after w1 e2+0, w1 prefill for w12 e2+0");
    assert_eq!(lease(&bench), Some(Duration::from_secs(2)));
    bench.failed(D2, 2, Failure::Engine);
    assert_eq!(lease(&bench), Some(Duration::from_secs(2)));
}

#[test]
fn a_handoff_that_came_to_nothing_is_the_fault_of_whom_it_waited_for() {
    let always = PlacementConfig { handoff: HandoffPolicy::Always, ..config() };
    // The decode worker heard nothing of the prefill worker.
    let mut bench = Bench::new(always.clone(), &[P1, P2, D1, D2]);
    bench.arrive(request(1, 100, 1, 8));
    bench.report(P1, Report { number: 1, ..Report::default() });
    bench.report(D1, Report { number: 1, ..Report::default() });
    bench.blamed(D1, Some(P1), 1, Failure::HandoffTimeout);
    check(&bench, "w1 cancel e1, w11 cancel e1, w11 decode after w2 e2+0, w2 prefill for w11 e2+0");
    // The prefill worker heard nothing of the decode worker.
    let mut bench = Bench::new(always, &[P1, P2, D1, D2]);
    bench.arrive(request(1, 100, 1, 8));
    bench.report(P1, Report { number: 1, ..Report::default() });
    bench.report(D1, Report { number: 1, ..Report::default() });
    bench.blamed(P1, Some(D1), 1, Failure::HandoffLapsed);
    check(&bench, "w1 cancel e1, w11 cancel e1, w12 decode after w1 e2+0, w1 prefill for w12 e2+0");
    // Who is not to blame computes the prompt itself, and nobody else.
    let mut bench = begun(&[P1, D1, D2]);
    bench.report(D1, Report { number: 1, ..Report::default() });
    bench.blamed(D1, Some(P1), 1, Failure::HandoffTimeout);
    check(&bench, "w1 cancel e1, w11 cancel e1, w11 whole e2+0");
}

#[test]
fn choices_that_differ_are_replayed_by_one_worker() {
    // One offer carries one input; two choices with tokens of their own have two.
    let mut bench = Bench::new(PlacementConfig { handoff: HandoffPolicy::Always, ..config() }, &[P1, D1, D2]);
    bench.arrive(request(1, 100, 2, 8));
    bench.said(P1, FromWorker::Tokens(vec![row(1, 1, 0, 0, 3)]));
    bench.event(Event::WorkerDown { id: D1 });
    check(&bench, "w1 cancel e1, w12 whole e2+1");
    bench.said(D2, FromWorker::Tokens(vec![row(1, 2, 0, 1, STOP), row(1, 2, 1, 0, 4)]));
    bench.event(Event::WorkerDown { id: D2 });
    // The first choice ended with its stop token, whoever should have said so; no decode worker is left for the other.
    check(&bench, "c0 Stop, end Error by Worker 3");
    nothing_left(&bench);
}

#[test]
fn an_end_that_the_tokens_imply_needs_no_worker() {
    let mut bench = begun(&[D1]);
    bench.tokens(D1, 1, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
    bench.event(Event::WorkerDown { id: D1 });
    check(&bench, "c0 Length, end Length by Limit 8");
    nothing_left(&bench);
}

#[test]
fn a_full_queue_sends_a_request_elsewhere_or_back() {
    let mut bench = begun(&[P1, D1, D2]);
    bench.failed(P1, 1, Failure::QueueFull);
    check(&bench, "w1 cancel e1, w11 cancel e1, w12 whole e2+0");
    bench.failed(D2, 2, Failure::QueueFull);
    check(&bench, "w12 cancel e2, w11 whole e3+0");
    bench.failed(D1, 3, Failure::QueueFull);
    check(&bench, "w11 cancel e3, reject Overloaded { retry_after: 1s }");
    nothing_left(&bench);

    let mut bench = begun(&[D1]);
    bench.tokens(D1, 1, 0, &[5]);
    bench.failed(D1, 1, Failure::QueueFull);
    check(&bench, "w11 cancel e1, end Error by Us 1");
    nothing_left(&bench);
}

#[test]
fn who_does_not_come_back_has_left() {
    let after = |bench: &mut Bench, time: Duration| {
        bench.now = bench.now + time;
        bench.event(Event::Tick);
        bench.said_so()
    };
    // Two of them have met.
    let mut bench = begun(&[P1, D1, D2]);
    bench.event(Event::Gone { request: RequestId(1) });
    let short = LEFT_AFTER - Duration::from_millis(1);
    bench.event(Event::WorkerDown { id: P1 });
    assert_eq!(after(&mut bench, short), "");
    // Back in time, it is missed by nobody.
    bench.up(P1);
    assert_eq!(after(&mut bench, LEFT_AFTER), "");
    bench.event(Event::WorkerDown { id: P1 });
    assert_eq!(after(&mut bench, short), "");
    bench.event(Event::WorkerDown { id: D2 });
    assert_eq!(bench.placement.next_deadline(), Some(bench.now + Duration::from_millis(1)));
    assert_eq!(after(&mut bench, Duration::from_millis(1)), "w11 forgets w1/i1");
    assert_eq!(after(&mut bench, LEFT_AFTER), "", "none has met the other one");
    // Who drained does not come back in that life.
    bench.up(P1);
    bench.arrive(request(2, 100, 1, 8));
    bench.event(Event::Gone { request: RequestId(2) });
    bench.event(Event::Worker { id: P1, message: FromWorker::Draining });
    check(&bench, "w1 close Drained, w11 forgets w1/i1");
}

#[test]
fn workers_meet_when_they_first_deal_with_each_other() {
    let mut bench = Bench::new(config(), &[P1, D1]);
    assert_eq!(bench.out, [], "they have nothing to do with each other yet");
    let both = "w11 meets w1, w1 meets w11";
    bench.arrive(request(1, 100, 1, 8));
    assert_eq!(bench.introduced(), both);
    check(&bench, "w11 decode after w1 e1+0, w1 prefill for w11 e1+0");
    bench.event(Event::Gone { request: RequestId(1) });
    bench.arrive(request(1, 100, 1, 8));
    assert_eq!((bench.introduced().as_str(), bench.out.len()), ("", 2), "they have met");
    // A later life, or a new session of one of them, is told to those that it has met.
    bench.event(Event::Gone { request: RequestId(1) });
    bench.event(Event::WorkerDown { id: D1 });
    let again = peer(D1, Role::Decode, Incarnation(2));
    bench.event(Event::WorkerUp { peer: again, context_tokens: u32::MAX });
    assert_eq!(bench.introduced(), both);
    // Once it was told that one has left, they are strangers.
    bench.event(Event::WorkerDown { id: P1 });
    bench.now = bench.now + LEFT_AFTER;
    bench.event(Event::Tick);
    check(&bench, "w11 forgets w1/i1");
    bench.up(P1);
    assert_eq!(bench.out, []);
}

#[test]
fn what_is_too_large_for_one_is_tried_by_others() {
    let mut bench = begun(&[P1, P2, D1, D2]);
    bench.failed(P1, 1, Failure::TooLarge);
    check(&bench, "w1 cancel e1, w11 cancel e1, w12 decode after w2 e2+0, w2 prefill for w12 e2+0");
    bench.failed(D2, 2, Failure::TooLarge);
    check(&bench, "w2 cancel e2, w12 cancel e2, w11 decode after w2 e3+0, w2 prefill for w11 e3+0");
    bench.failed(P2, 3, Failure::TooLarge);
    check(&bench, "w2 cancel e3, w11 cancel e3, w11 whole e4+0");
    bench.failed(D1, 4, Failure::TooLarge);
    check(&bench, "w11 cancel e4, reject TooLarge");
    nothing_left(&bench);
    // After its first token it was no limit of the request that ended it.
    let mut bench = begun(&[P1, P2, D1]);
    bench.tokens(P1, 1, 0, &[5]);
    bench.failed(D1, 1, Failure::TooLarge);
    check(&bench, "w1 cancel e1, w11 cancel e1, end Error by Worker 1");
    // Where the only one that is large enough is full, it is worth asking again.
    let mut bench = begun(&[D1, D2]);
    bench.failed(D1, 1, Failure::QueueFull);
    bench.failed(D2, 2, Failure::TooLarge);
    check(&bench, "w12 cancel e2, reject Overloaded { retry_after: 2s }");
}

#[test]
fn who_refuses_costs_no_attempt_and_is_asked_once() {
    let decode: Vec<WorkerId> = (11..11 + 2 * REFUSALS_MAX as u32).map(WorkerId).collect();
    for why in [Failure::QueueFull, Failure::Draining] {
        let mut bench = begun(&decode[..8]);
        for epoch in 1..8 {
            let asked = bench.placement.explain(RequestId(1)).expect("it goes on").route.decode;
            bench.failed(asked, epoch, why);
        }
        let asked = bench.placement.explain(RequestId(1)).expect("it goes on").route.decode;
        bench.tokens(asked, 8, 0, &[5]);
        bench.ended(asked, 8, 1, End::stop());
        let usage = bench.out.iter().find_map(|command| match command {
            Command::End { usage, .. } => Some(usage.attempts),
            _ => None,
        });
        assert_eq!(usage, Some(1), "{why:?}");
        nothing_left(&bench);
    }
    // An attempt that failed is one more, and whoever had no time before may have some.
    let mut bench = begun(&[D1, D2]);
    bench.failed(D1, 1, Failure::QueueFull);
    check(&bench, "w11 cancel e1, w12 whole e2+0");
    bench.failed(D2, 2, Failure::Engine);
    check(&bench, "w12 cancel e2, w11 whole e3+0");
    // However many are there, so many are asked.
    let mut bench = begun(&decode);
    for epoch in 1..=REFUSALS_MAX as u32 {
        let asked = bench.placement.explain(RequestId(1)).expect("it goes on").route.decode;
        bench.failed(asked, epoch, Failure::QueueFull);
    }
    let asked = bench.placement.explain(RequestId(1)).expect("one more may take it").route.decode;
    bench.failed(asked, REFUSALS_MAX as u32 + 1, Failure::QueueFull);
    check(&bench, &format!("{asked} cancel e17, reject Overloaded {{ retry_after: 1s }}"));
    nothing_left(&bench);
}

#[test]
fn what_no_worker_can_compute_is_not_tried_again() {
    let mut bench = begun(&[P1, P2, D1]);
    bench.failed(P1, 1, Failure::Invalid);
    check(&bench, "w1 cancel e1, w11 cancel e1, reject Invalid");
    nothing_left(&bench);
    let mut bench = begun(&[P1, P2, D1]);
    bench.tokens(P1, 1, 0, &[5]);
    bench.failed(D1, 1, Failure::Invalid);
    check(&bench, "w1 cancel e1, w11 cancel e1, end Error by Worker 1");
}

#[test]
fn requests_are_refused_where_they_cannot_be_served() {
    let mut bench = Bench::new(PlacementConfig { requests_max: 1, ..config() }, &[P1]);
    bench.arrive(request(1, 10, 1, 8));
    check(&bench, "reject NoWorkers");
    bench.up(D1);
    bench.arrive(request(1, 10, 1, 8));
    check(&bench, "w11 whole e1+0");
    bench.arrive(request(1, 10, 1, 8));
    check(&bench, "");
    bench.arrive(request(2, 10, 1, 8));
    check(&bench, "reject Overloaded { retry_after: 2s }");
    let counters = bench.placement.counters();
    assert_eq!((counters.rejected, counters.repeated_requests, bench.placement.open()), (2, 1, 1));
}

#[test]
fn who_is_too_small_for_a_request_serves_others() {
    let mut bench = Bench::new(config(), &[]);
    [(P1, 90), (P2, 100), (D1, 107), (D2, 108)].into_iter().for_each(|(id, context)| bench.up_with(id, context));
    // A prefill worker has the prompt, a decode worker all that is made of it, too.
    bench.arrive(request(1, 100, 1, 8));
    check(&bench, "w12 decode after w2 e1+0, w2 prefill for w12 e1+0");
    bench.arrive(request(2, 90, 1, 8));
    check(&bench, "w11 decode after w1 e1+0, w1 prefill for w11 e1+0");
    // What is committed is input of the next attempt.
    bench.event(Event::Gone { request: RequestId(2) });
    bench.tokens(P2, 1, 0, &[5]);
    bench.failed(D2, 1, Failure::Engine);
    check(&bench, "w2 cancel e1, w12 cancel e1, w12 whole e2+1");
    bench.event(Event::Gone { request: RequestId(1) });
    bench.arrive(request(3, 100, 1, 9));
    check(&bench, "reject TooLarge");
    bench.event(Event::WorkerDown { id: D2 });
    bench.arrive(request(4, 100, 1, 8));
    check(&bench, "reject TooLarge");
    bench.event(Event::WorkerDown { id: D1 });
    bench.arrive(request(5, 100, 1, 8));
    check(&bench, "reject NoWorkers");
}

#[test]
fn a_deadline_that_cannot_be_met_is_refused_early() {
    let queue = |number, waiting_tokens, prefill_tokens_per_s| Report {
        number,
        waiting_tokens,
        prefill_tokens_per_s,
        ..Report::default()
    };
    let mut bench = Bench::new(config(), &[D1]);
    // An assumed speed refuses nobody.
    bench.report(D1, queue(1, 90_000, 0.0));
    bench.arrive(request(1, 10, 1, 8));
    check(&bench, "w11 whole e1+0");
    bench.report(D1, queue(2, 90_000, 2_000.0));
    bench.arrive(request(2, 10, 1, 8));
    check(&bench, "reject Overloaded { retry_after: 45s }");
    bench.report(D1, queue(3, 19_000, 2_000.0));
    bench.arrive(request(3, 10, 1, 8));
    check(&bench, "w11 whole e1+0");
    // Nor does an idle worker, however slow it was: its next step corrects what it said.
    bench.report(D1, queue(4, 0, 0.1));
    bench.arrive(request(4, 10, 1, 8));
    check(&bench, "w11 whole e1+0");
    bench.arrive(request(5, 10, 1, 8));
    check(&bench, "reject Overloaded { retry_after: 102s }");
}

#[test]
fn a_first_token_that_never_comes_fails_the_attempt() {
    let mut bench = begun(&[P1, P2, D1]);
    bench.event(Event::Gone { request: RequestId(1) });
    bench.arrive(request(1, 100, 1, 1_000));
    let rows: Vec<u32> = vec![4; EARLY_ROWS_MAX];
    bench.tokens(D1, 1, 1, &rows);
    check(&bench, "");
    bench.tokens(D1, 1, 1 + EARLY_ROWS_MAX as u32, &[4]);
    check(&bench, "w2 cancel e1, w11 cancel e1, w11 decode after w1 e2+0, w1 prefill for w11 e2+0");
}

/// A decode worker that runs four at once, of which so many sequences are open, in its `number`th report.
fn open(number: u64, open: u32) -> Report {
    Report { number, running_max: 4, open, ..Report::default() }
}

#[test]
fn what_no_decode_worker_would_soon_get_to_waits_for_one() {
    let always = PlacementConfig { handoff: HandoffPolicy::Always, ..config() };
    let mut bench = Bench::new(always, &[P1, D1]);
    bench.report(D1, open(1, 4));
    // One more may wait there: it goes on as soon as a place is free.
    bench.arrive(request(1, 100, 1, 8));
    check(&bench, "w11 decode after w1 e1+0, w1 prefill for w11 e1+0");
    for id in 2..=4 {
        bench.arrive(request(id, 100, 1, 8));
        check(&bench, "");
    }
    assert_eq!(bench.placement.phases(), Phases { waiting: 3, prefilling: 1, ..Phases::default() });
    // It has seen what it was given, and has no place yet.
    bench.report(D1, open(2, 5));
    check(&bench, "");
    // Two places: the first two go.
    bench.report(D1, open(3, 3));
    check(
        &bench,
        "w11 decode after w1 e1+0, w1 prefill for w11 e1+0, w11 decode after w1 e1+0, w1 prefill for w11 e1+0",
    );
    assert_eq!(bench.placement.phases(), Phases { waiting: 1, prefilling: 3, ..Phases::default() });
    // One of many sequences goes when a small one would, or it never had its turn.
    bench.arrive(request(5, 100, 4, 8));
    bench.arrive(request(6, 100, 1, 8));
    bench.report(D1, open(4, 3));
    assert_eq!(bench.placement.phases(), Phases { waiting: 1, prefilling: 5, ..Phases::default() });
}

#[test]
fn a_place_that_a_request_leaves_is_given_before_the_next_report() {
    let mut bench = Bench::new(config(), &[D1]);
    bench.report(D1, open(1, 4));
    bench.arrive(request(1, 10, 1, 8));
    check(&bench, "w11 whole e1+0");
    bench.arrive(request(2, 10, 1, 8));
    bench.arrive(request(3, 10, 1, 8));
    check(&bench, "");
    bench.tokens(D1, 1, 0, &[4]);
    bench.ended(D1, 1, 1, End::stop());
    assert!(bench.said_so().ends_with("w11 whole e1+0"), "{}", bench.said_so());
    assert_eq!(bench.placement.phases().waiting, 1, "one place, one request");
    // The report counts it itself.
    bench.report(D1, open(2, 5));
    assert_eq!(bench.placement.phases().waiting, 1);
}

#[test]
fn who_waits_goes_to_whoever_comes() {
    let mut bench = Bench::new(config(), &[D1]);
    bench.report(D1, open(1, 5));
    bench.arrive(request(1, 10, 1, 8));
    check(&bench, "");
    bench.up(D2);
    assert!(bench.said_so().ends_with("w12 whole e1+0"), "{}", bench.said_so());
}

#[test]
fn memory_that_others_wait_for_is_waited_for_here() {
    let mut bench = Bench::new(config(), &[D1]);
    let memory = |number, blocks_available, blocks_wanted| Report {
        number,
        running_max: 64,
        open: 3,
        blocks_total: 40,
        blocks_available,
        blocks_wanted,
        ..Report::default()
    };
    // Seven blocks are asked for. Those who wait want six of the ten that may be wanted beyond what is there.
    bench.report(D1, memory(1, 0, 6));
    bench.arrive(request(1, 100, 1, 8));
    check(&bench, "");
    bench.report(D1, memory(2, 2, 6));
    check(&bench, "");
    bench.report(D1, memory(3, 3, 6));
    check(&bench, "w11 whole e1+0");
}

#[test]
fn who_waits_may_leave_and_has_a_deadline() {
    let mut bench = Bench::new(config(), &[D1]);
    bench.report(D1, open(1, 5));
    for id in 1..=3 {
        bench.arrive(request(id, 10, 1, 8));
    }
    bench.event(Event::Gone { request: RequestId(1) });
    check(&bench, "end Error by Client 0");
    // Its place in the queue is nobody's.
    bench.report(D1, open(2, 4));
    check(&bench, "w11 whole e1+0");
    bench.now = bench.now + Duration::from_secs(10);
    bench.event(Event::Tick);
    check(&bench, "w11 cancel e1, end Error by Limit 0, end Error by Limit 0");
    nothing_left(&bench);
}

#[test]
fn who_waits_is_told_when_nobody_is_left() {
    let mut bench = Bench::new(config(), &[D1]);
    bench.report(D1, open(1, 5));
    bench.arrive(request(1, 10, 1, 8));
    bench.event(Event::WorkerDown { id: D1 });
    check(&bench, "");
    // It may be back soon.
    bench.up(D1);
    check(&bench, "w11 whole e1+0");
    let mut bench = Bench::new(PlacementConfig { requests_max: 100, ..config() }, &[D1]);
    bench.report(D1, open(1, 5));
    for id in 1..=20 {
        bench.arrive(Arc::new(Request { deadline: LEFT_AFTER * 2, ..(*request(id, 10, 1, 8)).clone() }));
    }
    bench.event(Event::WorkerDown { id: D1 });
    bench.now = bench.now + LEFT_AFTER;
    bench.event(Event::Tick);
    assert_eq!(bench.said_so(), ["reject NoWorkers"; 20].join(", "));
    nothing_left(&bench);
}

#[test]
fn one_that_is_too_long_for_a_worker_keeps_nobody_from_it() {
    let mut bench = Bench::new(config(), &[]);
    bench.up_with(D1, 1000);
    bench.up_with(D2, 50);
    bench.report(D1, open(1, 5));
    bench.report(D2, open(1, 5));
    bench.arrive(request(1, 100, 1, 8));
    bench.arrive(request(2, 10, 1, 8));
    bench.arrive(request(3, 100, 1, 8));
    check(&bench, "");
    bench.report(D2, open(2, 4));
    check(&bench, "w12 whole e1+0");
    // The first in its turn, and not the third.
    bench.report(D1, open(2, 4));
    check(&bench, "w11 whole e1+0");
    // Whoever leaves makes room for those behind it.
    bench.report(D2, open(3, 0));
    bench.arrive(request(4, 10, 1, 8));
    check(&bench, "w12 whole e1+0");
}

#[test]
fn what_was_not_sent_is_not_waited_for() {
    let mut bench = Bench::new(config(), &[D1]);
    bench.report(D1, open(1, 4));
    bench.arrive(request(1, 10, 1, 8));
    check(&bench, "w11 whole e1+0");
    bench.event(Event::Unsent { worker: D1, request: RequestId(1), epoch: Epoch(1) });
    // The worker knows of nothing more, and has a place.
    bench.said(D1, FromWorker::Report(Report { incarnation: Incarnation(1), submits: 0, ..open(2, 4) }));
    bench.arrive(request(2, 10, 1, 8));
    check(&bench, "w11 whole e1+0");
}

#[test]
fn a_refused_request_gives_no_place_to_the_next() {
    let mut bench = Bench::new(config(), &[D1]);
    bench.report(D1, open(1, 5));
    (1..=3).for_each(|id| bench.arrive(request(id, 10, 1, 8)));
    assert_eq!(bench.placement.phases().waiting, 3);
    // A place for one, which does not get through: nothing ended there, so the others wait for the next report.
    bench.report(D1, open(2, 4));
    check(&bench, "w11 whole e1+0");
    bench.event(Event::Unsent { worker: D1, request: RequestId(1), epoch: Epoch(1) });
    assert_eq!(bench.placement.phases().waiting, 2);
}

#[test]
fn a_worker_that_has_said_nothing_gets_a_few() {
    let mut bench = Bench::new(PlacementConfig { requests_max: 100, ..config() }, &[D1]);
    bench.report(D1, open(1, 5));
    (1..=40).for_each(|id| bench.arrive(request(id, 10, 1, 8)));
    assert_eq!(bench.placement.phases().waiting, 40);
    bench.up(D2);
    assert_eq!(bench.placement.phases().waiting, 40 - 16);
}

#[test]
fn a_refused_client_waits_for_those_who_wait_here_too() {
    let mut bench = Bench::new(config(), &[D1]);
    let busy = Report { running: 4, decode_step_s: 0.5, ..open(1, 5) };
    bench.report(D1, busy);
    let before = bench.placement.retry_after();
    for id in 1..=4 {
        bench.arrive(request(id, 10, 1, 8));
    }
    assert!(bench.placement.retry_after() >= before * 4, "{:?}", bench.placement.retry_after());
}
