//! Claiming and completing, by processes, and claiming from queues of different depths.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use casque::{Lease, Queue, Registry, Store, Worker};
use serde_json::json;

use crate::{
    common::{Crew, Options, Report, answer, float, open_counted, ready, repeat_for, sum},
    job, rate_line,
};

/// How many jobs a second there must be for, by how a job is taken.
const SUPPLY_SINGLE: f64 = 5_000.0;
const SUPPLY_BATCHED: f64 = 150_000.0;
const FILL_BATCH: u64 = 10_000;

pub fn measure(options: &Options, report: &mut Report) {
    for processes in [1, 4] {
        for jobs in [1, 64] {
            by_processes(options, report, processes, "hand", jobs);
        }
    }
    for (processes, jobs) in [(1, 1), (1, 64), (4, 1), (4, 64)] {
        by_processes(options, report, processes, "worker", jobs);
    }
    at_depth(options, report, 1_000);
    at_depth(options, report, if options.full { 1_000_000 } else { 100_000 });
}

/// Completions are counted here, while the others complete.
fn by_processes(options: &Options, report: &mut Report, processes: usize, how: &str, jobs: usize) {
    let folder = options.fresh_folder();
    let path = folder.path().join("claims.redb");
    let (store, _) = open_counted(&path);
    let queue = store.queue("default");
    let supply = if jobs == 1 { SUPPLY_SINGLE } else { SUPPLY_BATCHED };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fill(&queue, (options.seconds * supply) as u64 + FILL_BATCH);

    let path = path.to_str().expect("a path of text");
    let seconds = options.seconds.to_string();
    let mut crew = Crew::start(processes, "worker", &[path, how, &jobs.to_string(), &seconds]);
    let before = queue.stats().expect("the queue is counted").completed;
    let began = Instant::now();
    crew.go();
    let answers = crew.answers();
    let took = began.elapsed();
    let after = queue.stats().expect("the queue is counted");
    let short = if after.ready == 0 { ", all there were" } else { "" };
    let name = match how {
        "hand" => format!("claim {jobs} and complete, {processes} processes{short}"),
        _ => format!("Worker, {jobs} jobs at once, {processes} processes{short}"),
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    rate_line(report, &name, after.completed - before, took, sum(&answers, "syncs") as u64);
}

pub fn work(args: &[String]) -> ! {
    let [path, how, jobs, seconds] = args else { panic!("a worker has four arguments") };
    let jobs: usize = jobs.parse().expect("a number");
    let duration = Duration::from_secs_f64(seconds.parse().expect("a number"));
    let (store, syncs) = open_counted(Path::new(path));
    // The first claim begins the session and opens the file for writing; neither is to be measured.
    claim_and_complete(&store, 1);
    ready();
    let before = syncs.count();
    if how == "hand" {
        let began = Instant::now();
        while began.elapsed() < duration && claim_and_complete(&store, jobs) {}
    } else {
        run_worker(&store, jobs, duration);
    }
    answer(&json!({ "syncs": syncs.count() - before }))
}

/// One job is completed by itself, several in one transaction. Whether there were any.
fn claim_and_complete(store: &Store, jobs: usize) -> bool {
    let leases = store.queue("default").claim(jobs, Duration::ZERO).expect("a claim");
    match &leases[..] {
        [] => return false,
        [lease] => lease.complete().expect("the lease stands"),
        leases => store
            .transaction(|tx| leases.iter().try_for_each(|lease: &Lease| tx.complete(lease)))
            .expect("the leases stand"),
    }
    true
}

/// A worker whose handler does nothing, until its time is over or the queue is empty.
fn run_worker(store: &Store, jobs: usize, duration: Duration) {
    let mut tasks = Registry::new();
    tasks.register("noop", |_, _: Vec<u8>| Ok(())).expect("the registry is empty");
    let worker = Worker::new(store).tasks(tasks).prefetch(jobs - 1).drain(true);
    let stop = worker.stop_handle();
    std::thread::spawn(move || {
        std::thread::sleep(duration);
        stop.stop();
    });
    worker.run().expect("the worker runs");
}

/// Claims alone, one job each, while the queue is about this deep.
fn at_depth(options: &Options, report: &mut Report, depth: u64) {
    let folder = options.fresh_folder();
    let (store, syncs) = open_counted(&folder.path().join("depth.redb"));
    let queue = store.queue("default");
    fill(&queue, depth);
    let mut leases = queue.claim(1, Duration::ZERO).expect("a first claim");
    let before = syncs.count();
    // No more than half of them, so that it stays deep.
    let (mut left, mut took, began) = (depth / 2, Duration::ZERO, Instant::now());
    let mut count = 0;
    while left > 0 && began.elapsed() < options.duration() {
        let (claims, time) = repeat_for(Duration::from_millis(1), || {
            leases.extend(queue.claim(1, Duration::ZERO).expect("a claim"));
        });
        (count, took, left) = (count + claims, took + time, left.saturating_sub(claims));
    }
    rate_line(report, &format!("claim 1, {depth} jobs deep"), count, took, syncs.count() - before);
    // Else each lease would be given back by itself.
    store.transaction(|tx| leases.iter().try_for_each(|lease| tx.complete(lease))).expect("the leases stand");
    assert!(float(count) <= float(depth), "claimed more than there was");
}

fn fill(queue: &Queue, mut jobs: u64) {
    while jobs > 0 {
        let batch = jobs.min(FILL_BATCH);
        queue.enqueue_batch((0..batch).map(|_| job())).expect("a batch is enqueued");
        jobs -= batch;
    }
}
