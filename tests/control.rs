//! What an operator does to jobs that other processes hold: they learn of a cancelling within a moment, and give back
//! what waits for a handler when its queue or task is paused. Nobody is told to look but by the store.

mod processes;

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use casque::{JobId, JobRequest, Registry, State, Store, TaskError, Worker};
use processes::{
    Actor, Scene, assert_sound, await_line, close_here, number_or, observer_here, play, say, say_event, store_here,
    until,
};

/// How soon a handler is to see that its job was cancelled, for the quickest of some: a busy machine delays any.
const SEEN_WITHIN: Duration = Duration::from_millis(100);
const CANCELS: usize = 7;

#[test]
fn actor() {
    play(&[("worker", worker)]);
}

fn worker() {
    let store = store_here();
    let mut tasks = Registry::new();
    tasks
        .register("obey", |job, (): ()| {
            say(format!("begun {}", job.id()));
            while !job.is_cancelled() {
                thread::sleep(Duration::from_millis(1)); // waits: as handlers do that look now and then
            }
            say(format!("seen {}", job.id()));
            Err::<(), _>(TaskError::Cancel)
        })
        .unwrap();
    tasks
        .register("hold", |job, (): ()| {
            say(format!("begun {}", job.id()));
            await_line("end");
            Ok(())
        })
        .unwrap();
    let observer = observer_here();
    tasks
        .register("note", move |job, (): ()| {
            observer.note_run(job);
            Ok(())
        })
        .unwrap();
    let worker = Worker::new(&store)
        .tasks(tasks)
        .concurrency(number_or("concurrency", 1))
        .prefetch(number_or("prefetch", 0))
        .listen(say_event);
    let stop = worker.stop_handle();
    thread::spawn(move || {
        await_line("stop");
        stop.stop();
    });
    worker.run().unwrap();
    close_here(store);
}

/// So many workers; the first of them is the stone, or soon will be.
fn workers(scene: &Scene, arguments: &[(&str, &str)], count: usize) -> Vec<Actor> {
    (0..count).map(|_| scene.actor("worker", arguments)).collect()
}

fn leave(workers: Vec<Actor>) {
    for mut worker in workers {
        worker.tell("stop");
        worker.finish();
    }
}

fn enqueue(store: &Store, task: &str, count: usize) -> Vec<JobId> {
    store.queue("default").enqueue_batch((0..count).map(|_| JobRequest::new(task, &()))).unwrap()
}

fn ready(store: &Store) -> u64 {
    store.queue("default").stats().unwrap().ready
}

#[test]
fn handlers_see_in_time_that_their_jobs_were_cancelled_by_another_process() {
    let scene = Scene::new();
    let store = scene.store();
    // Of two workers one is the stone, where there is one; each runs a job.
    let mut workers = workers(&scene, &[], 2);
    let mut times = vec![Vec::new(); workers.len()];
    for _ in 0..CANCELS {
        let jobs = enqueue(&store, "obey", workers.len());
        for (worker, times) in workers.iter_mut().zip(&mut times) {
            let job: JobId = worker.expect("begun").parse().unwrap();
            assert!(jobs.contains(&job));
            let begun = Instant::now();
            assert_eq!(store.cancel(job).unwrap(), State::Running);
            worker.expect(&format!("seen {job}"));
            times.push(begun.elapsed());
            until("it to end", || (store.job(job).unwrap().state == State::Cancelled).then_some(()));
        }
    }
    for times in &mut times {
        times.sort_unstable();
        println!("seen after {times:?}");
        assert!(times[0] < SEEN_WITHIN, "not even the quickest was in time: {times:?}");
    }
    leave(workers);
    assert_sound(&store);
    store.close().unwrap();
}

#[test]
fn cancelled_job_that_waits_for_a_handler_is_cancelled_at_once_and_its_neighbours_run() {
    let scene = Scene::new();
    let store = scene.store();
    let hold = enqueue(&store, "hold", 1)[0];
    let jobs = enqueue(&store, "note", 10);
    let mut workers = workers(&scene, &[("prefetch", "20")], 1);
    workers[0].expect(&format!("begun {hold}"));
    until("them to be claimed", || (ready(&store) == 0).then_some(()));
    store.cancel(jobs[3]).unwrap();
    until("it to be cancelled", || (store.job(jobs[3]).unwrap().state == State::Cancelled).then_some(()));
    assert_eq!(store.job(hold).unwrap().state, State::Running, "the handler was busy all the time");
    workers[0].tell("end");
    until("the others to run", || (scene.observer().lines().len() == 9).then_some(()));
    leave(workers);
    assert!(!scene.observer().jobs().contains(&jobs[3].to_string()));
    store.close().unwrap();
}

/// S19, S20, S22: what was claimed and not begun goes back when it is paused, uncharged, while a handler goes on.
#[test]
fn what_waits_for_a_handler_goes_back_when_its_queue_or_task_is_paused() {
    for by_task in [false, true] {
        let scene = Scene::new();
        let store = scene.store();
        let pause = |paused: bool| match (by_task, paused) {
            (false, true) => store.queue("default").pause(),
            (false, false) => store.queue("default").resume(),
            (true, true) => store.pause_task("note"),
            (true, false) => store.resume_task("note"),
        };
        let hold = enqueue(&store, "hold", 1)[0];
        let jobs = enqueue(&store, "note", 50);
        let mut workers = workers(&scene, &[("prefetch", "100")], 1);
        workers[0].expect(&format!("begun {hold}"));
        until("them to be claimed", || (ready(&store) == 0).then_some(()));
        let begun = Instant::now();
        pause(true).unwrap();
        until("them to go back", || (ready(&store) == 50).then_some(()));
        println!("by task: {by_task}; back after {:?}", begun.elapsed());
        assert_eq!(store.job(hold).unwrap().state, State::Running);

        // S22: everything is restarted, and they are paused still.
        workers[0].tell("end");
        until("it to end", || (store.queue("default").stats().unwrap().completed == 1).then_some(()));
        leave(workers);
        let workers = self::workers(&scene, &[("prefetch", "100")], 2);
        // A task that is not paused runs past them; a paused queue holds everything back.
        let passing = enqueue(&store, "obey", 1)[0];
        if by_task {
            until("it to begin", || (store.job(passing).unwrap().state == State::Running).then_some(()));
            store.cancel(passing).unwrap();
            until("it to end", || (store.job(passing).unwrap().state == State::Cancelled).then_some(()));
        } else {
            thread::sleep(SEEN_WITHIN); // waits: for what must not happen, and would within milliseconds
            assert_eq!(store.job(passing).unwrap().state, State::Ready);
            store.cancel(passing).unwrap();
        }
        assert_eq!((ready(&store), scene.observer().lines().len()), (50, 0));
        assert!(jobs.iter().all(|job| store.job(*job).unwrap().attempt == 0));

        pause(false).unwrap();
        until("them to run", || (scene.observer().lines().len() == 50).then_some(()));
        leave(workers);
        assert_eq!(scene.observer().jobs(), jobs.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_sound(&store);
        store.close().unwrap();
    }
}

#[test]
fn job_that_is_cancelled_while_its_claim_is_answered_is_seen_to_be_all_the_same() {
    let scene = Scene::new();
    let store = scene.store();
    let workers = workers(&scene, &[], 2);
    let mut began = 0;
    for _ in 0..60 {
        // It runs until it sees that it was cancelled: one that does not would run for good.
        let job = enqueue(&store, "obey", 1)[0];
        began += u64::from(store.cancel(job).unwrap() == State::Running);
        until("it to end", || (store.job(job).unwrap().state == State::Cancelled).then_some(()));
    }
    println!("{began} were claimed before they were cancelled");
    leave(workers);
    store.close().unwrap();
}

/// S22.
#[test]
fn job_that_is_cancelled_beside_claims_of_processes_runs_or_is_cancelled_and_never_both() {
    let scene = Scene::new();
    let store = scene.store();
    let workers = workers(&scene, &[("concurrency", "2"), ("prefetch", "4")], 3);
    let mut cancelled = BTreeSet::new();
    let jobs: Vec<JobId> = (0..40)
        .flat_map(|_| {
            let jobs = enqueue(&store, "note", 10);
            for job in &jobs {
                // One that has ended is refused.
                let _ = store.cancel(*job);
            }
            jobs
        })
        .collect();
    until("them to end", || {
        let stats = store.queue("default").stats().unwrap();
        (stats.completed + stats.cancelled == jobs.len() as u64).then_some(())
    });
    leave(workers);
    let runs = scene.observer().jobs();
    let ran: BTreeSet<String> = runs.iter().cloned().collect();
    assert_eq!(ran.len(), runs.len(), "a job ran twice");
    for job in &jobs {
        if store.job(*job).is_ok_and(|job| job.state == State::Cancelled) {
            cancelled.insert(job.to_string());
        }
    }
    println!("{} ran, {} were cancelled", ran.len(), cancelled.len());
    assert!(ran.is_disjoint(&cancelled), "{:?}", ran.intersection(&cancelled).collect::<Vec<_>>());
    assert_eq!(ran.len() + cancelled.len(), jobs.len());
    assert_sound(&store);
    store.close().unwrap();
}
