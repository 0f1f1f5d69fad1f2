//! Linearizability: real processes note what they ask and what they are answered, while they and those that commit for
//! them are killed, stopped and replaced; then it is decided for the root, for each job and for each lock whether there
//! is an order, one at a time, that keeps real time and explains all answers.
//!
//! `CASQUE_SEED` repeats the faults of a run, though not its schedule; `CASQUE_HISTORY_SECONDS` and
//! `CASQUE_HISTORY_SEEDS` say how long one history is, and how many there are of each mode. With `--cfg planted`
//! (`scripts/planted`) the same rig is run over bugs that are planted in the code, and has to find each.

mod checker;
mod judge;
mod objects;
#[cfg(planted)]
mod planted;
#[path = "../processes/mod.rs"]
mod processes;
mod record;
mod rig;
mod workload;

use std::time::Duration;

use judge::Figures;
use processes::{Committer, play};
use rig::{Faults, Plan, run};

/// How long one history is, in seconds.
const SECONDS: u64 = 8;

#[test]
fn actor() {
    play(&workload::ROLES);
}

/// What a run is to do again, or something new; printed either way.
fn seed() -> u64 {
    let seed = std::env::var("CASQUE_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("CASQUE_SEED={seed}");
    seed
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn histories_are_linearizable(committer: Committer) {
    let (first, length) = (seed(), Duration::from_secs(setting("CASQUE_HISTORY_SECONDS", SECONDS)));
    let (mut figures, mut faults) = (Figures::default(), Faults::default());
    let seeds = setting("CASQUE_HISTORY_SEEDS", 1);
    for seed in (0..seeds).map(|number| first.wrapping_add(number)) {
        let outcome = run(&Plan::new(committer, seed, length));
        println!("seed {seed}, {:?}: {}; {:?}", outcome.took, outcome.figures, outcome.faults);
        assert!(outcome.wrong.is_empty(), "CASQUE_SEED={seed}: {}", outcome.wrong.join("\n"));
        figures += outcome.figures;
        faults += outcome.faults;
    }
    println!("{committer:?}, {seeds} histories: {figures}; {faults:?}");
    assert!(figures.calls > 100 && figures.jobs > 20, "there was too little load to tell anything");
}

#[test]
fn histories_of_processes_that_commit_by_themselves_are_linearizable() {
    histories_are_linearizable(Committer::Itself);
}

#[test]
fn histories_with_a_stone_are_linearizable() {
    histories_are_linearizable(Committer::Worker);
}

#[test]
fn histories_with_a_stone_without_its_log_are_linearizable() {
    histories_are_linearizable(Committer::WorkerWithoutLog);
}
