//! What async code asks of a store: the blocking calls, on the threads that its tokio runtime keeps for such.
//!
//! Who drops a future of these does not call off what it has begun: a change may be committed all the same. What waits
//! does so in slices, so that a future that was dropped leaves its thread within a moment, and a runtime that shuts
//! down is not held up.

use std::{future::Future, panic::resume_unwind, time::Duration};

use serde::de::DeserializeOwned;
use tokio::runtime::Handle;

use crate::{
    clock::{deadline_after, monotonic},
    error::{Error, ErrorKind, Result},
    queue::{IntoJob, JobStatus, Lease, Queue, Watch, id::JobId, jobs::not_ended},
    store::{Store, transaction::Transaction},
    worker::{Report, StopHandle, Worker},
};

/// How long a thread waits at a time.
const SLICE: Duration = Duration::from_millis(500);

impl Queue {
    /// As [`Queue::enqueue`], from async code.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> casque::Result<()> {
    /// # let store = casque::Store::in_memory()?;
    /// let id = store.queue("mail").enqueue_async(casque::JobRequest::new("send", &"ada")).await?;
    /// # assert_eq!(store.queue("mail").stats()?.ready, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Queue::enqueue`].
    pub fn enqueue_async(&self, job: impl IntoJob) -> impl Future<Output = Result<JobId>> + Send {
        let (queue, job) = (self.clone(), job.into_job());
        blocking(move || queue.enqueue(job))
    }
}

impl Store {
    /// As [`Store::wait`], from async code. While it waits it takes one of the runtime's threads for blocking calls, of
    /// which there are 512 where nothing else is said.
    ///
    /// # Errors
    /// As [`Store::wait`].
    pub async fn wait_async<T: DeserializeOwned + Send + 'static>(&self, id: JobId, timeout: Duration) -> Result<T> {
        let deadline = deadline_after(timeout);
        loop {
            let (store, left) = (self.clone(), deadline.saturating_duration_since(monotonic()));
            match blocking(move || store.wait(id, left.min(SLICE))).await {
                Err(error) if error.kind() == ErrorKind::TimedOut && left > SLICE => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => return Err(not_ended(id, timeout)),
                result => return result,
            }
        }
    }

    /// As [`Store::transaction`], from async code. The closure itself is no async one: it runs, as often as it takes,
    /// on a thread for blocking calls.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> casque::Result<()> {
    /// # let store = casque::Store::in_memory()?;
    /// let visits = store
    ///     .transaction_async(|tx| {
    ///         let visits = tx.get::<u64>("visits")?.unwrap_or(0) + 1;
    ///         tx.put("visits", &visits)?;
    ///         Ok(visits)
    ///     })
    ///     .await?;
    /// assert_eq!(visits, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Store::transaction`].
    pub async fn transaction_async<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let store = self.clone();
        blocking(move || store.transaction(body)).await
    }
}

impl Watch {
    /// The next change of the job, from async code, as the iterator gives it. A future that is dropped before it is
    /// done loses no change: the next one gives it. It takes a thread for blocking calls, as [`Store::wait_async`]
    /// does.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> casque::Result<()> {
    /// # let store = casque::Store::in_memory()?;
    /// # let id = store.queue("media").enqueue(casque::JobRequest::new("encode", &"cat.mp4"))?;
    /// # store.cancel(id)?;
    /// let mut changes = store.watch(id);
    /// while let Some(status) = changes.next_async().await {
    ///     println!("{:?}", status?.state);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next_async(&mut self) -> Option<Result<JobStatus>> {
        loop {
            let mut watch = self.clone();
            let asked = blocking(move || {
                let next = watch.next_within(SLICE);
                Ok((watch, next))
            });
            let (mut watch, next) = match asked.await {
                Ok(answer) => answer,
                Err(error) => return Some(Err(error)),
            };
            let is_early = next.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut);
            if next.is_err() && !is_early {
                watch.end();
            }
            *self = watch;
            if !is_early {
                return next.transpose();
            }
        }
    }
}

impl Lease {
    /// As [`Lease::progress`], from async code.
    ///
    /// # Errors
    /// As [`Lease::progress`].
    pub async fn progress_async(&self, fraction: f32, message: impl Into<String>) -> Result<()> {
        let (lease, message) = (self.clone(), message.into());
        blocking(move || lease.progress(fraction, &message)).await
    }

    /// As [`Lease::log`], from async code.
    ///
    /// # Errors
    /// As [`Lease::log`].
    pub async fn log_async(&self, text: impl Into<String>) -> Result<()> {
        let (lease, text) = (self.clone(), text.into());
        blocking(move || lease.log(text)).await
    }
}

impl Worker {
    /// As [`Worker::run`], from async code; a thread for blocking calls keeps the worker. Who drops the future before
    /// it is done asks the worker to stop, gently, by its [`StopHandle`].
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub async fn run_async(self) -> Result<Report> {
        let mut dropped = StopWhenDropped(Some(self.stop_handle()));
        let report = blocking(move || self.run()).await;
        dropped.0 = None;
        report
    }
}

/// Stops a worker for which nobody waits any more.
struct StopWhenDropped(Option<StopHandle>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        if let Some(stop) = &self.0 {
            stop.stop();
        }
    }
}

/// Does this on one of the threads that the runtime keeps for blocking calls.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let runtime = Handle::try_current().map_err(|error| {
        Error::invalid("this is awaited outside of a tokio runtime; await it in one, or make the blocking call")
            .because(error)
    })?;
    match runtime.spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // What has begun is never called off.
            Err(error) => Err(Error::unavailable("the tokio runtime shuts down").because(error)),
        },
    }
}
