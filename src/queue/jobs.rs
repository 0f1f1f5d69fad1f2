//! Jobs by their ids, whatever their queues: looking, waiting, tending.

use std::time::Duration;

#[cfg(feature = "cli")]
use crate::queue::{admin::Tend, settle::Each};
use crate::{
    clock::{deadline_after, monotonic},
    error::{Error, Result},
    queue::{
        JobInfo,
        admin::Admin,
        id::JobId,
        info::{QueueStats, all_stats},
        list::{JobFilter, list},
        settle::Settled,
        state::State,
    },
    store::{Store, change::Intent},
};

/// How many jobs are tended in one change.
#[cfg(feature = "cli")]
pub(crate) const TEND_JOBS_MAX: usize = 1_000;

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
        list(self.inner.look()?.as_ref(), filter, limit)
    }

    /// All queues in numbers.
    ///
    /// # Errors
    /// What reading the store says.
    pub fn queues(&self) -> Result<Vec<QueueStats>> {
        all_stats(self.inner.look()?.as_ref())
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
                return Err(not_ended(id, timeout));
            }
            self.inner.wait_for_commit(seen, since, deadline);
        }
    }

    /// Waits until a job has completed, and gives its result. A job without one gives `()`.
    ///
    /// # Errors
    /// `NotFound` for a job that never was, or a result that is gone; `TimedOut`; `Aborted` for a job that is dead,
    /// with its last error, or was cancelled; `Invalid` for a result that is no `T`.
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
        Err(Error::abort(job.fate()))
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
    /// `NotFound`; `Invalid` for a job that waits for others, runs, has succeeded, whose unique key another holds, or
    /// that runs at most once and may have begun; `Unavailable` while others that waited for it are told of its end.
    pub fn retry(&self, id: JobId) -> Result<()> {
        self.administer(Admin::Retry { job: id }).map(|_| ())
    }

    /// Takes a job from its holder and puts it back to the front of its queue, uncharged. The holder's results are
    /// refused from then on, though its handler may still run. One that runs at most once is dead then. While a child
    /// process works for the job, only with
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

    /// Tends jobs in one change, at most [`TEND_JOBS_MAX`] of them: for each the state that it is in then, or why its
    /// own verb refused it.
    ///
    /// # Errors
    /// What keeps the change from being made at all; then nothing is known to be done to any of them.
    #[cfg(feature = "cli")]
    pub(crate) fn tend_each(&self, verb: Tend, jobs: &[JobId]) -> Result<Vec<Result<State>>> {
        let admin = Admin::Each { verb, jobs: jobs.to_vec() };
        let crate::store::change::Outcome::SettledEach(each) = self.inner.perform(Intent::Administer(admin))? else {
            return Err(Error::unanswered("an administration"));
        };
        let outcome = |each| match each {
            Each::Settled(settled) => Ok(settled.state),
            Each::NotFound(message) => Err(Error::not_found(message)),
            Each::Damaged(message) => Err(Error::corrupt(message)),
            Each::Refused(message) | Each::Lost(message) => Err(Error::invalid(message)),
        };
        Ok(each.into_iter().map(outcome).collect())
    }

    fn administer(&self, admin: Admin) -> Result<Settled> {
        self.inner.perform(Intent::Administer(admin))?.settled()
    }
}

/// What waiting says that was in vain.
pub(crate) fn not_ended(id: JobId, timeout: Duration) -> Error {
    Error::new(crate::ErrorKind::TimedOut, format!("job {id} has not ended after {timeout:?}"))
}
