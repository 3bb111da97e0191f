//! Workers that hand blocks to each other, visited in every state that they can reach together, in small scopes:
//! an owner of a block or two of two layer slices, and readers with a request or two each, over a network that
//! loses, repeats and reorders messages, with leases that lapse at any instant, connections that break, and
//! processes that crash and come back.
//!
//! The workers are the real ones: [`worker::Machine`] in both roles, with its offers and fetches, its
//! scheduler and its KV manager. What is played is the device, the transport and the router (`process.rs`).
//! `ghost.rs` says a second time what a lease is.
//!
//! Prompts are offered before they are computed, in a step or in two that are in flight at once, or when the owner has
//! fetched their beginning from a third worker; or blocks are cached, and readers ask for them, and the owner offers
//! them, or declines, since it was given to another use or since it has lost its memory.
//!
//! Deliberately absent: later attempts at a request (placement is not here), tiers, migrations, and pauses of a
//! whole process; the simulation (`tests/sim`) has them.
#![cfg(test)]

mod action;
mod explore;
mod ghost;
mod invariants;
mod network;
mod process;
mod scope;
mod workers;
mod world;

use domain::planted_bugs::{Bug, plant};
use explore::{Ends, Report, explore};
use scope::{ANY, EACH, Faults, NONE, Scope, Source};
use std::sync::{Mutex, PoisonError};

/// Visits the scope with this bug, or without any. What is planted is planted in the whole process: one at a time.
fn run(bug: Option<Bug>, scope: Scope, ends: Ends) -> Report {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    plant(bug);
    let report = explore(scope, ends);
    plant(None);
    report
}

#[track_caller]
fn check(source: Source, readers: u8, requests: u8, total: u8, faults: Faults) {
    let scope = Scope { source, readers, requests, total, faults };
    let report = run(None, scope, Ends::Followed);
    println!("{scope:?}: {report}");
    assert!(report.exhausted && report.violation.is_none(), "{report}");
    assert_eq!(report.with_two_steps > 0, source == Source::InTwoSteps, "{report}");
}

/// With the bug something is violated, in words that have `violation` in them; without it nothing is. Messages have no
/// order, so that every one of them has its line in the trace.
#[track_caller]
fn check_found(bug: Bug, source: Source, requests: u8, faults: Faults, violation: &str) {
    let faults = Faults { reorders: ANY, ..faults };
    let scope = Scope { source, readers: 1, requests, total: 1, faults };
    let ends = if bug == Bug::ExpectationWithoutDeadline { Ends::Followed } else { Ends::NotFollowed };
    let report = run(Some(bug), scope, ends);
    println!("{bug:?}: {report}");
    assert!(report.violation.is_some_and(|found| found.what.contains(violation)), "{bug:?} is not {violation:?}");
    check(source, 1, requests, 1, faults);
}

#[test]
fn one_handoff_with_any_three_faults_in_any_order() {
    let faults = Faults { reorders: ANY, losses: 2, duplicates: 2, ticks: 2, ..EACH };
    check(Source::Computed, 1, 1, 3, faults);
}

#[test]
fn one_handoff_of_which_all_may_hear_late_with_any_two_faults_in_any_order() {
    check(Source::Computed, 1, 1, 2, Faults { reorders: ANY, late_turns: true, late_submits: true, ..EACH });
}

#[test]
fn two_handoffs_to_a_reader_with_any_fault() {
    check(Source::Computed, 1, 2, 1, EACH);
}

#[test]
fn two_handoffs_to_two_readers_with_any_fault() {
    check(Source::Computed, 2, 1, 1, EACH);
}

#[test]
fn a_handoff_of_what_is_fetched_with_any_fault_in_any_order() {
    check(Source::Fetched, 1, 1, 1, Faults { reorders: ANY, ..EACH });
}

#[test]
fn one_ask_with_any_three_faults_in_any_order() {
    let faults = Faults { reorders: ANY, losses: 2, duplicates: 2, ticks: 2, ..EACH };
    check(Source::Cached, 1, 1, 3, faults);
}

#[test]
fn two_asks_of_a_reader_with_any_fault_in_any_order() {
    check(Source::Cached, 1, 2, 1, Faults { reorders: ANY, ..EACH });
}

#[test]
fn two_readers_that_ask_with_any_two_faults() {
    check(Source::Cached, 2, 1, 2, EACH);
}

#[test]
fn a_handoff_of_what_two_steps_in_flight_compute_with_any_fault() {
    check(Source::InTwoSteps, 1, 1, 1, EACH);
}

#[test]
fn two_handoffs_of_what_two_steps_in_flight_compute_with_a_failed_step() {
    check(Source::InTwoSteps, 1, 2, 1, Faults { failed_steps: 1, cancels: 1, ..NONE });
}

#[test]
fn a_step_that_runs_behind_one_that_failed_is_found() {
    let faults = Faults { failed_steps: 1, ..NONE };
    check_found(Bug::SuccessorRuns, Source::InTwoSteps, 1, faults, "it should be from");
}

#[test]
fn a_block_that_is_sealed_when_its_step_is_planned_is_found() {
    check_found(Bug::SealedWhenPlanned, Source::InTwoSteps, 1, NONE, "tokens are written after");
}

#[test]
fn cached_blocks_that_are_offered_and_not_held_are_found() {
    check_found(Bug::CachedBlocksUnheld, Source::Cached, 1, NONE, "was ended by nobody");
}

#[test]
fn a_renewal_that_revives_a_lapsed_lease_is_found() {
    let faults = Faults { ticks: 1, ..NONE };
    check_found(Bug::LateRenewalRevives, Source::Computed, 1, faults, "which is Lapsed, is alive");
}

/// One who is heard to ask twice has two leases.
#[test]
fn a_first_release_that_ends_both_leases_is_found() {
    let faults = Faults { duplicates: 1, ..NONE };
    check_found(Bug::FirstReleaseEndsBoth, Source::Cached, 1, faults, "was ended by nobody");
}

#[test]
fn a_block_reused_under_a_lease_is_found() {
    check_found(Bug::ReuseUnderLease, Source::Computed, 1, NONE, "reused under the live");
}

#[test]
fn a_duplicate_release_that_counts_is_found() {
    let faults = Faults { duplicates: 1, ..NONE };
    check_found(Bug::DuplicateReleaseCounts, Source::Computed, 2, faults, "was ended by nobody");
}

#[test]
fn a_release_answered_valid_before_all_is_written_is_found() {
    let faults = Faults { cancels: 1, ..NONE };
    check_found(Bug::ReleaseBeforeWritten, Source::Computed, 1, faults, "answered valid: Some(true)");
}

#[test]
fn messages_of_another_life_are_found() {
    let faults = Faults { owner_crashes: 1, ..NONE };
    check_found(Bug::NoIncarnationCheck, Source::Computed, 1, faults, "was ended by nobody");
}

#[test]
fn a_failed_step_that_lets_the_word_pass_is_found() {
    let faults = Faults { failed_steps: 1, ..NONE };
    check_found(Bug::FailedStepPassesWord, Source::Computed, 2, faults, "the word passed a slice");
}

#[test]
fn a_start_before_the_answer_is_found() {
    check_found(Bug::StartBeforeAnswer, Source::Computed, 1, NONE, "not answered as valid by who gave it");
}

#[test]
fn a_destination_freed_under_a_read_is_found() {
    let faults = Faults { cancels: 1, ..NONE };
    check_found(Bug::FreeBeforeQuiesced, Source::Computed, 1, faults, "still reads");
}

#[test]
fn an_expectation_without_deadline_is_found() {
    let faults = Faults { losses: 1, ..NONE };
    check_found(Bug::ExpectationWithoutDeadline, Source::Computed, 1, faults, "comes to an end");
}
