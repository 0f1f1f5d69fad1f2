//! Load that tells what it did, and the judge of what must be true of it afterwards: nothing that was answered is lost,
//! nothing is there or done twice.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use casque::{Event, JobFilter, JobInfo, JobRequest, Registry, Result, State, Store, StoreOptions, Worker};

use super::processes::{
    Actor, Observer, Scene, assert_sound, await_line, close_here, number_or, observer_here, options, path_here, say,
};

/// The counter that adders add to.
const SUM: &str = "sum";
/// How many jobs may be ready before producers wait.
const READY_MAX: u64 = 2_000;

/// The roles of those that make load; none of them is ever the stone but a worker.
pub const ROLES: [(&str, fn()); 4] =
    [("producer", producer), ("claimer", claimer), ("adder", adder), ("worker", worker)];

/// Whether the test has said to stop.
fn stopping() -> Arc<AtomicBool> {
    let stopping = Arc::new(AtomicBool::new(false));
    let told = stopping.clone();
    thread::spawn(move || {
        await_line("stop");
        told.store(true, Ordering::SeqCst);
    });
    stopping
}

/// What went well; what did not is told, and is for the judge.
fn well<T>(what: &str, outcome: Result<T>) -> Option<T> {
    outcome.map_err(|error| say(format!("wrong: {what}: {:?}: {}", error.kind(), error.full_message()))).ok()
}

fn job(number: usize) -> JobRequest {
    JobRequest::new("note", &number).keep().max_attempts(1_000)
}

/// Enqueues, one by one and in batches, and notes the ids that were answered.
fn producer() {
    let store = open();
    let answered = Observer::open(&path_here("answered"));
    let queue = store.queue("default");
    let stopping = stopping();
    say("begun");
    for round in 0.. {
        if stopping.load(Ordering::SeqCst) {
            break;
        }
        if round % 50 == 0 && well("count", queue.stats()).is_some_and(|stats| stats.ready > READY_MAX) {
            thread::sleep(Duration::from_millis(5)); // waits: for those that claim, which are too slow
            continue;
        }
        let count = if round % 4 == 0 { 10 } else { 1 };
        if let Some(ids) = well("enqueue", queue.enqueue_batch((0..count).map(job))) {
            let lines = ids.iter().fold(String::new(), |mut lines, id| {
                let _ = writeln!(lines, "{id}");
                lines
            });
            answered.note(lines.trim_end());
        }
    }
    close_here(store);
}

/// Claims without a worker, and completes.
fn claimer() {
    let store = open();
    let observer = observer_here();
    let queue = store.queue("default");
    let stopping = stopping();
    let pid = std::process::id();
    say("begun");
    while !stopping.load(Ordering::SeqCst) {
        for lease in well("claim", queue.claim(5, Duration::from_millis(50))).unwrap_or_default() {
            well("start", lease.start());
            observer.note(&format!("run {} {} {pid}", lease.id(), lease.token()));
            if well("complete", lease.complete()).is_some() {
                observer.note(&format!("completed {} {} {pid}", lease.id(), lease.token()));
            }
        }
    }
    close_here(store);
}

/// Adds to one counter, and tells how often it was answered that it did.
fn adder() {
    let store = open();
    let stopping = stopping();
    let mut sum = 0;
    say("begun");
    while !stopping.load(Ordering::SeqCst) {
        sum += i64::from(well("add", store.add(SUM, 1)).is_some());
    }
    say(format!("added {sum}"));
    close_here(store);
}

/// A worker; it stands for stone.
fn worker() {
    let store = open();
    let (runs, completions) = (observer_here(), observer_here());
    let mut tasks = Registry::new();
    tasks
        .register("note", move |job, _: usize| {
            runs.note(&format!("run {} {} {}", job.id(), job.token(), std::process::id()));
            Ok(())
        })
        .unwrap();
    let listen = move |event: &Event| match event {
        Event::Completed { job, token } => completions.note(&format!("completed {job} {token} {}", std::process::id())),
        Event::LeaseLost { job, .. } => say(format!("wrong: lost job {job}")),
        Event::Failed { job, message, .. } => say(format!("wrong: job {job} failed: {message}")),
        Event::Trouble { doing, message } => say(format!("wrong: {doing}: {message}")),
        _ => {}
    };
    let worker = Worker::new(&store).tasks(tasks).concurrency(2).prefetch(number_or("prefetch", 6)).listen(listen);
    let stop = worker.stop_handle();
    thread::spawn(move || {
        await_line("stop");
        stop.stop();
    });
    say("begun");
    worker.run().unwrap();
    close_here(store);
}

fn open() -> Store {
    let options: StoreOptions = options();
    options.open(path_here("app.redb")).unwrap()
}

/// Tells all to stop, and waits until they have; gives what they said of themselves and how often was added.
pub fn stop_all(actors: Vec<Actor>) -> (Vec<String>, i64) {
    let mut actors = actors;
    actors.iter_mut().for_each(|actor| actor.tell("stop"));
    let (mut told, mut sum) = (Vec::new(), 0);
    for line in actors.into_iter().flat_map(Actor::finish) {
        match line.strip_prefix("added ") {
            Some(added) => sum += added.parse::<i64>().unwrap(),
            None if line == "begun" => {}
            None => told.push(line),
        }
    }
    (told, sum)
}

/// Claims and completes what is left, so that all jobs have ended.
pub fn drain(scene: &Scene, store: &Store) {
    let (runs, completions) = (scene.observer(), scene.observer());
    let pid = std::process::id();
    let mut tasks = Registry::new();
    tasks
        .register("note", move |job, _: usize| {
            runs.note(&format!("run {} {} {pid}", job.id(), job.token()));
            Ok(())
        })
        .unwrap();
    let listen = move |event: &Event| {
        if let Event::Completed { job, token } = event {
            completions.note(&format!("completed {job} {token} {pid}"));
        }
    };
    Worker::new(store).tasks(tasks).prefetch(100).listen(listen).drain(true).run().unwrap();
}

/// That the counter is what was answered, no more and no less.
pub fn judge_sum(store: &Store, answered: i64) {
    assert_eq!(store.get::<i64>(SUM).unwrap().unwrap_or(0), answered, "an addition is lost, or was done twice");
}

/// That no job ran twice: for tests in which nobody that runs jobs dies.
pub fn judge_single_runs(scene: &Scene) {
    let mut seen = BTreeSet::new();
    for line in scene.observer().lines() {
        let (what, rest) = line.split_once(' ').unwrap();
        if what == "run" {
            let job = rest.split(' ').next().unwrap().to_owned();
            assert!(seen.insert(job), "a job was delivered twice: {line}");
        }
    }
}

/// That of all jobs, which have ended, none that was acknowledged is missing, and none was done twice.
pub fn judge_jobs(scene: &Scene, store: &Store) {
    let jobs: HashMap<String, JobInfo> =
        store.jobs(&JobFilter::new(), usize::MAX).unwrap().into_iter().map(|job| (job.id.to_string(), job)).collect();
    for (id, job) in &jobs {
        assert_eq!(job.state, State::Completed, "job {id}: {job:?}");
    }
    let answered = Observer::open(&scene.path("answered")).lines();
    let ids: BTreeSet<&String> = answered.iter().collect();
    assert_eq!(ids.len(), answered.len(), "no id was given twice");
    for id in ids {
        assert!(jobs.contains_key(id), "acknowledged job {id} is lost");
    }

    let mut tokens: HashMap<&str, Vec<u64>> = HashMap::new();
    let mut completed: HashMap<&str, u64> = HashMap::new();
    let lines = scene.observer().lines();
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, job, token, _] = words[..] else { panic!("a line is torn: \"{line}\"") };
        let token: u64 = token.parse().unwrap();
        if what == "completed" {
            assert_eq!(completed.insert(job, token), None, "job {job} was completed twice");
        } else {
            assert_eq!(completed.get(job), None, "job {job} ran after it was completed");
            let before = tokens.entry(job).or_default();
            assert!(before.last().is_none_or(|last| *last < token), "job {job} ran under {token} after {before:?}");
            before.push(token);
        }
    }
    for (id, job) in &jobs {
        // A run that was killed before it was observed is charged too. One that was observed and is not charged, was
        // lost or undone.
        let observed = tokens.get(id.as_str()).map_or(0, Vec::len);
        assert!(
            (1..=job.attempt as usize).contains(&observed),
            "job {id} ran {observed} times, charged {}",
            job.attempt
        );
        if let Some(token) = completed.get(id.as_str()) {
            assert_eq!(tokens[id.as_str()].last(), Some(token), "job {id} was completed by its last run");
        }
    }
    let again = jobs.values().filter(|job| job.attempt > 1).count();
    println!(
        "{} jobs, {} acknowledged, {} runs, {again} jobs ran more than once, {} commits",
        jobs.len(),
        answered.len(),
        tokens.values().map(Vec::len).sum::<usize>(),
        store.version().unwrap()
    );
    assert_eq!(store.queue("default").stats().unwrap().completed, jobs.len() as u64);
    assert_sound(store);
}
