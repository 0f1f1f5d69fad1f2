//! The rig over bugs that are planted in the code: it finds each, whatever the seed, and finds nothing where there is
//! none. `CASQUE_SEED` and `CASQUE_HISTORY_SEEDS` choose other seeds than 1 to 10.

use std::time::Duration;

use super::{
    processes::Committer,
    rig::{Plan, run},
    setting,
    workload::Mix,
};

/// How long a bug may hide.
const LENGTH: Duration = Duration::from_secs(40);
/// A client or a server under these tests lives about so long.
const LIFE: Duration = Duration::from_millis(250);

/// What there is of each run, but for what is said.
fn plan(committer: Committer, seed: u64, mix: Mix) -> Plan {
    Plan { mix, ends_early: true, clients_live: None, servers_live: None, ..Plan::new(committer, seed, LENGTH) }
}

/// From each seed the history is seen to be wrong.
fn each_seed_finds(bugs: &str, plan: impl Fn(u64) -> Plan) {
    let (first, seeds) = (setting("CASQUE_SEED", 1), setting("CASQUE_HISTORY_SEEDS", 10));
    let (mut missed, mut longest) = (Vec::new(), Duration::ZERO);
    for seed in (0..seeds).map(|number| first.wrapping_add(number)) {
        let outcome = run(&with(bugs, plan(seed)));
        let what: Vec<&str> = outcome.wrong.iter().map(|wrong| wrong.split(':').next().unwrap()).collect();
        println!("{bugs}, seed {seed}, {:?}: {what:?}; {}; {:?}", outcome.took, outcome.figures, outcome.faults);
        if outcome.wrong.is_empty() {
            missed.push(seed);
        }
        longest = longest.max(outcome.took);
    }
    println!("{bugs}: found from {} of {seeds} seeds, within {longest:?}", seeds - missed.len() as u64);
    assert!(missed.is_empty(), "{bugs} was not found from the seeds {missed:?}");
}

fn with(bugs: &str, mut plan: Plan) -> Plan {
    plan.environment = vec![("CASQUE_PLANTED".to_owned(), bugs.to_owned())];
    plan
}

#[test]
fn settlement_by_an_old_token_is_found() {
    each_seed_finds("FencingOff", |seed| plan(Committer::Worker, seed, Mix::Queue));
}

#[test]
fn skipped_guard_is_found() {
    each_seed_finds("GuardSkipped", |seed| plan(Committer::Itself, seed, Mix::Root));
}

#[test]
fn snapshot_without_barrier_is_found() {
    each_seed_finds("SnapshotWithoutBarrier", |seed| plan(Committer::Worker, seed, Mix::Root));
}

#[test]
fn answer_before_the_sync_is_found() {
    each_seed_finds("AnswerBeforeSync UnsyncedIsLost", |seed| Plan {
        servers_live: Some(LIFE),
        passages: 30,
        ..plan(Committer::Worker, seed, Mix::Queue)
    });
}

#[test]
fn forgotten_verdict_is_found() {
    each_seed_finds("VerdictForgotten", |seed| Plan {
        servers_live: Some(LIFE),
        passages: 30,
        ..plan(Committer::Worker, seed, Mix::All)
    });
}

/// The disk that loses what is unsynced shows no bug where there is none.
#[test]
fn nothing_is_found_where_a_log_loses_what_it_has_not_synced() {
    let outcome = run(&with(
        "UnsyncedIsLost",
        Plan {
            servers_live: Some(LIFE),
            passages: 30,
            ..Plan::new(Committer::Worker, setting("CASQUE_SEED", 1), Duration::from_secs(6))
        },
    ));
    println!("{:?}: {}; {:?}", outcome.took, outcome.figures, outcome.faults);
    assert!(outcome.wrong.is_empty(), "{}", outcome.wrong.join("\n"));
    assert!(outcome.faults.servers_killed + outcome.faults.servers_died > 3);
}
