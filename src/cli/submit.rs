//! Enqueueing from the command line: jobs are checked before the store is opened or made, and committed in batches.

use std::time::Duration;

use super::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
};
use crate::{
    error::{Error, Result},
    queue::{JobRequest, enqueue::NewJob, id::JobId},
    store::{
        Store,
        change::{Intent, Outcome},
        settings::SETTINGS,
    },
};

/// How many jobs, and how many bytes of arguments, one change enqueues.
pub(super) const BATCH_JOBS: usize = 1_000;
pub(super) const BATCH_BYTES: usize = 4 << 20;

/// The job that a request asks for, checked as far as that goes without its store.
pub(super) fn checked(context: &Context, queue: &str, request: JobRequest) -> Result<NewJob> {
    let job = request.for_queue(queue)?;
    job.check()?;
    context.check_task(&job.task, &job.args)?;
    Ok(job)
}

/// Opens the store for a job, making it unless the job is too large for a new one.
pub(super) fn open_for(context: &Context, job: &NewJob) -> Result<Store, Failure> {
    if !context.path().exists() {
        check_payload(job, payload_max_of_new_stores())?;
    }
    context.create()
}

/// The limit of arguments, results and values in a store whose settings are as they come.
pub(super) fn payload_max_of_new_stores() -> u64 {
    SETTINGS.iter().find(|setting| setting.name == "payload-max").map_or(u64::MAX, |setting| setting.default)
}

/// # Errors
/// `Invalid` where a job's arguments are over the store's limit.
pub(super) fn check_payload(job: &NewJob, limit: u64) -> Result<()> {
    let bytes = job.args.as_bytes().len() as u64;
    if bytes <= limit {
        return Ok(());
    }
    let task = &job.task;
    Err(Error::invalid(format!(
        "the arguments of \"{task}\" take {bytes} bytes; at most {limit} are allowed (payload-max of the settings)"
    )))
}

/// How many jobs one change enqueues: by who waits for room, one.
pub(super) fn batch_jobs(wait: Option<Duration>) -> usize {
    if wait.is_some() { 1 } else { BATCH_JOBS }
}

/// Enqueues jobs in one change; gives their ids in order. Where there is a time to wait for room, there is one job.
pub(super) fn commit(store: &Store, jobs: Vec<NewJob>, wait: Option<Duration>) -> Result<Vec<JobId>> {
    if let (Some(wait), [job]) = (wait, jobs.as_slice()) {
        return Ok(vec![store.enqueue_within(job, wait)?]);
    }
    let intents = jobs.into_iter().map(Intent::Enqueue).collect();
    let applied = store.inner.commit(Vec::new(), intents, None)?;
    let id = |outcome: &Outcome| match outcome {
        Outcome::Enqueued { job, .. } => Ok(*job),
        _ => Err(Error::corrupt("an enqueue was answered without its outcome")),
    };
    applied.outcomes.iter().map(id).collect()
}

/// Enqueues a job so many times, and prints the ids.
pub(super) fn enqueue(
    context: &Context,
    out: &mut Output,
    job: &NewJob,
    count: u64,
    wait: Option<Duration>,
) -> Result<(), Failure> {
    let store = open_for(context, job)?;
    let mut ids = Ids::new(out);
    let batch = batch_jobs(wait).min(BATCH_BYTES / job.args.as_bytes().len().max(1)).max(1);
    let mut done = 0;
    while done < count {
        let jobs = usize::try_from(count - done).unwrap_or(usize::MAX).min(batch);
        let committed = commit(&store, vec![job.clone(); jobs], wait).map_err(|error| {
            let so_far = if done == 0 { String::new() } else { format!("; {done} of {count} are enqueued") };
            Failure::from(error).and(&so_far)
        })?;
        done += committed.len() as u64;
        ids.print(&committed)?;
    }
    Ok(())
}

/// Prints ids as they come; goes on enqueueing where nobody reads them any more.
pub(super) struct Ids<'a> {
    out: &'a mut Output,
    unread: bool,
}

impl<'a> Ids<'a> {
    pub(super) fn new(out: &'a mut Output) -> Self {
        Self { out, unread: false }
    }

    pub(super) fn print(&mut self, ids: &[JobId]) -> Result<(), Failure> {
        if self.unread {
            return Ok(());
        }
        match self.try_print(ids) {
            Err(failure) if failure.exit == Exit::Done => {
                self.unread = true;
                Ok(())
            }
            printed => printed,
        }
    }

    fn try_print(&mut self, ids: &[JobId]) -> Result<(), Failure> {
        for id in ids {
            self.out.either(&serde_json::json!({ "id": id.to_string() }), id)?;
        }
        self.out.flush()
    }
}
