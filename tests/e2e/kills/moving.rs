//! Workers that are killed or stand still while running sequences move away from one that drains.

use super::fleet::{Action, Fleet, Step};
use super::load::{Question, ask_all, check_all, check_answers, long_questions};

/// What the worker that drains passes.
const GIVER: &[Step] = &[
    Step("SessionGot", "migrate", 1),
    Step("PeerSent", "offer", 1),
    Step("PeerSent", "written", 1),
    Step("PeerSent", "complete", 1),
    Step("PeerGot", "release", 1),
    Step("PeerSent", "released", 1),
];

/// What a worker passes that takes over.
const TAKER: &[Step] = &[
    Step("PeerGot", "offer", 1),
    Step("Read", "posted", 1),
    Step("Read", "ended", 1),
    Step("PeerGot", "complete", 1),
    Step("PeerSent", "release", 1),
    Step("PeerGot", "released", 1),
];

/// Rounds until one of the sequences moved to the worker that is to fall.
const ROUNDS_MAX: usize = 4;

fn check(giver: bool, action: Action) {
    let questions = long_questions("sim");
    let (victim, steps) = if giver { ("decode-1", GIVER) } else { ("decode-2", TAKER) };
    for &step in steps {
        println!("{victim}, {action:?} at {step}");
        check_step(&questions, victim, step, action);
    }
}

fn check_step(questions: &[Question], victim: &str, step: Step, action: Action) {
    // Without prefill workers, whatever is handed over moves.
    let mut fleet = Fleet::start([1, 0, 3], &["engine.device=sim", action.silence()], Some((victim, step, action)));
    let router = fleet.routers[0].seat.http;
    let fell = (0..ROUNDS_MAX).any(|_| {
        let outcomes = ask_all(router, questions, || fleet.process("decode-1").signal("TERM"));
        check_answers(questions, &outcomes);
        let fell = fleet.process(victim).has_fallen();
        if !fell {
            assert_eq!(fleet.process("decode-1").ended().code(), Some(0), "a worker that drained ends");
            fleet.process("decode-1").restart_armed((victim == "decode-1").then_some((step, action)));
            fleet.complete();
        }
        fell
    });
    assert!(fell, "{victim} never came to {step}");
    match action {
        Action::Kill => fleet.process(victim).restart(),
        Action::Stop => fleet.process(victim).signal("CONT"),
    }
    if victim != "decode-1" || action == Action::Stop {
        // Who drains ends when it has nothing left, whatever became of what it gave away.
        assert_eq!(fleet.process("decode-1").ended().code(), Some(0), "a worker that drained ends");
        fleet.process("decode-1").restart();
    }
    fleet.complete();
    check_all(router, questions);
    fleet.at_rest("");
}

#[test]
fn who_gives_sequences_away_is_killed() {
    check(true, Action::Kill);
}

#[test]
fn who_gives_sequences_away_stands_still() {
    check(true, Action::Stop);
}

#[test]
fn who_takes_sequences_over_is_killed() {
    check(false, Action::Kill);
}

#[test]
fn who_takes_sequences_over_stands_still() {
    check(false, Action::Stop);
}
