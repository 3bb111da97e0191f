//! The simulation bites: the bugs that can be planted in the cores are found, and by what they violate.
//!
//! One is left to the package `exhaustive`, which comes upon it at once: that the release of the first of two
//! leases that were given for the same ends both. Those of the device for cards are left to the package `tests-cuda`.
//!
//! What is planted is planted in the whole process, so these tests wait for each other where they share one.

use domain::planted_bugs::{Bug, plant};
use sim::{Law, Violation, run_seeds};
use std::sync::{Mutex, PoisonError};

/// By then a planted bug is found.
const SEEDS_MAX: u64 = 8000;

/// Invariants that several bugs violate.
const ANSWER: &str = "a release is answered as it should be";
const LEASE_ENDS: &str = "a lease ends by its own release, lapse or withdrawal";
const REUSE: &str = "no reuse under a live lease";
const LISTING: &str = "what is shown late, twice or wrongly lists no worker twice and none that is over";
const SEALED: &str = "a sealed block holds what its tokens demand";

const IN_LINE: &str = "who came earlier is not overtaken";
const NO_IDLING: &str = "no device idles while something could run";
const NO_NEED: &str = "nothing fails without a reason";
const FINISHES: &str = "after healing everything finishes";
const PLANS: &str = "no plan is refused";
const RENEWAL: &str = "the renewal of a lease that is over is answered";

/// The lowest seed that finds the bug finds it by what it violates: one of these invariants, by name.
#[track_caller]
fn check(bug: Bug, invariants: &[&'static str]) {
    let Violation { law, what, .. } = find(bug);
    let right = invariants.iter().any(|&name| law == Law::Invariant(name));
    assert!(right, "{bug:?} is found by {law}, not by {invariants:?}: {what}");
}

/// As [`check`], or an assertion of the core that has the bug finds it before any harm is done: in words that have
/// these in them.
#[track_caller]
fn check_or_asserted(bug: Bug, invariant: &'static str, says: &str) {
    let Violation { law, what, .. } = find(bug);
    let asserted = law == Law::Assertion && what.contains(says);
    let right = asserted || law == Law::Invariant(invariant);
    assert!(right, "{bug:?} is found by {law}, not by {invariant:?} or {says:?}: {what}");
}

#[track_caller]
fn find(bug: Bug) -> Violation {
    static PLANTED: Mutex<()> = Mutex::new(());
    let _one_at_a_time = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    plant(Some(bug));
    let batch = run_seeds(0..SEEDS_MAX, 2);
    plant(None);
    let found = batch.found.unwrap_or_else(|| panic!("{bug:?} is not found in {} seeds", batch.seeds));
    let Violation { law, what, .. } = &found.violation;
    println!("{bug:?}: seed {} of {}: {law}: {what}", found.seed, batch.seeds);
    found.violation
}

#[test]
fn a_late_renewal_revives_a_lease() {
    check(Bug::LateRenewalRevives, &[ANSWER, RENEWAL]);
}

#[test]
fn lives_are_not_checked() {
    check(Bug::NoIncarnationCheck, &[LEASE_ENDS]);
}

#[test]
fn a_release_is_answered_before_all_is_written() {
    check(Bug::ReleaseBeforeWritten, &[ANSWER]);
}

#[test]
fn a_block_is_reused_under_a_lease() {
    check(Bug::ReuseUnderLease, &[REUSE]);
}

#[test]
fn a_second_release_ends_another_lease() {
    check(Bug::DuplicateReleaseCounts, &[LEASE_ENDS]);
}

#[test]
fn blocks_in_flight_count_as_held() {
    check(Bug::InFlightCountsAsHeld, &[SEALED]);
}

#[test]
fn a_token_frame_is_taken_twice() {
    check(Bug::TokenFrameReplayed, &["gapless, unrepeated tokens"]);
}

#[test]
fn an_offer_is_expected_for_ever() {
    check(Bug::ExpectationWithoutDeadline, &["no wait beyond its bound"]);
}

#[test]
fn a_failed_step_lets_the_word_pass() {
    check(Bug::FailedStepPassesWord, &[SEALED]);
}

#[test]
fn a_stale_epoch_is_taken() {
    check(Bug::StaleEpochTaken, &["nothing of an earlier attempt is taken"]);
}

#[test]
fn a_copy_is_used_before_it_is_valid() {
    check(Bug::StartBeforeAnswer, &["nothing is made of a copy before its owner calls it valid"]);
}

#[test]
fn memory_is_freed_while_reads_run() {
    check(Bug::FreeBeforeQuiesced, &["a read writes where it was told and nobody else is"]);
}

#[test]
fn adapters_share_blocks() {
    check(Bug::AdaptersShareIdentities, &[SEALED, "the text of an undisturbed run"]);
}

#[test]
fn tenants_share_blocks() {
    check(Bug::TenantsShareIdentities, &["no block is two tenants'"]);
}

#[test]
fn a_tenant_with_its_quota_takes_from_others() {
    check(Bug::QuotaNotKept, &["quotas hold"]);
}

#[test]
fn cached_blocks_are_offered_without_being_kept() {
    check(Bug::CachedBlocksUnheld, &[LEASE_ENDS]);
}

#[test]
fn what_was_lifted_is_freed_while_it_is_read() {
    // The slot is another's once something else is lifted there. Its tier counts who reads it, and may see the end
    // of that before.
    check_or_asserted(Bug::LiftFreedWhileRead, "no slot is used twice at once", "is not read");
}

#[test]
fn a_job_that_came_later_is_admitted_first() {
    check(Bug::LaterJobFirst, &[IN_LINE]);
}

#[test]
fn what_lost_its_memory_waits_behind_all() {
    check(Bug::PreemptedLast, &[IN_LINE]);
}

#[test]
fn what_a_session_does_not_take_is_dropped() {
    check(Bug::DroppedWhenFull, &[FINISHES]);
}

#[test]
fn the_youngest_starve() {
    check(Bug::YoungestStarve, &[NO_IDLING]);
}

#[test]
fn room_stays_kept_for_nobody() {
    check(Bug::RoomKeptForNobody, &["memory is bounded"]);
}

#[test]
fn a_device_idles() {
    check(Bug::DeviceIdles, &[NO_IDLING]);
}

#[test]
fn a_lease_is_not_renewed() {
    check(Bug::LeaseNotRenewed, &[NO_NEED]);
}

#[test]
fn who_did_its_part_is_blamed() {
    check(Bug::WrongPeerBlamed, &["nobody is blamed for what another one lacked"]);
}

#[test]
fn a_refusal_is_an_attempt() {
    check(Bug::RefusalCounts, &["a refusal costs no attempt"]);
}

#[test]
fn a_pause_of_the_owner_ends_leases() {
    check(Bug::PauseEatsLeases, &[LEASE_ENDS, ANSWER]);
}

#[test]
fn a_renewal_is_not_answered() {
    check(Bug::RenewalUnanswered, &[RENEWAL]);
}

#[test]
fn all_fail_with_one() {
    check(Bug::InnocentsFail, &["only who makes a step fail fails with it"]);
}

#[test]
fn a_handoff_takes_the_room_of_who_came_before() {
    check(Bug::HandoffFirst, &[IN_LINE]);
}

#[test]
fn an_operator_is_answered_before_routers_know() {
    check(Bug::AnswerBeforeReport, &["a router that has an operator's answer places by it"]);
}

#[test]
fn the_last_request_is_first_in_a_router() {
    check(Bug::LastRequestFirst, &["who waits in a router begins before who came later"]);
}

#[test]
fn a_sequence_in_flight_is_preempted() {
    check_or_asserted(Bug::PreemptedInFlight, SEALED, "is not open");
}

#[test]
fn blocks_are_freed_while_the_next_step_writes_them() {
    check(Bug::FreedInFlight, &[SEALED]);
}

#[test]
fn what_was_computed_behind_the_end_is_told() {
    check(Bug::OvershootTold, &["the text of an undisturbed run"]);
}

#[test]
fn a_row_of_a_cancelled_sequence_counts() {
    check(Bug::ClosedRowCounts, &[SEALED, "memory is bounded"]);
}

#[test]
fn a_block_is_sealed_when_its_step_is_planned() {
    check(Bug::SealedWhenPlanned, &[SEALED]);
}

#[test]
fn the_step_behind_one_that_failed_runs() {
    check(Bug::SuccessorRuns, &[SEALED, "the text of an undisturbed run"]);
}

#[test]
fn the_device_is_not_told_what_a_prompt_took_over() {
    check(Bug::CaughtUpUntold, &["the text of an undisturbed run", PLANS, SEALED]);
}

#[test]
fn what_a_directory_shows_late_is_taken() {
    check(Bug::LateSightTaken, &[LISTING]);
}

#[test]
fn an_earlier_life_is_listed() {
    check(Bug::EarlierLifeListed, &[LISTING]);
}

#[test]
fn what_a_directory_lists_no_more_is_dialed_for_ever() {
    check(Bug::UnlistedStay, &[FINISHES]);
}
