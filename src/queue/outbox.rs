//! The outbox of a run: jobs that its handler enqueues in the same commit as its completion. A run that fails, or whose
//! lease is lost, enqueues none of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    error::{Error, Result},
    queue::{Flow, IntoJob, Lease, enqueue::NewJob},
    store::change::{BATCH_JOBS_MAX, CHANGE_BYTES_MAX},
};

#[derive(Default)]
pub(crate) struct Outbox(Mutex<Vec<NewJob>>);

impl Outbox {
    /// Adds jobs, which are told how many come before them.
    fn add(&self, make: impl FnOnce(usize) -> Result<Vec<NewJob>>) -> Result<()> {
        let mut jobs = self.jobs();
        let more = make(jobs.len())?;
        let bytes: usize = jobs.iter().chain(&more).map(NewJob::payload_bytes).sum();
        if jobs.len() + more.len() > BATCH_JOBS_MAX || bytes > CHANGE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "one run can enqueue at most {BATCH_JOBS_MAX} jobs and {CHANGE_BYTES_MAX} bytes with its completion; \
                 enqueue more in changes of their own, as with an open batch"
            )));
        }
        jobs.extend(more);
        Ok(())
    }

    pub(crate) fn to_vec(&self) -> Vec<NewJob> {
        self.jobs().clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs().is_empty()
    }

    fn jobs(&self) -> MutexGuard<'_, Vec<NewJob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Enqueues a job in the same commit as the completion of this one: if this run fails, or its lease is lost, the
    /// job is not enqueued. What is wrong with it, beyond what can be told at once, fails the run.
    ///
    /// ```
    /// # use casque::{JobRequest, Registry, Store, Worker};
    /// # let store = Store::in_memory()?;
    /// # store.queue("default").enqueue(JobRequest::new("fetch", &()))?;
    /// let mut tasks = Registry::new();
    /// tasks.register("fetch", |job, ()| Ok(job.enqueue("default", JobRequest::new("parse", &"the page"))?))?;
    /// tasks.register("parse", |_, _page: String| Ok(()))?;
    /// assert_eq!(Worker::new(&store).tasks(tasks).drain(true).run()?.completed, 2);
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a bad name, priority or payload, for more than 10,000 jobs or 8 MiB, or after the job was settled.
    pub fn enqueue(&self, queue: &str, job: impl IntoJob) -> Result<()> {
        let job = job.into_job().for_queue(queue)?;
        job.check()?;
        self.add_to_outbox(|_| Ok(vec![job]))
    }

    /// Enqueues jobs that have to do with each other in the same commit as the completion of this one, as
    /// [`Lease::enqueue`].
    ///
    /// # Errors
    /// As [`Lease::enqueue`].
    pub fn enqueue_flow(&self, flow: Flow) -> Result<()> {
        self.add_to_outbox(|offset| {
            let jobs = flow.into_jobs(offset)?;
            jobs.iter().try_for_each(|job| job.check().map(|_| ()))?;
            Ok(jobs)
        })
    }

    /// What a child process has enqueued for its run, which the parent settles.
    #[cfg(all(unix, feature = "isolation"))]
    pub(crate) fn enqueue_for_child(&self, jobs: Vec<NewJob>) -> Result<()> {
        self.outbox().add(|_| Ok(jobs))
    }

    fn add_to_outbox(&self, make: impl FnOnce(usize) -> Result<Vec<NewJob>>) -> Result<()> {
        if self.is_settled() {
            return Err(Error::invalid(format!(
                "job {} is settled, and enqueues nothing any more; enqueue before, or by its store",
                self.id()
            )));
        }
        self.outbox().add(make)
    }
}
