//! Routers that are killed or stand still while they have requests: the other router's clients notice nothing, and
//! the workers give up what nobody waits for.

use super::fleet::{Action, Fleet, Step};
use super::load::{Outcome, ask_all, check_all, check_excused, questions};
use crate::server::until;

const STEPS: &[Step] = &[
    Step("SessionSent", "submit", 1),
    Step("SessionSent", "submit", 9),
    Step("SessionGot", "tokens", 2),
    Step("SessionGot", "tokens", 30),
    Step("SessionGot", "ended", 1),
];

fn check(action: Action) {
    let questions = questions("sim");
    for &step in STEPS {
        println!("{action:?} at {step}");
        let mut fleet =
            Fleet::start([2, 2, 2], &["engine.device=sim", action.silence()], Some(("router-1", step, action)));
        let [victim, other] = [0, 1].map(|at| fleet.routers[at].seat.http);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask_all(victim, &questions, || ()));
            check_all(other, &questions);
            until("the fall of the router", || fleet.process("router-1").has_fallen().then_some(()));
            check_all(other, &questions);
            fleet.at_rest("router-1");
            if action == Action::Stop {
                fleet.process("router-1").signal("CONT");
            }
            let outcomes = asked.join().expect("clients do not panic");
            match action {
                Action::Kill => {
                    let broken = |outcome: &Outcome| matches!(outcome, Outcome::Broken(_));
                    assert!(check_excused(&questions, &outcomes, broken) > 0, "somebody must have noticed");
                }
                // Its workers have given it up. What it has when it goes on, and nobody to give it to, it ends
                // with an error.
                Action::Stop => {
                    let known = |outcome: &Outcome| matches!(outcome, Outcome::Error(code) if ["worker_failed", "no_workers"].contains(&code.as_str()));
                    check_excused(&questions, &outcomes, known);
                }
            }
        });
        if action == Action::Kill {
            fleet.process("router-1").restart();
        }
        fleet.complete();
        check_all(victim, &questions);
        fleet.at_rest("");
    }
}

#[test]
fn routers_are_killed() {
    check(Action::Kill);
}

#[test]
fn routers_stand_still() {
    check(Action::Stop);
}
