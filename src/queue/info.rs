//! What can be told of a job, and of a queue.

use std::time::Duration;

use serde::Serialize;

use crate::{
    clock::Timestamp,
    codec::Payload,
    engine::Rows,
    error::Result,
    queue::{
        QueueConfig,
        config::config,
        extra::WaitsRecord,
        id::{JobId, SessionId, Token},
        moves::task_name,
        record::{CountRecord, HeadRecord, Home, JobRecord},
        state::State,
    },
    store::{
        keys,
        view::{for_each, get_record},
    },
};

/// A job as it was found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobInfo {
    /// Its id, for life.
    pub id: JobId,
    /// The task that it runs.
    pub task: String,
    /// The queue that it is in.
    pub queue: String,
    /// Where it is in its life.
    pub state: State,
    /// From -100 to 100, higher first.
    pub priority: i8,
    /// How many runs were charged.
    pub attempt: u32,
    /// How many may be.
    pub max_attempts: u32,
    /// Its arguments.
    pub args: Payload,
    /// The version of the task that they were written for.
    pub args_version: u32,
    /// Pairs that its producer added.
    pub metadata: Vec<(String, String)>,
    /// Its unique key.
    pub unique: Option<String>,
    /// Its concurrency key.
    pub concurrency_key: Option<String>,
    /// How long an attempt may take, where not as long as its task says.
    pub timeout: Option<Duration>,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// When it may run, where it was delayed.
    pub run_at: Option<Timestamp>,
    /// When its last charged run began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How what it waits for, or waited for, has ended.
    pub awaited: Option<Awaited>,
    /// Once a run of it has begun no other ever does.
    pub at_most_once: bool,
    /// Who holds it: the session, its label, and the token of the lease.
    pub held_by: Option<(SessionId, String, Token)>,
    /// A run of it may have taken its process down, so that it is claimed alone.
    pub suspect: bool,
    /// It is to be cancelled by whoever holds it.
    pub cancelling: bool,
    /// From 0 to 1, and a message.
    pub progress: Option<(f32, String)>,
    /// What its handler returned.
    pub result: Option<Payload>,
    /// The latest failures, oldest first.
    pub errors: Vec<JobError>,
}

/// One failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobError {
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// When it failed.
    pub at: Timestamp,
    /// The label of the session that ran it.
    pub session: String,
    /// What it said.
    pub message: String,
}

impl JobInfo {
    /// A job as it was found, with the numbers of what it waits for.
    pub(crate) fn of(rows: &dyn Rows, home: Home, job: JobRecord) -> Result<Self> {
        let extra = job.extra.as_ref();
        let timeout = extra.and_then(|extra| extra.timeout);
        let (unique, concurrency_key) = (job.unique().map(|unique| unique.key.clone()), job.key().map(str::to_owned));
        Ok(Self {
            awaited: extra.and_then(|extra| extra.waits.as_ref()).map(Awaited::of),
            at_most_once: job.is_at_most_once(),
            id: job.id,
            task: task_name(rows, job.task)?,
            state: job.state_in(home),
            queue: job.queue,
            priority: job.priority,
            attempt: job.attempt,
            max_attempts: job.attempts_max,
            args: job.args,
            args_version: job.args_version,
            metadata: job.metadata,
            unique,
            concurrency_key,
            timeout,
            enqueued_at: job.enqueued_at,
            run_at: job.run_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
            held_by: job.lease.map(|lease| (lease.session, lease.label, lease.token)),
            suspect: job.suspect,
            cancelling: job.cancelling,
            progress: job.progress.map(|progress| (progress.fraction, progress.message)),
            result: job.result,
            errors: job
                .errors
                .into_iter()
                .map(|error| JobError {
                    attempt: error.attempt,
                    at: error.at,
                    session: error.session,
                    message: error.message,
                })
                .collect(),
        })
    }
}

impl JobInfo {
    /// How a job ended that did not complete.
    pub(crate) fn fate(&self) -> String {
        let id = self.id;
        let last = self.errors.last();
        let (fate, why) = match (self.state, self.finished_at) {
            // What failed before is not why; the end of a job that it waited for is noted as it happens.
            (State::Cancelled, Some(at)) => {
                (format!("was cancelled at {at}"), last.filter(|error| self.attempt == 0 && error.at == at))
            }
            (state, _) => (format!("is {state}"), last),
        };
        let why = why.map_or(String::new(), |error| format!(": {}", error.message));
        format!("job {id} {fate}{why}")
    }
}

/// How the jobs ended that another waits for, or waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Awaited {
    /// Those that have not ended.
    pub pending: u32,
    /// Those that have completed, or were gone already.
    pub completed: u32,
    /// Those that are dead.
    pub dead: u32,
    /// Those that were cancelled.
    pub cancelled: u32,
    /// More may be added.
    pub is_open: bool,
}

impl Awaited {
    pub(crate) fn of(waits: &WaitsRecord) -> Self {
        Self {
            pending: waits.pending,
            completed: waits.completed,
            dead: waits.dead,
            cancelled: waits.cancelled,
            is_open: waits.is_open,
        }
    }
}

/// A queue in numbers. Nobody counts rows for it: the numbers are kept with the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// The queue's name.
    pub queue: String,
    /// Whether its jobs are not claimed for now.
    pub paused: bool,
    /// Jobs that wait for other jobs.
    pub waiting: u64,
    /// Jobs whose time has not come.
    pub scheduled: u64,
    /// Jobs that can be claimed.
    pub ready: u64,
    /// Jobs that are claimed.
    pub running: u64,
    /// Jobs that are out of attempts.
    pub dead: u64,
    /// Cancelled jobs that are kept.
    pub cancelled: u64,
    /// Completed jobs that are kept.
    pub kept: u64,
    /// All jobs ever completed.
    pub completed: u64,
    /// Strict conflicts, and candidates that another took.
    pub hijacks: u64,
    /// What is configured for it.
    pub config: QueueConfig,
}

/// Whether the jobs of a queue, or of a task in it, are not claimed for now.
pub(crate) fn is_paused(rows: &dyn Rows, queue: &str, task: u32) -> Result<bool> {
    let head: HeadRecord = get_record(rows, &keys::head(queue))?.unwrap_or_default();
    Ok(head.paused || crate::queue::moves::task(rows, task)?.paused)
}

/// The numbers of all queues, in order of their names.
pub(crate) fn all_stats(rows: &dyn Rows) -> Result<Vec<QueueStats>> {
    let mut queues = Vec::new();
    for_each(rows, &keys::counts(), |key, _| {
        queues.push(keys::counted_queue(key));
        Ok(())
    })?;
    queues.iter().map(|queue| stats(rows, queue)).collect()
}

/// The numbers of one queue; all zero for one that there is not.
pub(crate) fn stats(rows: &dyn Rows, queue: &str) -> Result<QueueStats> {
    let head: HeadRecord = get_record(rows, &keys::head(queue))?.unwrap_or_default();
    let count: CountRecord = get_record(rows, &keys::count(queue))?.unwrap_or_default();
    Ok(QueueStats {
        queue: queue.to_owned(),
        paused: head.paused,
        waiting: count.waiting,
        scheduled: count.scheduled,
        ready: count.ready,
        running: count.running,
        dead: count.dead,
        cancelled: count.cancelled,
        kept: count.kept,
        completed: count.completed,
        hijacks: count.hijacks,
        config: QueueConfig::of(&config(rows, queue)?.unwrap_or_default()),
    })
}
