//! A task whose handler is a future.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    codec::Payload,
    error::{Error, Result},
    queue::{JobRequest, Unique, enqueue::ATTEMPTS_DEFAULT},
    task::{Job, TaskError, default_backoff},
};

/// A [`Task`](crate::Task) whose handler is a future, which runs on the program's own tokio runtime.
///
/// When the run is called off (the job was cancelled, its time is over, it is another's, or the worker stops at once)
/// the future is dropped at its next `.await`. A gentle stop waits for it.
///
/// ```
/// use casque::{AsyncTask, Job, Store, TaskError, Worker};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Double(u32);
///
/// impl AsyncTask for Double {
///     const ID: &'static str = "double";
///     type Output = u32;
///
///     async fn run(self, _: Job) -> Result<u32, TaskError> {
///         tokio::task::yield_now().await;
///         Ok(2 * self.0)
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() -> casque::Result<()> {
/// let store = Store::in_memory()?;
/// let id = store.queue("default").enqueue_async(Double(21).request()).await?;
/// Worker::new(&store).async_task::<Double>().drain(true).run_async().await?;
/// assert_eq!(store.wait_async::<u32>(id, std::time::Duration::from_secs(5)).await?, 42);
/// # Ok(())
/// # }
/// ```
pub trait AsyncTask: Serialize + DeserializeOwned + Send + 'static {
    /// As [`Task::ID`](crate::Task::ID).
    const ID: &'static str;
    /// As [`Task::VERSION`](crate::Task::VERSION).
    const VERSION: u32 = 1;
    /// As [`Task::ALIASES`](crate::Task::ALIASES).
    const ALIASES: &'static [&'static str] = &[];
    /// As [`Task::MAX_ATTEMPTS`](crate::Task::MAX_ATTEMPTS).
    const MAX_ATTEMPTS: u32 = ATTEMPTS_DEFAULT;
    /// As [`Task::AT_MOST_ONCE`](crate::Task::AT_MOST_ONCE).
    const AT_MOST_ONCE: bool = false;
    /// How long an attempt may take where its job says nothing; as long as it likes by default. When it passes, the
    /// attempt has failed, and its future is dropped at its next `.await`.
    const TIMEOUT: Option<Duration> = None;
    /// What the handler returns; kept with the job for a day, unless it is `()`.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// Does the work.
    ///
    /// # Errors
    /// A [`TaskError`] says whether it is tried again; `?` on any other error says that it is.
    fn run(self, job: Job) -> impl Future<Output = Result<Self::Output, TaskError>> + Send;

    /// As [`Task::backoff`](crate::Task::backoff).
    #[must_use]
    fn backoff(attempt: u32) -> Duration {
        default_backoff(attempt)
    }

    /// Reads arguments of an older version.
    ///
    /// # Errors
    /// `Invalid` where it can't; the attempt has failed then. That is the default.
    fn upgrade(version: u32, args: &Payload) -> Result<Self> {
        let _ = args;
        Err(Error::invalid(format!(
            "the arguments are of version {version} of task \"{}\", and this is {}, with no upgrade for them",
            Self::ID,
            Self::VERSION
        )))
    }

    /// As [`Task::uniqueness`](crate::Task::uniqueness).
    fn uniqueness(&self) -> Option<Unique> {
        None
    }

    /// A request to run this, to be enqueued.
    fn request(&self) -> JobRequest {
        JobRequest::async_task(self)
    }

    /// A request to run this no sooner than so long after the commit.
    fn delay(&self, delay: Duration) -> JobRequest {
        self.request().delay(delay)
    }

    /// A request to run this with a priority, from -100 to 100, higher first.
    fn priority(&self, priority: impl Into<i64>) -> JobRequest {
        self.request().priority(priority)
    }

    /// A request to run this unless a job with the key has not ended yet.
    fn unique(&self, key: impl Into<String>) -> JobRequest {
        self.request().unique(key)
    }
}
