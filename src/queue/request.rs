//! A job to enqueue, as a user writes it: what it runs, with which arguments, and how.

use std::time::Duration;

use serde::Serialize;

use crate::{
    clock::Timestamp,
    codec::Payload,
    error::Result,
    queue::{
        enqueue::{ATTEMPTS_DEFAULT, NewExtra, NewJob, When},
        uniqueness::Unique,
    },
    task::Task,
};

/// A job to enqueue: a task, its arguments, and options.
///
/// ```
/// use std::time::Duration;
/// # let store = casque::Store::in_memory()?;
/// let job = casque::JobRequest::new("resize", &("cat.png", 640u32)).priority(10).delay(Duration::from_secs(60));
/// store.queue("media").enqueue(job)?;
/// # Ok::<(), casque::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a request does nothing until it is enqueued"]
pub struct JobRequest {
    task: String,
    args: Result<Payload>,
    args_version: u32,
    priority: i64,
    when: When,
    attempts_max: u32,
    metadata: Vec<(String, String)>,
    keep: bool,
    unique: Option<Unique>,
    extra: NewExtra,
}

impl JobRequest {
    /// A job of a task that was registered under an id, with the arguments that its handler takes.
    pub fn new<A: Serialize + ?Sized>(task: &str, args: &A) -> Self {
        Self::of(task, 1, Payload::bincode(args), ATTEMPTS_DEFAULT)
    }

    /// A job whose arguments are encoded already, as JSON text from outside.
    pub fn with_payload(task: &str, args: Payload) -> Self {
        Self::of(task, 1, Ok(args), ATTEMPTS_DEFAULT)
    }

    /// A job of a [`Task`].
    pub fn task<T: Task>(task: &T) -> Self {
        let mut request = Self::of(T::ID, T::VERSION, Payload::bincode(task), T::MAX_ATTEMPTS);
        request.extra.at_most_once = T::AT_MOST_ONCE;
        request.unique = task.uniqueness();
        request
    }

    /// A job of an [`AsyncTask`](crate::AsyncTask).
    #[cfg(feature = "tokio")]
    pub fn async_task<T: crate::AsyncTask>(task: &T) -> Self {
        let mut request = Self::of(T::ID, T::VERSION, Payload::bincode(task), T::MAX_ATTEMPTS);
        request.extra.at_most_once = T::AT_MOST_ONCE;
        request.unique = task.uniqueness();
        request
    }

    fn of(task: &str, args_version: u32, args: Result<Payload>, attempts_max: u32) -> Self {
        Self {
            task: task.to_owned(),
            args,
            args_version,
            priority: 0,
            when: When::Now,
            attempts_max,
            metadata: Vec::new(),
            keep: false,
            unique: None,
            extra: NewExtra::default(),
        }
    }

    /// The version of the task's arguments, for a registered closure; 1 by default.
    pub fn args_version(mut self, version: u32) -> Self {
        self.args_version = version;
        self
    }

    /// From -100 to 100, higher first; 0 by default.
    pub fn priority(mut self, priority: impl Into<i64>) -> Self {
        self.priority = priority.into();
        self
    }

    /// Runs it no sooner than so long after the commit.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.when = When::After(delay);
        self
    }

    /// Runs it no sooner than at that time.
    pub fn run_at(mut self, at: Timestamp) -> Self {
        self.when = When::At(at);
        self
    }

    /// While a job with this key is in the queue and has not ended, enqueueing another gives that one's id.
    /// [`JobRequest::unique_by`] has more to choose.
    pub fn unique(self, key: impl Into<String>) -> Self {
        self.unique_by(Unique::key(key))
    }

    /// While a job holds the same unique key, enqueueing another gives that one's id.
    pub fn unique_by(mut self, unique: Unique) -> Self {
        self.unique = Some(unique);
        self
    }

    /// Its concurrency key: of the jobs of one key in the queue only one runs at once, or as many as
    /// [`QueueConfig::concurrency_per_key`](crate::types::QueueConfig) lets. Jobs with one key are not the same job;
    /// for that there is [`JobRequest::unique`].
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// # use std::time::Duration;
    /// let queue = store.queue("mails");
    /// for letter in ["first", "second"] {
    ///     queue.enqueue(casque::JobRequest::new("send", &letter).concurrency_key("customer-7"))?;
    /// }
    /// assert_eq!(queue.claim(2, Duration::ZERO)?.len(), 1);
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn concurrency_key(mut self, key: impl Into<String>) -> Self {
        self.extra.key = Some(key.into());
        self
    }

    /// How many attempts may fail before it is dead; 20 by default.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.attempts_max = attempts;
        self
    }

    /// How long an attempt may take, where not as long as its task says. When it passes, the attempt has failed; what
    /// its handler brings later is refused.
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// let job = casque::JobRequest::new("resize", &("cat.png", 640u32)).timeout(std::time::Duration::from_secs(30));
    /// store.queue("media").enqueue(job)?;
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.extra.timeout = Some(timeout);
        self
    }

    /// Adds a pair of metadata: a trace context, a tenant.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Keeps the job after it has completed, for as long as jobs with a result are kept.
    pub fn keep(mut self) -> Self {
        self.keep = true;
        self
    }

    /// Once a run of it has begun, no other ever does: where it fails, gives up or puts off its work, or its process
    /// dies, the job is dead, with an error that says why, and can't be retried. What has not begun is delivered again
    /// all the same. It has one attempt.
    ///
    /// A worker notes that a run begins before it does; who claims by hand says so by
    /// [`Lease::start`](crate::Lease::start).
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// let job = casque::JobRequest::new("charge", &"card").at_most_once();
    /// store.queue("default").enqueue(job)?;
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn at_most_once(mut self) -> Self {
        self.extra.at_most_once = true;
        self
    }

    pub(crate) fn extra_mut(&mut self) -> &mut NewExtra {
        &mut self.extra
    }

    pub(crate) fn for_queue(self, queue: &str) -> Result<NewJob> {
        let args = self.args?;
        let mut extra = self.extra;
        extra.unique = self.unique.map(|unique| unique.resolve(&self.task, &args)).transpose()?;
        Ok(NewJob {
            queue: queue.to_owned(),
            task: self.task,
            args,
            args_version: self.args_version,
            priority: self.priority,
            when: self.when,
            attempts_max: self.attempts_max,
            metadata: self.metadata,
            keep: self.keep,
            extra: (extra != NewExtra::default()).then(|| Box::new(extra)),
        })
    }
}

/// What can be enqueued: a [`JobRequest`], or a reference to a [`Task`].
pub trait IntoJob {
    /// The request to enqueue.
    fn into_job(self) -> JobRequest;
}

impl IntoJob for JobRequest {
    fn into_job(self) -> JobRequest {
        self
    }
}

impl<T: Task> IntoJob for &T {
    fn into_job(self) -> JobRequest {
        JobRequest::task(self)
    }
}
