//! Attempts that may take only so long: what becomes of them, of what their handlers bring late, and of their threads.

use std::{
    sync::{Mutex, mpsc},
    thread,
    time::Duration,
};

use casque::{
    ErrorKind, Job, JobRequest, Registry, Schedule, State, Store, Task, TaskError, Worker, types::StopReason,
};
use serde::{Deserialize, Serialize};

use crate::{SOON, job, kind, on_each_engine, refused};

const SHORT: Duration = Duration::from_millis(50);
const HOUR: Duration = Duration::from_hours(1);

/// A worker on the queue `q` with one task `task` that does this, and is tried again at once.
fn worker(store: &Store, run: impl Fn(&Job) -> Result<u32, TaskError> + Send + Sync + 'static) -> Worker {
    let mut tasks = Registry::new();
    tasks.register("task", move |job, ()| run(job)).unwrap().backoff(|_| Duration::ZERO);
    Worker::new(store).tasks(tasks).queue("q")
}

/// Waits as a handler that looks whether it should go on.
fn until_cancelled(job: &Job) {
    while !job.is_cancelled() {
        thread::sleep(Duration::from_millis(1)); // waits: for the worker, which has no other way to tell a handler
    }
}

#[test]
fn attempt_that_takes_too_long_has_failed_and_what_comes_late_is_refused() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job().timeout(SHORT).max_attempts(1)).unwrap();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (told, outcome) = mpsc::channel();
        let may_go_on = Mutex::new(may_go_on);
        let worker = worker(store, move |job| {
            until_cancelled(job);
            assert_eq!((job.stop_reason(), job.is_stopping()), (Some(StopReason::TimedOut), false));
            may_go_on.lock().unwrap().recv().unwrap();
            let late = [job.progress(0.9, "late"), job.complete(), job.fail("late", None), job.check()];
            let in_transaction = job.complete_in(|tx| tx.put("late", &1));
            told.send((late.map(kind), kind(in_transaction))).unwrap();
            Ok(7)
        })
        .drain(true);
        let run = thread::spawn(move || worker.run().unwrap());
        let failed = store.wait::<u32>(id, SOON).unwrap_err();
        assert!(failed.full_message().contains("timed out after 50 ms"), "{failed:?}");
        let job = store.job(id).unwrap();
        assert_eq!((job.state, job.attempt, job.errors.len(), job.result), (State::Dead, 1, 1, None));
        assert!(!run.is_finished(), "its thread is the handler's until that returns");
        go_on.send(()).unwrap();
        assert_eq!(outcome.recv_timeout(SOON).unwrap(), ([ErrorKind::LeaseLost; 4], ErrorKind::LeaseLost));
        let report = run.join().unwrap();
        assert_eq!((report.completed, report.failed, report.leases_lost), (0, 1, 0));
        assert_eq!(store.get::<u32>("late").unwrap(), None);
        assert_eq!(store.job(id).unwrap().state, State::Dead);
    });
}

#[test]
fn thread_of_a_handler_whose_time_is_over_takes_no_other_job_before_it_returns() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let first = queue.enqueue(job().timeout(SHORT).max_attempts(1)).unwrap();
        let second = queue.enqueue(job()).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let worker = worker(store, move |job| {
            begun.send(job.id()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
            Ok(7)
        })
        .drain(true);
        let run = thread::spawn(move || worker.run().unwrap());
        assert_eq!(has_begun.recv_timeout(SOON).unwrap(), first);
        assert!(store.wait::<u32>(first, SOON).is_err());
        assert_eq!(has_begun.try_recv(), Err(mpsc::TryRecvError::Empty));
        go_on.send(()).unwrap();
        assert_eq!(has_begun.recv_timeout(SOON).unwrap(), second);
        go_on.send(()).unwrap();
        assert_eq!(store.wait::<u32>(second, SOON).unwrap(), 7);
        assert_eq!(run.join().unwrap().completed, 1);
    });
}

/// S6: each attempt has the whole time, whenever the one before began.
#[test]
fn attempt_after_one_that_timed_out_has_its_own_time() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job().timeout(Duration::from_millis(500))).unwrap();
        let worker = worker(store, |job| {
            if job.attempt() == 1 {
                until_cancelled(job);
            } else {
                thread::sleep(SHORT); // waits: past the end of the first attempt's time, by some of its own
                assert_eq!(job.stop_reason(), None);
            }
            Ok(job.attempt())
        })
        .drain(true);
        let report = worker.run().unwrap();
        // What the first handler brought just after its time was nobody's, and not even tried to be settled.
        assert_eq!((report.completed, report.failed, report.leases_lost), (1, 1, 0));
        assert_eq!(store.wait::<u32>(id, SOON).unwrap(), 2);
        let job = store.job(id).unwrap();
        assert_eq!((job.attempt, job.errors.len()), (2, 1));
    });
}

#[derive(Serialize, Deserialize)]
struct Brief;

impl Task for Brief {
    const ID: &'static str = "brief";
    const TIMEOUT: Option<Duration> = Some(SHORT);
    const MAX_ATTEMPTS: u32 = 1;
    type Output = ();

    fn run(self, job: &Job) -> Result<(), TaskError> {
        if job.timeout() == Some(HOUR) {
            thread::sleep(3 * SHORT); // waits: for longer than the task may take by itself
            return Ok(());
        }
        until_cancelled(job);
        Ok(())
    }
}

#[test]
fn job_may_take_as_long_as_it_says_and_else_as_its_task_does() {
    let store = Store::in_memory().unwrap();
    let queue = store.queue("q");
    let by_task = queue.enqueue(&Brief).unwrap();
    let by_job = queue.enqueue(JobRequest::task(&Brief).timeout(HOUR).keep()).unwrap();
    Worker::new(&store).task::<Brief>().queue("q").drain(true).run().unwrap();
    let states = [by_task, by_job].map(|id| store.job(id).unwrap().state);
    assert_eq!(states, [State::Dead, State::Completed]);
    assert_eq!(store.job(by_job).unwrap().timeout, Some(HOUR));
}

#[test]
fn attempt_times_out_though_its_worker_waits_for_it_to_leave() {
    on_each_engine(|store| {
        let id = store.queue("q").enqueue(job().timeout(2 * SHORT).max_attempts(1)).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let worker = worker(store, move |job| {
            begun.send(()).unwrap();
            until_cancelled(job);
            Ok(7)
        });
        let stop = worker.stop_handle();
        let run = thread::spawn(move || worker.run().unwrap());
        has_begun.recv_timeout(SOON).unwrap();
        stop.stop();
        assert_eq!(run.join().unwrap().failed, 1);
        assert_eq!(store.job(id).unwrap().state, State::Dead);
    });
}

#[test]
fn timeout_of_nothing_is_refused() {
    let store = Store::in_memory().unwrap();
    let enqueue = || store.queue("q").enqueue(job().timeout(Duration::ZERO));
    refused(&store, enqueue, ErrorKind::Invalid, &["timeout of 0"]);
    let mut tasks = Registry::new();
    tasks.register("hasty", |_, ()| Ok(())).unwrap().timeout(Duration::ZERO);
    let sweep = || Schedule::every("sweep", HOUR, JobRequest::new("hasty", &()));
    let run = || Worker::new(&store).tasks(tasks.clone()).schedule(sweep()).drain(true).run();
    refused(&store, run, ErrorKind::Invalid, &["task \"hasty\" has a timeout of 0"]);
    assert_eq!(store.schedules().unwrap().len(), 0, "a worker that is set up wrongly defines nothing");
}
