//! Worker processes with default settings share what there is: when nothing is left to claim, none of them sits on
//! more than another could have done. How long all of it took is printed beside the ideal, and not looked at: it tells
//! of the machine as well.

mod processes;

use std::{
    collections::{HashMap, HashSet},
    thread,
    time::{Duration, Instant},
};

use casque::{Event, JobRequest, Registry, Worker};
use processes::{
    Actor, Committer, Observer, Scene, assert_sound, await_line, close_here, expect_all, finish_all, observer_here,
    play, say, store_here, tell_all, until, words,
};

const WORKERS: usize = 8;
const JOBS: usize = 400;
/// The longest job.
const LONGEST_MS: u64 = 100;

#[test]
fn actor() {
    play(&[("sharer", sharer)]);
}

/// A worker as it is without any setting; notes what it claims, begins and gives back.
fn sharer() {
    let store = store_here();
    let observer: Observer = observer_here();
    let mut tasks = Registry::new();
    tasks
        .register("work", |_, millis: u64| {
            thread::sleep(Duration::from_millis(millis)); // waits: this is the work, whose length is what is shared out
            Ok(())
        })
        .unwrap();
    let pid = std::process::id();
    let worker = Worker::new(&store).tasks(tasks).listen(move |event| match event {
        Event::Claimed { jobs, .. } => observer.note(&format!("{pid} claimed {}", words(jobs))),
        Event::Started { job, .. } => observer.note(&format!("{pid} started {job}")),
        Event::GivenBack { job, .. } => observer.note(&format!("{pid} back {job}")),
        _ => {}
    });
    let stop = worker.stop_handle();
    thread::spawn(move || {
        await_line("stop");
        stop.stop();
    });
    say("begun");
    worker.run().unwrap();
    close_here(store);
}

/// How many milliseconds of jobs each worker has claimed and not begun when the last job is claimed.
fn held_at_the_end(lines: &[String], lengths: &HashMap<String, u64>) -> HashMap<String, u64> {
    let last_claim = lines.iter().rposition(|line| line.contains(" claimed ")).unwrap();
    let mut held: HashMap<String, HashSet<String>> = HashMap::new();
    for line in &lines[..=last_claim] {
        let mut parts = line.split(' ');
        let (pid, what) = (parts.next().unwrap(), parts.next().unwrap());
        let held = held.entry(pid.to_owned()).or_default();
        for job in parts.map(str::to_owned) {
            if what == "claimed" {
                held.insert(job)
            } else {
                held.remove(&job)
            };
        }
    }
    held.into_iter().map(|(pid, jobs)| (pid, jobs.iter().map(|job| lengths[job]).sum())).collect()
}

fn shares_fairly(committer: Committer) {
    let seed = std::env::var("CASQUE_TEST_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("seed {seed}: CASQUE_TEST_SEED={seed} plays the same jobs again");
    let mut random = fastrand::Rng::with_seed(seed);
    let lengths: Vec<u64> = (0..JOBS).map(|_| random.u64(0..=LONGEST_MS)).collect();
    let scene = Scene::without_disk(committer);
    let store = scene.store();
    let queue = store.queue("default");
    queue.pause().unwrap();
    let jobs = queue.enqueue_batch(lengths.iter().map(|length| JobRequest::new("work", length))).unwrap();
    let lengths: HashMap<String, u64> = jobs.iter().map(ToString::to_string).zip(lengths).collect();
    let mut workers: Vec<Actor> = (0..WORKERS).map(|_| scene.actor("sharer", &[])).collect();
    expect_all(&mut workers, "begun");

    let begun = Instant::now();
    queue.resume().unwrap();
    until("all is done", || (queue.stats().unwrap().completed == JOBS as u64).then_some(()));
    let took = begun.elapsed();
    tell_all(&mut workers, "stop");
    finish_all(workers);

    let total: u64 = lengths.values().sum();
    let ideal = Duration::from_millis((total / WORKERS as u64).max(LONGEST_MS));
    let held = held_at_the_end(&scene.observer().lines(), &lengths);
    let bound = ideal + ideal / 10 + Duration::from_millis(LONGEST_MS);
    println!(
        "{committer:?}: {took:.3?}; ideal {ideal:.3?}, a tenth and one longest job more {bound:.3?}; held {held:?}"
    );
    assert_eq!(held.len(), WORKERS, "each has claimed something: {held:?}");
    let most = *held.values().max().unwrap();
    assert!(Duration::from_millis(most) <= ideal / 10, "a worker held {most} ms of work that others could do");
    assert_sound(&store);
    store.close().unwrap();
}

#[test]
fn no_worker_process_hoards_what_another_could_do() {
    shares_fairly(Committer::Worker);
}

#[test]
fn no_worker_process_hoards_what_another_could_do_where_each_commits_by_itself() {
    shares_fairly(Committer::Itself);
}
