use super::*;
use crate::clock::Clock;
use crate::dialects::openai::Completion;
use crate::open_requests::OpenRequests;
use domain::{Epoch, SamplingParams};
use std::time::Duration;

fn request(id: u64) -> Request {
    Request {
        id: RequestId(id),
        prompt: vec![1; 10].into(),
        choices: 1,
        params: Arc::new(SamplingParams::default()),
        seed: 1,
        deadline: Duration::from_secs(1),
        tenant: String::new(),
        adapter: None,
    }
}

fn access(id: u64) -> Arc<Access> {
    Access::begin(
        (RequestId(id), None),
        &Completion,
        "tiny-rust".to_owned(),
        Clock::new(),
        None,
        &OpenRequests::default(),
    )
}

fn submit(id: u64, epoch: u32, assignment: Assignment) -> Submit {
    Submit {
        request: RequestId(id),
        epoch: Epoch(epoch),
        assignment,
        choices: vec![(Choice(0), Arc::from([]))],
        prompt: vec![1; 10].into(),
        params: Arc::new(SamplingParams::default()),
        seed: 1,
        deadline: Duration::from_secs(1),
        lease: Duration::from_secs(1),
        tenant: String::new(),
        adapter: None,
        holder: None,
        trace: None,
        timed: false,
    }
}

fn decision(prefill: Option<u32>, decode: u32) -> Decision {
    let route = placement::Route { prefill: prefill.map(WorkerId), decode: WorkerId(decode) };
    let (prefill, decode, whole) = (Vec::new(), Vec::new(), Vec::new());
    Decision { tokens: 10, prefill, decode, whole, route, holder: None, cost_s: 1.0, first_token_s: None }
}

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

#[test]
fn the_times_of_a_handoff_and_a_move_are_kept() {
    let mut explained = Explained::new(2);
    explained.arrived(at(1), &request(7), access(7));
    let pair = decision(Some(1), 2);
    let names = Names::from([(WorkerId(1), "p-1".into()), (WorkerId(2), "d-2".into())]);
    let parts = [(2, Assignment::Decode { prefill: WorkerId(1) }), (1, Assignment::Prefill { decode: WorkerId(2) })];
    for (worker, assignment) in parts {
        explained.submitted(at(3), WorkerId(worker), &submit(7, 1, assignment), Some(&pair), &names);
    }
    explained.token(at(10), RequestId(7), Choice(0));
    explained.token(at(14), RequestId(7), Choice(0));
    let taker = submit(7, 2, Assignment::TakeOver { from: WorkerId(2) });
    explained.submitted(at(20), WorkerId(3), &taker, Some(&pair), &names);
    explained.token(at(21), RequestId(7), Choice(0));
    explained.ended(at(30), RequestId(7), &End::stop(), &Usage::default());
    let record = explained.get(RequestId(7)).expect("it is kept");
    assert_eq!((record.submitted, record.first), (Some(at(3)), Some((at(10), Choice(0)))));
    assert_eq!((record.taken_over, record.ended.map(|(at, _)| at)), (Some(at(14)), Some(at(30))));
    let placed: Vec<_> = record.placements.iter().map(|it| (it.epoch.0, it.decode.0, it.decision.is_some())).collect();
    assert_eq!((placed.as_slice(), record.end.as_str()), (&[(1, 2, true), (2, 3, false)][..], "stop"));
    // The third worker has no session any more, and so no name.
    let decoded: Vec<_> = record.placements.iter().map(|placed| &*placed.decode_name).collect();
    assert_eq!((record.prefill_name(), decoded.as_slice()), (Some("p-1"), &["d-2", "w3"][..]));
}

#[test]
fn however_often_requests_come_and_are_placed_little_is_kept() {
    let mut explained = Explained::new(2);
    for id in 0..100 {
        explained.arrived(at(id), &request(id), access(id));
        for epoch in 1..=20 {
            let (submit, alone) = (submit(id, epoch, Assignment::Whole), decision(None, 1));
            explained.submitted(at(id), WorkerId(1), &submit, Some(&alone), &Names::new());
        }
        match id % 3 {
            0 => explained.rejected(at(id), RequestId(id), "full"),
            1 => {
                explained.ends(RequestId(id), &End::error(Ender::Us, "it is shutting down"));
                explained.ended(at(id), RequestId(id), &End::error(Ender::Client, "gone"), &Usage::default());
            }
            _ => explained.ended(at(id), RequestId(id), &End::length(), &Usage::default()),
        }
    }
    assert_eq!((explained.open.len(), explained.over.len()), (0, 2));
    let known: Vec<_> = (0..100).filter_map(|id| explained.get(RequestId(id))).map(|it| (it.id.0, &*it.end)).collect();
    assert_eq!(known, [(98, "length"), (99, "refused: full")]);
    let record = explained.get(RequestId(98)).expect("it is kept");
    assert_eq!((record.placements.len(), record.placements_total), (PLACEMENTS_KEPT, 20));
    let mut forgetful = Explained::new(0);
    forgetful.arrived(at(0), &request(1), access(1));
    forgetful.ends(RequestId(1), &End::error(Ender::Us, "it is shutting down"));
    assert_eq!(forgetful.get(RequestId(1)).map(|it| &*it.end), Some("error by router: it is shutting down"));
    forgetful.ended(at(1), RequestId(1), &End::stop(), &Usage::default());
    assert!(forgetful.get(RequestId(1)).is_none());
}

#[test]
fn what_is_kept_of_those_that_ended_can_change() {
    let mut explained = Explained::new(4);
    let end = |explained: &mut Explained, id| {
        explained.arrived(at(id), &request(id), access(id));
        explained.rejected(at(id), RequestId(id), "no room");
    };
    let kept = |explained: &Explained| explained.ended_last().map(|(record, _)| record.id.0).collect::<Vec<_>>();
    (1..=4).for_each(|id| end(&mut explained, id));
    explained.keep(2);
    assert_eq!(kept(&explained), [4, 3]);
    end(&mut explained, 5);
    assert_eq!(kept(&explained), [5, 4]);
    explained.keep(0);
    end(&mut explained, 6);
    assert!(kept(&explained).is_empty());
    explained.keep(1);
    end(&mut explained, 7);
    assert_eq!(kept(&explained), [7]);
}

#[test]
fn what_workers_measure_is_kept_with_its_attempt_also_when_it_comes_late() {
    use domain::PhaseKind;
    let mut explained = Explained::new(2);
    explained.arrived(at(1), &request(7), access(7));
    let names = Names::from([(WorkerId(2), "d-2".into())]);
    let told = |kind, ms: u64| Phase::new(kind, Duration::from_millis(ms), Duration::from_millis(ms + 1));
    explained.submitted(at(3), WorkerId(2), &submit(7, 1, Assignment::Whole), Some(&decision(None, 2)), &names);
    let (worker, attempt) = (Arc::from("d-2"), (RequestId(7), Epoch(1)));
    explained.measured(&worker, attempt, vec![told(PhaseKind::Queue, 0), told(PhaseKind::Chunk, 1)], 0);
    explained.measured(&worker, (RequestId(8), Epoch(1)), vec![told(PhaseKind::Queue, 0)], 0);
    explained.ended(at(30), RequestId(7), &End::stop(), &Usage::default());
    explained.measured(&worker, attempt, vec![told(PhaseKind::Decode, 5)], 4);
    explained.measured(&worker, (RequestId(7), Epoch(9)), vec![told(PhaseKind::Decode, 5)], 0);
    let record = explained.get(RequestId(7)).expect("it is kept");
    let kinds: Vec<_> = record.measured.iter().map(|it| (it.since, it.phase.kind)).collect();
    assert_eq!(kinds, [PhaseKind::Queue, PhaseKind::Chunk, PhaseKind::Decode].map(|kind| (at(3), kind)));
    assert_eq!(record.phases_left_out, 5, "four at the worker, and one of an attempt that nobody knows");
    // However many a worker tells, few are kept.
    explained.measured(&worker, attempt, vec![told(PhaseKind::Chunk, 1); 10_000], 0);
    let record = explained.get(RequestId(7)).expect("it is kept");
    assert_eq!(record.measured.len() + record.phases_left_out as usize, 10_008);
    assert!(record.measured.len() < 1000 && explained.wants_phases());
    explained.keep(0);
    assert!(!explained.wants_phases());
}
