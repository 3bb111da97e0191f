//! The simulation bites: the bugs that can be planted in the cores are found, and by what they violate.
//!
//! Two are out of its reach and left to the package `exhaustive`: no worker has two ranks, one of which could release for
//! both, and no role offers what it still fetches.
//!
//! What is planted is planted in the whole process, so these tests wait for each other where they share one.

use domain::planted_bugs::{Bug, plant};
use sim::run_seeds;
use std::sync::{Mutex, PoisonError};

/// By then a planted bug is found.
const SEEDS_MAX: u64 = 8000;

#[track_caller]
fn check(bug: Bug) {
    static PLANTED: Mutex<()> = Mutex::new(());
    let _one_at_a_time = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    plant(Some(bug));
    let batch = run_seeds(0..SEEDS_MAX, 2);
    plant(None);
    let found = batch.found.unwrap_or_else(|| panic!("{bug:?} is not found in {} seeds", batch.seeds));
    println!(
        "{bug:?}: seed {} of {}: {}: {}",
        found.seed, batch.seeds, found.violation.invariant, found.violation.what
    );
}

#[test]
fn a_late_renewal_revives_a_lease() {
    check(Bug::LateRenewalRevives);
}

#[test]
fn lives_are_not_checked() {
    check(Bug::NoIncarnationCheck);
}

#[test]
fn a_release_is_answered_before_all_is_written() {
    check(Bug::ReleaseBeforeWritten);
}

#[test]
fn a_block_is_reused_under_a_lease() {
    check(Bug::ReuseUnderLease);
}

#[test]
fn a_second_release_ends_another_lease() {
    check(Bug::DuplicateReleaseCounts);
}

#[test]
fn blocks_in_flight_count_as_held() {
    check(Bug::InFlightCountsAsHeld);
}

#[test]
fn a_token_frame_is_taken_twice() {
    check(Bug::TokenFrameReplayed);
}

#[test]
fn an_offer_is_expected_for_ever() {
    check(Bug::ExpectationWithoutDeadline);
}

#[test]
fn a_failed_step_lets_the_word_pass() {
    check(Bug::FailedStepPassesWord);
}

#[test]
fn a_stale_epoch_is_taken() {
    check(Bug::StaleEpochTaken);
}

#[test]
fn a_copy_is_used_before_it_is_valid() {
    check(Bug::StartBeforeAnswer);
}

#[test]
fn memory_is_freed_while_reads_run() {
    check(Bug::FreeBeforeQuiesced);
}

#[test]
fn tenants_share_blocks() {
    check(Bug::TenantsShareIdentities);
}

#[test]
fn a_tenant_with_its_quota_takes_from_others() {
    check(Bug::QuotaNotKept);
}

#[test]
fn cached_blocks_are_offered_without_being_kept() {
    check(Bug::CachedBlocksUnheld);
}

#[test]
fn what_was_lifted_is_freed_while_it_is_read() {
    check(Bug::LiftFreedWhileRead);
}
