//! The lease and fetch machines, visited in every state that they can reach together: one block of two layer slices, its
//! owner, and readers with a rank or two each, over a network that loses, repeats and reorders messages, with leases that
//! lapse at any instant and processes that crash and come back.
//!
//! The machines are the real ones: `KvManager` with its leases, `Fetch`, and `Lives`. What is played is the engine, the
//! transport and the shells around them (`owner.rs`, `rank.rs`). `ghost.rs` says a second time what a lease is.
//!
//! In some scopes the block is cached, and ranks ask for it (`Fetch::ask`); the owner offers it, or declines, since it was given to
//! another use or since it has lost its memory.
#![cfg(test)]

mod action;
mod explore;
mod ghost;
mod invariants;
mod merge;
mod network;
mod owner;
mod rank;
mod scope;
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
fn check(scope: Scope) {
    let report = run(None, scope, Ends::Followed);
    println!("{scope:?}: {report}");
    assert!(report.exhausted && report.violation.is_none(), "{report}");
}

/// With the bug something is violated, in words that have `violation` in them; without it nothing is. Messages have no
/// order, so that every one of them has its line in the trace.
#[track_caller]
fn check_found(bug: Bug, readers: u8, ranks: u8, faults: Faults, violation: &str) {
    let source = match bug {
        Bug::OfferCopyInFlight => Source::Fetched,
        Bug::CachedBlocksUnheld => Source::Cached,
        _ => Source::Computed,
    };
    let scope = Scope { source, readers, ranks, total: 1, faults: Faults { reorders: ANY, ..faults } };
    let ends = if bug == Bug::ExpectationWithoutDeadline { Ends::Followed } else { Ends::NotFollowed };
    let report = run(Some(bug), scope, ends);
    println!("{bug:?}: {report}");
    assert!(report.violation.is_some_and(|found| found.what.contains(violation)), "{bug:?} is not {violation:?}");
    check(scope);
}

#[test]
fn one_rank_with_any_three_faults_in_any_order() {
    let faults = Faults { reorders: ANY, losses: 2, duplicates: 2, ticks: 2, late_rooms: true, ..EACH };
    check(Scope { source: Source::Computed, readers: 1, ranks: 1, total: 3, faults });
}

#[test]
fn two_ranks_with_any_fault_in_any_order() {
    check(Scope { source: Source::Computed, readers: 1, ranks: 2, total: 1, faults: Faults { reorders: ANY, ..EACH } });
}

#[test]
fn two_readers_with_any_two_faults() {
    check(Scope { source: Source::Computed, readers: 2, ranks: 1, total: 2, faults: EACH });
}

#[test]
fn two_readers_of_two_ranks_with_any_fault() {
    check(Scope { source: Source::Computed, readers: 2, ranks: 2, total: 1, faults: EACH });
}

#[test]
fn two_ranks_of_a_copy_with_any_fault_in_any_order() {
    let faults = Faults { reorders: ANY, ..EACH };
    check(Scope { source: Source::Fetched, readers: 1, ranks: 2, total: 1, faults });
}

#[test]
fn one_who_asks_with_any_three_faults_in_any_order() {
    let faults = Faults { reorders: ANY, losses: 2, duplicates: 2, ticks: 2, late_rooms: true, ..EACH };
    check(Scope { source: Source::Cached, readers: 1, ranks: 1, total: 3, faults });
}

#[test]
fn two_who_ask_with_any_two_faults() {
    check(Scope { source: Source::Cached, readers: 2, ranks: 1, total: 2, faults: EACH });
}

#[test]
fn two_ranks_that_ask_with_any_fault_in_any_order() {
    check(Scope { source: Source::Cached, readers: 1, ranks: 2, total: 1, faults: Faults { reorders: ANY, ..EACH } });
}

#[test]
fn cached_blocks_that_are_offered_and_not_held_are_found() {
    check_found(Bug::CachedBlocksUnheld, 1, 1, NONE, "was ended by nobody");
}

#[test]
fn a_renewal_that_revives_a_lapsed_lease_is_found() {
    check_found(Bug::LateRenewalRevives, 1, 1, Faults { ticks: 1, ..NONE }, "which is Lapsed, is alive");
}

#[test]
fn a_first_rank_that_releases_for_both_is_found() {
    check_found(Bug::FirstRankReleasesForBoth, 1, 2, NONE, "was ended by nobody");
}

#[test]
fn a_block_reused_under_a_lease_is_found() {
    check_found(Bug::ReuseUnderLease, 1, 1, NONE, "reused under the live lease");
}

#[test]
fn a_duplicate_release_that_counts_is_found() {
    check_found(Bug::DuplicateReleaseCounts, 1, 2, Faults { duplicates: 1, ..NONE }, "was ended by nobody");
}

#[test]
fn a_release_answered_valid_before_all_is_written_is_found() {
    check_found(Bug::ReleaseBeforeWritten, 1, 1, Faults { cancels: 1, ..NONE }, "answered valid: true");
}

#[test]
fn messages_of_another_life_are_found() {
    check_found(
        Bug::NoIncarnationCheck,
        1,
        1,
        Faults { owner_crashes: 1, ..NONE },
        "not answered as valid by who gave it",
    );
}

#[test]
fn a_failed_step_that_lets_the_word_pass_is_found() {
    check_found(Bug::FailedStepPassesWord, 1, 1, Faults { failed_steps: 1, ..NONE }, "the word passed layer");
}

#[test]
fn a_start_before_the_answer_is_found() {
    check_found(Bug::StartBeforeAnswer, 1, 1, NONE, "not answered as valid by who gave it");
}

#[test]
fn a_destination_freed_under_a_read_is_found() {
    check_found(Bug::FreeBeforeQuiesced, 1, 1, Faults { cancels: 1, ..NONE }, "freed under a read");
}

#[test]
fn an_expectation_without_deadline_is_found() {
    check_found(Bug::ExpectationWithoutDeadline, 1, 1, Faults { losses: 1, ..NONE }, "nothing comes to an end");
}

#[test]
fn a_copy_offered_while_it_is_in_flight_is_found() {
    check_found(Bug::OfferCopyInFlight, 1, 1, NONE, "on a copy that is still in flight");
}
