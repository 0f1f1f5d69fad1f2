//! The main job, under load: eight producer and eight worker processes, 20,000 jobs, and an outside observer.

mod processes;

use std::collections::HashSet;

use casque::{JobRequest, Registry, Worker};
use processes::{
    Actor, Committer, Observer, Scene, assert_sound, await_line, close_here, finish_all, number_or, observer_here,
    path_here, play, say, store_here, tell_all, until,
};

const PRODUCERS: usize = 8;
const WORKERS: usize = 8;
const JOBS: usize = 20_000;
const BATCH: usize = 10;

#[test]
fn actor() {
    play(&[("producer", producer), ("worker", worker)]);
}

/// Enqueues its share, and notes each id once it has been answered.
fn producer() {
    let store = store_here();
    let answered = Observer::open(&path_here("answered"));
    let queue = store.queue("default");
    for batch in 0..JOBS / PRODUCERS / BATCH {
        let first = number_or("number", 0) * JOBS / PRODUCERS + batch * BATCH;
        let jobs = (first..first + BATCH).map(|number| JobRequest::new("note", &number));
        for id in queue.enqueue_batch(jobs).unwrap() {
            answered.note(&id.to_string());
        }
    }
    close_here(store);
}

fn worker() {
    let store = store_here();
    let observer = observer_here();
    let mut tasks = Registry::new();
    tasks
        .register("note", move |job, number: usize| {
            observer.note_run(job);
            Ok((number < JOBS).then_some(()).ok_or(std::fmt::Error)?)
        })
        .unwrap();
    let worker = Worker::new(&store).tasks(tasks).concurrency(2).prefetch(14);
    let stop = worker.stop_handle();
    std::thread::spawn(move || {
        await_line("stop");
        stop.stop();
    });
    let report = worker.run().unwrap();
    say(format!("report {} {} {} {}", report.completed, report.hijacks, report.failed, report.leases_lost));
    close_here(store);
}

#[test]
fn each_of_20_000_jobs_runs_exactly_once() {
    let scene = Scene::new();
    let store = scene.store();
    let mut workers: Vec<Actor> = (0..WORKERS).map(|_| scene.actor("worker", &[])).collect();
    let producers: Vec<Actor> =
        (0..PRODUCERS).map(|number| scene.actor("producer", &[("number", &number.to_string())])).collect();
    finish_all(producers);
    let stats = || store.queue("default").stats().unwrap();
    let all_done = || (stats().completed == JOBS as u64).then_some(());
    until("all jobs to complete", all_done);

    let (mut completed, mut hijacks) = (0, 0);
    tell_all(&mut workers, "stop");
    for worker in workers {
        let heard = worker.finish();
        let report: Vec<u64> = heard[0].split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
        completed += report[0];
        hijacks += report[1];
        assert_eq!(report[2..], [0, 0], "nothing fails and no lease is lost");
    }
    let stats = stats();
    assert_eq!((stats.completed, stats.hijacks), (completed, hijacks), "the workers counted what the store counted");
    assert_eq!(
        [stats.ready, stats.running, stats.scheduled, stats.waiting, stats.dead, stats.cancelled, stats.kept],
        [0; 7]
    );

    let answered: Vec<String> = Observer::open(&scene.path("answered")).lines();
    let runs = scene.observer().jobs();
    let (ids, ran): (HashSet<&String>, HashSet<&String>) = (answered.iter().collect(), runs.iter().collect());
    assert_eq!((answered.len(), ids.len()), (JOBS, JOBS), "each id was given once");
    assert_eq!((runs.len(), ran.len()), (JOBS, JOBS), "each job ran once");
    assert_eq!(ids, ran);
    println!("{JOBS} jobs, {hijacks} hijacks, {} commits", store.version().unwrap());
    let [direct, own, other] = scene.check_paths();
    assert!(scene.committer() == Committer::Itself || own + other > direct, "a stone commits");
    assert_sound(&store);
}
