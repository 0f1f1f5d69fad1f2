//! An open batch: jobs that are enqueued over several commits, and one that runs once when all of them have ended.

use crate::{
    error::Result,
    queue::{IntoJob, OnFailure, Queue, admin::Admin, id::JobId},
    store::{Store, change::Intent},
};

/// A batch that is open: jobs are added until it is sealed, and when all have ended, however they did, the job that it
/// ends with runs, once.
///
/// Any process may add to it and seal it by the id of that job: [`Store::batch`]. One that is never sealed waits until
/// somebody seals or cancels that job.
///
/// ```
/// # use casque::{JobRequest, Registry, Store, Worker};
/// # let store = Store::in_memory()?;
/// let batch = store.queue("mail").open_batch(JobRequest::new("report", &()))?;
/// for page in 0..3u32 {
///     batch.enqueue("mail", JobRequest::new("send", &page))?;
/// }
/// batch.seal()?;
///
/// let mut tasks = Registry::new();
/// tasks.register("send", |_, _page: u32| Ok(()))?;
/// tasks.register("report", |job, ()| Ok(job.awaited().completed))?;
/// Worker::new(&store).queue("mail").tasks(tasks).drain(true).run()?;
/// assert_eq!(store.wait::<u32>(batch.id(), std::time::Duration::from_secs(5))?, 3);
/// # Ok::<(), casque::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batch {
    store: Store,
    id: JobId,
}

impl Batch {
    /// The id of the job that it ends with.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Adds a job.
    ///
    /// # Errors
    /// As [`Queue::enqueue`]; `Invalid` where the batch has ended, or was cancelled.
    pub fn enqueue(&self, queue: &str, job: impl IntoJob) -> Result<JobId> {
        self.store.queue(queue).enqueue(job.into_job().before(self.id))
    }

    /// Adds jobs in one change; gives their ids in order.
    ///
    /// # Errors
    /// As [`Queue::enqueue_batch`]; `Invalid` where the batch has ended, or was cancelled.
    pub fn enqueue_all<J: IntoJob>(&self, queue: &str, jobs: impl IntoIterator<Item = J>) -> Result<Vec<JobId>> {
        self.store.queue(queue).enqueue_batch(jobs.into_iter().map(|job| job.into_job().before(self.id)))
    }

    /// Says that nothing more is added from outside; its jobs may still add others while they run. Sealing it again
    /// changes nothing.
    ///
    /// # Errors
    /// `Invalid` where the job that it ends with was cancelled; `NotFound` where that is gone.
    pub fn seal(&self) -> Result<()> {
        self.store.inner.perform(Intent::Administer(Admin::Seal { job: self.id })).map(|_| ())
    }
}

impl Queue {
    /// Opens a batch that ends with this job.
    ///
    /// # Errors
    /// As [`Queue::enqueue`].
    pub fn open_batch(&self, completion: impl IntoJob) -> Result<Batch> {
        let mut completion = completion.into_job().on_failure(OnFailure::Run);
        completion.extra_mut().is_open = true;
        Ok(Batch { store: self.store().clone(), id: self.enqueue(completion)? })
    }
}

impl Store {
    /// The batch that ends with a job, to add to it and to seal it. Whether there is one shows when that is done.
    #[must_use]
    pub fn batch(&self, completion: JobId) -> Batch {
        Batch { store: self.clone(), id: completion }
    }
}
