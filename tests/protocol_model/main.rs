//! A model of the commit protocol (rules W, L, R and A of ARCHITECTURE.md), gone through exhaustively: every order of
//! steps, every death, power cut and failed write within a budget. It runs none of casque's code.
//!
//! Read it in the order of the `mod` lines, then the tests here: the protocol as it is holds, and each rule that is
//! broken on purpose is found. Who changes a rule changes it here first.
//!
//! Left out: conflicts and refusals, the horizon of A2, pins (R3, R4), presence
//! (P), a lock file that was replaced (W2), who is served first (W5). A record is written to a slot of its own, so
//! nothing here takes bytes in the middle of an old record for a new one. That nobody is stuck is checked; that all
//! get their turn is not.

mod state;

mod disk;

mod rules;

mod steps;

mod holder;

mod checks;

mod search;

use rules::{Bug, Scope};
use search::{Report, search};
use state::Budget;

const QUIET: Budget = Budget { stones: 1, kills: 0, cuts: 0, faults: 0, leaves: 0, breaks: 0, large: 0 };

/// Goes through the protocol as it is.
fn protocol(changes: [u8; 2], reads: bool, budget: Budget) -> Scope {
    Scope { changes, reads, budget, id_instead_of_chain: false, bug: None }
}

/// The protocol holds, in a search that reaches this many states: one that reaches fewer has lost steps.
fn assert_holds(scope: &Scope, states_min: usize) {
    let Report { states, depth, story } = search(scope);
    println!("{states} states, up to {depth} actions");
    assert!(story.is_none(), "{}", story.expect("just seen"));
    assert!(states >= states_min, "only {states} states were reached, not {states_min}");
}

/// The bug breaks this invariant; the search says how.
fn assert_found(bug: Bug, invariant: &str, scope: &Scope) {
    let Report { states, story, .. } = search(&Scope { bug: Some(bug), ..*scope });
    let Some(story) = story else { panic!("{bug:?} breaks nothing in {states} states") };
    println!("{story}");
    assert!(story.broken.starts_with(invariant), "{bug:?} breaks another invariant: {story}");
    // What the bug is blamed for is not the protocol's.
    assert_holds(scope, 1);
}

#[test]
fn protocol_outlasts_a_death_and_a_power_cut() {
    let budget = Budget { stones: 2, kills: 1, cuts: 1, ..QUIET };
    assert_holds(&protocol([2, 2], false, budget), 350_000);
}

#[test]
fn protocol_outlasts_two_deaths_and_two_power_cuts() {
    let budget = Budget { stones: 3, kills: 2, cuts: 2, ..QUIET };
    assert_holds(&protocol([1, 1], false, budget), 140_000);
}

#[test]
fn protocol_outlasts_failed_writes_with_a_death() {
    let budget = Budget { stones: 2, kills: 1, faults: 1, ..QUIET };
    assert_holds(&protocol([2, 1], false, budget), 235_000);
}

#[test]
fn protocol_outlasts_failed_writes_with_a_power_cut() {
    let budget = Budget { stones: 2, cuts: 1, faults: 1, ..QUIET };
    assert_holds(&protocol([2, 1], false, budget), 162_000);
}

#[test]
fn protocol_outlasts_two_failed_writes() {
    let budget = Budget { stones: 2, kills: 1, faults: 2, ..QUIET };
    assert_holds(&protocol([1, 1], false, budget), 240_000);
}

#[test]
fn protocol_outlasts_a_window_that_is_tried_again_while_another_has_come() {
    let budget = Budget { stones: 2, kills: 1, faults: 2, ..QUIET };
    assert_holds(&protocol([2, 0], false, budget), 47_000);
    let budget = Budget { stones: 2, cuts: 1, faults: 1, ..QUIET };
    assert_holds(&protocol([2, 0], true, budget), 37_000);
}

#[test]
fn protocol_outlasts_groups_around_the_log() {
    let budget = Budget { stones: 2, kills: 1, large: 2, ..QUIET };
    assert_holds(&protocol([2, 1], false, budget), 34_000);
    let budget = Budget { stones: 2, cuts: 1, faults: 1, large: 1, ..QUIET };
    assert_holds(&protocol([1, 1], false, budget), 47_000);
}

#[test]
fn protocol_applies_what_is_sent_again_once() {
    let budget = Budget { stones: 2, kills: 1, breaks: 2, ..QUIET };
    assert_holds(&protocol([2, 1], false, budget), 95_000);
}

#[test]
fn snapshots_see_all_that_was_answered_before_them() {
    let budget = Budget { stones: 2, kills: 1, leaves: 1, ..QUIET };
    assert_holds(&protocol([2, 1], true, budget), 378_000);
}

#[test]
fn snapshots_see_all_that_was_answered_beside_failed_writes() {
    let budget = Budget { kills: 1, faults: 1, ..QUIET };
    assert_holds(&protocol([1, 1], true, budget), 88_000);
}

/// Chaining is the second line here: versions and a log's id in each checksum keep old records out. It stays the rule,
/// for it also keeps out what looks like a record in the middle of an old one, which the model does not have.
#[test]
fn log_id_in_each_record_keeps_old_records_out_without_the_chain() {
    let budget = Budget { stones: 2, kills: 1, faults: 1, ..QUIET };
    assert_holds(&Scope { id_instead_of_chain: true, ..protocol([2, 1], false, budget) }, 235_000);
}

#[test]
fn flag_before_log_is_found() {
    assert_found(Bug::FlagBeforeLog, "INV-4", &protocol([1, 1], false, QUIET));
}

#[test]
fn half_reused_before_its_commit_returned_is_found() {
    assert_found(Bug::HalfReusedEarly, "INV-2", &protocol([1, 1], false, QUIET));
}

#[test]
fn append_after_a_failed_sync_is_found() {
    assert_found(Bug::AppendAfterFailedSync, "INV-4", &protocol([1, 1], false, Budget { faults: 1, ..QUIET }));
}

#[test]
fn log_left_in_use_after_a_failure_is_found() {
    assert_found(Bug::MendKeepsFlag, "INV-4", &protocol([1, 1], false, Budget { faults: 1, ..QUIET }));
}

#[test]
fn older_commit_taken_for_the_one_that_mends_is_found() {
    assert_found(Bug::MendTrustsOlderCommit, "INV-4", &protocol([1, 1], false, Budget { faults: 1, ..QUIET }));
}

#[test]
fn window_tried_twice_at_once_is_found() {
    let budget = Budget { kills: 1, faults: 1, ..QUIET };
    assert_found(Bug::WindowTriedTwice, "INV-2", &protocol([2, 2], false, budget));
}

#[test]
fn group_around_the_log_that_is_answered_early_is_found() {
    let budget = Budget { large: 1, ..QUIET };
    assert_found(Bug::AroundAnsweredEarly, "INV-4", &protocol([1, 0], false, budget));
}

#[test]
fn records_without_a_chain_are_found() {
    let budget = Budget { stones: 2, faults: 1, ..QUIET };
    assert_found(Bug::NoChain, "INV-5", &protocol([1, 1], false, budget));
}

#[test]
fn records_without_a_log_id_are_found() {
    let budget = Budget { stones: 2, faults: 1, ..QUIET };
    assert_found(Bug::NoLogId, "INV-2", &protocol([1, 1], false, budget));
}

#[test]
fn answer_before_the_sync_is_found() {
    assert_found(Bug::AnswerBeforeSync, "INV-4", &protocol([1, 0], false, QUIET));
}

#[test]
fn sync_taken_to_cover_a_later_record_is_found() {
    assert_found(Bug::SyncCoversLater, "INV-4", &protocol([1, 1], false, Budget { cuts: 1, ..QUIET }));
}

#[test]
fn answer_on_rows_that_are_not_synced_is_found() {
    let budget = Budget { breaks: 1, ..QUIET };
    assert_found(Bug::AnsweredOnUnsynced, "INV-4", &protocol([1, 1], false, budget));
}

#[test]
fn log_left_in_use_by_a_recovery_is_found() {
    let budget = Budget { stones: 2, kills: 1, ..QUIET };
    assert_found(Bug::RecoveryKeepsFlag, "INV-4", &protocol([1, 1], false, budget));
}

#[test]
fn snapshot_that_asks_nobody_is_found() {
    assert_found(Bug::SnapshotWithoutBarrier, "INV-8", &protocol([1, 0], true, QUIET));
}

#[test]
fn snapshot_that_waits_for_an_older_window_is_found() {
    assert_found(Bug::SnapshotWaitsForOlderWindow, "INV-8", &protocol([1, 1], true, QUIET));
}

#[test]
fn forgotten_verdict_is_found() {
    assert_found(Bug::VerdictForgotten, "INV-5", &protocol([1, 0], false, Budget { breaks: 1, ..QUIET }));
}

#[test]
fn direct_commit_without_a_verdict_is_found() {
    assert_found(Bug::DirectWithoutVerdict, "INV-5", &protocol([1, 0], false, Budget { faults: 1, ..QUIET }));
}

#[test]
fn older_connection_that_lives_is_found() {
    assert_found(Bug::OlderConnectionLives, "INV-5", &protocol([1, 0], false, Budget { breaks: 1, ..QUIET }));
}

#[test]
fn leave_without_the_last_window_is_found() {
    assert_found(Bug::LeaveWithoutWindow, "INV-4", &protocol([1, 0], false, Budget { leaves: 1, ..QUIET }));
}

#[test]
fn write_without_a_basis_is_found() {
    assert_found(Bug::NoBasis, "INV-2", &protocol([1, 1], false, Budget { kills: 1, ..QUIET }));
}

#[test]
fn header_that_was_never_synced_is_found() {
    assert_found(Bug::UnsyncedHeaderTrusted, "INV-2", &protocol([1, 1], false, Budget { kills: 1, ..QUIET }));
}

#[test]
fn stone_on_a_kept_handle_is_found() {
    let budget = Budget { stones: 2, kills: 1, ..QUIET };
    assert_found(Bug::StoneOnKeptHandle, "INV-4", &protocol([1, 0], false, budget));
}
