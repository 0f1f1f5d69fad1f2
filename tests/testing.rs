//! The helpers for tests of programs with jobs, as such a test uses them.

use std::{panic, time::Duration};

use casque::{
    Job, JobRequest, Registry, State, Store, StoreOptions, Task, TaskError, Timestamp, Worker,
    testing::{self, Clock},
};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Add(u32, u32);

impl Task for Add {
    const ID: &'static str = "add";
    type Output = u32;

    fn run(self, job: &Job) -> Result<u32, TaskError> {
        job.progress(0.5, "half")?;
        match self.0.checked_add(self.1) {
            Some(sum) => Ok(sum),
            None if self.1 == u32::MAX => panic!("far too large"),
            None => Err(TaskError::fatal("too large")),
        }
    }
}

/// Enqueues an [`Add`] into another queue as long as it is not zero.
#[derive(Serialize, Deserialize)]
struct Chain(u32);

impl Task for Chain {
    const ID: &'static str = "chain";
    type Output = ();

    fn run(self, job: &Job) -> Result<(), TaskError> {
        if self.0 > 0 {
            job.store().queue(&format!("queue-{}", self.0)).enqueue(&Self(self.0 - 1))?;
        }
        Ok(())
    }
}

fn tasks() -> Registry {
    let mut tasks = Registry::new();
    tasks.task::<Add>().unwrap().task::<Chain>().unwrap();
    tasks
}

/// What a check that is to fail says.
fn message_of(check: impl FnOnce() + panic::UnwindSafe) -> String {
    let payload = panic::catch_unwind(check).expect_err("the check fails");
    payload.downcast_ref::<String>().cloned().expect("a message")
}

#[test]
fn handler_is_performed_in_place() {
    assert_eq!(testing::perform(&Add(20, 22)).unwrap(), 42);
    assert!(matches!(testing::perform(&Add(1 << 31, 1 << 31)), Err(TaskError::Fatal(why)) if why == "too large"));
    assert!(
        matches!(testing::perform(&Add(1, u32::MAX)), Err(TaskError::Failed(why)) if why.contains("far too large"))
    );
    testing::perform(&Chain(0)).unwrap();
}

#[test]
fn drain_runs_what_jobs_enqueue_in_queues_that_were_not_there_and_what_is_due() {
    let (store, clock) = testing::store().unwrap();
    store.queue("default").enqueue(&Chain(3)).unwrap();
    let later = store.queue("default").enqueue(Add(1, 2).delay(Duration::from_hours(1))).unwrap();
    store.queue("default").enqueue(JobRequest::new("unknown", &())).unwrap();
    assert_eq!(testing::drain(&store, &tasks()).unwrap().completed, 4);
    assert_eq!(store.job(later).unwrap().state, State::Scheduled);
    clock.advance(Duration::from_hours(1));
    assert_eq!(testing::drain(&store, &tasks()).unwrap().completed, 1);
    assert_eq!(store.wait::<u32>(later, Duration::ZERO).unwrap(), 3);
    assert_eq!(testing::drain(&store, &tasks()).unwrap().completed, 0, "unknown tasks stay");
}

#[test]
fn what_was_enqueued_is_told() {
    let (store, _) = testing::store().unwrap();
    let none = message_of(|| testing::assert_enqueued::<Add>(&Store::in_memory().unwrap(), |_| true));
    assert!(none.contains("\"add\"") && none.contains("no jobs at all"), "{none}");
    let id = store.queue("q").enqueue(&Add(1, 2)).unwrap();
    testing::assert_enqueued(&store, |task: &Add| *task == Add(1, 2));
    testing::refute_enqueued(&store, |task: &Add| *task == Add(2, 1));
    let store = panic::AssertUnwindSafe(&store);
    let other = message_of(|| testing::assert_enqueued(&store, |task: &Add| task.0 == 9));
    assert!(other.contains(&format!("{id} add in \"q\" (ready)")), "{other}");
    let found = message_of(|| testing::refute_enqueued(&store, |task: &Add| task.0 == 1));
    assert!(found.contains(&format!("job {id} ")), "{found}");
    testing::drain(&store, &tasks()).unwrap();
    testing::refute_enqueued(&store, |_: &Add| true);
}

/// Moving the clock is all that a running worker and whoever waits need, in memory and in a file.
#[test]
fn clock_that_is_moved_wakes_whoever_waits_for_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(Timestamp::from_millis(5));
    let options = StoreOptions::new().clock(clock.clone());
    for store in [options.open_in_memory().unwrap(), options.open(folder.path().join("a.redb")).unwrap()] {
        clock.set(Timestamp::from_millis(5));
        let queue = store.queue("q");
        let id = queue.enqueue(Add(1, 2).delay(Duration::from_hours(24))).unwrap();
        let info = store.job(id).unwrap();
        assert_eq!(
            (info.enqueued_at, info.run_at),
            (Timestamp::from_millis(5), Some(Timestamp::from_millis(86_400_005)))
        );
        let worker = Worker::new(&store).queue("q").tasks(tasks());
        let stop = worker.stop_handle();
        let run = std::thread::spawn(move || worker.run());
        clock.advance(Duration::from_hours(24));
        assert_eq!(store.wait::<u32>(id, Duration::from_secs(30)).unwrap(), 3);
        let ended = store.job(id).unwrap();
        assert_eq!(ended.finished_at, Some(Timestamp::from_millis(86_400_005)));
        stop.stop();
        run.join().unwrap().unwrap();
        // S27: the clock steps back, and nothing runs before its time.
        clock.set(Timestamp::from_millis(0));
        let early = queue.enqueue(JobRequest::task(&Add(1, 2)).run_at(Timestamp::from_millis(10))).unwrap();
        assert!(queue.claim(1, Duration::ZERO).unwrap().is_empty());
        clock.set(Timestamp::from_millis(10));
        assert_eq!(queue.claim(1, Duration::ZERO).unwrap().remove(0).id(), early);
        store.close().unwrap();
    }
}
