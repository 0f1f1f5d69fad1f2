//! Enqueueing from the command line: jobs are checked before the store is opened or made, and committed in batches.
//! What is refused after that for another job's sake, as one that is to wait and can't any more, is a conflict.

use std::time::Duration;

use super::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
};
use crate::{
    error::{Error, ErrorKind, Result},
    queue::{JobRequest, enqueue::NewJob, id::JobId},
    store::{
        Store,
        change::{Intent, Outcome},
        settings::SETTINGS,
    },
};

/// How many jobs, and how many bytes of them, one change enqueues.
pub(super) const BATCH_JOBS: usize = 1_000;
pub(super) const BATCH_BYTES: usize = 4 << 20;

/// What enqueueing gave: a new job, or the one that has its unique key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enqueued {
    id: JobId,
    is_new: bool,
}

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

/// Enqueues jobs in one change; gives what came of them in order. Where there is a time to wait for room, there is one
/// job.
pub(super) fn commit(store: &Store, jobs: Vec<NewJob>, wait: Option<Duration>) -> Result<Vec<Enqueued>, Failure> {
    let names_others = jobs.iter().any(|job| job.extra.as_ref().is_some_and(|extra| !extra.before.is_empty()));
    let outcomes = if let (Some(wait), [job]) = (wait, jobs.as_slice()) {
        store.enqueue_within(job, wait).map(|outcome| vec![outcome])
    } else {
        let intents = jobs.into_iter().map(Intent::Enqueue).collect();
        store.inner.commit(Vec::new(), intents, None).map(|applied| applied.outcomes)
    };
    let outcomes = outcomes.map_err(|error| match error.kind() {
        ErrorKind::Invalid if names_others => Failure::of_job(&error),
        _ => Failure::from(error),
    })?;
    let enqueued = |outcome: Outcome| match outcome {
        Outcome::Enqueued { job, existing } => Ok(Enqueued { id: job, is_new: !existing }),
        _ => Err(Error::unanswered("an enqueue").into()),
    };
    outcomes.into_iter().map(enqueued).collect()
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
    check_payload(job, store.setting("payload-max")?)?;
    let mut ids = Ids::new(out);
    let batch = batch_jobs(wait).min(BATCH_BYTES / job.payload_bytes().max(1)).max(1);
    let mut done = 0;
    while done < count {
        let jobs = usize::try_from(count - done).unwrap_or(usize::MAX).min(batch);
        let committed = commit(&store, vec![job.clone(); jobs], wait).map_err(|failure| {
            let so_far = if done == 0 { String::new() } else { format!("; {done} of {count} are enqueued") };
            failure.and(&so_far)
        })?;
        done += committed.len() as u64;
        ids.print(&committed)?;
    }
    ids.say_of_old_ones(context);
    Ok(())
}

/// Prints ids as they come; goes on enqueueing where nobody reads them any more.
pub(super) struct Ids<'a> {
    out: &'a mut Output,
    unread: bool,
    /// How many there were before, and the first of them.
    old: u64,
    first_old: Option<JobId>,
}

impl<'a> Ids<'a> {
    pub(super) fn new(out: &'a mut Output) -> Self {
        Self { out, unread: false, old: 0, first_old: None }
    }

    pub(super) fn print(&mut self, jobs: &[Enqueued]) -> Result<(), Failure> {
        for old in jobs.iter().filter(|job| !job.is_new) {
            self.old += 1;
            self.first_old.get_or_insert(old.id);
        }
        if self.unread {
            return Ok(());
        }
        match self.try_print(jobs) {
            Err(failure) if failure.exit == Exit::Done => {
                self.unread = true;
                Ok(())
            }
            printed => printed,
        }
    }

    fn try_print(&mut self, jobs: &[Enqueued]) -> Result<(), Failure> {
        for Enqueued { id, is_new } in jobs {
            self.out.either(&serde_json::json!({ "id": id.to_string(), "new": is_new }), id)?;
        }
        self.out.flush()
    }

    /// Says whose ids are not those of new jobs; each line of JSON says so by itself.
    pub(super) fn say_of_old_ones(&self, context: &Context) {
        match (self.old, self.first_old) {
            _ if self.out.json => {}
            (1, Some(id)) => context.say(format!("job {id} is not new: it has the unique key")),
            (old @ 2.., _) => context.say(format!("{old} of them are not new: they have the unique keys")),
            _ => {}
        }
    }
}
