//! Jobs that have to do with each other, while the processes that run them are killed.

mod processes;

use std::time::Duration;

use casque::{JobRequest, Registry, State, Worker};
use processes::{
    Actor, Scene, assert_sound, close_here, die, number_or, observer_here, options, path_here, play, say_event, until,
};

/// How many jobs the batch has from outside; each fifth adds one more to it as it completes.
const JOBS: u32 = 150;
const WORKERS: usize = 3;
const KILLS: usize = 12;
/// How many runs end between two kills, about.
const RUNS_PER_KILL: usize = 10;

#[test]
fn actor() {
    play(&[("worker", worker)]);
}

/// Works until it is killed.
fn worker() {
    let store = options().open(path_here("app.redb")).unwrap();
    let observer = observer_here();
    let mut tasks = Registry::new();
    let runs = observer_here();
    tasks
        .register("member", move |job, (number, batch): (u32, String)| {
            runs.note_run(job);
            let batch: casque::JobId = batch.parse()?;
            if number % 5 == 0 {
                job.enqueue("default", JobRequest::new("member", &(number + 1, batch.to_string())).before(batch))?;
            }
            if number % 7 == 3 { Err(casque::TaskError::fatal("each seventh fails")) } else { Ok(()) }
        })
        .unwrap();
    tasks
        .register("completion", move |job, (): ()| {
            observer.note_run(job);
            let awaited = job.awaited();
            job.complete_in(|tx| {
                tx.add("completions", 1)?;
                Ok((awaited.completed, awaited.dead))
            })?;
            Ok(())
        })
        .unwrap();
    tasks
        .register("once", |job, (): ()| {
            observer_here().note_run(job);
            die();
            #[allow(unreachable_code, reason = "a handler has a type")]
            Ok(())
        })
        .unwrap();
    let worker =
        Worker::new(&store).tasks(tasks).concurrency(number_or("concurrency", 2)).prefetch(number_or("prefetch", 2));
    worker.listen(say_event).run().unwrap();
    close_here(store);
}

fn member(number: u32, batch: casque::JobId) -> JobRequest {
    JobRequest::new("member", &(number, batch.to_string())).max_attempts(1_000)
}

#[test]
fn completion_job_of_a_batch_runs_its_effect_once_though_workers_are_killed() {
    let scene = Scene::new();
    let store = scene.store();
    let batch = store.queue("default").open_batch(JobRequest::new("completion", &()).max_attempts(1_000)).unwrap();
    let start = || scene.actor("worker", &[]);
    let mut workers: Vec<Actor> = (0..WORKERS).map(|_| start()).collect();
    for from in (0..JOBS).step_by(50) {
        let members = (from..from + 50).map(|number| member(number, batch.id()));
        store.queue("default").enqueue_batch(members.map(|member| member.before(batch.id()))).unwrap();
    }
    batch.seal().unwrap();
    for kill in 0..KILLS {
        let runs = kill * RUNS_PER_KILL;
        until("some more runs", || (scene.observer().jobs().len() >= runs).then_some(()));
        workers[kill % WORKERS].kill();
        workers[kill % WORKERS] = start();
    }
    let (completed, dead) = store.wait::<(u32, u32)>(batch.id(), processes::DEADLINE).unwrap();
    // A run that fails adds nothing.
    let fails = |number: &u32| number % 7 == 3;
    let added = (0..JOBS).step_by(5).filter(|number| !fails(number)).map(|number| number + 1);
    let numbers = (0..JOBS).chain(added);
    let failed = numbers.clone().filter(fails).count();
    assert_eq!((completed + dead) as usize, numbers.count(), "each ends once, those that were added too");
    assert_eq!(dead as usize, failed);
    assert_eq!(store.get::<i64>("completions").unwrap(), Some(1));
    for worker in &mut workers {
        worker.kill();
    }
    let stats = store.queue("default").stats().unwrap();
    assert_eq!((stats.waiting, stats.ready, stats.running), (0, 0, 0));
    assert_eq!(stats.completed, u64::from(completed) + 1, "the completion job was completed once");
    assert_sound(&store);
}

#[test]
fn jobs_that_run_at_most_once_and_kill_their_process_are_dead_and_those_claimed_with_them_are_not() {
    let scene = Scene::new();
    let store = scene.store();
    let queue = store.queue("default");
    let jobs = [(); 3].map(|()| queue.enqueue(JobRequest::new("once", &()).at_most_once()).unwrap());
    // Each claims all that are left, runs the first, and dies of it.
    for _ in jobs {
        scene.actor("worker", &[("concurrency", "1"), ("prefetch", "2")]).wait();
    }
    let mut finder = scene.actor("worker", &[]);
    for id in jobs {
        let ended = store.wait_ended(id, processes::DEADLINE).unwrap().unwrap();
        assert_eq!((ended.state, ended.attempt), (State::Dead, 1));
        assert!(ended.errors[0].message.contains("died or was stopped"), "{:?}", ended.errors);
    }
    finder.kill();
    let mut runs = scene.observer().jobs();
    runs.sort();
    assert_eq!(runs, jobs.map(|id| id.to_string()), "each ran once");
    assert_eq!(queue.claim(1, Duration::ZERO).unwrap().len(), 0);
    assert_sound(&store);
}
