use super::support::{Bench, D1, D2, P1, check, config, request};
use crate::HandoffPolicy::{self, Always, Auto, Never};
use crate::overload::{AnswerLength, Load, retry_after};
use crate::{Event, PlacementConfig, PlacementLimits, Rejected};
use domain::End;
use domain::session::{FromWorker, Report};
use std::time::Duration;

/// A worker that computes 1,000 tokens of prompts a second and makes 100 decode steps in it.
const fn load(queued_tokens: u64, waiting: u32, running: u32) -> Load {
    Load { queued_tokens, prefill_tokens_per_s: 1_000.0, waiting, running, decode_step_s: 0.01 }
}

#[test]
fn a_client_is_asked_back_when_the_queue_is_over() {
    const IDLE: Load = load(0, 0, 0);
    // Answers have 100 tokens, so a second of steps each.
    let cases: &[(&[Load], &[Load], HandoffPolicy, u64)] = &[
        // Nobody is there, or nothing waits: at once, which is a second.
        (&[], &[], Auto, 1),
        (&[], &[IDLE], Auto, 1),
        // Prompts that a decode worker computes, the least busy one's, rounded up.
        (&[], &[load(12_000, 0, 0)], Auto, 12),
        (&[], &[load(12_001, 0, 0)], Auto, 13),
        (&[], &[load(12_000, 0, 0), load(5_000, 0, 0)], Auto, 5),
        // Prompts that prefill workers compute count where prompts go there.
        (&[load(12_000, 0, 0)], &[IDLE], Always, 12),
        (&[load(12_000, 0, 0), load(7_000, 0, 0)], &[IDLE], Always, 7),
        (&[load(12_000, 0, 0)], &[load(5_000, 0, 0)], Auto, 5),
        (&[load(12_000, 0, 0)], &[load(15_000, 0, 0)], Auto, 12),
        (&[load(12_000, 0, 0)], &[load(15_000, 0, 0)], Never, 15),
        (&[], &[load(15_000, 0, 0)], Always, 15),
        // Sequences that wait for those that run: 4 end in a second.
        (&[], &[load(0, 0, 4)], Auto, 1),
        (&[], &[load(0, 39, 4)], Auto, 10),
        (&[load(3_000, 0, 0)], &[load(0, 39, 4)], Always, 13),
        (&[], &[load(2_000, 39, 4)], Auto, 12),
        // Neither for ever nor for a time that is none.
        (&[], &[load(u64::MAX, 0, 0)], Auto, 600),
        (&[], &[Load { prefill_tokens_per_s: 0.0, ..load(1, 0, 0) }], Auto, 600),
    ];
    for &(prefill, decode, handoff, seconds) in cases {
        let found = retry_after(prefill, decode, handoff, 100.0);
        assert_eq!(found, Duration::from_secs(seconds), "{prefill:?} {decode:?} {handoff:?}");
    }
}

#[test]
fn the_length_of_answers_follows_those_that_ended() {
    let mut length = AnswerLength::default();
    assert_eq!(length.tokens(), 128.0);
    length.count(1_728.0);
    assert_eq!(length.tokens(), 228.0);
    (0..200).for_each(|_| length.count(10.0));
    assert!((length.tokens() - 10.0).abs() < 0.1, "{length:?}");
}

/// What a bench's last event was refused with.
#[track_caller]
fn check_refused(bench: &Bench, seconds: u64) {
    let wanted = format!("reject {:?}", Rejected::Overloaded { retry_after: Duration::from_secs(seconds) });
    assert_eq!(bench.said_so(), wanted);
    assert_eq!(bench.placement.retry_after(), Duration::from_secs(seconds));
}

#[test]
fn the_prediction_is_of_the_workers_that_take_work() {
    let config = PlacementConfig { requests_max: 0, handoff: Always, ..config() };
    let mut bench = Bench::new(config, &[P1, D1, D2]);
    let queue = |waiting_tokens| Report { number: 1, waiting_tokens, ..Report::default() };
    bench.report(P1, queue(12_000));
    bench.report(D1, queue(90_000));
    bench.arrive(request(1, 10, 1, 8));
    check_refused(&bench, 12);
    // Without prefill workers, the decode workers compute prompts. One that drains takes none.
    bench.event(Event::WorkerDown { id: P1 });
    bench.said(D2, FromWorker::Draining);
    bench.arrive(request(2, 10, 1, 8));
    check_refused(&bench, 90);
}

#[test]
fn answers_that_end_regularly_are_counted() {
    let mut bench = Bench::new(config(), &[D1]);
    bench.arrive(request(1, 10, 1, 8));
    bench.tokens(D1, 1, 0, &[4; 8]);
    bench.ended(D1, 1, 8, End::length());
    assert!(bench.said_so().ends_with("end Length by Limit 8"), "{}", bench.said_so());
    // The mean falls from 128 tokens to 120.5. Eight such answers take 9.6 s, a token each hundredth of a second.
    bench.report(D1, Report { number: 1, waiting: 7, running: 1, ..Report::default() });
    assert_eq!(bench.placement.retry_after(), Duration::from_secs(10));
}

#[test]
fn limits_change_for_what_comes_and_what_is_open_goes_on() {
    let always = HandoffPolicy::Always;
    let mut bench = Bench::new(PlacementConfig { handoff: always, requests_max: 2, ..config() }, &[P1, D1]);
    let limits = |requests_max, handoff| {
        let PlacementConfig { attempts_max, index_blocks_max, fetch, .. } = config();
        Event::Limits(PlacementLimits { attempts_max, requests_max, index_blocks_max, handoff, fetch })
    };
    bench.arrive(request(1, 10, 1, 8));
    check(&bench, "w11 decode after w1 e1+0, w1 prefill for w11 e1+0");
    bench.event(limits(1, HandoffPolicy::Never));
    check(&bench, "");
    bench.arrive(request(2, 10, 1, 8));
    assert!(bench.said_so().starts_with("reject Overloaded"), "{}", bench.said_so());
    bench.event(limits(2, HandoffPolicy::Never));
    bench.arrive(request(3, 10, 1, 8));
    check(&bench, "w11 whole e1+0");
    assert_eq!(bench.placement.open(), 2);
}
