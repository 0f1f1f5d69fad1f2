//! The queue as a user holds it: a store and a name.

use std::time::Duration;

use crate::{
    clock::{Timestamp, deadline_after, monotonic},
    engine::Rows,
    error::{Error, Result},
    queue::{
        IntoJob, JobInfo, Lease,
        admin::Admin,
        claim::{CLAIM_JOBS_MAX, Claim},
        enqueue::check_name,
        id::{JobId, SessionId, Token},
        info::{QueueStats, all_stats, stats},
        lease::{ClaimAnswer, leases_of},
        list::{JobFilter, list},
        promote::next_due,
        record::{HeadRecord, Home, JobRecord},
        select::{Selection, Tasks, Wanted, select},
        settle::Settled,
        state::State,
    },
    store::{
        Store,
        change::{BATCH_JOBS_MAX, Candidate, Intent, Outcome},
        keys,
        view::{for_each, get_record},
    },
};

/// A queue of a store.
#[derive(Clone, Debug)]
pub struct Queue {
    store: Store,
    name: String,
}

impl Queue {
    pub(crate) fn new(store: Store, name: &str) -> Self {
        Self { store, name: name.to_owned() }
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Enqueues a job. When this returns, it is on the disk.
    ///
    /// # Errors
    /// `Invalid` for a bad name, priority, or payload; `Unavailable` when nothing was written; `Unknown` when it may
    /// have been.
    pub fn enqueue(&self, job: impl IntoJob) -> Result<JobId> {
        let outcome = self.store.inner.perform(Intent::Enqueue(job.into_job().for_queue(&self.name)?))?;
        enqueued(&outcome)
    }

    /// Enqueues jobs in one change: all, or none, with nobody's in between. Gives their ids in order.
    ///
    /// # Errors
    /// As [`Queue::enqueue`]; `Invalid` for more than 10,000 jobs, or 8 MiB.
    pub fn enqueue_batch<J: IntoJob>(&self, jobs: impl IntoIterator<Item = J>) -> Result<Vec<JobId>> {
        let intents = jobs
            .into_iter()
            .map(|job| Ok(Intent::Enqueue(job.into_job().for_queue(&self.name)?)))
            .collect::<Result<Vec<_>>>()?;
        if intents.len() > BATCH_JOBS_MAX {
            return Err(Error::invalid(format!(
                "the batch has {} jobs; at most {BATCH_JOBS_MAX} are allowed in one change",
                intents.len()
            )));
        }
        if intents.is_empty() {
            return Ok(Vec::new());
        }
        let applied = self.store.inner.commit(Vec::new(), intents, None)?;
        applied.outcomes.iter().map(enqueued).collect()
    }

    /// Claims up to `jobs` jobs, whatever their tasks; waits up to `wait` for the first. The leases beat by themselves.
    ///
    /// Scheduled jobs that are due are made ready on the way; jobs of processes that died are taken back by any
    /// [`Worker`](crate::Worker) on the store, in whatever process.
    ///
    /// # Errors
    /// `Invalid` for 0 jobs or more than 1,000.
    pub fn claim(&self, jobs: usize, wait: Duration) -> Result<Vec<Lease>> {
        check_name("queue", &self.name)?;
        if jobs == 0 || jobs > CLAIM_JOBS_MAX {
            return Err(Error::invalid(format!("a claim takes from 1 to {CLAIM_JOBS_MAX} jobs, not {jobs}")));
        }
        let (since, deadline) = (monotonic(), deadline_after(wait));
        let inner = &self.store.inner;
        loop {
            let seen = inner.site.wakes();
            if next_due(inner.rows()?.as_ref())?.is_some_and(|at| at <= Timestamp::now()) {
                inner.perform(Intent::Promote { limit: CLAIM_JOBS_MAX })?;
            }
            let wanted = Wanted { tasks: Tasks::Any, jobs_max: jobs, idle: inner.is_idle() };
            let leases = self.store.claim_by_rebase(std::slice::from_ref(&self.name), &wanted, || ())?;
            if !leases.leases.is_empty() || monotonic() >= deadline {
                return Ok(leases.leases);
            }
            inner.wait_for_commit(seen, since, deadline);
        }
    }

    /// Claims that very job.
    ///
    /// # Errors
    /// `NotFound` for a job that is nowhere; `Invalid` for one that is not ready, or that another was quicker to take.
    pub fn claim_job(&self, job: JobId) -> Result<Lease> {
        let inner = &self.store.inner;
        let rows = inner.rows()?;
        let Some((home, record)) = crate::queue::moves::find(rows.as_ref(), job)? else {
            return Err(crate::queue::moves::not_found(rows.as_ref(), job)?);
        };
        if home != Home::Ready {
            return Err(Error::invalid(format!("job {job} is {}, not ready", record.state_in(home))));
        }
        drop(rows);
        let session = inner.session()?;
        let claim = Claim {
            session: session.id,
            queues: vec![record.queue.clone()],
            wanted: Wanted { tasks: Tasks::Any, jobs_max: 1, idle: inner.is_idle() },
            candidates: vec![Candidate { job, key: record.key_in(home) }],
            fill: false,
            conflicts: 0,
        };
        let applied = inner.commit(Vec::new(), vec![Intent::Claim(claim)], None)?;
        let lease = leases_of(inner, &session, applied)?.leases.pop();
        lease.ok_or_else(|| Error::invalid(format!("job {job} was taken by another, or its queue is paused")))
    }

    /// The queue in numbers.
    ///
    /// # Errors
    /// What reading the store says.
    pub fn stats(&self) -> Result<QueueStats> {
        stats(self.store.inner.rows()?.as_ref(), &self.name)
    }

    /// Keeps the queue's jobs from being claimed, also over restarts, until it is resumed.
    ///
    /// # Errors
    /// `Invalid` for a bad name.
    pub fn pause(&self) -> Result<()> {
        let admin = Admin::Pause { queue: self.name.clone() };
        self.store.inner.perform(Intent::Administer(admin)).map(|_| ())
    }

    /// Lets the queue's jobs be claimed again.
    ///
    /// # Errors
    /// `Invalid` for a bad name.
    pub fn resume(&self) -> Result<()> {
        let admin = Admin::Resume { queue: self.name.clone() };
        self.store.inner.perform(Intent::Administer(admin)).map(|_| ())
    }
}

fn enqueued(outcome: &Outcome) -> Result<JobId> {
    match outcome {
        Outcome::Enqueued { job, .. } => Ok(*job),
        _ => Err(Error::corrupt("an enqueue was answered without its outcome")),
    }
}

/// Jobs by their ids, whatever their queues.
impl Store {
    /// A job as it is now.
    ///
    /// # Errors
    /// `NotFound` for a job that is gone, or never was.
    pub fn job(&self, id: JobId) -> Result<JobInfo> {
        crate::store::snapshot::Snapshot::take(&self.inner)?.job(id)
    }

    /// The first `limit` jobs, in order of their ids, that a filter admits.
    ///
    /// # Errors
    /// What reading the store says.
    pub fn jobs(&self, filter: &JobFilter, limit: usize) -> Result<Vec<JobInfo>> {
        list(self.inner.rows()?.as_ref(), filter, limit)
    }

    /// All queues in numbers.
    ///
    /// # Errors
    /// What reading the store says.
    pub fn queues(&self) -> Result<Vec<QueueStats>> {
        all_stats(self.inner.rows()?.as_ref())
    }

    /// Waits until a job has ended; gives how, or nothing for a job that was completed and not kept.
    ///
    /// # Errors
    /// `NotFound` for a job that never was; `TimedOut`.
    pub fn wait_ended(&self, id: JobId, timeout: Duration) -> Result<Option<JobInfo>> {
        let (since, deadline) = (monotonic(), deadline_after(timeout));
        loop {
            let seen = self.inner.site.wakes();
            let snapshot = crate::store::snapshot::Snapshot::take(&self.inner)?;
            match snapshot.job(id) {
                Ok(job) if job.state.is_final() => return Ok(Some(job)),
                Ok(_) => {}
                // No row at or below the store's version: gone, so it had ended.
                Err(error) if error.kind() == crate::ErrorKind::NotFound && id.version <= snapshot.version().0 => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
            drop(snapshot);
            if monotonic() >= deadline {
                let message = format!("job {id} has not ended after {timeout:?}");
                return Err(Error::new(crate::ErrorKind::TimedOut, message));
            }
            self.inner.wait_for_commit(seen, since, deadline);
        }
    }

    /// Waits until a job has completed, and gives its result. A job without one gives `()`.
    ///
    /// # Errors
    /// `NotFound` for a job that never was, or a result that is gone; `TimedOut`; `Aborted` for a job that is dead or
    /// cancelled, with its last error; `Invalid` for a result that is no `T`.
    pub fn wait<T: serde::de::DeserializeOwned>(&self, id: JobId, timeout: Duration) -> Result<T> {
        let nothing = || crate::codec::Payload::json(&()).and_then(|unit| unit.decode());
        let Some(job) = self.wait_ended(id, timeout)? else {
            return nothing().map_err(|_| Error::not_found(format!("job {id} has ended, and its result is gone")));
        };
        if job.state == State::Completed {
            return match &job.result {
                Some(result) => result.decode(),
                None => nothing(),
            };
        }
        let why = job.errors.last().map(|error| format!(": {}", error.message)).unwrap_or_default();
        Err(Error::abort(format!("job {id} is {}{why}", job.state)))
    }

    /// Cancels a job: at once where it is not held, else by its holder. Gives the state that it is in.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a job that has ended otherwise.
    pub fn cancel(&self, id: JobId) -> Result<State> {
        self.administer(Admin::Cancel { job: id }).map(|settled| settled.state)
    }

    /// Puts a dead or cancelled job back with all its attempts, or lets a scheduled one run now.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a job that runs, has succeeded, or whose unique key another holds.
    pub fn retry(&self, id: JobId) -> Result<()> {
        self.administer(Admin::Retry { job: id }).map(|_| ())
    }

    /// Takes a job from its holder and puts it back to the front of its queue, uncharged. The holder's results are
    /// refused from then on, though its handler may still run. While a child process works for the job, only with
    /// `force`.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a job that is not held, or on which a child process works.
    pub fn release(&self, id: JobId, force: bool) -> Result<()> {
        let job = self.job(id)?;
        let Some((_, _, token)) = job.held_by else {
            return Err(Error::invalid(format!("job {id} is {}, and nobody holds it", job.state)));
        };
        if let Some(files) = self.inner.site.files()
            && !force
            && crate::local::children::is_busy(&files.folder, id, token)
        {
            return Err(Error::invalid(format!(
                "a child process still works on job {id}; end it, or release with --force and accept that it runs twice"
            )));
        }
        self.administer(Admin::Release { job: id, token }).map(|_| ())
    }

    /// Puts a ready or scheduled job to the back of its queue.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a job that runs or has ended.
    pub fn requeue(&self, id: JobId) -> Result<()> {
        self.administer(Admin::Requeue { job: id }).map(|_| ())
    }

    fn administer(&self, admin: Admin) -> Result<Settled> {
        match self.inner.perform(Intent::Administer(admin))? {
            Outcome::Settled(settled) => Ok(settled),
            _ => Err(Error::corrupt("an administration was answered without its outcome")),
        }
    }

    /// C1: peeks at what there is, calls `pause`, and claims it: candidates that others took meanwhile are replaced in
    /// the same commit. Where there is nothing, nothing is written and no lock is taken.
    pub(crate) fn claim_by_rebase(
        &self,
        queues: &[String],
        wanted: &Wanted,
        pause: impl FnOnce(),
    ) -> Result<ClaimAnswer> {
        let mut seen = Selection::default();
        {
            let rows = self.inner.rows()?;
            for queue in queues {
                let head: HeadRecord = get_record(rows.as_ref(), &keys::head(queue))?.unwrap_or_default();
                if !head.paused {
                    select(rows.as_ref(), queue, wanted, &mut seen)?;
                }
            }
        }
        if seen.jobs.is_empty() {
            return Ok(ClaimAnswer {
                leases: Vec::new(),
                hijacks: Vec::new(),
                alone: false,
                suspects_wait: seen.suspects_wait,
            });
        }
        pause();
        let session = self.inner.session()?;
        let candidates = seen.jobs.iter().map(|job| Candidate { job: job.id, key: job.key_in(Home::Ready) }).collect();
        let claim = Claim {
            session: session.id,
            queues: queues.to_vec(),
            wanted: wanted.clone(),
            candidates,
            fill: true,
            conflicts: 0,
        };
        let applied = self.inner.commit(Vec::new(), vec![Intent::Claim(claim)], None)?;
        let answer = leases_of(&self.inner, &session, applied)?;
        // A claim whose candidates are all still there looks no further, and so at no suspect job.
        Ok(ClaimAnswer { suspects_wait: answer.suspects_wait || (seen.suspects_wait && !answer.alone), ..answer })
    }
}

/// What a held job's row says of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeldJob {
    pub(crate) job: JobId,
    pub(crate) session: SessionId,
    pub(crate) token: Token,
}

/// All held jobs: as many as run now. A row that this build can't read is somebody else's.
pub(crate) fn held(rows: &dyn Rows) -> Result<Vec<HeldJob>> {
    let mut jobs = Vec::new();
    for_each(rows, &keys::ById::Held.all(), |_, bytes| {
        if let Ok(JobRecord { id, lease: Some(lease), .. }) = crate::codec::decode(bytes) {
            jobs.push(HeldJob { job: id, session: lease.session, token: lease.token });
        }
        Ok(())
    })?;
    Ok(jobs)
}
