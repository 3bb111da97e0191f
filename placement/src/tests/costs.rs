//! Who is chosen, and what it was predicted to cost.

use super::support::*;
use crate::{CANDIDATES_KEPT, Decision, FetchPolicy, HandoffPolicy, PlacementConfig, Rates, Route};
use domain::session::{Holder, Report};
use domain::{Incarnation, RequestId, WorkerId};

/// Places a prompt of `tokens` after these reports and returns the route.
fn check(config: PlacementConfig, workers: &[WorkerId], reports: &[(WorkerId, Report)], tokens: u32) -> Route {
    placed(config, workers, reports, tokens).route
}

/// Returns the whole decision.
fn placed(config: PlacementConfig, workers: &[WorkerId], reports: &[(WorkerId, Report)], tokens: u32) -> Decision {
    let mut bench = Bench::new(config, workers);
    for (id, report) in reports {
        bench.report(*id, Report { number: 1, ..report.clone() });
    }
    bench.arrive(request(1, tokens, 1, 4));
    bench.placement.explain(RequestId(1)).expect("it was placed").clone()
}

fn pair(prefill: WorkerId, decode: WorkerId) -> Route {
    Route { prefill: Some(prefill), decode }
}

fn alone(decode: WorkerId) -> Route {
    Route { prefill: None, decode }
}

fn holds(blocks: u32) -> Report {
    Report { added: links(&chain(0, blocks * 16), 0..blocks as usize), ..Report::default() }
}

#[test]
fn on_idle_workers_a_couple_of_blocks_decide() {
    // Alone: twice a millisecond per token. Handed off: a millisecond per token and 20.
    assert_eq!(check(config(), &[P1, D1], &[], 16), alone(D1));
    assert_eq!(check(config(), &[P1, D1], &[], 32), pair(P1, D1));
}

#[test]
fn the_policy_can_force_either() {
    let with = |handoff| PlacementConfig { handoff, ..config() };
    assert_eq!(check(with(HandoffPolicy::Always), &[P1, D1], &[], 1), pair(P1, D1));
    assert_eq!(check(with(HandoffPolicy::Always), &[D1], &[], 1), alone(D1));
    assert_eq!(check(with(HandoffPolicy::Never), &[P1, D1], &[], 1_000), alone(D1));
}

#[test]
fn a_prompt_that_the_decode_worker_has_cached_skips_prefill() {
    assert_eq!(check(config(), &[P1, D1], &[(D1, holds(6))], 100), alone(D1));
    assert_eq!(check(config(), &[P1, D1], &[(D1, holds(2))], 100), pair(P1, D1));
}

#[test]
fn of_equals_the_one_with_the_prefix_is_chosen() {
    assert_eq!(check(config(), &[P1, P2, D1, D2], &[(P2, holds(3)), (D2, holds(1))], 100), pair(P2, D2));
}

#[test]
fn a_queue_can_cost_more_than_a_prefix_saves() {
    let queue = |waiting_tokens| Report { waiting_tokens, ..holds(3) };
    let alone_with_it = || PlacementConfig { fetch: FetchPolicy::Never, ..config() };
    assert_eq!(check(alone_with_it(), &[P1, P2, D1], &[(P1, queue(47))], 100), pair(P1, D1));
    assert_eq!(check(alone_with_it(), &[P1, P2, D1], &[(P1, queue(49))], 100), pair(P2, D1));
    // Where every prefill worker is busy, the decode worker computes the prompt itself.
    assert_eq!(check(alone_with_it(), &[P1, D1], &[(P1, queue(300))], 100), alone(D1));
}

#[test]
fn a_prefix_is_fetched_from_a_worker_that_is_busy() {
    let queue = |waiting_tokens| Report { waiting_tokens, ..holds(3) };
    let held = Holder { worker: P1, incarnation: Incarnation(1), tokens: 48 };
    let check = |config, workers: &[WorkerId], queued, route, holder| {
        let decision = placed(config, workers, &[(P1, queue(queued))], 100);
        assert_eq!((decision.route, decision.holder), (route, holder), "{decision}");
    };
    // It takes 20.48 ms, and computing 48 tokens as many milliseconds.
    check(config(), &[P1, P2, D1], 20, pair(P1, D1), None);
    check(config(), &[P1, P2, D1], 21, pair(P2, D1), Some(held));
    // The longest prefix of all is not enough where there is nothing else to fetch.
    let never = PlacementConfig { fetch: FetchPolicy::Never, ..config() };
    check(never, &[P1, P2, D1], 49, pair(P2, D1), None);
    // Over a slow wire it is computed, unless it is always to be fetched.
    let slow = |fetch| {
        let defaults = Rates { fetch_bytes_per_s: 1e6, ..config().defaults };
        PlacementConfig { fetch, handoff: HandoffPolicy::Never, defaults, ..config() }
    };
    check(slow(FetchPolicy::Auto), &[P1, D1], 0, alone(D1), Some(held));
    let slower = |fetch| {
        let defaults = Rates { fetch_bytes_per_s: 1e5, ..config().defaults };
        PlacementConfig { defaults, ..slow(fetch) }
    };
    check(slower(FetchPolicy::Auto), &[P1, D1], 0, alone(D1), None);
    check(slower(FetchPolicy::Always), &[P1, D1], 0, alone(D1), Some(held));
}

#[test]
fn the_next_turn_finds_what_its_decode_worker_generated() {
    // The first turn went through P1 and D1, which has the answer too. P1 has room for the next.
    let reports = [(P1, holds(2)), (D1, Report { running: 12, ..holds(6) })];
    let held = |tokens| Some(Holder { worker: D1, incarnation: Incarnation(1), tokens });
    let decision = placed(config(), &[P1, D1], &reports, 100);
    assert_eq!((decision.route, decision.holder), (pair(P1, D1), held(96)), "{decision}");
    // At least a token is computed, and what is fetched is whole blocks.
    let decision = placed(PlacementConfig { handoff: HandoffPolicy::Always, ..config() }, &[P1, D1], &reports, 96);
    assert_eq!((decision.route, decision.holder), (pair(P1, D1), held(80)), "{decision}");
}

/// So many blocks are on the device, so many behind them in the host tier, and so many behind those on disk.
fn lowered(device: u32, host: u32, disk: u32) -> Report {
    let chain = chain(0, (device + host + disk) * 16);
    let (device, host) = (device as usize, (device + host) as usize);
    let (added, host, disk) = (links(&chain, 0..device), links(&chain, device..host), links(&chain, host..chain.len()));
    Report { added, host, disk, ..Report::default() }
}

#[test]
fn the_next_turn_goes_back_to_where_its_tiers_have_it() {
    let alone_only = || PlacementConfig { handoff: HandoffPolicy::Never, fetch: FetchPolicy::Never, ..config() };
    for below in [lowered(0, 6, 0), lowered(0, 0, 6), lowered(2, 2, 2)] {
        let decision = placed(alone_only(), &[D1, D2], &[(D2, below)], 100);
        assert_eq!(decision.route, alone(D2), "{decision}");
        assert_eq!((decision.whole[0].cached_tokens, decision.whole[1].cached_tokens), (96, 0));
    }
    // On the device it costs nothing, in memory 0.05 ms a token, and on disk 0.2.
    let chosen = |one: Report, other: Report| placed(alone_only(), &[D1, D2], &[(D1, one), (D2, other)], 100).route;
    assert_eq!(chosen(lowered(0, 6, 0), lowered(6, 0, 0)), alone(D2));
    assert_eq!(chosen(lowered(0, 0, 6), lowered(0, 6, 0)), alone(D2));
    // 32 tokens more to compute take longer than loading 96.
    assert_eq!(chosen(lowered(4, 0, 0), lowered(0, 6, 0)), alone(D2));
    assert_eq!(chosen(lowered(4, 0, 0), lowered(0, 4, 0)), alone(D1));
}

#[test]
fn nobody_is_sent_to_where_loading_takes_longer_than_computing() {
    let slow = Report { disk_tokens_per_s: 400.0, ..lowered(1, 0, 5) };
    let decision = placed(config(), &[D1], &[(D1, slow)], 100);
    let cost = decision.whole[0];
    assert_eq!((cost.cached_tokens, cost.load_s), (16, 0.0), "{decision}");
    // What a worker has not measured is taken to be as with the others.
    let measured = Report { disk_tokens_per_s: 400.0, ..Report::default() };
    let reports = [(D1, measured), (D2, lowered(1, 0, 5))];
    let decision = placed(config(), &[D1, D2], &reports, 100);
    assert!(decision.whole.iter().all(|cost| cost.load_s == 0.0), "{decision}");
}

#[test]
fn a_holder_is_asked_for_what_its_tiers_have_where_that_is_worth_it() {
    let held = |tokens| Some(Holder { worker: P1, incarnation: Incarnation(1), tokens });
    let busy = |report: Report| Report { waiting_tokens: 1_000, ..report };
    let holder = |report| placed(config(), &[P1, P2, D1], &[(P1, busy(report))], 100).holder;
    assert_eq!(holder(lowered(3, 0, 0)), held(48));
    assert_eq!(holder(lowered(3, 0, 3)), held(96));
    assert_eq!(holder(lowered(0, 3, 3)), held(96));
    // Of what takes it too long to load it is not asked, but of the rest.
    let slow = Report { disk_tokens_per_s: 500.0, ..lowered(3, 0, 3) };
    assert_eq!(holder(slow), held(48));
    let slow = Report { disk_tokens_per_s: 500.0, ..lowered(0, 0, 6) };
    assert_eq!(holder(slow), None);
    // What one's own tiers have is rather loaded, unless that takes longer than asking.
    let own = |disk_tokens_per_s| {
        let reports = [(P1, busy(lowered(6, 0, 0))), (P2, Report { disk_tokens_per_s, ..lowered(0, 0, 6) })];
        let always = PlacementConfig { handoff: HandoffPolicy::Always, ..config() };
        let decision = placed(always, &[P1, P2, D1], &reports, 100);
        (decision.route, decision.holder)
    };
    assert_eq!(own(10_000.0), (pair(P2, D1), None));
    assert_eq!(own(2_000.0), (pair(P2, D1), held(96)));
}

#[test]
fn who_failed_is_not_asked() {
    let mut bench = Bench::new(PlacementConfig { handoff: HandoffPolicy::Never, ..config() }, &[D1, D2]);
    bench.report(D1, Report { number: 1, ..holds(3) });
    bench.arrive(request(1, 50, 1, 4));
    assert_eq!(bench.placement.explain(RequestId(1)).unwrap().route, alone(D1));
    bench.failed(D1, 1, domain::session::Failure::Engine);
    let decision = bench.placement.explain(RequestId(1)).unwrap();
    assert_eq!((decision.route, decision.holder), (alone(D2), None), "{decision}");
}

#[test]
fn running_sequences_speak_against_computing_prompts_among_them() {
    let running = |running| Report { running, ..holds(5) };
    assert_eq!(check(config(), &[P1, D1], &[(D1, running(0))], 100), alone(D1));
    // 20 uncached tokens that slow eight others cost 200 ms alone, 120 through P1.
    assert_eq!(check(config(), &[P1, D1], &[(D1, running(8))], 100), pair(P1, D1));
    assert_eq!(check(config(), &[D1, D2], &[(D1, Report { running: 3, ..Report::default() })], 10), alone(D2));
}

#[test]
fn measured_speeds_replace_the_assumed_ones() {
    let speed = |prefill_tokens_per_s| Report { prefill_tokens_per_s, ..Report::default() };
    assert_eq!(check(config(), &[P1, P2, D1], &[(P1, speed(900.0)), (P2, speed(1_000.0))], 100), pair(P2, D1));
    assert_eq!(check(config(), &[P1, P2, D1], &[(P1, speed(1_000.0)), (P2, speed(900.0))], 100), pair(P1, D1));
    // What is no measurement is none.
    assert_eq!(check(config(), &[P1, P2, D1], &[(P2, speed(f32::NAN)), (P1, speed(-1.0))], 100), pair(P1, D1));
    let wire = |fetch_bytes_per_s| Report { fetch_bytes_per_s, ..Report::default() };
    // 100 tokens over a slow wire cost more than computing them here.
    assert_eq!(check(config(), &[P1, D1], &[(D1, wire(1e6))], 100), alone(D1));
}

#[test]
fn a_worker_that_has_not_measured_is_taken_to_be_as_fast_as_those_that_have() {
    // 20 uncached tokens on D1 at P1's ten a millisecond beat 100 there and a handoff of 20 ms.
    let fast = Report { prefill_tokens_per_s: 10_000.0, ..Report::default() };
    assert_eq!(check(config(), &[P1, D1], &[(P1, fast), (D1, holds(5))], 100), alone(D1));
}

#[test]
fn memory_that_is_full_is_the_last_choice() {
    let blocks = |blocks_available| Report { blocks_available, blocks_total: 100, ..Report::default() };
    let full = Report { ..blocks(6) };
    assert_eq!(check(config(), &[P1, D1, D2], &[(D1, full.clone())], 100), pair(P1, D2));
    assert_eq!(check(config(), &[P1, D1, D2], &[(D1, blocks(7))], 100), pair(P1, D1));
    assert_eq!(check(config(), &[P1, D1], &[(D1, full)], 100), pair(P1, D1));
}

#[test]
fn a_burst_spreads_before_anyone_reports() {
    let mut bench = Bench::new(config(), &[P1, P2, D1, D2]);
    let routes: Vec<Route> = (1..=4)
        .map(|id| {
            bench.event(crate::Event::Arrive { request: request(id, 100, 1, 4), chain: chain(id as u8, 100) });
            bench.placement.explain(RequestId(id)).unwrap().route
        })
        .collect();
    assert_eq!(routes, [pair(P1, D1), pair(P2, D2), pair(P1, D1), pair(P2, D2)]);
    // A report says it all; what was given before counts no more.
    bench.report(P1, Report { number: 1, ..Report::default() });
    bench.event(crate::Event::Arrive { request: request(5, 100, 1, 4), chain: chain(5, 100) });
    assert_eq!(bench.placement.explain(RequestId(5)).unwrap().route, pair(P1, D1));
}

#[test]
fn a_decision_keeps_the_best_and_not_all() {
    let decode: Vec<WorkerId> = (11..31).map(WorkerId).collect();
    // The later, the less busy; the first two are equals.
    let busy = |number: u32| Report { running: 30 - number.max(1), ..Report::default() };
    let reports: Vec<_> = decode.iter().rev().zip((0..20).rev()).map(|(&id, number)| (id, busy(number))).collect();
    let decision = placed(config(), &decode, &reports, 100);
    let kept: Vec<u32> = decision.whole.iter().map(|cost| cost.worker.0).collect();
    assert_eq!(kept, [30, 29, 28, 27]);
    assert_eq!((decision.decode.len(), decision.route), (CANDIDATES_KEPT, alone(WorkerId(30))));
}

#[test]
fn a_decision_explains_itself_in_seconds() {
    let mut bench = Bench::new(config(), &[P1, D1]);
    bench.report(P1, Report { number: 1, waiting_tokens: 10, prefill_tokens_per_s: 1_000.0, ..holds(2) });
    bench.report(D1, Report { number: 1, running: 1, waiting: 1, ..holds(1) });
    bench.arrive(request(1, 132, 1, 4));
    let decision = bench.placement.explain(RequestId(1)).unwrap();
    assert_eq!(
        decision.to_string(),
        "132 tokens: w1 to w11, 0.151160 s; \
         prefill w1: cached 32, queue 0.010000 + load 0.000000 + compute 0.100000 + fetch 0.000000 + overhead 0.020000 + slowdown \
         0.000000; \
         decode w11: cached 16, queue 0.000000 + load 0.000000 + compute 0.000000 + fetch 0.001160 + overhead 0.000000 + slowdown \
         0.020000; \
         alone w11: cached 16 and to 32 from w1, queue 0.000000 + load 0.000000 + compute 0.100000 + fetch 0.000160 + overhead \
         0.020000 + slowdown 0.220000"
    );
    assert_eq!(decision.first_token_s.map(|s| (s * 1e6).round()), Some(110_000.0));
}
