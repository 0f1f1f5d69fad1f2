//! Tasks: the code that jobs name. A job is a serialized closure: the id of a registered task, and its arguments.

#[cfg(feature = "tokio")]
mod async_task;
mod backoff;
#[cfg(any(feature = "exec", all(unix, feature = "isolation")))]
pub(crate) mod child_lock;
#[cfg(feature = "exec")]
pub(crate) mod exec;
mod isolation;
mod job;
#[cfg(all(unix, any(feature = "exec", feature = "isolation")))]
pub(crate) mod killer;
mod outcome;
mod registry;
mod stop;

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

#[cfg(feature = "tokio")]
pub use self::async_task::AsyncTask;
pub use self::{
    backoff::Backoff,
    isolation::Isolation,
    job::Job,
    outcome::TaskError,
    registry::{Registered, Registry},
    stop::StopReason,
};
pub(crate) use self::{backoff::default_backoff, job::StopFlag, registry::RunOutput, stop::CalledOff};
use crate::{
    codec::Payload,
    error::{Error, Result},
    queue::{JobRequest, Unique, enqueue::ATTEMPTS_DEFAULT},
};

/// A task whose arguments are the fields of a struct.
///
/// ```
/// use casque::{Job, Registry, Store, Task, TaskError, Worker};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Double(u32);
///
/// impl Task for Double {
///     const ID: &'static str = "double";
///     type Output = u32;
///
///     fn run(self, _: &Job) -> Result<u32, TaskError> {
///         Ok(2 * self.0)
///     }
/// }
///
/// let store = Store::in_memory()?;
/// let id = store.queue("default").enqueue(&Double(21))?;
/// Worker::new(&store).task::<Double>().drain(true).run()?;
/// assert_eq!(store.wait::<u32>(id, std::time::Duration::from_secs(5))?, 42);
/// # Ok::<(), casque::Error>(())
/// ```
pub trait Task: Serialize + DeserializeOwned + Send + 'static {
    /// The id that jobs name. Give it once and keep it: it is in the store, not the type's path.
    const ID: &'static str;
    /// The version of the arguments. Raise it when the struct changes, and read older ones in [`Task::upgrade`].
    const VERSION: u32 = 1;
    /// Ids that this task had before, whose jobs it still runs.
    const ALIASES: &'static [&'static str] = &[];
    /// How many attempts may fail before a job is dead.
    const MAX_ATTEMPTS: u32 = ATTEMPTS_DEFAULT;
    /// Whether a run that has begun is never followed by another: see [`JobRequest::at_most_once`].
    const AT_MOST_ONCE: bool = false;
    /// How long an attempt may take where its job says nothing; as long as it likes by default. When it passes, the
    /// attempt has failed. A handler in a process of its own is killed then; one on a thread should look at
    /// [`Job::is_cancelled`], since its thread runs no other job before it returns.
    const TIMEOUT: Option<Duration> = None;
    /// Where the handler runs; on a thread of the worker by default.
    const ISOLATION: Isolation = Isolation::Thread;
    /// What the handler returns; kept with the job for a day, unless it is `()`.
    type Output: Serialize + DeserializeOwned;

    /// Does the work.
    ///
    /// # Errors
    /// A [`TaskError`] says whether it is tried again; `?` on any other error says that it is.
    fn run(self, job: &Job) -> Result<Self::Output, TaskError>;

    /// How long to wait before the next attempt, after `attempt` failed ones: by default attempt^4 + 15 seconds and up
    /// to ten seconds more per attempt, at random. [`Backoff`] has presets.
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

    /// What makes its jobs unique where a request says nothing else, as `Some(Unique::by(&self.user).per_task())`;
    /// nothing by default.
    fn uniqueness(&self) -> Option<Unique> {
        None
    }

    /// A request to run this no sooner than so long after the commit.
    fn delay(&self, delay: Duration) -> JobRequest {
        JobRequest::task(self).delay(delay)
    }

    /// A request to run this with a priority, from -100 to 100, higher first.
    fn priority(&self, priority: impl Into<i64>) -> JobRequest {
        JobRequest::task(self).priority(priority)
    }

    /// A request to run this unless a job with the key has not ended yet.
    fn unique(&self, key: impl Into<String>) -> JobRequest {
        JobRequest::task(self).unique(key)
    }
}
