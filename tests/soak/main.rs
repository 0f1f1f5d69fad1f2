//! The soak: producers, workers, stones, readers, operators and shells on one store for as long as it is told, while
//! they are killed and stopped, their disk is full or slow, and their clocks jump. An observer outside of the store
//! notes what was acknowledged, run and completed, and decides after each round: nothing lost, nothing done twice.
//!
//! `scripts/soak MINUTES` runs it for long. `CASQUE_SEED` repeats the plan of a run, though not its schedule; the round
//! that finds something tells the seed that has it come first.

#[path = "../processes/disk.rs"]
mod disk;
mod ground;
mod judge;
#[path = "../processes/mod.rs"]
mod processes;
mod roles;
mod storm;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use casque::{
    Store, Timestamp, Worker,
    testing::Clock,
    types::{Exec, QueueConfig},
};
use ground::Ground;
use judge::{Counts, Figures, Notes};
use processes::{Committer, DEADLINE, Observer, play};
use roles::{ACCOUNTS, FUNDS, QUEUES, ROLES};
use storm::{Blows, Storm};

/// Who takes part beside who serves.
const CAST: [&str; 13] = [
    "worker",
    "worker",
    "claimer",
    "producer",
    "producer",
    "caller",
    "accountant",
    "accountant",
    "locker",
    "locker",
    "tender",
    "reader",
    "work",
];
const COMMITTERS: [Committer; 4] =
    [Committer::Worker, Committer::Itself, Committer::WorkerWithoutLog, Committer::Server];
/// The lease time: short, so that who is stopped loses what it holds; and the longest there is need for.
const LEASES_MS: [u64; 2] = [1_000, 60_000];
/// Of a round, where the soak is long.
const ROUND: Duration = Duration::from_secs(40);
/// Of each in the short form: four rounds with blows, two without.
const SHORT: [Duration; 2] = [Duration::from_secs(7), Duration::from_secs(4)];
/// How long nothing may be completed though nobody is stopped and the disk has room.
const GAP_MAX: Duration = Duration::from_secs(20);
/// Later than any clock of a round.
const LATER: Duration = Duration::from_hours(48);

#[test]
fn actor() {
    play(&ROLES);
}

struct Round {
    number: usize,
    seed: u64,
    committer: Committer,
    is_calm: bool,
    length: Duration,
}

#[test]
fn nothing_is_lost_or_done_twice_whatever_happens_to_the_processes_and_their_disk() {
    let seed = std::env::var("CASQUE_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    let minutes = std::env::var("CASQUE_SOAK_MINUTES").ok().map(|minutes| minutes.parse::<f64>().unwrap());
    println!("CASQUE_SEED={seed}");
    let ground = Ground::new();
    prepare(&ground);
    let begun = Instant::now();
    let (mut blows, mut figures, mut number) = (Blows::default(), Figures::default(), 0);
    let mut left = BTreeSet::new();
    loop {
        let (is_calm, length) = match minutes {
            None if number == 6 => break,
            None => (number >= 4, SHORT[usize::from(number >= 4)]),
            Some(minutes) if begun.elapsed().as_secs_f64() >= minutes * 60.0 => break,
            Some(_) => (number % 10 == 9, ROUND),
        };
        let at = if minutes.is_none() && number >= 4 { number - 2 } else { number };
        let committer = COMMITTERS[(at + usize::try_from(seed % 4).unwrap() * usize::from(!is_calm)) % 4];
        let round = Round { number, seed: seed.wrapping_add(number as u64), committer, is_calm, length };
        match play_round(&ground, &round, &mut left) {
            Ok(of_round) => sum_up(&mut blows, &mut figures, of_round),
            Err(findings) => {
                let kept = ground.keep();
                panic!("CASQUE_SEED={} in round {number}, kept in {}: {findings}", round.seed, kept.display());
            }
        }
        number += 1;
    }
    println!("soak: {number} rounds in {} s: {figures:?}, {blows:?}", begun.elapsed().as_secs());
}

fn sum_up(blows: &mut Blows, figures: &mut Figures, (more, of_round): (Blows, Figures)) {
    for (sum, add) in [
        (&mut blows.kills, more.kills),
        (&mut blows.stops, more.stops),
        (&mut blows.killed_while_stopped, more.killed_while_stopped),
        (&mut blows.full_disks, more.full_disks),
        (&mut blows.clock_jumps, more.clock_jumps),
        (&mut blows.slow_disks, more.slow_disks),
        (&mut figures.acknowledged, of_round.acknowledged),
        (&mut figures.jobs, of_round.jobs),
        (&mut figures.runs, of_round.runs),
        (&mut figures.lost, of_round.lost),
        (&mut figures.doubled, of_round.doubled),
        (&mut figures.troubles, of_round.troubles),
    ] {
        *sum += add;
    }
    blows.gap = blows.gap.max(more.gap);
    blows.gap_unhindered = blows.gap_unhindered.max(more.gap_unhindered);
}

/// Makes the store.
fn prepare(ground: &Ground) {
    let store = Committer::Itself.options().open(ground.store()).unwrap();
    for account in ACCOUNTS {
        store.put(account, &FUNDS).unwrap();
    }
    store.queue(QUEUES[0]).configure(&QueueConfig::new().concurrency_per_key(2)).unwrap();
    store.close().unwrap();
}

/// One round, from a store whose jobs have all ended to the same.
fn play_round(ground: &Ground, round: &Round, left: &mut BTreeSet<PathBuf>) -> Result<(Blows, Figures), String> {
    let Round { number, seed, committer, is_calm, length } = *round;
    let _ = std::fs::remove_file(ground.notes());
    let notes = Arc::new(Observer::open(&ground.notes()));
    let store = committer.options().open(ground.store()).unwrap();
    store.configure("lease", LEASES_MS[usize::from(is_calm)]).unwrap();
    store.schedule(roles::ticks(number)).unwrap();
    let before = Counts::of(&store);
    store.close().unwrap();

    let mut cast = CAST.to_vec();
    if committer == Committer::Server {
        cast.push("serve");
    }
    let mut play = Storm::begin(ground, committer, &cast, seed);
    play.pass(length, (!is_calm).then_some(400));
    let by_force = !is_calm && play.random.bool();
    play.end(by_force);
    let (blows, mut findings) = (play.blows, std::mem::take(&mut play.findings));
    drop(play);
    if blows.gap_unhindered > GAP_MAX {
        findings.push(format!("nothing was completed for {:?}, and nothing held it up", blows.gap_unhindered));
    }

    let store = drain(ground, committer, number, &notes);
    let mut evidence = Notes::read(&ground.notes());
    if !judge::is_empty(&store) {
        evidence.findings.push("there are jobs after the store was drained".to_owned());
    }
    let figures = evidence.judge(&store, before, is_calm);
    store.close().unwrap();
    evidence.judge_files(&ground.store(), left);
    evidence.findings.append(&mut findings);
    let bytes = std::fs::metadata(ground.store()).unwrap().len();
    let weather = if is_calm { "calm" } else { "storm" };
    println!("round {number} {committer:?} {weather}: {figures:?}, {blows:?}, file {} KiB", bytes >> 10);
    if evidence.findings.is_empty() { Ok((blows, figures)) } else { Err(evidence.told()) }
}

/// Runs all that is left, whenever it was planned for: by the clocks of those that are gone it may be tomorrow.
fn drain(ground: &Ground, committer: Committer, number: usize, notes: &Arc<Observer>) -> Store {
    let later = Clock::manual(Timestamp::now().after(LATER));
    let store = committer.options().clock(later.clone()).open(ground.store()).unwrap();
    store.remove_schedule(&format!("tick-{number}")).unwrap();
    let listener = notes.clone();
    let mut tasks = roles::tasks(notes);
    tasks.task::<Exec>().unwrap();
    let mut worker = Worker::new(&store).tasks(tasks).concurrency(2);
    for queue in QUEUES {
        store.queue(queue).resume().unwrap();
        worker = worker.queue(queue);
    }
    let worker = worker.listen(move |event| roles::listen(&listener, event)).drain_with_scheduled();
    let (stop, begun, is_over) = (worker.stop_handle(), Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                later.advance(Duration::from_millis(100));
                if begun.elapsed() > DEADLINE {
                    stop.stop(); // What is left is found.
                }
                thread::sleep(Duration::from_millis(10)); // waits: for backoffs, which go by this clock
            }
        });
        worker.run().unwrap();
        is_over.store(true, Ordering::SeqCst);
    });
    store
}
