//! Enqueueing into a queue that may be full, by who can wait for room.

use std::time::Duration;

use crate::{
    clock::{deadline_after, monotonic},
    error::{Error, ErrorKind, Result},
    queue::{IntoJob, Queue, config::config, enqueue::NewJob, id::JobId, record::CountRecord},
    store::{
        Store,
        change::{Intent, Outcome},
        keys,
        view::get_record,
    },
};

impl Queue {
    /// Enqueues a job; where the queue is full, as soon as there is room.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let store = casque::Store::in_memory()?;
    /// let jobs = store.queue("uploads");
    /// jobs.configure(&casque::types::QueueConfig::new().size_max(100))?;
    /// let id = jobs.enqueue_within(casque::JobRequest::new("upload", &"cat.png"), Duration::from_secs(5))?;
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::enqueue`]; `TimedOut` where there was no room for so long: nothing was written.
    pub fn enqueue_within(&self, job: impl IntoJob, patience: Duration) -> Result<JobId> {
        self.store().enqueue_within(&job.into_job().for_queue(self.name())?, patience)?.enqueued()
    }
}

impl Store {
    pub(crate) fn enqueue_within(&self, job: &NewJob, patience: Duration) -> Result<Outcome> {
        let (since, deadline) = (monotonic(), deadline_after(patience));
        let inner = &self.inner;
        loop {
            let seen = inner.site.wakes();
            match inner.perform(Intent::Enqueue(job.clone())) {
                Err(error) if error.kind() == ErrorKind::Full => {
                    if monotonic() >= deadline {
                        let waited = format!("waited {patience:?} in vain");
                        return Err(Error::new(ErrorKind::TimedOut, error.full_message()).during(&waited));
                    }
                }
                enqueued_or_not => return enqueued_or_not,
            }
            // Trying takes the writer's lock and looking does not; a stone refuses at less cost than it shows its
            // rows.
            let mut seen = seen;
            loop {
                inner.wait_for_commit(seen, since, deadline);
                seen = inner.site.wakes();
                if monotonic() >= deadline || inner.has_stone() || self.has_room(&job.queue)? {
                    break;
                }
            }
        }
    }

    fn has_room(&self, queue: &str) -> Result<bool> {
        let rows = self.inner.rows()?;
        let Some(most) = config(rows.as_ref(), queue)?.and_then(|config| config.size_max) else { return Ok(true) };
        let count: CountRecord = get_record(rows.as_ref(), &keys::count(queue))?.unwrap_or_default();
        Ok(count.waiting + count.scheduled + count.ready < most)
    }
}
