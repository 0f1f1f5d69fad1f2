//! Isolated jobs, one by one: how their processes end, what they may do, and who waits for whom.

use std::time::Duration;

use casque::{JobId, JobInfo, JobRequest, State, Store};
use rustix::process::Signal;

use crate::{
    kin::{children_of, is_there, signal},
    processes::{Actor, Scene, assert_sound, is_stopped, until},
};

const SOON: Duration = Duration::from_mins(1);

fn request(scene: &Scene, task: &str) -> JobRequest {
    JobRequest::new(task, &()).metadata("folder", scene.path("").to_str().unwrap())
}

fn enqueue(scene: &Scene, store: &Store, task: &str) -> JobId {
    store.queue("default").enqueue(request(scene, task).max_attempts(1)).unwrap()
}

/// Waits until a job has ended, however that is.
fn ended(store: &Store, id: JobId) -> JobInfo {
    until("the job's end", || store.job(id).ok().filter(|job| job.state.is_final()))
}

fn message(job: &JobInfo) -> &str {
    &job.errors.last().expect("it failed").message
}

/// Tells a worker to stop; once it has left, none of its children is there.
fn leave(mut worker: Actor) -> String {
    let pid = worker.pid();
    worker.tell("stop");
    let report = worker.expect("report");
    assert_eq!(children_of(pid), []);
    worker.tell("leave");
    worker.finish();
    report
}

/// The pid of the process that a run was noted from.
fn pid_of_run(scene: &Scene, run: usize) -> u32 {
    let line = until("the run", || scene.observer().lines().get(run).cloned());
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn process_that_dies_fails_its_job_alone_and_says_how() {
    let scene = Scene::new();
    let store = scene.store();
    let worker = scene.actor("worker", &[("concurrency", "2")]);
    let hold = enqueue(&scene, &store, "hold");
    pid_of_run(&scene, 0);
    for (task, says) in [
        ("abort", ["ended with signal: 6 (SIGABRT)", "wrote to stderr: about to abort"]),
        ("exit", ["ended with exit status: 0", ""]),
        ("hog", ["more memory than 33554432 bytes", "memory allocation of"]),
        ("fail", ["no good; it wrote to stderr: ", "else\nthe last line"]),
    ] {
        let job = ended(&store, enqueue(&scene, &store, task));
        assert_eq!((job.state, job.attempt), (State::Dead, 1), "{task}");
        assert!(says.iter().all(|part| message(&job).contains(part)), "{task}: {}", message(&job));
        assert!(message(&job).len() <= 4 << 10);
        let log = store.log(job.id, 0).unwrap();
        let is_kept = |part: &str| log.iter().any(|line| line.attempt == 1 && part.ends_with(&line.text));
        assert!(task == "exit" || is_kept(message(&job)) || task == "hog", "{task}: {log:?}");
    }
    for task in ["hang", "ask"] {
        let request = request(&scene, task).max_attempts(1).timeout(Duration::from_millis(50));
        let job = ended(&store, store.queue("default").enqueue(request).unwrap());
        assert_eq!(message(&job), "timed out after 50 ms", "{task}");
    }
    // Its neighbour went on all the while.
    assert_eq!(store.job(hold).unwrap().state, State::Running);
    std::fs::write(scene.path("go"), "").unwrap();
    let (_, parent) = store.wait::<(u32, u32)>(hold, SOON).unwrap();
    assert_eq!(parent, worker.pid());
    assert!(children_of(worker.pid()).iter().all(|child| !child.is_zombie));
    assert_eq!(leave(worker), "1 6 0");
    assert_eq!(std::fs::read_dir(scene.path("app.redb.d/children")).unwrap().count(), 0);
    assert_sound(&store);
}

#[test]
fn what_an_isolated_handler_started_ends_with_its_time() {
    let scene = Scene::new();
    let store = scene.store();
    let worker = scene.actor("worker", &[]);
    let request = request(&scene, "leave-another").max_attempts(1).timeout(Duration::from_millis(500));
    let job = ended(&store, store.queue("default").enqueue(request).unwrap());
    assert!(message(&job).contains("timed out"), "{}", message(&job));
    let started = pid_of_run(&scene, 0);
    // Whoever adopts it reaps it.
    until("its end", || (!is_there(started) || children_of(1).iter().any(|one| one.pid == started)).then_some(()));
    leave(worker);
}

#[test]
fn warm_process_runs_a_thousand_jobs_and_ends_when_it_has_been_idle() {
    let scene = Scene::new();
    let store = scene.store();
    let worker = scene.actor("worker", &[]);
    let jobs = store.queue("default").enqueue_batch((0..1_050).map(|_| request(&scene, "whoami"))).unwrap();
    let mut pids: Vec<u32> = jobs.iter().map(|job| store.wait::<(u32, u32)>(*job, SOON).unwrap().0).collect();
    assert!(pids.iter().all(|pid| *pid != worker.pid()));
    pids.dedup();
    assert_eq!(pids.len(), 2, "{pids:?}");
    assert!(!is_there(pids[0]));
    until("the idle one to end", || children_of(worker.pid()).is_empty().then_some(()));
    // And there is a new one when there is something to do.
    let again = enqueue(&scene, &store, "whoami");
    assert!(!pids.contains(&store.wait::<(u32, u32)>(again, SOON).unwrap().0));
    assert_eq!(leave(worker), "1051 0 0");
}

#[test]
fn isolated_handler_reaches_the_store_and_its_job() {
    let scene = Scene::new();
    let store = scene.store();
    let worker = scene.actor("worker", &[]);
    let report = enqueue(&scene, &store, "report");
    assert_eq!(store.wait::<(u32, u32)>(report, SOON).unwrap().1, worker.pid());
    assert_eq!(store.get::<Option<String>>("seen").unwrap(), Some(Some("halfway".to_owned())));
    assert_eq!(store.queue("more").stats().unwrap().ready, 1);
    let complete = enqueue(&scene, &store, "complete");
    assert_eq!(store.wait::<String>(complete, SOON).unwrap(), "by itself");
    until("its last word", || store.get::<String>("refused").unwrap().filter(|kind| kind == "LeaseLost"));
    let complete_in = enqueue(&scene, &store, "complete-in");
    assert_eq!(store.wait::<String>(complete_in, SOON).unwrap(), "in a transaction");
    assert_eq!(store.get::<i64>("counter").unwrap(), Some(1));
    // Its next job ends behind it on the same thread: by then the worker has done what it does with the stderr of this.
    store.wait::<(u32, u32)>(enqueue(&scene, &store, "whoami"), SOON).unwrap();
    assert_eq!(store.log(complete_in, 0).unwrap(), [], "the log of a job that is completed is closed");
    // Its stdin is empty: the connection to the worker is not the handler's.
    store.wait::<(u32, u32)>(enqueue(&scene, &store, "read"), SOON).unwrap();
    // A transaction that completes a job is counted as one; what the handler settled by itself is not.
    assert_eq!(leave(worker), "4 0 0");
    assert_sound(&store);
}

#[test]
fn isolated_handler_learns_that_the_worker_stops() {
    let scene = Scene::new();
    let store = scene.store();
    let worker = scene.actor("worker", &[]);
    let job = enqueue(&scene, &store, "until-stopped");
    pid_of_run(&scene, 0);
    assert_eq!(leave(worker), "0 0 1");
    let job = store.job(job).unwrap();
    assert_eq!((job.state, job.attempt), (State::Ready, 0));
}

#[test]
fn worker_that_stops_at_once_ends_its_processes_and_gives_their_jobs_back() {
    let scene = Scene::new();
    let store = scene.store();
    let mut worker = scene.actor("worker", &[]);
    let job = enqueue(&scene, &store, "hold");
    let child = pid_of_run(&scene, 0);
    worker.tell("stop");
    worker.expect("stopping");
    leave(worker);
    assert!(!is_there(child));
    let job = store.job(job).unwrap();
    assert_eq!((job.state, job.attempt, job.errors.len()), (State::Ready, 0, 0));
}

#[test]
fn process_ends_at_once_when_its_worker_is_killed() {
    let scene = Scene::with_server();
    let store = scene.store();
    let mut worker = scene.actor("worker", &[]);
    let job = store.queue("default").enqueue(request(&scene, "hold")).unwrap();
    let child = pid_of_run(&scene, 0);
    worker.kill();
    until("the child's end", || (!is_there(child) || children_of(1).iter().any(|one| one.pid == child)).then_some(()));
    let next = scene.actor("worker", &[]);
    assert_ne!(pid_of_run(&scene, 1), child);
    std::fs::write(scene.path("go"), "").unwrap();
    store.wait::<(u32, u32)>(job, SOON).unwrap();
    assert_eq!(store.job(job).unwrap().attempt, 2);
    leave(next);
    assert_sound(&store);
}

/// S41.
#[test]
fn job_of_a_killed_worker_waits_for_its_process_and_its_neighbours_do_not() {
    let scene = Scene::with_server();
    let store = scene.store();
    let job = store.queue("default").enqueue(request(&scene, "hold")).unwrap();
    let neighbours = store.queue("default").enqueue_batch((0..3).map(|_| request(&scene, "note"))).unwrap();
    let mut worker = scene.actor("worker", &[("prefetch", "3")]);
    let child = pid_of_run(&scene, 0);
    until("the neighbours to be held", || (store.queue("default").stats().unwrap().running == 4).then_some(()));
    // Else it would end with its worker, at once.
    signal(child, Signal::STOP);
    until("all its threads to stop", || is_stopped(child).then_some(()));
    worker.kill();

    let next = scene.actor("worker", &[]);
    for neighbour in neighbours {
        store.wait::<(u32, u32)>(neighbour, SOON).unwrap();
    }
    let held = store.job(job).unwrap();
    assert_eq!((held.state, held.attempt), (State::Running, 0), "its process is there, and may go on");
    assert_eq!(scene.observer().lines().len(), 4);
    signal(child, Signal::CONT);
    assert_ne!(pid_of_run(&scene, 4), child);
    std::fs::write(scene.path("go"), "").unwrap();
    store.wait::<(u32, u32)>(job, SOON).unwrap();
    assert_eq!(store.job(job).unwrap().attempt, 2);
    leave(next);
    assert_sound(&store);
}

#[test]
fn worker_whose_main_does_not_take_part_says_what_is_missing() {
    let scene = Scene::new();
    let store = scene.store();
    let mut worker = scene.actor("worker", &[("takes-part", "0")]);
    let error = worker.expect("error");
    assert!(error.starts_with("Invalid "), "{error}");
    for part in ["start a process for task", "call casque::child::run_if_child with the registry first in main"] {
        assert!(error.contains(part), "{error}");
    }
    worker.finish();
    assert_eq!(store.jobs(&casque::JobFilter::new(), 10).unwrap().len(), 0);
}
