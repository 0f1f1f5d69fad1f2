//! Takeovers: the process that commits for the others is killed again and again under load, and another takes its
//! place.
//!
//! `CASQUE_TAKEOVERS` says how many there are. Times are printed; with `CASQUE_TIMED` they are judged too, which is for
//! a run by hand on a machine that has nothing else to do.

mod load;
mod processes;

use std::{
    fs::File,
    io::{Seek as _, Write as _},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use casque::Store;
use load::{ROLES, drain, judge_jobs, judge_sum, stop_all};
use processes::{Actor, Committer, Scene, expect_all, play, until};

const TAKEOVERS: usize = 200;
const WORKERS: usize = 4;
const CLIENTS: [&str; 4] = ["producer", "producer", "claimer", "adder"];

/// What may pass between the kill and the next answer, for 99 of 100.
const TAKEOVER_P99_MAX: Duration = Duration::from_millis(100);
/// What may pass between two completions, besides the longest that a sync took meanwhile.
const GAP_MAX: Duration = Duration::from_secs(1);

#[test]
fn actor() {
    play(&ROLES);
}

/// The slowest of many syncs of a file of its own, as a measure of the disk.
fn probe_disk(scene: &Scene, is_over: &AtomicBool) -> Duration {
    let mut file = File::create(scene.path("probe")).unwrap();
    let mut slowest = Duration::ZERO;
    while !is_over.load(Ordering::SeqCst) {
        file.rewind().unwrap();
        file.write_all(&[7; 4096]).unwrap();
        let begun = Instant::now();
        file.sync_data().unwrap();
        slowest = slowest.max(begun.elapsed());
        thread::sleep(Duration::from_millis(5)); // waits: so that the probe is no load of its own
    }
    slowest
}

/// The longest time in which no job was run.
fn probe_runs(scene: &Scene, is_over: &AtomicBool) -> Duration {
    let length = || std::fs::metadata(scene.path("runs")).map_or(0, |runs| runs.len());
    let (mut seen, mut since, mut longest) = (length(), Instant::now(), Duration::ZERO);
    while !is_over.load(Ordering::SeqCst) {
        let now = length();
        if now != seen {
            longest = longest.max(since.elapsed());
            (seen, since) = (now, Instant::now());
        }
        thread::sleep(Duration::from_millis(1)); // waits: for what other processes do
    }
    longest.max(since.elapsed())
}

/// The process that is the stone, once there is one of these.
fn stone_among(store: &Store, workers: &[Actor]) -> usize {
    until("a worker to be the stone", || {
        let pid = store.stone()?;
        workers.iter().position(|worker| worker.pid() == pid)
    })
}

#[test]
fn killed_stones_are_followed_by_others_and_nobody_notices() {
    let takeovers = std::env::var("CASQUE_TAKEOVERS").map_or(TAKEOVERS, |count| count.parse().unwrap());
    let scene = Scene::by(Committer::Worker);
    let store = scene.store();
    let mut workers: Vec<Actor> = (0..WORKERS).map(|_| scene.actor("worker", &[])).collect();
    let mut clients: Vec<Actor> = CLIENTS.map(|role| scene.actor(role, &[])).into();
    expect_all(&mut workers, "begun");
    expect_all(&mut clients, "begun");

    let is_over = AtomicBool::new(false);
    let (mut till_answer, mut till_stone, mut own_sum) = (Vec::new(), Vec::new(), 0);
    let (slowest_sync, longest_gap) = thread::scope(|scope| {
        let disk = scope.spawn(|| probe_disk(&scene, &is_over));
        let runs = scope.spawn(|| probe_runs(&scene, &is_over));
        let mut at = stone_among(&store, &workers);
        while till_stone.len() < takeovers {
            // It answers, so it is the stone, and its connection is this process's.
            store.add("sum", 1).unwrap();
            own_sum += 1;
            workers[at].kill();
            let killed = Instant::now();
            store.add("sum", 1).unwrap();
            own_sum += 1;
            till_answer.push(killed.elapsed());
            let dead = workers.remove(at);
            at = stone_among(&store, &workers);
            till_stone.push(killed.elapsed());
            drop(dead);
            let mut fresh = scene.actor("worker", &[]);
            fresh.expect("begun");
            workers.push(fresh);
        }
        is_over.store(true, Ordering::SeqCst);
        (disk.join().unwrap(), runs.join().unwrap())
    });

    let (told, sum) = stop_all(clients);
    let (told_by_workers, _) = stop_all(workers);
    assert!(told.is_empty() && told_by_workers.is_empty(), "{told:#?} {told_by_workers:#?}");
    drain(&scene, &store);
    judge_jobs(&scene, &store);
    judge_sum(&store, sum + own_sum);
    let [direct, own, other] = scene.check_paths();
    assert!(own + other > direct, "a stone commits");

    let p99 = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        (times[times.len() / 2], times[times.len() * 99 / 100], times[times.len() - 1])
    };
    println!("{takeovers} takeovers; p50, p99 and most: till the next answer {:?}", p99(&mut till_answer));
    println!("till another is the stone {:?}", p99(&mut till_stone));
    println!("longest gap between runs {longest_gap:?}; slowest raw sync meanwhile {slowest_sync:?}");
    if std::env::var_os("CASQUE_TIMED").is_some() {
        assert!(p99(&mut till_stone).1 <= TAKEOVER_P99_MAX && p99(&mut till_answer).1 <= TAKEOVER_P99_MAX);
        assert!(longest_gap <= GAP_MAX + slowest_sync);
    }
}
