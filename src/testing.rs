//! What tests of a program with jobs need: a store in memory, a clock that stands still, handlers run in place, and
//! what was enqueued.
//!
//! ```
//! use casque::{Job, Task, TaskError, testing};
//! use serde::{Deserialize, Serialize};
//! use std::time::Duration;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Welcome { user: u32 }
//!
//! impl Task for Welcome {
//!     const ID: &'static str = "welcome";
//!     type Output = String;
//!     fn run(self, _job: &Job) -> Result<String, TaskError> { Ok(format!("hello {}", self.user)) }
//! }
//!
//! // A handler by itself:
//! assert_eq!(testing::perform(&Welcome { user: 7 }).unwrap(), "hello 7");
//!
//! // What a function enqueues:
//! fn sign_up(store: &casque::Store) -> casque::Result<()> {
//!     store.queue("mail").enqueue(Welcome { user: 7 }.delay(Duration::from_hours(1))).map(|_| ())
//! }
//! let (store, clock) = testing::store()?;
//! sign_up(&store)?;
//! testing::assert_enqueued::<Welcome>(&store, |task| task.user == 7);
//!
//! // And that it works, at its time:
//! let mut tasks = casque::Registry::new();
//! tasks.task::<Welcome>()?;
//! assert_eq!(testing::drain(&store, &tasks)?.completed, 0);
//! clock.advance(Duration::from_hours(1));
//! assert_eq!(testing::drain(&store, &tasks)?.completed, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;

pub use crate::clock::Clock;
use crate::{
    clock::Timestamp,
    error::{Error, Result},
    queue::{JobFilter, JobInfo, claim::CLAIM_JOBS_MAX, state::State},
    store::{
        Store,
        change::{Intent, Outcome},
        open::StoreOptions,
    },
    task::{Job, Registry, StopFlag, Task, TaskError},
    worker::{Report, Worker, enqueue_due_slots},
};

/// The queue in which handlers are performed.
const QUEUE: &str = "testing";
/// What the clock of a store for tests shows at first: 2030-01-01T00:00:00Z.
const BEGINNING: Timestamp = Timestamp::from_millis(1_893_456_000_000);

/// A store in memory, and the clock that it goes by, which shows 2030-01-01T00:00:00Z until it is moved.
///
/// # Errors
/// `Unavailable` when a thread can't be started.
pub fn store() -> Result<(Store, Clock)> {
    let clock = Clock::manual(BEGINNING);
    Ok((StoreOptions::new().clock(clock.clone()).open_in_memory()?, clock))
}

/// Runs a task's handler in place, on this thread, with a job of a store in memory; arguments and result go through
/// their encoding as they would. A panic is a failed attempt.
///
/// # Errors
/// What the handler says.
pub fn perform<T: Task>(task: &T) -> Result<T::Output, TaskError> {
    let (store, _) = store()?;
    let mut tasks = Registry::new();
    tasks.task::<T>()?;
    let queue = store.queue(QUEUE);
    queue.enqueue(task)?;
    let claimed = queue.claim(1, Duration::ZERO)?;
    let lease =
        claimed.into_iter().next().ok_or_else(|| Error::corrupt("the job was enqueued, and can't be claimed"))?;
    lease.start()?;
    let output = tasks.run(&Job::new(lease.clone(), StopFlag::default()))?;
    Ok(match output.result {
        Some(result) => result.decode()?,
        None => crate::codec::Payload::json(&())?.decode()?,
    })
}

/// Runs the jobs of all queues that are ready, one after the other, and those that they make ready, until there are
/// none; says what became of them. Slots of schedules that have come are enqueued first. Jobs of tasks that are not
/// given stay. It waits for what runs elsewhere, since that may enqueue more: settle, or drop, the leases that the test
/// itself has claimed before.
///
/// # Errors
/// As [`Worker::run`].
pub fn drain(store: &Store, tasks: &Registry) -> Result<Report> {
    let mut all = Report::default();
    loop {
        // What is due by the store's clock is not left to when maintenance looks at it.
        enqueue_due_slots(store)?;
        let promote = Intent::Promote { limit: CLAIM_JOBS_MAX };
        while !matches!(store.inner.perform(promote.clone())?, Outcome::Promoted { jobs: 0 }) {}
        let queues = store.queues()?;
        let mut worker = Worker::new(store).tasks(tasks.clone()).concurrency(1).drain(true);
        for queue in &queues {
            worker = worker.queue(&queue.queue);
        }
        let report = worker.run()?;
        let has_run = report.completed + report.failed > 0;
        all.add(report);
        // A handler may have enqueued into a queue that was not there yet, or been given a time that has come.
        if !has_run {
            return Ok(all);
        }
    }
}

/// The jobs of a task that wait, are scheduled or are ready, in the order they were enqueued, with their arguments.
///
/// # Errors
/// `Invalid` for arguments that are no `T`.
pub fn enqueued<T: Task>(store: &Store) -> Result<Vec<(JobInfo, T)>> {
    let of_task = |job: JobInfo| {
        let args =
            if job.args_version == T::VERSION { job.args.decode() } else { T::upgrade(job.args_version, &job.args) };
        args.map(|args| (job, args))
    };
    let jobs = store.jobs(&JobFilter::new().task(T::ID), usize::MAX)?;
    let waits = |job: &JobInfo| matches!(job.state, State::Waiting | State::Scheduled | State::Ready);
    jobs.into_iter().filter(waits).map(of_task).collect()
}

/// Checks that a job of a task is enqueued whose arguments are such.
///
/// # Panics
/// If there is none; says which jobs there are.
#[track_caller]
pub fn assert_enqueued<T: Task>(store: &Store, is_such: impl Fn(&T) -> bool) {
    let jobs = of_store::<T>(store);
    assert!(
        jobs.iter().any(|(_, task)| is_such(task)),
        "no such job of task \"{}\" is enqueued; {}",
        T::ID,
        tell(store)
    );
}

/// Checks that no job of a task is enqueued whose arguments are such.
///
/// # Panics
/// If there is one; says which.
#[track_caller]
pub fn refute_enqueued<T: Task>(store: &Store, is_such: impl Fn(&T) -> bool) {
    if let Some((job, _)) = of_store::<T>(store).iter().find(|(_, task)| is_such(task)) {
        panic!("job {} of task \"{}\" is enqueued, and should not be", job.id, T::ID);
    }
}

#[track_caller]
fn of_store<T: Task>(store: &Store) -> Vec<(JobInfo, T)> {
    match enqueued(store) {
        Ok(jobs) => jobs,
        Err(error) => panic!("the jobs of task \"{}\" can't be read: {}", T::ID, error.full_message()),
    }
}

/// The jobs of a store, for the message of a check that failed.
fn tell(store: &Store) -> String {
    let jobs = store.jobs(&JobFilter::new(), 20).unwrap_or_default();
    if jobs.is_empty() {
        return "there are no jobs at all".to_owned();
    }
    let of_job = |job: &JobInfo| format!("{} {} in \"{}\" ({})", job.id, job.task, job.queue, job.state);
    format!("there are {}", jobs.iter().map(of_job).collect::<Vec<_>>().join(", "))
}
