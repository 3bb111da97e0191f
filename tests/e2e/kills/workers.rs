//! Workers that are killed or stand still at every step of a handoff, under load.

use super::fleet::{Action, Fleet, Role, Step};
use super::load::{Outcome, Question, ask_all, check_all, check_answers, check_excused, questions};
use crate::server::until;

/// What a prefill worker passes, from its part of a request to the last word about the lease.
const PREFILL: &[Step] = &[
    Step("SessionGot", "submit", 2),
    Step("PeerSent", "offer", 2),
    Step("PeerSent", "written", 3),
    Step("Step", "submitted", 3),
    Step("Step", "ended", 3),
    Step("SessionSent", "tokens", 2),
    Step("PeerSent", "complete", 2),
    Step("PeerGot", "release", 2),
    Step("PeerSent", "released", 2),
];

/// What a decode worker passes, from the offer to the last token.
const DECODE: &[Step] = &[
    Step("SessionGot", "submit", 2),
    Step("PeerGot", "offer", 2),
    Step("PeerGot", "written", 3),
    Step("Read", "posted", 3),
    Step("Read", "ended", 3),
    Step("PeerGot", "complete", 2),
    Step("PeerSent", "release", 2),
    Step("PeerGot", "released", 2),
    Step("Step", "submitted", 8),
    Step("Step", "ended", 20),
    Step("SessionSent", "tokens", 20),
];

/// Rounds of all questions until the one that must get work has got enough of it.
const ROUNDS_MAX: usize = 8;

fn check(role: Role, action: Action) {
    let (victim, steps) = if role == Role::Prefill { ("prefill-1", PREFILL) } else { ("decode-1", DECODE) };
    let questions = questions("sim");
    for &step in steps {
        println!("{victim}, {action:?} at {step}, with another");
        with_another(&questions, victim, step, action);
        println!("{victim}, {action:?} at {step}, alone");
        alone(&questions, role, victim, step, action);
    }
}

/// Another worker of the role is there: nobody notices.
fn with_another(questions: &[Question], victim: &str, step: Step, action: Action) {
    let mut fleet = Fleet::start([1, 2, 2], &["engine.device=sim", action.silence()], Some((victim, step, action)));
    let router = fleet.routers[0].seat.http;
    let fell = (0..ROUNDS_MAX).any(|_| {
        check_all(router, questions);
        fleet.process(victim).has_fallen()
    });
    assert!(fell, "{victim} never came to {step}");
    comes_back(fleet, questions, victim, action);
}

/// No other worker of the role is there: decode workers compute prompts themselves; without one there is a clear error.
fn alone(questions: &[Question], role: Role, victim: &str, step: Step, action: Action) {
    let mut fleet = Fleet::start([1, 1, 1], &["engine.device=sim", action.silence()], Some((victim, step, action)));
    let router = fleet.routers[0].seat.http;
    let fell = (0..ROUNDS_MAX).any(|_| {
        let outcomes = ask_all(router, questions, || ());
        let mut fell = fleet.process(victim).has_fallen();
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Error(_))) {
            // Its connections may break before all of it is gone.
            until("the fall", || fleet.process(victim).has_fallen().then_some(()));
            fell = true;
        }
        if role == Role::Decode && fell {
            let known = |outcome: &Outcome| matches!(outcome, Outcome::Error(code) if ["worker_failed", "no_workers"].contains(&code.as_str()));
            let lost = check_excused(questions, &outcomes, known);
            assert!(lost > 0, "somebody must have noticed");
        } else {
            check_answers(questions, &outcomes);
        }
        fell
    });
    assert!(fell, "{victim} never came to {step}");
    comes_back(fleet, questions, victim, action);
}

/// Those who are left hold nothing of the one that fell; it comes back, is used at once, and in the end nobody
/// holds anything.
fn comes_back(mut fleet: Fleet, questions: &[Question], victim: &str, action: Action) {
    let router = fleet.routers[0].seat.http;
    fleet.at_rest(victim);
    match action {
        Action::Kill => fleet.process(victim).restart(),
        Action::Stop => fleet.process(victim).signal("CONT"),
    }
    fleet.complete();
    let steps = |fleet: &mut Fleet| fleet.process(victim).metric("baton_step_seconds_count", &[]);
    let before = steps(&mut fleet);
    let used = (0..ROUNDS_MAX).any(|_| {
        check_all(router, questions);
        steps(&mut fleet) > before
    });
    assert!(used, "{victim} came back and got no work");
    fleet.at_rest("");
}

#[test]
fn prefill_workers_are_killed() {
    check(Role::Prefill, Action::Kill);
}

#[test]
fn prefill_workers_stand_still() {
    check(Role::Prefill, Action::Stop);
}

#[test]
fn decode_workers_are_killed() {
    check(Role::Decode, Action::Kill);
}

#[test]
fn decode_workers_stand_still() {
    check(Role::Decode, Action::Stop);
}
