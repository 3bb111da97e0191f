//! Reports: numbers, gaps, lives.

use super::support::*;
use crate::workers::UNSEEN_SUBMITS_MAX;
use crate::{Event, HandoffPolicy, PlacementConfig};
use domain::session::{FromWorker, Report};
use domain::{Incarnation, RequestId};

fn cached(bench: &mut Bench) -> u32 {
    bench.arrive(request(1, 100, 1, 4));
    let cached = bench.placement.explain(RequestId(1)).expect("it was placed").whole[0].cached_tokens;
    bench.event(Event::Gone { request: RequestId(1) });
    cached
}

fn adds(number: u64, blocks: std::ops::Range<usize>) -> Report {
    Report { number, added: links(&chain(0, 96), blocks), ..Report::default() }
}

#[test]
fn a_gap_asks_for_a_snapshot_once_and_waits_for_it() {
    let mut bench = Bench::new(config(), &[D1]);
    bench.report(D1, adds(1, 0..1));
    assert_eq!((bench.said_so().as_str(), cached(&mut bench)), ("", 16));
    bench.report(D1, adds(3, 1..2));
    assert_eq!((bench.said_so().as_str(), cached(&mut bench)), ("w11 snapshot", 16));
    bench.report(D1, adds(4, 1..2));
    assert_eq!((bench.said_so().as_str(), cached(&mut bench)), ("", 16));
    bench.report(D1, Report { snapshot: true, ..adds(5, 0..3) });
    assert_eq!((bench.said_so().as_str(), cached(&mut bench)), ("", 48));
    bench.report(D1, Report { removed: chain(0, 96)[2..3].to_vec(), ..adds(6, 0..0) });
    assert_eq!((bench.said_so().as_str(), cached(&mut bench)), ("", 32));
    assert_eq!((bench.placement.counters().report_gaps, bench.placement.indexed_blocks()), (1, 2));
}

#[test]
fn what_left_the_device_for_a_tier_is_there_until_it_is_said_to_be_gone() {
    let mut bench = Bench::new(config(), &[D1]);
    let blocks = chain(0, 96);
    bench.report(D1, adds(1, 0..3));
    bench.report(D1, Report { host: links(&blocks, 1..2), disk: links(&blocks, 2..4), ..adds(2, 0..0) });
    assert_eq!((cached(&mut bench), bench.placement.indexed_blocks()), (64, 4));
    bench.report(D1, Report { removed: blocks[1..2].to_vec(), ..adds(3, 0..0) });
    assert_eq!((cached(&mut bench), bench.placement.indexed_blocks()), (16, 3));
    bench.report(D1, Report { snapshot: true, ..adds(4, 0..1) });
    assert_eq!((cached(&mut bench), bench.placement.indexed_blocks()), (16, 1));
    bench.report(D1, Report { host: links(&blocks, 1..5), ..adds(5, 0..0) });
    assert_eq!((cached(&mut bench), bench.placement.indexed_blocks()), (80, 5));
}

#[test]
fn repetitions_and_other_lives_are_dropped() {
    let mut bench = Bench::new(config(), &[D1]);
    bench.report(D1, adds(1, 0..2));
    bench.report(D1, Report { running: 7, ..adds(1, 2..3) });
    bench.said(D1, FromWorker::Report(Report { incarnation: Incarnation(2), ..adds(2, 2..3) }));
    bench.report(D2, adds(1, 0..2));
    assert_eq!((cached(&mut bench), bench.placement.counters().stale_messages), (32, 3));
    assert_eq!(bench.placement.workers()[0].running, 0);
}

#[test]
fn a_new_session_starts_from_nothing() {
    let mut bench = Bench::new(config(), &[D1]);
    bench.report(D1, Report { running: 7, blocks_total: 9, ..adds(1, 0..2) });
    bench.up(D1);
    assert_eq!((cached(&mut bench), bench.placement.indexed_blocks()), (0, 0));
    let view = &bench.placement.workers()[0];
    assert_eq!((view.running, view.blocks_total), (0, 0));
    bench.report(D1, adds(1, 0..1));
    assert_eq!(cached(&mut bench), 16);
}

#[test]
fn loads_count_even_after_a_gap() {
    let mut bench = Bench::new(config(), &[D1]);
    bench.report(D1, Report { running: 5, ..adds(9, 0..1) });
    assert_eq!(bench.placement.workers()[0].running, 5);
    assert_eq!(cached(&mut bench), 0);
}

#[test]
fn what_a_report_does_not_know_of_yet_still_counts() {
    let mut bench = Bench::new(PlacementConfig { handoff: HandoffPolicy::Never, ..config() }, &[D1, D2]);
    let mut number = 0;
    // D1 says how busy it is, and how much of what it was given it has seen.
    let mut report = |bench: &mut Bench, submits, waiting_tokens| {
        number += 1;
        let report = Report { incarnation: Incarnation(1), number, submits, waiting_tokens, ..Report::default() };
        bench.said(D1, FromWorker::Report(report));
    };
    let mut id = 0;
    let mut goes_to = |bench: &mut Bench| {
        id += 1;
        bench.arrive(request(id, 10, 1, 4));
        bench.said_so()
    };
    assert_eq!(goes_to(&mut bench), "w11 whole e1+0");
    // It was sent before the prompt came.
    report(&mut bench, 0, 0);
    assert_eq!(goes_to(&mut bench), "w12 whole e1+0", "the prompt is forgotten");
    // The prompt is computed already.
    report(&mut bench, 1, 0);
    assert_eq!(goes_to(&mut bench), "w11 whole e1+0");
    // More are given than are counted apart: all count until the last one is seen.
    bench.event(Event::WorkerDown { id: D2 });
    for id in 100..100 + 2 * UNSEEN_SUBMITS_MAX as u64 {
        bench.event(Event::Gone { request: RequestId(id - 1) });
        assert_eq!(bench.placement.workers().len(), 1);
        bench.arrive(request(id, 10, 1, 4));
    }
    bench.up(D2);
    report(&mut bench, 2 * UNSEEN_SUBMITS_MAX as u64, 0);
    assert_eq!(goes_to(&mut bench), "w12 whole e1+0", "what is unseen is forgotten");
}
