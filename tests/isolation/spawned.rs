//! Jobs that are run at once by a process of their own, which outlives whoever spawned them.

use std::time::Duration;

use casque::{ErrorKind, JobFilter, JobId, JobRequest, State, Store};
use rustix::process::Signal;

use crate::{
    kin::{children_of, is_there, leads_a_session, signal},
    processes::{Actor, Scene, assert_sound, until},
};

const SOON: Duration = Duration::from_mins(1);

/// A spawner, the job that it has spawned, and the process that runs it.
fn spawn(scene: &Scene) -> (Actor, JobId, u32) {
    let mut spawner = scene.actor("spawner", &[("task", "spawned")]);
    let job = spawner.expect("spawned").parse().unwrap();
    let line = until("the run", || scene.observer().lines().first().cloned());
    (spawner, job, line.rsplit(' ').next().unwrap().parse().unwrap())
}

fn go(scene: &Scene) {
    std::fs::write(scene.path("go"), "").unwrap();
}

#[test]
fn spawned_job_runs_in_a_session_of_its_own_and_leaves_no_zombie() {
    let scene = Scene::new();
    let store = scene.store();
    let (mut spawner, job, runner) = spawn(&scene);
    assert_ne!(runner, spawner.pid());
    assert!(leads_a_session(runner));
    assert_eq!(children_of(spawner.pid()), [], "nobody has to reap it");
    let progress = until("the progress", || store.job(job).unwrap().progress);
    assert_eq!(progress, (0.25, "waits".to_owned()));
    go(&scene);
    assert_eq!(store.wait::<(u32, u32)>(job, SOON).unwrap().0, runner);
    until("the runner's end", || (!is_there(runner) || is_orphan(runner)).then_some(()));
    assert_eq!(children_of(spawner.pid()), []);
    assert_eq!((store.job(job).unwrap().attempt, scene.observer().lines().len()), (1, 1));
    spawner.tell("leave");
    spawner.finish();
    assert_sound(&store);
}

#[test]
fn spawned_job_survives_the_kill_of_who_spawned_it() {
    let scene = Scene::with_server();
    let store = scene.store();
    let (mut spawner, job, runner) = spawn(&scene);
    spawner.kill();
    assert!(is_there(runner));
    assert_eq!(store.job(job).unwrap().state, State::Running);
    go(&scene);
    assert_eq!(store.wait::<(u32, u32)>(job, SOON).unwrap().0, runner);
    assert_sound(&store);
}

#[test]
fn job_whose_own_process_is_killed_is_run_by_whatever_worker_there_is() {
    let scene = Scene::with_server();
    let store = scene.store();
    let (spawner, job, runner) = spawn(&scene);
    signal(runner, Signal::KILL);
    let mut worker = scene.actor("worker", &[]);
    go(&scene);
    assert_eq!(store.wait::<(u32, u32)>(job, SOON).unwrap().0, worker.pid());
    assert_eq!(store.job(job).unwrap().attempt, 2);
    worker.tell("stop");
    worker.tell("leave");
    worker.finish();
    drop(spawner);
    assert_sound(&store);
}

#[test]
fn job_whose_process_can_not_be_started_is_ready_for_any_worker() {
    let scene = Scene::new();
    let store = scene.store();
    let mut spawner = scene.actor("spawner", &[("task", "spawned"), ("files", "0")]);
    let job = spawner.expect("spawned").parse().unwrap();
    assert_eq!(store.job(job).unwrap().state, State::Ready);
    let mut worker = scene.actor("worker", &[]);
    go(&scene);
    assert_eq!(store.wait::<(u32, u32)>(job, SOON).unwrap().0, worker.pid());
    for mut actor in [spawner, {
        worker.tell("stop");
        worker
    }] {
        actor.tell("leave");
        actor.finish();
    }
}

#[test]
fn nothing_is_enqueued_where_the_job_can_not_run_at_once() {
    let scene = Scene::new();
    let store = scene.store();
    let mut spawner = scene.actor("spawner", &[("task", "spawned"), ("takes-part", "0")]);
    let error = spawner.expect("error");
    assert!(error.starts_with("Invalid ") && error.contains("run_if_child"), "{error}");
    assert_eq!(children_of(spawner.pid()), []);
    let refused = |store: &Store, request: JobRequest, says: &str| {
        let error = store.queue("default").spawn(request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.full_message().contains(says), "{error}");
    };
    refused(&store, JobRequest::new("spawned", &()).delay(SOON), "runs at once");
    refused(&Store::in_memory().unwrap(), JobRequest::new("spawned", &()), "in memory");
    assert_eq!(store.jobs(&JobFilter::new(), 10).unwrap(), []);
    spawner.tell("leave");
    spawner.finish();
}

/// Whether the process is left for the system to reap.
fn is_orphan(pid: u32) -> bool {
    children_of(1).iter().any(|one| one.pid == pid && one.is_zombie)
}
