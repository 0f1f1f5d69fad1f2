//! What a worker does with the jobs that it claims: stop, unknown tasks, arguments that can't be read, schedules.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use casque::{
    ErrorKind, Event, Job, JobFilter, JobRequest, Registry, State, StopHandle, Store, Task, TaskError, Worker,
};
use serde::{Deserialize, Serialize};

use crate::{SOON, claim_one, job, kind, on_each_engine};

/// A worker on the queue `q` with one task `task` that does this.
fn worker(store: &Store, run: impl Fn(&Job, ()) -> casque::Result<(), TaskError> + Send + Sync + 'static) -> Worker {
    let mut tasks = Registry::new();
    tasks.register("task", run).unwrap();
    Worker::new(store).tasks(tasks).queue("q")
}

/// S20, S39.
#[test]
fn job_given_up_by_a_hard_stop_belongs_to_the_next_claimer_though_its_handler_still_runs() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job().max_attempts(1)).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (told, outcome) = mpsc::channel();
        let may_go_on = Mutex::new(may_go_on);
        let first = worker(store, move |job, ()| {
            begun.send(job.token()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
            let refused = [job.progress(0.9, "late"), job.complete(), job.fail("late", None), job.check()];
            told.send(refused.map(kind)).unwrap();
            Ok(())
        });
        let stop = first.stop_handle();
        let run = thread::spawn(move || first.run());
        let old = has_begun.recv_timeout(SOON).unwrap();
        stop.stop_now();
        run.join().unwrap().unwrap();

        let given_up = store.job(id).unwrap();
        assert_eq!((given_up.state, given_up.attempt, given_up.errors.len()), (State::Ready, 0, 0), "no charge");
        let second = claim_one(&queue);
        assert!(second.token() > old);
        go_on.send(()).unwrap();
        assert_eq!(outcome.recv_timeout(SOON).unwrap(), [ErrorKind::LeaseLost; 4]);
        assert_eq!(store.job(id).unwrap().held_by.unwrap().2, second.token());
        second.complete().unwrap();
        assert_eq!(queue.stats().unwrap().completed, 1);
    });
}

/// S19.
#[test]
fn gentle_stop_gives_back_what_has_not_begun_uncharged_and_finishes_what_has() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let jobs = queue.enqueue_batch((0..100).map(|_| job())).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let worker = worker(store, move |job, ()| {
            begun.send(job.id()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
            Ok(())
        })
        .prefetch(99);
        let stop = worker.stop_handle();
        let run = thread::spawn(move || worker.run().unwrap());
        assert_eq!(has_begun.recv_timeout(SOON).unwrap(), jobs[0]);
        stop.stop();
        go_on.send(()).unwrap();
        let report = run.join().unwrap();
        assert_eq!((report.completed, report.given_back), (1, 99));
        let ready = store.jobs(&JobFilter::new().state(State::Ready), 200).unwrap();
        assert_eq!(ready.iter().map(|job| job.id).collect::<Vec<_>>(), jobs[1..]);
        assert!(ready.iter().all(|job| job.attempt == 0 && job.errors.is_empty()));
    });
}

/// S21.
#[test]
fn stop_before_the_start_twice_and_hard_during_a_gentle_one_end_the_worker() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue(job()).unwrap();
        let stop = StopHandle::default();
        stop.stop();
        let stopped = worker(store, |_, ()| Ok(())).stopped_by(&stop);
        assert_eq!(stopped.run().unwrap().completed, 0);
        stop.stop();
        stop.stop_now();
        stop.stop();
        assert_eq!(worker(store, |_, ()| Ok(())).stopped_by(&stop).run().unwrap().completed, 0);

        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let busy = worker(store, move |_, ()| {
            begun.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
            Ok(())
        });
        let stop = busy.stop_handle();
        let run = thread::spawn(move || busy.run());
        has_begun.recv_timeout(SOON).unwrap();
        stop.stop();
        stop.stop();
        run.join().unwrap().unwrap();
        go_on.send(()).unwrap();
        claim_one(&queue).complete().unwrap();
    });
}

/// S28.
#[test]
fn arguments_that_can_not_be_read_fail_that_job_alone_and_are_kept() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let strange = || JobRequest::new("task", &"text where a pair of numbers should be");
        let retried = queue.enqueue(strange()).unwrap();
        let dead = queue.enqueue(strange().max_attempts(1)).unwrap();
        let sound = queue.enqueue(JobRequest::new("task", &(1u32, 2u32))).unwrap();
        let args = store.job(dead).unwrap().args;
        let mut tasks = Registry::new();
        tasks.register("task", |_, (a, b): (u32, u32)| Ok(a + b)).unwrap();
        let report = Worker::new(store).tasks(tasks).queue("q").drain(true).run().unwrap();
        assert_eq!((report.completed, report.failed), (1, 2));
        assert_eq!(store.wait::<u32>(sound, SOON).unwrap(), 3);
        let (retried, dead) = (store.job(retried).unwrap(), store.job(dead).unwrap());
        assert_eq!((retried.state, retried.attempt), (State::Scheduled, 1));
        assert_eq!((dead.state, &dead.args), (State::Dead, &args), "its raw bytes are kept");
        assert!(dead.errors[0].message.contains("arguments can't be read"), "{}", dead.errors[0].message);
        assert_eq!(store.jobs(&JobFilter::new(), 10).unwrap().len(), 3);
    });
}

/// S29.
#[test]
fn unknown_task_holds_up_nobody_and_runs_when_a_worker_that_knows_it_joins() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let unknown = queue.enqueue(JobRequest::new("unknown", &()).priority(100)).unwrap();
        queue.enqueue_batch([job(), job()]).unwrap();
        let report = worker(store, |_, ()| Ok(())).drain(true).run().unwrap();
        assert_eq!((report.completed, report.left[0].ready), (2, 1));
        let waits = store.job(unknown).unwrap();
        assert_eq!((waits.state, waits.attempt, waits.errors.len()), (State::Ready, 0, 0));
        let mut tasks = Registry::new();
        tasks.register("unknown", |_, ()| Ok("now")).unwrap();
        Worker::new(store).tasks(tasks).queue("q").drain(true).run().unwrap();
        assert_eq!(store.wait::<String>(unknown, SOON).unwrap(), "now");
    });
}

/// S8.
#[test]
fn one_long_job_of_a_worker_with_many_threads_runs_once() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job().keep()).unwrap();
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let report = worker(store, move |job, ()| {
            counted.fetch_add(1, Ordering::SeqCst);
            // Long enough for the other seven to look for work many times.
            job.store().watch_key::<()>("never", None, Duration::from_millis(100)).unwrap_err();
            Ok(())
        })
        .concurrency(8)
        .drain(true)
        .run()
        .unwrap();
        assert_eq!((report.completed, runs.load(Ordering::SeqCst), store.job(id).unwrap().attempt), (1, 1, 1));
    });
}

#[test]
fn handlers_end_as_they_say() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let ends: [(&str, State, u32); 5] = [
            ("failed", State::Scheduled, 1),
            ("fatal", State::Dead, 1),
            ("snooze", State::Scheduled, 0),
            ("cancel", State::Cancelled, 0),
            ("panic", State::Scheduled, 1),
        ];
        let mut tasks = Registry::new();
        tasks
            .register("end", |_, how: String| -> casque::Result<(), TaskError> {
                match how.as_str() {
                    "failed" => Err(TaskError::failed("no")),
                    "fatal" => Err(TaskError::fatal("never")),
                    "snooze" => Err(TaskError::Snooze(Duration::from_mins(10))),
                    "cancel" => Err(TaskError::Cancel),
                    _ => panic!("{how}"),
                }
            })
            .unwrap();
        let ids = ends.map(|(how, ..)| queue.enqueue(JobRequest::new("end", &how)).unwrap());
        Worker::new(store).tasks(tasks).queue("q").drain(true).run().unwrap();
        for (id, (how, state, attempt)) in ids.into_iter().zip(ends) {
            let job = store.job(id).unwrap();
            assert_eq!((job.state, job.attempt), (state, attempt), "{how}");
        }
    });
}

/// S25.
#[test]
fn delayed_jobs_run_when_their_time_has_come_and_not_before() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let later = queue.enqueue(job().keep().delay(Duration::from_millis(60))).unwrap();
        let sooner = queue.enqueue(job().keep().delay(Duration::from_millis(30))).unwrap();
        let past = queue.enqueue(job().keep().run_at(casque::Timestamp::from_millis(1))).unwrap();
        assert_eq!(store.job(past).unwrap().state, State::Ready, "a time that has passed is now");
        let order = Arc::new(Mutex::new(Vec::new()));
        let heard = order.clone();
        worker(store, |_, ()| Ok(()))
            .drain_with_scheduled()
            .listen(move |event| {
                if let Event::Started { job, .. } = event {
                    heard.lock().unwrap().push(*job);
                }
            })
            .run()
            .unwrap();
        let order = order.lock().unwrap();
        assert_eq!((order.len(), order[0]), (3, past));
        for id in [later, sooner] {
            let job = store.job(id).unwrap();
            assert_eq!((job.state, job.attempt), (State::Completed, 1));
            assert!(job.started_at >= job.run_at, "{job:?}");
        }
    });
}

#[derive(Serialize, Deserialize)]
struct Plain;

impl Task for Plain {
    const ID: &'static str = "plain";
    type Output = ();

    fn run(self, _: &Job) -> casque::Result<(), TaskError> {
        Ok(())
    }
}

/// S27.
#[test]
fn backoff_of_the_thousandth_attempt_is_a_day_at_most() {
    for attempt in [1, 10, 1_000, u32::MAX] {
        let backoff = Plain::backoff(attempt);
        assert!((Duration::from_secs(16)..=Duration::from_hours(24)).contains(&backoff), "{attempt}: {backoff:?}");
    }
    assert_eq!(Plain::backoff(1_000), Duration::from_hours(24));
}
